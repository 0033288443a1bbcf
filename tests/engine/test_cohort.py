import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fcojax.engine.cohort import coin_flips, everyone, uniform_cohort


def drawn(sampler, num_clients, num_rounds, seed=0):
    """Cohorts of many rounds: members (or None), weights, fractions."""
    keys = jax.random.split(jax.random.key(seed), num_rounds)
    return jax.jit(jax.vmap(lambda key: sampler(key, jnp.array(0), num_clients)))(keys)


def test_everyone_is_everyone_in_place():
    cohort = everyone()(jax.random.key(0), jnp.array(0), 5)
    assert cohort.members is None
    assert cohort.weights.tolist() == [1.0] * 5 and cohort.fraction == 1


def test_uniform_cohorts_are_distinct_and_fair():
    cohorts = drawn(uniform_cohort(4), 9, 20_000)
    members = np.sort(np.asarray(cohorts.members), axis=1)
    assert (np.diff(members, axis=1) > 0).all()
    subsets = np.unique(members @ 10 ** np.arange(4), return_counts=True)[1]
    assert len(subsets) == 126  # all of 9 choose 4
    assert stats.chisquare(subsets).pvalue > 1e-3
    assert np.allclose(cohorts.fraction, 4 / 9)


def test_coin_flips_have_the_law_of_coin_flips():
    num_clients, probability, num_rounds = 7, 0.3, 20_000
    cohorts = drawn(coin_flips(probability), num_clients, num_rounds)
    present = np.zeros((num_rounds, num_clients), int)
    rows = np.arange(num_rounds)[:, None]
    np.add.at(present, (rows, np.asarray(cohorts.members)), np.asarray(cohorts.weights, int))
    assert present.max() == 1
    # All 2^7 patterns of heads, against their probabilities.
    observed = np.bincount(present @ 2 ** np.arange(num_clients), minlength=2**num_clients)
    heads = np.array([bin(pattern).count("1") for pattern in range(2**num_clients)])
    expected = probability**heads * (1 - probability) ** (num_clients - heads) * num_rounds
    keep = expected > 5
    observed = np.append(observed[keep], observed[~keep].sum())
    expected = np.append(expected[keep], expected[~keep].sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    assert np.allclose(cohorts.fraction, present.mean(axis=1))


def test_the_cost_of_a_cohort_does_not_grow_with_the_population():
    """Operations and memory of the compiled draw, for a thousand and for a billion clients."""

    def cost(sampler, num_clients):
        compiled = jax.jit(lambda key: sampler(key, jnp.array(0), num_clients)).lower(
            jax.random.key(0)
        )
        compiled = compiled.compile()
        return compiled.cost_analysis()["flops"], compiled.memory_analysis().temp_size_in_bytes

    few, many = cost(uniform_cohort(10), 10**3), cost(uniform_cohort(10), 10**9)
    assert many[0] <= few[0] * 1.01 and many[1] <= few[1] * 1.01 + 1024
    assert coin_flips(1e-7).size(10**9) < 200


def test_equal_samplers_are_one_static_argument():
    assert uniform_cohort(3) == uniform_cohort(3)
    assert hash(coin_flips(0.5)) == hash(coin_flips(0.5))
    assert uniform_cohort(3) != uniform_cohort(4)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: uniform_cohort(0), "cohort_size is 0"),
        (lambda: uniform_cohort(2.0), "cohort_size is 2.0"),
        (lambda: coin_flips(0.0), "probability is 0.0"),
        (lambda: coin_flips(1.5), "probability is 1.5"),
        (
            lambda: uniform_cohort(50).size(20),
            "cohort_size is 50 but the problem has 20 clients; pass at most 20, or use everyone()",
        ),
    ],
)
def test_impossible_cohorts_are_refused(build, message):
    with pytest.raises(ValueError) as error:
        build()
    assert message in str(error.value)
