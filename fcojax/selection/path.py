"""Models along a grid of strengths, each started from the one before, in one program."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms import fed_mid_osp
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work, as_number, checked_count, local_steps
from fcojax.device import in_full_precision
from fcojax.engine.certificates import kkt, pooled_gradient
from fcojax.engine.check import check_hparams, check_run, checked_params
from fcojax.engine.hparams import as_arrays
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.solve import Outcome, solved
from fcojax.problems.clients import ClientData
from fcojax.problems.fields import shown
from fcojax.problems.problem import Loss, Problem, population_loss
from fcojax.selection.ledger import Entry, Ledger
from fcojax.selection.show import draw_path, table_of
from fcojax.selection.summary import sent_by_each, usable_summary
from fcojax.transforms import Penalty, euclidean, flat
from fcojax.types import Array, Key, Params, PyTree

Method = Callable[[Loss], Algorithm]

# Power iterations for the curvature: from any direction, and from the last strength's.
_FIRST_LOOKS, _NEXT_LOOKS = 30, 3


class Setup(NamedTuple):
    """What is fixed while a path is compiled."""

    algorithm: Algorithm
    plan: Plan
    loss: Loss
    penalty: Penalty
    check_every: int
    max_rounds: int
    finds_rate: bool
    summary: Callable[[ClientData], ClientData] | None = None


class Path(NamedTuple):
    """Models along a grid of strengths.

    Attributes:
      strengths: from the strongest on.
      models: with a leading axis of strengths.
      objective: F + psi of each.
      outcome: how each solve ended, with leading axes of strengths.
      ledger: what was sent for all of them.

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
        """Parameters of each model that are not zero."""
        return num_nonzero(self.models, 1)

    def __str__(self) -> str:
        return table_of(self)

    def plot(self, axes: Any = None) -> Any:
        """Draws every parameter over the strength with matplotlib; returns the axes."""
        return draw_path(self, axes)


class Walk(NamedTuple):
    """What a walk along strengths finds at each of them."""

    models: Params
    objective: Array
    outcome: Outcome


