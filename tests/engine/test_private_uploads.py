"""Clipping and noise in runs: against numpy, their scale, and what neighbours reveal."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import fcojax
from fcojax import privacy, uploads
from fcojax.algorithms import fed_avg, fed_dual_avg, scaffold
from fcojax.transforms import euclidean
from fcojax.uploads import At, chain
from tests.support import federations

KEY = jax.random.key(4)
WORK = fcojax.local_steps(2, 2)
COINS = fcojax.coin_flips(0.6)
Private = fcojax.extended(fed_avg.Hparams, "Private", noise=1.0)


@functools.cache
def data():
    return fcojax.from_clients(federations.clients())


def planned(transform, cohort=None, work=None):
    return fcojax.Plan(work or fcojax.local_steps(1), cohort or fcojax.everyone(), transform)


def run(transform, cohort=COINS, data=data, chunk=None, num_rounds=3):
    plan = planned(transform, cohort, WORK)._replace(client_chunk_size=chunk)
    model, history = fcojax.run(
        federations.algorithm("fed_avg"),
        federations.hparams("fed_avg"),
        federations.start(),
        data(),
        KEY,
        plan,
        num_rounds=num_rounds,
    )
    return federations.as_vector(model), history


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


@pytest.mark.slow
def test_no_noise_and_an_infinite_clip_are_the_mean_bit_for_bit():
    for cohort in (COINS, fcojax.everyone()):
        expected, _ = run(chain(), cohort)
        found, history = run(privacy.gaussian(np.inf), cohort)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(history["clipped"], 0)


def test_a_weighted_sum_with_a_fixed_denominator_by_hand():
    """The noise is negligible, so that only the fixed denominator has an effect."""
    targets, weights = (1.0, -2.0, 9.0, 4.0), np.array([1.0, 2.0, 3.0, 2.0])
    tiny = privacy.gaussian(3.0, noise=1e-9)
    model, history = one_round(targets, tiny, fcojax.coin_flips(0.5), weights)
    took_part = fcojax.coin_flips(0.5).draw(jax.random.fold_in(KEY, 0), jnp.int32(0), 4)
    present = np.asarray(took_part.indices)[np.asarray(took_part.present)]
    clipped = np.clip(targets, -3, 3)
    expected = (weights * clipped)[present].sum() / (0.5 * weights.sum())
    np.testing.assert_allclose(model, expected, atol=1e-7)
    assert 0 < len(present) < 4
    share = (weights * (np.abs(targets) > 3))[present].sum() / weights[present].sum()
    np.testing.assert_allclose(history["clipped"][0], share, rtol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_round_without_clients_has_no_share_of_clipped_ones(noise):
    """It is NaN, because 0 would mean that none was clipped; means over rounds skip such rounds."""
    cohort = fcojax.from_trace(np.array([[True, True], [False, False]]))
    found = {}
    for every in (1, 2):
        _, found[every] = fcojax.run(
            mean_of_targets(),
            FULL_STEP,
            jnp.array(0.0),
            scalars(5.0, 0.5),
            KEY,
            planned(privacy.gaussian(2.0, noise=noise), cohort),
            num_rounds=2,
            eval_every=every,
        )
    np.testing.assert_array_equal(found[1]["clipped"], [0.5, np.nan])
    np.testing.assert_array_equal(found[2]["clipped"], [0.5])


@pytest.mark.slow
def test_leaves_are_clipped_alone_or_together():
    first = federations.as_vector(federations.start())
    cohort, moved = fcojax.uniform_cohort(cohort_size=1), {}
    for per_leaf in (False, True):
        after, _ = run(privacy.gaussian(0.01, per_leaf=per_leaf), cohort, num_rounds=1)
        moved[per_leaf] = after - first
    np.testing.assert_allclose(np.linalg.norm(moved[False]), 0.01, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(moved[True][:-1]), 0.01 / np.sqrt(2), rtol=1e-9)
    np.testing.assert_allclose(abs(moved[True][-1]), 0.01 / np.sqrt(2), rtol=1e-9)


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e200])
def test_uploads_of_any_size_are_clipped(size):
    model, history = one_round((size, 1.0), privacy.gaussian(2.0))
    assert history["dropped"][0] == 0
    np.testing.assert_allclose(model, (min(size, 2.0) + 1.0) / 2, rtol=1e-12)


CASES = {
    "everyone": (fcojax.everyone(), 3.0),
    "coins": (fcojax.coin_flips(0.5), 1.5),
    "nobody": (fcojax.coin_flips(1e-9), 3e-9),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [None, 1])
def test_noise_has_the_promised_scale(name, chunk):
    """For a sum of zeros: chi-square with one degree of freedom per run, for any cohort."""
    cohort, expected = CASES[name]
    plan = planned(privacy.gaussian(0.5, noise=1.3), cohort)._replace(client_chunk_size=chunk)
    keys = jax.random.split(KEY, 4000)
    grid = fcojax.grid.product(fed_avg.Hparams, client_lr=[1.0])
    zeros = scalars(0.0, 0.0, 0.0)
    models, _ = fcojax.sweep(
        mean_of_targets(), grid, jnp.array(0.0), zeros, keys, plan, num_rounds=1
    )
    total = np.sum((np.asarray(models) * expected / (1.3 * 0.5)) ** 2)
    low, high = scipy.stats.chi2.ppf([1e-5, 1 - 1e-5], df=4000)
    assert low < total < high


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


PLAIN = privacy.gaussian
MODULAR = functools.partial(privacy.modular_gaussian, step=0.01, bits=20)
FINE = functools.partial(privacy.modular_gaussian, step=1e-6, bits=24)
Point = fcojax.extended(fed_avg.Hparams, "Point", index=0.0)


def told_apart(cohort, transform, neighbours, num_runs=10_000, num_points=1):
    """Return how often the mean of all releases exceeds each threshold, for both populations."""
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
    thresholds = np.quantile(releases[0], np.linspace(0.02, 0.98, 25))
    return [np.mean(one[:, None] > thresholds, axis=0) for one in releases]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cohort", "present", "absent", "sensitivity", "rate", "private"),
    [
        # A client always sends the clipping norm in one population, and zero in the other.
        (fcojax.everyone(), (50.0, 0.0), (0.0, 0.0), 1.0, 1.0, PLAIN),
        (fcojax.coin_flips(0.5), (50.0, 0.0), (0.0, 0.0), 1.0, 0.5, PLAIN),
        # A client sends it in one direction; its replacement sends it in the opposite one.
        (fcojax.uniform_cohort(cohort_size=2), (50.0, 0.0), (-50.0, 0.0), 2.0, 1.0, PLAIN),
        # The same on a grid, whose rounding must not increase the contribution of a client.
        (fcojax.everyone(), (50.0, 0.0), (0.0, 0.0), 1.0, 1.0, MODULAR),
    ],
    ids=["add or remove", "Poisson", "replace", "modular"],
)
def test_neighbours_cannot_be_told_apart_more_than_promised(
    cohort, present, absent, sensitivity, rate, private
):
    """A threshold is the likelihood-ratio test; with half the noise it must exceed the bound."""
    noise, epsilon, runs = 1.5, 0.5, 10_000
    delta = delta_of_poisson(epsilon, noise / sensitivity, rate)
    excess = {}
    for scale in (1.0, 0.5):
        found, falsely = told_apart(cohort, private(1.0, scale * noise), (present, absent), runs)
        error = np.sqrt(
            (found * (1 - found) + np.exp(2 * epsilon) * falsely * (1 - falsely)) / runs
        )
        excess[scale] = np.max(found - np.exp(epsilon) * falsely - delta - 5 * error)
    assert excess[1.0] <= 0 < excess[0.5]


@pytest.mark.slow
@pytest.mark.gate
def test_points_of_a_sweep_cost_as_runs_with_the_same_cohorts():
    """The leak is within their joint bound, and exceeds the bound for independent cohorts."""
    rate, noise, points, epsilon, runs = 0.2, 2.0, 8, 0.5, 10_000
    coins, noisy = fcojax.coin_flips(rate), privacy.gaussian(1.0, noise=noise)
    found, falsely = told_apart(coins, noisy, ((50.0, 0.0), (0.0, 0.0)), runs, points)
    error = np.sqrt((found * (1 - found) + np.exp(2 * epsilon) * falsely * (1 - falsely)) / runs)
    excess = found - np.exp(epsilon) * falsely
    [entry] = {privacy.releases(planned(noisy, coins), 1, num_runs=points)}
    bound = delta_of_poisson(epsilon, entry.noise, rate)
    assert np.max(excess - 5 * error) <= bound

    rng = np.random.default_rng(0)
    size = (400_000, points)
    drawn = (rng.random(size) < rate) + noise * rng.standard_normal(size)
    loss = np.log1p(rate * np.expm1((drawn - 0.5) / noise**2)).sum(axis=1)
    independent = np.mean(np.maximum(0, 1 - np.exp(epsilon - loss)))
    assert np.max(excess - 5 * error) > independent


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e8])
@pytest.mark.parametrize("per_leaf", [False, True])
def test_what_is_sent_to_a_modular_sum_is_within_the_norm(size, per_leaf):
    """Rounding can increase a clipped norm, so clients clip to a smaller one."""
    step, norm = 0.02, 0.5
    private = privacy.modular_gaussian(norm, 1.0, step, 24, per_leaf=per_leaf)
    drawn = np.random.default_rng(0).standard_normal((2, 60))
    payload = [size * jnp.asarray(drawn[0]), size * jnp.asarray(drawn[1])]

    @jax.jit
    @jax.vmap
    def sent(key):
        codes = private.send(At(None, 0, key=key), payload, ()).wire
        return step * jnp.linalg.norm(jnp.concatenate(codes))

    norms = np.asarray(sent(jax.random.split(KEY, 500)))
    assert norms.max() <= norm
    assert size < 1 or norms.max() > 0.5 * norm  # and by no more than necessary


@pytest.mark.slow
def test_noise_after_a_modular_sum_is_that_after_a_plain_one_to_the_grid():
    """In one run the noise is the same, and so is the denominator if clients are absent."""
    for noise in (0.0, 1.0):
        expected, _ = run(privacy.gaussian(0.3, noise=noise))
        private = FINE(0.3, noise)
        found, history = run(private)
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert not np.any(history["refused"]) and "clipped" not in history
    for chunk in (1, 2):
        np.testing.assert_array_equal(run(private, chunk=chunk)[0], found)
    spread = fcojax.devices.shard_clients(data(), fcojax.devices.client_mesh(2))
    np.testing.assert_array_equal(run(private, data=lambda: spread)[0], found)
    loose, _ = run(FINE(np.inf, 0.0))
    np.testing.assert_array_equal(loose, run(uploads.modular_sum(1e-6, 24))[0])


def test_a_noisy_sum_that_wraps_is_refused_and_any_other_is_what_remainders_give():
    """A server with only the remainders adds the noise to them and takes the remainder again."""
    step, bits, targets = 0.5, 4, (3.0, 3.4)  # about 12 steps, while 8 overflow
    private = privacy.modular_gaussian(4.0, 1.0, step, bits)
    plain = privacy.modular_gaussian(4.0, 1.0, step, 24)
    refused = 0
    for seed in range(12):
        key = jax.random.key(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whether a round is refused
            found, history = one_round(targets, private, key=key)
        noisy = 2 * float(one_round(targets, plain, key=key)[0]) / step
        inside = -8 <= noisy < 8
        assert int(history["refused"][0]) == (not inside)
        remainder = (np.mod(noisy, 16) + 8) % 16 - 8
        np.testing.assert_allclose(2 * float(found) / step, remainder if inside else 0, atol=1e-9)
        refused += not inside
    assert 0 < refused < 12


@pytest.mark.slow
def test_the_points_of_a_sweep_and_a_changed_run_have_noise_of_their_own():
    """Otherwise the difference of two releases would have no noise."""
    plan, hparams = planned(privacy.gaussian(1.0, noise=1.0)), fed_avg.Hparams
    grid = fcojax.grid.product(hparams, client_lr=[0.5, 0.25])
    zeros = scalars(0.0, 0.0)
    models, _ = fcojax.sweep(
        mean_of_targets(), grid, jnp.array(0.0), zeros, KEY[None], plan, num_rounds=1
    )
    assert abs(float(models[0, 0] - models[1, 0])) > 1e-3
    state = fcojax.start(mean_of_targets(), hparams(0.5), jnp.array(0.0), zeros, KEY, plan)

    def after(lr, state, num_rounds):
        return fcojax.advance(
            mean_of_targets(), hparams(lr), state, zeros, plan, num_rounds=num_rounds
        )[0]

    whole, half = after(0.5, state, 4), after(0.5, state, 2)
    np.testing.assert_array_equal(after(0.5, half, 2).server, whole.server)
    again, other = after(0.5, half, 1).server, after(0.25, half, 1).server
    assert abs(float(again - half.server * 0.5) - float(other - half.server * 0.75)) > 1e-3


@pytest.mark.slow
def test_schedules_that_agree_in_a_round_have_noise_of_their_own_there():
    """Otherwise the difference of two points' releases in round 2 would have no noise."""
    rates = [fcojax.schedule([first, 1e-3]) for first in (0.5, 0.1)]
    schedules = fcojax.grid.product(fed_avg.Hparams, client_lr=rates)
    models, history = fcojax.sweep(
        mean_of_targets(),
        schedules,
        jnp.array(0.0),
        scalars(0.0, 0.0),
        KEY[None],
        planned(privacy.gaussian(1.0, noise=1.0)),
        num_rounds=2,
        observe=lambda hparams, w, context: {"w": w},
    )
    first, second = np.asarray(history["w"])[:, 0].T
    steps = second - (1 - 1e-3) * first  # the rest is noise
    assert abs(steps[0] - steps[1]) > 1e-3


