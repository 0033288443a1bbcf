"""The choice of a penalty's strength by cross-validation or a criterion, and the refitted model."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import ClientData, Plan, tree
from fcojax.algorithms import Work
from fcojax.extend import Outcome, as_plan, in_full_precision, jit_per, validated
from fcojax.problems import Problem, WholeBatchLoss, population_loss
from fcojax.transforms import Penalty
from fcojax.types import Arrays, Count, Key, NonNegative, Params, PyTree
from fcojax_sites.selection.criteria import Criterion, UpToOne
from fcojax_sites.selection.folds import (
    Folds,
    Fraction,
    Part,
    Split,
    all_data,
    by_client,
    part_of_data,
    stacked,
    weighted_loss,
)
from fcojax_sites.selection.ledger import Entry, Ledger, entry_of_solves, shown_bytes
from fcojax_sites.selection.nonzeros import Nonzeros
from fcojax_sites.selection.path import (
    Method,
    Path,
    as_path,
    default_method,
    exchanges_of_rates,
    grid_of,
    prepared,
)
from fcojax_sites.selection.path import path as path_of
from fcojax_sites.selection.refit import refit_of
from fcojax_sites.selection.show import draw_path, draw_scores
from fcojax_sites.selection.solver import TRACED, SolvedPath, key_of_fold, solve_path
from fcojax_sites.selection.solves import Setup, solver_of

HELD_OUT, PER_EVENT = "loss on held-out data", "loss per event on held-out data"


class Selection(NamedTuple):
    """A chosen strength, the losses it was chosen by, and the model at that strength.

    Attributes:
      path: the models of all strengths on all data.
      by: what the scores are: a loss or a criterion.
      scores: [draws and folds, strengths], the mean held-out loss, or in Cox regression the loss
        per event, NaN in a fold without events; one row for a criterion.
      mean: [strengths], the mean of the scores over draws and folds.
      standard_error: [strengths], the standard error of ``mean - mean[best]`` over the folds of one
        draw, because another draw evaluates the same clients again. If each draw has one fold, it
        is over the draws; with one fold in all it is NaN.
      best: index of the strength with the lowest mean score; of equal ones, the strongest.
      chosen: index of the chosen strength.
      model: the model of the path at the chosen strength.
      refit: the model without the penalty on the support of ``model``, or ``None``.
      refit_outcome: how that solve ended.
      ledger: the traffic.
      fold_outcome: how the solves of the folds ended, [draws and folds, strengths]; ``None`` for a
        criterion.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> from fcojax_sites.selection import Path, Selection
      >>> models = jnp.array([[0.0, 0.0], [1.5, 0.0], [1.9, 0.2]])
      >>> strengths = jnp.array([4.0, 1.0, 0.25])
      >>> path = Path(strengths, models, objective=None, outcome=None, ledger=None)
      >>> found = Selection(
      ...     path, by="five folds", scores=None, mean=np.array([8.0, 3.1, 3.0]),
      ...     standard_error=np.array([0.5, 0.2, 0.0]), best=2, chosen=1, model=models[1],
      ...     refit=None, refit_outcome=None, ledger=None)
      >>> found.strength, found.model.tolist()  # 3.1 is within 0.2 of the lowest
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

    @validated
    def relaxed(self, shrinkage: UpToOne) -> Params:
        """Return the relaxed lasso, ``shrinkage * model + (1 - shrinkage) * refit``.

        Args:
          shrinkage: phi: 1 is the penalised model, 0 the refit.
        """
        return tree.add(tree.scale(shrinkage, self.model), tree.scale(1 - shrinkage, self.refit))

    def __str__(self) -> str:
        nonzero = np.asarray(self.path.num_nonzero)
        word = "loss" if self.by.startswith("loss") else self.by[:11]
        lines = [f"  {'strength':>10} {'nonzero':>8} {word:>11} {'error':>9}"]
        for index, strength in enumerate(np.asarray(self.path.strengths)):
            mark = ">" if index == self.chosen else "*" if index == self.best else " "
            lines.append(
                f"{mark} {strength:10.4g} {nonzero[index]:8} {self.mean[index]:11.6g} "
                f"{self.standard_error[index]:9.3g}"
            )
        traffic = (
            f"{shown_bytes(self.ledger.bytes_down)} down, {shown_bytes(self.ledger.bytes_up)} up"
        )
        lines.append(
            f"chosen by {self.by}: strength {self.strength:.4g} with {nonzero[self.chosen]} "
            f"nonzero parameters; {traffic}"
        )
        fewest = nonzero[np.argmax(np.asarray(self.path.strengths))]
        if self.path.search is None and nonzero[self.chosen] == fewest < nonzero.max():
            lines.append(
                f"no other strength has a lower {word}; by=nonzeros(3) keeps three"
                if nonzero[self.best] == fewest
                else f"one_standard_error=False chooses the lowest {word}, with "
                f"{nonzero[self.best]} nonzero parameters"
            )
            lines[-1] = f"the choice keeps no more than the largest strength does; {lines[-1]}"
        solves = {
            "strengths": self.path.outcome.solved,
            "solves of folds": () if self.fold_outcome is None else self.fold_outcome.solved,
        }
        for name, solved in solves.items():
            if count := np.sum(~np.asarray(solved, bool)):
                lines.append(
                    f"{count} of {np.size(solved)} {name} are not solved; scale the features to "
                    "variance 1, or allow more rounds"
                )
        return "\n".join(lines)

    def plot(self, axes: Any = None) -> Any:
        """Draw the mean loss over the strength with matplotlib; return the axes.

        Args:
          axes: axes to draw in; ``None`` for a new figure.
        """
        return draw_scores(self, axes)

    def plot_path(self, axes: Any = None, names: Sequence[str] | None = None) -> Any:
        """Draw the parameters over the strength, and the choice; return the axes.

        Args:
          axes: axes to draw in; ``None`` for a new figure.
          names: names of the features; the legend lists the features with a nonzero parameter.
        """
        return draw_path(self.path, axes, self.chosen, names)


