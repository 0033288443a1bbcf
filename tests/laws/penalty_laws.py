"""Laws of penalties, and the rows on which they are tested.

A row has a penalty, a point that fixes the shapes, and traits that decide which laws apply. Laws
are functions of flat float64 vectors; a row caches its compiled functions, so that a law runs on
many examples with one compilation. ``test_penalty_laws`` runs every law on every row.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from hypothesis.extra import numpy as hypothesis_numpy

from fcojax.transforms.penalty import Penalty


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A penalty and its traits.

    Attributes:
      penalty: the penalty under test.
      point: a float64 point of the space; only its structure and shapes matter.
      indicator: whether psi is 0 on a set and infinite outside, so that the prox is a projection.
      member: ``(flat point, scale) -> flat point of the domain``, any map into the domain that does
      not use the prox. ``None``: psi is finite everywhere.
      ball: whether the set is a ball with the scale as its radius.
      free: whether step 0 and scale 0 both mean no penalty.
      nested: whether the prox composes two maps with kinks, where the chain rule may fail.
      cancels: whether rounding errors are relative to the point and not to the result.
      offset: the size of other terms that cancel.
      slack: the condition number of the prox.
      smooth_prox: whether the prox is differentiable almost everywhere, for finite differences.
      seminorm: whether psi is 0 at other points than zero.
      scale: the scale of the examples that are not drawn by hypothesis.
      tolerance: the tolerance of identities, relative to the size of their terms.
    """

    penalty: Penalty
    point: Any
    indicator: bool = False
    member: Callable | None = None
    ball: bool = False
    free: bool = True
    nested: bool = False
    cancels: bool = False
    offset: float = 0.0
    slack: float = 1.0
    smooth_prox: bool = True
    seminorm: bool = False
    scale: float = 0.6
    tolerance: float = 1e-9

    @functools.cached_property
    def size(self):
        return jax.flatten_util.ravel_pytree(self.point)[0].size

    def to_tree(self, flat):
        return jax.flatten_util.ravel_pytree(self.point)[1](flat)

    def flat_prox(self, v, step, scale):
        moved = self.penalty.prox(self.to_tree(v), step, scale)
        return jax.flatten_util.ravel_pytree(moved)[0]

    @functools.cached_property
    def compiled_prox(self):
        return jax.jit(self.flat_prox)

    @functools.cached_property
    def compiled_prox_in_metric(self):
        return jax.jit(lambda v, steps, scale: self.flat_prox(v, self.to_tree(steps), scale))

    @functools.cached_property
    def compiled_value(self):
        return jax.jit(lambda x, scale: self.penalty.value(self.to_tree(x), scale))

    @functools.cached_property
    def compiled_scale_max(self):
        return jax.jit(lambda gradient: self.penalty.scale_max(self.to_tree(gradient)))

    @functools.cached_property
    def compiled_gradient(self):
        def read(v, step, scale, weights):
            return jnp.vdot(weights, self.flat_prox(v, step, scale))

        return jax.jit(jax.grad(read, argnums=(0, 1, 2)))

    def prox(self, v, step, scale):
        return np.asarray(self.compiled_prox(v, float(step), float(scale)))

    def value(self, x, scale):
        return float(self.compiled_value(x, float(scale)))

    def in_domain(self, x, scale):
        return x if self.member is None else np.asarray(self.member(x, scale))

    def objective(self, x, v, step, scale):
        return step * self.value(x, scale) + 0.5 * np.sum((x - v) ** 2)

    def normal(self, seed, *shape):
        """Generic points, almost surely without ties, zeros or kinks."""
        return 2.0 * np.random.default_rng(seed).normal(size=(*shape, self.size))


def examples(row: Row):
    """Two flat points, a step and a scale; ties and zeros are common in the points."""
    entries = st.floats(-4.0, 4.0, width=16, allow_subnormal=False)
    points = hypothesis_numpy.arrays(np.float64, row.size, elements=entries)
    positive = st.floats(0.0625, 4.0, width=16)
    return st.tuples(points, points, positive, positive)


def pairs(laws: dict, rows: dict) -> list:
    """Return all laws with all rows to which they apply, for ``pytest.mark.parametrize``."""
    return [
        (law, name) for law, applies in laws.items() for name, row in rows.items() if applies(row)
    ]


def close(x, y, tolerance, *sizes):
    """Return whether ``x`` and ``y`` agree up to rounding errors of terms of size ``sizes``."""
    allowed = tolerance * (1.0 + max((np.max(np.abs(s), initial=0.0) for s in sizes), default=0.0))
    return np.max(np.abs(np.asarray(x) - np.asarray(y)), initial=0.0) <= allowed


# Laws on random examples, functions of ``(row, v, w, step, scale)``.


def prox_beats_every_other_point(row, v, w, step, scale):
    best = row.prox(v, step, scale)
    least = row.objective(best, v, step, scale)
    assert np.isfinite(least)
    room = row.tolerance * (1.0 + abs(least) + np.vdot(v, v))
    other = row.in_domain(w, scale)
    rivals = [other, row.in_domain(v, scale), row.in_domain(0.0 * v, scale)]
    if row.penalty.convex:
        rivals += [best + t * (other - best) for t in (1e-1, 1e-3)]
    rivals += [row.in_domain(best + 1e-2 * w, scale)]
    for rival in rivals:
        assert least <= row.objective(rival, v, step, scale) + room


