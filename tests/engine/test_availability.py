import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fcojax.engine.participation.availability import cyclic, markov

KEY = jax.random.key(5)


@functools.cache
def presence(leave, join, rounds, num_clients=20_000):
    """Return which clients are present in the given rounds, [rounds, clients]."""
    clients = jnp.arange(num_clients, dtype=jnp.int32)
    there = jax.jit(
        jax.vmap(lambda index: markov(leave=leave, join=join).available(KEY, index, clients))
    )
    return np.asarray(there(jnp.array(rounds, jnp.int32)))


def chance_of_pattern(leave, join, rounds, pattern):
    """Return the probability of these states, present (1) or absent (0), under the chain."""
    transition = np.array([[1 - join, join], [leave, 1 - leave]])
    stationary = np.array([leave, join]) / (leave + join)
    chance = stationary[pattern[0]]
    for (now, before), gap in zip(itertools.pairwise(pattern), np.diff(rounds), strict=True):
        chance *= np.linalg.matrix_power(transition, gap)[now, before]
    return chance


CHAINS = [
    (0.05, 0.1, (5, 6, 7, 8, 9)),  # periods of 7 rounds, with a boundary within
    (0.05, 0.1, (0, 1, 2, 13, 14)),
    (0.01, 0.02, (0, 50, 100, 1000)),
    (0.3, 0.7, (3, 4, 5)),  # independent rounds
    (0.9, 0.8, (0, 1, 2, 3, 4)),  # more likely to change than to stay
    (0.9, 0.8, (98, 99, 101)),
    (1.0, 0.25, (7, 8, 9, 10)),
]


@pytest.mark.parametrize(("leave", "join", "rounds"), CHAINS)
def test_the_chain_has_its_law_over_several_rounds(leave, join, rounds):
    there = presence(leave, join, rounds)
    patterns = list(itertools.product((0, 1), repeat=len(rounds)))
    observed = np.array([(np.array(p) == there.T).all(axis=1).sum() for p in patterns])
    expected = there.shape[1] * np.array(
        [chance_of_pattern(leave, join, rounds, p) for p in patterns]
    )
    assert expected.sum() == pytest.approx(there.shape[1])
    assert (observed[expected < 1e-9] == 0).all()
    often = expected > 5
    observed = np.append(observed[often], observed[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    kept = expected > 1e-9
    assert stats.chisquare(observed[kept], expected[kept]).pvalue > 1e-3


def test_a_chain_that_always_changes_sides_alternates():
    there = presence(1.0, 1.0, tuple(range(6)), 1_000)
    assert (there[0] != there[1]).all() and np.array_equal(there[:2], there[2:4])
    assert stats.binomtest(int(there[0].sum()), 1_000, 0.5).pvalue > 1e-3


def test_clients_are_independent_of_each_other():
    there = presence(0.05, 0.1, (5, 6, 7, 8, 9))[0].reshape(-1, 2)
    share = 2 / 3
    expected = np.outer([1 - share, share], [1 - share, share]).reshape(-1) * len(there)
    observed = np.bincount(there[:, 0] * 2 + there[:, 1], minlength=4)
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_a_client_s_chain_does_not_depend_on_who_else_is_asked():
    everyone = presence(0.05, 0.1, (5, 6, 7, 8, 9))[2]
    some = jnp.array([7, 19_999, 0, 7], jnp.int32)
    alone = markov(leave=0.05, join=0.1).available(KEY, jnp.int32(7), some)
    assert np.array_equal(alone, everyone[np.asarray(some)])


def test_the_cohort_is_all_who_are_there():
    num_clients, sampler = 40, markov(leave=0.2, join=0.1)
    cohorts = jax.jit(jax.vmap(lambda index: sampler.draw(KEY, index, num_clients)))(
        jnp.arange(200)
    )
    there = presence(0.2, 0.1, tuple(range(200)), num_clients)
    members, taken = np.asarray(cohorts.members), np.asarray(cohorts.present)
    for row, mask, expected in zip(members, taken, there, strict=True):
        assert np.array_equal(row[mask], np.flatnonzero(expected))
    assert markov(leave=1e-2, join=1e-6).size(10**6) < 300


def test_some_of_those_there_are_a_fair_subset_of_them():
    """A cohort of two of seven: if four are present, all pairs of the four are equally likely."""
    num_clients, num_draws, sampler = 7, 20_000, markov(leave=0.3, join=0.3, cohort_size=2)
    keys = jax.random.split(KEY, num_draws)
    index, clients = jnp.int32(11), jnp.arange(num_clients, dtype=jnp.int32)
    draw = jax.jit(
        jax.vmap(
            lambda key: (
                sampler.draw(key, index, num_clients),
                sampler.available(key, index, clients),
            )
        )
    )
    cohorts, there = draw(keys)
    members, present = np.asarray(cohorts.members), np.asarray(cohorts.present)
    there = np.asarray(there)
    assert np.array_equal(present.sum(axis=1), np.minimum(there.sum(axis=1), 2))
    rows = np.arange(num_draws)[:, None]
    assert there[rows, members][present].all()
    assert (members[present[:, 1], 0] != members[present[:, 1], 1]).all()
    four = there.sum(axis=1) == 4
    rank = np.cumsum(there, axis=1)[rows, members] - 1
    pairs = np.sort(rank[four], axis=1) @ [1, 4]
    counts = np.unique(pairs, return_counts=True)[1]
    assert len(counts) == 6 and stats.chisquare(counts).pvalue > 1e-3


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
@pytest.mark.parametrize(
    "sampler", [cyclic(num_groups=10, cohort_size=10), markov(leave=0.1, join=0.1, cohort_size=10)]
)
def test_a_cohort_of_a_billion_costs_what_a_cohort_of_a_thousand_does(sampler):
    def cost(num_clients):
        compiled = jax.jit(lambda index: sampler.draw(KEY, index, num_clients)).lower(jnp.int32(0))
        compiled = compiled.compile()
        return compiled.cost_analysis()["flops"], compiled.memory_analysis().temp_size_in_bytes

    few, many = cost(10**3), cost(10**9)
    assert many[0] <= few[0] * 1.01 and many[1] <= few[1] * 1.01 + 1024
