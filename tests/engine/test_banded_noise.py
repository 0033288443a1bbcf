"""Noise that is correlated across rounds: its matrix, its privacy loss, and resumed runs."""

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
from fcojax.algorithms import fed_avg
from tests.engine.test_private_uploads import (
    KEY,
    delta_of,
    one_round,
    run,
    scalars,
)
from tests.support import federations

pytestmark = pytest.mark.gate
BANDS = privacy.square_root_bands(3)
ROUNDS = 12


def strategy(bands, size=ROUNDS):
    column = np.pad(bands, (0, size - len(bands)))
    return scipy.linalg.toeplitz(column, np.zeros(size))


def banded(transform, cohort=None):
    return fcojax.Plan(fcojax.local_steps(1), cohort or fcojax.cyclic(num_groups=3), transform)


@functools.cache
def sum_of_targets():
    """Return an algorithm with constant uploads, whose model is the sum of all releases."""
    return fed_avg(lambda w, rows: -w * rows["a"])


def releases(bands, targets=(0.0, 0.0, 0.0), num_groups=3, num_runs=2000, noise=1.3, key=KEY):
    """Return the released means of ``ROUNDS`` rounds of many runs."""
    noisy = privacy.gaussian(0.5, noise=noise, bands=bands)
    plan = banded(noisy, fcojax.cyclic(num_groups=num_groups))
    grid = fcojax.grid.product(fed_avg.Hparams, client_lr=[1.0])
    _, history = fcojax.sweep(
        sum_of_targets(),
        grid,
        jnp.array(0.0),
        scalars(*targets),
        jax.random.split(key, num_runs),
        plan,
        num_rounds=ROUNDS,
        observe=lambda hparams, w, context: {"w": w},
    )
    return np.diff(np.asarray(history["w"])[0], axis=1, prepend=0.0)


def test_one_band_and_bands_of_zero_are_plain_noise_bit_for_bit():
    expected, _ = run(privacy.gaussian(0.3, noise=0.7))
    for bands in ((1.0,), (1.0, 0.0, 0.0)):
        found, _ = run(privacy.gaussian(0.3, noise=0.7, bands=bands))
        np.testing.assert_array_equal(found, expected)


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


@pytest.mark.slow
def test_sums_over_rounds_have_less_noise_at_the_same_cost():
    """Both agree with the inverse matrices; the noise is multiplied by the norm of the bands."""
    prefix, length = np.tril(np.ones((ROUNDS, ROUNDS))), np.linalg.norm(BANDS)
    squares = {}
    for bands, scale in (((1.0,), 1.0), (BANDS, length)):
        found = np.cumsum(releases(bands, noise=scale), axis=1)[:, -1]
        row = (prefix @ np.linalg.inv(strategy(bands)))[-1]
        expected = (0.5 * scale) ** 2 * row @ row
        squares[bands] = np.mean(found**2)
        np.testing.assert_allclose(squares[bands], expected, rtol=5 * np.sqrt(2 / 2000))
    assert squares[BANDS] < 0.75 * squares[(1.0,)]


@pytest.mark.filterwarnings("ignore:delta is")  # with three clients, for a sharp test
@pytest.mark.slow
@pytest.mark.parametrize(("num_groups", "holds"), [(3, True), (1, False)])
def test_neighbours_are_told_apart_as_promised_if_no_client_comes_back_too_soon(num_groups, holds):
    """The best test projects on the client's change, which grows with its participations."""
    noise, epsilon, runs = 3.0, 0.5, 10_000
    plan = banded(privacy.gaussian(0.5, noise=noise, bands=BANDS))
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
    thresholds = np.quantile(sides[0], np.linspace(0.02, 0.98, 25))
    found, falsely = (np.mean(one[:, None] > thresholds, axis=0) for one in sides)
    error = np.sqrt((found * (1 - found) + np.exp(2 * epsilon) * falsely * (1 - falsely)) / runs)
    excess = np.max(found - np.exp(epsilon) * falsely - bound - 5 * error)
    assert (excess <= 0) == holds


@pytest.mark.slow
def test_a_resumed_run_continues_the_noise():
    plan = banded(privacy.gaussian(0.3, noise=0.7, bands=BANDS))
    clients = fcojax.from_clients(federations.clients())
    chosen, hparams = federations.algorithm("fed_avg"), federations.hparams("fed_avg")

    def after(*parts):
        state = fcojax.start(chosen, hparams, federations.start(), clients, KEY, plan)
        for part in parts:
            state, _ = fcojax.advance(chosen, hparams, state, clients, plan, num_rounds=part)
        return federations.as_vector(fcojax.read_model(chosen, hparams, state))

    np.testing.assert_array_equal(after(2, 4, 1), after(7))


def test_accounting_counts_the_rounds_of_one_client():
    plan = banded(privacy.gaussian(1.0, noise=8.0, bands=BANDS))
    allowed = privacy.rounds_within(2.0, 1e-3, plan, 3)
    assert allowed % 3 == 0
    plain = plan._replace(uploads=privacy.gaussian(1.0, noise=8.0 / np.linalg.norm(BANDS)))
    assert privacy.rounds_within(2.0, 1e-3, plain, 3) == allowed // 3


def test_what_bands_do_not_hold_for_is_refused():
    noisy = privacy.gaussian(1.0, noise=1.0, bands=BANDS)
    for cohort in (fcojax.everyone(), fcojax.coin_flips(0.5), fcojax.cyclic(num_groups=2)):
        with pytest.raises(ValueError, match="no client may come back"):
            privacy.epsilon(banded(noisy, cohort), 6, 3, 1e-3)
    with pytest.raises(ValueError, match="a fixed norm"):
        privacy.gaussian(privacy.adaptive_clip(start=1.0, noise=1.0), noise=1.0, bands=BANDS)
    for bands in ((1.0, float("nan")), (0.0, 1.0), ()):
        with pytest.raises(ValueError, match="bands"):
            privacy.gaussian(1.0, noise=1.0, bands=bands)
    assert one_round((1.0, 2.0), privacy.gaussian(5.0, bands=BANDS))[0] == 1.5  # no noise
