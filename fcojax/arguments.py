"""Checks of arguments by their annotations.

``validated`` raises an error with one sentence, "X is V; pass Y.", if a call does not fit the
annotations of a function. It checks the numbers and arrays of ``fcojax.types``, arrays, classes
(whose ``example`` may show how to make one), ``Literal``, ``Callable``, ``Mapping``, ``Sequence``,
``tuple`` and unions of these. Traced numbers and arrays pass, except counts and seeds.
"""

import contextlib
import functools
import inspect
import operator
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax.memo import memoised
from fcojax.types import Arrays, Numbers

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_MOST_LETTERS = 80


def shown(value: Any) -> str:
    """Return a short text of a value, on one line, for an error message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


def validated(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function so that it refuses arguments that its annotations exclude.

    Counts, including numpy's, become Python integers, and lists become tuples if tuples are needed.

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
            if name not in annotations():
                continue
            check = functools.partial(checked_value, annotation=annotations()[name], single=True)
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                given.arguments[name] = tuple(check(name, entry) for entry in value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                given.arguments[name] = {key: check(key, entry) for key, entry in value.items()}
            else:
                given.arguments[name] = check(name, value)
        return function(*given.args, **given.kwargs)

    return checked


def factory(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a factory: arguments are checked, and equal calls return the same object.

    For a factory without arguments ``fcojax.memo.memoised`` is enough.

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


def bound(
    name: str, signature: inspect.Signature, args: Any, kwargs: Any
) -> inspect.BoundArguments:
    """Bind arguments; raise ``TypeError`` with all names if they do not fit."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        keyword = inspect.Parameter.KEYWORD_ONLY
        own = [k + "=..." * (p.kind is keyword) for k, p in signature.parameters.items()]
        raise TypeError(f"{error}; pass {name}({', '.join(own)}).") from None


def checked_value(name: str, value: Any, annotation: Any, *, single: bool = False) -> Any:
    """Return a value that its annotation allows; raise ``ValueError`` for any other.

    Args:
      name: the argument's name, for the message.
      value: the value that was passed.
      annotation: the argument's annotation, with its extras.
      single: whether an array of numbers is refused.
    """
    kinds = _kinds(annotation)
    checks = [check for kind in kinds if (check := _check_of(kind, single))]
    if len(checks) < len(kinds):
        return value  # one of the alternatives is not checked
    for check in checks:
        if check.fits(value):
            return check.converted(name, value)
    needed = " or ".join(check.needed for check in checks)
    is_class = any(isinstance(kind, type) and kind is not type(None) for kind in kinds)
    if is_class and inspect.isfunction(value):
        called = f"{name} is the function {value.__name__}; call it: {value.__name__}(...), or"
        raise ValueError(f"{called} pass {needed}.")
    raise ValueError(f"{name} is {shown(value)}; pass {needed}.")


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


def numbers_of(annotation: Any) -> Numbers | None:
    """Return the numbers that an annotation allows; ``None`` if it is not about numbers."""
    extras = typing.get_args(annotation)[1:] if typing.get_origin(annotation) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, Numbers)), None)


def checked_array(name: str, value: Any) -> np.ndarray:
    """Return the value as an array on the host; raise ``ValueError`` if it cannot be one."""
    with contextlib.suppress(TypeError, ValueError):  # ragged lists, JAX keys
        if not isinstance(value, np.ma.MaskedArray):
            return np.asarray(value)
    raise ValueError(f"{name} is {shown(value)}; pass an array without a mask, or a list.")


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


# Annotations of a NamedTuple's fields; the cache is bounded, as types may be made in a loop.
field_annotations = functools.lru_cache(256)(_resolved)


class _Check(NamedTuple):
    """The check of an annotation without alternatives: the values in words, and a test."""

    needed: str
    fits: Callable[[Any], bool]
    converted: Callable[[str, Any], Any] = lambda name, value: value


def _kinds(annotation: Any) -> list:
    """Return the alternatives of an annotation, ``None`` last."""
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return [annotation]
    kinds, arrays = list(typing.get_args(annotation)), typing.get_args(jax.typing.ArrayLike)
    if set(arrays) <= set(kinds):
        # Python has flattened this union of eight into the one around it.
        kinds = [jax.typing.ArrayLike, *(kind for kind in kinds if kind not in arrays)]
    return sorted(kinds, key=lambda kind: kind is type(None))


def _check_of(kind: Any, single: bool = True) -> _Check | None:
    """Return the check of an annotation without alternatives; ``None`` if it is not checked."""
    origin, args = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is Annotated:
        extras = (extra for extra in args[1:] if isinstance(extra, Numbers | Arrays))
        return next((_check_of_extra(extra, single) for extra in extras), None)
    if origin is Literal:
        words = "one of " + ", ".join(map(repr, args))
        return _Check(words, lambda value: not hasattr(value, "dtype") and value in args)
    if origin in (Sequence, Iterable, tuple):
        return _check_of_entries(origin, args)
    if origin in (Mapping, dict):
        return _Check("a dict", lambda value: isinstance(value, origin) and _has(value, *args))
    if kind in _CHECKS:
        return _CHECKS[kind]
    is_protocol = isinstance(kind, type) and getattr(kind, "_is_protocol", False)
    if origin is Callable or (is_protocol and kind.__module__.startswith("fcojax.")):
        return _Check("a function", callable)
    if origin in _WORDS:
        return _Check(_WORDS[origin], lambda value: isinstance(value, origin))
    if is_protocol or not isinstance(kind, type) or kind in (Any, object):
        return None
    article, example = "an" if kind.__name__[0] in "AEIOU" else "a", getattr(kind, "example", "")
    words = f"{article} {kind.__name__}" + (f", as in {example}" if example else "")
    return _Check(words, lambda value: isinstance(value, kind))


