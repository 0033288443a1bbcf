"""Checks of arguments by their annotations.

``validated`` reads the annotations of a function and refuses a call that does not fit them with one
sentence, "X is V; pass Y.". It checks arguments with these annotations:

- the numbers of ``fcojax.types`` (``Positive``, ``NonNegative``, ``Probability``, ``Share``,
  ``Real``, ``Count``, ``CountOrZero``, ``Seed``); traced ones pass, except counts and seeds;
- its arrays (``Matrix``, ``Key``), ``jax.Array``, ``np.ndarray`` and ``ArrayLike``, which hold real
  numbers; traced ones pass;
- a class, such as ``str`` or ``Penalty``; its ``example`` may show how to make one. ``bool``
  excludes a text such as "no", and ``float`` is finite;
- ``Literal["a", "b"]``, ``Callable[...]``, ``Mapping``, ``Sequence[...]`` and ``tuple[...]``, which
  becomes a tuple; a union of any of these, also with ``None``.
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
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

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
    known = [kind for kind in kinds if kind is not type(None)]
    if not all(map(_is_known, known)):
        return value  # one of the alternatives cannot be checked
    for kind in known:
        if _allows(kind, value, single):
            numbers, given = numbers_of(kind), typing.cast(Any, value)
            if numbers is not None and numbers.whole:
                return at_most(name, operator.index(given), numbers.largest)
            is_tuple = tuple in (kind, typing.get_origin(kind)) and not isinstance(value, tuple)
            return tuple(given) if is_tuple else value
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
    return _extra(annotation, Numbers)


def _extra(annotation: Any, kind: type) -> Any:
    """Return what is ``Annotated`` to a type, of one kind."""
    extras = typing.get_args(annotation)[1:] if typing.get_origin(annotation) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, kind)), None)


def checked_array(name: str, value: Any) -> np.ndarray:
    """Return an array on the host; raise ``ValueError`` for what has no such form."""
    with contextlib.suppress(TypeError, ValueError):  # of ragged lists, and of keys of JAX
        if not isinstance(value, np.ma.MaskedArray):
            return np.asarray(value)
    raise ValueError(f"{name} is {shown(value)}; pass an array without a mask, or a list.")


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


_ARRAY_LIKE = typing.get_args(jax.typing.ArrayLike)
_ANY_NUMBER = Numbers("a finite number")
_ENTRIES = (Sequence, Iterable, tuple)
_WORDS = {
    str: "a text",
    bytes: "bytes",
    os.PathLike: "a path",
    type: "a class",
    int: "a whole number",
    float: "a finite number",
    bool: "True or False",
    np.ndarray: "an array of numbers",
    jax.Array: "an array of numbers",
    jax.typing.ArrayLike: "an array of numbers",
    Mapping: "a dict",
    dict: "a dict",
}


def _alternatives(annotation: Any) -> tuple:
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return (annotation,)
    kinds = typing.get_args(annotation)
    if not set(_ARRAY_LIKE) <= set(kinds):
        return kinds
    # Python has flattened this union of eight into the one around it.
    return (jax.typing.ArrayLike, *(kind for kind in kinds if kind not in _ARRAY_LIKE))


def _is_known(kind: Any) -> bool:
    """Return whether ``validated`` checks this kind of annotation."""
    origin = typing.get_origin(kind)
    if numbers_of(kind) is not None or _extra(kind, Arrays) is not None or _is_callable(kind):
        return True
    if origin in (Literal, type, *_ENTRIES) or kind in _WORDS or origin in _WORDS:
        return True
    ours = getattr(kind, "__module__", "").split(".")[0] == "fcojax"
    opaque = kind in (Any, object) or (getattr(kind, "_is_protocol", False) and not ours)
    return isinstance(kind, type) and not opaque


def _is_callable(kind: Any) -> bool:
    return kind is Callable or typing.get_origin(kind) is Callable


def _allows(annotation: Any, value: Any, single: bool = True) -> bool:
    """Whether a value fits an annotation; one that is not judged allows everything."""
    return any(_is_one(value, kind, single) for kind in _alternatives(annotation))


def _is_one(value: Any, kind: Any, single: bool) -> bool:
    origin = typing.get_origin(kind)
    if not _is_known(kind):
        return True
    if numbers := numbers_of(kind):
        if not numbers.whole:
            return _fits(value, numbers, single)
        count = _as_count(value)
        return count is not None and numbers.holds(count)
    if origin is Literal:
        return not hasattr(value, "dtype") and value in typing.get_args(kind)
    if _is_callable(kind) or getattr(kind, "_is_protocol", False):
        return callable(value)
    if (origin or kind) in _ENTRIES:
        return _has_entries(value, kind)
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind is int:
        return _as_count(value) is not None
    if kind is float:
        return _fits(value, _ANY_NUMBER, True)
    if kind is jax.typing.ArrayLike and isinstance(value, list | int | float):
        with contextlib.suppress(TypeError, ValueError):
            return _is_array(np.asarray(value), Arrays(""))
        return False  # ragged, or of keys
    arrays = _extra(kind, Arrays)
    if arrays is not None or kind in (jax.Array, np.ndarray, jax.typing.ArrayLike):
        return _is_array(value, arrays or Arrays(""))
    if (origin or kind) in (Mapping, dict) and isinstance(value, origin or kind):
        keys, values = typing.get_args(kind) or (Any, Any)
        return all(_allows(keys, key) and _allows(values, value[key]) for key in value)
    return isinstance(value, origin or kind)


def _has_entries(value: Any, kind: Any) -> bool:
    """Whether a value has entries, in an order, each of them as the annotation says."""
    origin, args = typing.get_origin(kind) or kind, typing.get_args(kind)
    if isinstance(value, Tracer):
        return value.ndim > 0
    if isinstance(value, str | bytes | type) or not hasattr(value, "__iter__"):
        return False
    if isinstance(value, Mapping) or not hasattr(value, "__getitem__"):  # read once, in no order
        return origin is Iterable
    try:
        entries = value.tolist() if getattr(value, "ndim", 0) == 1 else list(value)
    except TypeError:  # an array without axes, a key
        return False
    fixed = origin is tuple and args and args[-1] is not ...
    if fixed and len(entries) != len(args):
        return False
    kinds = args if fixed else args[:1] * len(entries)
    return all(map(_allows, kinds, entries))


def _is_array(value: Any, arrays: Arrays) -> bool:
    """Whether this is an array with the dtype and shape that are wanted, or a pytree of them."""
    if arrays.tree:
        leaves, one = jax.tree.leaves(value), arrays._replace(tree=False)
        numbers = (np.asarray(leaf) if isinstance(leaf, int | float) else leaf for leaf in leaves)
        some = bool(leaves) or not (arrays.real or value is None)
        return some and all(_is_array(leaf, one) for leaf in numbers)
    if isinstance(value, np.ma.MaskedArray) or not hasattr(value, "dtype"):
        return False
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    real = jnp.issubdtype(value.dtype, jnp.floating)
    whole = jnp.issubdtype(value.dtype, jnp.integer) or value.dtype == bool
    fits = is_key if arrays.key else real or (whole and not arrays.real)
    if not fits or arrays.ndim not in (None, len(value.shape)):
        return False
    unknown = not arrays.finite or isinstance(value, Tracer | jax.ShapeDtypeStruct)
    return unknown or bool(np.isfinite(np.asarray(value, np.float64)).all())


def _needed(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if extra := numbers_of(kind) or _extra(kind, Arrays):
        return extra.needed
    if origin is Literal:
        return "one of " + ", ".join(map(repr, args))
    if _is_callable(kind) or getattr(kind, "_is_protocol", False):
        return "a function"
    if (origin or kind) in _ENTRIES:
        fixed = origin is tuple and args[-1] is not ...
        each = [_needed(one) for one in _alternatives(args[0]) if _is_known(one)] if args else []
        listed = f"{len(args)} entries" if fixed else "a list"
        return listed + (f", each {' or '.join(each)}" if each else "")
    if word := _WORDS.get(kind) or _WORDS.get(origin):
        return word
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
