"""Laws of penalties, and the rows on which they are tested.

A row has a penalty, a point that fixes the shapes, and traits that decide which laws apply. Laws
are functions of flat float64 vectors; a row caches its compiled functions, so that a law runs on
many examples with one compilation. That the residual of a prox is a subgradient makes it firmly
nonexpansive, a projection idempotent, and the envelope differentiable: these have no laws.
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

from fcojax.check import piece_laws
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
      free: whether step 0 and scale 0 both mean no penalty.
      nested: whether the prox composes two maps with kinks, where the chain rule may fail.
      cancels: whether rounding errors are relative to the point and not to the result.
      offset: the size of other terms that cancel.
      slack: the condition number of the prox.
      seminorm: whether psi is 0 at other points than zero.
      scale: the scale of the examples that are not drawn by hypothesis.
      tolerance: the tolerance of identities, relative to the size of their terms.
    """

    penalty: Penalty
    point: Any
    indicator: bool = False
    member: Callable | None = None
    free: bool = True
    nested: bool = False
    cancels: bool = False
    offset: float = 0.0
    slack: float = 1.0
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
    def compiled_value(self):
        return jax.jit(lambda x, scale: self.penalty.value(self.to_tree(x), scale))

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


def prox_residual_is_a_subgradient(row, v, w, step, scale):
    """``(v - p) / step`` is a subgradient of psi at the prox p, tested without the conjugate."""
    best = row.prox(v, step, scale)
    slope = (v - best) / step
    other = row.in_domain(w, scale)
    gap = row.value(other, scale) - row.value(best, scale) - np.vdot(slope, other - best)
    assert gap >= -row.tolerance * (1.0 + np.vdot(v, v) + np.vdot(other, other)) / step


# Laws on fixed examples, functions of ``(row)``.


def laws_of_check_hold(row):
    found = piece_laws(row.penalty, row.point)
    failed = [name for name, finding in found.items() if finding.holds is False]
    # A seminorm vanishes from scale_max on, and its prox does not.
    assert failed == (["scale_max"] if row.seminorm else [])


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


FIXED_LAWS = (laws_of_check_hold, degenerate_inputs_are_finite)


# Derivatives at zeros, ties and kinks, in forward and reverse mode, functions of ``(row)``.

WIDTH = 1e-7


@functools.cache
def compiled_jacobians(row):
    """``(v, step, scale) -> forward, reverse``, each of shape (size, size + 2)."""

    def joined(blocks):
        by_v, by_step, by_scale = blocks
        return jnp.concatenate([by_v, by_step[:, None], by_scale[:, None]], axis=1)

    def both(v, step, scale):
        forward = jax.jacfwd(row.flat_prox, argnums=(0, 1, 2))(v, step, scale)
        reverse = jax.jacrev(row.flat_prox, argnums=(0, 1, 2))(v, step, scale)
        return joined(forward), joined(reverse)

    return jax.jit(both)


def jacobian(row, v, step, scale):
    """Return the derivative, after checking that both modes agree and are finite."""
    forward, reverse = map(np.asarray, compiled_jacobians(row)(v, float(step), float(scale)))
    assert np.all(np.isfinite(forward)), (v, step, scale)
    np.testing.assert_allclose(forward, reverse, atol=1e-9, rtol=1e-9)
    return forward


def edge_cases(row):
    """Points with zeros and ties; matrices without full rank or with equal singular values."""
    mixed = row.normal(20)
    mixed[0] = 0.0
    mixed[2] = mixed[1]
    return {
        "zeros": np.zeros(row.size),
        "ties": np.ones(row.size),
        "mixed": mixed,
        "first alone": 3.0 * (np.arange(row.size) == 0),
        "normal": row.normal(21),
    }


