"""Clipping and noise in runs: against numpy, their scale, and what neighbours reveal.

Also noise that is correlated across rounds: its matrix and its privacy loss.
"""

import functools

import dp_accounting as dp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

import fcojax
from fcojax import privacy
from fcojax.algorithms import fed_avg, fed_dual_avg
from fcojax.transforms import euclidean
from tests.support import federations

KEY = jax.random.key(4)
COINS = fcojax.coin_flips(0.6)


def planned(transform, cohort=None, work=None):
    return fcojax.Plan(work or fcojax.local_steps(1), cohort or fcojax.everyone(), transform)


def scalars(*targets, weights=None):
    """One number each; with a rate of 1 a client uploads its target minus the model."""
    clients = [{"a": np.array([a])} for a in targets]
    return fcojax.from_clients(clients, weights=weights)


@functools.cache
def mean_of_targets():
    return fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)


FULL_STEP = fed_avg.Hparams(client_lr=1.0)


def one_round(targets, transform, cohort=None, weights=None, key=KEY):
    return fcojax.run(
        mean_of_targets(),
        FULL_STEP,
        jnp.array(0.0),
        scalars(*targets, weights=weights),
        key,
        planned(transform, cohort),
        num_rounds=1,
    )


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e200])
def test_uploads_of_any_size_are_clipped(size):
    model, history = one_round((size, 1.0), privacy.gaussian(2.0))
    assert history["dropped"][0] == 0
    np.testing.assert_allclose(model, (min(size, 2.0) + 1.0) / 2, rtol=1e-12)


def delta_of(epsilon, multiplier):
    """Return the exact delta of the Gaussian mechanism (Balle and Wang, ICML 2018, theorem 5)."""
    cdf = scipy.stats.norm.cdf
    one, other = 0.5 / multiplier, epsilon * multiplier
    return cdf(one - other) - np.exp(epsilon) * cdf(-one - other)


def delta_of_poisson(epsilon, multiplier, rate):
    """Return the delta for a client that takes part with this probability.

    P = (1 - q) Q + q G, so P(E) - e^epsilon Q(E) is q times the excess of G over a multiple of Q.
    """
    return rate * delta_of(np.log1p(np.expm1(epsilon) / rate), multiplier)


Point = fcojax.extended(fed_avg.Hparams, "Point", index=0.0)


def told_apart(cohort, transform, neighbours, num_runs=10_000, num_points=1):
    """Return the mean of all releases of each run, for both populations."""
    plan = planned(transform, cohort)
    keys = jax.random.split(KEY, num_runs)
    grid = fcojax.grid.product(Point, client_lr=[1.0], index=np.arange(float(num_points)))
    releases = []
    for targets in neighbours:
        models, _ = fcojax.sweep(
            mean_of_targets(), grid, jnp.array(0.0), scalars(*targets), keys, plan, num_rounds=1
        )
        releases.append(np.mean(np.asarray(models), axis=0))
        keys = jax.random.split(jax.random.fold_in(KEY, 1), num_runs)
    return releases


def excess_of(drawn, epsilon):
    """Return P(E) - e^epsilon Q(E) for statistics above thresholds, and its standard deviations."""
    thresholds, runs = np.quantile(drawn[0], np.linspace(0.02, 0.98, 25)), len(drawn[0])
    found, falsely = (np.mean(one[:, None] > thresholds, axis=0) for one in drawn)
    spread = found * (1 - found) + np.exp(2 * epsilon) * falsely * (1 - falsely)
    return found - np.exp(epsilon) * falsely, np.sqrt(spread / runs)