def _check_of_extra(wanted: Numbers | Arrays, single: bool = True) -> _Check:
    if isinstance(wanted, Arrays):
        return _Check(wanted.needed, lambda value: _is_array(value, wanted))
    if not wanted.whole:
        return _Check(wanted.needed, lambda value: _is_number(value, wanted, single))
    return _Check(
        wanted.needed,
        lambda value: _is_whole(value) and bool(wanted.holds(operator.index(value))),
        lambda name, value: at_most(name, operator.index(value), wanted.largest),
    )


def _allows(annotation: Any, value: Any) -> bool:
    """Whether a value fits an annotation; an annotation that is not checked allows everything."""
    checks = map(_check_of, _kinds(annotation))
    return any(check is None or check.fits(value) for check in checks)


def _has(value: Mapping, keys: Any = Any, values: Any = Any) -> bool:
    return all(_allows(keys, key) and _allows(values, value[key]) for key in value)


def _check_of_entries(origin: Any, args: tuple) -> _Check:
    """Return the check of a list or a tuple, and of each of its entries."""
    fixed = origin is tuple and args[-1:] not in ((), (...,))
    checks = [check for kind in args[:1] for check in map(_check_of, _kinds(kind)) if check]
    each = " or ".join(check.needed for check in checks)
    listed = (f"{len(args)} entries" if fixed else "a list") + (each and f", each {each}")

    def fits(value):
        if isinstance(value, Tracer):
            return value.ndim > 0
        if isinstance(value, str | bytes | type) or not hasattr(value, "__iter__"):
            return False
        if isinstance(value, Mapping) or not hasattr(value, "__getitem__"):
            return origin is Iterable  # read once, in no order
        try:
            entries = value.tolist() if getattr(value, "ndim", 0) == 1 else list(value)
        except TypeError:  # an array without axes, a key
            return False
        kinds = args if fixed else args[:1] * len(entries)
        return len(kinds) in (0, len(entries)) and all(map(_allows, kinds, entries))

    def converted(name, value):
        return tuple(value) if origin is tuple and not isinstance(value, tuple) else value

    return _Check(listed, fits, converted)


_ANY = Arrays("an array of numbers")


def _is_array(value: Any, wanted: Arrays) -> bool:
    """Whether this is an array with the dtype and shape that are wanted, or a pytree of them."""
    if wanted.tree:
        leaves, one = jax.tree.leaves(value), wanted._replace(tree=False)
        some = bool(leaves) or not (wanted.real or value is None)
        numbers = (np.asarray(leaf) if isinstance(leaf, int | float) else leaf for leaf in leaves)
        return some and all(_is_array(leaf, one) for leaf in numbers)
    if isinstance(value, np.ma.MaskedArray) or not hasattr(value, "dtype"):
        return False
    real = jnp.issubdtype(value.dtype, jnp.floating) or (_is_real(value.dtype) and not wanted.real)
    fits = jnp.issubdtype(value.dtype, jax.dtypes.prng_key) if wanted.key else real
    if not fits or wanted.ndim not in (None, len(value.shape)):
        return False
    unknown = not wanted.finite or isinstance(value, Tracer | jax.ShapeDtypeStruct)
    return unknown or bool(np.isfinite(np.asarray(value, np.float64)).all())


def _is_array_like(value: Any) -> bool:
    with contextlib.suppress(TypeError, ValueError):  # ragged, or of keys
        given = np.asarray(value) if isinstance(value, list | int | float) else value
        return _is_array(given, _ANY)
    return False


def _is_real(dtype: Any) -> bool:
    return any(jnp.issubdtype(dtype, k) for k in (bool, jnp.integer, jnp.floating))


def _is_whole(value: Any) -> bool:
    """Whether this is a whole number, of Python or numpy, and not a truth value."""
    with contextlib.suppress(TypeError):
        return not isinstance(value, bool) and operator.index(value) is not None
    return False


def _is_number(value: Any, numbers: Numbers, single: bool) -> bool:
    """Whether these are finite numbers, in the precision in use, and in the range."""
    if isinstance(value, Tracer | jax.ShapeDtypeStruct):
        return not (single and value.shape)
    try:
        given = np.asarray(value)
        if isinstance(value, np.ma.MaskedArray) or not _is_real(given.dtype):
            return False
        exact = given.astype(np.float64)
    except (TypeError, ValueError):  # ragged
        return False
    # As it will be used: 1e-50 is zero in float32 and 1e50 infinite.
    with np.errstate(over="ignore", under="ignore"):
        used = exact.astype(jnp.result_type(float))
    vanished = (used == 0) & (exact != 0)
    fits = np.isfinite(used) & numbers.holds(used) & ~vanished
    return bool(fits.all()) and not (single and given.ndim)


_CHECKS = {
    type(None): _Check("None", lambda value: value is None),
    bool: _Check("True or False", lambda value: isinstance(value, bool | np.bool_)),
    int: _Check("a whole number", _is_whole),
    float: _check_of_extra(Numbers("a finite number")),
    np.ndarray: _check_of_extra(_ANY),
    jax.Array: _check_of_extra(_ANY),
    jax.typing.ArrayLike: _Check(_ANY.needed, _is_array_like),
}
_WORDS = {str: "a text", bytes: "bytes", os.PathLike: "a path", type: "a class"}
