"""Checks of arguments by their annotations.

``validated`` raises an error with one sentence, "X is V; pass Y.", if a call does not fit the
annotations of a function. It checks the numbers and arrays of ``fcojax.types``, arrays, classes
(whose ``example`` may show how to make one), ``Literal``, entries of ``Sequence`` and ``tuple``,
and unions of these. Traced numbers and arrays pass, except counts and seeds.
"""

import contextlib
import functools
import inspect
import operator
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax import types as aliases
from fcojax.memo import memoised
from fcojax.types import Arguments, Arrays, Numbers, Result

_MOST_LETTERS = 80


# Factories that took other arguments in 0.3, and the calls that replace those.
_SINCE_0_4 = {
    "attacked": "Plan(work, uploads=attacks.attacked(clients, attack))",
    "deadline": "Plan(work, sampler, uploads=clock.deadline(seconds, limit))",
    "dropout": "Plan(work, sampler, uploads=fcojax.dropout(0.1))",
}


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
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            if (name := function.__name__) in _SINCE_0_4:
                raise TypeError(f"{name}: {error}; write {_SINCE_0_4[name]} since 0.4.") from None
            return function(*args, **kwargs)  # Python says which argument does not fit
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

    show_readably(checked)
    return checked


def factory(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a factory: arguments are checked, and equal calls return the same object.

    For a factory without arguments ``fcojax.memo.memoised`` is enough.

    Example:
      >>> from fcojax.types import Positive
      >>> @factory
      ... def ball(radius: Positive):
      ...     return lambda x: x / radius
      >>> ball(2.0) is ball(radius=2.0)
      True
    """
    return memoised(validated(function))


def checked_value(name: str, value: Any, annotation: Any, *, single: bool = False) -> Any:
    """Return a value that its annotation allows; raise ``ValueError`` for any other.

    Args:
      name: the argument's name, for the message.
      value: the value that was passed.
      annotation: the argument's annotation, with its extras.
      single: whether an array of numbers is refused.
    """
    rules = _rules_of(annotation)
    for rule in rules:
        if rule is None:
            return value  # one of the alternatives is not checked
        if _fits(rule, value, single):
            if isinstance(rule, Numbers) and rule.whole:
                return at_most(name, operator.index(value), rule.largest)
            is_list = getattr(rule, "is_tuple", False) and not isinstance(value, tuple)
            return tuple(value) if is_list else value
    needed = " or ".join(rule.needed for rule in rules if rule is not None)
    used = jnp.result_type(float)
    with jax.enable_x64(True):  # 1e-300 is above 0, but not in float32
        if any(_fits(rule, value, single) for rule in rules):
            needed += f" in {used}"
    raise ValueError(f"{name} is {shown(value)}; pass {needed}.")


def at_most(name: str, value: Any, largest: Any, because: str = "", otherwise: str = "") -> Any:
    """Return a number that is not above another; raise ``ValueError`` if it is.

    ``because`` follows the value in the message, as in " but the problem has 5 clients", and
    ``otherwise`` what may be passed, as in ", or None".
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


class _Readable(NamedTuple):
    """An annotation that prints the names of ``fcojax.types``, not what they stand for."""

    annotation: Any

    def __repr__(self) -> str:
        kind = self.annotation
        text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
        text = text.replace("typing.", "")
        for name, alias in vars(aliases).items():
            if typing.get_origin(alias) is Annotated:
                text = text.replace(repr(alias).replace("typing.", ""), name)
        text = re.sub(r"Annotated\[(\w+), (?:Numbers|Arrays)\([^()]*\)\]", r"\1", text)
        return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)


def show_readably(*things: Any) -> None:
    """Give functions and classes a signature for ``help`` that a person can read.

    Example:
      >>> from fcojax.types import Count, Positive
      >>> def ball(radius: Positive, dim: Count | None = None): ...
      >>> show_readably(ball)
      >>> print(inspect.signature(ball))
      (radius: Positive, dim: Optional[Count] = None)
    """
    for thing in things:
        signature = inspect.signature(thing)
        parameters = [
            one
            if one.annotation is one.empty
            else one.replace(annotation=_Readable(one.annotation))
            for one in signature.parameters.values()
        ]
        back = signature.return_annotation
        back = back if back is signature.empty else _Readable(back)
        thing.__signature__ = signature.replace(parameters=parameters, return_annotation=back)


def refuse_when_named(hparams_type: type) -> None:
    """Let a NamedTuple refuse a float that is passed by name and that its annotation excludes.

    JAX rebuilds tuples by position, also with gradients, axes and tracers, which therefore pass.

    Example:
      >>> from fcojax.algorithms import fed_avg
      >>> fed_avg.Hparams(client_lr=-1.0)
      Traceback (most recent call last):
      ValueError: client_lr is -1.0; pass a finite number above 0.
    """
    plain = hparams_type.__new__

    @functools.wraps(plain)
    def made(cls, *values, **named):
        for name, value in named.items():
            if isinstance(value, float) and name in (kinds := field_annotations(cls)):
                checked_value(name, value, kinds[name])
        return plain(cls, *values, **named)

    show_readably(made)
    if not hasattr(plain, "__wrapped__"):  # of another factory with this type
        hparams_type.__new__ = made


class _Others(NamedTuple):
    """The values of a class, a few values, or lists, which become tuples if ``is_tuple``."""

    needed: str
    fits: Callable[[Any], bool]
    is_tuple: bool = False


