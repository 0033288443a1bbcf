"""The choice of a penalty's strength: folds or criteria, and a model to ship."""

import dataclasses
import functools
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.algorithms.work import checked_count
from fcojax.device import in_full_precision
from fcojax.engine.ragged import sizes_matter
from fcojax.engine.solve import Outcome
from fcojax.problems.clients import ClientData
from fcojax.problems.fields import shown
from fcojax.problems.problem import Problem, population_loss
from fcojax.selection.criteria import Criterion
from fcojax.selection.folds import Folds, Split, by_client, fold_of, stacked, weighted_loss
from fcojax.selection.ledger import Entry, Ledger, shown_bytes
from fcojax.selection.path import (
    REFIT_LOOKS,
    Path,
    Setup,
    Walk,
    along,
    default_method,
    entry_of,
    exchanged,
    exchanges,
    grid_of,
    names_of,
    null_model,
    num_nonzero,
    prepared,
)
from fcojax.selection.show import draw_path, draw_scores
from fcojax.transforms import Penalty, box
from fcojax.types import Key, Params


class Selection(NamedTuple):
    """A chosen strength, why it was chosen, and the model that goes with it.

    Attributes:
      path: the models of all strengths on all data.
      by: what they were judged by, in words.
      scores: [draws and folds, strengths], the mean loss on what was held out; or one row of a
        criterion.
      mean: of the scores over the folds.
      standard_error: of that mean over the folds of one draw, for a site is one judge however often
        it is asked; over the draws where each has one fold, and NaN where there is one in all.
      best: which strength has the least mean score; of equal ones the strongest.
      chosen: which one was chosen.
      model: that of the path at the chosen strength.
      refit: the model without the penalty on the support of ``model``, or ``None``.
      refit_outcome: how that solve ended.
      ledger: everything that was sent.
      fold_outcome: how the solves of the folds ended, [draws and folds, strengths]; ``None`` for a
        criterion.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> from fcojax.selection import Path, Selection
      >>> models = jnp.array([[0.0, 0.0], [1.5, 0.0], [1.9, 0.2]])
      >>> strengths = jnp.array([4.0, 1.0, 0.25])
      >>> path = Path(strengths, models, objective=None, outcome=None, ledger=None)
      >>> found = Selection(
      ...     path, by="five folds", scores=None, mean=np.array([8.0, 3.1, 3.0]),
      ...     standard_error=np.array([0.5, 0.2, 0.2]), best=2, chosen=1, model=models[1],
      ...     refit=None, refit_outcome=None, ledger=None)
      >>> found.strength, found.model.tolist()  # of models within one standard error the sparsest
      (1.0, [1.5, 0.0])
    """

    path: Path
    by: str
    scores: np.ndarray
    mean: np.ndarray
    standard_error: np.ndarray
    best: int
    chosen: int
    model: Params
    refit: Params | None
    refit_outcome: Outcome | None
    ledger: Ledger
    fold_outcome: Outcome | None = None

    @property
    def strength(self) -> float:
        """The chosen strength."""
        return float(self.path.strengths[self.chosen])

    def __str__(self) -> str:
        nonzero = np.asarray(self.path.num_nonzero)
        lines = [f"  {'strength':>10} {'nonzero':>8} {'score':>11} {'error':>9}"]
        for index, strength in enumerate(np.asarray(self.path.strengths)):
            mark = ">" if index == self.chosen else "*" if index == self.best else " "
            lines.append(
                f"{mark} {strength:10.4g} {nonzero[index]:8} {self.mean[index]:11.6g} "
                f"{self.standard_error[index]:9.3g}"
            )
        sent = f"{shown_bytes(self.ledger.bytes_down)} down, {shown_bytes(self.ledger.bytes_up)} up"
        lines.append(
            f"chosen by {self.by}: strength {self.strength:.4g} with {nonzero[self.chosen]} "
            f"parameters that are not zero; {sent}"
        )
        unsolved = {
            "strengths": self.path.outcome.solved,
            "solves of folds": () if self.fold_outcome is None else self.fold_outcome.solved,
        }
        for what, solved in unsolved.items():
            if count := np.sum(~np.asarray(solved, bool)):
                lines.append(
                    f"{count} of {np.size(solved)} {what} are not solved; scale the features to "
                    "variance 1, or allow more rounds"
                )
        return "\n".join(lines)

    def plot(self, axes: Any = None) -> Any:
        """Draws the scores over the strength with matplotlib; returns the axes."""
        return draw_scores(self, axes)

    def plot_path(self, axes: Any = None, names: Sequence[str] | None = None) -> Any:
        """Draws the parameters over the strength, with the choice; returns the axes.

        With names, one a feature, there is a legend of those that are not zero throughout.
        """
        return draw_path(self.path, axes, self.chosen, names)


