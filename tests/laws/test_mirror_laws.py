"""Every mirror map against the laws of a mirror map, and the identities special to each."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hypothesis_numpy
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax.flatten_util import ravel_pytree

from fcojax import transforms
from tests.laws.penalty_laws import close, pairs

TREE = {"bias": jnp.zeros(()), "empty": jnp.zeros((0,)), "kernel": jnp.zeros((2, 2))}
SIZE = 5
WEIGHTS = np.array([2.0, 0.5, 1.0, 4.0, 1.5])
GRAM = np.cov(np.random.default_rng(0).normal(size=(SIZE, 40))) + np.diag(WEIGHTS)
BETA = 0.5


def to_tree(flat):
    return ravel_pytree(TREE)[1](flat)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A mirror map with what a law must know about it.

    Attributes:
      mirror: the map under test.
      convexity: ``(u, v) -> m/2 |u - v|^2``, for the strong convexity m that the docstring states.
      inside: ``(flat point, scale) -> flat point`` in the interior of the domain of h.
      feasible: ``(flat point, scale) -> flat point`` where psi is finite too.
      dual: ``(flat point) -> flat dual point`` where P_t is defined.
    """

    mirror: transforms.Mirror
    convexity: Callable
    inside: Callable = lambda x, scale: x
    feasible: Callable | None = None
    dual: Callable = lambda z: z
    domain_of_psi: bool = True

    @functools.cached_property
    def compiled(self) -> Any:
        flat = {
            name: jax.jit(lambda x, *rest, f=f: ravel_pytree(f(to_tree(x), *rest))[0])
            for name, f in self.mirror._asdict().items()
            if name.startswith(("to", "from"))
        }
        value = jax.jit(lambda x, scale: self.mirror.penalty.value(to_tree(x), scale))
        potential = jax.jit(lambda x: self.mirror.potential(to_tree(x)))
        gap = jax.jit(lambda u, v: transforms.divergence(self.mirror, to_tree(u), to_tree(v)))

        def read(z, step, scale, weights):
            return jnp.vdot(weights, flat["to_primal"](z, step, scale))

        more = {
            "value": value,
            "potential": potential,
            "divergence": gap,
            "gradient": jax.jit(jax.grad(lambda x: self.mirror.potential(to_tree(x)))),
            "slopes": jax.jit(jax.grad(read, argnums=(0, 1, 2))),
        }
        return flat | more

    def __call__(self, name, *arguments):
        answer = self.compiled[name](*(jnp.asarray(a, float) for a in arguments))
        return jax.tree.map(np.asarray, answer)

    def objective(self, x, z, step, scale):
        return self("potential", x) + step * self("value", x, scale) - np.vdot(z, x)

    def member(self, x, scale):
        return (self.feasible or self.inside)(x, scale)


def positive(x, scale):
    del scale
    return np.abs(x) + 0.05


def on_simplex(x, scale):
    return scale * positive(x, scale) / np.sum(positive(x, scale))


def half_square(norm, constant=1.0):
    return lambda u, v: 0.5 * constant * norm(u - v) ** 2


def l1_norm(x):
    return np.sum(np.abs(x))


def p_norm_row(p):
    return Row(transforms.p_norm(p), half_square(functools.partial(np.linalg.norm, ord=p), p - 1.0))


def diagonal_row(penalty, **traits):
    weights = to_tree(WEIGHTS)
    norm = half_square(lambda x: np.sqrt(np.sum(WEIGHTS * x**2)))
    return Row(transforms.diagonal(weights, penalty), norm, **traits)


def largest_sum(u, v):
    return max(l1_norm(u), l1_norm(v))


