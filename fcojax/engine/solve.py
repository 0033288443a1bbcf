"""Rounds until the problem is solved: blocks of the stepper with a certificate between them."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work, checked_count
from fcojax.engine import axes
from fcojax.engine.certificates import VIOLATION
from fcojax.engine.check import check_observe, check_run, check_schedules, checked_params
from fcojax.engine.cohort import Everyone
from fcojax.engine.grid import num_points, take
from fcojax.engine.hparams import as_arrays
from fcojax.engine.luck import COHORT
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.state import Observe, State
from fcojax.engine.stepper import advanced, model_of, started
from fcojax.problems.clients import ClientData
from fcojax.problems.fields import shown
from fcojax.types import Array, Key, Params, PyTree, Scalar


class Outcome(NamedTuple):
    """How a solve ended, and what it sent.

    Attributes:
      violation: of the model, as the certificate last found it.
      rounds: rounds taken.
      checks: how often the certificate was asked; each time every client is sent the model and
        answers with a gradient.
      solved: whether the violation came down to the tolerance.
      diverged: whether it was not finite, had grown beyond all measure, or nobody was heard.
      bytes_down: what each client was sent, the certificate included.
      bytes_up: what each client sent.
    """

    violation: Array
    rounds: Array
    checks: Array
    solved: Array
    diverged: Array
    bytes_down: Array
    bytes_up: Array

    def verdicts(self) -> list[str]:
        """A sentence for each point and seed."""
        names = ("violation", "rounds", "solved", "diverged")
        columns = [np.ravel(np.asarray(getattr(self, name))) for name in names]
        return [_sentence(*row) for row in zip(*columns, strict=True)]


class Progress(NamedTuple):
    """Where a solve stands: the state of the stepper, and its outcome so far."""

    state: State
    first: Array  # the violation at the start
    outcome: Outcome


def solve(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    plan: Plan | Work,
    *,
    certificate: Observe,
    tolerance: Scalar = 1e-6,
    check_every: int = 10,
    max_rounds: int = 10_000,
) -> tuple[Params, Outcome]:
    """Runs rounds until a certificate says that the problem is solved.

    The certificate is asked at the start, so that a start that solves the problem costs no round,
    and then after every ``check_every`` rounds, inside the compiled program. Points of a sweep that
    are solved stand still; once half of them do, only the others go on.

    Args:
      algorithm: what to run, and so are the next five as they are for ``fcojax.run``; with a vector
        of keys and a grid as they are for ``fcojax.sweep``.
      hparams: its hyperparameters, or a grid of them.
      params: the start point.
      data: the clients.
      key: all the luck of the run; a vector of keys for a sweep.
      plan: how rounds are driven.
      certificate: ``(hparams, model, data) -> {"violation": number}``, such as ``fcojax.kkt``.
      tolerance: the violation at which a point counts as solved.
      check_every: rounds between two looks.
      max_rounds: after which it gives up, with ``solved`` false; rounded up to whole blocks.

    Returns:
      The model, and the outcome; in a sweep with leading axes [points, seeds].

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np, fcojax
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([3.0])}])
      >>> loss, l1 = lambda w, rows: 0.5 * (w - rows["a"]) ** 2, fcojax.transforms.l1()
      >>> fed_mid = fcojax.algorithms.fed_mid_osp(loss, fcojax.transforms.euclidean(l1))
      >>> model, outcome = fcojax.solve(
      ...     fed_mid, fed_mid.hparams_type(client_lr=0.5, penalty_scale=0.5), jnp.array(0.0), data,
      ...     jax.random.key(0), fcojax.local_steps(1), certificate=fcojax.kkt(loss, l1))
      >>> round(float(model), 5), outcome.verdicts()
      (1.5, ['solved by round 30: the violation is ...'])
    """
    plan = as_plan(plan)
    check_every = checked_count("check_every", check_every)
    max_rounds = -(-checked_count("max_rounds", max_rounds) // check_every) * check_every
    if not isinstance(tolerance, Tracer) and not float(tolerance) >= 0:
        raise ValueError(f"tolerance is {shown(tolerance)}; pass a number of at least 0.")
    check_run(algorithm, plan, hparams, data, key)
    check_observe(certificate)
    sweeping = axes.is_sweep(key)
    check_schedules(hparams, max_rounds, sweeping=sweeping)
    hparams, params = as_arrays(hparams), checked_params(params)
    static = algorithm, plan, certificate, check_every, max_rounds
    if not sweeping:
        return _solve(*static, hparams, params, data, key, tolerance)
    progress = _begin(*static[:3], hparams, params, data, key, tolerance)
    progress = _with_leaving(static, hparams, data, progress, tolerance)
    model = model_of(algorithm, hparams, progress.state)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (model, progress.outcome))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _solve(algorithm, plan, certificate, check_every, max_rounds, *given):
    return solved(algorithm, plan, certificate, check_every, max_rounds, *given)


def solved(
    algorithm, plan, certificate, check_every, max_rounds, hparams, params, data, key, tolerance
) -> tuple[Params, Outcome]:
    """``solve`` of one point with everything checked, as a part of a larger program."""
    progress = begun(algorithm, plan, certificate, hparams, params, data, key, tolerance)
    static = algorithm, plan, certificate, check_every, max_rounds
    progress = continued(*static, hparams, data, progress, tolerance, 0)
    return model_of(algorithm, hparams, progress.state), progress.outcome


def begun(algorithm, plan, certificate, hparams, params, data, key, tolerance) -> Progress:
    """The first state, and what the certificate says of it."""
    state = started(algorithm, plan, None, hparams, params, data, key)
    see = functools.partial(_violation, certificate)
    if axes.is_sweep(key):
        given = (axes.PER_POINT, axes.OWN)
        see = axes.over_grid(see, data, (*given, axes.SHARED), axes.OWN)
    model = model_of(algorithm, hparams, state)
    violation = see(hparams, model, data)
    none = jnp.zeros(violation.shape, jnp.int32)
    down, up = _check_bytes(model, violation, data)
    outcome = Outcome(violation, none, none + 1, none > 0, none > 0, down, up)
    return Progress(state, violation, _judged(outcome, violation, none > 0, tolerance))


_begin = jax.jit(begun, static_argnums=(0, 1, 2))


def continued(
    algorithm, plan, certificate, check_every, max_rounds, hparams, data, progress, tolerance, idle
) -> Progress:
    """Blocks of rounds until no more than ``idle`` points go on, or the rounds are used up."""

    def going(progress):
        count = jnp.sum(_points_going_on(progress.outcome), dtype=jnp.int32)
        return (count > idle) & (progress.state.round < max_rounds)

    def block(progress):
        state, history = advanced(
            algorithm, plan, certificate, 1, check_every, hparams, data, progress.state, data
        )
        return _after_block(algorithm, plan, hparams, data, progress, state, history, tolerance)

    return jax.lax.while_loop(going, block, progress)


_continue = jax.jit(continued, static_argnums=(0, 1, 2, 3, 4))


def _after_block(algorithm, plan, hparams, data, before: Progress, state, history, tolerance):
    """The progress after one more block; points that were done stay as they were."""
    model = jax.eval_shape(lambda state: model_of(algorithm, hparams, state), state)
    seen = {name: jnp.squeeze(column, -1) for name, column in history.items() if column.ndim}
    violation, old = seen[VIOLATION], before.outcome
    num_rounds = state.round - before.state.round
    down, up = _check_bytes(model, violation, data)
    taken = _rounds_of_clients(plan, data, before.state, num_rounds)
    taken = jnp.broadcast_to(taken, down.shape)
    each = taken / jnp.maximum(seen["participants"], 1).astype(down.dtype)[..., None]
    silent = (seen["participants"] > 0) & (seen["dropped"] >= seen["participants"])
    lost = silent | (seen["refused"] > 0) | (violation > 1e8 * before.first)
    new = old._replace(
        violation=violation,
        rounds=jnp.broadcast_to(state.round, old.rounds.shape),
        checks=old.checks + 1,
        bytes_down=old.bytes_down + down + each * seen["bytes_down"].astype(down.dtype)[..., None],
        bytes_up=old.bytes_up + up + each * seen["bytes_up"].astype(up.dtype)[..., None],
    )
    new = _judged(new, violation, lost, tolerance)
    goes_on = _going_on(old)
    keep = functools.partial(_where_going, goes_on)
    kept = state._replace(
        server=keep(state.server, before.state.server),
        clients=keep(state.clients, before.state.clients),
        residuals=keep(state.residuals, before.state.residuals),
    )
    return Progress(kept, before.first, keep(new, old))


def _with_leaving(static, hparams, data, progress: Progress, tolerance) -> Progress:
    """All points of a grid to their ends; those that are done leave once they are half of them."""
    everyone, points = progress, np.arange(num_points(hparams))
    max_rounds = static[-1]
    while True:
        # Points that are shared between devices stay, so that all have equally many.
        idle = points.size // 2 if data.num_sweep_shards == 1 else 0
        some = take(hparams, points)
        progress = _continue(*static, some, data, progress, tolerance, idle)
        everyone = _put(everyone, progress, points)
        left = np.flatnonzero(_points_going_on(progress.outcome))
        if not left.size or int(progress.state.round) >= max_rounds:
            return everyone
        # Sizes halve, so there are few programs; places that are free repeat the last point.
        size = points.size
        while size > left.size and -(-size // 2) >= left.size:
            size = -(-size // 2)
        here = np.concatenate([left, np.repeat(left[-1:], size - left.size)])
        points, progress = points[here], _points_of(progress, here)


def _points_of(progress: Progress, here) -> Progress:
    pick = functools.partial(jax.tree.map, lambda leaf: leaf[:, here])
    state = progress.state
    return Progress(
        state._replace(
            server=pick(state.server),
            clients=pick(state.clients),
            residuals=pick(state.residuals),
        ),
        pick(progress.first),
        pick(progress.outcome),
    )


def _put(everyone: Progress, some: Progress, points) -> Progress:
    """What some points came to, among all."""

    def put(whole, part):
        return jax.tree.map(lambda a, b: a.at[:, points].set(b), whole, part)

    state = everyone.state._replace(
        server=put(everyone.state.server, some.state.server),
        clients=put(everyone.state.clients, some.state.clients),
        residuals=put(everyone.state.residuals, some.state.residuals),
        round=some.state.round,
    )
    return Progress(state, everyone.first, put(everyone.outcome, some.outcome))


def _violation(certificate, hparams, model, data) -> Array:
    return certificate(hparams, model, data)[VIOLATION]


def _judged(outcome: Outcome, violation: Array, lost: Array, tolerance: Scalar) -> Outcome:
    diverged = lost | ~jnp.isfinite(violation)
    enough = violation <= jnp.asarray(tolerance, violation.dtype)
    return outcome._replace(solved=enough & ~diverged, diverged=diverged)


def _going_on(outcome: Outcome) -> Array:
    return ~(outcome.solved | outcome.diverged)


def _points_going_on(outcome: Outcome) -> Array:
    """Of a sweep, the points of which some seed goes on."""
    goes_on = _going_on(outcome)
    return jnp.any(goes_on, axis=0) if goes_on.ndim else goes_on


def _where_going(goes_on: Array, new: PyTree, old: PyTree) -> PyTree:
    def choose(a, b):
        return jnp.where(goes_on.reshape(goes_on.shape + (1,) * (a.ndim - goes_on.ndim)), a, b)

    return jax.tree.map(choose, new, old)


def _check_bytes(model: PyTree, violation: Array, data: ClientData) -> tuple[Array, Array]:
    """One exchange of the model for a gradient, with every client that counts."""
    size = tree.num_bytes(model) // max(violation.size, 1)
    counts = data.weights[: data.num_clients] > 0
    each = jnp.where(counts, float(size), 0.0)
    each = jnp.broadcast_to(each, (*violation.shape, data.num_clients))
    return each, each


def _rounds_of_clients(plan: Plan, data: ClientData, state: State, num_rounds: Array) -> Array:
    """In how many of the next rounds each client takes part, a seed's for all its points."""
    counts = data.weights[: data.num_clients] > 0
    number = jnp.result_type(float)
    if isinstance(plan.cohort, Everyone):
        return jnp.where(counts, num_rounds.astype(number), 0)

    def of_seed(key):
        def add(index, total):
            law = jax.random.fold_in(key, COHORT)
            cohort = plan.cohort(law, state.round + index, data.num_clients, data.sizes)
            members = cohort.members
            if members is None:
                members = jnp.arange(data.num_clients, dtype=jnp.int32)
            here = (cohort.weights > 0).astype(number)
            return total.at[members].add(here, mode="drop")

        total = jax.lax.fori_loop(0, num_rounds, add, jnp.zeros(data.num_clients, number))
        return jnp.where(counts, total, 0)

    if axes.is_sweep(state.key):
        return jax.vmap(of_seed)(state.key)[:, None]
    return of_seed(state.key)


def _sentence(violation, rounds, is_solved, diverged) -> str:
    if diverged:
        return f"diverged by round {rounds}: the violation is {violation:.3g}; take a smaller rate"
    if is_solved:
        return f"solved by round {rounds}: the violation is {violation:.3g}"
    return (
        f"not solved after {rounds} rounds: the violation is {violation:.3g}; allow more rounds, "
        "or take a method or a plan that is exact"
    )
