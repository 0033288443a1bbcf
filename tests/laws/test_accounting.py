"""Epsilon, against direct calls of dp-accounting and closed forms."""

import dp_accounting as dp
import numpy as np
import pytest

import fcojax
from fcojax import privacy, uploads

pytestmark = pytest.mark.gate

WORK = fcojax.local_steps(1)


def plan(cohort, noise):
    return fcojax.Plan(WORK, cohort, privacy.gaussian(1.0, noise=noise))


def settings(seed, number=50):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        yield {
            "noise": float(rng.uniform(0.6, 4.0)),
            "num_clients": int(rng.integers(50, 5000)),
            "num_rounds": int(rng.integers(1, 500)),
            "delta": float(10 ** rng.uniform(-7, -3)),
            "share": float(rng.uniform(0.01, 0.3)),
        }


def by_hand(name, given):
    """Direct use of the accountant, the event and the sensitivity."""
    rate, clients = given["share"], given["num_clients"]
    if name == "poisson":
        relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
        event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(given["noise"]))
        return fcojax.coin_flips(rate), relation, event
    if name == "fixed":
        size = max(1, int(rate * clients))
        relation = dp.NeighboringRelation.REPLACE_ONE
        event = dp.SampledWithoutReplacementDpEvent(
            clients, size, dp.GaussianDpEvent(given["noise"] / 2)
        )
        return fcojax.uniform_cohort(cohort_size=size), relation, event
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    return fcojax.everyone(), relation, dp.GaussianDpEvent(given["noise"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:delta is")  # some cohorts are large
@pytest.mark.parametrize("name", ["poisson", "fixed", "everyone"])
def test_epsilon_is_that_of_the_package(name):
    for given in settings(0):
        cohort, relation, event = by_hand(name, given)
        accountant = dp.rdp.RdpAccountant(neighboring_relation=relation)
        accountant.compose(event, given["num_rounds"])
        expected = accountant.get_epsilon(given["delta"])
        found = privacy.epsilon(
            plan(cohort, given["noise"]), given["num_clients"], given["num_rounds"], given["delta"]
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_setting_that_others_have_computed():
    """Fixed cohorts of 50 of 1,000, with noise of 1.1 times the sensitivity 2 C."""
    found = privacy.epsilon(
        plan(fcojax.uniform_cohort(cohort_size=50), 2.2), 1000, num_rounds=100, delta=1e-5
    )
    np.testing.assert_allclose(found, 5.7232, atol=1e-4)


@pytest.mark.slow
def test_noise_for_a_target_and_rounds_within_it():
    cohort = fcojax.coin_flips(0.05)
    noise = privacy.noise_for(2.0, 1e-5, cohort, num_clients=1000, num_rounds=100)
    found = plan(cohort, noise)
    spent, beyond = (privacy.epsilon(found, 1000, rounds, 1e-5) for rounds in (100, 101))
    assert spent <= 2.0 < beyond
    np.testing.assert_allclose(spent, 2.0, atol=1e-3)
    assert privacy.rounds_within(2.0, 1e-5, found, 1000) == 100
    five = privacy.rounds_within(8.0, 1e-5, found, 1000, num_runs=5)
    costs = [privacy.epsilon(found, 1000, five + more, 1e-5, num_runs=5) for more in (0, 1)]
    assert costs[0] <= 8.0 < costs[1]
    louder = privacy.noise_for(2.0, 1e-5, cohort, num_clients=1000, num_rounds=100, num_runs=5)
    np.testing.assert_allclose(louder, noise * 5**0.5, rtol=1e-4)


@pytest.mark.slow
def test_runs_with_the_same_cohorts_spend_more_than_that_many_rounds():
    """Their releases of a round are composed before the sampling, not after it."""
    coins, everyone = fcojax.coin_flips(0.05), fcojax.everyone()
    accountant = dp.rdp.RdpAccountant()
    for _ in range(20):
        together = dp.ComposedDpEvent([dp.GaussianDpEvent(2.0)] * 6)
        accountant.compose(dp.PoissonSampledDpEvent(0.05, together))
    found = privacy.epsilon(plan(coins, 2.0), 1000, 20, 1e-5, num_runs=6)
    np.testing.assert_allclose(found, accountant.get_epsilon(1e-5), rtol=1e-9)
    apart = [privacy.releases(plan(coins, 2.0), 20)] * 6  # with different keys
    assert privacy.total_epsilon(apart, 1000, 1e-5) < 0.6 * found
    runs = privacy.epsilon(plan(everyone, 2.0), 1000, 20, 1e-5, num_runs=6)
    np.testing.assert_allclose(runs, privacy.epsilon(plan(everyone, 2.0), 1000, 120, 1e-5))


def test_laws_that_have_no_accountant_are_refused_or_named():
    for cohort in (fcojax.cyclic(num_groups=2), fcojax.from_trace(np.ones((2, 10), bool))):
        law = privacy.law(cohort, 10)
        assert "no gain" in law.name
        found = privacy.epsilon(plan(cohort, 1.0), 10, 5, 1e-3)
        assert found == privacy.epsilon(plan(fcojax.everyone(), 1.0), 10, 5, 1e-3)


def test_what_is_not_accounted_is_refused():
    with pytest.raises(ValueError, match="cannot be accounted for"):
        privacy.law(fcojax.weighted_cohort(cohort_size=2), 10)
    for noisy, lacks in ((True, "how much noise"), (fcojax.extend.Noise(1.0), "no bound")):
        mine = uploads.UploadTransform("mine", facts=uploads.Facts(noisy=noisy))
        with pytest.raises(ValueError, match=lacks):
            privacy.epsilon(fcojax.Plan(WORK, uploads=mine), 10, 5, 1e-3)
    assert privacy.epsilon(fcojax.Plan(WORK), 10, 5, 1e-3) == np.inf
    whole = plan(fcojax.coin_flips(0.2), 1.0)
    lossy = whole._replace(uploads=uploads.chain(whole.uploads, fcojax.dropout(0.1)))
    costs = [privacy.epsilon(each, 10, 5, 1e-3) for each in (lossy, whole)]
    assert costs[0] == costs[1]
    assert privacy.epsilon(plan(fcojax.everyone(), 0.0), 10, 5, 1e-3) == np.inf


@pytest.mark.parametrize("delta", [0.0, 1.0, np.nan])
def test_a_delta_that_promises_nothing_is_refused(delta):
    with pytest.raises(ValueError, match="delta is"):
        privacy.epsilon(plan(fcojax.everyone(), 1.0), 10, 5, delta)
    with pytest.raises(ValueError, match="delta is"):
        privacy.rounds_within(1.0, delta, plan(fcojax.everyone(), 1.0), 10)


def test_a_delta_of_a_tenth_of_one_over_the_clients_is_warned_of():
    """Three hospitals at clients^-1.1, which is 0.30."""
    coins = fcojax.coin_flips(0.5)
    with pytest.warns(UserWarning, match="delta is 0.299 for 3 clients; pass one below 0.0333"):
        privacy.epsilon(plan(coins, 2.0), 3, 5, 3**-1.1)
    with pytest.warns(UserWarning, match="delta is 0.1 for 3 clients"):
        privacy.noise_for(1.0, 0.1, coins, 3, 5)
    privacy.epsilon(plan(coins, 2.0), 3, 5, 0.033)


def test_noise_on_uploads_and_counts_together_cost_what_was_asked():
    """Two Gaussian releases with noise z1 and z2 equal one with (z1^-2 + z2^-2)^(-1/2)."""
    from fcojax.privacy.mechanism import noise_on_uploads

    for noise, count in ((1.0, 2.0), (0.5, 5.0)):
        larger = noise_on_uploads(noise, count)
        np.testing.assert_allclose((larger**-2 + (2 * count) ** -2) ** -0.5, noise, rtol=1e-14)


def test_a_ledger_of_unlike_runs_is_driven_by_hand():
    coins, everyone = fcojax.coin_flips(0.1), fcojax.everyone()
    ledger = [privacy.Releases(coins, 1.5, 20), privacy.Releases(everyone, 4.0, 7)]
    accountant = dp.rdp.RdpAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.5)), 20)
    accountant.compose(dp.GaussianDpEvent(4.0), 7)
    expected = accountant.get_epsilon(1e-4)
    np.testing.assert_allclose(privacy.total_epsilon(ledger, 100, 1e-4), expected, rtol=1e-12)
    fixed = privacy.Releases(fcojax.uniform_cohort(cohort_size=3), 1.0, 1)
    with pytest.raises(ValueError, match="replacement"):
        privacy.total_epsilon([*ledger, fixed], 100, 1e-4)


def test_what_was_spent_before_allows_fewer_rounds():
    given = plan(fcojax.everyone(), 10.0)
    allowed = privacy.rounds_within(2.0, 1e-3, given, 2)
    before = privacy.releases(given, 10)
    assert privacy.rounds_within(2.0, 1e-3, given, 2, spent=[before]) == allowed - 10 > 0
