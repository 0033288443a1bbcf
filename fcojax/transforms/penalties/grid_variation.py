r"""Total variation on grids of two, three or more dimensions, by ascent of the dual.

.. math:: \min_x s |D x|_1 + |x - v|^2 / 2 = \max_{|u_e| \le s} |v|^2 / 2 - |v - D^T u|^2 / 2

D has one row for each pair of neighbours, and :math:`|D|^2 \le 4 d` on a grid of d dimensions. A
feasible u gives the point :math:`x = v - D^T u`.

References: Chambolle, 2004; Beck and Teboulle, Fast gradient-based algorithms for constrained total
variation image denoising and deblurring problems, 2009; O'Donoghue and Candes, 2015, for restarts.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.penalty import Penalty, times_scale, weight
from fcojax.types import Array, Count


@factory
def grid_variation(mask: ArrayLike, num_steps: Count = 100) -> Penalty:
    r"""Return the total variation of images and volumes, or of the part of them in a mask.

    .. math:: \psi(x) = \lambda \sum_{i \sim j} |x_i - x_j|

    over pairs of neighbouring cells of a grid that are both in the mask. The prox takes a fixed
    number of accelerated steps of its dual, so that it is not exact. Entries that should be equal
    are only nearly equal, and the derivative is the one of the steps. The sum of v over a connected
    part of the mask is kept. ``total_variation`` is exact along one axis.

    Args:
      mask: booleans, true for the cells of the grid that have an entry. The first axis of a leaf
        has these entries in the order of the grid; if the mask is true everywhere, the first axes
        may also be the axes of the grid. Any further axes are batch axes.
      num_steps: steps of the dual in a prox.

    Example:
      >>> image = jnp.array([[0.0, 0.0, 4.0], [0.0, 1.0, 4.0]])
      >>> grid_variation(np.ones((2, 3), bool)).prox(image, step=0.5, scale=1.0).round(4).tolist()
      [[0.5, 0.5, 3.5], [0.5, 0.5, 3.5]]

    References:
      Rudin, Osher and Fatemi, "Nonlinear total variation based noise removal algorithms", 1992,
      with differences along each axis; Michel, Gramfort, Varoquaux, Eger and Thirion, "Total
      variation regularization for fMRI-based prediction of behavior", 2011.
    """
    inside = _checked(mask)

    def value(x, scale):
        def total(leaf):
            return jnp.sum(jnp.abs(_jumps(_on_grid(leaf, inside), inside)))

        return times_scale(scale, tree.total(jax.tree.map(total, tree.floats(x))))

    def prox(v, step, scale):
        def denoise(leaf):
            solved = _solved(leaf, weight(step, scale, leaf), inside, num_steps)
            return solved[np.nonzero(inside)].reshape(leaf.shape)

        return tree.cast_like(jax.tree.map(denoise, tree.floats(v)), v)

    return Penalty(value, prox)


def _checked(mask: ArrayLike) -> np.ndarray:
    inside = np.asarray(mask)
    if inside.dtype != bool or not inside.any():
        raise ValueError(
            f"mask has dtype {inside.dtype} and {np.count_nonzero(inside)} cells; pass booleans, "
            "true for the cells that have an entry."
        )
    return inside


def _on_grid(leaf: Array, inside: np.ndarray) -> Array:
    """Arrange a leaf as [*grid, images], zero outside the mask."""
    count = np.count_nonzero(inside)
    whole = count == inside.size and leaf.shape[: inside.ndim] == inside.shape
    if not whole and leaf.shape[:1] != (count,):
        raise ValueError(
            f"a leaf has shape {leaf.shape} but the mask {count} cells of a grid of shape "
            f"{inside.shape}; pass {count} entries along the first axis."
        )
    image = jnp.zeros((*inside.shape, leaf.size // count), leaf.dtype)
    return image.at[np.nonzero(inside)].set(leaf.reshape(count, -1))


def _jumps(image: Array, inside: np.ndarray) -> Array:
    """Return D x along each axis, [axes, *grid, images], zero unless both cells are inside."""
    jumps = []
    for axis, size in enumerate(inside.shape):
        both = inside & np.roll(inside, -1, axis)
        both &= np.indices(inside.shape)[axis] < size - 1
        jumps.append(jnp.where(both[..., None], jnp.roll(image, -1, axis) - image, 0))
    return jnp.stack(jumps)


def _spread(dual: Array) -> Array:
    """Return the transpose of D times a dual, which is zero where ``_jumps`` is."""
    return sum(
        (jnp.roll(along, 1, axis) - along for axis, along in enumerate(dual)),
        jnp.zeros_like(dual[0]),
    )


def _solved(leaf: Array, strength: Array, inside: np.ndarray, num_steps: int) -> Array:
    """Return the image after ``num_steps`` steps."""
    v = _on_grid(leaf, inside)
    # At this strength images are constant already; larger strengths could overflow.
    strength = jnp.minimum(strength, 1 + 2 * jnp.nansum(jnp.abs(v)))

    def ascend(_, state):
        dual, ahead, inertia = state
        new = ahead + _jumps(v - _spread(ahead), inside) / (4 * inside.ndim)
        # clip has half a derivative at its bounds
        new = jnp.where(jnp.abs(new) < strength, new, strength * jnp.sign(new))
        overshot = jnp.vdot(ahead - new, new - dual) > 0
        inertia = jnp.where(overshot, 1.0, inertia)
        later = (1 + jnp.sqrt(1 + 4 * inertia**2)) / 2
        return new, new + (inertia - 1) / later * (new - dual), later

    zero = _jumps(v, inside) * 0
    start = zero, zero, jnp.ones((), v.dtype)
    dual, _, _ = jax.lax.fori_loop(0, num_steps, ascend, start)
    return v - _spread(dual)
