"""Regularisation paths: a model for each strength, warm-started, as one compiled program."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import ClientData, Plan, kkt, local_steps, tree
from fcojax.algorithms import Algorithm, Work, fed_mid_osp
from fcojax.extend import (
    Outcome,
    Program,
    as_arrays,
    as_plan,
    checked_value,
    in_full_precision,
    jit_per,
    require_run,
    shown,
    validated,
)
from fcojax.problems import Problem
from fcojax.problems.losses import Loss
from fcojax.transforms import Penalty, euclidean
from fcojax.types import Array, Count, Key, NonNegative, Numbers, Params, PyTree, Share
from fcojax_sites.selection.folds import Fraction
from fcojax_sites.selection.ledger import Entry, Exchanges, Ledger, client_names, entry_of_solves
from fcojax_sites.selection.nonzeros import Counter, Nonzeros, Range, range_of
from fcojax_sites.selection.nonzeros import nonzeros as target_of
from fcojax_sites.selection.search import Search, answers, search_path
from fcojax_sites.selection.second_moments import on_moments
from fcojax_sites.selection.show import draw_path, table_of
from fcojax_sites.selection.solver import ON_HOST, TRACED, Fits, SolvedPath, Solver, solve_path
from fcojax_sites.selection.solves import FIRST_ITERATIONS, LATER_ITERATIONS, Setup, solver_of
from fcojax_sites.selection.summary import traffic_of_all, usable_summary

Method = Callable[[Loss], Algorithm]

_Strengths = Annotated[
    Any, Numbers("finite numbers of at least 0, or how many", lambda values: values >= 0)
]


class Path(NamedTuple):
    """Models along a grid of strengths.

    Attributes:
      strengths: [strengths], the largest first unless given otherwise.
      models: with a leading axis of strengths.
      objective: [strengths], F + psi of each model.
      outcome: how each solve ended, with a leading axis of strengths.
      ledger: the traffic.
      search: the search, if a number of nonzeros was given in place of strengths.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax_sites.selection import Path
      >>> found = Path(
      ...     strengths=jnp.array([4.0, 1.0, 0.2]),
      ...     models=jnp.array([[0.0, 0.0], [1.5, 0.0], [1.9, 0.2]]),
      ...     objective=jnp.array([8.5, 4.0, 2.5]), outcome=None, ledger=None)
      >>> found.num_nonzero.tolist()
      [0, 1, 2]
    """

    strengths: Array
    models: Params
    objective: Array
    outcome: Outcome
    ledger: Ledger
    search: Search | None = None

    @property
    def num_nonzero(self) -> Array:
        """[strengths], the number of nonzero parameters of each model."""

        def count(leaf):
            return jnp.sum(leaf != 0, axis=tuple(range(1, leaf.ndim)), dtype=jnp.int32)

        return tree.total(jax.tree.map(count, self.models))

    def __str__(self) -> str:
        return table_of(self) + ("" if self.search is None else f"\n{self.search}")

    def plot(self, axes: Any = None) -> Any:
        """Draw every parameter over the strength with matplotlib; return the axes.

        Args:
          axes: axes to draw in; ``None`` for a new figure.
        """
        return draw_path(self, axes)


@validated
def path(
    problem: Problem,
    penalty: Penalty,
    *,
    strengths: int | Sequence[float] | np.ndarray = 50,
    nonzeros: Count | Nonzeros | None = None,
    least: Fraction = 1e-2,
    key: Key | None = None,
    method: Method | None = None,
    hparams: PyTree = None,
    plan: Plan | Work | None = None,
    tolerance: NonNegative = 1e-6,
    eval_every: Count = 10,
    max_rounds: Count = 10_000,
) -> Path:
    """Fit a model for each strength of a penalty, from the strongest on, as one program.

    No data leave a client. The clients fit the unpenalised parameters (a bias), and one exchange of
    their gradients at that model gives the first strength: the smallest one at which all penalised
    parameters are zero. The grid descends from there geometrically; each solve starts at the model
    of the strength before and stops once it is solved.

    With ``nonzeros`` it searches for a strength whose model has that sparsity and returns it alone,
    or, if no strength has such a model, its two neighbours, the sparser first.

    With the default method and plan, the server needs only the mean of the clients' gradients.
    Where the problem has a ``summary``, as ``problems.linear`` has, the simulation computes that
    mean from it: the models are the same up to rounding, and the ledger counts what the clients of
    the federation would send.

    Args:
      problem: the loss, the clients and the start point, of which only the shapes are used.
      penalty: psi; it needs ``scale_max``, unless the strengths are given.
      strengths: their number, or the strengths in the order in which they are solved.
      nonzeros: in place of ``strengths``, the number of penalised parameters that should be
        nonzero, or ``selection.nonzeros(50, per="row")`` and the like for rows, groups and ranks.
      least: the last strength as a share of the first, if ``strengths`` is a number; a search for
        ``nonzeros`` ends there.
      key: PRNG key, the only source of randomness; ``None`` for ``jax.random.key(0)``.
      method: ``loss -> algorithm``; by default FedMiD-OSP. With one full-batch step of every client
        per round, it is proximal gradient descent on F + psi and gives exact zeros.
      hparams: the method's hyperparameters, whose ``penalty_scale`` is replaced. By default
        ``client_lr`` is one over the largest curvature of F, found by power iterations: each is an
        exchange with all clients, a few for each strength unless F is a quadratic.
      plan: how rounds are run; by default everyone takes one full-batch step.
      tolerance: largest violation of the optimality conditions, in units of the first strength.
      eval_every: rounds between two evaluations of the violation.
      max_rounds: rounds for each strength, rounded up to a multiple of ``eval_every``.

    Returns:
      The strengths, models, objectives and outcomes, and the traffic.

    Example:
      >>> import numpy as np, fcojax, fcojax_sites
      >>> x = np.eye(4, dtype=np.float32) * 2
      >>> y = np.array([4.0, 1.0, 0.0, 0.0], np.float32)
      >>> data = fcojax.from_rows({"x": x, "y": y}, [2, 2])
      >>> found = fcojax_sites.path(fcojax.problems.least_squares(data), fcojax.transforms.l1(),
      ...                     strengths=3, least=0.25)
      >>> [(strength, round(w[0], 3)) for strength, w in
      ...  zip(found.strengths.tolist(), found.models.tolist())]
      [(2.0, 0.0), (1.0, 1.0), (0.5, 1.5)]
      >>> found = fcojax_sites.path(
      ...     fcojax.problems.least_squares(data), fcojax.transforms.l1(), nonzeros=1)
      >>> found.num_nonzero.tolist()
      [1]
    """
    data, problem = problem.train, on_moments(problem)
    setup, hparams, params, key = prepared(
        problem, penalty, key, method, hparams, plan, eval_every, max_rounds
    )
    if method is None:
        setup = setup._replace(summary=usable_summary(problem, setup.program.plan))
    if nonzeros is not None:
        return _searched(setup, nonzeros, hparams, params, data, key, least, tolerance)
    grid, relative = grid_of(penalty, strengths, least)
    found = _path(setup, relative, hparams, params, data, key, grid, tolerance)
    return as_path(setup, found, data)


def _searched(
    setup: Setup, nonzeros: int | Nonzeros, hparams, params, data: ClientData, key, least, tolerance
) -> Path:
    """Search for a strength, and return the models that it finds."""
    target, counter, goal = _sought(nonzeros, setup.penalty, params)
    null_outcome, found = _search(
        setup, counter, goal, hparams, params, data, key, least, tolerance
    )
    strengths, fits, search = answers(target, goal, found)
    rates = exchanges_of_rates(setup, len(search.strengths))
    one_model = tree.num_bytes(params)
    entries = (
        rates.entry("rates", one_model, np.asarray(data.weights)),
        entry_of_solves("start", null_outcome),
        Entry(
            "search",
            np.asarray(found.tried.bytes_down),
            np.asarray(found.tried.bytes_up),
            int(np.sum(search.rounds)),
        ),
    )
    ledger = Ledger(entries, client_names(data))
    return Path(strengths, *fits, ledger, search)


def _sought(
    nonzeros: int | Nonzeros, penalty: Penalty, params: Params
) -> tuple[Nonzeros, Counter, Range]:
    """Return the target, its counter and the range that reaches it; check that one exists."""
    require_first_strength(penalty)
    target = nonzeros if isinstance(nonzeros, Nonzeros) else target_of(nonzeros)
    goal, leaves = range_of(target, penalty, params)
    return target, Counter(target.number, leaves), goal


@validated
def search_on_host(
    solver: Solver,
    nonzeros: int | Nonzeros,
    params: Params,
    key: Key,
    least: Share,
    tolerance: NonNegative,
) -> tuple[Array, Fits, Search]:
    """Search for a strength whose model has a given sparsity; each solve is called from Python.

    Args:
      solver: solves for one strength.
      nonzeros: the number of nonzero parameters, as for ``path``.
      params: the start point.
      key: PRNG key.
      least: the last strength as a share of the first.
      tolerance: largest violation, in units of the first strength.

    Returns:
      The strengths and fits that were found, and the search.

    Example:
      >>> from fcojax.extend import Outcome
      >>> from fcojax_sites.selection import Solver, Start
      >>> from fcojax.transforms import l1
      >>> target = jnp.array([4.0, 1.0])  # F(w) is half the squared distance to it
      >>> def solve(start, strength, key, tolerance):
      ...     model, zero, one = l1().prox(target, 1.0, strength), jnp.array(0.0), jnp.array(1)
      ...     outcome = Outcome(
      ...         zero, rounds=one, checks=one, solved=zero == 0, diverged=zero > 0,
      ...         bytes_down=zero, bytes_up=zero)
      ...     return start.after(model, strength, True), Fits(model, zero, outcome)
      >>> solver = Solver(
      ...     l1(), 1, lambda w: (jnp.sum((w - target) ** 2) / 2, w - target),
      ...     lambda params, key: Start.first(params), solve)
      >>> _, fits, search = search_on_host(
      ...     solver, 1, jnp.zeros(2), jax.random.key(0), least=0.01, tolerance=1e-6)
      >>> search.reached, int(jnp.sum(fits.models != 0))
      (True, 1)
    """
    target, counter, goal = _sought(nonzeros, solver.penalty, params)
    _, found = search_path(solver, ON_HOST, counter, goal, params, key, least, tolerance)
    return answers(target, goal, found)


@jit_per(num_static=2, kept=16)
@in_full_precision
def _search(setup, counter, goal, hparams, params, data, key, least, tolerance):
    counts = data.weights[: data.num_clients] > 0
    data = data if setup.summary is None else setup.summary(data)
    solver = solver_of(setup, hparams, data)
    null, found = search_path(solver, TRACED, counter, goal, params, key, least, tolerance)

    def billed(fit):
        return fit._replace(outcome=traffic_of_all(fit.outcome, counts))

    sparser, denser = (end._replace(fit=billed(end.fit)) for end in (found.sparser, found.denser))
    found = found._replace(
        fit=billed(found.fit),
        sparser=sparser,
        denser=denser,
        tried=traffic_of_all(found.tried, counts),
    )
    return traffic_of_all(null.outcome, counts), found


def prepared(
    problem: Problem, penalty: Penalty, key, method, hparams, plan, eval_every, max_rounds
) -> tuple[Setup, PyTree, Params, Key]:
    """Check the arguments of a path and replace each ``None`` by its default."""
    plan = as_plan(local_steps(1) if plan is None else plan)
    key = jax.random.key(0) if key is None else key
    algorithm = (method or default_method(penalty))(problem.loss)
    finds_rate = hparams is None
    if finds_rate:
        hparams = algorithm.hparams_type()
    for name in ("penalty_scale", *(["client_lr"] if finds_rate else [])):
        if not hasattr(hparams, name):
            raise ValueError(
                f"the method's hyperparameters have no {name}, which a path sets; pass a method "
                "that has it, and hparams= if only the rate has another name."
            )
    require_run(algorithm, plan, hparams, problem.train, key)
    params = _zeros_like(jax.eval_shape(problem.init, key), problem.train)
    max_rounds = -(-max_rounds // eval_every) * eval_every
    program = Program(algorithm, plan, kkt(problem.loss, penalty), 1, eval_every)
    setup = Setup(program, problem.loss, penalty, max_rounds, finds_rate)
    return setup, as_arrays(hparams), params, key


def _zeros_like(params: Params, data: ClientData) -> Params:
    """Return zeros in the widest floating dtype among the parameters and the examples."""
    floats = [
        leaf.dtype
        for leaf in jax.tree.leaves((data.examples, params))
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    # Gradients have the widest dtype, and the carry of a scan must keep its own.
    widest = max(floats, key=lambda dtype: jnp.finfo(dtype).bits)
    return jax.tree.map(lambda leaf: tree.as_array(np.zeros(leaf.shape), widest), params)


def default_method(penalty: Penalty) -> Method:
    """Return FedMiD-OSP with the Euclidean mirror."""
    return lambda loss: fed_mid_osp(loss, euclidean(penalty))


@validated
def grid_of(
    penalty: Penalty, strengths: int | Sequence[float] | np.ndarray, least: Fraction
) -> tuple[np.ndarray, bool]:
    """Return the strengths, or their ratios to the first one, and whether they are ratios.

    Args:
      penalty: psi; it needs ``scale_max`` unless the strengths are given.
      strengths: their number, or the strengths.
      least: the last strength as a share of the first, if ``strengths`` is a number.

    Example:
      >>> from fcojax.transforms import l1
      >>> ratios, are_ratios = grid_of(l1(), 3, least=0.25)
      >>> ratios.tolist(), are_ratios
      ([1.0, 0.5, 0.25], True)
    """
    if isinstance(strengths, int | np.integer):
        count = checked_value("strengths", strengths, Count)
        require_first_strength(penalty)
        return np.geomspace(1.0, least, count), True
    # Kept in the given order: a caller may want warm starts from the weakest strength on.
    values = np.asarray(checked_value("strengths", strengths, _Strengths), float)
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"strengths is {shown(strengths)}; pass a list of numbers, or their count."
        )
    return values, False


def require_first_strength(penalty: Penalty) -> None:
    """Raise ``ValueError`` if a penalty has no ``scale_max``, the first strength of a path."""
    if penalty.scale_max is None:
        raise ValueError(
            "the penalty has no scale_max, so the first strength of its path is unknown; pass "
            "strengths= as a list."
        )


@jit_per(num_static=2, kept=16)
@in_full_precision
def _path(setup, relative, hparams, params, data, key, grid, tolerance) -> SolvedPath:
    counts = data.weights[: data.num_clients] > 0
    data = data if setup.summary is None else setup.summary(data)
    solver = solver_of(setup, hparams, data)
    found = solve_path(solver, TRACED, params, key, grid, relative, tolerance)
    fits = found.fits._replace(outcome=traffic_of_all(found.fits.outcome, counts))
    return found._replace(fits=fits, null_outcome=traffic_of_all(found.null_outcome, counts))


def as_path(setup: Setup, found: SolvedPath, data: ClientData) -> Path:
    """Return the path with its ledger, from the results of a program."""
    one_model = tree.num_bytes(jax.tree.map(lambda leaf: leaf[0], found.fits.models))
    rates = exchanges_of_rates(setup, found.strengths.size)
    entries = (
        rates.entry("rates", one_model, np.asarray(data.weights)),
        entry_of_solves("start", found.null_outcome),
        entry_of_solves("path", found.fits.outcome),
    )
    return Path(found.strengths, *found.fits, Ledger(entries, client_names(data)))


def exchanges_of_rates(setup: Setup, num_strengths: int) -> Exchanges:
    """Return a path's exchanges for the first strength and for the curvature."""
    has_null = setup.penalty.scale_max is not None
    later = 0 if setup.summary else LATER_ITERATIONS  # a quadratic has the same curvature anywhere
    iterations = FIRST_ITERATIONS * (1 + has_null) + later * (num_strengths - 1)
    return Exchanges(2 * has_null, iterations if setup.finds_rate else 0)
