"""Matrix regression and completion, and the problems on the Stiefel manifold."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from fcojax import from_rows, problems
from fcojax.problems.building import from_clients
from fcojax.problems.matrix_completion import entry_loss
from fcojax.problems.problem import second_moment
from fcojax.transforms import riemannian_gradient, stiefel
from tests.problems.families import in_float64, mean_loss


def doubled(data):
    return dataclasses.replace(data, examples=in_float64(data.examples))


def orthonormal(rng, *shape):
    return jnp.asarray(np.linalg.qr(rng.standard_normal(shape))[0])


def test_low_rank_measures_at_the_truth_and_off_it():
    problem = problems.low_rank(num_clients=2, num_examples=3, shape=(5, 4), true_rank=2)
    truth = jnp.diag(jnp.array([1.0, 1.0, 0.0, 0.0, 0.0]))[:, :4]
    found = problem.measures({"kernel": truth, "bias": jnp.array(9.0)})
    assert (found["rank"], found["rank_above_0.0001"], found["error_fro"]) == (2, 2, 0.0)
    off = truth.at[2, 2].set(1e-3).at[3, 3].set(1e-6)
    found = problem.measures({"kernel": off, "bias": jnp.array(9.0)})
    assert (found["rank"], found["rank_above_0.0001"]) == (2, 3)
    assert found["error_fro"] == pytest.approx(1e-3, rel=1e-5)


def test_the_entry_loss_touches_its_entry_alone():
    matrix = jnp.arange(6.0).reshape(2, 3)
    rows = {"row": jnp.array([1, 0]), "column": jnp.array([2, 0]), "value": jnp.array([3.0, 1.0])}
    assert entry_loss(matrix, rows).tolist() == [2.0, 0.5]
    slope = jax.grad(lambda matrix: jnp.sum(entry_loss(matrix, rows)))(matrix)
    assert slope.tolist() == [[-1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]


def test_training_and_validation_entries_are_disjoint():
    problem = problems.synthetic_matrix_completion(
        num_clients=4,
        shape=(10, 12),
        true_rank=2,
        share_seen=0.5,
        noise_scale=0.0,
        num_validation=7,
    )
    assert problem.train.sizes.tolist() == [15] * 4
    assert problem.validation.sizes.tolist() == [7] * 4
    places = np.concatenate(
        [
            np.asarray(data.examples["row"] * 12 + data.examples["column"])
            for data in (problem.train, problem.validation)
        ]
    )
    assert len(set(places.tolist())) == places.size
    # Client m has columns 3 m to 3 m + 2.
    owner = np.asarray(problem.train.examples["column"]) // 3
    assert owner.tolist() == np.repeat(np.arange(4), 15).tolist()


def spec_pca():
    """Return the default population, and its moment computed differently."""
    problem = problems.synthetic_pca()
    x = np.asarray(problem.train.examples["x"], float)
    return problem, x, x.T @ x / len(x)


def test_synthetic_pca_draws_the_reference_instance():
    problem, x, moment = spec_pca()
    assert x.shape == (600, 30)
    assert x.sum() == pytest.approx(39.4499710068, abs=1e-4)
    np.testing.assert_allclose(x[0, :3], [-0.26713757, -0.9756435, -0.34921609], atol=1e-7)
    values = np.linalg.eigvalsh(moment)[::-1]
    expected = [2.251491, 1.961391, 1.834070, 1.685486, 1.504961, 0.821662]
    np.testing.assert_allclose(values[:6], expected, atol=2e-6)
    assert problem.train.sizes.tolist() == [60] * 10


def test_second_moments_weigh_clients():
    rng = np.random.default_rng(0)
    clients = [{"x": rng.standard_normal((n, 3)), "y": rng.standard_normal(n)} for n in (2, 5)]
    for weights in ("examples", [3.0, 1.0]):
        p = np.array([2, 5]) if weights == "examples" else np.array(weights)
        expected = sum(
            share * client["x"].T @ client["x"] / len(client["x"])
            for share, client in zip(p / p.sum(), clients, strict=True)
        )
        data = from_clients(clients, weights)
        np.testing.assert_allclose(second_moment(data), expected, atol=1e-14)


def test_pca_measures_by_eigenvectors():
    problem, x, moment = spec_pca()
    problem = problems.pca(doubled(problem.train), num_components=5)
    measures = jax.jit(problem.measures)
    values, vectors = np.linalg.eigh(moment)
    turn = orthonormal(np.random.default_rng(0), 5, 5)
    at_best = measures(jnp.asarray(vectors[:, -5:]) @ turn)
    for name in ("grad_norm", "angle_sum", "feasibility"):
        assert at_best[name] == pytest.approx(0, abs=1e-7), name
    assert at_best["suboptimality"] == pytest.approx(0, abs=1e-14)

    basis = orthonormal(np.random.default_rng(1), 30, 5)
    found = measures(basis)
    loss = float(mean_loss(problem.loss, basis, problem.train))
    assert found["suboptimality"] == pytest.approx(loss + values[-5:].sum() / 2, rel=1e-10)
    angles = scipy.linalg.subspace_angles(np.asarray(basis), vectors[:, -5:])
    assert found["angle_sum"] == pytest.approx(angles.sum(), rel=1e-10)
    assert found["angle_max"] == pytest.approx(angles.max(), rel=1e-10)
    slope = riemannian_gradient(stiefel(), basis, jnp.asarray(-moment) @ basis)
    assert found["grad_norm"] == pytest.approx(float(jnp.linalg.norm(slope)), rel=1e-10)
    assert float(measures(2 * basis)["feasibility"]) == pytest.approx(3 * 5**0.5)


def test_pca_measures_see_small_errors_in_float32():
    """Rotated by 1e-4 towards a trailing axis, F - F* is 5e-9 of F, too small for float32."""
    problem, _, moment = spec_pca()
    values, vectors = np.linalg.eigh(moment)
    angle = 1e-4
    basis = vectors[:, -5:].copy()
    basis[:, 0] = np.cos(angle) * vectors[:, -5] + np.sin(angle) * vectors[:, 0]
    found = problem.measures(jnp.asarray(basis, jnp.float32))
    assert found["angle_max"] == pytest.approx(angle, rel=1e-2)
    gap = (values[-5] - values[0]) / 2 * np.sin(angle) ** 2
    assert found["suboptimality"] == pytest.approx(gap, rel=2e-2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: problems.synthetic_matrix_completion(shape=(10, 11)), "11 columns evenly"),
        (lambda: problems.synthetic_matrix_completion(share_seen=1.0), "smaller share_seen"),
        (
            lambda: problems.pca(from_rows({"x": np.ones((3, 4))}, [3]), num_components=4),
            "num_components is 4 for 4 features",
        ),
        (
            lambda: problems.matrix_completion(
                from_rows(
                    {"row": np.array([0, 3]), "column": np.array([0, 1]), "value": np.ones(2)}, [2]
                ),
                shape=(3, 2),
            ),
            "field row .* runs from 0 to 3",
        ),
    ],
)
def test_impossible_problems_are_refused(build, message):
    with pytest.raises(ValueError, match=message) as error:
        build()
    assert "\n" not in str(error.value)
