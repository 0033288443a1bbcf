"""The printed algorithm on principal components, its identities, and our variants."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from experiments.report.verdict import verdict
from fcojax.algorithms.manifolds import ManifoldServer
from fcojax.engine.state import State
from fcojax.transforms import (
    flat,
    generalised_stiefel,
    grassmann,
    product_manifold,
    sphere,
    stiefel,
)
from tests.support import federations, printed_forms, subspaces
from tests.support.subspaces import pca, polar, slope, tangent

pytestmark = pytest.mark.gate

TEN_STEPS = fcojax.local_steps(10)
Rates = fcojax.algorithms.fed_manifold.Hparams
default_stiefel, unit_sphere = stiefel(), sphere()


def algorithm_that(sends):
    """Return the algorithm whose server sends both arrays, the direction, or the printed point."""
    if sends == "point":
        return printed_forms.fed_manifold(pca, subspaces.svd_stiefel)
    return subspaces.algorithm("fed_manifold", default_stiefel, sends=sends)


def hundred_rounds(client_lr=0.02, server_lr=1.0, sends="both", **options):
    """Return states and metrics of the reference problem, from one compiled program."""
    chosen = algorithm_that(sends)
    return subspaces.states(chosen, Rates(client_lr, server_lr), 100, work=TEN_STEPS, **options)


@functools.cache
def reference(server_lr=1.0):
    return hundred_rounds(server_lr=server_lr)


def corrections(state):
    return state.server.direction[:, None] - state.clients


@pytest.mark.slow
def test_fed_manifold_finds_the_top_eigenspace_of_the_mean_covariance():
    """Ten steps per round on heterogeneous clients leave no floor."""
    best, basis = subspaces.optimum()
    seen, _ = reference(np.sqrt(10))
    x = seen.server.point[-1]
    assert np.linalg.norm(slope(x)) <= 1e-12
    assert abs(subspaces.objective(x) - best) <= 1e-12
    sines = np.linalg.svd(x - basis @ (basis.T @ x), compute_uv=False)
    assert np.arcsin(sines.max()) <= 1e-6
    own = np.stack([slope(x, covariance) for covariance in subspaces.covariances()])
    assert np.linalg.norm(own, axis=(1, 2)).min() > 0.1
    np.testing.assert_allclose(corrections(seen)[-1], -own, atol=1e-12)


@pytest.mark.slow
def test_every_model_is_feasible_and_corrections_sum_to_zero():
    for server_lr in (1.0, np.sqrt(10)):
        seen, _ = reference(server_lr)
        assert subspaces.feasibility(seen.server.point) <= 1e-12
        assert np.abs(corrections(seen).mean(axis=1)).max() <= 1e-14


@pytest.mark.slow
def test_the_printed_form_is_the_same_in_float64():
    seen, metrics = hundred_rounds(sends="point")
    ours, measured = reference()
    models = np.stack([polar(y) for y in seen.server])
    np.testing.assert_allclose(models[:50], ours.server.point[:50], atol=1e-13)
    np.testing.assert_allclose(metrics["tube_distance"][:50], measured["tube_distance"][:50])


@pytest.mark.slow
def test_clients_that_are_sent_directions_only_stay_where_the_server_is():
    seen, metrics = hundred_rounds(sends="direction")
    ours, measured = reference()
    np.testing.assert_allclose(seen.server.point, ours.server.point, atol=1e-12)
    np.testing.assert_allclose(seen.clients.slope, ours.clients, atol=1e-12)
    np.testing.assert_allclose(metrics["tube_distance"], measured["tube_distance"], atol=1e-12)
    # A client starts each round at the server's last point.
    starts = np.broadcast_to(ours.server.point[:-1, None], seen.clients.start[1:].shape)
    np.testing.assert_allclose(seen.clients.start[1:], starts, atol=1e-12)


def test_turning_the_data_the_frame_or_the_order_of_clients_turns_the_result():
    rng = np.random.default_rng(1)
    turn = polar(rng.standard_normal((subspaces.DIM, subspaces.DIM)))
    mix = polar(rng.standard_normal((subspaces.RANK, subspaces.RANK)))
    start, models = subspaces.start(), reference()[0].server.point
    order = rng.permutation(subspaces.NUM_CLIENTS)
    turned = fcojax.from_clients([rows @ turn for rows in subspaces.clients()])
    reordered = fcojax.from_clients([subspaces.clients()[i] for i in order])
    for options, expected in (
        ({"population": turned, "params": turn.T @ start}, turn.T @ models),
        ({"params": start @ mix}, models @ mix),
        ({"population": reordered}, models),
    ):
        found = hundred_rounds(**options)[0].server.point
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("client_lr", "server_lr"), [(0.02, 1.0), (0.05, 2.0)])
def test_a_stationary_point_with_the_right_corrections_is_a_fixed_point(client_lr, server_lr):
    x = subspaces.optimum()[1]
    own = np.stack([slope(x, covariance) for covariance in subspaces.covariances()])
    first = State(
        *jax.tree.map(jnp.asarray, (ManifoldServer(x, np.zeros_like(x), np.zeros(())), own)),
        (),
        jnp.zeros((), jnp.int32),
        jax.random.key(0),
    )
    seen, _ = hundred_rounds(client_lr, server_lr, first=first)
    np.testing.assert_allclose(seen.server.point[-1], x, atol=1e-12)
    np.testing.assert_allclose(seen.clients[-1], own, atol=1e-12)


def test_leaving_the_tube_is_measured_and_reaches_the_verdict():
    _, metrics = reference()
    assert 0 < metrics["tube_distance"].max() < 0.5 and not metrics["beyond_reach"].any()
    seen, metrics = hundred_rounds(client_lr=2.0)
    assert metrics["beyond_reach"][0] == 1
    objective = [subspaces.objective(x) for x in (subspaces.start(), *seen.server.point[:4])]
    rows = [
        {"round": at, "objective": value, "beyond_reach": share}
        for at, (value, share) in enumerate(
            zip(objective, [0.0, *metrics["beyond_reach"][:4]], strict=True)
        )
    ]
    assert "by round 1 iterates left the tube" in verdict(rows)


def oracle(project, x, rounds, client_lr, server_lr):
    """Return the model, all slopes and the mean worst distance from the manifold in each round.

    Every client stores the mean of its last gradients; the direction is their weighted mean over
    the population. This version uses displacements instead of changes of slopes.
    """
    clients, weights = subspaces.small_clients(), np.array(subspaces.SMALL_WEIGHTS)
    slopes = np.zeros((len(clients), *x.shape))
    result, off = [], 0.0
    for cohort in rounds:
        direction = np.average(slopes, axis=0, weights=weights)
        steps, moved, farthest, shares = [], [], [], []
        for member, weight, batches in cohort:
            correction = direction - slopes[member]
            z, ambient, seen, far = x, x, [], off
            for indices, counts in batches:
                if counts.sum() == 0:
                    continue
                rows = clients[member][indices]
                gradient = -(rows.T * (counts / counts.sum())) @ (rows @ z)
                seen.append(tangent(z, gradient))
                ambient = ambient - client_lr * (seen[-1] + correction)
                z = project(ambient)
                far = max(far, np.linalg.norm(ambient - z))
            steps.append(len(seen))
            moved.append((ambient - x) / len(seen))
            farthest.append(far)
            shares.append(weight)
            slopes[member] = np.mean(seen, axis=0)
        walked = np.average(moved, axis=0, weights=shares)
        ambient = x + server_lr * np.average(steps, weights=shares) * walked
        x = project(ambient)
        off = np.linalg.norm(ambient - x)
        result.append((x, slopes.copy(), np.average(farthest, weights=shares)))
    return result


@pytest.mark.slow
def test_partial_cohorts_weights_and_unequal_steps_are_those_of_the_oracle():
    """The weighted corrections of all clients, absent ones included, sum to zero."""
    work, cohort = fcojax.local_epochs(2, 3), fcojax.uniform_cohort(cohort_size=3)
    data = fcojax.from_clients(subspaces.small_clients(), subspaces.SMALL_WEIGHTS)
    rounds = federations.replay(data, jax.random.key(0), 8, work, cohort)
    chosen = subspaces.algorithm("fed_manifold")
    options = {"population": data, "work": work, "cohort": cohort, "params": subspaces.SMALL_START}
    seen, metrics = subspaces.states(chosen, Rates(0.05, 1.3), 8, **options)
    expected = oracle(polar, subspaces.SMALL_START, rounds, 0.05, 1.3)
    num_steps = [[sum(c.sum() > 0 for _, c in steps) for _, _, steps in r] for r in rounds]
    assert any(len(set(counts)) > 1 for counts in num_steps)
    before = np.zeros_like(seen.clients[0])
    for r, (x, slopes, worst) in enumerate(expected):
        np.testing.assert_allclose(seen.server.point[r], x, atol=1e-13)
        np.testing.assert_allclose(seen.clients[r], slopes, atol=1e-13)
        absent = np.setdiff1d(range(len(slopes)), [member for member, *_ in rounds[r]])
        np.testing.assert_array_equal(seen.clients[r][absent], before[absent])
        assert metrics["tube_distance"][r] == pytest.approx(worst, rel=1e-9)
        before = seen.clients[r]
    total = np.einsum("m,rmij->rij", subspaces.SMALL_WEIGHTS, corrections(seen))
    assert np.abs(total).max() <= 1e-14


COINS = pytest.param(fcojax.coin_flips(0.3), marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize("cohort", [fcojax.uniform_cohort(cohort_size=5), COINS])
def test_partial_cohorts_have_no_floor(cohort):
    chosen = subspaces.algorithm("fed_manifold", unit_sphere)
    start = subspaces.start()[:, :1]
    seen, metrics = subspaces.states(
        chosen, Rates(0.05), 400, params=start, work=fcojax.local_steps(5), cohort=cohort, every=40
    )
    assert metrics["participants"].max() < 0.7 * 40 * subspaces.NUM_CLIENTS
    norms = subspaces.slope_norms(seen.server.point)
    assert norms[0] > 1e-3 and norms[-1] <= 1e-12
    assert np.abs(corrections(seen).mean(axis=1)).max() <= 1e-14


def test_one_full_step_is_centralised_projected_gradient_descent():
    """With K = 1 the corrections cancel in the mean, for all clients and weights."""
    data = fcojax.from_clients(subspaces.small_clients(), subspaces.SMALL_WEIGHTS)
    chosen, x = subspaces.algorithm("fed_manifold"), subspaces.SMALL_START
    options = {"params": x, "population": data, "work": fcojax.local_steps(1)}
    seen, _ = subspaces.states(chosen, Rates(0.2, 1.5), 30, **options)
    own = [rows.T @ rows / len(rows) for rows in subspaces.small_clients()]
    mean = np.average(own, axis=0, weights=subspaces.SMALL_WEIGHTS)
    for found in seen.server.point:
        x = polar(x - 0.2 * 1.5 * slope(x, mean))
        np.testing.assert_allclose(found, x, atol=1e-13)


def stationary(manifold, loss, clients, start, client_lr, num_rounds=300, tau=5):
    """Return the model after many rounds of several steps on heterogeneous clients."""
    chosen = subspaces.algorithm("fed_manifold", manifold, loss)
    options = {"population": fcojax.from_clients(clients), "work": fcojax.local_steps(tau)}
    hparams, options = Rates(client_lr), options | {"params": start, "every": num_rounds}
    seen, _ = subspaces.states(chosen, hparams, num_rounds, **options)
    return jax.tree.map(lambda leaf: leaf[-1], seen.server.point)


def test_identical_clients_project_once_a_round():
    """Then c = 0, and a round is K steps of y <- y - eta grad f(P(y)), then P."""
    rows, x = subspaces.small_clients()[2], subspaces.SMALL_START[:, :1]
    chosen = subspaces.algorithm("fed_manifold", unit_sphere)
    options = {"population": fcojax.from_clients([rows] * 3), "work": fcojax.local_steps(4)}
    seen, _ = subspaces.states(chosen, Rates(0.1), 6, params=x, **options)
    for found, slopes in zip(seen.server.point, corrections(seen), strict=True):
        y = x
        for _ in range(4):
            y = y - 0.1 * slope(y / np.linalg.norm(y), rows.T @ rows / len(rows))
        x = y / np.linalg.norm(y)
        np.testing.assert_allclose(found, x, atol=1e-13)
        np.testing.assert_allclose(slopes, 0, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("sends", ["both", "direction", "point"])
def test_in_float32_only_the_printed_form_drifts(sends):
    chosen, rounds = algorithm_that(sends), 5000 if sends == "both" else 400
    data = fcojax.from_clients([rows.astype(np.float32) for rows in subspaces.clients()])
    given = {"population": data, "params": subspaces.start().astype(np.float32)}
    seen, _ = subspaces.states(chosen, Rates(0.02), rounds, every=100, work=TEN_STEPS, **given)
    if sends == "point":
        away = subspaces.slope_norms(np.stack([polar(y) for y in seen.server]))
        assert away[-1] > 2 * away[0] and away[-1] > 5e-5
    else:
        assert seen.server.point.dtype == np.float32
        assert subspaces.feasibility(seen.server.point) <= 1e-6
        assert subspaces.slope_norms(seen.server.point)[-1] <= (1e-6 if sends == "both" else 5e-6)
    if sends == "both":
        assert np.abs(corrections(seen).mean(axis=1, dtype=np.float64)).max() <= 2e-7


@pytest.mark.slow
def test_grassmann_and_stiefel_are_the_same_on_a_function_of_the_subspace():
    given = pca, subspaces.clients(), subspaces.start(), 0.02, 20
    one, other = (stationary(on, *given) for on in (grassmann(), subspaces.svd_stiefel))
    assert np.linalg.norm(slope(one)) > 1e-3
    np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.slow
def test_generalised_stiefel_solves_the_generalised_eigenproblem():
    root = np.random.default_rng(7).standard_normal((5, 5))
    metric, clients = root @ root.T / 5 + np.eye(5), subspaces.small_clients()
    manifold = generalised_stiefel(jnp.asarray(metric))
    start = manifold.project(jnp.asarray(subspaces.SMALL_START))
    found = stationary(manifold, pca, clients, start, 0.1, num_rounds=1000)
    np.testing.assert_allclose(found.T @ metric @ found, np.eye(2), atol=1e-12)
    mean = np.mean([rows.T @ rows / len(rows) for rows in clients], axis=0)
    values = np.linalg.eigvals(np.linalg.solve(metric, mean)).real
    assert np.trace(found.T @ mean @ found) == pytest.approx(np.sort(values)[-2:].sum(), rel=1e-12)


def direction_and_offset(params, rows):
    return 0.5 * (rows["a"] @ params["w"] + params["b"] - rows["y"]) ** 2


def test_a_product_with_a_flat_part_fits_a_unit_direction_and_an_offset():
    """y = a^T w + b with |w| = 1: the result is stationary in both, checked in numpy."""
    rng = np.random.default_rng(6)
    w = rng.standard_normal(4)
    clients = []
    for _ in range(4):
        a = rng.standard_normal((6, 4)) + rng.standard_normal(4)
        truth = w / np.linalg.norm(w) + 0.3 * rng.standard_normal(4)
        clients.append({"a": a, "y": a @ truth + rng.standard_normal()})
    start = {"w": jnp.eye(4)[0], "b": jnp.zeros(())}
    manifold = product_manifold({"w": sphere(), "b": flat()})
    found = stationary(manifold, direction_and_offset, clients, start, 0.02, num_rounds=2000)
    rows = {name: np.concatenate([client[name] for client in clients]) for name in ("a", "y")}
    residual = rows["a"] @ found["w"] + found["b"] - rows["y"]
    gradient = residual @ rows["a"] / len(residual)
    assert np.linalg.norm(found["w"]) == pytest.approx(1, abs=1e-14)
    assert abs(residual.mean()) <= 1e-10
    across = gradient - found["w"] * (gradient @ found["w"])
    np.testing.assert_allclose(across, 0, atol=1e-10)