MIRRORS = {
    "euclidean l1": Row(transforms.euclidean(transforms.l1()), half_square(np.linalg.norm)),
    "diagonal zero": diagonal_row(transforms.zero()),
    "diagonal l1": diagonal_row(transforms.l1()),
    "diagonal l2_squared": diagonal_row(transforms.l2_squared()),
    "diagonal huber": diagonal_row(transforms.huber(0.7)),
    "diagonal box": diagonal_row(
        transforms.box(-0.5, 1.5),
        feasible=lambda x, scale: np.clip(x, -0.5, 1.5),
        domain_of_psi=False,
    ),
    "diagonal, one weight": Row(
        transforms.diagonal(3.0, transforms.l1()), half_square(np.linalg.norm, 3.0)
    ),
    "quadratic": Row(
        transforms.quadratic(jnp.asarray(GRAM)),
        lambda u, v: 0.5 * (u - v) @ GRAM @ (u - v),
    ),
    "p_norm 1.1": p_norm_row(1.1),
    "p_norm 1.5": p_norm_row(1.5),
    "p_norm 2": p_norm_row(2.0),
    "entropy": Row(
        transforms.entropy(),
        lambda u, v: 0.5 * l1_norm(u - v) ** 2 / largest_sum(u, v),
        inside=positive,
    ),
    "entropic_simplex": Row(
        transforms.entropic_simplex(),
        lambda u, v: 0.5 * l1_norm(u - v) ** 2 / largest_sum(u, v),
        inside=on_simplex,
    ),
    "hypentropy": Row(
        transforms.hypentropy(BETA),
        lambda u, v: 0.5 * l1_norm(u - v) ** 2 / (largest_sum(u, v) + SIZE * BETA),
    ),
    "burg": Row(
        transforms.burg(),
        lambda u, v: 0.5 * np.sum((u - v) ** 2) / np.max(np.maximum(u, v)) ** 2,
        inside=positive,
        dual=lambda z: -np.abs(z) - 0.05,
    ),
    "side_by_side": Row(
        transforms.side_by_side(
            transforms.named("kernel"),
            transforms.hypentropy(BETA),
            transforms.euclidean(transforms.zero()),
        ),
        lambda u, v: (
            0.5 * np.sum((u[:1] - v[:1]) ** 2)
            + 0.5 * l1_norm(u[1:] - v[1:]) ** 2 / (largest_sum(u[1:], v[1:]) + 4 * BETA)
        ),
    ),
}


# Laws over drawn examples: (row, u, v, w, step, scale).


def a_step_of_zero_returns_to_the_point(row, u, v, w, step, scale):
    del v, w, step
    x = row.inside(u, scale)
    assert close(row("to_primal", row("to_dual", x), 0.0, scale), x, 1e-9, x)


def from_dual_inverts_to_dual(row, u, v, w, step, scale):
    del v, w, step, scale
    x = row.inside(u, 1.0)
    assert close(row("from_dual", row("to_dual", x)), x, 1e-9, x)


def to_dual_is_the_gradient_of_the_potential(row, u, v, w, step, scale):
    del v, w, step
    x = row.inside(u, scale)
    slope = row("to_dual", x)
    assert close(row("gradient", x), slope, 1e-10, slope)


def to_primal_beats_every_other_point(row, u, v, w, step, scale):
    """By at least the divergence from it, which is what mirror descent is proved with."""
    z = row.dual(u)
    best = row("to_primal", z, step, scale)
    least = row.objective(best, z, step, scale)
    assert np.isfinite(least)
    room = 1e-9 * (1.0 + abs(least) + np.vdot(z, z) + np.vdot(best, best))
    for other in (row.member(v, scale), row.member(w, scale), row.member(best + 1e-2 * v, scale)):
        rival = row.objective(other, z, step, scale)
        assert least + row("divergence", other, best) <= rival + room + 1e-9 * abs(rival)


def three_points_of_the_divergence(row, u, v, w, step, scale):
    del step
    u, v, w = (row.inside(x, scale) for x in (u, v, w))
    left = row("divergence", u, v) + row("divergence", v, w) - row("divergence", u, w)
    right = np.vdot(row("to_dual", w) - row("to_dual", v), u - v)
    assert close(left, right, 1e-10, left, right, row("potential", u), 100.0)


