"""Matrix regression and completion, and the problems on the Stiefel manifold."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import fcojax
from fcojax import from_rows, problems
from fcojax.problems.building import from_clients
from fcojax.problems.linear_models import squared_error
from fcojax.problems.matrix_completion import entry_loss
from fcojax.problems.measures import rank
from fcojax.problems.pca import principal_angles, stiefel_gradient_norm, variance_loss
from fcojax.problems.problem import second_moment
from fcojax.transforms import euclidean, named, nuclear, on_subtree, riemannian_gradient, stiefel
from tests.problems.families import in_float64, mean_loss


def doubled(data):
    return dataclasses.replace(data, examples=in_float64(data.examples))


def orthonormal(rng, *shape):
    return jnp.asarray(np.linalg.qr(rng.standard_normal(shape))[0])


def test_the_matrix_loss_by_hand():
    params = {"kernel": jnp.array([[1.0, 2.0], [0.0, -1.0]]), "bias": jnp.array(0.5)}
    rows = {"x": jnp.array([[[1.0, 1.0], [5.0, 2.0]]]), "y": jnp.array([4.0])}
    assert squared_error(params, rows).tolist() == [(1 + 2 - 2 + 0.5 - 4) ** 2]


def test_low_rank_data_have_the_stated_moments():
    problem = problems.low_rank(
        num_clients=20,
        num_examples=50,
        shape=(3, 4),
        true_rank=2,
        mean_scale=2.0,
        noise_scale=0.5,
        bias_scale=0.0,
    )
    x = np.asarray(problem.train.examples["x"])
    y = np.asarray(problem.train.examples["y"])
    means = x.reshape(20, 50, 3, 4).mean(axis=1)
    assert means.std() == pytest.approx(2.0, rel=0.1)
    residual = y - x[:, 0, 0] - x[:, 1, 1]
    assert residual.std() == pytest.approx(0.5, rel=0.1)
    assert abs(residual.mean()) < 0.05


def test_low_rank_measures_at_the_truth_and_off_it():
    problem = problems.low_rank(num_clients=2, num_examples=3, shape=(5, 4), true_rank=2)
    truth = jnp.diag(jnp.array([1.0, 1.0, 0.0, 0.0, 0.0]))[:, :4]
    found = problem.measures({"kernel": truth, "bias": jnp.array(9.0)})
    assert (found["rank"], found["rank_above_0.0001"], found["error_fro"]) == (2, 2, 0.0)
    off = truth.at[2, 2].set(1e-3).at[3, 3].set(1e-6)
    found = problem.measures({"kernel": off, "bias": jnp.array(9.0)})
    assert (found["rank"], found["rank_above_0.0001"]) == (2, 3)
    assert found["error_fro"] == pytest.approx(1e-3, rel=1e-5)


def test_rank_of_a_rotated_matrix():
    rng = np.random.default_rng(0)
    left, right = orthonormal(rng, 6, 6), orthonormal(rng, 5, 5)
    matrix = left[:, :5] @ jnp.diag(jnp.array([3.0, 0.5, 2e-2, 5e-3, 0.0])) @ right
    assert rank(matrix, 1e-2)["rank"] == 3
    assert rank(matrix, 1e-4)["rank"] == 4


@pytest.mark.slow
def test_dual_averaging_finds_rank_16_within_a_hundred_rounds():
    """The results of Yuan, Zaheer and Reddi, Figure 4, on data of this size."""
    problem = problems.low_rank()
    algorithm = fcojax.algorithms.fed_dual_avg(
        problem.loss, euclidean(on_subtree(nuclear(), named("kernel")))
    )
    hparams = fcojax.algorithms.fed_dual_avg.Hparams(
        client_lr=0.01, server_lr=1.0, penalty_scale=0.1
    )
    hparams = jax.tree.map(jnp.float32, hparams)
    _, history = fcojax.run(
        algorithm,
        hparams,
        problem.init(jax.random.key(1)),
        problem.train,
        jax.random.key(0),
        num_rounds=100,
        eval_every=10,
        plan=fcojax.Plan(fcojax.local_steps(10, 10), fcojax.uniform_cohort(cohort_size=10)),
        observe=lambda hparams, params, context: problem.measures(params),
    )
    ranks, errors = np.asarray(history["rank"]), np.asarray(history["error_fro"])
    assert 16 in ranks
    assert ranks[0] > 16
    assert errors[-1] < 0.6 < errors[0]


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


def test_completion_measures_vanish_at_the_matrix():
    problem = problems.synthetic_matrix_completion(
        num_clients=2,
        shape=(6, 8),
        true_rank=2,
        share_seen=0.9,
        noise_scale=0.0,
        num_validation=2,
    )
    matrix = np.zeros((6, 8), np.float32)
    seen = np.zeros((6, 8), bool)
    for data in (problem.train, problem.validation):
        place = tuple(np.asarray(data.examples[name]) for name in ("row", "column"))
        matrix[place] = data.examples["value"]
        seen[place] = True
    # The other entries of a column determine a missing one, as the columns span two dimensions.
    basis = np.linalg.svd(matrix[:, seen.all(axis=0)])[0][:, :2]
    for j in np.flatnonzero(~seen.all(axis=0)):
        weights = np.linalg.lstsq(basis[seen[:, j]], matrix[seen[:, j], j])[0]
        matrix[~seen[:, j], j] = basis[~seen[:, j]] @ weights
    found = problem.measures(jnp.asarray(matrix))
    assert (found["rank"], found["error_fro"]) == (2, pytest.approx(0, abs=1e-4))
    assert found["rmse"] == 0
    assert problem.measures(jnp.asarray(matrix + 2))["rmse"] == pytest.approx(2, rel=1e-5)


def test_only_the_span_matters():
    rng = np.random.default_rng(2)
    basis, turn = orthonormal(rng, 7, 3), orthonormal(rng, 3, 3)
    features = {"x": jnp.asarray(rng.standard_normal((5, 7)))}
    np.testing.assert_allclose(
        variance_loss(basis, features), variance_loss(basis @ turn, features), atol=1e-12
    )


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


def test_principal_angles_of_equal_and_orthogonal_spans():
    axes = jnp.eye(6)
    assert principal_angles(axes[:, :2], axes[:, :2]).tolist() == [0.0, 0.0]
    np.testing.assert_allclose(principal_angles(axes[:, :2], axes[:, 2:4]), np.pi / 2)


def test_a_normal_gradient_has_no_riemannian_norm():
    """x S with S symmetric is normal to the Stiefel manifold at x."""
    rng = np.random.default_rng(0)
    basis, square = orthonormal(rng, 7, 3), rng.standard_normal((3, 3))
    assert stiefel_gradient_norm(basis, basis @ (square + square.T)) <= 1e-14


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
