"""One run by several processes; the first one reads and writes for all.

``jax.distributed`` connects them, and all run the same program in lockstep. Information that only
one of them has (the folder, the clock, its signals) is sent to the others before any of them acts
on it.
"""

import contextlib
import os
import pickle
import re
from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from experiments.process.invocation import UserError, end, sentence

Result = TypeVar("Result")
# This exit code means that the same command may be started again.
GONE = os.EX_TEMPFAIL
# Timeouts in seconds: startup, heartbeat, shutdown.
_TOGETHER, _SILENT, _LEAVING = 120, 30, 10
# Errors of JAX's runtime after another process has ended.
_OF_ANOTHER = re.compile(r"[Gg]loo|[Cc]oordination ?[Ss]ervice|NCCL|heartbeat|Socket closed")


def connect(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Connect this process with the others of the run, by the flags or by the cluster.

    Without flags this does nothing, unless JAX recognises the process as one of several tasks of a
    job: of Slurm's ``srun``, Open MPI, or a TPU pod.
    """
    given = coordinator, num_processes, process_id
    if None in given and set(given) != {None}:
        raise UserError("--coordinator, --num_processes and --process_id are given all or none.")
    if coordinator is None and not is_job_of_several():
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # JAX would handle SIGTERM itself; the launcher saves first and then ends.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            *given,
            initialization_timeout=_TOGETHER,
            heartbeat_timeout_seconds=_SILENT,
            shutdown_timeout_seconds=_LEAVING,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"the processes of this run did not find each other: {str(error).splitlines()[0]}; "
            "check --coordinator, --num_processes and --process_id, and that all were started."
        ) from error


def is_job_of_several() -> bool:
    """Return whether this process is one task of several, by its environment."""
    # A batch script and a shell in a job also have Slurm's number of tasks, but are not tasks.
    counts = [os.environ.get(of, "") for of in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")]
    several = any(number.isdecimal() and int(number) > 1 for number in counts)
    return several or "," in os.environ.get("TPU_WORKER_HOSTNAMES", "")


def is_first() -> bool:
    """Return whether this is the process that reads and writes."""
    return jax.process_index() == 0


def broadcast_from_first(function: Callable[[], Result]) -> Result:
    """Return in all processes the result of ``function`` in the first; all end if it raises."""
    if jax.process_count() == 1:
        return function()
    message, failed = b"", None
    if is_first():
        try:
            message = pickle.dumps((function(), ""))
        except Exception as error:
            message, failed = pickle.dumps((None, sentence(error))), error
    size = int.from_bytes(_sent(len(message).to_bytes(8)))
    # Sizes are powers of two, so that few programs are compiled.
    result, refusal = pickle.loads(_sent(message.ljust(1 << size.bit_length(), b"\0"))[:size])
    if refusal:
        leave()
        raise failed or UserError(refusal)
    return result


def _sent(content: bytes) -> bytes:
    found = multihost_utils.broadcast_one_to_all(np.frombuffer(content, np.uint8))
    return np.asarray(found).tobytes()


def require_alike(ours: dict, difference: Callable[[dict, dict], str | None]) -> None:
    """Raise ``UserError`` in all processes unless they were started in the same way.

    Args:
      ours: the config, code and versions of this process.
      difference: ``(first, ours) -> str``, how the first process was started differently, as the
        end of a sentence; ``None`` if there is no difference.
    """
    if jax.process_count() == 1:
        return
    if len(jax.devices()) != jax.process_count() * jax.local_device_count():
        leave()
        raise UserError("the processes of this run have different numbers of devices.")
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


def end_if_of_another(error: BaseException) -> None:
    """End this process if it failed only because another one has ended."""
    lost = isinstance(error, jax.errors.JaxRuntimeError) and _OF_ANOTHER.search(str(error))
    if lost and jax.process_count() > 1:
        what = "another process of this run has ended or does not answer; start all of them again, "
        end(GONE, f"{what}and the run goes on from its last checkpoint.")