@validated
def select(
    problem: Problem,
    penalty: Penalty,
    *,
    by: Split | Criterion | Nonzeros | None = None,
    one_standard_error: bool = True,
    num_draws: Count = 1,
    refit: bool = True,
    strengths: int | Sequence[float] | np.ndarray = 50,
    least: Fraction = 1e-2,
    key: Key | None = None,
    method: Method | None = None,
    hparams: PyTree = None,
    plan: Plan | Work | None = None,
    tolerance: NonNegative = 1e-5,
    eval_every: Count = 10,
    max_rounds: Count = 10_000,
) -> Selection:
    r"""Choose the strength of a penalty, and count the traffic of the choice.

    The paths on all data and on all folds run as one program, in which weights select the clients
    and examples of a fold. The models of a fold are judged by their mean held-out loss, and of Cox
    regression by their loss per event.

    The mean loss at a strength s is within one standard error of the lowest, at b, if

    .. math:: \bar d_s \le \Big( \tfrac{1}{K (K - 1)}
              \sum_{k=1}^K (d_{ks} - \bar d_s)^2 \Big)^{1/2},
              \qquad d_{ks} = \ell_{ks} - \ell_{kb},

    where l is the loss on each of K folds. A strength whose loss is above l at b in every fold is
    not.

    Args:
      problem: the loss, the clients and the start point, of which only the shapes are used.
      penalty: psi; it needs ``scale_max``, unless the strengths are given.
      by: folds or a criterion: ``selection.by_client()`` leaves one client out and is the default,
        ``by_client(k)`` leaves out groups of clients, ``by_example(k)`` groups of each client's
        rows, ``hold_out(share)`` has one fold; ``selection.bic()``, ``aic()`` and ``ebic()`` are
        criteria; ``selection.nonzeros(5)`` chooses a model with that sparsity, whatever its loss.
      one_standard_error: whether to choose the strongest penalty whose mean loss is within one
        standard error of the lowest; otherwise the penalty with the lowest loss. Ties go to the
        strongest penalty.
      num_draws: how often the folds are drawn, if they are random.
      refit: whether to fit the chosen support again without the penalty, which makes sense for
        penalties that set entries to zero.
      strengths: their number, or the strengths in the order in which they are solved.
      least: the last strength as a share of the first, if ``strengths`` is a number.
      key: PRNG key, the only source of randomness, including the folds; ``None`` for
        ``jax.random.key(0)``.
      method: ``loss -> algorithm``; by default FedMiD-OSP.
      hparams: the method's hyperparameters; by default ``client_lr`` is found by power iterations.
      plan: how rounds are run; by default everyone takes one full-batch step.
      tolerance: largest violation of the optimality conditions, in units of the first strength.
      eval_every: rounds between two evaluations of the violation.
      max_rounds: rounds for each strength, rounded up to a multiple of ``eval_every``.

    Returns:
      The path, the losses, the choice, the refitted model and the traffic.

    Example:
      >>> import fcojax, fcojax_sites, numpy as np
      >>> x, y = np.eye(4, dtype=np.float32) * 2, np.array([4.0, 1.0, 0.0, 0.0], np.float32)
      >>> data = fcojax.from_rows({"x": x, "y": y}, [2, 2])
      >>> problem = fcojax.problems.least_squares(data)
      >>> found = fcojax_sites.select(
      ...     problem, fcojax.transforms.l1(), by=fcojax_sites.selection.aic(), strengths=3,
      ...     least=0.25, refit=False)
      >>> found.path.strengths.tolist(), found.path.num_nonzero.tolist(), found.chosen
      ([2.0, 1.0, 0.5], [0, 1, 1], 2)
    """
    # Refused before anything is solved: a refit without noise would release the private support.
    if refit and plan is not None and as_plan(plan).uploads.noisy:
        raise ValueError("the plan adds noise, and the refit would not; pass refit=False.")
    if isinstance(by, Nonzeros):
        path = path_of(
            problem,
            penalty,
            nonzeros=by,
            least=least,
            key=key,
            method=method,
            hparams=hparams,
            plan=plan,
            tolerance=tolerance,
            eval_every=eval_every,
            max_rounds=max_rounds,
        )
        found = of_target(by, path)
        if not refit:
            return found
        key = jax.random.key(0) if key is None else key
        limits = tolerance, eval_every, max_rounds
        refitted, outcome, entry = refit_of(problem, found.model, key, *limits)
        ledger = path.ledger._replace(entries=(*path.ledger.entries, entry))
        return found._replace(
            path=path._replace(ledger=ledger), refit=refitted, refit_outcome=outcome, ledger=ledger
        )
    setup, hparams, params, key = prepared(
        problem, penalty, key, method, hparams, plan, eval_every, max_rounds
    )
    grid, relative = grid_of(penalty, strengths, least)
    by = by_client() if by is None else by
    data, folds, fold_setup = problem.train, None, setup
    if not isinstance(by, Criterion):
        folds = draw_folds(by, data, key, num_draws)
        if folds.train.rows is not None:
            loss = weighted_loss(problem.loss)
            fold_setup = setup.with_loss(loss, (method or default_method(penalty))(loss))
        program = fold_setup.program
        program = program._replace(plan=_one_client_at_a_time(program.plan, data))
        # All folds run in one program, in which weights select clients and rows, so all folds have
        # the same shapes.
        fold_setup = fold_setup._replace(program=program)
    found, held_out = _search(
        (setup, fold_setup), relative, hparams, params, data, key, folds, grid, tolerance
    )
    fold_results = None
    if held_out is not None:
        found, fold_results = _divided(found, held_out)
    path, fold_outcome = as_path(setup, found, data), None
    if isinstance(by, Criterion):
        scores, score_name = _criterion_scores(by, problem, path), by.name
    else:
        assert folds is not None and fold_results is not None
        scores, score_name = np.asarray(fold_results.scores), HELD_OUT
        is_cox = isinstance(problem.loss, WholeBatchLoss) and isinstance(data.examples, dict)
        if is_cox and "event" in data.examples:
            scores, score_name = per_event(scores, _events(folds.held, data)), PER_EVENT
        fold_outcome = fold_results.outcome
    found = selection_of(path, score_name, scores, one_standard_error, num_draws, fold_outcome)
    entries = _tuning_entries(setup, path, found.model, folds, fold_results)
    refitted, refit_outcome = None, None
    if refit:
        refitted, refit_outcome, entry = refit_of(
            problem, found.model, key, tolerance, eval_every, max_rounds
        )
        entries.append(entry)
    ledger = path.ledger._replace(entries=(*path.ledger.entries, *entries))
    return found._replace(
        path=path._replace(ledger=ledger),
        refit=refitted,
        refit_outcome=refit_outcome,
        ledger=ledger,
    )


