"""Checks of arguments by their annotations.

``validated`` reads the annotations of a function and refuses a call that does not fit them with one
sentence, "X is V; pass Y.". It checks arguments with these annotations:

- the numbers of ``fcojax.types`` (``Positive``, ``NonNegative``, ``Probability``, ``Share``,
  ``Real``, ``Count``, ``CountOrZero``, ``Seed``); traced ones pass, except counts and seeds;
- a class of the library, such as ``Penalty``; its ``example`` may show how to make one;
- ``bool``, so that a text such as "no" does not count as true;
- ``Literal["a", "b"]``, ``Callable[...]``, ``Mapping``; a union of any of these with ``None``.
"""

import contextlib
import functools
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax.types import Numbers

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_MOST_LETTERS = 80


def shown(value: Any) -> str:
    """Return a short text of a value, on one line, for an error message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


def validated(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function so that it refuses arguments that its annotations exclude.

    Counts are converted to Python integers, also numpy's; arrays are refused in place of a number.

    Example:
      >>> from fcojax.types import Count, Positive
      >>> @validated
      ... def ball(radius: Positive, dim: Count | None = None):
      ...     return radius
      >>> ball(-1)
      Traceback (most recent call last):
      ValueError: radius is -1; pass a finite number above 0.
    """
    signature = inspect.signature(function)
    annotations = functools.cache(lambda: _resolved(function))

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        given = bound(function.__name__, signature, args, kwargs)
        for name, value in given.arguments.items():
            if name in annotations():
                given.arguments[name] = checked_value(name, value, annotations()[name], single=True)
        return function(*given.args, **given.kwargs)

    return checked


def bound(
    name: str, signature: inspect.Signature, args: Any, kwargs: Any
) -> inspect.BoundArguments:
    """Bind arguments; raise ``TypeError`` with all names if they do not fit."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        own = [
            f"{k}=..." if p.kind == p.KEYWORD_ONLY else k for k, p in signature.parameters.items()
        ]
        raise TypeError(f"{error}; pass {name}({', '.join(own)}).") from None


def checked_value(name: str, value: Any, annotation: Any, *, single: bool = False) -> Any:
    """Return a value that its annotation allows; raise ``ValueError`` for any other.

    Args:
      name: the argument's name, for the message.
      value: the value that was passed.
      annotation: the argument's annotation, with its extras.
      single: whether an array of numbers is refused.
    """
    kinds = _alternatives(annotation)
    if value is None and type(None) in kinds:
        return None
    known = [kind for kind in kinds if _is_known(kind)]
    if len(known) != len([kind for kind in kinds if kind is not type(None)]):
        return value  # one of the alternatives cannot be checked
    for kind in known:
        numbers = numbers_of(kind)
        if numbers is not None and numbers.whole:
            count = _as_count(value)
            if count is not None and numbers.holds(count):
                return at_most(name, count, numbers.largest)
        elif _is_instance(value, kind) if numbers is None else _fits(value, numbers, single):
            return value
    needed = " or ".join([_needed(kind) for kind in known])
    needed += " or None" if type(None) in kinds else ""
    if inspect.isfunction(value) and any(isinstance(kind, type) for kind in known):
        raise ValueError(
            f"{name} is the function {value.__name__}; call it: {value.__name__}(...), or pass "
            f"{needed}."
        )
    raise ValueError(f"{name} is {shown(value)}; pass {needed}.")


def numbers_of(annotation: Any) -> Numbers | None:
    """Return the numbers that an annotation allows; ``None`` if it is not about numbers."""
    extras = typing.get_args(annotation)[1:] if typing.get_origin(annotation) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, Numbers)), None)


@functools.lru_cache(256)  # types may be made in a loop
def field_annotations(fields: type) -> dict[str, Any]:
    """Return the annotations of a NamedTuple's fields, with their extras."""
    return _resolved(fields)


def _resolved(annotated: Any) -> dict[str, Any]:
    """Return annotations by name, without those whose names exist only for a type checker."""
    # A file that was executed without being imported, such as a config, is not in sys.modules.
    module = getattr(sys.modules.get(annotated.__module__), "__dict__", {})
    found, names = {}, getattr(annotated, "__globals__", module)
    for name, kind in annotated.__annotations__.items():
        one = types.SimpleNamespace(__annotations__={name: kind})
        with contextlib.suppress(NameError):
            found |= typing.get_type_hints(one, names, include_extras=True)
    return found


def _alternatives(annotation: Any) -> tuple:
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _is_known(kind: Any) -> bool:
    """Return whether ``validated`` checks this kind of annotation."""
    origin = typing.get_origin(kind)
    if numbers_of(kind) is not None or _is_callable(kind):
        return True
    if origin is Literal or kind is bool or Mapping in (kind, origin):
        return True
    return isinstance(kind, type) and kind.__module__.split(".")[0] == "fcojax"


def _is_callable(kind: Any) -> bool:
    return kind is Callable or typing.get_origin(kind) is Callable


def _is_instance(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return not hasattr(value, "dtype") and value in typing.get_args(kind)
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if _is_callable(kind):
        return callable(value)
    if getattr(kind, "_is_protocol", False):
        return callable(value)
    return isinstance(value, typing.get_origin(kind) or kind)


def _needed(kind: Any) -> str:
    if numbers := numbers_of(kind):
        return numbers.needed
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(kind)))
    if kind is bool:
        return "True or False"
    if _is_callable(kind) or getattr(kind, "_is_protocol", False):
        return "a function"
    if Mapping in (kind, typing.get_origin(kind)):
        return "a dict"
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    example = getattr(kind, "example", None)
    return f"{article} {kind.__name__}" + (f", as in {example}" if example else "")


def _as_count(value: Any) -> int | None:
    """A whole number as a Python integer, also of numpy's; ``None`` for anything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def at_most(name: str, value: Any, largest: Any, because: str = "", otherwise: str = "") -> Any:
    """Return a number that is not above another; raise ``ValueError`` if it is.

    Args:
      name: the argument's name.
      value: the value that was passed.
      largest: the largest number that is allowed.
      because: the text after the value in the message, as in " but the problem has 5 clients".
      otherwise: what else may be passed, as in ", or None".
    """
    if value > largest:
        raise ValueError(f"{name} is {value}{because}; pass at most {largest}{otherwise}.")
    return value


def _fits(value: Any, numbers: Numbers, single: bool) -> bool:
    """Whether these are finite numbers, in the precision in use, and in the range."""
    if isinstance(value, Tracer | jax.ShapeDtypeStruct):
        return not (single and value.shape)
    if isinstance(value, np.ma.MaskedArray):
        return False
    try:
        given = np.asarray(value)
        real = given.dtype == bool or jnp.issubdtype(given.dtype, jnp.number)
        if not real or given.dtype.kind == "c" or isinstance(value, str | bytes):
            return False
        if single and given.ndim:
            return False
        exact = given.astype(np.float64)
    except (TypeError, ValueError):
        return False
    # As it will be used: 1e-50 is zero in float32 and 1e50 infinite.
    with np.errstate(over="ignore", under="ignore"):
        used = exact.astype(jnp.result_type(float))
    vanished = (used == 0) & (exact != 0)
    return bool((np.isfinite(used) & numbers.holds(used) & ~vanished).all())