def divergence_is_as_convex_as_stated(row, u, v, w, step, scale):
    del w, step
    u, v = row.inside(u, scale), row.inside(v, scale)
    room = 1e-10 * (1.0 + abs(row("potential", u)) + abs(row("potential", v)))
    assert row("divergence", u, v) >= row.convexity(u, v) - room
    assert abs(row("divergence", u, u)) <= room


LAWS = {
    a_step_of_zero_returns_to_the_point: lambda row: row.domain_of_psi,
    from_dual_inverts_to_dual: lambda row: True,
    to_dual_is_the_gradient_of_the_potential: lambda row: True,
    to_primal_beats_every_other_point: lambda row: True,
    three_points_of_the_divergence: lambda row: True,
    divergence_is_as_convex_as_stated: lambda row: True,
}
points = hypothesis_numpy.arrays(
    np.float64, SIZE, elements=st.floats(-4.0, 4.0, width=16, allow_subnormal=False)
)
numbers = st.floats(0.0625, 4.0, width=16)
many = settings(max_examples=25, deadline=None, derandomize=True)


@pytest.mark.parametrize("law, name", pairs(LAWS, MIRRORS))
@many
@given(points, points, points, numbers, numbers)
def test_law(law, name, u, v, w, step, scale):
    law(MIRRORS[name], u, v, w, step, scale)


# Laws on fixed examples: (row).


def generic(seed):
    return 2.0 * np.random.default_rng(seed).normal(size=SIZE)


def slopes_match_finite_differences(row):
    width = 1e-6
    z, weights, direction = row.dual(generic(0)), generic(1), generic(2)

    def read(z, step, scale):
        return np.vdot(weights, row("to_primal", z, step, scale))

    by_z, by_step, by_scale = row("slopes", z, 0.7, 0.6, weights)
    rises = (
        read(z + width * direction, 0.7, 0.6) - read(z - width * direction, 0.7, 0.6),
        read(z, 0.7 + width, 0.6) - read(z, 0.7 - width, 0.6),
        read(z, 0.7, 0.6 + width) - read(z, 0.7, 0.6 - width),
    )
    for slope, rise in zip((np.vdot(by_z, direction), by_step, by_scale), rises, strict=True):
        rise = rise / (2 * width)
        assert abs(slope - rise) <= 1e-6 * (1 + abs(rise))


def degenerate_inputs_are_finite(row):
    for x in (np.zeros(SIZE), np.ones(SIZE), np.eye(SIZE)[0], 1e-300 * generic(3)):
        assert np.all(np.isfinite(row("to_dual", x)))
        assert np.all(np.isfinite(row("gradient", x)))
        for step in (0.0, 0.5):
            for scale in (0.0, 0.6):
                z = row.dual(x)
                assert np.all(np.isfinite(row("to_primal", z, step, scale)))
                for slope in row("slopes", z, step, scale, generic(4)):
                    assert np.all(np.isfinite(slope))


def nothing_is_ever_nan(row):
    for size in (1e30, 1e200):
        for x in (size * np.ones(SIZE), size * generic(5), size * np.eye(SIZE)[0]):
            for name in ("to_dual", "from_dual", "gradient"):
                assert not np.any(np.isnan(row(name, x)))
            assert not np.any(np.isnan(row("to_primal", x, 0.5, 0.6)))


def structure_shapes_and_dtypes_are_kept(row):
    """In float32, whatever the dtype of step and scale."""
    z, x = row.dual(generic(6)), row.inside(generic(6), 0.6)
    narrow_z, narrow_x = (jax.tree.map(jnp.float32, to_tree(each)) for each in (z, x))

    def points(z, x, step, scale):
        mirror = row.mirror
        return mirror.to_primal(z, step, scale), mirror.to_dual(x), mirror.from_dual(z)

    def sizes(x):
        return row.mirror.potential(x), transforms.divergence(row.mirror, x, x)

    for number in (float, np.float64, jnp.float32, jnp.float64):
        for answer in jax.eval_shape(points, narrow_z, narrow_x, number(0.7), number(0.6)):
            assert jax.tree.structure(answer) == jax.tree.structure(TREE)
            for before, after in zip(*map(jax.tree.leaves, (TREE, answer)), strict=True):
                assert (after.shape, after.dtype) == (before.shape, jnp.float32)
    assert all(size.dtype == jnp.float32 for size in jax.eval_shape(sizes, narrow_x))
    found = ravel_pytree(jax.jit(row.mirror.to_primal)(narrow_z, 0.7, 0.6))[0]
    exact = row("to_primal", z, 0.7, 0.6)
    assert close(found.astype(float), exact, 1e-4, exact)