def prox_residual_is_a_subgradient(row, v, w, step, scale):
    """``(v - p) / step`` is a subgradient of psi at the prox p, tested without the conjugate."""
    best = row.prox(v, step, scale)
    slope = (v - best) / step
    other = row.in_domain(w, scale)
    gap = row.value(other, scale) - row.value(best, scale) - np.vdot(slope, other - best)
    assert gap >= -row.tolerance * (1.0 + np.vdot(v, v) + np.vdot(other, other)) / step


def moreau_decomposition(row, v, w, step, scale):
    """The prox of the biconjugate, computed twice from the prox, equals the prox."""
    del w

    def conjugate_prox(z, s):
        return z - s * row.prox(z / s, 1.0 / s, scale)

    best = row.prox(v, step, scale)
    again = v - step * conjugate_prox(v / step, 1.0 / step)
    assert close(best, again, row.tolerance, v, v / step)


def envelope_has_the_residual_as_gradient(row, v, w, step, scale):
    def envelope(u):
        return row.objective(row.prox(u, step, scale), u, step, scale) / step

    width = 1e-5
    direction = w / max(1.0, np.linalg.norm(w))
    rise = (envelope(v + width * direction) - envelope(v - width * direction)) / (2 * width)
    slope = np.vdot(v - row.prox(v, step, scale), direction) / step
    assert abs(rise - slope) <= (2 * width + 1e-3 * width * (1.0 + np.vdot(v, v))) / step


def prox_is_firmly_nonexpansive(row, v, w, step, scale):
    difference = row.prox(v, step, scale) - row.prox(w, step, scale)
    room = row.tolerance * (1.0 + np.vdot(v, v) + np.vdot(w, w))
    assert np.vdot(difference, difference) <= np.vdot(difference, v - w) + room


def projection_is_feasible(row, v, w, step, scale):
    assert row.value(row.prox(v, step, scale), scale) == 0.0
    assert row.value(row.in_domain(w, scale), scale) == 0.0


def projection_is_idempotent(row, v, w, step, scale):
    del w
    once = row.prox(v, step, scale)
    assert close(row.prox(once, step, scale), once, row.tolerance, v)


def projection_ignores_the_step(row, v, w, step, scale):
    del w
    once = row.prox(v, step, scale)
    assert np.array_equal(row.prox(v, 0.0, scale), once)
    assert np.array_equal(row.prox(v, 7.0 * step, scale), once)


def zero_step_is_the_identity(row, v, w, step, scale):
    """The law holds on the domain."""
    del w, step
    inside = row.in_domain(v, scale)
    assert close(row.prox(inside, 0.0, scale), inside, row.tolerance, v)


def zero_is_optimal_if_and_only_if_above_scale_max(row, v, w, step, scale):
    """One proximal gradient step from zero; the step is small enough for MCP to be convex."""
    del w, scale
    least = float(row.compiled_scale_max(v))
    step = min(step, 0.25)
    assert np.isfinite(least) and least >= 0.0
    above = row.prox(-step * v, step, least * (1.0 + 1e-9) + 1e-12)
    below = row.prox(-step * v, step, 0.999 * least)
    if row.seminorm:
        assert row.value(above, 1.0) <= 1e-12 * (1.0 + np.abs(v).max())
        assert least <= 1e-3 or row.value(below, 1.0) > 1e-12
    else:
        assert close(above, 0.0 * v, 1e-12)
        assert least <= 1e-3 or np.any(below != 0.0)


def steps_for_each_entry_are_a_metric(row, v, w, step, scale):
    """It minimises psi + sum (x_i - v_i)^2 / 2 t_i; equal steps give the ordinary prox."""
    steps = step * np.array([0.5, 1.0, 3.0, 0.25])[np.arange(row.size) % 4]
    best = np.asarray(row.compiled_prox_in_metric(v, steps, float(scale)))
    other = row.in_domain(w, scale)

    def objective(x):
        return row.value(x, scale) + np.sum((x - v) ** 2 / (2 * steps))

    room = row.tolerance * (1.0 + np.vdot(v, v) + np.vdot(w, w)) / min(step, 1.0)
    rivals = [other, row.in_domain(v, scale), row.in_domain(best + 1e-2 * w, scale)]
    if row.penalty.convex:
        rivals += [best + t * (other - best) for t in (1e-1, 1e-3)]
        slope = np.vdot((v - best) / steps, other - best)
        assert row.value(other, scale) - row.value(best, scale) - slope >= -room
    for rival in rivals:
        assert objective(best) <= objective(rival) + room
    same = row.compiled_prox_in_metric(v, np.full(row.size, float(step)), float(scale))
    assert close(same, row.prox(v, step, scale), 1e-13, v)


def _convex(row):
    return row.penalty.convex


def _indicator(row):
    return row.indicator


