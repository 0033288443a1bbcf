"""Regularisation paths: a model for each strength, warm-started, as one compiled program."""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms import fed_mid_osp
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work, local_steps
from fcojax.arguments import checked_value, shown, validated
from fcojax.engine.hparams import as_arrays
from fcojax.engine.optimality import kkt, pooled_gradient
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.program import Program
from fcojax.engine.solve import Outcome, solve_traced
from fcojax.engine.validation import as_params, require_algorithm, require_run
from fcojax.memo import jit_per
from fcojax.problems.clients import ClientData
from fcojax.problems.problem import Loss, Problem, population_loss
from fcojax.selection.folds import Fraction
from fcojax.selection.ledger import Exchanges, Ledger, client_names, entry_of_solves
from fcojax.selection.show import draw_path, table_of
from fcojax.selection.summary import traffic_of_all, usable_summary
from fcojax.transforms import Penalty, euclidean, flat
from fcojax.types import Array, Count, Key, NonNegative, Numbers, Params, PyTree
from fcojax.xla.rules import in_full_precision

Method = Callable[[Loss], Algorithm]

_Strengths = Annotated[
    Any, Numbers("finite numbers of at least 0, or how many", lambda values: values >= 0)
]

# Power iterations for the curvature: from a random direction, and from the last strength's.
FIRST_ITERATIONS, _LATER_ITERATIONS = 30, 3


class Setup(NamedTuple):
    """What is fixed while a path is compiled."""

    program: Program  # of a solve, with the violation as what is evaluated
    loss: Loss
    penalty: Penalty
    max_rounds: int
    finds_rate: bool
    summary: Callable[[ClientData], ClientData] | None = None

    def with_loss(self, loss: Loss, algorithm: Algorithm) -> "Setup":
        """Replace the loss, and the algorithm that minimises it."""
        observe = kkt(loss, self.penalty)
        return self._replace(
            loss=loss, program=self.program._replace(algorithm=algorithm, observe=observe)
        )


class Path(NamedTuple):
    """Models along a grid of strengths.

    Attributes:
      strengths: [strengths], the largest first unless given otherwise.
      models: with a leading axis of strengths.
      objective: [strengths], F + psi of each model.
      outcome: how each solve ended, with a leading axis of strengths.
      ledger: the traffic.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.selection import Path
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

    @property
    def num_nonzero(self) -> Array:
        """[strengths], the number of nonzero parameters of each model."""

        def count(leaf):
            return jnp.sum(leaf != 0, axis=tuple(range(1, leaf.ndim)), dtype=jnp.int32)

        return tree.total(jax.tree.map(count, self.models))

    def __str__(self) -> str:
        return table_of(self)

    def plot(self, axes: Any = None) -> Any:
        """Draw every parameter over the strength with matplotlib; return the axes.

        Args:
          axes: to draw in; ``None`` for those of a new figure.
        """
        return draw_path(self, axes)


class Fits(NamedTuple):
    """Models, objectives and outcomes with a leading axis of strengths."""

    models: Params
    objective: Array
    outcome: Outcome


class TracedPath(NamedTuple):
    """A path inside a program; ``unit`` is the strength in whose units the tolerance is."""

    strengths: Array
    fits: Fits
    null_outcome: Outcome
    unit: Array


@validated
def path(
    problem: Problem,
    penalty: Penalty,
    *,
    strengths: int | Sequence[float] | np.ndarray = 50,
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

    No data leave a client. The clients fit the parameters that the penalty leaves free (a bias),
    and one exchange of their gradients at that model gives the first strength: the least one at
    which all penalised parameters are zero. The grid descends from there geometrically; each solve
    starts at the model of the strength before and stops once it is solved.

    With the default method and plan, the server needs only the mean of the clients' gradients.
    Where the problem has a ``summary``, as ``problems.linear`` has, the simulation computes that
    mean from it: the models are the same to rounding, and the ledger counts what the clients of the
    federation would send.

    Args:
      problem: the loss, the clients and the start point, of which only the shapes are used.
      penalty: psi; it needs ``scale_max``, unless the strengths are given.
      strengths: how many, or the strengths themselves, in the order in which they are solved.
      least: the last strength as a share of the first, if ``strengths`` is a number.
      key: PRNG key, the only source of randomness; ``None`` for ``jax.random.key(0)``.
      method: ``loss -> algorithm``; by default FedMiD-OSP, which with one full-batch step of
        everybody a round is proximal gradient descent on F + psi and gives exact zeros.
      hparams: the method's hyperparameters, whose ``penalty_scale`` is replaced. By default
        ``client_lr`` is one over the largest curvature of F, found by power iterations: each is an
        exchange with all clients, a few for each strength unless F is a quadratic.
      plan: how rounds are driven; by default everyone takes one full-batch step.
      tolerance: on the violation of the optimality conditions, in units of the first strength.
      eval_every: rounds between two evaluations of the violation.
      max_rounds: for each strength, rounded up to a multiple of ``eval_every``.

    Returns:
      The strengths, models, objectives and outcomes, and the traffic.

    Example:
      >>> import numpy as np, fcojax
      >>> x = np.eye(4, dtype=np.float32) * 2
      >>> y = np.array([4.0, 1.0, 0.0, 0.0], np.float32)
      >>> data = fcojax.from_rows({"x": x, "y": y}, [2, 2])
      >>> found = fcojax.path(fcojax.problems.least_squares(data), fcojax.transforms.l1(),
      ...                     strengths=3, least=0.25)
      >>> [(strength, round(w[0], 3)) for strength, w in
      ...  zip(found.strengths.tolist(), found.models.tolist())]
      [(2.0, 0.0), (1.0, 1.0), (0.5, 1.5)]
    """
    data = problem.train
    setup, hparams, params, key = prepared(
        problem, penalty, key, method, hparams, plan, eval_every, max_rounds
    )
    if method is None and (summary := usable_summary(problem, setup.program.plan)):
        setup = setup.with_loss(summary.loss, default_method(penalty)(summary.loss))
        setup = setup._replace(summary=summary.client)
    grid, relative = grid_of(penalty, strengths, least)
    found = _path(setup, relative, hparams, params, data, key, grid, tolerance)
    return as_path(setup, found, data)