def vmap_equals_a_loop(row):
    """Over dual points, steps and scales at once."""
    batch = np.stack([row.dual(generic(seed)) for seed in (7, 8)])
    steps, scales = np.array([0.2, 1.5]), np.array([0.3, 0.9])

    def one(z, step, scale):
        return ravel_pytree(row.mirror.to_primal(to_tree(z), step, scale))[0]

    found = jax.jit(jax.vmap(one))(batch, steps, scales)
    looped = [row("to_primal", *each) for each in zip(batch, steps, scales, strict=True)]
    assert close(found, np.stack(looped), 1e-12, looped)


FIXED_LAWS = [
    slopes_match_finite_differences,
    degenerate_inputs_are_finite,
    nothing_is_ever_nan,
    structure_shapes_and_dtypes_are_kept,
    vmap_equals_a_loop,
]


@pytest.mark.parametrize("name", MIRRORS)
@pytest.mark.parametrize("law", FIXED_LAWS)
def test_fixed_law(law, name):
    law(MIRRORS[name])


# What is special to one of them.


@pytest.mark.parametrize("name", ["diagonal l1", "p_norm 1.1", "p_norm 1.5", "hypentropy"])
@many
@given(points, numbers, numbers)
def test_l1_is_a_soft_threshold_in_the_dual(name, z, step, scale):
    row = MIRRORS[name]
    soft = np.sign(z) * np.maximum(np.abs(z) - step * scale, 0.0)
    found = row("to_primal", z, step, scale)
    assert close(found, row("from_dual", soft), 1e-12, found)
    assert np.array_equal(found == 0.0, soft == 0.0)


@many
@given(points)
def test_p_norm_maps_preserve_the_norm(x):
    """``<grad h(x), x> = |x|_p^2 = |grad h(x)|_q^2``."""
    z = MIRRORS["p_norm 1.5"]("to_dual", x)
    square = np.linalg.norm(x, 1.5) ** 2
    assert close(np.vdot(z, x), square, 1e-12, square)
    assert close(np.linalg.norm(z, 3.0) ** 2, square, 1e-12, square)


@many
@given(points, numbers, numbers)
def test_a_diagonal_metric_is_a_change_of_variables(z, step, scale):
    """``u = q^(1/2) x``, ``y = q^(-1/2) z``: Euclidean, with weight ``q^(-1/2)`` on ``|u_i|``."""
    y, level = z / np.sqrt(WEIGHTS), step * scale / np.sqrt(WEIGHTS)
    u = np.sign(y) * np.maximum(np.abs(y) - level, 0.0)
    found = MIRRORS["diagonal l1"]("to_primal", z, step, scale)
    assert close(found, u / np.sqrt(WEIGHTS), 1e-12, u)


@many
@given(points, numbers, numbers)
def test_a_full_metric_is_a_change_of_variables(z, step, scale):
    """With ``Q = L L^T``, ``u = L^T x``: ``u + 2 t lambda L^-1 L^-T u = L^-1 z``."""
    lower = np.linalg.cholesky(GRAM)
    inverse = np.linalg.inv(lower)
    u = np.linalg.solve(np.eye(SIZE) + 2 * step * scale * inverse @ inverse.T, inverse @ z)
    found = MIRRORS["quadratic"]("to_primal", z, step, scale)
    assert close(found, np.linalg.solve(lower.T, u), 1e-12, u)


