"""Rounds until a certificate holds: blocks of the stepper with an evaluation between them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import shown, validated
from fcojax.engine.blocks import padded
from fcojax.engine.compaction import halved, map_runs, take_points
from fcojax.engine.hparams import num_points, take
from fcojax.engine.optimality import VIOLATION, Status
from fcojax.engine.plan import Plan, Program
from fcojax.engine.run import advance_traced, look_traced, start_traced
from fcojax.engine.state import Observe, State, is_sweep
from fcojax.engine.validation import as_params, as_program
from fcojax.memo import jit_per
from fcojax.problems.client_data import ClientData
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
      diverged: whether it became non-finite or grew by a factor of 1e8, a server step was refused,
        or no upload since the last evaluation was finite.
      bytes_down: bytes sent to each client, including the certificate. Rounds count in equal shares
        for all clients, which is exact if everyone takes part.
      bytes_up: bytes sent by each client, likewise.
    """

    violation: Array
    rounds: Array
    checks: Array
    solved: Array
    diverged: Array
    bytes_down: Array
    bytes_up: Array

    def verdicts(self) -> list[str]:
        """Return a sentence for each run, points first."""
        columns = self.diverged, self.solved, self.rounds, self.violation
        runs = zip(*(np.ravel(np.asarray(column)) for column in columns), strict=True)
        return [
            Status["DIVERGED" if diverged else "SOLVED" if solved else "UNSOLVED"].sentence(
                int(rounds), f"the violation is {violation:.3g}"
            )
            for diverged, solved, rounds, violation in runs
        ]


class SolveProgress(NamedTuple):
    """A solve between two blocks: its state, its start, and the outcome so far."""

    state: State
    first_violation: Array
    check_bytes: Array  # of a certificate, up or down, for each client
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

    The first arguments are those of ``run``, or with a grid and a vector of keys those of
    ``sweep``. The certificate, ``(hparams, model, data) -> {"violation": number}`` such as
    ``fcojax.kkt`` or a ``StateObserver``, is evaluated at the start, so that a start point that
    solves the problem costs no round, and then after every ``eval_every`` rounds, inside the
    compiled program. A run is solved once the violation is at most ``tolerance``, and ends at the
    latest after ``max_rounds``, rounded up to a multiple of ``eval_every``. Runs of a sweep that
    are solved are frozen; once half of the points are, only the others continue.

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
    if not is_sweep(key):
        return _solve_compiled(program, max_rounds, hparams, params, data, key, tolerance)
    progress = _begin_compiled(program, hparams, params, data, key, tolerance)
    whole, points = progress, np.arange(num_points(hparams))
    while True:
        # Half: sizes n, n/2, n/4, ... compile at most log2(n) programs, and less than half of the
        # points that a block computes are idle. On a mesh that shares the points all stay, so that
        # devices have equally many.
        num_idle = points.size // 2 if data.num_sweep_shards == 1 else 0
        given = take(hparams, points), data, progress, tolerance
        progress = _continue_compiled(program, max_rounds, num_idle, *given)

        def put(some, whole, points=points):
            # Padding repeats the last point; all of its copies have equal values.
            return whole.at[points].set(some)

        state = map_runs(put, progress.state, whole.state)
        outcome = jax.tree.map(put, progress.outcome, whole.outcome)
        whole = whole._replace(state=state, outcome=outcome)
        left = np.flatnonzero(_active(progress.outcome).any(axis=1))
        if not left.size or int(progress.state.round) >= max_rounds:
            return look_traced(algorithm, None, hparams, whole.state), whole.outcome
        kept = padded(left, halved(points.size, left.size))
        points, state = points[kept], take_points(progress.state, kept)
        progress = SolveProgress(state, *take(progress[1:], kept))


def solve_traced(
    program: Program, max_rounds: int, hparams, params, data: ClientData, key: Key, tolerance
) -> tuple[Params, Outcome]:
    """Body of ``solve`` for one run."""
    progress = _begin_traced(program, hparams, params, data, key, tolerance)
    progress = _continue_traced(program, max_rounds, 0, hparams, data, progress, tolerance)
    return look_traced(program.algorithm, None, hparams, progress.state), progress.outcome


_solve_compiled = jit_per(num_static=2)(solve_traced)


