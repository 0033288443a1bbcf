"""Stability selection: how often each parameter is chosen on random halves of the rows or sites."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.extend import in_full_precision, jit_per, validated
from fcojax.problems import Problem
from fcojax.transforms import Penalty
from fcojax.types import Array, Count, Key, NonNegative, Params
from fcojax_sites.selection.folds import (
    Fraction,
    Part,
    hold_out,
    part_of_data,
    stacked,
    weighted_loss,
)
from fcojax_sites.selection.ledger import Ledger, client_names, entry_of_solves
from fcojax_sites.selection.path import (
    default_method,
    exchanges_of_rates,
    grid_of,
    prepared,
)
from fcojax_sites.selection.solver import TRACED, solve_path
from fcojax_sites.selection.solves import solver_of


class Stability(NamedTuple):
    """Selection frequencies along a path.

    Attributes:
      strengths: [strengths], the strengths of the path.
      frequencies: a pytree like the model with a leading axis of strengths: the share of the draws
        in which each parameter is not zero.
      ledger: the traffic.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax_sites.selection import Stability
      >>> found = Stability(jnp.array([2.0, 1.0]), jnp.array([[0.1, 0.0], [1.0, 0.4]]), None)
      >>> found.largest.tolist()
      [1.0, 0.4...]
    """

    strengths: Array
    frequencies: Params
    ledger: Ledger

    @property
    def largest(self) -> Params:
        """The largest frequency of each parameter over the strengths, by which it is chosen."""
        return jax.tree.map(lambda leaf: jnp.max(leaf, axis=0), self.frequencies)


@validated
def stability(
    problem: Problem,
    penalty: Penalty,
    *,
    strengths: int | Sequence[float] | np.ndarray = 20,
    least: Fraction = 0.1,
    num_draws: Count = 50,
    share: Fraction = 0.5,
    clients: bool = False,
    key: Key | None = None,
    tolerance: NonNegative = 1e-5,
    eval_every: Count = 10,
    max_rounds: Count = 10_000,
) -> Stability:
    """Return how often each parameter is chosen on random parts of the data.

    One path on all data gives the strengths; every draw leaves out a share of each site's rows, or
    of the sites, and solves for the same strengths. All run in one program. A parameter that is
    chosen by chance is chosen in few draws; Meinshausen and Buehlmann keep those above 0.6 to 0.9.

    Args:
      problem: the loss, the clients and the start point, of which only the shapes are used.
      penalty: psi; it needs ``scale_max``, unless the strengths are given.
      strengths: their number, or the strengths.
      least: the last strength as a share of the first, if ``strengths`` is a number.
      num_draws: how often a part is drawn.
      share: the share that is left out.
      clients: whether whole sites are left out in place of rows of each.
      key: PRNG key, the only source of randomness; ``None`` for ``jax.random.key(0)``.
      tolerance: largest violation of the optimality conditions, in units of the first strength.
      eval_every: rounds between two evaluations of the violation.
      max_rounds: rounds for each strength, rounded up to a multiple of ``eval_every``.

    Returns:
      The strengths, the frequencies and the traffic of all draws.

    Example:
      >>> import fcojax
      >>> x, y = np.eye(4, dtype=np.float32) * 2, np.array([4.0, 0.1, 4.0, 0.1], np.float32)
      >>> data = fcojax.from_rows({"x": x, "y": y}, [2, 2])
      >>> found = stability(
      ...     fcojax.problems.least_squares(data), fcojax.transforms.l1(), strengths=[0.5],
      ...     num_draws=4)
      >>> found.frequencies.shape, float(found.largest[1])  # the second is never chosen
      ((1, 4), 0.0)

    References:
      Meinshausen and Buehlmann, Stability selection, JRSS B 2010.
    """
    data = problem.train
    setup, hparams, params, key = prepared(
        problem, penalty, key, None, None, None, eval_every, max_rounds
    )
    grid, relative = grid_of(penalty, strengths, least)
    split = hold_out(share, clients=clients)
    draws = [split(data, jax.random.fold_in(key, draw)) for draw in range(num_draws)]
    of_draws = setup
    if not clients:
        loss = weighted_loss(problem.loss)
        of_draws = setup.with_loss(loss, default_method(penalty)(loss))
    parts = stacked(draws).train
    found, frequencies, outcomes = _stability(
        (setup, of_draws), relative, hparams, params, data, key, parts, grid, tolerance
    )
    names = ("start", "path", "draws' start", "draws")
    rates, one_model = exchanges_of_rates(setup, found.size), tree.num_bytes(params)
    entries = (
        rates.entry("rates", one_model, np.asarray(data.weights)),
        rates.entry("draws' rates", one_model, np.asarray(parts.clients)),
        *map(entry_of_solves, names, outcomes),
    )
    return Stability(found, frequencies, Ledger(entries, client_names(data)))


@jit_per(num_static=2, kept=8)
@in_full_precision
def _stability(setups, relative, hparams, params, data, key, parts: Part, grid, tolerance) -> Any:
    setup, of_draws = setups
    solver = solver_of(setup, hparams, data)
    whole = solve_path(solver, TRACED, params, key, grid, relative, tolerance)

    def chosen(part):
        of_part = solver_of(of_draws, hparams, part_of_data(part, data))
        found = solve_path(
            of_part, TRACED, params, key, whole.strengths, False, tolerance, whole.unit
        )
        where = jax.tree.map(lambda leaf: leaf != 0, found.fits.models)
        return where, found.null_outcome, found.fits.outcome

    where, null_outcomes, found = jax.vmap(chosen)(parts)
    frequencies = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0, dtype=whole.unit.dtype), where)
    outcomes = whole.null_outcome, whole.fits.outcome, null_outcomes, found
    return whole.strengths, frequencies, outcomes
