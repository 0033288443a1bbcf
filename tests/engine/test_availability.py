import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fcojax.engine.participation.samplers import cyclic, from_trace

MATRIX = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
LISTS = [[0, 2, 3], [], [1], [0, 1, 2, 3, 4]]
KEY = jax.random.key(2)


def cohorts(sampler, num_rounds, num_clients=5):
    rounds = jnp.arange(num_rounds, dtype=jnp.int32)
    return jax.jit(jax.vmap(lambda index: sampler.draw(KEY, index, num_clients)))(rounds)


def present(drawn):
    members, there = np.asarray(drawn.members), np.asarray(drawn.present)
    return [row[mask].tolist() for row, mask in zip(members, there, strict=True)]


@pytest.mark.parametrize("trace", [MATRIX, MATRIX.astype(float), LISTS])
def test_the_trace_is_followed_and_begins_anew(trace):
    drawn = cohorts(from_trace(trace), 9)
    assert present(drawn) == LISTS + LISTS + LISTS[:1]


def test_equal_traces_are_one_static_argument():
    again = from_trace(MATRIX.copy())
    assert again == from_trace(MATRIX) and hash(again) == hash(from_trace(MATRIX))
    assert again != from_trace(~MATRIX) and again != from_trace(MATRIX, cohort_size=2)
    assert len(repr(again)) < 100


def test_some_of_those_there_are_a_fair_subset_of_them():
    drawn = cohorts(from_trace(MATRIX, cohort_size=2), 20_000)
    members = present(drawn)
    assert members[1::4] == [[]] * 5_000 and members[2::4] == [[1]] * 5_000
    for offset, num_pairs in ((0, 3), (3, 10)):
        pairs, counts = np.unique(np.sort(members[offset::4], axis=1), axis=0, return_counts=True)
        assert set(pairs.flat) == set(LISTS[offset]) and len(pairs) == num_pairs
        assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(("num_clients", "num_groups"), [(7, 3), (6, 3), (5, 5), (4, 1)])
def test_every_group_has_its_turn(num_clients, num_groups):
    sampler = cyclic(num_groups=num_groups)
    cohorts = [sampler.draw(KEY, jnp.array(index), num_clients) for index in range(2 * num_groups)]
    groups = [np.asarray(c.members)[np.asarray(c.present)].tolist() for c in cohorts]
    assert groups[:num_groups] == groups[num_groups:]
    assert sum(groups[:num_groups], []) == list(range(num_clients))
    sizes = [len(group) for group in groups]
    assert max(sizes) - min(sizes) <= 1 and max(sizes) == sampler.size(num_clients)


@pytest.mark.slow
def test_a_cohort_of_a_billion_costs_what_a_cohort_of_a_thousand_does():
    sampler = cyclic(num_groups=10, cohort_size=10)

    def cost(num_clients):
        compiled = jax.jit(lambda index: sampler.draw(KEY, index, num_clients)).lower(jnp.int32(0))
        compiled = compiled.compile()
        return compiled.cost_analysis()["flops"], compiled.memory_analysis().temp_size_in_bytes

    few, many = cost(10**3), cost(10**9)
    assert many[0] <= few[0] * 1.01 and many[1] <= few[1] * 1.01 + 1024
