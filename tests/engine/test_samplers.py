import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fcojax.engine.participation.samplers import (
    coin_flips,
    cyclic,
    from_trace,
    uniform_cohort,
    weighted_cohort,
)


def drawn(sampler, num_clients, num_rounds, sizes=None):
    """Return the draws of many rounds."""
    rounds = jnp.arange(num_rounds, dtype=jnp.int32)
    draw = lambda index: sampler.draw(jax.random.key(0), index, num_clients, sizes)  # noqa: E731
    return jax.jit(jax.vmap(draw))(rounds)


def test_uniform_cohorts_are_distinct_and_fair():
    cohorts = drawn(uniform_cohort(cohort_size=4), 9, 20_000)
    members = np.sort(np.asarray(cohorts.members), axis=1)
    assert (np.diff(members, axis=1) > 0).all()
    subsets = np.unique(members @ 10 ** np.arange(4), return_counts=True)[1]
    assert len(subsets) == 126  # all of 9 choose 4
    assert stats.chisquare(subsets).pvalue > 1e-3


def test_coin_flips_have_the_law_of_coin_flips():
    num_clients, probability, num_rounds = 7, 0.3, 20_000
    cohorts = drawn(coin_flips(probability), num_clients, num_rounds)
    present = np.zeros((num_rounds, num_clients), int)
    rows = np.arange(num_rounds)[:, None]
    np.add.at(present, (rows, np.asarray(cohorts.members)), np.asarray(cohorts.present, int))
    assert present.max() == 1
    # The frequencies of all 2^7 patterns, against their probabilities.
    observed = np.bincount(present @ 2 ** np.arange(num_clients), minlength=2**num_clients)
    heads = np.array([bin(pattern).count("1") for pattern in range(2**num_clients)])
    expected = probability**heads * (1 - probability) ** (num_clients - heads) * num_rounds
    keep = expected > 5
    observed = np.append(observed[keep], observed[~keep].sum())
    expected = np.append(expected[keep], expected[~keep].sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("power", [0.0, 1.0, -0.5])
def test_weighted_cohorts_are_drawn_one_after_the_other_by_size(power):
    """Probabilities of all draws of 3 from 5 clients, summed over orders, against frequencies."""
    sizes, num_rounds = np.array([1, 2, 3, 5, 8]), 20_000
    cohorts = drawn(weighted_cohort(cohort_size=3, power=power), 5, num_rounds, jnp.asarray(sizes))
    chance = dict.fromkeys(itertools.combinations(range(5), 3), 0.0)
    for order in itertools.permutations(range(5), 3):
        left, product = sizes.astype(float) ** power, 1.0
        for client in order:
            product *= left[client] / left.sum()
            left[client] = 0
        chance[tuple(sorted(order))] += product
    members = np.sort(np.asarray(cohorts.members), axis=1)
    observed = [(members == subset).all(axis=1).sum() for subset in chance]
    assert sum(observed) == num_rounds
    expected = num_rounds * np.array(list(chance.values()))
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_the_cost_of_a_cohort_does_not_grow_with_the_population():
    """Operations and memory of the compiled draw, for a thousand and a billion clients."""

    def cost(sampler, num_clients):
        compiled = jax.jit(lambda key: sampler.draw(key, jnp.array(0), num_clients)).lower(
            jax.random.key(0)
        )
        compiled = compiled.compile()
        return compiled.cost_analysis()["flops"], compiled.memory_analysis().temp_size_in_bytes

    few, many = (
        cost(uniform_cohort(cohort_size=10), 10**3),
        cost(uniform_cohort(cohort_size=10), 10**9),
    )
    assert many[0] <= few[0] * 1.01 and many[1] <= few[1] * 1.01 + 1024
    assert coin_flips(1e-7).size(10**9) < 200


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
