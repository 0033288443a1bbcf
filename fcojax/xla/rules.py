"""Backend-dependent choices, in one table.

Programs are traced for the default backend. Inside ``pretend`` they are traced for another one, so
that a machine without an accelerator can lower and test the programs of one.
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import jax

from fcojax.types import Arguments, Result


class Rules(NamedTuple):
    """The choices for one kind of device.

    Attributes:
      chunk_bytes: target size of the working set of a step, over the clients of a chunk; ``None``
        for as many clients as fit in memory.
      sweep_chunk_bytes: the same in a sweep.
      ragged_chunks: number of groups into which a cohort of clients of different sizes is split.
      bytes_to_share: bytes that each device should read per round before the clients are split
        over several devices; ``None`` to split whenever clients run one after the other.
      masks: whether a step that is not needed is computed and discarded rather than skipped.
      slices: whether convolutions are slices and products instead of XLA's own operation.
      factors_singly: whether a batch of matrices is factorised one after the other; see ``linalg``.
      double_lu: whether float64 has an LU decomposition.
      mixed_svd: whether float32 has a singular value decomposition where float64 is enabled.
      gathers_by_source: whether the cost of a gather grows with its source array; see ``loops``.
      unrolled_equations: equations of the local steps that are written out one after the other.
      few_kernels: whether launching a kernel costs more than computing a small array again.
      summed_terms: number of terms, over all clients and runs side by side, up to which a sweep
        multiplies a matrix and a vector term by term and adds; see ``linalg``.
    """

    chunk_bytes: int | None
    sweep_chunk_bytes: int | None
    ragged_chunks: int
    bytes_to_share: int | None
    masks: bool
    slices: bool
    factors_singly: bool
    double_lu: bool
    mixed_svd: bool
    gathers_by_source: bool
    unrolled_equations: int
    few_kernels: bool
    summed_terms: int


_CPU = Rules(
    # A chunk should stay in a core's cache from a client's first step to its last.
    chunk_bytes=1 << 20,
    # The axis of the clients lies between grid points and features, so XLA transposes before each
    # product; that pays off for tiny states only.
    sweep_chunk_bytes=1 << 17,
    # Clients are padded to the largest of their chunk. With sizes log-uniform from 1 to 5,000,
    # sorted by size, 24 chunks have a sixth of padding rows.
    ragged_chunks=24,
    bytes_to_share=None,
    # A conditional, and a loop, cost next to nothing compared with a step.
    masks=False,
    # XLA's gradients of a convolution are a hundred times slower inside a loop than outside.
    slices=True,
    factors_singly=True,
    double_lu=True,
    mixed_svd=True,
    gathers_by_source=True,
    unrolled_equations=0,
    few_kernels=False,
    summed_terms=0,
)
_ACCELERATOR = Rules(
    # One client's kernel leaves most of the device idle; a batch of all takes one launch.
    chunk_bytes=None,
    sweep_chunk_bytes=None,
    # Chunks are launched one after the other, padding runs in parallel: on the sizes above, four
    # groups compute twice the actual rows with a sixth of the launches.
    ragged_chunks=4,
    # 10 to 30 microseconds at a memory bandwidth of 2 to 5 TB/s, as long as an all-reduce takes.
    bytes_to_share=1 << 26,
    # Before the next launch, the host or the device's scheduler waits for the condition of a
    # branch or loop that depends on data.
    masks=True,
    # cuDNN is called once for each client and layer, by the host, and changes the layout each time.
    slices=True,
    factors_singly=False,
    double_lu=True,
    mixed_svd=True,
    gathers_by_source=False,
    # A loop's counter and its other scalars take a launch each in every step. The compile time
    # grows with the number of unrolled equations.
    unrolled_equations=1000,
    few_kernels=True,
    # At 25 points W4 has 2.6 million terms: 40 blocks of a product, or 625 of sums, for the 132
    # processors of an H200. A sum reads both factors of each term; products are for more points.
    summed_terms=1 << 22,
)
# Its convolutions are kernels like any other. Its compiler (libtpu 0.0.42) refuses an LU
# decomposition of float64. A singular value decomposition of float32, traced where float64 is
# enabled, ends the process. It has few processors, so a small product leaves none of them idle.
_TPU = _ACCELERATOR._replace(slices=False, double_lu=False, mixed_svd=False, summed_terms=0)


class _Pretended(NamedTuple):
    backend: str
    memory: int | None


_pretended = jax.make_user_context(None)
# How often a sweep computes a client's step side by side; `None` for a single run.
side_by_side = jax.make_user_context(None)


def pretend(backend: str, memory: int | None = None) -> AbstractContextManager:
    """Return a context in which programs are traced as if for ``backend``.

    They are still compiled for the actual device, and cached apart from programs traced outside.

    Args:
      backend: ``cpu``, ``tpu``, ``gpu`` or ``cuda``.
      memory: bytes of memory that the device is assumed to have; ``None`` for the actual amount.

    Example:
      >>> with pretend("cuda"):
      ...     rules().masks
      True
    """
    return _pretended(_Pretended(backend, memory))


def backend() -> str:
    """Return the platform that programs are traced for: ``cpu``, ``tpu``, ``gpu`` or ``cuda``."""
    return jax.default_backend() if _pretended.value is None else _pretended.value.backend


def pretended_memory() -> int | None:
    """Return the ``memory`` of the enclosing ``pretend``; ``None`` outside of one."""
    return None if _pretended.value is None else _pretended.value.memory


def rules() -> Rules:
    """Return the row of the table for the current backend."""
    return {"cpu": _CPU, "tpu": _TPU}.get(backend(), _ACCELERATOR)


def in_full_precision(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Trace a function with float32 products computed in float32, not in TF32 or bfloat16.

    If ``jax_default_matmul_precision`` is set, as an option of JAX or by a context, the function is
    left unchanged.
    """

    @functools.wraps(function)
    def traced(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        # The attribute also reflects contexts; JAX's type stubs do not declare options.
        if jax.config.jax_default_matmul_precision is not None:  # pyright: ignore
            return function(*args, **kwargs)
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return traced