Scores = Annotated[np.ndarray, Arrays("an array [folds or 1, strengths]", 2)]


@validated
def selection_of(
    path: Path,
    name: str,
    scores: Scores,
    one_standard_error: bool,
    num_draws: Count = 1,
    fold_outcome: Outcome | None = None,
) -> Selection:
    """Return the choice among the models of a path, without a refit.

    Args:
      path: the models.
      name: the name of the scores.
      scores: [folds or 1, strengths].
      one_standard_error: whether the strongest penalty within one standard error is chosen.
      num_draws: draws of the folds.
      fold_outcome: the outcomes of the folds' solves.

    Example:
      >>> strengths = jnp.array([4.0, 1.0])
      >>> path = Path(strengths, jnp.eye(2), objective=None, outcome=None, ledger=None)
      >>> scores = np.array([[3.0, 2.0], [5.0, 1.0]])
      >>> found = selection_of(path, "two folds", scores, one_standard_error=False)
      >>> found.chosen, found.model.tolist(), found.mean.tolist()
      (1, [0.0, 1.0], [4.0, 1.5])
    """
    silent = np.isnan(scores).all(axis=1)
    mean = scores[~silent | silent.all()].mean(axis=0)
    if not np.isfinite(mean).any():
        raise ValueError("no strength has a finite score; pass a smaller rate or fewer strengths.")

    def strongest(which):
        return int(np.argmax(np.where(which, np.asarray(path.strengths), -np.inf)))

    lowest = mean == np.nanmin(mean)
    best = strongest(lowest)
    error = standard_error(scores - scores[:, [best]], num_draws)
    # With one fold there is no standard error, and the lowest decides.
    is_within = lowest | (mean - mean[best] <= error)
    chosen = strongest(is_within) if one_standard_error else best
    return Selection(
        path=path,
        by=name,
        scores=scores,
        mean=mean,
        standard_error=error,
        best=best,
        chosen=chosen,
        model=jax.tree.map(lambda leaf: leaf[chosen], path.models),
        refit=None,
        refit_outcome=None,
        ledger=path.ledger,
        fold_outcome=fold_outcome,
    )


