"""Laws of mirror maps, on points of one small pytree.

A row has a mirror map, its domain, and its strong convexity. Laws are functions of flat float64
vectors; a row caches its compiled functions.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax import transforms, tree
from tests.laws.penalty_laws import close

TREE = {"bias": jnp.zeros(()), "empty": jnp.zeros((0,)), "kernel": jnp.zeros((2, 2))}
SIZE = 5


def to_tree(flat):
    return ravel_pytree(TREE)[1](flat)


def divergence(mirror, u, v):
    """Return Bregman's h(u) - h(v) - <grad h(v), u - v>."""
    slope = tree.vdot(mirror.to_dual(v), tree.sub(u, v))
    return mirror.potential(u) - mirror.potential(v) - slope


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A mirror map and its traits.

    Attributes:
      mirror: the map under test.
      convexity: ``(u, v) -> m/2 |u - v|^2``, for the strong convexity m that the docstring states.
      inside: ``(flat point, scale) -> flat point`` in the interior of the domain of h.
      feasible: ``(flat point, scale) -> flat point`` where psi is finite too.
      dual: ``(flat point) -> flat dual point`` where P_t is defined.
      finite_psi: whether psi is finite wherever h is, so that a step of zero has no effect.
    """

    mirror: transforms.Mirror
    convexity: Callable
    inside: Callable = lambda x, scale: x
    feasible: Callable | None = None
    dual: Callable = lambda z: z
    finite_psi: bool = True

    @functools.cached_property
    def compiled(self) -> Any:
        flat = {
            name: jax.jit(lambda x, *rest, f=f: ravel_pytree(f(to_tree(x), *rest))[0])
            for name, f in self.mirror._asdict().items()
            if name.startswith(("to", "from"))
        }
        value = jax.jit(lambda x, scale: self.mirror.penalty.value(to_tree(x), scale))
        potential = jax.jit(lambda x: self.mirror.potential(to_tree(x)))
        gap = jax.jit(lambda u, v: divergence(self.mirror, to_tree(u), to_tree(v)))

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


# Laws on random examples, functions of ``(row, u, v, w, step, scale)``.


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
    """Other points are worse by at least the divergence, as proofs of mirror descent need."""
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
    a_step_of_zero_returns_to_the_point: lambda row: row.finite_psi,
    from_dual_inverts_to_dual: lambda row: True,
    to_dual_is_the_gradient_of_the_potential: lambda row: True,
    to_primal_beats_every_other_point: lambda row: True,
    three_points_of_the_divergence: lambda row: True,
    divergence_is_as_convex_as_stated: lambda row: True,
}


# Laws on fixed examples, functions of ``(row)``.


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


def results_are_never_nan(row):
    for size in (1e30, 1e200):
        for x in (size * np.ones(SIZE), size * generic(5), size * np.eye(SIZE)[0]):
            for name in ("to_dual", "from_dual", "gradient"):
                assert not np.any(np.isnan(row(name, x)))
            assert not np.any(np.isnan(row("to_primal", x, 0.5, 0.6)))


def structure_shapes_and_dtypes_are_kept(row):
    """In float32, for any dtype of step and scale."""
    z, x = row.dual(generic(6)), row.inside(generic(6), 0.6)
    narrow_z, narrow_x = (jax.tree.map(jnp.float32, to_tree(each)) for each in (z, x))

    def points(z, x, step, scale):
        mirror = row.mirror
        return mirror.to_primal(z, step, scale), mirror.to_dual(x), mirror.from_dual(z)

    def sizes(x):
        return row.mirror.potential(x), divergence(row.mirror, x, x)

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
    results_are_never_nan,
    structure_shapes_and_dtypes_are_kept,
    vmap_equals_a_loop,
]