def select(
    problem: Problem,
    penalty: Penalty,
    *,
    by: Split | Criterion | None = None,
    one_standard_error: bool = True,
    num_draws: int = 1,
    refit: bool = True,
    strengths: Any = 50,
    least: float = 1e-2,
    key: Key | None = None,
    method: Any = None,
    hparams: Any = None,
    plan: Any = None,
    tolerance: float = 1e-5,
    check_every: int = 10,
    max_rounds: int = 10_000,
) -> Selection:
    """Chooses the strength of a penalty, and says what that cost.

    A path on all data and one for every fold run as one program, with a fold's clients and examples
    given by their weights. A fold's models are judged by the mean loss of those it has not seen.

    Args:
      problem: as for ``fcojax.path``.
      penalty: psi.
      by: ``selection.by_client()`` leaves one client out, which is the default, ``by_client(k)``
        groups of them, ``by_example(k)`` rows of each, ``hold_out(share)`` judges once; or a
        criterion, ``selection.bic()`` and its like.
      one_standard_error: takes the strongest penalty whose mean score is within one standard error
        of the least one; else the least. Of equal scores the sparser model wins.
      num_draws: how often the folds are drawn anew, where that makes others.
      refit: whether to fit the chosen support once more without the penalty. That is for penalties
        that set entries to zero.
      strengths: as for ``fcojax.path``, and so are those that follow.
      least: the last strength as a share of the first.
      key: all the luck, that of the folds included.
      method: ``loss -> algorithm``.
      hparams: the method's hyperparameters.
      plan: how rounds are driven.
      tolerance: on the violation, in units of the first strength.
      check_every: rounds between two looks.
      max_rounds: for each strength.

    Example:
      >>> import fcojax, numpy as np
      >>> x, y = np.eye(4, dtype=np.float32) * 2, np.array([4.0, 1.0, 0.0, 0.0], np.float32)
      >>> data = fcojax.from_rows({"x": x, "y": y}, [2, 2])
      >>> problem = fcojax.problems.least_squares(data)
      >>> found = fcojax.select(
      ...     problem, fcojax.transforms.l1(), by=fcojax.selection.aic(), strengths=3, least=0.25,
      ...     refit=False)
      >>> found.path.strengths.tolist(), found.path.num_nonzero.tolist(), found.chosen
      ([2.0, 1.0, 0.5], [0, 1, 1], 2)
    """
    setup, hparams, params, key = prepared(
        problem, penalty, key, method, hparams, plan, check_every, max_rounds
    )
    grid = grid_of(penalty, strengths, least)
    by = by_client() if by is None else by
    data, folds, lanes = problem.train, None, setup
    criterion = by if isinstance(by, Criterion) else None
    if not isinstance(by, Criterion):
        folds = _drawn(by, data, key, num_draws)
        if folds.train.rows is not None:
            loss = weighted_loss(problem.loss)
            algorithm = (method or default_method(penalty))(loss)
            lanes = setup._replace(algorithm=algorithm, loss=loss)
        lanes = lanes._replace(plan=_side_by_side(lanes.plan, data))
    walk, values, first, tuned = _search(
        (setup, lanes), hparams, params, data, key, folds, grid[0], grid[1], tolerance
    )
    if criterion is not None:
        scores = _criterion_scores(criterion, problem, walk)
    else:
        scores = np.asarray(tuned[2])
    mean, error = scores.mean(axis=0), _standard_error(scores, num_draws)
    best, chosen = _choice(mean, error, np.asarray(values), one_standard_error)
    model = jax.tree.map(lambda leaf: leaf[chosen], walk.models)
    again, outcome = _refitted(problem, setup, model, key, tolerance) if refit else (None, None)
    ledger = _ledger(setup, data, walk, first, folds, tuned, outcome)
    along_path = Path(values, walk.models, walk.objective, walk.outcome, ledger)
    words = by.name if isinstance(by, Criterion) else "loss on held-out data"
    fold_outcome = None if folds is None else tuned[1]
    return Selection(
        along_path, words, scores, mean, error, best, chosen, model, again, outcome, ledger,
        fold_outcome,
    )  # fmt: skip


