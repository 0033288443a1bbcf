r"""Total variation along an axis, computed exactly by divide and conquer.

Initially each signal is one block. The set S of entries of a block at which the solution exceeds a
level m minimises :math:`\sum_{i \in S} (m - v_i) + s\, |\partial S|`, a dynamic program with two
states. If m is the mean of the block, S is trivial if and only if the solution is constant on the
block. Otherwise the block is split at the boundary of S, and from then on the entries on both sides
of a split are shifted by s towards each other. All blocks are split in the same pass, and few
passes are needed.

References: Hochbaum, An efficient algorithm for image segmentation, Markov random fields and
related problems, 2001; Chambolle and Darbon, 2009.
"""

import functools

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.blocks import along_axis, block_means, block_numbers, differences
from fcojax.transforms.indicators import least_scale
from fcojax.transforms.penalties.l1 import l1_norm, soft_threshold
from fcojax.transforms.penalties.separable import Fraction
from fcojax.transforms.penalty import Penalty, times_scale, weight
from fcojax.types import Array, Axis


@factory
def total_variation(axis: Axis = -1) -> Penalty:
    r"""Return the total variation along an axis, :math:`\lambda \sum_i |x_{i+1} - x_i|`.

    .. math:: \mathrm{prox}(v) = \mathrm{argmin}_x t \lambda \sum_i |x_{i+1} - x_i| + |x - v|^2 / 2

    The prox is exact and constant on blocks: the mean of v over the block, shifted towards each
    neighbouring block by :math:`t \lambda` over the length of the block. Its derivative averages
    over blocks. Signals in different leaves or along other axes are independent. Constant signals
    have value 0, so ``scale_max`` is ``None``.

    Args:
      axis: the axis of the signals, in every leaf; a scalar is a signal with one entry.

    Example:
      >>> total_variation().prox(jnp.array([0.0, 1.0, 5.0, 4.0]), step=0.5, scale=1.0).tolist()
      [0.5, 1.0, 4.25, 4.25]

    References:
      Rudin, Osher and Fatemi, "Nonlinear total variation based noise removal algorithms", 1992, in
      one dimension and with the penalty in place of the constraint.
    """

    def prox(v, step, scale):
        def denoise(leaf):
            strength = weight(step, scale, leaf)
            return along_axis(functools.partial(_denoised, strength=strength), axis, leaf)

        return tree.cast_like(jax.tree.map(denoise, tree.floats(v)), v)

    return Penalty(functools.partial(_variation, axis), prox)


@factory
def fused_lasso(l1_fraction: Fraction, axis: Axis = -1) -> Penalty:
    r"""Return the fused lasso, total variation plus l1, for sparse piecewise constant signals.

    .. math:: \psi(x) = \lambda (r |x|_1 + (1 - r) \sum_i |x_{i+1} - x_i|)

    .. math:: \mathrm{prox} = \mathrm{soft}(\cdot, t \lambda r) \circ
      \mathrm{prox}_{t \lambda (1 - r) TV}

    ``scale_max`` has no closed form; it is found by bisection to the last bit, which takes sixty
    proxes, and is ``None`` for r = 0.

    Args:
      l1_fraction: r, from 0 to 1.
      axis: the axis of the signals, in every leaf; a scalar is a signal with one entry.

    Example:
      >>> fused_lasso(0.5).prox(jnp.array([0.0, 1.0, 5.0, 4.0]), step=1.0, scale=1.0).tolist()
      [0.0, 0.5, 3.75, 3.75]

    References:
      Tibshirani, Saunders, Rosset, Zhu and Knight, "Sparsity and smoothness via the fused lasso",
      2005; Friedman, Hastie, Hoefling and Tibshirani, "Pathwise coordinate optimization", 2007, for
      the order of the two.
    """
    variation = total_variation(axis)

    def value(x, scale):
        absolute = l1_norm(x)
        return times_scale(
            scale, l1_fraction * absolute + (1 - l1_fraction) * variation.value(x, 1.0)
        )

    def prox(v, step, scale):
        smooth = variation.prox(tree.floats(v), (1 - l1_fraction) * step, scale)
        moved = jax.tree.map(
            lambda leaf: soft_threshold(leaf, weight(l1_fraction * step, scale, leaf)), smooth
        )
        return tree.cast_like(moved, v)

    def scale_max(gradient):
        gradient = tree.floats(gradient)

        def stays_zero(scale):
            smooth = variation.prox(gradient, 1 - l1_fraction, scale)
            return tree.max_abs(smooth) <= l1_fraction * scale

        return least_scale(stays_zero, tree.max_abs(gradient) / l1_fraction)

    return Penalty(value, prox, scale_max if l1_fraction > 0 else None)