@pytest.mark.slow
@pytest.mark.gate
def test_two_points_do_not_tell_who_took_part_where_their_schedules_agree():
    """Over 2,000 runs at epsilon 0.107; with shared noise the difference of steps is a count."""
    rate, noise = 1e-3, 20.0
    rates = [fcojax.schedule([first, rate]) for first in (0.5, 0.1)]
    grid = fcojax.grid.product(fed_avg.Hparams, client_lr=rates)
    models, history = fcojax.sweep(
        mean_of_targets(),
        grid,
        jnp.array(0.0),
        scalars(*np.zeros(8)),
        jax.random.split(KEY, 2000),
        planned(privacy.gaussian(1.0, noise=noise), fcojax.coin_flips(0.5)),
        num_rounds=2,
        observe=lambda hparams, w, context: {"w": w},
    )
    first, second = np.moveaxis(np.asarray(history["w"]), -1, 0)
    step = second - first
    # A client moves the sum by rate * (0 - w), so without noise this is the number of clients.
    read = np.round(-4 * (step[0] - step[1]) / (rate * (first[0] - first[1])))
    right = np.mean(read == np.asarray(history["participants"])[0, :, 1])
    # With shared noise it was 1.0; guessing the most frequent of nine counts is right in 0.27.
    assert right <= 0.35


