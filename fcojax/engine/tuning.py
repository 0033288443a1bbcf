"""Time client chunk sizes on this machine, and remember the fastest in a file.

``run`` and ``sweep`` choose by a rule that was measured on other machines. Sums over clients are
rounded in an order that depends on the chunk size, so a run is reproduced to the last bit only with
the same size; so nothing is timed by default.
"""

import hashlib
import json
import os
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import checked_value, validated
from fcojax.engine.hparams import as_arrays, at_round
from fcojax.engine.padding import bounds_for
from fcojax.engine.placement.chunk_size import choose_chunk_size, usable_memory
from fcojax.engine.plan import Plan, Program, as_plan
from fcojax.engine.stepper import advance_compiled, start
from fcojax.engine.validation import require_run
from fcojax.problems.clients import ClientData
from fcojax.types import Count, Params, PyTree

_NUM_ROUNDS = 4  # in one call, so that the time of the call itself is shared
_REPEATS = 5  # timed calls of each candidate, after one that warms up
_STEP = 4  # ratio of one candidate to the one before


@validated
def fastest_chunk_size(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    plan: Plan | Work,
    *,
    num_points: Count = 1,
    num_seeds: Count = 1,
    candidates: tuple[int, ...] | None = None,
    remember: str | os.PathLike | None = None,
) -> int:
    """Return the ``client_chunk_size`` with which rounds are fastest on this machine.

    Every candidate is compiled and timed over a few rounds, in turn; with ``remember`` only once
    for the same program on the same kind of device.

    Args:
      algorithm: the algorithm that will be run.
      hparams: hyperparameters of one run; the first values of schedules are used.
      params: the start point.
      data: the clients, on one device or on a mesh.
      plan: how rounds are run: a ``Plan``, or a ``Work`` if everyone takes part.
      num_points: points of a sweep that run together.
      num_seeds: seeds of a sweep.
      candidates: sizes to try; by default 1, 4, 16, ... up to the whole cohort, and the size that
        the rule chooses.
      remember: a JSON file of earlier results, which is read and updated.

    Example:
      >>> import jax.numpy as jnp, numpy as np, fcojax
      >>> data = fcojax.from_rows({"a": np.ones(6)}, [1] * 6)
      >>> algorithm = fcojax.algorithms.fed_avg(lambda w, rows: (w - rows["a"]) ** 2)
      >>> hparams = fcojax.algorithms.fed_avg.Hparams(client_lr=0.1)
      >>> fastest_chunk_size(
      ...     algorithm, hparams, jnp.array(0.0), data, fcojax.local_steps(1)) in (1, 4, 6)
      True
    """
    plan = as_plan(plan)
    keys = jax.random.split(jax.random.key(0), num_seeds)
    require_run(algorithm, plan, hparams, data, keys[0])
    hparams = at_round(as_arrays(hparams), 0)
    shards = data.num_sweep_shards
    # As in `sweep`, every device of the mesh gets equally many points.
    points = -(-num_points // shards) * shards
    grid = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], points, axis=0), hparams)
    state = start(algorithm, grid, params, data, keys, plan)
    places = plan.cohort.size(data.num_clients)
    if candidates is None:
        server, _ = jax.eval_shape(algorithm.init, hparams, params)
        number = num_points * num_seeds
        by_rule = choose_chunk_size(plan, algorithm, hparams, server, data, number)
        # The size that would be used without timing is always among the candidates.
        candidates = tuple(sorted({*_geometric(places), plan.client_chunk_size or by_rule}))
    candidates = tuple(checked_value("a candidate", size, Count) for size in candidates)
    if not candidates:
        raise ValueError("candidates are empty; pass at least one size.")

    def lower(size):
        sized = plan._replace(client_chunk_size=size)
        program = Program(algorithm, sized, rounds_per_evaluation=_NUM_ROUNDS)
        return advance_compiled.lower(program, grid, data, state, None)

    # The program is lowered but not compiled: if the file has the result, no more is needed.
    lowered = {size: lower(size) for size in candidates}
    file = None if remember is None else pathlib.Path(remember)
    known = {} if file is None else _read(file)
    name = _name_of(lowered)
    if name not in known:
        known[name] = _seconds_a_round(lowered, (grid, data, state))
        if file is not None:
            _write(file, known)
    return min(known[name], key=lambda size: known[name][size])