def _drawn(split: Split, data: ClientData, key: Key, num_draws: int) -> Folds:
    if not callable(split):
        raise ValueError(
            f"by is {shown(split)}; pass a split, as in by_client(), or a criterion, as in bic()."
        )
    try:
        inspect.signature(split).bind(data, key)
    except TypeError:
        name = getattr(split, "__name__", "the function")
        raise ValueError(f"by is the function {name}; call it: {name}().") from None
    if data.mesh is not None:
        raise ValueError("the population is on a mesh; pass the original, folds run side by side.")
    count = checked_count("num_draws", num_draws)
    draws = [split(data, jax.random.fold_in(key, draw)) for draw in range(count)]
    if count > 1 and all(_as_sets(folds) == _as_sets(draws[0]) for folds in draws):
        raise ValueError(
            f"num_draws is {count} but every draw has the same folds, which would count the same "
            "judges again; pass num_draws=1, or folds that are drawn, as by_client(2)."
        )
    return stacked(draws)


def _as_sets(folds: Folds) -> set[bytes]:
    """The folds in no order."""
    sides = [np.asarray(leaf) > 0 for leaf in folds.held if leaf is not None]
    return {np.concatenate(fold).tobytes() for fold in zip(*sides, strict=True)}


def _side_by_side(plan, data):
    """Clients one by one if they differ in size: side by side, each fold would sort them anew."""
    if plan.client_chunk_size is None and sizes_matter(plan.work, data):
        return plan._replace(client_chunk_size=1)
    return plan


@functools.partial(jax.jit, static_argnums=(0, 7))
@in_full_precision
def _search(setups, hparams, params, data, key, folds, grid, relative, tolerance):
    """The path of all data, and those of all folds with the scores of their models."""
    setup, lanes = setups
    null, first, top = null_model(setup, hparams, params, data, key, tolerance)
    strengths = jnp.asarray(grid, top.dtype) * (top if relative else 1)
    unit = top if relative else jnp.maximum(jnp.max(strengths), jnp.finfo(top.dtype).tiny)
    walk = along(setup, hparams, null, strengths, data, key, tolerance * unit)
    if folds is None:
        return walk, strengths, first, None

    def one_fold(train, held):
        seen = fold_of(train, data)
        start, null_outcome, _ = null_model(lanes, hparams, params, seen, key, tolerance)
        fold = along(lanes, hparams, start, strengths, seen, key, tolerance * unit)
        judge = fold_of(held, data)
        scores = jax.vmap(lambda model: population_loss(lanes.loss, model, judge))(fold.models)
        return null_outcome, fold.outcome, scores

    return walk, strengths, first, jax.vmap(one_fold)(folds.train, folds.held)


