"""What the device that traces run on likes: one table, asked wherever a program depends on it.

A program is traced for the default backend. ``pretend`` answers for another one, so that a machine
without an accelerator can lower, measure and test what would run there.
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp

from fcojax.types import Array, PyTree

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Rules(NamedTuple):
    """What a kind of device likes.

    Attributes:
      chunk_bytes: a step's working set of the clients that work side by side; ``None`` for as many
        clients as memory holds.
      sweep_chunk_bytes: the same in a sweep.
      ragged_chunks: groups that a cohort of clients of different sizes is cut into.
      bytes_to_share: what each device should have to read in a round before it pays to cut the
        clients over several; ``None`` if it pays where clients work one by one.
      masks: whether a step that is not needed is computed and not taken.
      usual_first: whether a loop makes its usual number of passes before it asks whether to go on.
      slices: whether convolutions and pooling are slices and products instead of XLA's own.
      factors_singly: whether a batch of matrices is factorised one after the other.
      gathers_by_source: whether a gather costs as much as what it gathers from is large.
    """

    chunk_bytes: int | None
    sweep_chunk_bytes: int | None
    ragged_chunks: int
    bytes_to_share: int | None
    masks: bool
    usual_first: bool
    slices: bool
    factors_singly: bool
    gathers_by_source: bool


_CPU = Rules(
    # A chunk should stay in a core's cache between a client's first step and its last.
    chunk_bytes=1 << 20,
    # Clients side by side put their axis between points and features, and XLA transposes before
    # each product; only where states are tiny is that cheaper than one by one.
    sweep_chunk_bytes=1 << 17,
    # Chunk-mates pay for the largest of them. Of sizes that are log-uniform from 1 to 5,000, cut
    # into so many chunks of clients as alike as can be, a sixth of the rows is padding.
    ragged_chunks=24,
    bytes_to_share=None,
    # A branch costs nothing beside a step.
    masks=False,
    usual_first=False,
    # In a loop XLA's own gradients of a convolution are a hundred times slower than outside.
    slices=True,
    # Batches side by side can leave no thread to work on them; see factorisations.
    factors_singly=True,
    # XLA hands a gather from a long array to all cores, however little it brings; see pieces.
    gathers_by_source=True,
)
_ACCELERATOR = Rules(
    # A kernel of one client leaves most of the device idle, and all of them take one launch.
    chunk_bytes=None,
    sweep_chunk_bytes=None,
    # Chunks are launched one after the other, padding is computed side by side: of the same sizes
    # four groups compute twice the rows that there are, with a sixth of the launches.
    ragged_chunks=4,
    # At the 2 to 5 TB/s of present memories, 10 to 30 microseconds: what a sum over devices takes.
    bytes_to_share=1 << 26,
    # The host, or the device's scheduler, waits for the condition of a branch or of a loop that
    # depends on data before it launches what follows.
    masks=True,
    usual_first=True,
    slices=False,
    factors_singly=False,
    gathers_by_source=False,
)


class _Pretended(NamedTuple):
    backend: str
    memory: int | None


_pretended = jax.make_user_context(None)


def pretend(backend: str, memory: int | None = None) -> AbstractContextManager:
    """A context in which programs are traced as for ``backend``, with ``memory`` bytes of its own.

    They are still compiled for the device that is there. A context of its own in JAX's caches.

    Example:
      >>> with pretend("cuda"):
      ...     rules().masks
      True
    """
    return _pretended(_Pretended(backend, memory))


def backend() -> str:
    """The platform that programs are traced for, ``cpu``, ``tpu``, ``gpu`` or ``cuda``."""
    return jax.default_backend() if _pretended.value is None else _pretended.value.backend


def pretended_memory() -> int | None:
    """Bytes of the device that is pretended, ``None`` if it is the real one's."""
    return None if _pretended.value is None else _pretended.value.memory


def rules() -> Rules:
    """The row of the table for the present backend."""
    return _CPU if backend() == "cpu" else _ACCELERATOR


def in_full_precision(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function traced with float32 products in float32, unless the user chose otherwise.

    The choice is ``jax_default_matmul_precision``, as an option of JAX or as a context.
    """

    @functools.wraps(function)
    def traced(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        # Every option is an attribute, which also knows of contexts; JAX's types have none of them.
        if jax.config.jax_default_matmul_precision is not None:  # pyright: ignore
            return function(*args, **kwargs)
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return traced


def loop(
    unfinished: Callable[[PyTree], Array],
    advance: Callable[[PyTree], PyTree],
    state: PyTree,
    usual: int,
) -> PyTree:
    """``lax.while_loop``, which on an accelerator makes ``usual`` passes before it first asks.

    Passes after the end are computed and not taken, so that the result is the same.
    """

    def pass_on(_, state):
        going, moved = unfinished(state), advance(state)
        return jax.tree.map(lambda new, old: jnp.where(going, new, old), moved, state)

    if rules().usual_first:
        state = jax.lax.fori_loop(0, usual, pass_on, state, unroll=True)
    return jax.lax.while_loop(unfinished, advance, state)