def prepared(
    problem: Problem, penalty: Penalty, key, method, hparams, plan, eval_every, max_rounds
) -> tuple[Setup, PyTree, Params, Key]:
    """Check the arguments of a path and replace each ``None`` by its default."""
    plan = as_plan(local_steps(1) if plan is None else plan)
    key = jax.random.key(0) if key is None else key
    algorithm = (method or default_method(penalty))(problem.loss)
    require_algorithm(algorithm)
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
    params = _zeros_like(as_params(problem.init(key)), problem.train)
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
    widest = max(floats, key=lambda dtype: jnp.finfo(dtype).bits)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, widest), params)


def default_method(penalty: Penalty) -> Method:
    """Return FedMiD-OSP with the Euclidean mirror."""
    return lambda loss: fed_mid_osp(loss, euclidean(penalty))


def grid_of(
    penalty: Penalty, strengths: int | Sequence[float] | np.ndarray, least: float
) -> tuple[np.ndarray, bool]:
    """Return the strengths, or their ratios to the first one, and whether they are ratios."""
    if isinstance(strengths, int | np.integer):
        count = checked_value("strengths", strengths, Count)
        if penalty.scale_max is None:
            raise ValueError(
                "the penalty has no scale_max, so the first strength of its path is unknown; pass "
                "strengths= as a list."
            )
        return np.geomspace(1.0, least, count), True
    values = np.asarray(checked_value("strengths", strengths, _Strengths), float)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"strengths is {shown(strengths)}; pass a list of them, or how many.")
    return values, False


@jit_per(2, kept=16)
@in_full_precision
def _path(setup, relative, hparams, params, data, key, grid, tolerance) -> TracedPath:
    counts = data.weights[: data.num_clients] > 0
    data = data if setup.summary is None else setup.summary(data)
    found = path_traced(setup, hparams, params, data, key, grid, relative, tolerance)
    fits = found.fits._replace(outcome=traffic_of_all(found.fits.outcome, counts))
    return found._replace(fits=fits, null_outcome=traffic_of_all(found.null_outcome, counts))


