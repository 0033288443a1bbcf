"""One run by several processes; the first one reads and writes for all.

``jax.distributed`` connects them, and all run the same program in lockstep. Information that only
one of them has (the folder, the clock, its signals) is sent to the others before any of them acts
on it.
"""

import collections
import contextlib
import os
import pickle
import re
import threading
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from experiments.process.errors import UserError, sentence
from experiments.process.invocation import end

Result = TypeVar("Result")
# This exit code means that the same command may be started again.
GONE = os.EX_TEMPFAIL
# Timeouts in seconds: startup, heartbeat, shutdown.
_TOGETHER, _SILENT, _LEAVING = 120, 30, 10
# Messages are sent in blocks of these two sizes, so that only two programs are compiled.
_SMALL, _LARGE = 1 << 14, 1 << 24
# Errors of JAX's runtime after another process has ended.
_OF_ANOTHER = re.compile(r"[Gg]loo|[Cc]oordination ?[Ss]ervice|NCCL|heartbeat|Socket closed")


def connect(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Connect this process with the others of the run, by the flags or by the cluster.

    Without flags this does nothing, unless JAX recognises the process as one of several tasks of a
    job: of Slurm's ``srun``, Open MPI, or a TPU pod.
    """
    _refuse_bad_flags(coordinator, num_processes, process_id)
    if coordinator is None and not is_job_of_several():
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # JAX would handle SIGTERM itself; the launcher saves first and then ends.
    jax.config.update("jax_enable_preemption_service", False)
    # JAX would abort the process with a C++ stack trace instead of an exception.
    late = threading.Timer(_TOGETHER, end_alone)
    late.daemon = True
    late.start()
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=_TOGETHER + _LEAVING,
            heartbeat_timeout_seconds=_SILENT,
            shutdown_timeout_seconds=_LEAVING,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"the processes of this run did not find each other: {str(error).splitlines()[0]}; "
            "check --coordinator and that all were started."
        ) from error
    finally:
        late.cancel()


def _refuse_bad_flags(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
    if {coordinator, num_processes, process_id} == {None}:
        return
    if coordinator is None or num_processes is None or process_id is None:
        raise UserError("--coordinator, --num_processes and --process_id are given all or none.")
    if not 0 <= process_id < num_processes:
        raise UserError(
            f"--process_id is {process_id} of --num_processes={num_processes}; pass numbers from "
            f"0 to {num_processes - 1}."
        )
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise UserError(f"--coordinator is {coordinator}; pass HOST:PORT of the first process.")


def is_job_of_several() -> bool:
    """Return whether this process is one task of several, by its environment."""
    # A batch script and a shell in a job also have Slurm's number of tasks, but are not tasks.
    for count in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"):
        number = os.environ.get(count, "")
        if number.isdecimal() and int(number) > 1:
            return True
    return "," in os.environ.get("TPU_WORKER_HOSTNAMES", "")


def is_first() -> bool:
    """Return whether this is the process that reads and writes."""
    return jax.process_index() == 0


def broadcast_from_first(function: Callable[[], Result]) -> Result:
    """Return in all processes the result of ``function`` in the first; all end if it raises."""
    if jax.process_count() == 1:
        return function()
    if is_first():
        try:
            message = pickle.dumps((function(), ""))
        except Exception as error:
            _broadcast(pickle.dumps((None, sentence(error))))
            leave()
            raise
        return pickle.loads(_broadcast(message))[0]
    found, refusal = pickle.loads(_broadcast(b""))
    if refusal:
        leave()
        raise UserError(refusal)
    return found


def require_alike(ours: Any, difference: Callable[[Any, Any], str | None]) -> None:
    """Raise ``UserError`` in all processes unless they were started in the same way.

    Args:
      ours: the config, code and versions of this process.
      difference: ``(first, ours) -> str``, how the first process was started differently, as the
        end of a sentence; ``None`` if there is no difference.
    """
    if jax.process_count() == 1:
        return
    devices = collections.Counter(device.process_index for device in jax.devices())
    if len({*devices.values()}) > 1:
        counts = ", ".join(str(devices[index]) for index in range(jax.process_count()))
        leave()
        raise UserError(f"the processes of this run have {counts} devices; give all equally many.")
    what = difference(broadcast_from_first(lambda: ours), ours)
    unlike = np.flatnonzero(multihost_utils.process_allgather(np.array(what is not None)))
    if unlike.size:
        leave()
        found = what or f"unlike process {unlike[0]}"
        raise UserError(
            f"the first process of this run was started {found}; start all of them with the same "
            "config, code and versions."
        )


def max_over_processes(*numbers: int) -> tuple[int, ...]:
    """Return the maximum of each number over all processes, which wait for each other here."""
    if jax.process_count() == 1:
        return numbers
    everywhere = multihost_utils.process_allgather(np.array(numbers, np.int32))
    return tuple(int(number) for number in np.max(everywhere, axis=0))


def leave() -> None:
    """Disconnect all processes together, without waiting for those that end later."""
    with contextlib.suppress(Exception):
        jax.distributed.shutdown()


def is_of_another(error: BaseException) -> bool:
    """Return whether this process failed only because another one has ended."""
    lost = isinstance(error, jax.errors.JaxRuntimeError) and _OF_ANOTHER.search(str(error))
    return bool(lost) and jax.process_count() > 1


def end_without_the_others() -> NoReturn:
    """End this process at once with a message, because the others do not answer any more."""
    end(
        GONE,
        "another process of this run has ended or does not answer; start all of them again, and "
        "the run goes on from its last checkpoint.",
    )


def end_alone() -> NoReturn:
    """End this process, which has waited for the others long enough."""
    end(
        GONE,
        f"the processes of this run did not find each other within {_TOGETHER} seconds; check "
        "--coordinator, and start all of them again.",
    )


def _broadcast(content: bytes) -> bytes:
    """Return the first process's content in all processes."""
    message = len(content).to_bytes(8) + content
    head = _block(message[:_SMALL], _SMALL)
    size = 8 + int.from_bytes(head[:8])
    parts = [_block(message[at : at + _LARGE], _LARGE) for at in range(_SMALL, size, _LARGE)]
    return b"".join([head, *parts])[8:size]


def _block(part: bytes, size: int) -> bytes:
    padded = np.frombuffer(part.ljust(size, b"\0"), np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes()
