import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from configs import lasso
from experiments.codecs import COMPRESSORS, FEEDBACK
from experiments.config import config_file
from experiments.config.algorithms import library
from experiments.config.settings import participation, resolve, set_precision
from experiments.execution.jobs import build, keys_of
from fcojax import clock, privacy, robust, uploads
from fcojax.extend import is_schedule
from tests.experiments.toys import Killed, Toy, killed_after

SWEEP = lasso.EXPERIMENT


def config(**changes):
    result = lasso.get_config()
    with result.ignore_type():
        result.update(changes)
    return result


def test_the_config_is_what_its_docstring_says():
    settings = resolve(config(), SWEEP)
    assert set(settings.grids) == {"fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp"}
    assert all(grid.client_lr.shape == (49,) for grid in settings.grids.values())
    assert settings.plan.work == fcojax.local_steps(10, 10)
    assert settings.plan.cohort == fcojax.uniform_cohort(cohort_size=10)


def test_grids_are_set_for_all_algorithms_or_for_one():
    settings = resolve(
        config(own_grids={"fed_mid": {"client_lr": (0.5,)}}, server_lr=(1.0, 2.0)), SWEEP
    )
    assert settings.grids["fed_mid"].client_lr.tolist() == [0.5, 0.5]
    assert settings.grids["fed_dual_avg"].client_lr.shape == (14,)


def test_epochs_win_over_steps_and_no_cohort_size_is_everyone():
    settings = resolve(config(num_epochs=2, cohort_size=None), SWEEP)
    assert settings.plan.work == fcojax.local_epochs(2, 10)
    assert settings.plan.cohort == fcojax.everyone()


@pytest.mark.parametrize("size", [5, None])
def test_laws_of_participation_are_the_samplers(size):
    samplers = {
        "uniform": fcojax.uniform_cohort(cohort_size=size) if size else fcojax.everyone(),
        "coin_flips:0.1": fcojax.coin_flips(0.1),
        "cyclic:4": fcojax.cyclic(num_groups=4, cohort_size=size),
    } | ({"weighted:0.5": fcojax.weighted_cohort(cohort_size=size, power=0.5)} if size else {})
    for law, sampler in samplers.items():
        assert participation(law, size) == sampler
        changes = {"participation": law, "cohort_size": size}
        assert resolve(config(**changes), SWEEP).plan.cohort == sampler


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


def test_a_clock_is_a_law_of_speed_and_seconds_a_byte():
    data = fcojax.from_rows({"a": np.zeros(4)}, [1, 3])
    laws = {
        "constant:2,0.1": 2.0,
        "by_size:2,0.1": clock.by_size(data, 2.0),
        "log_normal:2,1,0.1": clock.log_normal(2, median=2.0, spread=1.0),
    }
    for law, step in laws.items():
        built = resolve(config(clock=law), SWEEP).clock
        assert built is not None and np.array_equal(built(data).step, step)
        assert built(data)[1:] == (0.1, 0.1)


