"""Factories that return the same object for the same arguments.

Algorithms and penalties are tuples of closures, and JAX knows a closure by its identity: built
twice, it is compiled twice. Arrays among the arguments are compared by their contents.
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

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_MOST = 256  # results a factory remembers; what it forgets is merely compiled once more


def memoised(factory: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The same factory with a memory.

    Arguments that cannot be compared, traced arrays for one, are simply not remembered.

    Example:
      >>> make = memoised(lambda base, *, sign=1: [base, sign])
      >>> make(np.ones(2)) is make(base=np.ones(2), sign=1), make(1) is make(1.0)
      (True, False)
    """
    signature = inspect.signature(factory)
    known: collections.OrderedDict[Hashable, Result] = collections.OrderedDict()

    @functools.wraps(factory)
    def remember(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            name = _name(signature, args, kwargs)
        except TypeError:
            name = None
        if name is None:
            return factory(*args, **kwargs)
        if name not in known:
            known[name] = factory(*args, **kwargs)
            if len(known) > _MOST:
                known.popitem(last=False)
        known.move_to_end(name)
        return known[name]

    return remember


def _name(signature: inspect.Signature, args: tuple, kwargs: dict) -> Hashable:
    """Something hashable that is equal for equal calls; ``TypeError`` if there is no such thing."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    name = _identity(tuple(bound.arguments.items()))
    hash(name)
    return name


def _identity(argument: object) -> Hashable:
    """Something hashable that is equal for equal arguments of equal types."""
    if isinstance(argument, Tracer):
        raise TypeError("a traced array has no contents yet")
    if isinstance(argument, np.ndarray | jax.Array):
        array = np.asarray(argument)
        contents = hashlib.sha256(array.tobytes()).hexdigest()
        return type(argument), array.shape, str(array.dtype), contents
    if isinstance(argument, list | tuple):
        return type(argument), tuple(_identity(entry) for entry in argument)
    if isinstance(argument, dict):
        pairs = ((_identity(name), _identity(entry)) for name, entry in argument.items())
        return dict, tuple(pairs)
    return type(argument), argument  # pyright: ignore[reportReturnType]
