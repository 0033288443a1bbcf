"""Paths of strengths over sites, and the choice of one: the solves of ``path`` as rounds."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.extend import validated
from fcojax.types import Count, Fraction, Key, NonNegative, Params
from fcojax_sites.flower.federation import Federation
from fcojax_sites.flower.loop import Report, Transport, drawn_name, met
from fcojax_sites.flower.solves import Solves, folds_of_sites, penalty_of
from fcojax_sites.selection import (
    ON_HOST,
    Criterion,
    Nonzeros,
    Path,
    Selection,
    SolvedPath,
    Split,
    by_client,
    grid_of,
    key_of_fold,
    of_target,
    search_on_host,
    selection_of,
    solve_path,
)


@validated
def path(
    federation: Federation,
    transport: Transport,
    key: Key,
    *,
    strengths: int | Sequence[float] | np.ndarray = 50,
    nonzeros: Count | Nonzeros | None = None,
    least: Fraction = 1e-2,
    tolerance: NonNegative = 1e-6,
    eval_every: Count = 10,
    max_rounds: Count = 10_000,
    run: str | None = None,
    progress: Report | None = None,
) -> Path:
    """Fit a model for each strength of the federation's penalty, as ``fcojax_sites.path`` does.

    Each solve is a separate run for the sites, and starts at the linear extrapolation of the last
    two models. The start point of the federation gives only the shapes. Its hyperparameters give
    all numbers but ``penalty_scale``; no rate is searched for. The models are those of
    ``fcojax_sites.path`` with the same algorithm, plan and key.

    Args:
      federation: a ``Federation`` with a loss and a penalty.
      transport: how messages travel.
      key: PRNG key, the only source of randomness.
      strengths: their number, or the strengths in the order in which they are solved.
      nonzeros: in place of ``strengths``, the wanted sparsity, as for ``fcojax_sites.path``; each
        tried strength is a solve over the sites.
      least: the last strength as a share of the first, if ``strengths`` is a number; a search for
        ``nonzeros`` ends there.
      tolerance: largest violation of the optimality conditions, in units of the first strength.
      eval_every: rounds between two evaluations of the violation.
      max_rounds: rounds for each strength, rounded up to a multiple of ``eval_every``.
      run: a name of the path, by which sites keep their states; drawn if it is ``None``.
      progress: called after each solve with its strength, rounds and violation.

    Returns:
      The path. Its ledger has the bytes of all messages.

    Example:
      >>> import fcojax, fcojax_sites, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax_sites import flower
      >>> from fcojax.transforms import euclidean, l1
      >>> loss = lambda w, rows: 0.5 * (rows["x"] @ w - rows["y"]) ** 2
      >>> method = fcojax.algorithms.fed_mid_osp(loss, euclidean(l1()))
      >>> federation = flower.Federation(
      ...     method, fcojax.local_steps(1), method.hparams_type(client_lr=2.0), jnp.zeros(2),
      ...     loss, l1())
      >>> rows = {"Ghent": {"x": np.eye(2), "y": np.array([4.0, 1.0])},
      ...         "Lima": {"x": np.eye(2), "y": np.array([2.0, 1.0])}}
      >>> found = flower.path(
      ...     federation, flower.in_process(federation, rows), jax.random.key(0), strengths=3,
      ...     least=0.25, eval_every=1)
      >>> found.strengths.tolist(), found.num_nonzero.tolist()
      ([1.5, 0.75, 0.375], [0, 1, 2])
    """
    run = run or drawn_name()
    sites = met(_judgeable(federation), transport, run)
    solves = Solves(federation, transport, sites, run, eval_every, max_rounds, progress)
    if nonzeros is not None:
        return _searched(solves, key, nonzeros, least, tolerance)
    grid, relative = grid_of(penalty_of(federation), strengths, least)
    return _as_path(solves, _solved(solves, key, grid, relative, tolerance))


@validated
def select(
    federation: Federation,
    transport: Transport,
    key: Key,
    *,
    by: Split | Criterion | Nonzeros | None = None,
    one_standard_error: bool = True,
    strengths: int | Sequence[float] | np.ndarray = 50,
    least: Fraction = 1e-2,
    tolerance: NonNegative = 1e-5,
    eval_every: Count = 10,
    max_rounds: Count = 10_000,
    run: str | None = None,
    progress: Report | None = None,
) -> Selection:
    """Choose the strength of the federation's penalty, as ``fcojax_sites.select`` does.

    Folds hold out sites, one path after the other; a held-out site sends its loss at each model.
    There is no refit.

    Args:
      federation: a ``Federation`` with a loss and a penalty.
      transport: how messages travel.
      key: PRNG key, the only source of randomness.
      by: ``selection.by_client()``, the default, ``by_client(k)``, ``hold_out(share,
        clients=True)``, a criterion, or ``selection.nonzeros(5)`` for a model with that sparsity.
        Folds of rows are refused, since no message asks for them.
      one_standard_error: as for ``fcojax_sites.select``.
      strengths: their number, or the strengths in the order in which they are solved.
      least: the last strength as a share of the first, if ``strengths`` is a number.
      tolerance: largest violation of the optimality conditions, in units of the first strength.
      eval_every: rounds between two evaluations of the violation.
      max_rounds: rounds for each strength, rounded up to a multiple of ``eval_every``.
      run: a name of the choice, by which sites keep their states; drawn if it is ``None``.
      progress: called after each solve with its strength, rounds and violation.

    Returns:
      The path on all sites, the losses, which are means over rows, and the choice.

    Example:
      >>> import fcojax, fcojax_sites, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax_sites import flower
      >>> from fcojax.transforms import euclidean, l1
      >>> loss = lambda w, rows: 0.5 * (rows["x"] @ w - rows["y"]) ** 2
      >>> method = fcojax.algorithms.fed_mid_osp(loss, euclidean(l1()))
      >>> federation = flower.Federation(
      ...     method, fcojax.local_steps(1), method.hparams_type(client_lr=2.0), jnp.zeros(2),
      ...     loss, l1())
      >>> rows = {"Ghent": {"x": np.eye(2), "y": np.array([4.0, 1.0])},
      ...         "Lima": {"x": np.eye(2), "y": np.array([2.0, 1.0])}}
      >>> found = flower.select(
      ...     federation, flower.in_process(federation, rows), jax.random.key(0), strengths=3,
      ...     least=0.25, eval_every=1)
      >>> found.scores.shape, found.strength  # each site judges the path of the other
      ((2, 3), 1.5)
    """
    by = by_client() if by is None else by
    run = run or drawn_name()
    sites = met(_judgeable(federation), transport, run)
    solves = Solves(federation, transport, sites, run, eval_every, max_rounds, progress)
    if isinstance(by, Nonzeros):
        return of_target(by, _searched(solves, key, by, least, tolerance))
    grid, relative = grid_of(penalty_of(federation), strengths, least)
    solved = _solved(solves, key, grid, relative, tolerance)
    found = _as_path(solves, solved)
    models = _each(found.models, found.strengths.size)
    if isinstance(by, Criterion):
        sizes = np.array([site.num_examples for site in sites], float)
        losses = solves.on(sizes, "validation").losses(models)
        size = sum(leaf.size for leaf in jax.tree.leaves(models[0]))
        nonzero = np.asarray(found.num_nonzero)
        scores = by.scores(losses, nonzero, float(sizes.sum()), size)[None]
        name, outcome = by.name, None
    else:
        folds = folds_of_sites(by, solves.server.data, key)
        rows, outcomes = [], []
        plan, parts = federation.plan, zip(folds.train.clients, folds.held.clients, strict=True)
        for index, (train, held) in enumerate(parts):
            fold = solves.on(np.asarray(train), "tune paths")
            own = key_of_fold(plan, key, index)
            of_fold = _solved(fold, own, found.strengths, False, tolerance, solved.unit)
            models = _each(of_fold.fits.models, found.strengths.size)
            rows.append(solves.on(np.asarray(held), "validation").losses(models))
            outcomes.append(of_fold.fits.outcome)
        scores = np.array(rows)
        name, outcome = "loss on held-out data", _stacked(outcomes)
    found = found._replace(ledger=solves.ledger())
    return selection_of(found, name, scores, one_standard_error, fold_outcome=outcome)


def _solved(
    solves: Solves, key: Key, grid: Any, relative: bool, tolerance: Any, unit: Any = None
) -> SolvedPath:
    """Solve for each strength, one after the other."""
    zeros = tree.zeros_like(solves.federation.params)
    return solve_path(solves.solver(), ON_HOST, zeros, key, grid, relative, tolerance, unit)


def _as_path(solves: Solves, found: SolvedPath) -> Path:
    return Path(found.strengths, *found.fits, solves.ledger())


def _searched(solves: Solves, key: Key, nonzeros: int | Nonzeros, least, tolerance) -> Path:
    """Search for a strength as ``fcojax_sites.path`` does, with solves over the sites."""
    zeros = tree.zeros_like(solves.federation.params)
    strengths, fits, tried = search_on_host(solves.solver(), nonzeros, zeros, key, least, tolerance)
    return Path(strengths, *fits, solves.ledger(), tried)


def _judgeable(federation: Federation) -> Federation:
    """Raise ``ValueError`` unless the federation has what a path needs."""
    if federation.loss is None or not hasattr(federation.hparams, "penalty_scale"):
        raise ValueError(
            "a path needs the violation and a strength; pass Federation(..., loss=loss, "
            "penalty=penalty) and an algorithm with a penalty_scale."
        )
    return federation


def _each(models: Params, count: int) -> list[Params]:
    return [jax.tree.map(lambda leaf, i=i: leaf[i], models) for i in range(count)]


def _stacked(parts: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