def derivatives_are_difference_quotients(row):
    """Where difference quotients agree from both sides and are additive in the direction."""
    strengths = [(0.5, row.scale)] + [(0.0, row.scale)] * row.free * (not row.indicator)
    count = 0
    for v in edge_cases(row).values():
        for step, scale in strengths:
            exact = jacobian(row, v, step, scale)[:, : row.size]
            start = row.prox(v, step, scale)

            def ahead(along, v=v, step=step, scale=scale, start=start):
                return (row.prox(v + WIDTH * along, step, scale) - start) / WIDTH

            one, other = row.normal(22, 2)
            one, other = one / np.linalg.norm(one), other / np.linalg.norm(other)
            forth, back = ahead(one), -ahead(-one)
            second, both = ahead(other), ahead(one + other)
            smooth = [(forth, back), (second, -ahead(-other)), (forth + second, both)]
            if all(np.allclose(*pair, atol=1e-5) for pair in smooth):
                assert np.allclose(exact @ one, forth, atol=1e-5), (v, step, scale)
                assert np.allclose(exact @ other, second, atol=1e-5), (v, step, scale)
                count += 1
    assert count  # every prox is differentiable at a generic point


def derivatives_in_step_and_scale_are_right_quotients(row):
    """One-sided derivatives from the right, also at step 0 and scale 0."""
    pairs = [(0.5, row.scale)] + [(0.5, 0.0), (0.0, row.scale)] * (not row.nested)
    for v in edge_cases(row).values():
        for step, scale in pairs:
            exact = jacobian(row, v, step, scale)[:, row.size :].T
            start = row.prox(v, step, scale)
            for found, (more, higher) in zip(exact, ((1.0, 0.0), (0.0, 1.0)), strict=True):
                near, far = (
                    (row.prox(v, step + w * more, scale + w * higher) - start) / w
                    for w in (WIDTH, 4 * WIDTH)
                )
                if np.allclose(near, far, atol=1e-5):
                    assert np.allclose(found, near, atol=1e-5), (v, step, scale, more)


DERIVATIVE_LAWS = {
    derivatives_are_difference_quotients: lambda row: True,
    derivatives_in_step_and_scale_are_right_quotients: lambda row: row.free,
}


# Precision: (row, dtype).

SIZES = {
    jnp.float32: (1e-30, 1e-20, 1e-8, 1.0, 1e8, 1e20, 1e30),
    jnp.bfloat16: (1e-30, 1e-20, 1e-8, 1.0, 1e8, 1e20, 1e30),
    jnp.float16: (0.05, 1.0, 300.0, 1e4),
}


def results_of_any_size_agree_with_float64(row, dtype):
    """For scales proportional to the point, and for a fixed scale."""
    narrow = jnp.finfo(dtype)
    for size in SIZES[dtype]:
        v = jax.tree.map(
            lambda leaf: leaf.astype(dtype), row.to_tree(jnp.asarray(size * row.normal(23)))
        )
        exact_v = np.asarray(jax.flatten_util.ravel_pytree(wide(v))[0])
        for scale in (float(np.float32(row.scale * size)), float(np.float32(row.scale))):
            exact = row.prox(exact_v, 1.0, scale)
            moved = prox_of(row)(v, np.float32(scale))
            assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(moved))
            found = np.asarray(jax.flatten_util.ravel_pytree(wide(moved))[0])
            top = np.max(np.abs(exact))
            if row.cancels:
                top = max(top, row.offset, np.max(np.abs(exact_v)))
            room = 8 * row.slack * float(narrow.eps) * top + float(narrow.tiny)
            assert np.all(np.abs(found - exact) <= room), (size, scale, found, exact)


def projections_are_feasible_in_their_own_dtype(row, dtype):
    """At any distance from the set, for numbers of any magnitude."""
    for size in SIZES[dtype]:
        for scale in (row.scale * size, row.scale):
            v = row.to_tree(jnp.asarray(size * row.normal(24)))
            moved = prox_of(row)(jax.tree.map(lambda leaf: leaf.astype(dtype), v), scale)
            assert row.penalty.value(moved, scale) == 0.0, (size, scale)


@functools.cache
def prox_of(row):
    return jax.jit(lambda v, scale: row.penalty.prox(v, jnp.float32(1.0), scale))


def wide(x):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), x)


PRECISION_LAWS = {
    results_of_any_size_agree_with_float64: lambda row: True,
    projections_are_feasible_in_their_own_dtype: lambda row: row.indicator,
}
