"""Search for the strength of a model with a given sparsity, by bisection with warm starts.

The number of nonzero entries falls with the strength, but not everywhere, and jumps where several
entries enter at once. So two strengths are kept, one whose model is too sparse and one whose model
is too dense, and their distance on a logarithmic scale shrinks by at least a fifth in each step. A
step is solved no more precisely than that distance needs: a model with violation v is the exact
solution of a problem whose gradients differ by v. Once the two are neighbours, they are solved to
the full tolerance.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.transforms import Penalty
from fcojax.types import Array
from fcojax_sites.selection.nonzeros import Counter, Nonzeros, Range
from fcojax_sites.selection.solver import Fits, Loops, Null, Solver, Start, null_model

# Each step shrinks the range by at least a fifth, so 60 steps shrink ln(100) to 7e-6, below
# `_NARROW`.
_MAX_STEPS = 60
_NARROW = 1e-4  # in the logarithm: closer strengths are neighbours
_PART = 0.1  # precision of a step: a share of the distance to the nearer of the two


class Search(NamedTuple):
    """The target of a search, and the strengths that were tried.

    Attributes:
      target: the target in words.
      reached: whether a model reaches the target; otherwise the path has the two neighbours.
      strengths: [tried], in order; a strength is repeated to solve it more precisely.
      counts: [tried], the number of nonzero entries (groups, or the rank) of each model.
      rounds: [tried], rounds of each solve.
      checks: [tried], evaluations of the optimality conditions in each.
      numbers: [strengths of the path], the numbers of the models found, in units of the target.

    Example:
      >>> import numpy as np
      >>> from fcojax_sites.selection import Search
      >>> tried = np.array([[0.5, 0.2], [1, 2], [10, 20], [2, 3]])
      >>> print(Search("2 nonzeros", True, *tried, numbers=np.array([2])))
      2 nonzeros: reached by 2 solves in 30 rounds and 5 checks
    """

    target: str
    reached: bool
    strengths: np.ndarray
    counts: np.ndarray
    rounds: np.ndarray
    checks: np.ndarray
    numbers: np.ndarray

    def __str__(self) -> str:
        verdict = "reached" if self.reached else "not reached, but the neighbours found"
        return (
            f"{self.target}: {verdict} by {len(self.strengths)} solves in "
            f"{int(np.sum(self.rounds))} rounds and {int(np.sum(self.checks))} checks"
        )


class End(NamedTuple):
    """A strength whose model is too sparse or too dense; ``precision`` infinite if not solved."""

    log_strength: Array
    count: Array
    precision: Array
    fit: Fits


class Tried(NamedTuple):
    """Columns of a ``Search``, [steps], and the bytes of all steps together."""

    columns: dict[str, Array]
    bytes_down: Array
    bytes_up: Array


class SearchProgress(NamedTuple):
    """The next strength and its precision, the two ends, and the last fit with its count."""

    step: Array
    log_strength: Array
    precision: Array
    start: Start
    sparser: End
    denser: End
    fit: Fits
    count: Array
    is_hit: Array
    is_done: Array
    tried: Tried


class Searching(NamedTuple):
    """The target of a search, and the parts of its steps that need no data."""

    penalty: Penalty
    counter: Counter
    goal: Range
    first: Array  # the logarithm of the first strength, and of the last one
    floor: Array
    tolerance: Array

    def begin(self, null: Null, objective: Array, start: Start) -> SearchProgress:
        """Return the progress before the first step, with the null model as the sparser end."""
        first, no = self.first, jnp.zeros((), bool)

        # A guess as if the features were uncorrelated: one step from the null model.
        def is_sparse(strength):
            moved = tree.sub(null.model, null.gradient)
            guess = self.penalty.prox(moved, 1.0, strength)
            return self.counter(self.penalty, guess) < self.goal.fewest

        # This bisection uses the known gradient and needs no exchange.
        guess = jnp.log(_least_scale(is_sparse, null.first))
        zero = jnp.zeros((), jnp.int32)
        fit = Fits(null.model, objective, null.outcome)
        sparser = End(first, zero, jnp.asarray(self.tolerance, first.dtype), fit)
        denser = End(self.floor, zero + self.goal.most, jnp.full_like(first, jnp.inf), fit)
        sent = jnp.zeros_like(null.outcome.bytes_down)
        columns = {"strengths": jnp.zeros(_MAX_STEPS, first.dtype)}
        columns |= {
            name: jnp.zeros(_MAX_STEPS, jnp.int32) for name in ("counts", "rounds", "checks")
        }
        # Strictly below the first strength, whose model is the null model.
        x = jnp.clip(guess, self.floor, first + jnp.log(jnp.asarray(0.95, first.dtype)))
        precision = _precision(x, sparser, denser, self.tolerance)
        return SearchProgress(
            step=zero,
            log_strength=x,
            precision=precision,
            start=start,
            sparser=sparser,
            denser=denser,
            fit=fit,
            count=zero,
            is_hit=no,
            is_done=no,
            tried=Tried(columns, sent, sent),
        )

    def goes_on(self, now: SearchProgress) -> Array:
        """Return whether there is another step."""
        return ~now.is_done & (now.step < _MAX_STEPS)

    def after(self, now: SearchProgress, start: Start, fit: Fits) -> SearchProgress:
        """Return the state of the search after a solve."""
        count = self.counter(self.penalty, fit.models)
        row = {
            "strengths": jnp.exp(now.log_strength),
            "counts": count,
            "rounds": fit.outcome.rounds,
            "checks": fit.outcome.checks,
        }
        columns = {
            name: column.at[now.step].set(row[name].astype(column.dtype))
            for name, column in now.tried.columns.items()
        }
        tried = Tried(
            columns,
            now.tried.bytes_down + fit.outcome.bytes_down,
            now.tried.bytes_up + fit.outcome.bytes_up,
        )
        now = now._replace(step=now.step + 1, start=start, fit=fit, count=count, tried=tried)
        return _after(now, self.goal, self.first, self.floor, self.tolerance)


def searching(
    penalty: Penalty, counter: Counter, goal: Range, null: Null, least, tolerance
) -> Searching:
    """Return a search; ``least`` and ``tolerance`` are in units of the first strength."""
    first = jnp.log(null.first)
    floor = first + jnp.log(jnp.asarray(least, first.dtype))
    return Searching(penalty, counter, goal, first, floor, tolerance * null.first)


def search_path(
    solver: Solver, loops: Loops, counter: Counter, goal: Range, params, key, least, tolerance
) -> tuple[Null, SearchProgress]:
    """Search for a strength.

    Args:
      solver: solves for one strength.
      loops: ``TRACED`` or ``ON_HOST``.
      counter: counts what is nonzero.
      goal: the range of numbers to reach.
      params: the start point.
      key: PRNG key.
      least: the last strength as a share of the first.
      tolerance: largest violation, in units of the first strength.
    """
    null = null_model(solver, params, key, tolerance)
    search = searching(solver.penalty, counter, goal, null, least, tolerance)
    psi = solver.penalty.value(null.model, null.first).astype(null.loss.dtype)

    def step(now):
        strength, own = jnp.exp(now.log_strength), jax.random.fold_in(key, now.step)
        return search.after(now, *solver.solve(now.start, strength, own, now.precision))

    begin = search.begin(null, null.loss + psi, solver.begin(null.model, key))
    return null, loops.while_loop(search.goes_on, step, begin)


def answers(target: Nonzeros, goal: Range, found: SearchProgress) -> tuple[Array, Fits, Search]:
    """Return the strengths and models that were found, and the search."""
    last = End(found.log_strength, found.count, found.precision, found.fit)
    ends = [end for end in (found.sparser, found.denser) if np.isfinite(end.precision)]
    these = [last] if found.is_hit else ends
    strengths = jnp.exp(jnp.stack([one.log_strength for one in these]))
    fits = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one.fit for one in these))
    units = goal.highest / target.count
    numbers = np.array([int(one.count) / units for one in these])
    columns = {
        name: np.asarray(leaf)[: int(found.step)] for name, leaf in found.tried.columns.items()
    }
    return strengths, fits, Search(target.name, bool(found.is_hit), numbers=numbers, **columns)


def _precision(x: Array, sparser: End, denser: End, tolerance: Array) -> Array:
    distance = jnp.minimum(
        jnp.exp(sparser.log_strength) - jnp.exp(x), jnp.exp(x) - jnp.exp(denser.log_strength)
    )
    return jnp.maximum(_PART * distance, tolerance)


def _after(now: SearchProgress, goal: Range, first, floor, tolerance) -> SearchProgress:
    """Update the ends with the model of a step, and choose the next strength."""
    x, precision, count = now.log_strength, now.precision, now.count
    too_sparse, too_dense = count < goal.fewest, count > goal.highest
    here = End(x, count, precision, now.fit)
    sparser = tree.where(too_sparse, here, now.sparser)
    denser = tree.where(too_dense, here, now.denser)

    def moved(end, away):
        """Return an end at another strength, at which it is not solved yet."""
        return end._replace(log_strength=away, precision=jnp.full_like(end.precision, jnp.inf))

    # The bracket may be wrong at an end whose model was solved loosely.
    crossed = sparser.log_strength <= denser.log_strength
    denser = tree.where(
        crossed & too_sparse, moved(denser, jnp.maximum(x - 16 * _NARROW, floor)), denser
    )
    sparser = tree.where(
        crossed & too_dense, moved(sparser, jnp.minimum(x + 16 * _NARROW, first)), sparser
    )
    width = sparser.log_strength - denser.log_strength
    middle = jnp.asarray(goal.fewest + goal.highest, width.dtype) / 2
    low, high = (end.count.astype(width.dtype) for end in (sparser, denser))
    # Interpolate the count linearly; at least a fifth from either end, so that the range shrinks in
    # every step.
    share = jnp.clip((middle - low) / jnp.maximum(high - low, 1), 0.2, 0.8)
    between = sparser.log_strength - share * width
    # Neighbours: solve the two to the full tolerance, the sparser first.
    loose, also = sparser.precision > tolerance, denser.precision > tolerance
    exists = denser.log_strength < sparser.log_strength
    is_narrow = width <= _NARROW
    is_hit = ~too_sparse & ~too_dense
    next_x = jnp.where(
        is_hit,
        x,
        jnp.where(is_narrow, jnp.where(loose, sparser.log_strength, denser.log_strength), between),
    )
    next_precision = jnp.where(
        is_hit | is_narrow, tolerance, _precision(between, sparser, denser, tolerance)
    )
    # Stop then: every later solve would start from a model that is not a solution.
    failed = now.fit.outcome.diverged | (precision <= tolerance) & ~now.fit.outcome.solved
    done = failed | jnp.where(is_hit, precision <= tolerance, is_narrow & ~loose & ~(also & exists))
    return now._replace(
        log_strength=next_x,
        precision=next_precision,
        sparser=sparser,
        denser=denser,
        is_hit=is_hit & ~now.fit.outcome.diverged,
        is_done=done,
    )


def _least_scale(stays_zero: Callable, high: Array) -> Array:
    """Return the least strength below ``high`` at which zero is the solution, by bisection."""

    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        enough = stays_zero(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    return jax.lax.fori_loop(0, 100, bisect, (jnp.zeros_like(high), high))[1]
