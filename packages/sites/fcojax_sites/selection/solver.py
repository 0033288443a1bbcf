"""The interface of the solves of a path, and paths that use it.

A ``Solver`` solves for one strength from a start. For clients in arrays its functions are traced,
and the loops of ``TRACED`` make one program of a path. For real sites each solve is a separate run,
and the loops of ``ON_HOST`` call the same functions from Python.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import Plan, tree
from fcojax.extend import Outcome, validated
from fcojax.transforms import Penalty
from fcojax.types import Array, CountOrZero, Key, NonNegative, Params, PyTree

# Folded into the key of a path; strengths have the indices from 0.
_NULL, _FOLD = 0x6E756C6C, 0x666F6C64


class Fits(NamedTuple):
    """Models, objectives and outcomes, of one solve or with a leading axis of strengths.

    Example:
      >>> Fits(jnp.zeros(2), objective=jnp.array(1.5), outcome=None).models.tolist()
      [0.0, 0.0]
    """

    models: Params
    objective: Array
    outcome: Outcome


class Start(NamedTuple):
    """Where a solve starts: the last two models with their strengths.

    Attributes:
      model: the last model.
      strength: the strength of the penalty at that model.
      earlier: the model before the last, and its strength.
      curvature: the curvature, its direction and the iterations that the next solve adds, if a
        solver searches for its rate.

    Example:
      >>> start = Start.first(jnp.array([8.0, 0.5]))
      >>> start = start.after(jnp.array([6.0, 1.5]), 4.0, True)
      >>> start = start.after(jnp.array([7.0, 0.5]), 3.0, True)
      >>> start.extrapolated(jnp.array(2.0)).tolist()  # no entry changes its sign
      [8.0, 0.0]
    """

    model: Params
    strength: Array
    earlier: tuple[Params, Array]
    curvature: tuple = ()

    @classmethod
    def first(cls, params: Params, curvature: tuple = ()) -> "Start":
        """Return the start of the first solve, without earlier models.

        Args:
          params: the point where the first solve starts.
          curvature: as in the attributes.
        """
        nowhere = beyond_all(tree.norm(params).dtype)
        return cls(params, nowhere, (params, nowhere), curvature)

    def after(self, model: Params, strength: Any, is_sound: Any) -> "Start":
        """Return the start after a solve.

        Args:
          model: the solution.
          strength: the strength of the penalty at that model.
          is_sound: whether the solve did not diverge and the model is finite; otherwise the next
            solve starts from the last sound model.
        """
        last = tree.where(is_sound, model, self.model)
        strength = jnp.asarray(strength, self.strength.dtype)
        return self._replace(model=last, strength=strength, earlier=(self.model, self.strength))

    def extrapolated(self, strength: Array) -> Params:
        """Extrapolate linearly from the last two models, by at most their distance.

        Zeros stay, and an entry that would change its sign becomes zero.

        Args:
          strength: the strength of the next solve.
        """
        earlier, before = self.earlier
        gap = self.strength - before
        share = (strength - self.strength) / jnp.where(gap == 0, 1, gap)
        share = jnp.where(gap == 0, 0, jnp.clip(share, -1, 1))

        def one(w, old):
            moved = w + share.astype(w.dtype) * (w - old)
            return jnp.where(moved * w > 0, moved, 0)

        return jax.tree.map(one, self.model, earlier)


class Solver(NamedTuple):
    """How a path solves for one strength, with the data in arrays or at real sites.

    Attributes:
      penalty: psi.
      num_clients: number of clients or sites.
      gradient: ``(params) -> (loss, gradient)`` of F.
      begin: ``(params, key) -> Start``: where the first solve of a path starts.
      solve: ``(start, strength, key, tolerance) -> (start, fit)``: the next start, and the fit.

    Example:
      >>> from fcojax.transforms import l1
      >>> target = jnp.array([4.0, 1.0])  # F(w) is half the squared distance to it
      >>> def gradient(w):
      ...     return 0.5 * jnp.sum((w - target) ** 2), w - target
      >>> def solve(start, strength, key, tolerance):
      ...     model = l1().prox(target, 1.0, strength)
      ...     objective = gradient(model)[0] + l1().value(model, strength)
      ...     return start.after(model, strength, True), Fits(model, objective, None)
      >>> solver = Solver(l1(), 1, gradient, lambda params, key: Start.first(params), solve)
      >>> solver.solve(Start.first(target), jnp.array(2.0), None, 0.0)[1].models.tolist()
      [2.0, 0.0]
    """

    penalty: Penalty
    num_clients: int
    gradient: Callable[[Params], tuple[Array, Params]]
    begin: Callable[[Params, Key], Start]
    solve: Callable[[Start, Array, Key, Array], tuple[Start, Fits]]


class Loops(NamedTuple):
    """``scan``, ``while_loop`` and ``cond``, with the arguments of the functions in ``jax.lax``.

    ``unset`` returns a placeholder for the result of a function; it is replaced before it is read.
    """

    scan: Callable
    while_loop: Callable
    cond: Callable
    unset: Callable


def _scan(step: Callable, carry: PyTree, inputs: PyTree) -> tuple[PyTree, PyTree]:
    # `jax.lax.scan` in Python, because real sites have to reply in between.
    found = []
    for index in range(jax.tree.leaves(inputs)[0].shape[0]):
        carry, one = step(carry, jax.tree.map(lambda leaf, i=index: leaf[i], inputs))
        found.append(one)
    return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


def _while_loop(goes_on: Callable, step: Callable, carry: PyTree) -> PyTree:
    while goes_on(carry):
        carry = step(carry)
    return carry


def _cond(condition: Any, first: Callable, second: Callable, *arguments: PyTree) -> PyTree:
    return first(*arguments) if condition else second(*arguments)


def _zeros(function: Callable, *arguments: PyTree) -> PyTree:
    shapes = jax.eval_shape(function, *arguments)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


TRACED = Loops(jax.lax.scan, jax.lax.while_loop, jax.lax.cond, _zeros)
ON_HOST = Loops(_scan, _while_loop, _cond, lambda function, *arguments: None)


class Null(NamedTuple):
    """The model at a strength above all others, and the smallest strength where it is optimal."""

    model: Params
    outcome: Outcome
    first: Array
    gradient: Params
    loss: Array


class SolvedPath(NamedTuple):
    """Strengths and fits, the outcome of the null model, and the unit of the tolerance.

    Example:
      >>> SolvedPath(jnp.array([4.0, 2.0]), fits=None, null_outcome=None, unit=4.0).unit
      4.0
    """

    strengths: Array
    fits: Fits
    null_outcome: Outcome
    unit: Array


def null_model(solver: Solver, params: Params, key: Key, tolerance: Any) -> Null:
    """Solve for the unpenalised parameters.

    Args:
      solver: a solver whose penalty has a ``scale_max``.
      params: the start point.
      key: PRNG key of the path.
      tolerance: largest violation, in units of the first strength.
    """
    scale_max = solver.penalty.scale_max
    assert scale_max is not None
    # A guess at the first strength, as the null model is not known yet; it only scales the
    # tolerance.
    guess = scale_max(solver.gradient(params)[1])
    own = jax.random.fold_in(key, _NULL)  # a key that no strength of the path has
    strength, first_key = beyond_all(guess.dtype), jax.random.fold_in(own, 0)
    _, fit = solver.solve(solver.begin(params, own), strength, first_key, tolerance * guess)
    loss, gradient = solver.gradient(fit.models)
    return Null(fit.models, fit.outcome, scale_max(gradient), gradient, loss)


@validated
def solve_path(
    solver: Solver,
    loops: Loops,
    params: Params,
    key: Key,
    grid: Sequence[float] | Array,
    relative: bool,
    tolerance: NonNegative,
    unit: NonNegative | None = None,
    together: Callable[[Array], Array] = lambda first: first,
) -> SolvedPath:
    """Compute the first strength from the null model, then the path.

    The null model gives the smallest strength at which it is optimal, the first one of a relative
    grid. A penalty without ``scale_max`` has no such strength: then the path starts at ``params``,
    and the grid must not be relative.

    Args:
      solver: solves for one strength.
      loops: ``TRACED`` or ``ON_HOST``.
      params: the start point.
      key: PRNG key.
      grid: the strengths, or their ratios to the first one.
      relative: whether they are ratios.
      tolerance: largest violation, in units of ``unit``.
      unit: ``None`` for the first strength, or for the largest one of a given list.
      together: under ``vmap``, returns the first strength of the path that gives them to all.

    Example:
      >>> from fcojax.transforms import l1
      >>> target = jnp.array([4.0, 1.0])  # F(w) is half the squared distance to it
      >>> def solve(start, strength, key, tolerance):
      ...     model = l1().prox(target, 1.0, strength)
      ...     return start.after(model, strength, True), Fits(model, l1().value(model, 1.0), None)
      >>> solver = Solver(
      ...     l1(), 1, lambda w: (jnp.sum((w - target) ** 2) / 2, w - target),
      ...     lambda params, key: Start.first(params), solve)
      >>> found = solve_path(
      ...     solver, ON_HOST, jnp.zeros(2), jax.random.key(0), [1.0, 0.5], True, tolerance=1e-6)
      >>> found.strengths.tolist(), found.fits.models.tolist()
      ([4.0, 2.0], [[0.0, 0.0], [2.0, 0.0]])
    """
    scale_max, null_key = solver.penalty.scale_max, jax.random.fold_in(key, _NULL)
    ratios = jnp.asarray(grid)  # or strengths, if they are not relative

    def begin(now, own):
        """Start anew at a model; the strength at which it would be optimal is the null model's."""
        if scale_max is None:
            first = jnp.ones((), jax.tree.leaves(now.model)[0].dtype)
        else:
            first = scale_max(solver.gradient(now.model)[1])
        return now._replace(start=solver.begin(now.model, own), first=first)

    def in_strengths(now, numbers):
        return numbers.astype(now.first.dtype) * (together(now.first) if relative else 1)

    def unit_of(now):
        if unit is not None:
            return unit
        # If all strengths are 0, the tolerance must not be 0, which no violation reaches.
        tiny = jnp.finfo(now.first.dtype).tiny
        strengths = in_strengths(now, ratios)
        return together(now.first) if relative else jnp.maximum(jnp.max(strengths), tiny)

    def solve_next(now, inputs):
        # The null model and the path in one loop, so that a solve is compiled once.
        index, ratio = inputs
        is_null, own = index < 0, jnp.where(index < 0, null_key, key)
        now = loops.cond(index <= 0, begin, lambda now, own: now, now, own)
        # Before the null model is known, `first` is a guess; it only scales the tolerance.
        strength = jnp.where(is_null, beyond_all(now.first.dtype), in_strengths(now, ratio))
        accuracy = tolerance * jnp.where(is_null, now.first, unit_of(now))
        # Folded by the index, so that a longer path begins with the same solves.
        solve_key = jax.random.fold_in(own, jnp.maximum(index, 0))
        start, fit = solver.solve(now.start, strength, solve_key, accuracy)
        return now._replace(start=start, model=fit.models), fit

    begun = loops.unset(begin, _Now(params, None, None), key)
    now = _Now(params, None, None) if begun is None else begun._replace(model=params)
    first_index = 0 if scale_max is None else -1
    index = jnp.arange(first_index, ratios.size, dtype=jnp.int32)
    now, fits = loops.scan(solve_next, now, (index, ratios[jnp.maximum(index, 0)]))
    if scale_max is None:
        null_outcome = _no_solve(now.first, solver.num_clients)
    else:
        null_outcome, fits = (
            jax.tree.map(lambda leaf: leaf[0], fits.outcome),
            jax.tree.map(lambda leaf: leaf[1:], fits),
        )
    return SolvedPath(in_strengths(now, ratios), fits, null_outcome, unit_of(now))