def path(
    problem: Problem,
    penalty: Penalty,
    *,
    strengths: int | Sequence[float] = 50,
    least: float = 1e-2,
    key: Key | None = None,
    method: Method | None = None,
    hparams: PyTree = None,
    plan: Plan | Work | None = None,
    tolerance: float = 1e-6,
    check_every: int = 10,
    max_rounds: int = 10_000,
) -> Path:
    """Fits a model for each strength of a penalty, from the strongest on, as one program.

    No data leave a client. The clients fit what the penalty leaves free (a bias), and one exchange
    of their gradients at that model gives the strongest strength: the least one at which the
    penalised parameters are all zero. From there a log grid goes down, and each solve starts at
    the last model and stops when it is solved.

    By default all that counts of what clients send is the mean of their gradients. Where the
    problem has a ``summary``, as ``problems.linear`` does, the simulation computes that mean from
    it: models are the same to rounding, and the ledger counts what clients would send.

    Args:
      problem: the loss, the clients and the start point, of which only the shapes matter.
      penalty: psi; it needs ``scale_max``, unless the strengths are given.
      strengths: how many, or which: those are walked along as they are given.
      least: the last strength as a share of the first.
      key: all the luck, if there is any.
      method: ``loss -> algorithm``; by default FedMiD-OSP, which with one full-batch step of
        everybody a round is proximal gradient descent on F + psi and leaves exact zeros.
      hparams: the method's hyperparameters, whose strength is replaced. By default its
        ``client_lr`` is one over the curvature of F, which power iterations look up: each is an
        exchange with all clients, a few for each strength unless F is a quadratic.
      plan: how rounds are driven; by default everyone takes one full-batch step.
      tolerance: on the violation of the optimality conditions, in units of the first strength.
      check_every: rounds between two looks at the violation.
      max_rounds: for each strength.

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
    setup, hparams, params, key = prepared(
        problem, penalty, key, method, hparams, plan, check_every, max_rounds
    )
    if method is None and (summary := usable_summary(problem, setup.plan)):
        algorithm = default_method(penalty)(summary.loss)
        setup = setup._replace(algorithm=algorithm, loss=summary.loss, summary=summary.client)
    grid = grid_of(penalty, strengths, least)
    found = _path(setup, hparams, params, problem.train, key, *grid, tolerance)
    walk, values, first = found
    ledger = Ledger(
        (Entry("rates", *_rates(setup, walk, problem.train)), entry_of("start", first),
         entry_of("path", walk.outcome)),
        names_of(problem.train),
    )  # fmt: skip
    return Path(values, walk.models, walk.objective, walk.outcome, ledger)


def prepared(
    problem: Problem, penalty: Penalty, key, method, hparams, plan, check_every, max_rounds
) -> tuple[Setup, PyTree, Params, Key]:
    """The arguments of a path, checked and with their defaults."""
    if not isinstance(problem, Problem):
        raise ValueError(
            f"problem is {shown(problem)}; pass a Problem, as fcojax.problems.linear(data) makes."
        )
    plan = as_plan(local_steps(1) if plan is None else plan)
    key = jax.random.key(0) if key is None else key
    algorithm = (method or default_method(penalty))(problem.loss)
    finds_rate = hparams is None
    if finds_rate:
        hparams = algorithm.hparams_type()
    for name in ("penalty_scale", *(["client_lr"] if finds_rate else [])):
        if not hasattr(hparams, name):
            raise ValueError(
                f"the method's hyperparameters have no {name}, which a path sets; take a method "
                "that has it, and pass hparams= if only the rate has another name."
            )
    check_hparams(hparams)
    check_run(algorithm, plan, hparams, problem.train, key)
    params = _in_precision_of(problem.train, checked_params(problem.init(key)))
    check_every = checked_count("check_every", check_every)
    blocks = -(-checked_count("max_rounds", max_rounds) // check_every)
    setup = Setup(
        algorithm, plan, problem.loss, penalty, check_every, blocks * check_every, finds_rate
    )
    return setup, as_arrays(hparams), params, key


def _in_precision_of(data: ClientData, params: Params) -> Params:
    """Zeros like the parameters, as wide as the widest floats among the examples."""
    floats = [
        leaf.dtype
        for leaf in jax.tree.leaves((data.examples, params))
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    widest = max(floats, key=lambda dtype: jnp.finfo(dtype).bits)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, widest), params)


def default_method(penalty: Penalty) -> Method:
    """FedMiD-OSP with the Euclidean mirror."""
    return lambda loss: fed_mid_osp(loss, euclidean(penalty))


def grid_of(
    penalty: Penalty, strengths: int | Sequence[float], least: float
) -> tuple[np.ndarray, bool]:
    """Strengths, or their ratios to the first; and whether they are ratios."""
    if isinstance(strengths, int | np.integer):
        num = checked_count("strengths", strengths)
        if penalty.scale_max is None:
            raise ValueError(
                "the penalty has no scale_max, so nobody knows where its path begins; pass "
                "strengths= as a list."
            )
        if not 0 < as_number(least) < 1:
            raise ValueError(f"least is {shown(least)}; pass a number strictly between 0 and 1.")
        return np.geomspace(1.0, least, num), True
    values = np.asarray(strengths, float)
    if values.ndim != 1 or not values.size or not (values >= 0).all():
        raise ValueError(
            f"strengths is {shown(strengths)}; pass numbers of at least 0, or how many."
        )
    return values, False


@functools.partial(jax.jit, static_argnums=(0, 6))
@in_full_precision
def _path(setup, hparams, params, data, key, grid, relative, tolerance):
    counts = data.weights[: data.num_clients] > 0
    data = data if setup.summary is None else setup.summary(data)
    first, outcome, top = null_model(setup, hparams, params, data, key, tolerance)
    strengths = jnp.asarray(grid, top.dtype) * (top if relative else 1)
    unit = top if relative else jnp.maximum(jnp.max(strengths), jnp.finfo(top.dtype).tiny)
    walk = along(setup, hparams, first, strengths, data, key, tolerance * unit)
    walk = walk._replace(outcome=sent_by_each(walk.outcome, counts))
    return walk, strengths, sent_by_each(outcome, counts)


def null_model(setup: Setup, hparams, params, data, key, tolerance):
    """The model of a strength beyond all others, and the least strength at which it is optimal.

    Starts at the given point if the penalty cannot tell such a strength; the second is then 1.
    """
    slope = pooled_gradient(setup.loss, params, data)
    if setup.penalty.scale_max is None:
        one = jnp.ones((), jax.tree.leaves(slope)[0].dtype)
        return params, nothing_sent(one, data), one
    guess = setup.penalty.scale_max(slope)
    beyond = jnp.asarray(jnp.finfo(guess.dtype).max ** 0.25, guess.dtype)
    walk = along(setup, hparams, params, beyond[None], data, key, tolerance * guess, _FIRST_LOOKS)
    model, outcome = jax.tree.map(lambda leaf: leaf[0], (walk.models, walk.outcome))
    return model, outcome, setup.penalty.scale_max(pooled_gradient(setup.loss, model, data))


def along(
    setup: Setup, hparams, params, strengths, data, key, tolerance, looks: int = _NEXT_LOOKS
) -> Walk:
    """Solves for one strength after the other, each from the last model."""
    certificate = kkt(setup.loss, setup.penalty)
    is_quadratic = setup.summary is not None

    def one_strength(carry, given):
        start, curved = carry
        index, strength = given
        now = hparams._replace(penalty_scale=_like(strength, hparams.penalty_scale))
        if setup.finds_rate:
            if not is_quadratic:
                curved = curvature_at(setup.loss, start, data, curved[1], looks)
            now = now._replace(client_lr=_like(1 / curved[0], now.client_lr))
        model, outcome = solved(
            setup.algorithm, setup.plan, certificate, setup.check_every, setup.max_rounds,
            now, start, data, jax.random.fold_in(key, index), tolerance,
        )  # fmt: skip
        fit = population_loss(setup.loss, model, data)
        objective = fit + setup.penalty.value(model, strength).astype(fit.dtype)
        # Who starts at a model that is not finite never comes back.
        sound = ~outcome.diverged & tree.all_finite(model)
        return (tree.where(sound, model, start), curved), Walk(model, objective, outcome)

    curved = ()
    if setup.finds_rate:
        direction = flat().random_point(params, key)
        first = _FIRST_LOOKS if is_quadratic else _FIRST_LOOKS - looks
        curved = curvature_at(setup.loss, params, data, direction, first)
    index = jnp.arange(strengths.shape[0], dtype=jnp.int32)
    return jax.lax.scan(one_strength, (params, curved), (index, strengths))[1]


def curvature_at(
    loss: Loss, params: Params, data: ClientData, direction: Params, looks: int
) -> tuple[Array, Params]:
    """The largest curvature of F at a point and its direction, by so many power iterations.

    A tenth is added, because power iterations come from below.
    """

    def look(_, carry):
        direction, _ = carry
        slope = functools.partial(pooled_gradient, loss, data=data)
        image = jax.jvp(slope, (params,), (direction,))[1]
        size = tree.norm(image)
        flat = ~(size > 0)  # nothing is curved in this direction
        unit = tree.scale(1 / jnp.where(flat, 1, size), image)
        return tree.where(flat, direction, unit), jnp.where(flat, 1, size)

    start = direction, jnp.ones_like(tree.norm(direction))
    direction, size = jax.lax.fori_loop(0, looks, look, start)
    return 1.1 * size, direction


def nothing_sent(zero: Array, data: ClientData) -> Outcome:
    """The outcome of a solve that did not take place."""
    none, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    sent = jnp.zeros(data.num_clients)
    return Outcome(jnp.zeros_like(zero), none, none, ~no, no, sent, sent)


def num_nonzero(models: Params, leading: int) -> Array:
    """Entries that are not zero, behind so many leading axes."""

    def count(leaf):
        return jnp.sum(leaf != 0, axis=tuple(range(leading, leaf.ndim)), dtype=jnp.int32)

    return tree.total(jax.tree.map(count, models))


def names_of(data: ClientData) -> tuple:
    """The clients' names."""
    return tuple(range(data.num_clients) if data.ids is None else data.ids.tolist())