class FoldResults(NamedTuple):
    """Outcomes and held-out losses of all folds, with leading axes [draws and folds, strengths]."""

    null_outcome: Outcome
    outcome: Outcome
    scores: jax.Array


@validated
def of_target(by: Nonzeros, path: Path) -> Selection:
    """Return the sparser of the models that a search found, scored by its distance to the target.

    Args:
      by: the target of the search.
      path: the result of the search.

    Example:
      >>> import fcojax, fcojax_sites
      >>> from fcojax import problems, transforms
      >>> from fcojax_sites import selection
      >>> x, y = np.eye(4, dtype=np.float32) * 2, np.array([4.0, 1.0, 0.0, 0.0], np.float32)
      >>> problem = problems.least_squares(fcojax.from_rows({"x": x, "y": y}, [2, 2]))
      >>> path = fcojax_sites.path(problem, transforms.l1(), nonzeros=1)
      >>> found = of_target(selection.nonzeros(1), path)
      >>> found.by, found.scores.tolist()
      ('1 nonzeros', [[0.0]])
    """
    assert path.search is not None
    off = np.abs(path.search.numbers - by.count).astype(float)
    model = jax.tree.map(lambda leaf: leaf[0], path.models)
    return Selection(
        path,
        by.name,
        off[None],
        off,
        np.full(off.shape, np.nan),
        0,
        0,
        model,
        None,
        None,
        path.ledger,
    )