def _geometric(places: int) -> list[int]:
    sizes = [places]
    size = 1
    while size < places:
        sizes.append(size)
        size *= _STEP
    return sizes


def _name_of(lowered: dict[int, jax.stages.Lowered]) -> str:
    """Return a hash of the programs and of the machine they run on."""
    # A result holds for this program text, kind of device, number of cores and version of JAX,
    # whose compiler decides the time.
    where = f"{jax.__version__} {jax.devices()[0].device_kind} {os.cpu_count()}"
    texts = (f"{size} {program.as_text()}" for size, program in lowered.items())
    return hashlib.sha256("\n".join((where, *texts)).encode()).hexdigest()


def _seconds_a_round(lowered: dict[int, jax.stages.Lowered], arrays: tuple) -> dict[int, float]:
    """Return the median time of a few runs of each program that fits into memory."""
    programs = {}
    for size, program in lowered.items():
        compiled = program.compile()
        # The first candidate is timed even if it is too large, so that there is an answer.
        if (needed_bytes(compiled) or 0) <= usable_memory() or not programs:
            programs[size] = compiled
    times: dict[int, list[float]] = {size: [] for size in programs}
    # Candidates alternate: a machine's speed drifts, which would favour some of them.
    for repeat in range(_REPEATS + 1):
        for size, program in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program(*arrays, None))
            if repeat:  # the first one warms up
                times[size].append((time.perf_counter() - began) / _NUM_ROUNDS)
    return {size: statistics.median(taken) for size, taken in times.items()}


def needed_bytes(program: jax.stages.Compiled) -> int | None:
    """Return the bytes that a compiled program needs; ``None`` if the backend does not report."""
    report = program.memory_analysis()
    if report is None:
        return None
    # A donated argument is counted both as argument and as output; `alias` is that overlap.
    whole = report.argument_size_in_bytes + report.output_size_in_bytes
    return whole + report.temp_size_in_bytes - report.alias_size_in_bytes


def _read(file: pathlib.Path) -> dict[str, dict[int, float]]:
    if not file.exists():
        return {}
    stored = json.loads(file.read_text())
    return {
        name: {int(size): seconds for size, seconds in times.items()}
        for name, times in stored.items()
    }


def _write(file: pathlib.Path, known: dict[str, dict[int, float]]) -> None:
    # Replaced in one step: a process that is killed here leaves the old file whole.
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(known, indent=1))
    part.replace(file)


@validated
def padded_share(data: ClientData, work: Work, client_chunk_size: Count = 1) -> float:
    """Return the share of rows in all clients' steps that are padding, computed with weight zero.

    Args:
      data: the clients.
      work: how much each of them does.
      client_chunk_size: clients that run together, as in ``Plan``; each of them takes as many
        steps, and as many rows, as the largest.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"x": np.ones((2010, 600))}, [10, 1000, 1000])
      >>> one_by_one, all_at_once = (padded_share(data, fcojax.local_steps(1), c) for c in (1, 3))
      >>> one_by_one, round(all_at_once, 2)
      (0.0, 0.33)
    """
    num_chunks = -(-data.num_clients // client_chunk_size)
    per_chunk = -(-data.num_clients // num_chunks)
    # Chunks as `run_clients` makes them: sorted by size, of equal length.
    sizes = jnp.sort(data.sizes)[::-1]
    largest = sizes[::per_chunk]
    if work.batch_size is None:
        bounds = jnp.asarray(bounds_for(work, data), sizes.dtype)
        padded = bounds[jnp.searchsorted(bounds, largest)]
        return 1 - sum(sizes.tolist()) / (per_chunk * sum(padded.tolist()))
    slots = per_chunk * work.batch_size * sum(map(work.max_steps, largest.tolist()))
    if work.num_epochs is not None:
        return 1 - work.num_epochs * sum(sizes.tolist()) / slots
    in_a_step = sizes if not work.replace else jnp.full_like(sizes, work.batch_size)
    # With replacement even a client with few examples fills a batch; without it, the rest is
    # padding.
    drawn = jnp.minimum(in_a_step, work.batch_size).tolist()
    return 1 - work.max_steps(1) * sum(drawn) / slots
