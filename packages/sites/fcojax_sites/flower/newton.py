r"""Penalised regression over real sites by proximal Newton steps on sums of moments.

For models :math:`w_1, \dots, w_k` the sites send the sums of losses, gradients and Hessians in one
exchange. The server minimises

.. math:: \langle g, v - w \rangle + \tfrac12 (v - w)^T H (v - w) + \lambda \psi(v)

for each of them, and halves the steps that increase the objective. All strengths of a path, on all
data and without each fold, are such models side by side, so the number of exchanges is that of the
slowest: about ten. An exchange sends k p^2 numbers, so the strengths of a wide table go in blocks.

Lee, Sun and Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM J.
Optim. 2014.
"""

import functools
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax.extend import Outcome, symmetric_eigh, validated, violation_at
from fcojax.types import Array, Count, Fraction, Key, NonNegative, Params
from fcojax_sites.flower.solves import folds_of_sites, penalty_of
from fcojax_sites.flower.sums import Sums
from fcojax_sites.selection import (
    Criterion,
    Fits,
    Nonzeros,
    Path,
    Selection,
    Solver,
    Split,
    Start,
    by_client,
    grid_of,
    of_target,
    search_on_host,
    selection_of,
)
from fcojax_sites.selection.select import HELD_OUT, PER_EVENT, per_event

_MOST_NUMBERS = 2_000_000  # of the Hessians in one exchange: 16 MB
_INNER = 20_000  # proximal gradient steps for one quadratic
_FREE = 1e-8  # the violation without the penalty, in units of the first strength
_SEPARATED = 1e-4  # the share of its curvature at zero that a separated column has at its estimate
_SINGULAR = 1e-8  # the share of a column's curvature that the columns before it leave


class Collinear(NamedTuple):
    """A parameter that others determine, so that neither has an effect of its own.

    Attributes:
      index: its place in the kernel.
      others: the places of the others; empty if the column is constant, in Cox regression within
        every site.

    Example:
      >>> Collinear(2, (0, 1)).others
      (0, 1)
    """

    index: int
    others: tuple[int, ...]


class Regression(NamedTuple):
    """A selection over real sites, with unpenalised estimates and models without each site.

    Attributes:
      selection: the path, the losses and the choice; ``refit`` has no penalty on its support.
      estimate: the model without the penalty on ``estimated``.
      error: its standard errors: sandwich ones, from the Hessian alone in Cox regression.
      low: the lower ends of the 95 per cent intervals.
      high: the upper ends.
      estimated: [columns], which columns have an estimate: all but the collinear and separated ones
        or, if the solves do not end, those of the choice.
      collinear: the columns that others determine.
      separated: the columns without a finite estimate, as one whose patients all survive.
      left_out: one model for each site, fitted without it at the chosen strength.
      exchanges: number of exchanges.

    Example:
      >>> Regression._fields[:3]
      ('selection', 'estimate', 'error')
    """

    selection: Selection
    estimate: Params
    error: Params
    low: Params
    high: Params
    estimated: np.ndarray
    collinear: tuple[Collinear, ...]
    separated: tuple[int, ...]
    left_out: list[Params]
    exchanges: int


