"""How much fits on a device, told by the compiler before anything runs."""

import os
from collections.abc import Callable

import jax

from fcojax.device import pretended_memory
from fcojax.types import PyTree

# Beside one program's buffers there must be room for the caller's own and for fragmentation.
_SHARE = 0.5
# States that fit so often are not worth a compile: what else a point needs, a step's intermediate
# results and those of a look, is taken to be less than so many times its states.
OFTEN = 256


def device_memory() -> int:
    """Bytes of one device; on a CPU its share of the machine's memory."""
    pretended = pretended_memory()
    if pretended is not None:
        return pretended
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(jax.local_devices())


def room(memory: int | None = None) -> float:
    """Bytes that one program may take of ``memory``, by default of a device's."""
    return _SHARE * (device_memory() if memory is None else memory)


def needed_bytes(program: jax.stages.Compiled) -> int | None:
    """What a program's arguments, results and buffers take; ``None`` if the backend cannot tell."""
    report = program.memory_analysis()
    if report is None:
        return None
    whole = report.argument_size_in_bytes + report.output_size_in_bytes
    return whole + report.temp_size_in_bytes - report.alias_size_in_bytes


def shapes_of(arrays: PyTree, sharding: jax.sharding.Sharding | None = None) -> PyTree:
    """The shapes of arrays, to compile for them without having them."""
    shapes = jax.eval_shape(lambda same: same, arrays)
    if sharding is None:
        return shapes
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes
    )


def points_that_fit(
    lower: Callable[[int], jax.stages.Lowered],
    num_points: int,
    point_bytes: int,
    memory: int | None = None,
) -> int:
    """How many of a grid's points may run side by side: all of them, or what memory holds.

    Memory grows linearly with the points, so two dry compiles with two and four of them tell how
    many fit. None is made where the states are so small that any program fits.

    Args:
      lower: the program for so many points, lowered but not compiled.
      num_points: of the grid.
      point_bytes: size of one point's states.
      memory: bytes of the device; by default what it reports.
    """
    free = room(memory)
    if num_points <= 4 or num_points * point_bytes * OFTEN <= free:
        return num_points
    return max(1, min(num_points, as_many_as_fit(lower, 2, 4, free) or num_points))


def as_many_as_fit(
    lower: Callable[[int], jax.stages.Lowered], few: int, more: int, free: float
) -> int | None:
    """How many fit if memory grows as from ``few`` to ``more``; ``None`` if it cannot be told."""
    small, large = needed_bytes(lower(few).compile()), needed_bytes(lower(more).compile())
    if small is None or large is None or large <= small:
        return None
    return max(1, int((free - small) * (more - few) / (large - small)) + few)