class _Now(NamedTuple):
    """A path between two solves: the last model, the next start, and the first strength."""

    model: Params
    start: Any
    first: Any


@validated
def key_of_fold(plan: Plan, key: Key, fold: Array | CountOrZero) -> Key:
    """Return the key of a path on part of the data.

    Without noise, paths share the key and so their cohorts, which is best for comparing them. With
    noise each has its own key: the difference of two releases with the same noise would have none.

    Args:
      plan: how rounds are run.
      key: PRNG key of the path on all data.
      fold: index of the part.

    Example:
      >>> import fcojax
      >>> key = jax.random.key(0)
      >>> bool(key_of_fold(fcojax.Plan(fcojax.local_steps(1)), key, 3) == key)
      True
    """
    # Without noise folds share the key, so their paths differ by the data alone.
    if not plan.uploads.noisy:
        return key
    return jax.random.fold_in(jax.random.fold_in(key, _FOLD), fold)


def beyond_all(dtype: Any) -> Array:
    """Return a strength at which every penalised parameter is zero."""
    # 4e9 in float32: beyond any gradient, and its square is finite.
    return jnp.asarray(jnp.finfo(dtype).max ** 0.25, dtype)


def _no_solve(zero: Array, num_clients: int) -> Outcome:
    """Return the outcome of a solve that is skipped."""
    none, no, sent = jnp.zeros((), jnp.int32), jnp.zeros((), bool), jnp.zeros(num_clients)
    return Outcome(
        violation=jnp.zeros_like(zero),
        rounds=none,
        checks=none,
        solved=~no,
        diverged=no,
        bytes_down=sent,
        bytes_up=sent,
    )