@pytest.mark.slow
@pytest.mark.gate
def test_points_of_a_sweep_cost_as_runs_with_the_same_cohorts():
    """The leak is within their joint bound, and exceeds the bound for independent cohorts."""
    rate, noise, points, epsilon, runs = 0.2, 2.0, 8, 0.5, 10_000
    coins, noisy = fcojax.coin_flips(rate), privacy.gaussian(1.0, noise=noise)
    drawn = told_apart(coins, noisy, ((50.0, 0.0), (0.0, 0.0)), runs, points)
    excess, error = excess_of(drawn, epsilon)
    [entry] = {privacy.releases(planned(noisy, coins), 1, num_runs=points)}
    bound = delta_of_poisson(epsilon, entry.noise, rate)
    assert np.max(excess - 5 * error) <= bound

    rng = np.random.default_rng(0)
    size = (400_000, points)
    drawn = (rng.random(size) < rate) + noise * rng.standard_normal(size)
    loss = np.log1p(rate * np.expm1((drawn - 0.5) / noise**2)).sum(axis=1)
    independent = np.mean(np.maximum(0, 1 - np.exp(epsilon - loss)))
    assert np.max(excess - 5 * error) > independent


def test_an_adaptive_norm_without_noise_by_hand():
    adaptive = privacy.adaptive_clip(0.5, start=2.0)
    plan = planned(privacy.gaussian(adaptive))
    targets = scalars(1.0, 4.0, 8.0)
    state = fcojax.start(mean_of_targets(), FULL_STEP, jnp.array(0.0), targets, KEY, plan)
    state, _ = fcojax.advance(mean_of_targets(), FULL_STEP, state, targets, plan, num_rounds=1)
    np.testing.assert_allclose(state.server, 5 / 3, rtol=1e-12)
    [norm] = state.memory.transforms
    np.testing.assert_allclose(norm, 2 * np.exp(-0.2 * (1 / 3 - 0.5)), rtol=1e-12)


@pytest.mark.slow
def test_public_parts_are_constants_also_where_nobody_takes_part():
    chosen = fed_dual_avg(federations.loss, euclidean(federations.kernel_l1()))
    hparams, work = federations.hparams("fed_dual_avg"), fcojax.local_steps(2, 2)
    data = fcojax.from_clients(federations.clients())

    def after(work, cohort):
        plan = planned(privacy.gaussian(1.0, noise=1.0), cohort, work)
        state = fcojax.start(chosen, hparams, federations.start(), data, KEY, plan)
        return fcojax.advance(chosen, hparams, state, data, plan, num_rounds=2)[0].server

    nobody, everybody = (after(work, who) for who in (fcojax.coin_flips(1e-9), fcojax.everyone()))
    np.testing.assert_allclose(nobody.elapsed, everybody.elapsed, rtol=1e-12)
    assert float(nobody.elapsed) > 0
    # A client that works longer reveals its participation, as data-dependent parts do.
    one_by_one = after(fcojax.local_steps([2] * 5, 2), fcojax.everyone())
    np.testing.assert_allclose(one_by_one.elapsed, everybody.elapsed, rtol=1e-12)
    ragged = fcojax.local_steps(3, fewest=1)
    for work in (fcojax.local_steps([1, 1, 1, 1, 200]), ragged, fcojax.local_epochs(1, 2)):
        with pytest.raises(ValueError, match="Public parts .* depend on the client or its data"):
            after(work, COINS)


# Noise that is correlated across rounds.

BANDS, ROUNDS, THREE = (1.0, 0.5, 0.375), 12, fcojax.cyclic(num_groups=3)


def strategy(bands, size=ROUNDS):
    column = np.pad(bands, (0, size - len(bands)))
    return scipy.linalg.toeplitz(column, np.zeros(size))


@functools.cache
def sum_of_targets():
    """Return an algorithm with constant uploads, whose model is the sum of all releases."""
    return fed_avg(lambda w, rows: -w * rows["a"])


def whole_model(hparams, w, context):
    return {"w": w}