def entry_of(part: str, outcome: Outcome) -> Entry:
    """What all solves together sent, by client."""
    down, up = (
        np.asarray(sent, float).reshape(-1, sent.shape[-1]).sum(axis=0)
        for sent in (outcome.bytes_down, outcome.bytes_up)
    )
    return Entry(part, down, up)


def _rates(setup: Setup, walk: Walk, data: ClientData) -> tuple[np.ndarray, np.ndarray]:
    """What one walk sends beside its rounds and checks: see ``exchanged``."""
    num_strengths = walk.outcome.rounds.shape[-1]
    one_model = tree.num_bytes(jax.tree.map(lambda leaf: leaf[0], walk.models))
    return exchanged(exchanges(setup, num_strengths), one_model, np.asarray(data.weights))


class Exchanges(NamedTuple):
    """How often clients are asked beside rounds and checks.

    Attributes:
      gradients: a model down and a gradient up.
      products: a model and a direction down, and the Hessian's product with it up.
    """

    gradients: int
    products: int


# The refit looks at the curvature once.
REFIT_LOOKS = Exchanges(0, _FIRST_LOOKS)


def exchanges(setup: Setup, num_strengths: int) -> Exchanges:
    """Those of a path: where it begins, asked at the start and at the null model, and the rates."""
    begins = setup.penalty.scale_max is not None
    later = 0 if setup.summary else _NEXT_LOOKS  # a quadratic is curved alike everywhere
    looks = _FIRST_LOOKS + later * (num_strengths - 1) + begins * _FIRST_LOOKS
    return Exchanges(2 * begins, looks if setup.finds_rate else 0)


def exchanged(
    asked: Exchanges, model_bytes: int, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes down and up of each client with a weight, for these exchanges."""
    there = (weights > 0) * float(model_bytes)
    return there * (asked.gradients + 2 * asked.products), there * (
        asked.gradients + asked.products
    )


def _like(number: Array, other: Array) -> Array:
    return number.astype(jnp.asarray(other).dtype)
