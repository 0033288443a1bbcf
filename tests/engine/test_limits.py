"""A limited number of rounds with noise: runs stop at the last one and report it."""

import dp_accounting as dp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import privacy
from fcojax.engine.status import Status
from fcojax.engine.transform import NOTHING, Allowance, Noise
from fcojax.uploads import Facts, UploadTransform

KEY = jax.random.key(0)
FED_AVG = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
HPARAMS = FED_AVG.hparams_type(client_lr=0.25)
DATA = fcojax.from_clients([{"a": np.array([a])} for a in (1.0, 3.0)])


def seven_in_all(cohort, runs, num_clients):
    return Allowance(7 // sum(map(len, runs)), "seven rounds are left")


LIMITED = UploadTransform("limited", facts=Facts(noisy=Noise(0.0, allowance=seven_in_all)))


def plan(uploads=LIMITED):
    return fcojax.Plan(fcojax.local_steps(1), uploads=uploads)


def observe(hparams, model, context):
    return {"w": model}


def run(num_rounds, uploads=LIMITED, **options):
    given = FED_AVG, HPARAMS, jnp.array(0.0), DATA, KEY, plan(uploads)
    return fcojax.run(*given, num_rounds=num_rounds, **options)


@pytest.mark.parametrize("progress", [None, lambda rounds, history: None])
def test_a_run_ends_with_the_model_of_the_last_round_that_is_allowed(progress):
    expected, _ = run(7, NOTHING)
    with pytest.warns(UserWarning, match=r"stopped after round 7, .* allowed: seven rounds are"):
        model, history = run(12, eval_every=3, observe=observe, progress=progress)
    np.testing.assert_array_equal(model, expected)
    np.testing.assert_array_equal(history["round"], [3, 6, 7])
    np.testing.assert_array_equal(history["w"][-1], expected)
    np.testing.assert_array_equal(history["participants"], [6, 6, 2])
    with pytest.warns(UserWarning):
        model, history = run(20, eval_every=10, progress=progress)
    np.testing.assert_array_equal((model, history["round"][0]), (expected, 7))
    within, _ = run(6)  # no warning
    np.testing.assert_array_equal(within, run(6, NOTHING)[0])


def test_all_points_and_seeds_of_a_sweep_share_what_is_allowed():
    grid = fcojax.grid.product(FED_AVG.hparams_type, client_lr=[0.25, 0.5, 1.0])
    with pytest.warns(UserWarning, match="stopped after round 2"):
        models, history = fcojax.sweep(
            FED_AVG, grid, jnp.array(0.0), DATA, KEY[None], plan(), num_rounds=4, eval_every=2
        )
    np.testing.assert_array_equal(history["round"], [[[2]]] * 3)
    np.testing.assert_allclose(models[:, 0], [0.875, 1.5, 2.0])
    eight = jax.random.split(KEY, 8)
    with pytest.raises(ValueError, match="no round is allowed, as seven rounds are left"):
        fcojax.sweep(FED_AVG, grid, jnp.array(0.0), DATA, eight, plan(), num_rounds=4)


def test_a_solve_ends_with_a_status_of_its_own():
    def certificate(hparams, model, data):
        return {"violation": jnp.abs(model - 2.0)}

    def solve(tolerance, **options):
        return fcojax.solve(
            FED_AVG,
            HPARAMS,
            jnp.array(0.0),
            DATA,
            KEY,
            plan(),
            certificate=certificate,
            tolerance=tolerance,
            eval_every=5,
            **options,
        )

    model, outcome = solve(1e-9)
    np.testing.assert_array_equal(model, run(7, NOTHING)[0])
    assert outcome.statuses() == [Status.SPENT] and int(outcome.checks) == 3
    assert outcome.verdicts() == [
        "stopped after round 7, the last that is allowed: the violation is 0.267"
    ]
    assert solve(1.0)[1].statuses() == [Status.SOLVED]
    assert solve(1e-9, max_rounds=5)[1].statuses() == [Status.UNSOLVED]


def test_a_state_does_not_go_on_beyond_it():
    state = fcojax.start(FED_AVG, HPARAMS, jnp.array(0.0), DATA, KEY, plan())

    def advance(state, num_rounds):
        return fcojax.advance(FED_AVG, HPARAMS, state, DATA, plan(), num_rounds=num_rounds)[0]

    state = advance(state, 4)
    with pytest.raises(ValueError, match="4 after round 4, but seven .* at most 3"):
        advance(state, 4)
    np.testing.assert_array_equal(advance(state, 3).server, run(7, NOTHING)[0])
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(lambda state: advance(state, 1))(state)


def test_what_does_not_count_rounds_refuses_a_limit():
    problem = fcojax.problems.lasso(num_clients=2, num_examples=4, dim=3, num_true=1)
    with pytest.raises(ValueError, match="a path does not enforce"):
        fcojax.path(problem, fcojax.transforms.l1(), plan=plan())


def test_a_budget_ends_a_run_and_counts_what_was_spent_before():
    noisy = privacy.gaussian(1.0, noise=10.0, budget=privacy.budget(2.0, delta=1e-3))
    allowed = privacy.rounds_within(2.0, 1e-3, plan(noisy), 2)
    with pytest.warns(UserWarning, match=rf"round {allowed}, .* epsilon of 2 at delta 0.001"):
        _, history = run(1000, noisy)
    assert history["round"][-1] == allowed
    before = privacy.releases(plan(noisy), 10)
    later = privacy.gaussian(
        1.0, noise=10.0, budget=privacy.budget(2.0, delta=1e-3, spent=(before,))
    )
    with pytest.warns(UserWarning, match=f"round {allowed - 10}, .* of it before"):
        run(1000, later)


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


def test_points_with_noise_of_their_own_share_a_budget():
    hparams_type = fcojax.extended(FED_AVG.hparams_type, "Noisy", noise=1.0)
    noisy = privacy.gaussian(1.0, lambda h: h.noise, budget=privacy.budget(2.0, delta=1e-3))
    runs = [hparams_type(noise=noise) for noise in (8.0, 30.0)]
    limit = noisy.noise.allowance(fcojax.everyone(), [runs], 2)

    def spent(rounds):
        ledger = [privacy.Releases(fcojax.everyone(), h.noise, rounds) for h in runs]
        return privacy.total_epsilon(ledger, 2, 1e-3)

    assert spent(limit.rounds) <= 2.0 < spent(limit.rounds + 1)
