import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.report.summary import Criterion
from experiments.studies.matrix_completion import entries
from fcojax.problems import population_loss
from tests.experiments.studies.fabricated import sweep_of
from tests.experiments.studies.quick_sweeps import quick_config


@pytest.fixture
def ratings(tmp_path):
    rng = np.random.default_rng(0)
    entry = np.sort(rng.permutation(60 * 20)[:900])
    np.savez(
        tmp_path / "ratings.npz",
        user=entry // 20,
        joke=entry % 20,
        rating=rng.normal(0, 4, 900).astype(np.float32),
    )
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("source", ["drawn", "read"])
def test_strength_one_is_the_smallest_whose_solution_is_zero(source, ratings):
    sweep, config = quick_config("matrix_completion")
    config.data_dir = "" if source == "drawn" else str(ratings)
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    zero = problem.init(jax.random.key(0))
    slope = jax.grad(lambda matrix: population_loss(problem.loss, matrix, problem.train))(zero)
    step = -10.0 * slope
    assert float(jnp.abs(penalty.prox(step, 10.0, 1.001)).max()) == 0
    assert float(jnp.abs(penalty.prox(step, 10.0, 0.99)).max()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("source", ["drawn", "read"])
def test_a_basis_is_completed_by_the_coefficients_that_fit_best(source, ratings):
    sweep, config = quick_config("matrix_completion")
    config.data_dir = "" if source == "drawn" else str(ratings)
    problem, (first, complete, _) = sweep.problem(config), sweep.manifold(config)
    rows, start, matrix = problem.train.examples, np.asarray(first), np.asarray(complete(first))
    own, shared = ("row", "column") if source == "read" else ("column", "row")
    for place in range(5):
        ours = np.asarray(rows[own]) == place
        seen = start[np.asarray(rows[shared])[ours]]
        best = np.linalg.lstsq(seen, np.asarray(rows["value"])[ours])[0]
        line = matrix[place] if source == "read" else matrix[:, place]
        np.testing.assert_allclose(line, start @ best, rtol=0.01, atol=0.01)
    # The coefficients are constants of the gradient, which is still that of the least loss.
    loss = jax.jit(lambda basis: population_loss(problem.loss, complete(basis), problem.train))
    step = 0.01 * jax.random.normal(jax.random.key(1), start.shape, start.dtype)
    slope = float(jnp.vdot(jax.grad(loss)(first), step))
    ahead = (loss(first + step) - loss(first - step)) / 2
    assert float(ahead) == pytest.approx(slope, rel=0.02)


def test_users_are_grouped_and_a_tenth_of_the_entries_is_held_out(ratings):
    sweep, config = quick_config("matrix_completion")
    config.data_dir = str(ratings)
    train, validation, shape = entries(config)
    assert shape == (40, 20)
    assert train.num_clients == config.num_clients
    rows = np.split(np.asarray(train.examples["row"]), np.asarray(train.offsets)[1:-1])
    assert [set(client // 4) for client in rows] == [{group} for group in range(10)]
    both = len(train.examples["row"]) + len(validation.examples["row"])
    assert 0.05 < len(validation.examples["row"]) / both < 0.15


def test_claims_compare_the_ends():
    sweep, config = quick_config("matrix_completion")
    last = {"fed_dual_avg": (2.0, 5, 0.3), "fed_dual_avg_osp": (3.0, 4, 0.4)}
    last |= {"fed_mid": (2.5, 7, 0.4), "fed_manifold": (2.5, 2, 0.12)}

    def seen(*ends):
        return lambda seed, at: dict(zip(("objective", "rank", "rmse"), ends, strict=True))

    rows, summary = sweep_of(
        {label: {(0.1, 1.0): seen(*ends)} for label, ends in last.items()},
        Criterion("objective", "min", 10),
        (0, 10),
    )
    claims = sweep.claims(config, rows, summary)
    assert [claim.measured for claim in claims] == pytest.approx([1.25, 1.5, 2, 0.4, 1.2, 0])
    assert all(claim.holds for claim in claims)
    assert sweep.claims(config, [], {"algorithms": {}}) == []