@validated
def draw_folds(split: Split, data: ClientData, key: Key, num_draws: Count) -> Folds:
    """Return the folds of all draws; raise ``ValueError`` if all draws are equal.

    Args:
      split: such as ``by_client()``.
      data: the clients.
      key: PRNG key of random folds.
      num_draws: how often the folds are drawn.

    Example:
      >>> import fcojax
      >>> data = fcojax.from_rows({"x": np.ones((4, 1), np.float32)}, [1, 1, 2])
      >>> draw_folds(by_client(), data, jax.random.key(0), num_draws=1).held.clients.shape
      (3, 3)
    """
    _require_one_device(data)
    draws = [split(data, jax.random.fold_in(key, draw)) for draw in range(num_draws)]
    if num_draws > 1 and all(_as_sets(folds) == _as_sets(draws[0]) for folds in draws):
        raise ValueError(
            f"num_draws is {num_draws} but every draw has the same folds, so the standard error "
            "would count them repeatedly; pass num_draws=1, or random folds, as by_client(2)."
        )
    return stacked(draws)


def _as_sets(folds: Folds) -> set[bytes]:
    """Return the set of held-out parts of the folds, to compare divisions."""
    parts = [np.asarray(leaf) > 0 for leaf in folds.held if leaf is not None]
    return {np.concatenate(fold).tobytes() for fold in zip(*parts, strict=True)}


def _one_client_at_a_time(plan: Plan, data: ClientData) -> Plan:
    """Choose chunks of one client if sizes differ: larger ones would be sorted in every fold."""
    if plan.client_chunk_size is None and _sizes_matter(plan.work, data):
        return plan._replace(client_chunk_size=1)
    return plan


@jit_per(num_static=2, kept=16)
@in_full_precision
def _search(
    setups, relative, hparams, params, data, key, folds, grid, tolerance
) -> tuple[SolvedPath, jax.Array | None]:
    """Compute the path on all data, or with folds all paths and the scores of the folds' models."""
    setup, fold_setup = setups
    if folds is None:
        solver = solver_of(setup, hparams, data)
        return solve_path(solver, TRACED, params, key, grid, relative, tolerance), None

    def of_part(part, index):
        own = key_of_fold(setup.program.plan, key, index - 1)
        own = own if own is key else jnp.where(index == 0, key, own)
        return solve_path(
            solver_of(fold_setup, hparams, part_of_data(part, data)),
            TRACED,
            params,
            own,
            grid,
            relative,
            tolerance,
            # Folds are solved at the strengths, and to the tolerance, of the path on all data.
            together=lambda first: jax.lax.all_gather(first, "parts")[0],
        )

    def scores(models, held):
        loss = functools.partial(population_loss, fold_setup.loss, data=part_of_data(held, data))
        return jax.vmap(loss)(models)

    # All data are one more part: the solves of all parts are one loop, which is compiled once.
    parts = jax.tree.map(
        lambda *leaves: jnp.concatenate(leaves), all_data(data, folds), folds.train
    )
    index = jnp.arange(parts.clients.shape[0], dtype=jnp.int32)
    found = jax.vmap(of_part, axis_name="parts")(parts, index)
    models = found.fits.models
    of_folds = jax.tree.map(lambda leaf: leaf[1:], models)
    models = jax.tree.map(lambda leaf: leaf[:1], models)
    found = found._replace(fits=found.fits._replace(models=models))
    return found, jax.vmap(scores)(of_folds, folds.held)


