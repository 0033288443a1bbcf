"""Arguments that would run and give a wrong result raise a ValueError: one case per rule.

Rules that are annotations are tested for all functions, in ``test_arguments.py``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms
from fcojax.transforms import l1
from fcojax.transforms.calculus.compose import translated


def wide_ball():
    """The indicator of a ball that contains small points."""
    ball = transforms.l2_ball()
    return transforms.Penalty(lambda x, scale: 0.0, lambda v, step, scale: ball.prox(v, 1.0, 99.0))


def labelled(*labels):
    return transforms.group_l2(labels=np.array(labels))


def kernel(returned):
    """Select from a pytree with a kernel, by a predicate with this result."""
    return transforms.on_subtree(l1(), lambda path, leaf: returned).prox([jnp.ones(2)], 1.0, 1.0)


REFUSED = {
    "an exponent of a norm above 2": (lambda: transforms.p_norm(2.5), "p is 2.5"),
    "a factory": (lambda: transforms.euclidean(l1), "pass a Penalty"),
    "no groups": (lambda: transforms.group_l2(), "pass exactly one"),
    "masked labels": (
        lambda: transforms.group_l2(labels=np.ma.masked_array([0, 1], [False, True])),
        "without a mask",
    ),
    "a step larger than its point": (
        lambda: l1().prox(jnp.ones(3), np.ones((2, 3)), 1.0),
        "one for each entry",
    ),
    "a step for each entry of an envelope": (
        lambda: transforms.moreau_envelope(l1())(jnp.ones(2), np.ones(2), 1.0),
        r"shape \(2,\)",
    ),
    "a negative label": (lambda: labelled(0, -1), "integers from 0"),
    "a fractional label": (lambda: labelled(0.5), "integers from 0"),
    "an empty box": (lambda: transforms.box(1.0, np.array([2.0, 0.5])), "box is empty"),
    "an empty box of a penalty": (lambda: transforms.with_box(l1(), 0.0, {"a": -1.0}), "is empty"),
    "a box of a non-convex penalty": (
        lambda: transforms.with_box(transforms.l0_ball(1), 0, 1),
        "not convex",
    ),
    "a box of a group norm": (
        lambda: transforms.with_box(transforms.l2(), 0.0, 1.0),
        "not a sum over entries",
    ),
    "a box of the nuclear norm": (
        lambda: transforms.with_box(transforms.nuclear(), 0.0, 1.0),
        r"values\(with_box",
    ),
    "coupled singular values": (
        lambda: transforms.on_singular_values(transforms.l1_ball()),
        "couples singular values",
    ),
    "singular values with weights": (
        lambda: transforms.on_singular_values(transforms.box(-np.arange(3.0), np.arange(3.0))),
        "the order",
    ),
    "singular values with signs": (
        lambda: transforms.on_singular_values(transforms.with_box(l1(), 0.0, 1.0)),
        "or the sign",
    ),
    "a short right side": (lambda: transforms.affine(np.ones((2, 3)), np.ones(1)), r"\(1,\)"),
    "contradictions": (lambda: transforms.affine(np.ones((2, 1)), np.arange(2.0)), "no solution"),
    "a bound that is a text": (lambda: transforms.box("0", 1.0), "lower is '0'"),
    "a bound of a penalty that is no number": (lambda: transforms.with_box(l1(), 0, min), "upper"),
    "a metric that is a text": (lambda: transforms.diagonal("1", l1()), "weights is '1'"),
    "a weight of 0": (lambda: transforms.diagonal(jnp.arange(2.0), l1()), "smallest weight is 0.0"),
    "weights of another shape": (
        lambda: transforms.diagonal(jnp.ones(2), l1()).to_dual(jnp.ones(3)),
        r"shape \(2,\)",
    ),
    "a metric for a simplex": (lambda: transforms.diagonal(1.0, transforms.simplex()), "couples"),
    "a metric for matrices": (lambda: transforms.diagonal(1.0, transforms.nuclear()), "couples"),
    "a metric for a wide ball": (lambda: transforms.diagonal(1.0, wide_ball()), "couples"),
    "a skew metric": (lambda: transforms.quadratic(jnp.eye(2) + jnp.eye(2, k=1)), "symmetric"),
    "a singular metric": (lambda: transforms.quadratic(jnp.ones((2, 2))), "smallest eigenvalue"),
    "a negative metric": (lambda: transforms.generalised_stiefel(-jnp.eye(3)), "definite"),
    "a name that is a number": (lambda: transforms.named("kernel", 0), "names is 0"),
    "a predicate that is true of nothing": (lambda: kernel(False), "selects none"),
    "a predicate that returns another": (lambda: kernel(transforms.named("a")), "True or False"),
    "a vector for a matrix": (lambda: transforms.nuclear().prox(jnp.ones(3), 1, 1), "select the"),
    "a wide matrix": (lambda: transforms.psd().prox(jnp.ones((1, 3)), 1.0, 1.0), "square matrix"),
    "more columns than rows": (lambda: transforms.polar(jnp.ones((2, 3))), "as many rows"),
    "a batch": (lambda: transforms.polar(jnp.ones((4, 3, 2))), "vmap"),
    "a tall orthogonal": (lambda: transforms.orthogonal().project(jnp.ones((3, 2))), "square"),
    "a gradient of another shape": (
        lambda: transforms.riemannian_gradient(transforms.sphere(), jnp.ones(3), 1.0),
        "gradient has",
    ),
    "a transport to another shape": (
        lambda: transforms.transport(transforms.sphere(), jnp.ones(3), 1.0, jnp.ones(3)),
        "y has",
    ),
    "a stack for oblique": (lambda: transforms.oblique().project(jnp.ones((1, 3, 2))), "a matrix"),
    "forty columns": (lambda: transforms.stiefel().inverse_retract(*[jnp.eye(40)] * 2), "most 32"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case):
    call, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        call()


LABELS = np.zeros(3, int)
POINTS = {
    "labels of another shape": (transforms.group_l2(labels=LABELS), jnp.ones(2)),
    "labels of another structure": (
        transforms.group_l2(labels={"a": np.zeros(3, int)}),
        np.ones(3),
    ),
    "a bound of another shape": (transforms.box(np.zeros(3), 1.0), jnp.ones(2)),
    "a shift of another shape": (translated(l1(), np.ones((2, 1))), jnp.ones(2)),
    "no bounds": (transforms.box(0.0, []), jnp.ones(2)),
}


@pytest.mark.parametrize("case", POINTS)
def test_other_shapes_are_refused_while_tracing(case):
    penalty, point = POINTS[case]
    for function in (penalty.value, lambda v, scale: penalty.prox(v, 1.0, scale)):
        with pytest.raises(ValueError, match="has shape"):
            jax.eval_shape(lambda v, function=function: function(v, 1.0), point)


@pytest.mark.parametrize("number", [-1.0, -1, np.float32(-1.0), np.array(-1.0), float("nan")])
@pytest.mark.parametrize(
    "prox",
    [
        l1().prox,
        transforms.lp_power(3).prox,
        transforms.nuclear().prox,
        transforms.entropy().to_primal,
    ],
)
def test_a_negative_number_on_the_host_is_refused(prox, number):
    for step, scale in ((1.0, number), (number, 1.0)):
        with pytest.raises(ValueError, match="pass a number of at least 0"):
            prox(jnp.ones((2, 2)), step, scale)


@pytest.mark.parametrize("scale", [None, 1j, np.ones(2), jnp.ones(2), (), abs])
@pytest.mark.parametrize("factory", [l1, transforms.l2_ball, transforms.simplex])
def test_a_scale_is_one_real_number(factory, scale):
    with pytest.raises((ValueError, TypeError)):
        factory().prox(jnp.ones(2), 1.0, scale)


@pytest.mark.parametrize("name", ["nuclear", "psd", "l1", "simplex"])
def test_steps_are_traced_at_a_point_of_numpy(name):
    prox, point = getattr(transforms, name)().prox, np.eye(3) + 0.1
    found = jax.jit(lambda step: prox(point, step, 1.0))(0.5)
    np.testing.assert_allclose(found, prox(jnp.asarray(point), 0.5, 1.0), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("step", [{"w": 1.0}, ()])
def test_steps_are_shaped_like_the_point(step):
    with pytest.raises((ValueError, TypeError)):
        l1().prox(jnp.ones(2), step, 1.0)


def test_steps_for_each_entry_need_a_separable_penalty():
    steps = np.array([0.5, 1.0])
    np.testing.assert_allclose(l1().prox(jnp.ones(2), steps, 1.0), 1 - steps)
    for penalty in (transforms.l2(), transforms.l_inf(), transforms.total_variation()):
        with pytest.raises(ValueError, match="pass a number of at least 0"):
            penalty.prox(jnp.ones(2), steps, 1.0)


@pytest.mark.parametrize("point", [np.ones(2) + 1j, np.ma.masked_array(np.ones(2), [True, False])])
@pytest.mark.parametrize("function", [transforms.sphere().project, transforms.l2().scale_max])
def test_a_point_has_real_entries_without_a_mask(function, point):
    with pytest.raises(ValueError):
        function(point)


@pytest.mark.parametrize(
    "factory",
    [
        l1,
        transforms.l2,
        transforms.l_inf,
        transforms.simplex,
        transforms.l1_ball,
        transforms.l2_ball,
        transforms.total_variation,
        lambda: transforms.grid_variation(np.ones(3, bool)),
        lambda: transforms.lp_power(1.2),
    ],
)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30, -1.0])
def test_traced_extremes_give_finite_numbers(factory, scale):
    prox = jax.jit(factory().prox)
    for size in (0.0, 1e-30, 1.0, 1e15):
        v = jnp.array([size, -size, 0.5 * size], jnp.float32)
        assert np.all(np.isfinite(prox(v, 1.0, scale)))
