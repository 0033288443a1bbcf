"""Factories: their arguments are checked, and equal calls return the same object.

Algorithms and penalties are tuples of closures, and JAX caches compiled programs by the identity of
a closure: without a cache here, an algorithm that is built twice would be compiled twice. Array
arguments are compared by their contents.
"""

import collections
import functools
import hashlib
import inspect
from collections.abc import Callable, Hashable
from typing import ParamSpec, TypeVar

import jax
import numpy as np
from jax.core import Tracer

from fcojax.arguments import validated

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_MAX_RESULTS = 256  # per factory; programs of an evicted one are compiled again


def factory(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a factory: arguments are checked, and equal calls return the same object.

    Args:
      function: a function without side effects, with annotations as for ``validated``.

    Example:
      >>> from fcojax.types import Positive
      >>> @factory
      ... def ball(radius: Positive):
      ...     return lambda x: x / radius
      >>> ball(2.0) is ball(radius=2.0)
      True
    """
    return memoised(validated(function))


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