def _begin_traced(program: Program, hparams, params, data, key, tolerance) -> SolveProgress:
    """Return the first state and its violation."""
    algorithm, certificate = program.algorithm, program.observe
    state = start_traced(algorithm, program.plan, None, hparams, params, data, key)
    # A certificate takes the population as its context, because it needs the gradients of all
    # clients.
    measures = look_traced(algorithm, certificate, hparams, state, data, data)
    violation = measures.get(VIOLATION)
    if violation is None or jnp.ndim(violation) != 2 * key.ndim:
        raise ValueError(
            f'the certificate returned {shown(violation)} at "{VIOLATION}"; return one number '
            "there, as fcojax.kkt does."
        )
    # A certificate may return an integer; a tolerance of 1e-6, cast to its dtype, would be 0.
    dtype = jnp.result_type(violation)
    violation = jnp.asarray(violation, dtype if jnp.issubdtype(dtype, jnp.inexact) else float)
    # In a sweep the model has leading axes of points and seeds; this is the size of one.
    model = jax.eval_shape(lambda state: look_traced(algorithm, None, hparams, state), state)
    num_bytes = tree.num_bytes(model) // max(violation.size, 1)
    # As floats: int32 overflows at 2.1 GB, soon after 1,000 evaluations of a model of 2 MB.
    each = jnp.where(data.weights[: data.num_clients] > 0, float(num_bytes), 0.0)
    each = jnp.broadcast_to(each, (*violation.shape, data.num_clients))
    zero = jnp.zeros(violation.shape, jnp.int32)
    outcome = Outcome(violation, zero, zero + 1, zero > 0, zero > 0, each, each)
    return SolveProgress(state, violation, each, _with_status(outcome, zero > 0, tolerance))


_begin_compiled = jit_per(num_static=1)(_begin_traced)


def _continue_traced(
    program: Program, max_rounds: int, num_idle: int, hparams, data, progress, tolerance
) -> SolveProgress:
    """Run blocks until at most ``num_idle`` points are active, or ``max_rounds`` is reached."""

    def unfinished(progress):
        active = _active(progress.outcome)
        count = jnp.sum(jnp.any(active, axis=1) if active.ndim else active, dtype=jnp.int32)
        # In a sweep this loop ends while some points are unsolved, and the caller continues with
        # these alone: under `vmap` a finished point costs as much as any other.
        return (count > num_idle) & (progress.state.round < max_rounds)

    def block(before):
        state, history = advance_traced(program, hparams, data, before.state, data)
        old, size = before.outcome, before.check_bytes
        last = {name: jnp.squeeze(column, -1) for name, column in history.items() if column.ndim}
        violation = last[VIOLATION].astype(old.violation.dtype)
        # Cohorts of coin flips may all be empty between two evaluations, which is not a failure.
        none_finite = (last["participants"] > 0) & (last["dropped"] >= last["participants"])
        blown_up = violation > _BLOW_UP * before.first_violation
        share = jnp.where(size > 0, 1 / jnp.sum(size > 0, -1, size.dtype, keepdims=True), 0)
        sent = {
            name: getattr(old, name) + size + share * last[name].astype(size.dtype)[..., None]
            for name in ("bytes_down", "bytes_up")
        }
        rounds = jnp.broadcast_to(state.round, old.rounds.shape)
        new = old._replace(violation=violation, rounds=rounds, checks=old.checks + 1, **sent)
        new = _with_status(new, none_finite | (last["refused"] > 0) | blown_up, tolerance)
        active = _active(old)

        def keep(new, old):
            # Finished points ran through the block with the others; here they get their old states
            # back. Round and keys have no axis of points, so they advance for all.
            axes = active.shape + (1,) * (new.ndim - active.ndim)
            return jnp.where(active.reshape(axes), new, old)

        kept = map_runs(keep, state, before.state)
        return before._replace(state=kept, outcome=jax.tree.map(keep, new, old))

    return jax.lax.while_loop(unfinished, block, progress)


_continue_compiled = jit_per(num_static=3)(_continue_traced)


def _with_status(outcome: Outcome, failed: Array, tolerance: Scalar) -> Outcome:
    diverged = failed | ~jnp.isfinite(outcome.violation)
    small = outcome.violation <= jnp.asarray(tolerance, outcome.violation.dtype)
    # A server that refused its step keeps its state, where the violation may be small; the run has
    # still diverged.
    return outcome._replace(solved=small & ~diverged, diverged=diverged)


def _active(outcome: Outcome) -> Array:
    return ~(outcome.solved | outcome.diverged)