@validated
def regress(
    sites: Sums,
    found: Any,
    *,
    by: Split | Criterion | Nonzeros | None = None,
    one_standard_error: bool = True,
    strengths: int | Sequence[float] | np.ndarray = 20,
    least: Fraction = 1e-2,
    tolerance: NonNegative = 1e-8,
    max_exchanges: Count = 40,
    key: Key | None = None,
) -> Regression:
    """Choose the strength of the federation's penalty as ``select`` does, from moments.

    The models are those of ``fcojax_sites.select`` on the scaled columns, up to both tolerances.

    Args:
      sites: the sites of a federation from ``tabular``.
      found: their ``statistics``, which give the scaling.
      by: as for ``fcojax_sites.select``, with folds of sites, not of rows.
      one_standard_error: as for ``fcojax_sites.select``.
      strengths: their number, or the strengths.
      least: the last strength as a share of the first.
      tolerance: largest violation of the optimality conditions, in units of the first strength;
        single precision does not reach the default, so pass 1e-5 there.
      max_exchanges: the largest number of exchanges for strengths that are solved side by side.
      key: PRNG key of random folds; ``None`` for ``jax.random.key(0)``.

    Example:
      >>> from fcojax_sites import flower
      >>> from fcojax.transforms import l1, named, on_subtree
      >>> rng = np.random.default_rng(0)
      >>> federation = flower.tabular("linear", on_subtree(l1(), named("kernel")), 2)
      >>> rows = {}
      >>> for name in ("Ghent", "Lima", "Oslo"):
      ...     x = rng.normal(size=(40, 2))
      ...     y = x[:, 0] + 0.1 * rng.normal(size=40)
      ...     rows[name] = {"x": x, "present": np.ones((40, 2)), "y": y}
      >>> sites = flower.Sums(federation, flower.in_process(federation, rows))
      >>> found = flower.regress(sites, flower.statistics(sites), strengths=4, tolerance=1e-4)
      >>> found.selection.model["kernel"].round(1).tolist(), found.exchanges < 20
      ([1.0, 0.0], True)
    """
    by = by_client() if by is None else by
    key = jax.random.key(0) if key is None else key
    moments = _Moments(sites, found.scaling, max_exchanges)
    null = moments.solved(moments.zeros(1), moments.shares(None), [moments.beyond], "start", 0)
    if moments.penalty.scale_max is None:
        raise ValueError(
            "the penalty has no scale_max, so the first strength of its path is unknown; pass "
            "another one, such as l1()."
        )
    first = float(moments.penalty.scale_max(moments.params(null.gradient[0])))
    moments.absolute = tolerance * first
    if isinstance(by, Nonzeros):
        given = moments.params(moments.zeros(1)[0]), key, least, tolerance
        grid, fits, search = search_on_host(moments.solver(), by, *given)
        selection = of_target(by, Path(grid, *fits, sites.ledger(), search))
    else:
        grid, relative = grid_of(moments.penalty, strengths, least)
        grid = grid * (first if relative else 1)
        events = found.events if "time" in found.outcome else None
        selection = moments.selected(by, grid, null, key, one_standard_error, events)
    start, strength = moments.flat(selection.model), selection.strength
    without = 1 - np.eye(len(sites.sites))
    left_out = moments.solved(
        np.tile(start, (len(without), 1)),
        moments.shares(without),
        np.full(len(without), strength),
        "left out",
    )
    # The server adds in double precision what the sites may have summed in single.
    singular = max(_SINGULAR, 100 * float(jnp.finfo(moments.dtype).eps))
    collinear = _collinear(null.hessian[0], singular)
    shift = start.size - np.size(selection.model["kernel"])  # the bias is in front
    masks = np.ones((2, start.size), bool)
    masks[0] = start != 0
    masks[0, :shift] = True
    masks[1, [index for index, _ in collinear]] = False
    # At a larger violation a separated column looks like one of a very large error.
    limit = min(tolerance, _FREE if moments.dtype == np.float64 else np.inf) * first
    part = "without the penalty"
    free = moments.solved(masks * start, moments.shares(None, 2), np.zeros(2), part, limit, masks)
    which = 1 if free.solved[1] else 0
    error = moments.errors(free, which, masks[which])
    # Beside a separated column the others have their estimates in the limit.
    share = _variances(null.hessian[0], masks[which]) / _variances(
        free.hessian[which], masks[which]
    )
    separated = np.flatnonzero(masks[which] & ~(share > _SEPARATED))
    masks[which, separated] = False
    error[separated] = 0
    margin = statistics.NormalDist().inv_cdf(0.975) * error
    estimate, params = free.models[which], moments.params
    selection = selection._replace(
        path=selection.path._replace(ledger=sites.ledger()),
        refit=params(free.models[0]),
        refit_outcome=moments.outcome(free, slice(0, 1)),
        ledger=sites.ledger(),
    )
    return Regression(
        selection,
        params(estimate),
        params(error),
        params(estimate - margin),
        params(estimate + margin),
        masks[which, shift:],
        tuple(
            Collinear(index - shift, tuple(one - shift for one in others if one >= shift))
            for index, others in collinear
        ),
        tuple(int(index) - shift for index in separated if index >= shift),
        [params(model) for model in left_out.models],
        sites.ledger().rounds,
    )


