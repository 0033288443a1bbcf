"""Manifolds compared with pymanopt and with matrix functions of scipy."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from fcojax.transforms import grassmann, oblique, orthogonal, rotation, sphere, stiefel

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from pymanopt.manifolds import Grassmann, Oblique, SpecialOrthogonalGroup, Sphere, Stiefel

QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning:pymanopt")
pytestmark = [pytest.mark.slow, pytest.mark.gate, QUIET]

PAIRS = {
    "sphere": (sphere(), lambda: Sphere(6), (6,)),
    "oblique": (oblique(), lambda: Oblique(6, 3), (6, 3)),
    "stiefel, polar": (stiefel(), lambda: Stiefel(7, 3, retraction="polar"), (7, 3)),
    "stiefel, QR": (stiefel(retraction="qr"), lambda: Stiefel(7, 3, retraction="qr"), (7, 3)),
    "grassmann": (grassmann(), lambda: Grassmann(7, 3), (7, 3)),
}


def numpy_draw(manifold, shape):
    rng = np.random.default_rng(5)
    x = np.asarray(manifold.project(jnp.asarray(rng.standard_normal(shape))))
    v = rng.standard_normal(shape)
    return x, v, np.asarray(manifold.to_tangent(x, 0.3 * rng.standard_normal(shape)))


@pytest.mark.parametrize("name", PAIRS)
def test_pymanopt_agrees(name):
    ours, build, shape = PAIRS[name]
    theirs = build()
    x, v, u = numpy_draw(ours, shape)
    np.testing.assert_allclose(ours.to_tangent(x, v), theirs.projection(x, v), atol=1e-13)
    end, far = theirs.retraction(x, u), theirs.exp(x, u)
    for found, expected in ((ours.retract(x, u), end), (ours.exp(x, u), far)):
        if name == "grassmann":  # the same subspace has different bases
            found, expected = found @ found.T, expected @ expected.T
        np.testing.assert_allclose(found, expected, atol=1e-12)
    if ours.log is not None:
        y = np.asarray(ours.exp(x, u))
        np.testing.assert_allclose(ours.log(x, y), theirs.log(x, y), atol=1e-10)
    if name != "grassmann":
        moved = ours.to_tangent(ours.retract(x, u), u)
        np.testing.assert_allclose(moved, theirs.transport(x, end, u), atol=1e-12)


def test_rotations_agree_with_pymanopt():
    theirs = SpecialOrthogonalGroup(4)
    x, _, u = numpy_draw(rotation(), (4, 4))
    y = theirs.exp(x, x.T @ u)
    np.testing.assert_allclose(rotation().exp(x, u), y, atol=1e-12)
    np.testing.assert_allclose(rotation().log(x, y), x @ theirs.log(x, y), atol=1e-12)


def test_logarithms_near_the_cut_locus_agree_with_scipy():
    """Rotations by 3.1 in one plane, and by 3.0, 0 or 3.1 in the other."""
    rng = np.random.default_rng(1)
    x, basis = (np.linalg.qr(rng.standard_normal((5, 5)))[0] for _ in range(2))
    for second in (3.0, 0.0, 3.1):
        skew = np.zeros((5, 5))
        skew[0, 1], skew[2, 3] = 3.1, second
        skew = basis @ (skew - skew.T) @ basis.T
        y = x @ scipy.linalg.expm(skew)
        np.testing.assert_allclose(orthogonal().log(x, y), x @ skew, atol=1e-11)