LAWS = {
    prox_beats_every_other_point: lambda row: True,
    prox_residual_is_a_subgradient: _convex,
    moreau_decomposition: _convex,
    envelope_has_the_residual_as_gradient: _convex,
    prox_is_firmly_nonexpansive: _convex,
    projection_is_feasible: _indicator,
    projection_is_idempotent: _indicator,
    projection_ignores_the_step: _indicator,
    zero_step_is_the_identity: lambda row: not row.indicator,
    zero_is_optimal_if_and_only_if_above_scale_max: lambda row: row.penalty.scale_max is not None,
    steps_for_each_entry_are_a_metric: lambda row: row.penalty.separable,
}


# Laws on fixed examples, functions of ``(row)``.


def degenerate_inputs_are_finite(row):
    """Zero point, zero step, zero scale, equal entries: results and gradients are finite."""
    weights = row.normal(0)
    for v in (np.zeros(row.size), np.ones(row.size), row.normal(1)):
        for step in (0.0, 0.5):
            for scale in (0.0, row.scale):
                best = row.prox(v, step, scale)
                assert np.all(np.isfinite(best)), (v, step, scale)
                assert np.isfinite(row.value(best, scale)), (v, step, scale)
                for slope in row.compiled_gradient(v, step, scale, weights):
                    assert np.all(np.isfinite(slope)), (v, step, scale)


def jitted_equals_eager(row):
    v = jnp.asarray(row.normal(2))
    assert close(row.flat_prox(v, 0.7, row.scale), row.prox(v, 0.7, row.scale), 1e-12, v)
    best = row.prox(v, 0.7, row.scale)
    eager = row.penalty.value(row.to_tree(jnp.asarray(best)), row.scale)
    assert close(eager, row.value(best, row.scale), 1e-12, v)


def structure_shapes_and_dtypes_are_kept(row):
    """In float32 and float64, for any dtype of step and scale."""
    exact = row.prox(row.normal(3), 0.7, row.scale)
    narrow = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32), row.to_tree(jnp.asarray(row.normal(3)))
    )
    for number in (float, jnp.float32, jnp.float64):
        moved = row.penalty.prox(narrow, number(0.7), number(row.scale))
        assert jax.tree.structure(moved) == jax.tree.structure(narrow)
        for before, after in zip(jax.tree.leaves(narrow), jax.tree.leaves(moved), strict=True):
            assert (after.shape, after.dtype) == (before.shape, jnp.float32)
        flat = np.asarray(jax.flatten_util.ravel_pytree(moved)[0], np.float64)
        assert close(flat, exact, 2e-5, exact)
    value = row.penalty.value(moved, jnp.float64(row.scale))
    assert (value.shape, value.dtype) == ((), jnp.float32)
    assert np.isfinite(value)
    assert row.compiled_prox(row.normal(3), 0.7, row.scale).dtype == jnp.float64


def vmap_equals_a_loop(row):
    """Over a batch of points, and over scales and steps together."""
    batch = row.normal(4, 3)
    steps = np.array([0.2, 1.5])
    scales = row.scale * np.array([0.5, 2.0])
    over_scales = jax.vmap(row.flat_prox, in_axes=(None, 0, 0))
    mapped = jax.jit(jax.vmap(over_scales, in_axes=(0, None, None)))(batch, steps, scales)
    looped = [[row.prox(v, t, s) for t, s in zip(steps, scales, strict=True)] for v in batch]
    assert close(mapped, looped, 1e-11, batch)


def gradients_match_finite_differences(row):
    """With respect to the point, the step and the scale, at generic points."""
    width = 1e-6

    def rise(weights, v, step=0.0, scale=0.0, *, at):
        ahead = row.prox(at + width * v, 0.7 + width * step, row.scale + width * scale)
        behind = row.prox(at - width * v, 0.7 - width * step, row.scale - width * scale)
        return np.vdot(weights, ahead - behind) / (2 * width)

    for seed in range(3):
        v, weights, direction = row.normal(5 + seed, 3)
        direction /= np.linalg.norm(direction)
        by_v, by_step, by_scale = row.compiled_gradient(v, 0.7, row.scale, weights)
        room = 1e-5 * np.sum(np.abs(weights))
        assert abs(np.vdot(by_v, direction) - rise(weights, direction, at=v)) <= room
        assert abs(by_step - rise(weights, 0.0 * v, step=1.0, at=v)) <= room
        assert abs(by_scale - rise(weights, 0.0 * v, scale=1.0, at=v)) <= room


FIXED_LAWS = {
    degenerate_inputs_are_finite: lambda row: True,
    jitted_equals_eager: lambda row: True,
    structure_shapes_and_dtypes_are_kept: lambda row: True,
    vmap_equals_a_loop: lambda row: True,
    gradients_match_finite_differences: lambda row: row.smooth_prox,
}


def prox_and_projection_are_conjugate(primal: Row, dual: Row, v, step, scale):
    """A norm and the ball of its dual norm: ``v = prox(v) + step * project(v / step)``."""
    rest = step * dual.prox(v / step, 1.0, scale)
    assert close(primal.prox(v, step, scale) + rest, v, primal.tolerance, v)
