"""How many clients side by side are fastest here: timed for a program, and remembered in a file.

``run`` and ``sweep`` choose by a rule that was measured on other machines. Sums over clients are
rounded in an order that depends on the choice, so a run is repeated to the last bit only with
the same number; for that reason nothing is timed unless somebody asks.
"""

import hashlib
import json
import os
import pathlib
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work, checked_count
from fcojax.engine.check import check_run
from fcojax.engine.hparams import as_arrays, at_round
from fcojax.engine.layout import sized
from fcojax.engine.memory import needed_bytes, room
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.stepper import advance_kept, start
from fcojax.problems.clients import ClientData
from fcojax.problems.fields import shown
from fcojax.types import Params, PyTree

_NUM_ROUNDS = 4
_REPEATS = 5
_STEP = 4  # from one candidate to the next


def fastest_chunk_size(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    plan: Plan | Work,
    *,
    num_points: int = 1,
    num_seeds: int = 1,
    candidates: tuple[int, ...] | None = None,
    remember: str | os.PathLike | None = None,
) -> int:
    """The ``client_chunk_size`` with which rounds take least time on this machine.

    Every candidate is compiled and timed over a few rounds, in turn; with a file to remember it in,
    once for the same program on the same kind of device.

    Args:
      algorithm: as for ``run``, and so are the next four.
      hparams: of one run; of a schedule the first round's.
      params: the start point.
      data: the clients, spread over devices or not.
      plan: how rounds are driven.
      num_points: points of a sweep that run side by side.
      num_seeds: keys of a sweep.
      candidates: sizes to try; by default 1, 4, 16, ... up to the whole cohort, and the rule's.
      remember: a JSON file, read if it is there and written if it lacks the answer.

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
    num_points = checked_count("num_points", num_points)
    num_seeds = checked_count("num_seeds", num_seeds)
    keys = jax.random.split(jax.random.key(0), num_seeds)
    check_run(algorithm, plan, hparams, data, keys[0])
    hparams = at_round(as_arrays(hparams), 0)
    shards = data.num_sweep_shards
    points = -(-num_points // shards) * shards
    grid = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], points, axis=0), hparams)
    state = start(algorithm, grid, params, data, keys, plan)
    places = plan.cohort.size(data.num_clients)
    if candidates is None:
        server, _ = jax.eval_shape(algorithm.init, hparams, params)
        by_rule = sized(plan, algorithm, hparams, server, data, num_points * num_seeds)
        candidates = tuple(sorted({*_geometric(places), by_rule.client_chunk_size or places}))
    candidates = _checked_sizes(candidates)

    def lower(size):
        fixed = (algorithm, plan._replace(client_chunk_size=size), None, 1, _NUM_ROUNDS)
        return advance_kept.lower(*fixed, grid, data, state, None)

    lowered = {size: lower(size) for size in candidates}
    file = None if remember is None else pathlib.Path(remember)
    known = {} if file is None else _read(file)
    name = _name_of(lowered)
    if name not in known:
        known[name] = _seconds_a_round(lowered, (grid, data, state))
        if file is not None:
            _write(file, known)
    return min(known[name], key=lambda size: known[name][size])


def _checked_sizes(candidates: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(checked_count("a candidate", size) for size in candidates)
    except (TypeError, ValueError):
        sizes = ()
    if not sizes:
        raise ValueError(
            f"candidates are {shown(candidates)}; pass at least one size, each at least 1."
        )
    return sizes


def _geometric(places: int) -> list[int]:
    sizes = [places]
    size = 1
    while size < places:
        sizes.append(size)
        size *= _STEP
    return sizes


def _name_of(lowered: dict[int, jax.stages.Lowered]) -> str:
    """What the programs are, and where they run."""
    where = f"{jax.__version__} {jax.devices()[0].device_kind} {os.cpu_count()}"
    texts = (f"{size} {program.as_text()}" for size, program in lowered.items())
    return hashlib.sha256("\n".join((where, *texts)).encode()).hexdigest()


def _seconds_a_round(lowered: dict[int, jax.stages.Lowered], arrays: tuple) -> dict[int, float]:
    """The median of a few runs of each program that fits into memory, in turn."""
    programs = {}
    for size, program in lowered.items():
        compiled = program.compile()
        if (needed_bytes(compiled) or 0) <= room() or not programs:
            programs[size] = compiled
    times: dict[int, list[float]] = {size: [] for size in programs}
    for repeat in range(_REPEATS + 1):
        for size, program in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program(*arrays, None))
            if repeat:  # the first one warms up
                times[size].append((time.perf_counter() - began) / _NUM_ROUNDS)
    return {size: statistics.median(taken) for size, taken in times.items()}


def _read(file: pathlib.Path) -> dict[str, dict[int, float]]:
    if not file.exists():
        return {}
    stored = json.loads(file.read_text())
    return {
        name: {int(size): seconds for size, seconds in times.items()}
        for name, times in stored.items()
    }


def _write(file: pathlib.Path, known: dict[str, dict[int, float]]) -> None:
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(known, indent=1))
    part.replace(file)
