"""Laws of manifolds. A new manifold is tested by adding a row to ROWS.

hypothesis draws a seed for BATCH points, tangents and vectors. The maps of a row are jitted once,
each mapped over the batch.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcojax import transforms, tree
from fcojax.check import piece_laws
from tests.support.tables import with_gate

pytestmark = pytest.mark.slow

BATCH = 8
METRIC = jnp.diag(jnp.arange(1.0, 8.0)) + 0.3


class Row(NamedTuple):
    """A manifold, the shape of its points, and its traits.

    ``order`` is the power of t in the distance of ``retract(x, t u)`` to ``exp(x, t u)``; ``size``
    is the norm of tangents; ``metric(x, v)`` is that of the manifold; ``bent(x, v)`` is what the
    acceleration of a geodesic with velocity v is apart from normal vectors, if the metric is not
    that of an ambient space.
    """

    manifold: transforms.Manifold
    like: object
    order: int = 3
    size: float = 0.5
    metric: object = lambda x, v: v
    bent: object = lambda x, v: tree.zeros_like(x)


def like(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float64)


ROWS = {
    "sphere": Row(transforms.sphere(), like(3, 2)),
    "oblique": Row(transforms.oblique(), like(6, 3)),
    "stiefel": Row(transforms.stiefel(), like(7, 3)),
    "stiefel by QR": Row(transforms.stiefel(retraction="qr", method="svd"), like(7, 3), order=2),
    "generalised stiefel": Row(
        transforms.generalised_stiefel(METRIC),
        like(7, 3),
        metric=lambda x, v: np.asarray(METRIC) @ v,
    ),
    "orthogonal": Row(transforms.orthogonal(), like(4, 4)),
    "rotation": Row(transforms.rotation(), like(4, 4)),
    "grassmann": Row(transforms.grassmann(), like(7, 3)),
    "spd": Row(
        transforms.spd(),
        like(3, 3),
        size=0.1,
        metric=lambda x, v: np.linalg.solve(x, v) @ np.linalg.inv(x),
        bent=lambda x, v: v @ np.linalg.solve(x, v),
    ),
    "flat": Row(transforms.flat(), {"a": like(3), "b": like(), "none": like(0)}),
    "product": Row(
        transforms.product_manifold(
            {
                "bias": transforms.flat(),
                "columns": transforms.oblique(),
                "units": [transforms.sphere()],
            }
        ),
        {"bias": like(), "columns": like(5, 2), "units": [like(3)]},
    ),
}
GEODESIC = [name for name, row in ROWS.items() if row.manifold.exp]
LOGARITHMIC = [name for name, row in ROWS.items() if row.manifold.log]
REPRESENTATIVES = {"sphere", "stiefel"}  # every law runs on these in the gate
CURVED = [name for name in ROWS if name != "flat"]
OPEN = ("spd",)  # in its space, so that every near vector is a point
COMPACT = [name for name in CURVED if name not in ("generalised stiefel", *OPEN)]

seeds = st.integers(min_value=0, max_value=2**31 - 1)
laws = settings(max_examples=25, deadline=None, derandomize=True)


@functools.cache
def lifted(name):
    """Return the row's manifold with every map jitted over a batch."""
    row = ROWS[name]
    maps = {
        field: jax.jit(jax.vmap(getattr(row.manifold, field)))
        for field in row.manifold._fields
        if field not in ("reach", "random_point") and getattr(row.manifold, field)
    }
    draw = jax.jit(jax.vmap(functools.partial(row.manifold.random_point, row.like)))
    return row.manifold._replace(random_point=draw, **maps)


@functools.cache
def slope(name, field):
    """Return a map's directional derivative in its last argument, jitted over a batch."""
    function = getattr(ROWS[name].manifold, field)

    def along(*arguments):
        *fixed, at, direction = arguments
        return jax.jvp(functools.partial(function, *fixed), (at,), (direction,))[1]

    return jax.jit(jax.vmap(along))


