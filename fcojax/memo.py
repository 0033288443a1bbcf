"""A bounded cache of compiled programs.

A function that JAX compiles for static arguments keeps its programs, and those arguments, for as
long as the process lives. ``jit_per`` keeps those of the last few arguments.
"""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax

from fcojax.factories import memoised

__all__ = ["jit_per", "memoised"]

_MAX_PROGRAMS = 32  # per function: a program takes a few megabytes, mapped memory included


def jit_per(
    num_static: int, kept: int = _MAX_PROGRAMS, **options: Any
) -> Callable[[Callable], Any]:
    """Return ``jax.jit`` with static first arguments, for the last few values of these.

    A program that was dropped is compiled again when it is next needed. ``trace``,
    ``lower`` and ``eval_shape`` work as those of ``jax.jit``.

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
        @functools.lru_cache(kept)
        def program_of(*static: Hashable) -> Any:
            def of_others(*others):
                return function(*static, *others)

            of_others.__name__ = of_others.__qualname__ = function.__name__
            return jax.jit(of_others, **options)

        @functools.wraps(function)
        def compiled(*args):
            return program_of(*args[:num_static])(*args[num_static:])

        def method(name: str) -> Callable:
            return lambda *args: getattr(program_of(*args[:num_static]), name)(*args[num_static:])

        for name in ("trace", "lower", "eval_shape"):
            setattr(compiled, name, method(name))
        return compiled

    return decorate