def test_deadlines_are_those_of_the_clock():
    """Of 28 bytes each way, six weights and the intercept, and two steps."""
    changes = {"clock": "log_normal:36,1,0.1", "deadline": 80.0, "dropout_probability": 0.2}
    step = clock.log_normal(4, median=36.0, spread=1.0)
    times = 2 * step + 2 * 0.1 * 28
    assert 0 < np.sum(times > 80) < 4
    plan, whole = Toy(**changes).job.plan, Toy().job.plan
    # A deadline draws nothing. It is in front, so that a run without it loses the same uploads.
    late, lost = plan.uploads.transforms
    assert late.facts.limit == 80.0 and lost == fcojax.dropout(0.2)
    assert late.facts.arrives is not None
    np.testing.assert_array_equal(late.facts.arrives(jnp.arange(4)), times <= 80)
    assert plan._replace(uploads=whole.uploads) == whole
    toy = Toy(**changes, late="truncate")
    less = clock.truncated(whole.work, toy.job.train, step, 80.0, link=5.6)
    assert toy.job.plan.work == less and set(less.counts or ()) == {1, 2}
    late, lost = toy.job.plan.uploads.transforms
    times = step * less.counts + 5.6
    assert late.facts.arrives is not None
    np.testing.assert_array_equal(late.facts.arrives(jnp.arange(4)), times <= 80)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clip_norm": 1.0, "noise_multiplier": 0.1},
        {"deadline": 80.0},
        {"deadline": 80.0, "late": "truncate"},
        {"deadline": 80.0, "correct": "known", "algorithms": ("fed_dual_avg",)},
        {"deadline": 80.0, "correct": "estimated", "algorithms": ("fed_dual_avg",)},
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
        # Truncated clients are all in time here.
        late = changes.keys() >= {"deadline"} and "late" not in changes
        assert all(("late" in row) == late for row in curve)


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
    """Uploads are compressed, bounded, clipped with noise, and lost; weights 1/q need no noise."""
    both = {"codec": "qsgd:7", "upload_norm": 2.0, "dropout_probability": 0.25}
    private = {"clip_norm": 1.0, "noise_multiplier": 0.5}
    sent, bound = uploads.compressed(uploads.qsgd(7)), fcojax.norm_bound(2.0)
    noise, lost = privacy.gaussian(1.0, 0.5), fcojax.dropout(0.25)
    for changes, chain in (
        ({}, ()),
        (both | {"correct": "known"}, (sent, bound, uploads.inverse_probability("known"), lost)),
        (both | private, (sent, noise, bound, lost)),
    ):
        plan = resolve(config(**changes), SWEEP).plan
        assert plan.uploads == uploads.chain(*chain)
        assert plan.aggregator == fcojax.Plan(plan.work).aggregator


def test_a_broadcast_is_written_as_a_compressor():
    assert resolve(config(broadcast="top_k:3"), SWEEP).broadcast == uploads.top_k(3)


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
        ({"num_steps": None}, "neither num_steps nor num_epochs"),
        ({"seeds": (1, 1)}, "seeds is (1, 1)"),
        ({"search": "random"}, "search is 'random'; pass one of"),
        ({"participation": "cyclik:4"}, "no participation 'cyclik'; did you mean cyclic?"),
        ({"participation": "weighted:1", "cohort_size": None}, "cohort_size is None"),
        ({"codec": "topk:3"}, "there is no compressor 'topk'; did you mean top_k?"),
        ({"broadcast": "topk:3"}, "broadcast is 'topk:3': there is no compressor 'topk'; did you"),
        ({"codec": "top_k:3,ef12"}, "there is no error feedback 'ef12'; did you mean ef"),
        ({"codec": "top_k:3,diana"}, "compressor is top_k(3), which is biased"),
        (
            {"correct": "known", "clip_norm": 1.0, "noise_multiplier": 1.0},
            "the sum twice, by gaussian(1.0, 1.0) and inverse_probability('known')",
        ),
        ({"criterion_rounds": 501}, "criterion_rounds is 501, more than num_rounds = 500"),
        ({"client_schedule": "invers:5"}, "no client_schedule 'invers'; did you mean inverse?"),
        ({"deadline": 1.0}, "deadline needs clock"),
        ({"server_schedule": "inverse"}, "server_schedule is 'inverse'; pass inverse:ROUNDS."),
        ({"client_schedule": "warm_up:0"}, "client_schedule is 'warm_up:0'; pass warm_up:ROUNDS."),
        (
            {"server_schedule": "inverse:5", "algorithms": ("fed_pd",)},
            "server_schedule is 'inverse:5', but no algorithm of the run has server_lr.",
        ),
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
        ("get_config = None", "does not define quick"),
        ("get_config = quick = None", "does not define EXPERIMENT"),
    ],
)
def test_a_config_that_lacks_a_part_is_refused(text, message, tmp_path):
    path = tmp_path / "half.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        config_file.load(str(path))


def test_the_precision_of_products_is_the_configs_if_it_has_one():
    try:
        set_precision(config())
        assert jax.config.jax_default_matmul_precision is None
        set_precision(config(precision="high"))
        assert jax.config.jax_default_matmul_precision == "high"
        with pytest.raises(ValueError, match="precision is 'fast'"):
            set_precision(config(precision="fast"))
    finally:
        jax.config.update("jax_default_matmul_precision", None)
