import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fcojax
from configs import lasso
from experiments.codecs import COMPRESSORS, FEEDBACK, OPTIMISERS
from experiments.config import config_file
from experiments.config.algorithms import library
from experiments.config.settings import resolve
from experiments.execution.jobs import build, keys_of
from fcojax import clock, privacy, robust, uploads
from fcojax.extend import is_schedule, take
from tests.experiments.toys import Killed, Toy, killed_after

SWEEP = lasso.EXPERIMENT


def config(**changes):
    result = lasso.get_config()
    with result.ignore_type():
        result.update(changes)
    return result


def test_grids_are_set_for_all_algorithms_or_for_one():
    settings = resolve(
        config(own_grids={"fed_mid": {"client_lr": (0.5,)}}, server_lr=(1.0, 2.0)), SWEEP
    )
    assert settings.grids["fed_mid"].client_lr.tolist() == [0.5, 0.5]
    assert settings.grids["fed_dual_avg"].client_lr.shape == (14,)


def test_epochs_take_the_place_of_steps_and_no_cohort_size_is_everyone():
    settings = resolve(config(num_epochs=2, num_steps=None, cohort_size=None), SWEEP)
    assert settings.plan.work == fcojax.local_epochs(2, 10)
    assert settings.plan.cohort == fcojax.everyone()


@pytest.mark.parametrize("size", [5, None])
def test_laws_of_participation_are_the_samplers(size):
    samplers = {
        "uniform": fcojax.uniform_cohort(cohort_size=size) if size else fcojax.everyone(),
        "cyclic:4": fcojax.cyclic(num_groups=4, cohort_size=size),
    } | (
        {"weighted:0.5": fcojax.weighted_cohort(cohort_size=size, power=0.5)}
        if size
        else {"coin_flips:0.1": fcojax.coin_flips(0.1)}
    )
    for law, sampler in samplers.items():
        assert resolve(config(participation=law, cohort_size=size), SWEEP).plan.cohort == sampler


SCHEDULES = {
    "constant": lambda t: t**0,
    "exponential:10,0.5": lambda t: 0.5 ** (t / 10),
    "staircase:10,0.5": lambda t: 0.5 ** (t // 10),
    "inverse:5": lambda t: 5 / (5 + t),
    "inverse_sqrt:1": lambda t: (1 + t) ** -0.5,
    "warm_up:4": lambda t: np.minimum(t + 1, 4) / 4,
    "warm_up:1": lambda t: t**0,
    "warm_up:4 * inverse:5": lambda t: np.minimum(t + 1, 4) / 4 * 5 / (5 + t),
}


@pytest.mark.parametrize("text", SCHEDULES)
def test_rates_change_over_rounds_as_the_text_says(text):
    changes = {"client_schedule": text, "client_lr": (0.1, 0.4), "server_lr": (1.0,)}
    settings = resolve(config(num_rounds=40, criterion_rounds=10, **changes), SWEEP)
    grid = settings.scheduled(settings.grids["fed_mid"])
    if text == "constant":
        assert grid is settings.grids["fed_mid"] or not is_schedule(grid.client_lr)
        return
    expected = np.array([[0.1], [0.4]]) * SCHEDULES[text](np.arange(40.0))
    np.testing.assert_allclose(grid.client_lr.values, expected, rtol=1e-6)
    assert not is_schedule(grid.server_lr)


QUICK = "lars", "yogi"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in OPTIMISERS]
)
def test_optimisers_are_those_of_optax_at_the_rates_of_the_grid(name):
    make, keys = getattr(optax, name), ("server_optimiser", "client_optimiser")
    toy = Toy(algorithms=("fed_avg",), server_lr=(0.3,), **dict.fromkeys(keys, name))
    expected = fcojax.algorithms.fed_opt(
        toy.problem.loss,
        server=lambda hparams: make(hparams.server_lr),
        client=lambda hparams: make(hparams.client_lr),
    )
    key, (job, hparams) = jax.random.key(0), (toy.job, take(toy.job.grid, 2))
    given = hparams, toy.problem.init(key), job.train, key, job.plan
    models = [fcojax.run(one, *given, num_rounds=3)[0] for one in (job.algorithm, expected)]
    chex.assert_trees_all_close(*models, rtol=1e-6)


LOSES = SWEEP._replace(
    plan=lambda config, plan: plan._replace(
        uploads=uploads.chain(plan.uploads, fcojax.dropout(0.2))
    )
)


