"""What bad input gets: a sentence from the factory or, for shapes, while tracing; never a NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms

FACTORIES = {
    "a negative weight": (lambda: transforms.weighted_l1(np.array([1.0, -2.0])), "weight of -2.0"),
    "a share above 1": (lambda: transforms.elastic_net(1.5), "l1_fraction 1.5"),
    "a share that is NaN": (lambda: transforms.sparse_group(np.nan, axis=0), "l1_fraction nan"),
    "a negative share": (lambda: transforms.fused_lasso(-0.1), "l1_fraction -0.1"),
    "p of 1": (lambda: transforms.power(1), "use l1()"),
    "p below 1": (lambda: transforms.power(0.5), "above 1"),
    "a knee of 0": (lambda: transforms.huber(0.0), "knee 0.0"),
    "a reach of 0": (lambda: transforms.mcp(0.0), "reach 0.0"),
    "a reach of 2": (lambda: transforms.scad(2.0), "above 2"),
    "minus one nonzero": (lambda: transforms.l0_ball(-1), "num_nonzero -1"),
    "half a nonzero": (lambda: transforms.l0_ball(1.5), "integer"),
    "no groups": (lambda: transforms.group_l2(), "exactly one"),
    "two kinds of groups": (
        lambda: transforms.group_l2(axis=0, labels=np.zeros(2, int)),
        "exactly one",
    ),
    "a negative label": (lambda: transforms.group_l2(labels=np.array([0, -1])), "integers from 0"),
    "a fractional label": (lambda: transforms.group_l2(labels=np.array([0.5])), "integers from 0"),
    "an empty box": (lambda: transforms.box(1.0, np.array([2.0, 0.5])), "empty"),
    "boxes of two sizes": (lambda: transforms.box(np.zeros(2), np.ones(3)), "2 lower and 3 upper"),
    "a zero normal": (lambda: transforms.half_space(np.zeros(3), 1.0), "norm 0.0"),
    "a right side too short": (lambda: transforms.affine(np.ones((2, 3)), np.ones(1)), r"\(2, 3\)"),
    "equations at odds": (
        lambda: transforms.affine(np.ones((2, 3)), np.array([0.0, 1.0])),
        "contradict",
    ),
}


@pytest.mark.parametrize("case", FACTORIES)
def test_factory_refuses(case):
    factory, sentence = FACTORIES[case]
    with pytest.raises(ValueError, match=sentence):
        factory()


POINTS = {
    "weights of another shape": (transforms.weighted_l1(np.ones(3)), jnp.ones(2), "weighted_l1"),
    "labels of another shape": (
        transforms.group_l2(labels=np.zeros(3, int)),
        jnp.ones(2),
        "shapes",
    ),
    "labels of another structure": (
        transforms.group_l2(labels={"a": np.zeros(3, int)}),
        jnp.ones(3),
        "shapes",
    ),
    "groups along a missing axis": (transforms.group_l2(axis=1), jnp.ones(3), "axis 1"),
    "signals along a missing axis": (transforms.total_variation(axis=1), jnp.ones(3), "axis 1"),
    "monotone along a missing axis": (transforms.monotone(axis=-2), jnp.ones(3), "axis -2"),
    "a bound of another shape": (transforms.box(np.zeros(3), 1.0), jnp.ones(2), "lower bound"),
    "a normal of another shape": (transforms.half_space(np.ones(3), 1.0), jnp.ones(2), "normal"),
    "equations of another size": (
        transforms.affine(np.ones((1, 3)), np.ones(1)),
        jnp.ones(2),
        "3 columns",
    ),
}


@pytest.mark.parametrize("case", POINTS)
def test_prox_and_value_refuse_while_tracing(case):
    penalty, point, sentence = POINTS[case]
    with pytest.raises(ValueError, match=sentence):
        jax.eval_shape(lambda v: penalty.prox(v, 1.0, 1.0), point)
    with pytest.raises(ValueError, match=sentence):
        jax.eval_shape(lambda v: penalty.value(v, 1.0), point)


@pytest.mark.parametrize("number", [-1.0, -1, np.float32(-1.0), np.array(-1.0), float("nan")])
@pytest.mark.parametrize(
    "factory",
    [transforms.l1, transforms.l_inf, transforms.simplex, transforms.l2_ball, transforms.l1_ball],
)
def test_negative_strength_or_radius_is_refused_where_it_can_be_seen(factory, number):
    penalty, point = factory(), jnp.ones(2)
    with pytest.raises(ValueError, match="pass a non-negative number"):
        penalty.prox(point, 1.0, number)
    with pytest.raises(ValueError, match="pass a non-negative number"):
        penalty.prox(point, number, 1.0)
    with pytest.raises(ValueError, match="pass a non-negative number"):
        penalty.value(point, number)


@pytest.mark.parametrize(
    "factory",
    [
        transforms.l1,
        transforms.l2,
        transforms.l_inf,
        transforms.simplex,
        transforms.l1_ball,
        transforms.l2_ball,
        transforms.linf_ball,
        transforms.total_variation,
        lambda: transforms.power(1.2),
        lambda: transforms.mcp(2.0),
        lambda: transforms.scad(3.0),
    ],
)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30, -1.0])
def test_traced_extremes_are_answered_with_finite_numbers(factory, scale):
    prox = jax.jit(factory().prox)
    for size in (0.0, 1e-30, 1.0, 1e15):
        v = jnp.array([size, -size, 0.5 * size], jnp.float32)
        assert np.all(np.isfinite(prox(v, 1.0, scale)))