def _criterion_scores(criterion: Criterion, problem: Problem, walk: Walk) -> np.ndarray:
    """One row: the likelihood is that of all examples, whatever the clients' weights are."""
    sizes = problem.train.sizes.astype(problem.train.weights.dtype)
    pooled = dataclasses.replace(problem.train, weights=sizes)
    losses = jax.jit(jax.vmap(lambda model: population_loss(problem.loss, model, pooled)))
    nonzero = np.asarray(num_nonzero(walk.models, 1))
    size = sum(leaf[0].size for leaf in jax.tree.leaves(walk.models))
    number = float(np.sum(np.asarray(sizes)))
    return criterion.scores(np.asarray(losses(walk.models)), nonzero, number, size)[None]


def _standard_error(scores: np.ndarray, num_draws: int) -> np.ndarray:
    """Of the mean score, over the folds of a draw; over the draws if these have one fold each."""
    judges = scores.reshape(num_draws if scores.shape[0] > num_draws else 1, -1, scores.shape[1])
    if judges.shape[1] == 1:
        return np.full(scores.shape[1], np.nan)
    variances = judges.var(axis=1, ddof=1) / judges.shape[1]
    return np.sqrt(variances.mean(axis=0))


def _choice(
    mean: np.ndarray, error: np.ndarray, strengths: np.ndarray, one_standard_error: bool
) -> tuple[int, int]:
    """Of least mean score, and no more than an error above it; the strongest of those."""
    if not np.isfinite(mean).any():
        raise ValueError("no strength has a finite score; take a smaller rate, or fewer strengths.")

    def strongest(which):
        return int(np.argmax(np.where(which, strengths, -np.inf)))

    best = strongest(mean == np.nanmin(mean))
    room = error[best] if one_standard_error and np.isfinite(error[best]) else 0.0
    return best, strongest(mean <= mean[best] + room)


def _refitted(problem: Problem, setup: Setup, model: Params, key, tolerance):
    """The model without the penalty, its zeros held."""
    low, high = (
        jax.tree.map(lambda leaf, end=end: np.where(np.asarray(leaf) != 0, end, 0.0), model)
        for end in (-np.inf, np.inf)
    )
    support = box(low, high)
    again, hparams, _, _ = prepared(
        problem, support, key, None, None, None, setup.check_every, setup.max_rounds
    )
    walk = _refit(again, hparams, model, problem.train, key, tolerance)
    return jax.tree.map(lambda leaf: leaf[0], (walk.models, walk.outcome))


@functools.partial(jax.jit, static_argnums=0)
@in_full_precision
def _refit(setup, hparams, model, data, key, tolerance):
    dtype = jax.tree.leaves(model)[0].dtype
    return along(setup, hparams, model, jnp.zeros(1, dtype), data, key, tolerance)


def _ledger(setup, data, walk, first, folds, tuned, refitted) -> Ledger:
    model_bytes = sum(leaf[0].nbytes for leaf in jax.tree.leaves(walk.models))
    number = walk.outcome.rounds.shape[0]
    weights = np.asarray(data.weights)
    asked = exchanges(setup, number)
    down, up = exchanged(asked, model_bytes, weights)
    entries = [Entry("rates", down, up), entry_of("start", first), entry_of("path", walk.outcome)]
    if folds is not None:
        down, up = exchanged(asked, model_bytes, np.asarray(folds.train.clients))
        starts, paths, _ = tuned
        judged = np.asarray(folds.held.clients) > 0
        # A judge is sent every model of its fold and answers with one number each.
        entries += [
            Entry("tune rates", down.sum(axis=0), up.sum(axis=0)),
            entry_of("tune start", starts),
            entry_of("tune paths", paths),
            Entry(
                "judge",
                judged.sum(axis=0) * float(number * model_bytes),
                judged.sum(axis=0) * float(number * walk.objective.dtype.itemsize),
            ),
        ]
    if refitted is not None:
        rounds = entry_of("refit", refitted)
        looks = exchanged(REFIT_LOOKS, model_bytes, weights)
        entries.append(Entry("refit", rounds.down + looks[0], rounds.up + looks[1]))
    return Ledger(tuple(entries), names_of(data))