def releases(bands, targets=(0.0, 0.0, 0.0), num_groups=3, num_runs=2000, noise=1.3, key=KEY):
    """Return the released means of ``ROUNDS`` rounds of many runs."""
    noisy = privacy.gaussian(0.5, noise=noise, bands=bands)
    plan = planned(noisy, fcojax.cyclic(num_groups=num_groups))
    grid = fcojax.grid.product(fed_avg.Hparams, client_lr=[1.0])
    _, history = fcojax.sweep(
        sum_of_targets(),
        grid,
        jnp.array(0.0),
        scalars(*targets),
        jax.random.split(key, num_runs),
        plan,
        num_rounds=ROUNDS,
        observe=whole_model,
    )
    return np.diff(np.asarray(history["w"])[0], axis=1, prepend=0.0)


@pytest.mark.gate
@pytest.mark.slow
def test_the_strategy_makes_the_noise_independent_again():
    """C times the noise of all rounds is white with the promised scale (chi-square)."""
    noise = releases(BANDS)  # one client per round, so the denominator is 1
    white = noise @ strategy(BANDS).T / (1.3 * 0.5)
    low, high = scipy.stats.chi2.ppf([1e-5, 1 - 1e-5], df=white.size)
    assert low < np.sum(white**2) < high
    apart = white.T @ white / len(white) - np.eye(ROUNDS)
    assert np.max(np.abs(apart)) < 5.5 / np.sqrt(len(white)) * np.sqrt(2)
    plain = np.corrcoef(noise[:, 4], noise[:, 5])[0, 1]
    assert plain < -0.3  # the next round cancels the noise of this one


@pytest.mark.gate
@pytest.mark.filterwarnings("ignore:delta is")  # with three clients, for a sharp test
@pytest.mark.slow
@pytest.mark.parametrize(("num_groups", "holds"), [(3, True), (1, False)])
def test_neighbours_are_told_apart_as_promised_if_no_client_comes_back_too_soon(num_groups, holds):
    """The best test projects on the client's change, which grows with its participations."""
    noise, epsilon, runs = 3.0, 0.5, 10_000
    plan = planned(privacy.gaussian(0.5, noise=noise, bands=BANDS), THREE)
    times = ROUNDS // 3
    bound = delta_of(epsilon, noise / np.linalg.norm(BANDS) / np.sqrt(times))
    spent = privacy.epsilon(plan, 3, ROUNDS, delta=bound)
    accountant = dp.rdp.RdpAccountant()
    accountant.compose(dp.GaussianDpEvent(noise / np.linalg.norm(BANDS)), times)
    np.testing.assert_allclose(spent, accountant.get_epsilon(bound), rtol=1e-12)
    assert spent >= epsilon  # RDP gives an upper bound
    part = 1.0 if num_groups == 1 else (np.arange(ROUNDS) % 3 == 0).astype(float)
    moved = strategy(BANDS) @ (part * np.ones(ROUNDS))
    sides = []
    for index, targets in enumerate(((50.0, 0.0, 0.0), (0.0, 0.0, 0.0))):
        key = jax.random.fold_in(KEY, index)
        drawn = releases(BANDS, targets, num_groups, runs, noise, key)
        sides.append(drawn * (3 / num_groups) @ strategy(BANDS).T @ moved)
    found, error = excess_of(sides, epsilon)
    assert (np.max(found - bound - 5 * error) <= 0) == holds


def test_accounting_counts_the_rounds_of_one_client():
    plan = planned(privacy.gaussian(1.0, noise=8.0, bands=BANDS), THREE)
    allowed = privacy.rounds_within(2.0, 1e-3, plan, 3)
    assert allowed % 3 == 0
    plain = plan._replace(uploads=privacy.gaussian(1.0, noise=8.0 / np.linalg.norm(BANDS)))
    assert privacy.rounds_within(2.0, 1e-3, plain, 3) == allowed // 3


def test_bands_do_not_hold_for_clients_that_come_back_too_soon():
    noisy = privacy.gaussian(1.0, noise=1.0, bands=BANDS)
    for cohort in (fcojax.everyone(), fcojax.coin_flips(0.5), fcojax.cyclic(num_groups=2)):
        with pytest.raises(ValueError, match="no client may come back"):
            privacy.epsilon(planned(noisy, cohort), 6, 3, 1e-3)
