import jax
import jax.numpy as jnp
import pytest

from tests.experiments.studies.quick_sweeps import quick_config

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("constraint", ["l1", "l2"])
@pytest.mark.parametrize("model", ["softmax", "mlp"])
def test_the_start_is_feasible_and_the_violation_is_measured(constraint, model):
    sweep, config = quick_config("emnist")
    config.constraint, config.model, config.penalty_scale = constraint, model, (0.5,)
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    start = problem.init(jax.random.key(0))
    assert float(problem.measures(start)["violation"]) < 1e-6
    assert float(penalty.value(start, 0.5)) == 0
    if model == "softmax":
        kernel = jnp.zeros_like(start["kernel"]).at[0, 0].set(0.75)
        measured = problem.measures(start | {"kernel": kernel})
        assert float(measured["violation"]) == pytest.approx(0.5)


def test_the_worst_of_all_rounds_decides():
    sweep, config = quick_config("emnist")
    rows = [
        {"algorithm": "fed_mid", "round": round_, "violation": violation}
        for round_, violation in ((0, 9.0), (10, 0.2), (20, 0.0), (30, None))
    ]
    (claim,) = sweep.claims(config, rows, {"algorithms": {"fed_mid": {}}})
    assert claim.measured == 0.2
    assert not claim.holds


@pytest.mark.parametrize(
    "key, value, sentence",
    [
        ("constraint", "l3", "pass l1 or l2"),
        ("model", "tree", "pass softmax, mlp, cnn"),
        ("model", "cnn", "needs images of 28 x 28, not 20 features"),
        ("penalty_scale", (1.0, 2.0), "one radius a run"),
    ],
)
def test_what_cannot_be_run_is_refused(key, value, sentence):
    sweep, config = quick_config("emnist")
    config[key] = value
    with pytest.raises(ValueError, match=sentence):
        sweep.problem(config)