def path_traced(
    setup: Setup, hparams, params, data, key, grid, relative, tolerance, unit=None
) -> TracedPath:
    """Compute the first strength from the null model, then the path, from within a program.

    The null model is the one at a strength beyond all others. It gives the least strength at which
    it is optimal, the first one of a relative grid. A penalty without ``scale_max`` has no such
    strength: then the path starts at ``params``, and the grid must not be relative.
    """
    scale_max = setup.penalty.scale_max
    gradient = pooled_gradient(setup.loss, params, data)
    if scale_max is None:
        start, first = params, jnp.ones((), jax.tree.leaves(gradient)[0].dtype)
        null_outcome = _no_solve(first, data)
    else:
        guess = scale_max(gradient)
        beyond = jnp.asarray(jnp.finfo(guess.dtype).max ** 0.25, guess.dtype)
        null = warm_started_path(
            setup, hparams, params, beyond[None], data, key, tolerance * guess, FIRST_ITERATIONS
        )
        start, null_outcome = jax.tree.map(lambda leaf: leaf[0], (null.models, null.outcome))
        first = scale_max(pooled_gradient(setup.loss, start, data))
    strengths = jnp.asarray(grid, first.dtype) * (first if relative else 1)
    if unit is None:
        tiny = jnp.finfo(first.dtype).tiny
        unit = first if relative else jnp.maximum(jnp.max(strengths), tiny)
    fits = warm_started_path(setup, hparams, start, strengths, data, key, tolerance * unit)
    return TracedPath(strengths, fits, null_outcome, unit)


def warm_started_path(
    setup: Setup, hparams, params, strengths, data, key, tolerance, num_iterations=_LATER_ITERATIONS
) -> Fits:
    """Solve for one strength after the other, each from the model of the one before."""
    is_quadratic = setup.summary is not None

    def solve_one(carry, inputs):
        start, curvature = carry
        index, strength = inputs
        now = hparams._replace(penalty_scale=_cast_like(strength, hparams.penalty_scale))
        if setup.finds_rate:
            if not is_quadratic:
                curvature = curvature_at(setup.loss, start, data, curvature[1], num_iterations)
            now = now._replace(client_lr=_cast_like(1 / curvature[0], now.client_lr))
        solve_key = jax.random.fold_in(key, index)
        model, outcome = solve_traced(
            setup.program, setup.max_rounds, now, start, data, solve_key, tolerance
        )
        fit = population_loss(setup.loss, model, data)
        objective = fit + setup.penalty.value(model, strength).astype(fit.dtype)
        # Starting from a model that is not finite would spoil all strengths after it.
        is_sound = ~outcome.diverged & tree.all_finite(model)
        next_start = tree.where(is_sound, model, start)
        return (next_start, curvature), Fits(model, objective, outcome)

    curvature = ()
    if setup.finds_rate:
        direction = flat().random_point(params, key)
        number = FIRST_ITERATIONS if is_quadratic else FIRST_ITERATIONS - num_iterations
        curvature = curvature_at(setup.loss, params, data, direction, number)
    index = jnp.arange(strengths.shape[0], dtype=jnp.int32)
    return jax.lax.scan(solve_one, (params, curvature), (index, strengths))[1]


def curvature_at(
    loss: Loss, params: Params, data: ClientData, direction: Params, num_iterations: int
) -> tuple[Array, Params]:
    """Estimate the largest curvature of F at a point by power iterations; return its direction too.

    Power iterations converge from below, so a tenth is added.
    """

    def iterate(_, carry):
        direction, _ = carry
        gradient = functools.partial(pooled_gradient, loss, data=data)
        image = jax.jvp(gradient, (params,), (direction,))[1]
        size = tree.norm(image)
        is_flat = ~(size > 0)  # F has no curvature in this direction
        unit = tree.scale(1 / jnp.where(is_flat, 1, size), image)
        return tree.where(is_flat, direction, unit), jnp.where(is_flat, 1, size)

    start = direction, jnp.ones_like(tree.norm(direction))
    direction, size = jax.lax.fori_loop(0, num_iterations, iterate, start)
    return 1.1 * size, direction


def _no_solve(zero: Array, data: ClientData) -> Outcome:
    """Return the outcome of a solve that is skipped."""
    none, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    sent = jnp.zeros(data.num_clients)
    return Outcome(jnp.zeros_like(zero), none, none, ~no, no, sent, sent)


def as_path(setup: Setup, found: TracedPath, data: ClientData) -> Path:
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
    """Return a path's exchanges for the first strength (two gradients) and for the curvature."""
    has_null = setup.penalty.scale_max is not None
    later = 0 if setup.summary else _LATER_ITERATIONS  # a quadratic has the same curvature anywhere
    iterations = FIRST_ITERATIONS * (1 + has_null) + later * (num_strengths - 1)
    return Exchanges(2 * has_null, iterations if setup.finds_rate else 0)


def _cast_like(number: Array, other: Array) -> Array:
    return number.astype(jnp.asarray(other).dtype)