@many
@given(points, st.floats(-100.0, 100.0), numbers)
def test_the_simplex_does_not_see_a_shift(z, shift, scale):
    row = MIRRORS["entropic_simplex"]
    found = row("to_primal", z, 1.0, scale)
    assert close(row("to_primal", z + shift, 3.0, scale), found, 1e-12)
    assert close(np.sum(found), scale, 1e-13)


@many
@given(points, points, numbers, numbers)
def test_a_step_on_the_simplex_is_an_exponentiated_gradient(x, gradient, step, scale):
    row = MIRRORS["entropic_simplex"]
    x = on_simplex(x, scale)
    moved = x * np.exp(-step * gradient)
    found = row("to_primal", row("to_dual", x) - step * gradient, step, scale)
    assert close(found, scale * moved / np.sum(moved), 1e-12)


def test_the_divergence_of_the_simplex_is_that_of_kullback_and_leibler():
    u, v = on_simplex(generic(0), 1.0), on_simplex(generic(1), 1.0)
    found = MIRRORS["entropic_simplex"]("divergence", u, v)
    assert close(found, np.sum(u * np.log(u / v)), 1e-14)


def test_the_simplex_survives_any_finite_dual_point():
    z = np.array([1e300, 1e300, -1e300, 0.0, 5.0])
    found = MIRRORS["entropic_simplex"]("to_primal", z, 1.0, 2.0)
    assert found.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_hypentropy_is_linear_for_a_large_beta():
    z = generic(0)
    mirror = transforms.hypentropy(1e6)
    assert close(
        mirror.to_primal(1e-6 * z, 1.0, 1e-6), np.sign(z) * np.maximum(np.abs(z) - 1, 0), 1e-6
    )


def test_burg_without_a_minimiser_answers_infinity():
    found = transforms.burg().to_primal(jnp.array([-1.0, 2.0]), 1.0, 1.0)
    assert found.tolist() == [0.5, np.inf]


def test_a_diagonal_metric_may_be_built_under_jit():
    @jax.jit
    def step(weights, z):
        return transforms.diagonal(weights, transforms.l1()).to_primal(z, 1.0, 1.0)

    found = step(jnp.array([1.0, 4.0]), jnp.array([3.0, 3.0]))
    assert found.tolist() == [2.0, 0.5]


@pytest.mark.parametrize(
    "build, sentence",
    [
        (lambda: transforms.p_norm(1.0), "p = 1.0"),
        (lambda: transforms.p_norm(2.5), "p = 2.5"),
        (lambda: transforms.hypentropy(0.0), "positive"),
        (lambda: transforms.diagonal(jnp.array([1.0, 0.0]), transforms.l1()), "least weight"),
        (lambda: transforms.quadratic(jnp.ones((2, 3))), "square"),
        (lambda: transforms.quadratic(jnp.array([[1.0, 1.0], [0.0, 1.0]])), "not symmetric"),
        (lambda: transforms.quadratic(jnp.ones((2, 2))), "least eigenvalue"),
        (lambda: transforms.quadratic(jnp.eye(2)).to_dual(jnp.ones(3)), "2 rows"),
        (
            lambda: transforms.diagonal(jnp.ones(2), transforms.l1()).to_dual(jnp.ones(3)),
            r"shape \(2,\)",
        ),
        (
            lambda: transforms.diagonal([1.0], transforms.l1()).to_dual(jnp.ones(3)),
            "pass one number or a pytree",
        ),
        (lambda: transforms.diagonal(1.0, transforms.nuclear()), "not a matrix"),
        (lambda: transforms.diagonal(1.0, transforms.simplex()), "couples entries"),
        (lambda: transforms.diagonal(1.0, transforms.l2()), "couples entries"),
        (lambda: transforms.entropy().to_primal(jnp.ones(2), 1.0, -1.0), "scale -1.0"),
    ],
)
def test_what_cannot_be_built_is_refused(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()