def add(x, factor, y):
    return jax.tree.map(lambda a, b: np.asarray(a) + factor * np.asarray(b), x, y)


def inner(x, y):
    """Return the inner products of two batches, one number per example."""
    parts = jax.tree.map(lambda a, b: np.sum(np.reshape(a * b, (BATCH, -1)), axis=1), x, y)
    return sum(jax.tree.leaves(parts))


def norm(x):
    return np.sqrt(inner(x, x))


def gap(x, y):
    return np.max(norm(add(x, -1.0, y)))


def scaled(x, factor):
    """Multiply every example by its own factor."""

    def one(leaf):
        return np.asarray(leaf) * np.reshape(factor, (BATCH,) + (1,) * (np.ndim(leaf) - 1))

    return jax.tree.map(one, x)


def draw(name, seed):
    """Return points, tangents of norm ``size``, unit ambient vectors, and the lifted manifold."""
    m, row = lifted(name), ROWS[name]
    rng = np.random.default_rng(seed)

    def vectors():
        v = jax.tree.map(lambda leaf: rng.standard_normal((BATCH, *leaf.shape)), row.like)
        return scaled(v, 1 / norm(v))

    x = m.random_point(jax.random.split(jax.random.key(seed), BATCH))
    u = m.to_tangent(x, vectors())
    return m, row, x, scaled(u, row.size / np.maximum(norm(u), 1e-3)), vectors(), vectors()


def law(names):
    def decorate(test):
        return pytest.mark.parametrize("name", with_gate(names, REPRESENTATIVES))(
            laws(given(seed=seeds)(test))
        )

    return decorate


@pytest.mark.parametrize("name", with_gate(ROWS, REPRESENTATIVES))
def test_the_laws_of_check_hold(name):
    """Of projection, tangents, first order of the retraction, and both inverses."""
    found = piece_laws(
        ROWS[name].manifold, jax.tree.map(lambda leaf: np.zeros(leaf.shape), ROWS[name].like)
    )
    assert not [finding for finding in found.values() if finding.holds is False]


@law(ROWS)
def test_differential_of_project_is_the_tangent_projection(name, seed):
    m, _, x, _, v, _ = draw(name, seed)
    differential = slope(name, "project")(x, v)
    tangent = m.to_tangent(x, v)
    if name == "grassmann":  # as matrices, the points are on the Stiefel manifold
        assert gap(differential, lifted("stiefel").to_tangent(x, v)) <= 1e-10
        differential = m.to_tangent(x, differential)
    assert gap(differential, tangent) <= 1e-10


@law(ROWS)
def test_derivative_of_project_off_the_manifold_matches_differences(name, seed):
    m, _, x, _, v, w = draw(name, seed)
    y, step = add(x, 0.1 if name == "spd" else 0.3, w), 1e-5
    difference = add(m.project(add(y, step, v)), -1.0, m.project(add(y, -step, v)))
    difference = scaled(difference, np.full(BATCH, 0.5 / step))
    assert gap(slope(name, "project")(y, v), difference) <= 1e-6


@law(COMPACT)
def test_project_is_two_lipschitz_in_the_half_tube(name, seed):
    m, row, x, _, v, w = draw(name, seed)
    half = 0.5 * row.manifold.reach
    depth = np.linspace(0, 1, BATCH)
    y, z = add(x, half, v), add(x, 1.0, scaled(w, half * depth))
    close = add(y, 1e-3, w)
    for other in (z, close, x):
        moved = norm(add(m.project(y), -1.0, m.project(other)))
        assert np.all(moved <= 2 * norm(add(y, -1.0, other)) + 1e-12)


def assert_order(distances, order):
    """Check that distances(t) is of order t^order above rounding errors."""
    far, near = distances(2.0**-6), distances(2.0**-7)
    accurate = near > 1e-11
    np.testing.assert_allclose(np.log2(far[accurate] / near[accurate]), order, atol=0.2)


