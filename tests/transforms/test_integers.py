"""Every transform computes in floats: integers give the same results as equal floats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms
from fcojax.transforms import Manifold, Mirror, Penalty
from tests.laws.test_manifold_laws import ROWS
from tests.laws.test_mirror_laws import MIRRORS, to_tree
from tests.laws.test_penalty_laws import ALL

L1, VECTOR, SQUARE = transforms.l1(), np.array([3, -1, 2, 7]), np.array([[3, 1], [1, 2]])


def whole(like):
    """Return small integers above 0 in the shapes of a point."""
    return jax.tree.map(lambda leaf: np.arange(1, leaf.size + 1).reshape(leaf.shape) % 7, like)


# The rows of the tables of laws, with points of integers.
TRANSFORMS = {name: (row.penalty, whole(row.point)) for name, row in ALL.items()}
TRANSFORMS |= {name: (row.mirror, whole(to_tree(np.zeros(5)))) for name, row in MIRRORS.items()}
TRANSFORMS |= {name: (row.manifold, whole(row.like)) for name, row in ROWS.items()}
TRANSFORMS["spd"] = transforms.spd(), SQUARE
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


def traced(function, points):
    """Return the shapes and dtypes of results for integers, or None if they are refused."""
    try:
        return jax.eval_shape(function, *jax.tree.map(jnp.asarray, points))
    except (TypeError, ValueError) as error:  # such as that integers have no epsilon
        assert not isinstance(error, jax.errors.JAXTypeError)  # of the trace, not of integers
        return None


def require_same(*functions):
    """Require of (function, points) that integers give the result of the same floats, or an error.

    All functions of a transform are one program: one by one, operation by operation, the transforms
    compile a thousand.
    """
    functions = [given for given in functions if traced(*given) is not None]
    points = jax.tree.map(jnp.asarray, [points for _, points in functions])

    @jax.jit
    def results(points):
        """Where the integers become floats first, the compiler keeps one of both computations."""
        floats = jax.tree.map(lambda leaf: leaf.astype(float), points)
        return [
            [function(*own) for (function, _), own in zip(functions, given, strict=True)]
            for given in (points, floats)
        ]

    found, expected = map(jax.tree.leaves, results(points))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


# One of each type; the programs of the others are slow to compile.
QUICK = ("fused_lasso", "entropy", "sphere")


def functions_of(name):
    """Yield the fields of a transform, as functions of points, and their points."""
    made, point = TRANSFORMS[name]
    for field, (count, rest) in FIELDS[type(made)].items():
        if (function := getattr(made, field)) is not None:
            yield field, (lambda *at, f=function, rest=rest: f(*at, *rest)), [point] * count


@pytest.mark.parametrize("name", TRANSFORMS)
def test_no_function_fails_in_the_trace_and_no_prox_refuses_integers(name):
    found = {field: traced(*given) for field, *given in functions_of(name)}
    moved = [found[field] for field in ("prox", "to_primal") if field in found]
    assert None not in moved
    leaves = [leaf for leaf in jax.tree.leaves(moved) if leaf.size]
    identity = name in ("zero", "on_subtree", "l0_ball")  # some leaves are returned as they are
    assert identity or all(leaf.dtype == float for leaf in leaves)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in TRANSFORMS]
)
def test_integers_are_computed_in_floats_or_refused(name):
    require_same(*(given for _, *given in functions_of(name)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_integers_compute_in_floats_or_refuse(name):
    function, *points = FUNCTIONS[name]
    require_same((function, points))


def test_booleans_are_points():
    point = {"a": np.array(3.0), "b": np.array([True, False])}
    assert L1.prox(point, 0.5, 1.0)["b"].tolist() == [0.5, 0.0]
    assert L1.prox(v=np.array([3, -1]), step=np.array(1), scale=0.5).tolist() == [2.5, -0.5]