def _variation(axis, x, scale):
    def one(leaf):
        jumps = along_axis(lambda flat, begins: jnp.abs(differences(flat, begins)), axis, leaf)
        return jnp.sum(jumps)

    return times_scale(scale, tree.total(jax.tree.map(one, x)))


def _denoised(flat, begins, strength):
    # At this strength signals are constant already; larger shifts could overflow.
    strength = jnp.minimum(strength, 1 + 2 * jnp.nansum(jnp.abs(flat)))
    jumps = _jump_signs(jax.lax.stop_gradient(flat), begins, jax.lax.stop_gradient(strength))
    blocks = block_numbers((jumps != 0) | begins)
    level = jnp.where(strength > 0, block_means(flat, blocks), flat)  # at 0 ties form no blocks
    return level + strength * block_means(_shift(jumps), blocks)


def _shift(jumps):
    """The sign of each jump, subtracted from the entry after it and added to the one before it."""
    return jnp.roll(jumps, -1).at[-1].set(0.0) - jumps


def _jump_signs(flat, signal_begins, strength):
    """The sign of the solution's jump before each entry: 1, -1, or 0 inside a block."""
    size = flat.size
    position = jnp.arange(size)

    def split(state):
        jumps, _ = state
        begins = (jumps != 0) | signal_begins
        ends = jnp.roll(begins, -1).at[-1].set(True)
        shifted = flat + strength * _shift(jumps)
        price = block_means(shifted, block_numbers(begins)) - shifted  # the price of an entry in S
        # The smallest cost of the block up to this entry if it is in S, minus the cost if it is
        # not: the previous difference, clipped because a boundary costs strength, plus this entry's
        # price.
        room = jnp.where(begins, 0.0, strength)
        difference = jax.lax.platform_dependent(
            price, room, cpu=costs_in_order, default=costs_in_parallel
        )
        # An entry is in S if its successor is, unless its difference exceeds the strength.
        decided = ends | (jnp.abs(difference) > strength)
        decider = jax.lax.cummin(jnp.where(decided, position, size), reverse=True)
        above = (difference < 0).astype(flat.dtype)[decider]
        new = jnp.where(begins, 0.0, above - jnp.roll(above, 1))
        return jumps + new, jnp.any(new != 0)

    start = jnp.zeros_like(flat), jnp.asarray(True)
    return jax.lax.while_loop(lambda state: state[1], split, start)[0]


def costs_in_order(price: Array, room: Array) -> Array:
    """Return ``d_i = price_i + clip(d_{i-1}, -room_i, room_i)``, by a sequential scan."""

    def follow(before, entry):
        price, room = entry
        now = price + jnp.clip(before, -room, room)
        return now, now

    return jax.lax.scan(follow, jnp.zeros((), price.dtype), (price, room))[1]


def costs_in_parallel(price: Array, room: Array) -> Array:
    """Return the same values by composing maps ``d -> clip(d + shift, low, high)`` in log depth."""

    def compose(first, second):
        shift, low, high = first
        then_shift, then_low, then_high = second
        return (
            shift + then_shift,
            jnp.clip(low + then_shift, then_low, then_high),
            jnp.clip(high + then_shift, then_low, then_high),
        )

    # The first entry has no predecessor and room 0, so the composed maps are constant: low = high.
    return jax.lax.associative_scan(compose, (price, price - room, price + room))[1]
