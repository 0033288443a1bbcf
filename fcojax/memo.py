"""Bounded caches of the results of factories, and of compiled programs.

Algorithms and penalties are tuples of closures, and JAX caches compiled programs by the identity of
a closure: without ``memoised`` an algorithm that is built twice would be compiled twice. JAX also
keeps the programs for all static arguments as long as the process lives; ``jit_per`` keeps only the
last few.
"""

import collections
import functools
import hashlib
import inspect
import pathlib
import threading
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from fcojax.types import Arguments, Result

_MAX_RESULTS = 256  # per factory; programs of an evicted one are compiled again

_MAX_PROGRAMS = 32  # per function: a program takes a few megabytes, including mapped memory
# On a CPU a large program takes a thousand memory mappings. Linux gives a process 65,530 by
# default, and beyond them LLVM crashes.
_MAX_MAPPINGS = 30_000


def memoised(factory: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Cache the results of a factory by its arguments.

    Calls whose arguments cannot be compared, such as traced arrays, are not cached.

    Args:
      factory: a function without side effects.

    Example:
      >>> make = memoised(lambda base, *, sign=1: [base, sign])
      >>> make(np.ones(2)) is make(base=np.ones(2), sign=1), make(1) is make(1.0)
      (True, False)
    """
    signature = inspect.signature(factory)
    cache: collections.OrderedDict[Hashable, Result] = collections.OrderedDict()

    @functools.wraps(factory)
    def cached(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            key = _key(tuple(bound.arguments.items()))
            known = key in cache  # needs its hash
        except TypeError:
            return factory(*args, **kwargs)
        if not known:
            cache[key] = factory(*args, **kwargs)
            if len(cache) > _MAX_RESULTS:
                cache.popitem(last=False)
        cache.move_to_end(key)
        return cache[key]

    return cached


def _key(argument: object) -> Hashable:
    """Return a key that is equal for equal arguments of the same type."""
    if isinstance(argument, Tracer):
        raise TypeError("a traced array has no contents")
    if isinstance(argument, np.ndarray | jax.Array):
        array = np.asarray(argument)
        contents = hashlib.sha256(array.tobytes()).hexdigest()
        return type(argument), array.shape, str(array.dtype), contents
    if isinstance(argument, list | tuple):
        return type(argument), tuple(_key(entry) for entry in argument)
    if isinstance(argument, dict):
        pairs = ((_key(name), _key(entry)) for name, entry in argument.items())
        return dict, tuple(pairs)
    return type(argument), argument  # pyright: ignore[reportReturnType]


def jit_per(
    num_static: int, kept: int = _MAX_PROGRAMS, **options: Any
) -> Callable[[Callable], Any]:
    """Return ``jax.jit`` with static first arguments, for the last few values of these.

    At most twice as many programs are kept as values, as data of another shape needs another
    program, and fewer if the process runs out of memory mappings. A program that was dropped is
    compiled again when it is next needed. ``trace``, ``lower`` and ``eval_shape`` work too.

    Args:
      num_static: number of leading arguments that are static.
      kept: number of values whose programs are kept.
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
                while len(programs) > kept or sum(len(x) for _, x in programs.values()) > 2 * kept:
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
    """Return the number of memory mappings of this process; 0 if the system does not report it."""
    try:
        return pathlib.Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0