def test_a_config_builds_a_plan_in_python_and_deadlines_are_those_of_the_clock():
    """Of 28 bytes each way, six weights and the intercept, and two steps."""
    changes = {"clock": "log_normal:36,1,0.1", "deadline": 80.0, "client_schedule": "inverse:5"}
    step = clock.log_normal(4, median=36.0, spread=1.0)
    times = 2 * step + 2 * 0.1 * 28
    assert 0 < np.sum(times > 80) < 4
    plan, whole = Toy(LOSES, **changes).job.plan, Toy().job.plan
    # A deadline draws nothing. It is in front, so that a run without it loses the same uploads.
    late, lost = plan.uploads.transforms
    assert late.facts.limit == 80.0 and lost == fcojax.dropout(0.2)
    assert late.facts.arrives is not None
    np.testing.assert_array_equal(late.facts.arrives(jnp.arange(4)), times <= 80)
    assert plan._replace(uploads=whole.uploads) == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"client_schedule": "staircase:5,0.5"},
        {"clip_norm": 1.0, "noise_multiplier": 0.1},
        {"deadline": 80.0},
        {"deadline": 80.0, "algorithms": ("fed_dual_avg",)},
        {"server_optimiser": "lars", "algorithms": ("fed_avg",)},
    ],
)
def test_hours_in_rows_are_those_of_the_clock_also_after_a_kill(tmp_path, changes):
    toy = Toy(clock="log_normal:36,1,1e-3", seeds=(0, 1), eval_all_until=1, **changes)
    _, rows, _ = toy.run(tmp_path / "whole")
    with pytest.raises(Killed):
        toy.run(tmp_path / "killed", share=killed_after(2))
    assert toy.run(tmp_path / "killed")[1] == rows
    laws = clock.Clock(clock.log_normal(4, median=36.0, spread=1.0), 1e-3, 1e-3)
    for seed in (0, 1):
        curve = [r for r in rows if r["seed"] == seed and r["client_lr"] == 0.01 and r["round"]]
        curve.sort(key=lambda row: row["round"])
        # Bytes: six weights and the intercept in float32, and the elapsed time of dual averaging.
        model = 4 * (7 + (toy.job.label == "fed_dual_avg"))
        history = {"round": [row["round"] for row in curve], "participants": np.ones(len(curve))}
        history |= {
            "bytes_down": np.full(len(curve), model),
            "bytes_up": np.full(len(curve), model),
        }
        key = keys_of(toy.job, toy.settings)[seed]
        expected = clock.seconds(laws, toy.job.plan, toy.job.train, key, history) / 3600
        assert np.allclose([row["hours"] for row in curve], expected, rtol=1e-6)
        assert all(("late" in row) == ("deadline" in changes) for row in curve)


UPLOADS = {
    "top_k:3": uploads.compressed(uploads.top_k(3)),
    "rand_k:0.5,ef21": uploads.ef21(uploads.contractive(uploads.rand_k(0.5))),
    "rand_k:0.5,diana:0.1": uploads.diana(uploads.rand_k(0.5), 0.1),
    "rand_k:0.5,marina:0.1": uploads.marina(uploads.rand_k(0.5), 0.1),
    "drive:least_error, ef14": uploads.ef14(uploads.drive("least error")),
    "top_k:0.1+half,ef21_sgdm:0.5": uploads.chain(
        uploads.momentum(0.5), uploads.ef21(uploads.compose(uploads.top_k(0.1), uploads.half()))
    ),
}


@pytest.mark.parametrize("text", UPLOADS)
def test_codecs_are_written_as_text(text):
    assert resolve(config(codec=text), SWEEP).plan.uploads == uploads.chain(UPLOADS[text])


def test_keys_about_uploads_are_one_chain():
    """Uploads are compressed, clipped with noise, and bounded; a broadcast is compressed."""
    both, private = {"codec": "qsgd:7", "upload_norm": 2.0}, {"clip_norm": 1.0}
    sent, bound = uploads.compressed(uploads.qsgd(7)), fcojax.norm_bound(2.0)
    noise = privacy.gaussian(1.0, 0.5)
    for changes, chain in (
        ({}, ()),
        (both, (sent, bound)),
        (both | private | {"noise_multiplier": 0.5}, (sent, noise, bound)),
    ):
        plan = resolve(config(broadcast="top_k:3", **changes), SWEEP).plan
        assert plan.uploads == uploads.chain(*chain)
        assert plan.broadcast == uploads.ef21p(uploads.top_k(3))
        assert plan.aggregator == fcojax.Plan(plan.work).aggregator


def test_a_plan_of_a_label_is_the_whole_plan():
    own = fcojax.Plan(
        fcojax.local_steps(3),
        fcojax.uniform_cohort(cohort_size=2),
        uploads=uploads.ef14(uploads.top_k(2)),
        aggregator=robust.median(),
        broadcast=uploads.ef21p(uploads.top_k(2)),
    )
    plans = {"fed_dyn": lambda config, problem: (problem.train, own)}
    plan = Toy(SWEEP._replace(plans=plans)).job.plan
    assert plan == own


def test_a_codec_that_an_algorithm_cannot_have_is_refused_before_any_runs():
    tiny = config(
        algorithms=("fed_avg", "scaffold"),
        num_clients=4,
        num_examples=4,
        dim=6,
        num_true=2,
        cohort_size=2,
        batch_size=2,
        codec="top_k:3,ef21",
    )
    with pytest.raises(ValueError, match="server step depends on fraction"):
        build(SWEEP, tiny, resolve(tiny, SWEEP), SWEEP.problem(tiny), SWEEP.penalty(tiny))