def _divided(found: SolvedPath, scores: jax.Array) -> tuple[SolvedPath, FoldResults]:
    """Return the path on all data, and the results of the folds."""
    # On the host, where a slice of each array needs no program.
    found = jax.tree.map(np.asarray, found)
    path = jax.tree.map(lambda leaf: tree.as_array(leaf[0], leaf.dtype), found)
    outcome, null_outcome = jax.tree.map(
        lambda leaf: leaf[1:], (found.fits.outcome, found.null_outcome)
    )
    return path, FoldResults(null_outcome, outcome, scores)


def _criterion_scores(criterion: Criterion, problem: Problem, path: Path) -> np.ndarray:
    """Return one row; the likelihood counts every example once, whatever the clients' weights."""
    # AIC and BIC need the likelihood of all examples, which client weights would distort.
    sizes = problem.train.sizes.astype(problem.train.weights.dtype)
    pooled = dataclasses.replace(problem.train, weights=sizes)
    losses = jax.jit(jax.vmap(lambda model: population_loss(problem.loss, model, pooled)))
    size = sum(leaf[0].size for leaf in jax.tree.leaves(path.models))
    num_examples, nonzero = float(np.sum(np.asarray(sizes))), np.asarray(path.num_nonzero)
    return criterion.scores(np.asarray(losses(path.models)), nonzero, num_examples, size)[None]


def per_event(scores: np.ndarray, events: np.ndarray) -> np.ndarray:
    """Return mean losses [folds, strengths] per event, NaN in a fold without events.

    Args:
      scores: mean losses per row.
      events: [folds], events per row.
    """
    return scores / np.where(events > 0, events, np.nan)[:, None]


def _events(held: Part, data: ClientData) -> np.ndarray:
    """Return the events per row that the held-out part of each fold has."""
    event, sizes = np.asarray(data.examples["event"], float), np.asarray(data.sizes)
    rows = event if held.rows is None else event * np.asarray(held.rows)
    of_clients = np.add.reduceat(rows, np.cumsum(sizes) - sizes, axis=-1) / sizes
    weights = np.asarray(held.clients, float)
    return np.sum(weights * of_clients, axis=1) / np.sum(weights, axis=1)


def standard_error(scores: np.ndarray, num_draws: int) -> np.ndarray:
    """Return the standard error of the mean score, over folds, or over draws of one fold each."""
    # Draws hold out the same clients again, so scores of different draws are not independent.
    by_draw = scores.reshape(num_draws if scores.shape[0] > num_draws else 1, -1, scores.shape[1])
    judges = ~np.isnan(by_draw).all(axis=2, keepdims=True)
    count = judges.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(judges, by_draw, 0).sum(axis=1, keepdims=True) / count[:, None]
        squares = np.where(judges, by_draw - mean, 0) ** 2
        # The mean of errors: a score above 0 in every fold is then above its standard error.
        return np.sqrt(squares.sum(axis=1) / (count - 1) / count).mean(axis=0)


def _tuning_entries(
    setup: Setup, path: Path, model: Params, folds: Folds | None, results: FoldResults | None
) -> list[Entry]:
    if folds is None or results is None:
        return []
    one_model, num_strengths = tree.num_bytes(model), path.strengths.size
    rates = exchanges_of_rates(setup, num_strengths)
    # A held-out client is sent every model of its fold and sends one number for each.
    num_models = np.sum(np.asarray(folds.held.clients) > 0, axis=0) * float(num_strengths)
    number_bytes = path.objective.dtype.itemsize
    return [
        rates.entry("tune rates", one_model, np.asarray(folds.train.clients)),
        entry_of_solves("tune start", results.null_outcome),
        entry_of_solves("tune paths", results.outcome),
        Entry("validation", num_models * one_model, num_models * number_bytes),
    ]


def _require_one_device(data: ClientData) -> None:
    """Raise ``ValueError`` for a population on a mesh."""
    if data.mesh is not None:
        raise ValueError("the population is on a mesh; pass the one it was made from.")


def _sizes_matter(work: Any, data: ClientData) -> bool:
    """Return whether clients of different sizes do different work."""
    if work.batch_size is None:
        return len(data.size_bounds) > 1
    return work.max_steps(data.min_size) < work.max_steps(data.max_size)