@pytest.mark.slow
def test_an_adaptive_norm_finds_the_quantile():
    """Uploads have the norms 1 to 9; without noise the norm is exact, with noise close."""
    sizes = np.arange(1.0, 10.0)
    chosen = fed_avg(lambda w, rows: w * rows["a"])  # uploads are constant
    for noise, count_noise, off in ((0.0, 0.0, 0.3), (0.1, 0.9, 1.5)):
        adaptive = privacy.adaptive_clip(0.5, start=0.1, noise=count_noise)
        plan = planned(privacy.gaussian(adaptive, noise=noise))
        state = fcojax.start(chosen, FULL_STEP, jnp.array(0.0), scalars(*sizes), KEY, plan)
        norms = []
        for _ in range(20):
            state, _ = fcojax.advance(chosen, FULL_STEP, state, scalars(*sizes), plan, num_rounds=5)
            norms.append(float(state.memory.transforms[0]))
        assert abs(np.mean(norms[12:]) - 5) < off


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
def test_the_fraction_is_that_of_the_denominator():
    """A sum over all clients, such as SCAFFOLD's control, also has a fixed number of them."""
    chosen = scaffold(federations.loss)
    hparams = chosen.hparams_type(client_lr=0.05)
    tiny = privacy.gaussian(1e6, noise=1e-15)
    states = []
    for transform in (chain(), tiny):
        plan = planned(transform, COINS, WORK)
        state = fcojax.start(chosen, hparams, federations.start(), data(), KEY, plan)
        states.append(fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=1)[0].server)
    for plain, private in zip(
        jax.tree.leaves(states[0].control), jax.tree.leaves(states[1].control), strict=True
    ):
        np.testing.assert_allclose(private, plain, atol=1e-7)


