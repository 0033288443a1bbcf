"""Rounds until a certificate holds: blocks of the stepper with an evaluation between them."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import shown, validated
from fcojax.engine.blocks import halved, padded, put_leaves, put_points, take_points
from fcojax.engine.hparams import num_points, take
from fcojax.engine.optimality import VIOLATION
from fcojax.engine.participation.base import Everyone
from fcojax.engine.plan import Plan, Program
from fcojax.engine.randomness import COHORT
from fcojax.engine.state import Observe, State, is_sweep
from fcojax.engine.status import Status
from fcojax.engine.stepper import advance_traced, look_traced, read_model_traced, start_traced
from fcojax.engine.validation import as_params, as_program
from fcojax.memo import jit_per
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Count, Key, NonNegative, Params, PyTree, Scalar

_BLOW_UP = 1e8  # a violation that has grown by this factor counts as divergence


class Outcome(NamedTuple):
    """How a solve ended, and its traffic.

    Attributes:
      violation: the last violation of the optimality conditions.
      rounds: number of rounds.
      checks: number of evaluations of the certificate; in each of them every client receives the
        model and sends a gradient.
      solved: whether the violation reached the tolerance.
      diverged: whether it became non-finite or grew without bound, or a whole round was non-finite.
      bytes_down: bytes sent to each client, including the certificate.
      bytes_up: bytes sent by each client.
    """

    violation: Array
    rounds: Array
    checks: Array
    solved: Array
    diverged: Array
    bytes_down: Array
    bytes_up: Array

    def statuses(self) -> list[Status]:
        """Return the status of each run, points first."""
        ends = {"DIVERGED": self.diverged, "SOLVED": self.solved}
        columns = zip(*(np.ravel(np.asarray(column)) for column in ends.values()), strict=True)
        found = [[name for name, is_so in zip(ends, run, strict=True) if is_so] for run in columns]
        return [Status[(names or ["UNSOLVED"])[0]] for names in found]

    def verdicts(self) -> list[str]:
        """Return a sentence for each run, points first."""
        columns = (np.ravel(np.asarray(column)) for column in (self.rounds, self.violation))
        return [
            status.sentence(int(rounds), f"the violation is {violation:.3g}")
            for status, rounds, violation in zip(self.statuses(), *columns, strict=True)
        ]


class SolveProgress(NamedTuple):
    """A solve between two blocks: the state, the violation at the start, the outcome so far."""

    state: State
    first_violation: Array
    outcome: Outcome


@validated
def solve(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    plan: Plan | Work,
    *,
    certificate: Observe,
    tolerance: NonNegative = 1e-6,
    eval_every: Count = 10,
    max_rounds: Count = 10_000,
) -> tuple[Params, Outcome]:
    """Run rounds until a certificate shows that the problem is solved.

    The certificate is evaluated at the start, so that a start point that solves the problem costs
    no round, and then after every ``eval_every`` rounds, inside the compiled program. Runs of a
    sweep that are solved are frozen; once half of the points are, only the others continue.

    Args:
      algorithm: an ``Algorithm``, which a factory such as ``fed_avg(loss)`` returns.
      hparams: its hyperparameters; for a sweep a grid of them, with a leading axis of points.
      params: the start point.
      data: the clients.
      key: PRNG key, the only source of randomness; for a sweep a vector with one key per seed.
      plan: how rounds are run: a ``Plan``, or a ``Work`` if everyone takes part.
      certificate: ``(hparams, model, data) -> {"violation": number}``, such as ``fcojax.kkt``; or
        a ``StateObserver`` of the whole state.
      tolerance: the violation at which a run counts as solved.
      eval_every: rounds between two evaluations of the certificate.
      max_rounds: the largest number of rounds, rounded up to a multiple of ``eval_every``.

    Returns:
      The model, and the outcome, with leading axes [points, seeds] in a sweep.

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
    # All blocks have the same length, so one program serves them.
    max_rounds = -(-max_rounds // eval_every) * eval_every
    rounds = max_rounds, eval_every
    program, hparams = as_program(algorithm, hparams, data, key, plan, *rounds, certificate)
    program, params = program._replace(num_evaluations=1), as_params(params)
    if is_sweep(key):
        progress = _begin_compiled(program, hparams, params, data, key, tolerance)
        progress = _solve_grid(program, max_rounds, hparams, data, progress, tolerance)
        model, outcome = read_model_traced(algorithm, hparams, progress.state), progress.outcome
    else:
        model, outcome = _solve_compiled(program, max_rounds, hparams, params, data, key, tolerance)
    return model, outcome


def solve_traced(
    program: Program,
    max_rounds: int,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    tolerance: Scalar,
) -> tuple[Params, Outcome]:
    """Body of ``solve`` for one run."""
    progress = _begin_traced(program, hparams, params, data, key, tolerance)
    progress = _continue_traced(program, max_rounds, hparams, data, progress, tolerance, 0)
    return read_model_traced(program.algorithm, hparams, progress.state), progress.outcome


_solve_compiled = jit_per(num_static=2)(solve_traced)


def _begin_traced(program: Program, hparams, params, data, key, tolerance) -> SolveProgress:
    """Return the first state and its violation."""
    algorithm, certificate = program.algorithm, program.observe
    state = start_traced(algorithm, program.plan, None, hparams, params, data, key)
    # A certificate takes the population as its context, because it needs the gradients of all
    # clients.
    measures = look_traced(algorithm, certificate, hparams, state, data, data)
    violation = _violation(measures, 2 * key.ndim)
    model = jax.eval_shape(lambda state: read_model_traced(algorithm, hparams, state), state)
    zero = jnp.zeros(violation.shape, jnp.int32)
    size = _certificate_bytes(model, violation, data)  # as many up as down
    outcome = Outcome(violation, zero, zero + 1, zero > 0, zero > 0, size, size)
    return SolveProgress(state, violation, _with_status(outcome, violation, zero > 0, tolerance))


_begin_compiled = jit_per(num_static=1)(_begin_traced)


def _continue_traced(
    program: Program,
    max_rounds: int,
    hparams,
    data,
    progress: SolveProgress,
    tolerance,
    num_idle: int,
) -> SolveProgress:
    """Run blocks until at most ``num_idle`` points are active, or ``max_rounds`` is reached."""

    def unfinished(progress):
        count = jnp.sum(_active_points(progress.outcome), dtype=jnp.int32)
        # In a sweep this loop ends while some points are unsolved, and the caller continues with
        # these alone: under `vmap` a finished point costs as much as any other.
        return (count > num_idle) & (progress.state.round < max_rounds)

    def block(progress):
        state, history = advance_traced(program, hparams, data, progress.state, data)
        return _after_block(program, hparams, data, progress, state, history, tolerance)

    return jax.lax.while_loop(unfinished, block, progress)


_continue_compiled = jit_per(num_static=2)(_continue_traced)


def _after_block(
    program, hparams, data, before: SolveProgress, state, history, tolerance
) -> SolveProgress:
    """Return the progress after one more block; finished runs keep their state."""
    model = jax.eval_shape(
        lambda state: read_model_traced(program.algorithm, hparams, state), state
    )
    last = {name: jnp.squeeze(column, -1) for name, column in history.items() if column.ndim}
    old = before.outcome
    violation = last[VIOLATION].astype(old.violation.dtype)
    num_rounds = state.round - before.state.round
    size = _certificate_bytes(model, violation, data)
    taken = _rounds_of_clients(program.plan, data, before.state, num_rounds)
    taken = jnp.broadcast_to(taken, size.shape)
    # The history counts all clients together, and every participant sends equally much, so each
    # client's part is in proportion to the rounds it took part in.
    each = taken / jnp.maximum(last["participants"], 1).astype(size.dtype)[..., None]
    failed = has_failed(last, violation, before.first_violation)
    new = old._replace(
        violation=violation,
        rounds=jnp.broadcast_to(state.round, old.rounds.shape),
        checks=old.checks + 1,
        bytes_down=old.bytes_down + size + each * last["bytes_down"].astype(size.dtype)[..., None],
        bytes_up=old.bytes_up + size + each * last["bytes_up"].astype(size.dtype)[..., None],
    )
    new = _with_status(new, violation, failed, tolerance)
    # Finished points ran through the block with the others; here they get their old states back.
    keep = functools.partial(_where_active, _active(old))
    # Round and keys have no axis of points, so they advance for all.
    kept = state._replace(
        server=keep(state.server, before.state.server),
        clients=keep(state.clients, before.state.clients),
        residuals=keep(state.residuals, before.state.residuals),
        memory=keep(state.memory, before.state.memory),
    )
    return SolveProgress(kept, before.first_violation, keep(new, old))


def has_failed(counts: dict, violation: Scalar, first_violation: Scalar) -> Array:
    """Return whether a solve has failed.

    A solve has failed if no client's upload was finite since the last evaluation, if a server's
    step was refused, or if the violation has grown by a factor of 1e8.

    Args:
      counts: ``participants``, ``dropped`` and ``refused`` since the last evaluation.
      violation: the violation of the optimality conditions.
      first_violation: the violation at the start.
    """
    taking_part, dropped = jnp.asarray(counts["participants"]), jnp.asarray(counts["dropped"])
    # Cohorts of coin flips may all be empty between two evaluations, which is not a failure.
    none_finite = (taking_part > 0) & (dropped >= taking_part)
    blown_up = jnp.asarray(violation) > _BLOW_UP * first_violation
    return none_finite | (jnp.asarray(counts["refused"]) > 0) | blown_up


def _solve_grid(
    program: Program, max_rounds: int, hparams, data, progress: SolveProgress, tolerance
) -> SolveProgress:
    """Finish all points of a grid; finished points are dropped once they are half of all."""
    whole, points = progress, np.arange(num_points(hparams))
    while True:
        # Half: sizes n, n/2, n/4, ... compile at most log2(n) programs, and less than half of the
        # points that a block computes are idle. On a mesh that shares the points all stay, so that
        # devices have equally many.
        num_idle = points.size // 2 if data.num_sweep_shards == 1 else 0
        some = take(hparams, points)
        progress = _continue_compiled(
            program, max_rounds, some, data, progress, tolerance, num_idle
        )
        whole = SolveProgress(
            put_points(whole.state, progress.state, points),
            whole.first_violation,
            put_leaves(whole.outcome, progress.outcome, points),
        )
        left = np.flatnonzero(_active_points(progress.outcome))
        if not left.size or int(progress.state.round) >= max_rounds:
            return whole
        # Padded with copies of the last point. Copies compute the same numbers, so it does not
        # matter which of them is written back.
        kept = padded(left, halved(points.size, left.size))
        first, outcome = take((progress.first_violation, progress.outcome), kept)
        state = take_points(progress.state, kept)
        points, progress = points[kept], SolveProgress(state, first, outcome)


def _violation(measures: dict[str, Array], ndim: int) -> Array:
    """Return the violation that a certificate returned for each run, as floats."""
    violation = measures.get(VIOLATION)
    if violation is None or jnp.ndim(violation) != ndim:
        raise ValueError(
            f'the certificate returned {shown(violation)} at "{VIOLATION}"; return one number '
            "there, as fcojax.kkt does."
        )
    # A certificate may return an integer; a tolerance of 1e-6, cast to its dtype, would be 0.
    dtype = jnp.result_type(violation)
    return jnp.asarray(violation, dtype if jnp.issubdtype(dtype, jnp.inexact) else float)


def _with_status(outcome: Outcome, violation: Array, failed: Array, tolerance: Scalar) -> Outcome:
    diverged = failed | ~jnp.isfinite(violation)
    small = violation <= jnp.asarray(tolerance, violation.dtype)
    # A server that refused its step keeps its state, where the violation may be small; the run has
    # still diverged.
    return outcome._replace(solved=small & ~diverged, diverged=diverged)


def _active(outcome: Outcome) -> Array:
    return ~(outcome.solved | outcome.diverged)


def _active_points(outcome: Outcome) -> Array:
    """Return the points of a sweep with any active seed."""
    active = _active(outcome)
    return jnp.any(active, axis=1) if active.ndim else active


def _where_active(active: Array, new: PyTree, old: PyTree) -> PyTree:
    def choose(a, b):
        return jnp.where(active.reshape(active.shape + (1,) * (a.ndim - active.ndim)), a, b)

    return jax.tree.map(choose, new, old)


def _certificate_bytes(model: PyTree, violation: Array, data: ClientData) -> Array:
    """Return the bytes of a model, down or up, for each client of positive weight."""
    # In a sweep the model has leading axes of points and seeds; this is the size of one.
    size = tree.num_bytes(model) // max(violation.size, 1)
    counts = data.weights[: data.num_clients] > 0
    # As floats: int32 overflows at 2.1 GB, soon after 1,000 evaluations of a model of 2 MB.
    each = jnp.where(counts, float(size), 0.0)
    return jnp.broadcast_to(each, (*violation.shape, data.num_clients))


def _rounds_of_clients(plan: Plan, data: ClientData, state: State, num_rounds: Array) -> Array:
    """Return in how many of the next rounds each client takes part; equal for all points."""
    counts = data.weights[: data.num_clients] > 0
    number = jnp.result_type(float)
    # No draws are needed, and adding a one for each of a million clients would cost as much as a
    # round.
    if isinstance(plan.cohort, Everyone):
        return jnp.where(counts, num_rounds.astype(number), 0)

    def of_seed(key):
        # Cohorts are a function of the key and the round, so they are drawn again here and rounds
        # need not report them.
        def add(index, total):
            cohort_key = jax.random.fold_in(key, COHORT)
            drawn = plan.cohort.draw(cohort_key, state.round + index, data.num_clients, data.sizes)
            # Absent places may hold any index, so they add zero.
            return total.at[drawn.indices].add(drawn.present.astype(number), mode="drop")

        total = jax.lax.fori_loop(0, num_rounds, add, jnp.zeros(data.num_clients, number))
        return jnp.where(counts, total, 0)

    return jax.vmap(of_seed)(state.key) if is_sweep(state.key) else of_seed(state.key)
