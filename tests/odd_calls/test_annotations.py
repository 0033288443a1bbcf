"""Annotations are enforced: errors for excluded values name the argument.

Arguments are checked before the body of a function runs, so the others may be dummies.
"""

import importlib
import inspect
import os
import pathlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
import pytest

import fcojax
from fcojax import theory
from fcojax.arguments import numbers_of
from fcojax.types import Arrays, Key

ROOT = pathlib.Path(fcojax.__file__).parent.parent
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("fcojax/**/__init__.py")
) + [f"fcojax.theory.{name}" for name in theory.__all__ if name != "local_points"]


def validated():
    """Return all public functions with checked annotations, by their full names."""
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", dir(module)):
            function = getattr(module, name)
            while function is not None and not _judges(function):
                function = getattr(function, "__wrapped__", None)
            if function is not None and function.__module__ != "fcojax.arguments":
                found[f"{function.__module__}.{name}"] = function
    return found


def _judges(function):
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.endswith("fcojax/arguments.py")


def alternatives(kind):
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if is_union else (kind,)


def known(kind):
    """Return whether each alternative of an annotation is checked."""
    return all(
        one in (type(None), bool, Callable, Mapping)
        or numbers_of(one) is not None
        or typing.get_origin(one) in (typing.Literal, Callable, Mapping)
        or (isinstance(one, type) and one.__module__.startswith("fcojax"))
        for one in alternatives(kind)
    )


STAND_INS = {
    bool: True,
    str: "odd",
    int: 1,
    float: 0.5,
    bytes: b"",
    type: tuple,
    tuple: (),
    os.PathLike: pathlib.Path("odd"),
    np.ndarray: np.ones(2),
    jax.Array: np.ones(2),
    Key: jax.random.key(0),
}


def is_good(value, numbers):
    return not isinstance(value, bool) and numbers.holds(np.float64(value))


def good(kind):
    """Return a value that the annotation allows."""
    for one in alternatives(kind):
        numbers = numbers_of(one)
        if one is type(None):
            return None
        if numbers is not None:
            return next(value for value in (1, 0.5, 2) if is_good(value, numbers))
        if typing.get_origin(one) is typing.Literal:
            return typing.get_args(one)[0]
        if one in STAND_INS:
            return STAND_INS[one]
        if arrays := next((e for e in typing.get_args(one)[1:] if isinstance(e, Arrays)), None):
            return np.ones((2,) * (arrays.ndim or 1))
        if typing.get_origin(one) is tuple:
            return tuple(good(entry) for entry in typing.get_args(one) if entry is not ...)
        if typing.get_origin(one) is Sequence:
            return []
        if typing.get_origin(one) is type:
            return tuple
        if Mapping in (one, typing.get_origin(one)):
            return {}
        if known(one) and isinstance(one, type) and not getattr(one, "_is_protocol", False):
            return object.__new__(one) if not issubclass(one, tuple) else tuple.__new__(one)
    return lambda *_: None


def bad(kind):
    """Return values that the annotation excludes."""
    found = ["nonsense"]
    if type(None) not in alternatives(kind):
        found.append(None)
    for one in alternatives(kind):
        numbers = numbers_of(one)
        if one is type(None):
            continue
        if numbers is None:
            found.append(...)
        elif numbers.whole:
            found += [0.5, True, *(value for value in (-1, 0) if not is_good(value, numbers))]
            found += [2**31] if numbers.largest < 2**31 else []
        else:
            tried = (-1.0, 0.0, 1.0, 1.5)
            found += [np.nan, np.inf, 1j, np.ones(2)]
            found += [value for value in tried if not is_good(value, numbers)]
    return [value for value in found if not any(is_share(value, one) for one in alternatives(kind))]


def is_share(value, kind):
    """Return whether an alternative of real numbers allows the value."""
    numbers = numbers_of(kind)
    real = numbers and not numbers.whole and isinstance(value, float | bool)
    return real and np.isfinite(value) and numbers.holds(np.float64(value))


ANNOTATED = [
    pytest.param(function, argument, id=f"{name} {argument}")
    for name, function in validated().items()
    for argument, kind in typing.get_type_hints(function, include_extras=True).items()
    if argument in inspect.signature(function).parameters and known(kind)
]


@pytest.mark.parametrize(("function", "argument"), ANNOTATED)
def test_an_argument_is_what_its_annotation_says(function, argument):
    kinds = typing.get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    for value in bad(kinds[argument]):
        args, kwargs = [], {}
        for name, parameter in parameters.items():
            passed = value if name == argument else good(kinds.get(name, Callable))
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args += [passed] if name == argument else []
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[name] = passed
            elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                args.append(passed)
        with pytest.raises((ValueError, TypeError)) as raised:
            function(*args, **kwargs)
        assert argument in str(raised.value) and "\n" not in str(raised.value)