@pytest.mark.slow
def test_public_parts_are_constants_also_where_nobody_takes_part():
    chosen = fed_dual_avg(federations.loss, euclidean(federations.kernel_l1()))
    hparams = federations.hparams("fed_dual_avg")

    def after(work, cohort):
        plan = planned(privacy.gaussian(1.0, noise=1.0), cohort, work)
        state = fcojax.start(chosen, hparams, federations.start(), data(), KEY, plan)
        return fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=2)[0].server

    nobody, everybody = after(WORK, fcojax.coin_flips(1e-9)), after(WORK, fcojax.everyone())
    np.testing.assert_allclose(nobody.elapsed, everybody.elapsed, rtol=1e-12)
    assert float(nobody.elapsed) > 0
    # A client that works longer reveals its participation, as data-dependent parts do.
    one_by_one = after(fcojax.local_steps([2] * 5, 2), fcojax.everyone())
    np.testing.assert_allclose(one_by_one.elapsed, everybody.elapsed, rtol=1e-12)
    ragged = fcojax.local_steps(3, fewest=1)
    for work in (fcojax.local_steps([1, 1, 1, 1, 200]), ragged, fcojax.local_epochs(1, 2)):
        with pytest.raises(ValueError, match="Public parts .* depend on the client or its data"):
            after(work, COINS)


