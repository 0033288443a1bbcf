"""Every transform computes in floats: integers give the same results as equal floats."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms
from fcojax.transforms import Manifold, Mirror, Penalty
from fcojax.transforms.calculus.compose import translated
from fcojax.transforms.calculus.per_entry import per_entry

VECTOR, POSITIVE = np.array([3, -1, 2, 7]), np.array([3, 1, 2, 7])
TALL = np.array([[3, 1], [-1, 2], [4, 0]])
SQUARE = np.array([[3, 1], [-1, 2]])
L1 = transforms.l1()
WHOLE = np.ones((2, 2), bool)
TRANSFORMS = {
    "affine": (transforms.affine(np.ones((1, 4)), np.ones(1)), VECTOR),
    "box": (transforms.box(-0.5, 1.5), VECTOR),
    "diagonal": (transforms.diagonal(jnp.array([0.5, 1.0, 2.0, 3.0]), L1), VECTOR),
    "elastic_net": (transforms.elastic_net(0.5), VECTOR),
    "entropic_simplex": (transforms.entropic_simplex(), POSITIVE),
    "entropy": (transforms.entropy(), POSITIVE),
    "euclidean": (transforms.euclidean(L1), VECTOR),
    "flat": (transforms.flat(), VECTOR),
    "fused_lasso": (transforms.fused_lasso(0.5), VECTOR),
    "generalised_stiefel": (transforms.generalised_stiefel(2 * np.eye(3)), TALL),
    "grassmann": (transforms.grassmann(), TALL),
    "grid_variation": (transforms.grid_variation(WHOLE), VECTOR),
    "group_l2": (transforms.group_l2(axis=1), TALL),
    "l0_ball": (transforms.l0_ball(2), VECTOR),
    "l1": (L1, VECTOR),
    "l1_ball": (transforms.l1_ball(), VECTOR),
    "l2": (transforms.l2(), VECTOR),
    "l2_ball": (transforms.l2_ball(), VECTOR),
    "l2_squared": (transforms.l2_squared(), VECTOR),
    "l_inf": (transforms.l_inf(), VECTOR),
    "monotone": (transforms.monotone(), VECTOR),
    "nuclear": (transforms.nuclear(), TALL),
    "nuclear_ball": (transforms.nuclear_ball(), TALL),
    "oblique": (transforms.oblique(), TALL),
    "on_subtree": (transforms.on_subtree(L1, transforms.named("a")), {"a": VECTOR, "b": TALL}),
    "orthogonal": (transforms.orthogonal(), SQUARE),
    "p_norm": (transforms.p_norm(1.5), VECTOR),
    "per_entry": (per_entry(transforms.l2()), VECTOR),
    "per_leaf": (transforms.per_leaf(L1), {"a": VECTOR, "b": TALL}),
    "lp_power": (transforms.lp_power(1.5), VECTOR),
    "precomposed": (transforms.precomposed(L1, jnp.flip, jnp.flip), VECTOR),
    "product_manifold": (
        transforms.product_manifold({"a": transforms.sphere(), "b": transforms.stiefel()}),
        {"a": VECTOR, "b": TALL},
    ),
    "on_singular_values": (transforms.on_singular_values(L1), TALL),
    "psd": (transforms.psd(), SQUARE),
    "quadratic": (transforms.quadratic(2 * np.eye(4)), VECTOR),
    "rotation": (transforms.rotation(), SQUARE),
    "scaled": (transforms.scaled(L1, 0.5), VECTOR),
    "simplex": (transforms.simplex(), VECTOR),
    "sparse_group": (transforms.sparse_group(0.5, axis=1), TALL),
    "sphere": (transforms.sphere(), VECTOR),
    "stiefel": (transforms.stiefel(), TALL),
    "spd": (transforms.spd(), np.array([[3, 1], [1, 2]])),
    "total_variation": (transforms.total_variation(), VECTOR),
    "translated": (translated(L1, jnp.full(4, 0.25)), VECTOR),
    "with_box": (transforms.with_box(L1, -0.5, 1.5), VECTOR),
    "zero": (transforms.zero(), VECTOR),
}
# The number of points of each function, and its further arguments.
FIELDS = {
    Penalty: {
        "value": (1, (0.6,)),
        "prox": (1, (0.7, 0.6)),
        "scale_max": (1, ()),
        "subdiff_distance": (2, (0.6,)),
    },
    Mirror: {
        "potential": (1, ()),
        "to_dual": (1, ()),
        "from_dual": (1, ()),
        "to_primal": (1, (0.7, 0.6)),
    },
    Manifold: {
        "project": (1, ()),
        "to_tangent": (2, ()),
        "retract": (2, ()),
        "inverse_retract": (2, ()),
        "exp": (2, ()),
        "log": (2, ()),
        "riesz": (2, ()),
        "metric": (2, ()),
        "transport": (3, ()),
    },
}
FUNCTIONS = {
    "distance": (lambda x: transforms.distance(transforms.sphere(), x), VECTOR),
    "moreau_envelope": (lambda x: transforms.moreau_envelope(L1)(x, 0.7, 0.6), VECTOR),
    "polar": (transforms.polar, SQUARE),
    "riemannian_gradient": (
        lambda x, y: transforms.riemannian_gradient(transforms.sphere(), x, y),
        VECTOR,
        VECTOR,
    ),
    "soft_threshold": (lambda x: transforms.soft_threshold(x, 0.6), VECTOR),
    "transport": (
        lambda x, v: transforms.transport(transforms.sphere(), x, x, v),
        VECTOR,
        VECTOR + 1,
    ),
}
NO_ARRAYS = {"Manifold", "Mirror", "Penalty", "named"}


def test_the_tables_are_complete():
    inner = {"per_entry", "translated"}
    assert {*TRANSFORMS, *FUNCTIONS, *NO_ARRAYS} - inner == set(transforms.__all__)


def require_same(*functions):
    """Require of (function, points) that integers give the result of the same floats, or an error.

    All functions of a transform are one program: one by one, operation by operation, the transforms
    compile a thousand.
    """
    accepted = []
    for function, points in functions:
        try:
            jax.eval_shape(function, *jax.tree.map(jnp.asarray, points))
        except (TypeError, ValueError) as error:  # such as that integers have no epsilon
            assert not isinstance(error, jax.errors.JAXTypeError)  # of the trace, not of integers
            continue
        accepted.append((function, points))
    points = jax.tree.map(jnp.asarray, [points for _, points in accepted])

    @jax.jit
    def results(points):
        """Where the integers become floats first, the compiler keeps one of both computations."""
        floats = jax.tree.map(lambda leaf: leaf.astype(float), points)
        return [
            [function(*own) for (function, _), own in zip(accepted, given, strict=True)]
            for given in (points, floats)
        ]

    found, expected = map(jax.tree.leaves, results(points))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_integers_are_computed_in_floats_or_refused(name):
    made, point = TRANSFORMS[name]
    functions = []
    for field, (count, rest) in FIELDS[type(made)].items():
        if (function := getattr(made, field)) is not None:
            given = functools.partial(
                lambda function, rest, *at: function(*at, *rest), function, rest
            )
            functions.append((given, [point] * count))
    require_same(*functions)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_integers_compute_in_floats_or_refuse(name):
    function, *points = FUNCTIONS[name]
    require_same((function, points))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (made, _) in TRANSFORMS.items()
        if isinstance(made, Penalty | Mirror) and name not in ("zero", "on_subtree")  # identities
    ],
)
def test_no_prox_refuses_integers(name):
    made, point = TRANSFORMS[name]
    prox = made.prox if isinstance(made, Penalty) else made.to_primal
    found = jax.eval_shape(prox, jax.tree.map(jnp.asarray, point), 0.7, 0.6)
    assert all(leaf.dtype == float for leaf in jax.tree.leaves(found))


def test_booleans_are_points():
    point = {"a": np.array(3.0), "b": np.array([True, False])}
    assert L1.prox(point, 0.5, 1.0)["b"].tolist() == [0.5, 0.0]
    assert L1.prox(v=np.array([3, -1]), step=np.array(1), scale=0.5).tolist() == [2.5, -0.5]