_ANY = Arrays("an array of numbers")
_RULES: dict[Any, Any] = {
    int: Numbers("a whole number", whole=True),
    float: Numbers("a finite number"),
    np.ndarray: _ANY,
    jax.Array: _ANY,
    bool: _Others("True or False", lambda value: isinstance(value, bool | np.bool_)),
    type(None): _Others("None", lambda value: value is None),
}
_WORDS = {str: "a text", os.PathLike: "a path", type: "a class", Callable: "a function"}


def _rules_of(annotation: Any) -> list:
    """Return what each alternative of an annotation allows."""
    try:
        return _known_rules(annotation)
    except TypeError:  # of a user, with extras that have no hash
        return _known_rules.__wrapped__(annotation)


@functools.lru_cache(1024)
def _known_rules(annotation: Any) -> list:
    return [_rule_of(kind) for kind in _kinds(annotation)]


def _kinds(annotation: Any) -> list:
    """Return the alternatives of an annotation, ``None`` last."""
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return [annotation]
    kinds, arrays = list(typing.get_args(annotation)), typing.get_args(jax.typing.ArrayLike)
    if set(arrays) <= set(kinds):
        # Python has flattened this union of eight into the one around it.
        kinds = [np.ndarray, *(kind for kind in kinds if kind not in arrays)]
    return sorted(kinds, key=lambda kind: kind is type(None))


def _rule_of(kind: Any) -> Any:
    """Return what an annotation without alternatives allows; ``None`` if it is not checked."""
    origin, args = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is Annotated:
        return next((extra for extra in args if isinstance(extra, Numbers | Arrays)), None)
    if origin is Literal:
        needed = "one of " + ", ".join(map(repr, args))
        return _Others(needed, lambda value: not hasattr(value, "dtype") and value in args)
    if origin in (Sequence, tuple):
        kinds = args[:1] or (Any,) if args[1:] in ((), (...,)) else args
        each = " or ".join(rule.needed for rule in _rules_of(kinds[0]) if rule)
        needed = f"{len(args)} entries" if args[1:] and kinds == args else "a list"
        needed += each and f", each {each}"
        return _Others(needed, lambda value: _are_entries(value, kinds), origin is tuple)
    if origin in _RULES:
        return _RULES[origin]
    if not isinstance(origin, type) or origin is Any or getattr(origin, "_is_protocol", False):
        return None
    article, example = "an" if origin.__name__[0] in "AEIOU" else "a", getattr(kind, "example", "")
    needed = _WORDS.get(origin, f"{article} {origin.__name__}") + (example and f", as in {example}")
    return _Others(needed, lambda value: isinstance(value, origin))


def _fits(rule: Any, value: Any, single: bool = True) -> bool:
    """Whether a rule allows a value."""
    if isinstance(rule, Arrays):
        return _is_array(value, rule)
    if isinstance(rule, Numbers):
        return _is_whole(value, rule) if rule.whole else _is_number(value, rule, single)
    return rule.fits(value)


def _are_entries(value: Any, kinds: tuple) -> bool:
    """Whether entries fit the kinds in turn, or all of them the only kind."""
    if isinstance(value, Tracer):
        return value.ndim > 0
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__getitem__"):
        return False
    try:
        entries = value.tolist() if getattr(value, "ndim", 0) == 1 else list(value)
    except TypeError:  # an array without axes, a key, a class
        return False
    each = kinds if len(kinds) > 1 else kinds * len(entries)
    return len(each) == len(entries) and all(
        any(rule is None or _fits(rule, entry) for rule in _rules_of(kind))
        for kind, entry in zip(each, entries, strict=True)
    )


def _is_array(value: Any, wanted: Arrays) -> bool:
    """Whether this is an array with the dtype and shape that are wanted, or a pytree of them."""
    if wanted.tree:
        leaves, one = jax.tree.leaves(value), wanted._replace(tree=False)
        some = bool(leaves) or not (wanted.real or value is None)
        return some and all(_is_array(leaf, one) for leaf in leaves)
    given: Any = value
    with contextlib.suppress(TypeError, ValueError):  # ragged, or of keys
        given = np.asarray(value) if isinstance(value, list | int | float) else value
    if isinstance(given, np.ma.MaskedArray) or not hasattr(given, "dtype"):
        return False
    real = jnp.issubdtype(given.dtype, jnp.floating) or (_is_real(given.dtype) and not wanted.real)
    fits = jnp.issubdtype(given.dtype, jax.dtypes.prng_key) if wanted.key else real
    if not fits or wanted.ndim not in (None, len(given.shape)):
        return False
    unknown = not wanted.finite or isinstance(given, Tracer | jax.ShapeDtypeStruct)
    return unknown or bool(np.isfinite(np.asarray(given, np.float64)).all())


def _is_real(dtype: Any) -> bool:
    return any(jnp.issubdtype(dtype, k) for k in (bool, jnp.integer, jnp.floating))


def _is_whole(value: Any, numbers: Numbers) -> bool:
    """Whether this is a whole number, of Python or numpy, and in the range."""
    with contextlib.suppress(TypeError):
        return not isinstance(value, bool) and bool(numbers.holds(operator.index(value)))
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
        used = exact.astype(jax.dtypes.canonicalize_dtype(float))
    vanished = (used == 0) & (exact != 0)
    fits = np.isfinite(used) & numbers.holds(used) & ~vanished
    return bool(fits.all()) and not (single and given.ndim)