@law([name for name in GEODESIC if name in CURVED and name not in OPEN])
def test_retraction_agrees_with_exp_to_its_order(name, seed):
    m, row, x, u, _, _ = draw(name, seed)

    def off(t):
        tu = scaled(u, np.full(BATCH, t))
        return norm(add(m.retract(x, tu), -1.0, m.exp(x, tu)))

    assert_order(off, row.order)


@law(GEODESIC)
def test_exp_is_a_geodesic(name, seed):
    """It stays on M, has initial velocity u, constant speed, and normal acceleration."""
    m, row, x, u, _, _ = draw(name, seed)
    h = 1e-4

    def motion(t):
        here, ahead, behind = (m.exp(x, scaled(u, np.full(BATCH, t + d))) for d in (0.0, h, -h))
        velocity = scaled(add(ahead, -1.0, behind), np.full(BATCH, 0.5 / h))
        change = scaled(add(add(ahead, -2.0, here), 1.0, behind), np.full(BATCH, h**-2))
        return here, velocity, change

    (start, velocity, _), (here, later, change) = motion(0.0), motion(0.5)
    assert gap(start, x) <= 1e-13
    assert gap(velocity, u) <= 1e-8
    assert gap(m.project(here), here) <= 1e-13
    tangential = m.to_tangent(here, add(change, -1.0, row.bent(here, later)))
    rounding = norm(x) if name in OPEN else 1  # of points, divided by h^2
    assert np.max(norm(tangential) / rounding) <= 1e-6
    speeds = inner(later, row.metric(here, later)), inner(u, row.metric(x, u))
    np.testing.assert_allclose(*speeds, rtol=1e-7)


@pytest.mark.parametrize("name", ["sphere", "grassmann", *OPEN])
def test_exp_can_be_differentiated_at_zero(name):
    _, _, x, u, _, _ = draw(name, 0)
    assert gap(slope(name, "exp")(x, tree.zeros_like(u), u), u) <= 1e-12


@law(LOGARITHMIC)
def test_inverses_can_be_differentiated_at_coinciding_points(name, seed):
    """All angles are equal there, so singular vectors have no derivative."""
    _, _, x, u, _, _ = draw(name, seed)
    assert gap(slope(name, "inverse_retract")(x, x, u), u) <= 1e-11
    assert gap(slope(name, "log")(x, x, u), u) <= 1e-11


@law(ROWS)
def test_riemannian_gradient_represents_the_differential(name, seed):
    """<grad f, u> is the derivative of f along u, for f with Euclidean gradient g."""
    m, row, x, u, g, _ = draw(name, seed)
    if name == "grassmann":  # the gradient of a function of the subspace, |e_1^T x|^2 / 2
        g = np.zeros_like(x)
        g[:, 0] = x[:, 0]
    gradient = transforms.riemannian_gradient(m, x, g)
    np.testing.assert_allclose(inner(gradient, row.metric(x, u)), inner(g, u), atol=1e-12)
    assert gap(m.to_tangent(x, gradient), gradient) <= 1e-12


@law(ROWS)
def test_transport_gives_tangents(name, seed):
    m, _, x, u, _, _ = draw(name, seed)
    y = m.retract(x, u)
    w = transforms.transport(m, x, y, u)
    assert gap(m.to_tangent(y, w), w) <= 1e-12
    assert gap(transforms.transport(m, x, x, u), u) <= 1e-12


@law(OPEN)
def test_transport_is_parallel(name, seed):
    """It keeps norms, it is undone on the way back, and a geodesic's velocity is parallel."""
    m, row, x, u, v, _ = draw(name, seed)
    y, v = m.exp(x, u), m.to_tangent(x, v)
    moved = transforms.transport(m, x, y, v)
    np.testing.assert_allclose(
        inner(moved, row.metric(y, moved)), inner(v, row.metric(x, v)), 1e-11
    )
    assert gap(transforms.transport(m, y, x, moved), v) <= 1e-11
    assert gap(transforms.transport(m, x, y, u), scaled(m.log(y, x), -np.ones(BATCH))) <= 1e-11
