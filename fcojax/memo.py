"""A bounded cache of compiled programs.

A function that JAX compiles for static arguments keeps its programs, and those arguments, for as
long as the process lives. ``jit_per`` keeps those of the last few arguments.
"""

import collections
import functools
import pathlib
import threading
from collections.abc import Callable, Hashable
from typing import Any

import jax

from fcojax.factories import memoised

__all__ = ["jit_per", "memoised"]

_MAX_PROGRAMS = 32  # per function: a program takes a few megabytes, mapped memory included
# On a CPU a large program takes a thousand memory mappings. Linux gives a process 65,530 by
# default, and beyond them LLVM crashes.
_MAX_MAPPINGS = 30_000


def jit_per(
    num_static: int, kept: int = _MAX_PROGRAMS, **options: Any
) -> Callable[[Callable], Any]:
    """Return ``jax.jit`` with static first arguments, for the last few values of these.

    At most twice as many programs are kept as values: data of another shape is another program.
    Fewer are kept if the process runs out of memory mappings. A program that was dropped is
    compiled again when it is next needed. ``trace``, ``lower`` and
    ``eval_shape`` work as those of ``jax.jit``.

    Args:
      num_static: number of leading arguments that are static.
      kept: for how many values programs are kept; fewer if a program is large.
      **options: options of ``jax.jit``; argument numbers count from the first that is not static.

    Example:
      >>> power = jit_per(num_static=1)(lambda exponent, x: x**exponent)
      >>> float(power(3, 2.0))
      8.0
    """

    def decorate(function: Callable) -> Any:
        # By static arguments, the last used at the end: the jitted function, and a list that grows
        # with each trace, hence with each shape.
        programs: collections.OrderedDict[tuple[Hashable, ...], tuple[Any, list]] = (
            collections.OrderedDict()
        )
        lock = threading.Lock()

        def program_of(static: tuple[Hashable, ...]) -> tuple[Any, list]:
            with lock:
                if static not in programs:
                    programs[static] = _jitted(function, static, options)
                programs.move_to_end(static)
                return programs[static]

        def let_go() -> None:
            with lock:
                while len(programs) > kept or sum(map(_num_traces, programs.values())) > 2 * kept:
                    programs.popitem(last=False)
                while len(programs) > 1 and _num_mappings() > _MAX_MAPPINGS:
                    programs.popitem(last=False)

        def method(name: str) -> Callable:
            def of_name(*args):
                program, traces = program_of(args[:num_static])
                before = len(traces)
                result = getattr(program, name)(*args[num_static:])
                if len(traces) > before:
                    let_go()
                return result

            return of_name

        compiled: Any = functools.wraps(function)(method("__call__"))
        for name in ("trace", "lower", "eval_shape"):
            setattr(compiled, name, method(name))
        return compiled

    return decorate


def _jitted(function: Callable, static: tuple, options: dict[str, Any]) -> tuple[Any, list]:
    traces: list[None] = []

    def of_others(*others):
        traces.append(None)
        return function(*static, *others)

    of_others.__name__ = of_others.__qualname__ = function.__name__
    return jax.jit(of_others, **options), traces


def _num_mappings() -> int:
    """Return the number of memory mappings of this process, 0 where the system does not say."""
    try:
        return pathlib.Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


def _num_traces(program: tuple[Any, list]) -> int:
    return len(program[1])