def test_every_compressor_and_feedback_has_a_text():
    chosen = {name for name in uploads.__all__ if name.islower()}
    chosen -= {"compose", "contractive", "facts", "compressed"}
    chosen -= {"modular_sum"}  # takes two numbers
    chosen -= {"chain", "ef21p", "inverse_probability"}  # in other keys
    chosen = chosen - {"momentum"} | {"ef21_sgdm"}  # the text of momentum with ef21
    assert chosen == COMPRESSORS.keys() | FEEDBACK.keys()


def test_every_algorithm_of_the_library_can_be_launched():
    """With the geometry that its factory declares, for which a sweep has defaults."""
    tiny = config(
        algorithms=tuple(library()),
        cohort_size=None,
        batch_size=None,
        num_clients=2,
        num_examples=2,
        dim=3,
        num_true=1,
    )
    problem, penalty = SWEEP.problem(tiny), SWEEP.penalty(tiny)
    built = build(SWEEP, tiny, resolve(tiny, SWEEP), problem, penalty)
    assert [job.label for job in built] == list(library())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithms": ()}, "algorithms is empty"),
        (
            {"algorithms": ("fed_dual_avg,fed_midd",)},
            "no algorithm fed_midd; did you mean fed_mid?",
        ),
        ({"client_lr": (0.0,)}, "client_lr is 0.0; pass a finite number above 0"),
        ({"eval_every": 3}, "eval_every is 3, which does not divide num_rounds = 500"),
        ({"num_steps": None}, "num_steps is None and num_epochs is None"),
        ({"num_epochs": 1}, "num_steps is 10 and num_epochs is 1"),
        ({"participation": "coin_flips:0.5"}, "cohort_size is 10, but coin_flips:0.5 has no size"),
        ({"participation": "cyclic:4,5"}, "participation is 'cyclic:4,5'; write cyclic:GROUPS."),
        ({"clock": "constant:1"}, "clock is 'constant:1'; write constant:STEP,BYTE."),
        ({"clip_norm": -1.0}, "clip_norm is -1.0"),
        ({"noise_multiplier": 1.0}, "noise_multiplier needs clip_norm"),
        ({"privacy_delta": 1.0}, "privacy_delta is 1.0; pass a number strictly between 0 and 1"),
        ({"seeds": (0.5,)}, "an entry of seeds is 0.5"),
        ({"penalty_scale": (float("nan"),)}, "an entry of penalty_scale is nan; pass"),
        ({"seeds": (1, 1)}, "seeds is (1, 1)"),
        ({"search": "random"}, "search is 'random'; pass one of"),
        ({"participation": "cyclik:4"}, "no participation 'cyclik'; did you mean cyclic?"),
        ({"participation": "weighted:1", "cohort_size": None}, "cohort_size is None"),
        ({"codec": "topk:3"}, "there is no compressor of codec 'topk'; did you mean top_k?"),
        ({"broadcast": "topk:3"}, "there is no compressor of broadcast 'topk'; did you"),
        ({"codec": "top_k:3,ef12"}, "there is no error feedback of codec 'ef12'; did you mean ef"),
        ({"codec": "top_k:3,diana"}, "compressor is top_k(3), which is biased"),
        ({"criterion_rounds": 501}, "criterion_rounds is 501, more than num_rounds = 500"),
        ({"client_schedule": "invers:5"}, "no client_schedule 'invers'; did you mean inverse?"),
        ({"deadline": 1.0}, "deadline needs clock"),
        ({"server_schedule": "inverse"}, "server_schedule is 'inverse'; write inverse:ROUNDS."),
        ({"client_schedule": "warm_up:0"}, "client_schedule is 'warm_up:0'; write warm_up:ROUNDS."),
        (
            {"server_schedule": "inverse:5", "algorithms": ("fed_pd",)},
            "server_schedule is 'inverse:5', but no algorithm of the run has server_lr.",
        ),
        ({"server_optimiser": "adm"}, "no server_optimiser 'adm'; did you mean adam?"),
        ({"client_optimiser": "sgd:2", "algorithms": ("fed_avg",)}, "'sgd:2'; write sgd:MOMENTUM."),
        (
            {"server_optimiser": "adam", "algorithms": ("scaffold",)},
            "is 'adam', but scaffold takes none; fed_avg, fed_opt, fed_dual_avg, fed_dual_avg_osp,",
        ),
        ({"client_optimiser": "adam"}, "but fed_mid takes none; fed_avg, fed_opt, fed_dual_avg, "),
    ],
)
def test_impossible_values_are_named(changes, message):
    with pytest.raises(ValueError) as error:
        resolve(config(**changes), SWEEP)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quick = None", "does not define get_config; a config needs"),
        ("get_config = quick = None", "does not define EXPERIMENT"),
        ("1 / 0", "half.py, line 1: ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)", "half.py, line 1: SystemExit: 0"),
    ],
)
def test_a_config_that_lacks_a_part_is_refused(text, message, tmp_path):
    path = tmp_path / "half.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        config_file.load(str(path))