class _Solved(NamedTuple):
    """Models [k, parameters], and what is known at them."""

    models: np.ndarray
    losses: np.ndarray  # [k, sites], sums
    gradient: np.ndarray
    hessian: np.ndarray
    objective: np.ndarray
    violation: np.ndarray
    solved: np.ndarray
    exchanges: np.ndarray


class _Moments:
    """The moments of the sites, and solves with them."""

    def __init__(self, sites: Sums, scaling: dict[str, np.ndarray], max_exchanges: int):
        federation = sites.server.federation
        self.sites, self.scaling, self.most = sites, scaling, max_exchanges
        self.penalty = penalty_of(federation)
        flat, unravel = ravel_pytree(federation.params)
        self.params: Any = unravel
        self.size, self.dtype, self.absolute = flat.size, flat.dtype, 0.0
        self.beyond = float(jnp.finfo(flat.dtype).max) ** 0.25
        self.weights = np.asarray(sites.server.data.weights, float)
        self.sizes = np.array([site.num_examples for site in sites.sites], float)

    def flat(self, params: Params) -> np.ndarray:
        return np.asarray(ravel_pytree(params)[0])

    def zeros(self, count: int) -> np.ndarray:
        return np.zeros((count, self.size), self.dtype)

    def shares(self, kept: Any, count: int = 1) -> np.ndarray:
        """Return the weight of a row of each site, [k, sites], where only the kept sites count."""
        weights = (np.ones((count, 1)) if kept is None else np.asarray(kept)) * self.weights
        return weights / weights.sum(axis=1, keepdims=True) / self.sizes

    def ask(self, models: np.ndarray, part: str) -> dict[str, np.ndarray]:
        given = {"models": models.astype(self.dtype)} | {
            name: value.astype(self.dtype) for name, value in self.scaling.items()
        }
        return self.sites.ask("moments", given, part)

    def solved(self, start, shares, strengths, part: str, tolerance=None, masks=None) -> _Solved:
        """Solve for several models side by side, [k, parameters].

        Args:
          start: where they start.
          shares: [k, sites], the weights of the rows.
          strengths: [k].
          part: the part of the work, for the ledger.
          tolerance: the largest violation; by default that of the path.
          masks: [k, parameters], which parameters are free; then there is no penalty.
        """
        strengths = np.asarray(strengths, self.dtype)
        tolerance = self.absolute if tolerance is None else tolerance
        trial, last = np.array(start, self.dtype), None
        exchanges = np.zeros(len(trial), int)
        for _ in range(self.most):
            found = self.ask(trial, part)
            now = self._judged(trial, found, shares, strengths, masks)
            worse = np.zeros(len(trial), bool)
            if last is not None:
                slack = 1e3 * float(jnp.finfo(self.dtype).eps) * (1 + np.abs(last.objective))
                worse = ~(now.objective <= last.objective + slack)
                now = jax.tree.map(functools.partial(_where, worse), last, now)
            exchanges += ~(last.solved if last is not None else np.zeros(len(trial), bool))
            limit = tolerance or 1e3 * float(jnp.finfo(self.dtype).eps) * (
                1 + np.linalg.norm(now.gradient, axis=1)
            )
            now = now._replace(solved=now.violation <= limit, exchanges=exchanges.copy())
            last = now
            if now.solved.all():
                break
            if masks is None:
                step = _steps(
                    self.penalty, self.params, now.models, now.gradient, now.hessian, strengths
                )
            else:
                step = now.models - np.stack(
                    [_direction(*one) for one in zip(now.gradient, now.hessian, masks, strict=True)]
                )
            # A step that made it worse is halved, unless the start itself was not finite.
            trial = _where(worse, (now.models + trial) / 2, np.asarray(step))
            trial = _where(now.solved, now.models, trial)
        assert last is not None
        return last

    def _judged(self, models, found, shares, strengths, masks) -> _Solved:
        losses = found["loss"].T
        value = np.sum(shares * losses, axis=1)
        gradient = np.einsum("ks,skp->kp", shares, found["gradient"])
        hessian = np.einsum("ks,skpq->kpq", shares, found["hessian"])
        if masks is None:
            psi, violation = _penalised(self.penalty, self.params, models, gradient, strengths)
        else:
            psi, violation = 0.0, np.linalg.norm(gradient * masks, axis=1)
        none = np.zeros(len(models), bool)
        objective = value + np.asarray(psi)
        violation = np.asarray(violation)
        return _Solved(models, losses, gradient, hessian, objective, violation, none, none)

    def selected(
        self,
        by: Any,
        grid: np.ndarray,
        null: _Solved,
        key: Key,
        one_standard_error: bool,
        events: np.ndarray | None,
    ) -> Selection:
        """Solve all strengths on all data and without each fold, and choose one."""
        kept, held = np.ones((1, len(self.sizes))), np.zeros((0, len(self.sizes)))
        if not isinstance(by, Criterion):
            folds = folds_of_sites(by, self.sites.server.data, key)
            parts = (np.asarray(part.clients) > 0 for part in (folds.train, folds.held))
            train, held = (part.astype(float) for part in parts)
            kept = np.concatenate([kept, train])
        num, blocks = len(kept), []
        size = max(1, int(_MOST_NUMBERS // (num * self.size**2)))
        start = np.tile(null.models[0], (num, 1))
        for at in range(0, len(grid), size):
            block = grid[at : at + size]
            repeats = len(block)
            shares = np.repeat(self.shares(kept), repeats, axis=0)
            starts = np.repeat(start, repeats, axis=0)
            one = self.solved(starts, shares, np.tile(block, num), "path")
            one = jax.tree.map(lambda a, r=repeats: a.reshape(num, r, *a.shape[1:]), one)
            blocks.append(one)
            start = one.models[:, -1]
        every = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *blocks)
        whole, folds_only = (jax.tree.map(lambda a, s=s: a[s], every) for s in (0, slice(1, None)))
        models = jax.vmap(self.params)(jnp.asarray(whole.models))
        outcome = self.outcome(whole)
        path = Path(
            jnp.asarray(grid, self.dtype),
            models,
            jnp.asarray(whole.objective),
            outcome,
            self.sites.ledger(),
        )
        if isinstance(by, Criterion):
            nonzero = np.asarray(path.num_nonzero)
            losses = whole.losses @ self.shares(None)[0]
            scores = by.scores(losses, nonzero, float(self.sizes.sum()), self.size)[None]
            return selection_of(path, by.name, scores, one_standard_error)
        scores, name = np.einsum("fs,fgs->fg", self.shares(held), folds_only.losses), HELD_OUT
        if events is not None:
            scores, name = per_event(scores, self.shares(held) @ events), PER_EVENT
        return selection_of(
            path, name, scores, one_standard_error, fold_outcome=self.outcome(folds_only)
        )

    def outcome(self, of: _Solved, which: Any = ...) -> Outcome:
        solved = np.asarray(of.solved)[which]
        sent = np.zeros((*solved.shape, len(self.sizes)))  # the ledger has the bytes of all
        exchanges = jnp.asarray(of.exchanges[which])
        return Outcome(
            violation=jnp.asarray(of.violation[which]),
            rounds=exchanges,
            checks=exchanges,
            solved=jnp.asarray(solved),
            diverged=jnp.asarray(~np.isfinite(of.objective[which])),
            bytes_down=jnp.asarray(sent),
            bytes_up=jnp.asarray(sent),
        )

    def solver(self) -> Solver:
        """Return the solver of a search, one strength at a time."""
        shares = self.shares(None)

        def gradient(params):
            found = self.ask(self.flat(params)[None], "search")
            value = shares[0] @ found["loss"][:, 0]
            slope = np.einsum("s,sp->p", shares[0], found["gradient"][:, 0])
            return jnp.asarray(value), self.params(jnp.asarray(slope))

        def solve(start, strength, key, tolerance):
            model = self.flat(start.extrapolated(strength))[None]
            one = self.solved(model, shares, [float(strength)], "search", float(tolerance))
            fit = jax.tree.map(lambda leaf: leaf[0], self.outcome(one))
            found = self.params(jnp.asarray(one.models[0]))
            following = start.after(found, strength, bool(one.solved[0]))
            return following, Fits(found, jnp.asarray(one.objective[0]), fit)

        def begin(params, key):
            return Start.first(params)

        return Solver(self.penalty, len(self.sizes), gradient, begin, solve)

    def errors(self, free: _Solved, which: int, mask: np.ndarray) -> np.ndarray:
        """Return the standard errors of a model without the penalty, 0 outside the mask."""
        own, both = self.shares(None)[0], np.ix_(mask, mask)
        inverse = np.linalg.inv(free.hessian[which][both])
        if "time" in self.sites.sites[0].columns:  # minus the Hessian is the information
            weight = np.sum(own * self.sizes) / self.sizes.sum()
            covariance = inverse * weight
        else:
            given = self.scaling | {"model": free.models[which].astype(self.dtype)}
            outer = np.einsum("s,spq->pq", own**2, self.sites.ask("spread", given)["outer"])[both]
            rows = 1 / np.sum(own**2 * self.sizes)
            covariance = rows / max(rows - mask.sum(), 1) * inverse @ outer @ inverse
        error = np.zeros(self.size)
        error[mask] = np.sqrt(np.diagonal(covariance))
        return error


def _where(mask: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.where(mask.reshape(-1, *(1,) * (one.ndim - 1)), one, other)


def _variances(hessian: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the diagonal of the inverse on the mask, 1 elsewhere."""
    found = np.ones(len(hessian))
    found[mask] = np.diagonal(np.linalg.inv(hessian[np.ix_(mask, mask)]))
    return found


def _direction(gradient: np.ndarray, hessian: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the Newton direction on the free parameters."""
    direction = np.zeros_like(gradient)
    direction[mask] = np.linalg.lstsq(hessian[np.ix_(mask, mask)], gradient[mask], rcond=None)[0]
    return direction


@functools.partial(jax.jit, static_argnums=(0, 1))
def _penalised(penalty, unravel, models, gradients, strengths) -> tuple[Array, Array]:
    """Return the penalty and the violation of each model."""

    def one(model, gradient, strength):
        params = unravel(model)
        violation = violation_at(unravel(gradient), penalty, strength, params)
        return penalty.value(params, strength), violation

    return jax.vmap(one)(models, gradients, strengths)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _steps(penalty, unravel, models, gradients, hessians, strengths) -> Array:
    """Minimise each quadratic plus penalty by accelerated proximal steps with restarts."""

    def one(model, gradient, hessian, strength):
        values, _ = symmetric_eigh(hessian)
        step = 1 / jnp.maximum(values[-1], jnp.finfo(model.dtype).tiny)
        eps = jnp.finfo(model.dtype).eps

        def goes_on(now):
            v, _, _, moved, count = now
            return (count < _INNER) & (moved > eps * (1 + jnp.max(jnp.abs(v))))

        def improve(now):
            v, ahead, t, _, count = now
            slope = gradient + hessian @ (ahead - model)
            after = ravel_pytree(penalty.prox(unravel(ahead - step * slope), step, strength))[0]
            momentum = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
            # O'Donoghue and Candes: restart where the momentum points uphill.
            uphill = jnp.sum((ahead - after) * (after - v)) > 0
            t_next = jnp.where(uphill, jnp.ones_like(t), momentum)
            share = jnp.where(uphill, jnp.zeros_like(t), (t - 1) / momentum)
            return (
                after,
                after + share * (after - v),
                t_next,
                jnp.max(jnp.abs(after - v)),
                count + 1,
            )

        zero = jnp.zeros((), jnp.int32)
        start = model, model, jnp.ones((), model.dtype), jnp.full((), jnp.inf, model.dtype), zero
        return jax.lax.while_loop(goes_on, improve, start)[0]

    return jax.vmap(one)(models, gradients, hessians, strengths)


def _collinear(hessian: np.ndarray, singular: float) -> list[tuple[int, tuple[int, ...]]]:
    """Return the parameters that earlier ones determine, with these."""
    diagonal = np.diagonal(hessian)
    units = np.sqrt(np.where(diagonal > 0, diagonal, 1))
    scaled, kept, found = hessian / units[:, None] / units[None, :], [], []
    for index in range(len(hessian)):
        share = np.zeros(0)
        if kept:
            share = np.linalg.solve(scaled[np.ix_(kept, kept)], scaled[kept, index])
        if scaled[index, index] - share @ scaled[kept, index] > singular:
            kept.append(index)
        else:
            others = [at for at, one in zip(kept, share, strict=True) if abs(one) > 1e-4]
            found.append((index, tuple(others)))
    return found
