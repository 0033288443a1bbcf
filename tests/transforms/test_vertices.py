"""Linear minimisation over balls compared with dual norms, and Frank-Wolfe."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.transforms import l1_vertex, nuclear_ball, nuclear_vertex
from tests.support.federations import quadratic_clients

RNG = np.random.default_rng(0)


def test_the_l1_vertex_attains_the_dual_norm():
    """min <g, s> over the ball is -r |g|_inf; over all leaves together."""
    g = {"a": jnp.array([1.0, -4.0]), "b": jnp.array([[3.0, 0.5]])}
    s = l1_vertex(g, 2.0)
    assert s["a"].tolist() == [0.0, 2.0] and not s["b"].any()
    assert l1_vertex(jnp.array([2.0, -2.0]), 1.0).tolist() == [-1.0, 0.0]
    assert np.abs(l1_vertex(jnp.zeros(3), 1.0)).sum() == 1.0


def test_the_nuclear_vertex_attains_the_dual_norm():
    """min <G, S> over the ball is -r sigma_1(G), at a matrix of rank one and nuclear norm r."""
    g = RNG.standard_normal((5, 3))
    s = np.asarray(nuclear_vertex(jnp.asarray(g), 1.5))
    values = np.linalg.svd(s, compute_uv=False)
    np.testing.assert_allclose(values, [1.5, 0, 0], rtol=0, atol=1e-14)
    assert np.sum(g * s) == pytest.approx(-1.5 * np.linalg.svd(g, compute_uv=False)[0], rel=1e-13)
    assert np.isnan(nuclear_vertex(jnp.full((2, 2), jnp.nan), 1.0)).all()


@pytest.mark.slow
def test_frank_wolfe_on_the_nuclear_ball_agrees_with_projected_gradient():
    """Least squares in the entries of a matrix, with the optimum on the boundary of the ball."""
    clients = quadratic_clients(sizes=(1,) * 4, dim=6, seed=2)
    data, radius = fcojax.from_clients(clients), 0.7

    def loss(w, rows):
        flat = w.ravel()
        return 0.5 * jnp.einsum("i,nij,j->n", flat, rows["A"], flat) - rows["c"] @ flat

    def end(algorithm, rates, num_rounds):
        model, _ = fcojax.run(
            algorithm,
            rates,
            jnp.zeros((2, 3)),
            data,
            jax.random.key(0),
            fcojax.local_steps(1),
            num_rounds=num_rounds,
            eval_every=num_rounds,
        )
        return np.asarray(model)

    fed_mid, fed_fw = fcojax.algorithms.fed_mid_osp, fcojax.algorithms.fed_fw
    mirror = fcojax.transforms.euclidean(nuclear_ball())
    best = end(fed_mid(loss, mirror), fed_mid.Hparams(0.5, 1.0, radius), 300)
    assert np.linalg.svd(best, compute_uv=False).sum() == pytest.approx(radius, rel=1e-9)
    chosen = fed_fw(loss, vertex=nuclear_vertex)
    early, late = (
        end(chosen, fed_fw.Hparams(penalty_scale=radius), rounds) for rounds in (200, 12_800)
    )
    assert np.linalg.svd(late, compute_uv=False).sum() <= radius * (1 + 1e-9)
    near, far = (np.linalg.norm(point - best) for point in (late, early))
    assert near < far / 2 and near < 0.05 * np.linalg.norm(best)


def test_a_gradient_with_a_nan_has_no_vertex():
    """A finite vertex would hide a diverged gradient."""
    assert np.isnan(l1_vertex(jnp.array([1.0, np.nan, 2.0]), 0.5)).any()