@pytest.mark.slow
def test_noise_on_the_dual_leaves_the_optimum_s_support():
    """Noise on the mean of models leaves no entry zero."""
    problem = fcojax.problems.lasso(
        num_clients=200, num_examples=20, dim=64, num_true=8, mean_scale=0.0
    )
    penalty, strength = federations.kernel_l1(), 0.3
    best = fcojax.reference.optimum(problem, penalty, strength).params["kernel"]
    coins, work = fcojax.coin_flips(0.25), fcojax.local_steps(5, 10)
    plan = planned(privacy.gaussian(0.3, noise=2.0), coins, work)
    found = {}
    for name, geometry in (("fed_dual_avg", euclidean(penalty)), ("fed_avg_subgradient", penalty)):
        chosen = getattr(fcojax.algorithms, name)(problem.loss, geometry)
        model, _ = fcojax.run(
            chosen,
            chosen.hparams_type(client_lr=0.01, penalty_scale=strength),
            problem.init(KEY),
            problem.train,
            KEY,
            plan,
            num_rounds=300,
            eval_every=300,
        )
        found[name] = np.asarray(model["kernel"])
    assert 0 < np.mean(best != 0) < 0.2
    np.testing.assert_array_equal(found["fed_dual_avg"] != 0, best != 0)
    assert np.all(found["fed_avg_subgradient"] != 0)


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: privacy.gaussian(np.inf, noise=1.0), "infinite"),
        (lambda: privacy.gaussian(0.0), "clip"),
        (lambda: privacy.gaussian(1.0, noise=-1.0), "noise"),
        (
            lambda: privacy.gaussian(privacy.adaptive_clip(start=1.0, noise=0.5), noise=1.0),
            "adaptive_clip",
        ),
        (lambda: FINE(privacy.adaptive_clip(start=1.0), 0.0), "adaptive_clip"),
        (
            lambda: one_round((1.0,), privacy.modular_gaussian(1.0, 0.0, 1.0, 8)),
            "rounding alone can add 1 ",
        ),
    ],
)
def test_what_would_protect_less_than_it_says_is_refused(build, word):
    with pytest.raises(ValueError, match=word):
        build()
