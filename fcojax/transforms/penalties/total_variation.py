r"""Total variation along an axis, exactly, by cutting blocks at their mean.

Start with whole signals as blocks. The entries S of a block that the solution puts above a level m
minimise a cut, :math:`\sum_{i \in S} (m - v_i) + s\, |\partial S|`, by a dynamic programme of two
states. With m the mean of the block, the cut is trivial if and only if the block is constant in the
solution; otherwise cut it there, and let the cuts pull at both sides with strength s from then on.
All blocks are cut at once, and the passes needed are few.

References: Hochbaum, An efficient algorithm for image segmentation, Markov random fields and
related problems, 2001; Chambolle and Darbon, 2009.
"""

import functools

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.blocks import along_axis, block_means, block_numbers, differences
from fcojax.transforms.penalties.separable import require_fraction
from fcojax.transforms.penalty import Penalty, at_strength, checked, largest, weight
from fcojax.transforms.thresholds import soft_threshold
from fcojax.types import Array

_NUM_HALVINGS = 60  # of an interval: past the last bit of a float64


@memoised
def total_variation(axis: int = -1) -> Penalty:
    r"""Total variation of signals along an axis, :math:`\psi(x) = \lambda \sum_i |x_{i+1} - x_i|`.

    .. math:: \mathrm{prox}(v) = \mathrm{argmin}_x t \lambda \sum_i |x_{i+1} - x_i| + |x - v|^2 / 2

    The answer is exact and constant on blocks: the mean of v there, pulled towards each neighbour
    by :math:`t \lambda` over the length of the block. Its derivative averages over blocks. Signals
    in different leaves or along other axes are independent, a scalar is free. Constants cost
    nothing, so ``scale_max`` is ``None``.

    Args:
      axis: the axis the signals run along, in every leaf.

    Example:
      >>> total_variation().prox(jnp.array([0.0, 1.0, 5.0, 4.0]), step=0.5, scale=1.0).tolist()
      [0.5, 1.0, 4.25, 4.25]

    References:
      Rudin, Osher and Fatemi, Nonlinear total variation based noise removal algorithms, 1992, in
      one dimension and with the penalty in place of the constraint.
    """

    def prox(v, step, scale):
        def denoise(leaf):
            strength = weight(step, scale, leaf)
            return along_axis(functools.partial(_denoised, strength=strength), axis, leaf)

        return jax.tree.map(denoise, v)

    return checked("total_variation", Penalty(functools.partial(_variation, axis), prox))


@memoised
def fused_lasso(l1_fraction: float, axis: int = -1) -> Penalty:
    r"""Total variation and l1 in one, for signals that are zero but for a few plateaus.

    .. math:: \psi(x) = \lambda (r |x|_1 + (1 - r) \sum_i |x_{i+1} - x_i|)

    .. math:: \mathrm{prox} = \mathrm{soft}(\cdot, t \lambda r) \circ
      \mathrm{prox}_{t \lambda (1 - r) TV}

    in this order. ``scale_max`` has no closed form; it is found by halving to the last bit, at the
    price of sixty proxes, and is ``None`` for r = 0.

    Args:
      l1_fraction: r, between 0 and 1.
      axis: the axis the signals run along, in every leaf.

    Example:
      >>> fused_lasso(0.5).prox(jnp.array([0.0, 1.0, 5.0, 4.0]), step=1.0, scale=1.0).tolist()
      [0.0, 0.5, 3.75, 3.75]

    References:
      Tibshirani, Saunders, Rosset, Zhu and Knight, Sparsity and smoothness via the fused lasso,
      2005; Friedman, Hastie, Hoefling and Tibshirani, Pathwise coordinate optimization, 2007,
      for the order of the two.
    """
    require_fraction(l1_fraction, "fused_lasso")
    variation = total_variation(axis)

    def value(x, scale):
        absolute = tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf)), x))
        return at_strength(
            scale, l1_fraction * absolute + (1 - l1_fraction) * variation.value(x, 1.0)
        )

    def prox(v, step, scale):
        smooth = variation.prox(v, (1 - l1_fraction) * step, scale)
        return jax.tree.map(
            lambda leaf: soft_threshold(leaf, l1_fraction * weight(step, scale, leaf)), smooth
        )

    def scale_max(gradient):
        def stays_zero(scale):
            smooth = variation.prox(gradient, 1 - l1_fraction, scale)
            return largest(jax.tree.map(jnp.abs, smooth)) <= l1_fraction * scale

        def halve(_, bounds):
            low, high = bounds
            middle = 0.5 * (low + high)
            enough = stays_zero(middle)
            return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

        high = largest(jax.tree.map(jnp.abs, gradient)) / l1_fraction
        return jax.lax.fori_loop(0, _NUM_HALVINGS, halve, (jnp.zeros_like(high), high))[1]

    return checked("fused_lasso", Penalty(value, prox, scale_max if l1_fraction > 0 else None))


