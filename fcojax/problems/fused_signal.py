"""Random linear measurements of a piecewise constant signal, for total variation."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.clients import ClientData, from_stacked
from fcojax.problems.least_squares import half_squared_error
from fcojax.problems.measures import at_cuts, support_recovery
from fcojax.problems.problem import Problem
from fcojax.types import Count, CountOrZero, NonNegative, Seed


@validated
def fused_signal(
    *,
    num_clients: Count = 20,
    num_examples: Count = 50,
    dim: Count = 200,
    num_jumps: CountOrZero = 8,
    share_zero: NonNegative = 0.5,
    jump_scale: NonNegative = 1.0,
    mean_scale: NonNegative = 0.1,
    noise_scale: NonNegative = 0.5,
    num_validation: Count = 20,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: Seed = 0,
) -> Problem:
    r"""Regression on a piecewise constant signal with ``num_jumps`` jumps.

    The levels of the pieces are normal; a share of the pieces, drawn at random, has level zero, so
    that ``transforms.fused_lasso`` differs from ``total_variation``. Neighbouring pieces never have
    the same level. Client m draws :math:`x = \mu_m + \delta` with
    :math:`\mu_m \sim N(0, s^2 I)` and :math:`\delta \sim N(0, I)`, and observes
    :math:`y = x^T w + \varepsilon`; the loss is :math:`(x^T w - y)^2 / 2`. Params are the signal.

    The measures are ``error``, the distance to the signal, and precision, recall, F1 and density
    of its jumps, as ``jump_f1`` and so on.

    Args:
      num_clients: number of clients M.
      num_examples: training measurements per client.
      dim: length of the signal.
      num_jumps: number of jumps, at random places.
      share_zero: share of pieces whose level is zero, at most one half.
      jump_scale: standard deviation of the nonzero levels.
      mean_scale: s, the standard deviation of the client means.
      noise_scale: standard deviation of the observation noise.
      num_validation: validation measurements per client.
      cuts: differences that count as a jump; all but the first are in the measures' names.
      seed: seed of the data.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> problem = fcojax.problems.fused_signal(num_clients=3, num_examples=4, dim=10, num_jumps=2)
      >>> measures = problem.measures(jnp.zeros(10))
      >>> float(measures["jump_recall"]), float(measures["jump_density"])  # no jump is found
      (0.0, 0.0)
    """
    if share_zero > 0.5:
        raise ValueError(
            f"share_zero is {share_zero}; pass 0 to 0.5, since two zero pieces cannot touch."
        )
    rng = np.random.default_rng(seed)
    truth = _piecewise_constant(rng, dim, num_jumps, share_zero, jump_scale)
    means = mean_scale * rng.standard_normal((num_clients, 1, dim))

    def draw(count: int) -> ClientData:
        x = (means + rng.standard_normal((num_clients, count, dim))).reshape(-1, dim)
        y = x @ truth + noise_scale * rng.standard_normal(x.shape[0])
        return from_stacked(x=x.reshape(num_clients, count, dim), y=y.reshape(num_clients, count))

    def measures(signal):
        def jumps(cut):
            found = support_recovery(jnp.diff(signal), np.diff(truth), cut)
            return {f"jump_{name}": value for name, value in found.items()}

        error = jnp.linalg.norm(signal - jnp.asarray(truth, signal.dtype))
        return {"error": error} | at_cuts(jumps, cuts)

    def init(key):
        del key
        return jnp.zeros(dim, jnp.float32)

    train = draw(num_examples)
    return Problem(half_squared_error, train, draw(num_validation), init, measures)


def _piecewise_constant(rng, dim, num_jumps, share_zero, jump_scale) -> np.ndarray:
    places = np.sort(rng.choice(np.arange(1, dim), num_jumps, replace=False))
    levels = jump_scale * rng.standard_normal(num_jumps + 1)
    # Choose among every other piece, so that no two zero pieces are neighbours.
    every_other = np.arange(rng.integers(2) if num_jumps else 0, num_jumps + 1, 2)
    num_zero = min(round(share_zero * (num_jumps + 1)), every_other.size)
    levels[rng.choice(every_other, num_zero, replace=False)] = 0.0
    return np.repeat(levels, np.diff([0, *places, dim]))
