"""Factories that return the same object for the same arguments, and programs that are let go.

Algorithms and penalties are tuples of closures, and JAX caches compiled programs by the identity of
a closure: without a cache here, a factory called twice would be compiled twice. Array arguments are
compared by their contents.

A function that JAX compiles for static arguments keeps its programs, and those arguments, for as
long as the process lives. ``jit_per`` keeps those of the last few.
"""

import collections
import functools
import hashlib
import inspect
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np
from jax.core import Tracer

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_MAX_RESULTS = 256  # per factory; an evicted one is compiled again
_MAX_PROGRAMS = 32  # per function: with all that it maps, one takes a few megabytes


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
            key = _call_key(signature, args, kwargs)
        except TypeError:
            return factory(*args, **kwargs)
        if key not in cache:
            cache[key] = factory(*args, **kwargs)
            if len(cache) > _MAX_RESULTS:
                cache.popitem(last=False)
        cache.move_to_end(key)
        return cache[key]

    return cached


def jit_per(
    num_static: int, kept: int = _MAX_PROGRAMS, **options: Any
) -> Callable[[Callable], Any]:
    """Return ``jax.jit`` whose first arguments are static, for the last values of them alone.

    A program that was dropped is compiled again when it is next needed. ``trace``,
    ``lower`` and ``eval_shape`` work as those of ``jax.jit``.

    Args:
      num_static: number of leading arguments that are static.
      kept: number of their values whose programs are kept, fewer where a program is large.
      **options: options of ``jax.jit``, which count the other arguments only.

    Example:
      >>> power = jit_per(1)(lambda exponent, x: x**exponent)
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


def _call_key(signature: inspect.Signature, args: tuple, kwargs: dict) -> Hashable:
    """A key that is equal for equal calls; raises ``TypeError`` if an argument has none."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    key = _key(tuple(bound.arguments.items()))
    hash(key)
    return key


def _key(argument: object) -> Hashable:
    """A key that is equal for equal arguments of the same type."""
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