def _variation(axis, x, scale):
    def one(leaf):
        jumps = along_axis(lambda flat, begins: jnp.abs(differences(flat, begins)), axis, leaf)
        return jnp.sum(jumps)

    return at_strength(scale, tree.total(jax.tree.map(one, x)))


def _denoised(flat, begins, strength):
    rises = _cut(jax.lax.stop_gradient(flat), begins, jax.lax.stop_gradient(strength))
    blocks = block_numbers((rises != 0) | begins)
    level = jnp.where(strength > 0, block_means(flat, blocks), flat)  # at 0 ties are no blocks
    return level + strength * block_means(_pull(rises), blocks)


def _pull(rises):
    """Down by one behind a rise into the block, up by one before a rise out of it."""
    return jnp.roll(rises, -1).at[-1].set(0.0) - rises


def _cut(flat, signal_begins, strength):
    """The sign of the solution's jump before each entry: 1, -1, or 0 inside a block."""
    size = flat.size
    position = jnp.arange(size)

    def cut(state):
        rises, _ = state
        begins = (rises != 0) | signal_begins
        ends = jnp.roll(begins, -1).at[-1].set(True)
        pulled = flat + strength * _pull(rises)
        price = block_means(pulled, block_numbers(begins)) - pulled  # of being above
        # What being above costs more than being below, for the block up to here: what it was
        # before, clipped since a cut costs strength, plus the price of this entry.
        room = jnp.where(begins, 0.0, strength)
        dearer = jax.lax.platform_dependent(
            price, room, cpu=costs_in_order, default=costs_in_parallel
        )
        # The first entry from here on that does not leave the choice to its successor decides.
        decided = ends | (jnp.abs(dearer) > strength)
        decider = jax.lax.cummin(jnp.where(decided, position, size), reverse=True)
        above = (dearer < 0).astype(flat.dtype)[decider]
        new = jnp.where(begins, 0.0, above - jnp.roll(above, 1))
        return rises + new, jnp.any(new != 0)

    start = jnp.zeros_like(flat), jnp.asarray(True)
    return jax.lax.while_loop(lambda state: state[1], cut, start)[0]


def costs_in_order(price: Array, room: Array) -> Array:
    """The running cost ``d_i = price_i + clip(d_{i-1}, -room_i, room_i)``, entry by entry."""

    def follow(before, entry):
        price, room = entry
        now = price + jnp.clip(before, -room, room)
        return now, now

    return jax.lax.scan(follow, jnp.zeros((), price.dtype), (price, room))[1]


def costs_in_parallel(price: Array, room: Array) -> Array:
    """The same by composing maps ``d -> clip(d + shift, low, high)``, in logarithmic depth."""

    def compose(first, second):
        shift, low, high = first
        then_shift, then_low, then_high = second
        return (
            shift + then_shift,
            jnp.clip(low + then_shift, then_low, then_high),
            jnp.clip(high + then_shift, then_low, then_high),
        )

    # The first entry begins a signal and has no room, so every running map is a constant: its low.
    return jax.lax.associative_scan(compose, (price, price - room, price + room))[1]
