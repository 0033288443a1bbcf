"""Values that annotations allow, and the error messages for others."""

import inspect
import operator
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import arguments, robust, uploads
from fcojax.arguments import field_annotations, numbers_of, validated
from fcojax.engine.hparams import as_arrays
from fcojax.transforms import Penalty, l1
from fcojax.types import (
    Count,
    CountOrZero,
    NonNegative,
    Positive,
    Probability,
    Real,
    Share,
)


@validated
def call(
    rate: Positive = 1.0,
    scale: NonNegative = 0.0,
    chance: Probability = 0.5,
    share: Share = 1.0,
    shift: Real = 0.0,
    count: Count | None = None,
    index: CountOrZero = 0,
    penalty: Penalty | None = None,
    side: Literal["client", "server"] = "client",
    function: object = None,
    strict: bool = False,
    *others: int,
):
    del strict, scale, chance, share, shift, penalty, side, function, others
    return rate, count, index


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"rate": 0}, "rate is 0; pass a finite number above 0."),
        ({"rate": np.array([1.0, -1.0])}, "rate is array"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"rate": 1e-400}, "rate is 0.0"),
        ({"rate": "1"}, "rate is '1'"),
        ({"rate": None}, "rate is None"),
        ({"rate": 1j}, "rate is 1j"),
        ({"rate": np.ma.masked}, "rate is masked"),
        ({"rate": [1.0, 1.0]}, "rate is [1.0, 1.0]"),
        ({"rate": [[1], [1, 2]]}, "rate is"),
        ({"scale": -1.0}, "scale is -1.0; pass a finite number, 0 or more."),
        ({"chance": 1.0}, "chance is 1.0; pass a number of at least 0 and below 1."),
        ({"share": 0.0}, "share is 0.0; pass a number above 0 and at most 1."),
        ({"shift": float("inf")}, "shift is inf; pass a finite number."),
        ({"count": 0}, "count is 0; pass a whole number of at least 1 or None."),
        ({"count": 1.0}, "count is 1.0"),
        ({"count": True}, "count is True"),
        ({"count": 2**31}, "count is 2147483648; pass at most 2147483647."),
        ({"index": -1}, "index is -1; pass a whole number of at least 0."),
        ({"penalty": 3}, "penalty is 3; pass a Penalty"),
        ({"penalty": l1}, "penalty is <function l1 at"),
        ({"strict": "no"}, "strict is 'no'; pass True or False."),
        ({"side": np.array(["both"])}, "side is array"),
        ({"side": "both"}, "side is 'both'; pass one of 'client', 'server'."),
    ],
)
def test_a_value_outside_its_annotation_is_refused(given, sentence):
    with pytest.raises(ValueError) as error:
        call(**given)
    assert str(error.value).startswith(sentence)


def test_values_within_their_annotation_pass_and_counts_become_integers():
    assert call(np.float32(2), count=np.int64(3), index=np.array(0)) == (2, 3, 0)
    assert type(call(count=np.int64(3))[1]) is int
    call(
        scale=np.array(0),
        chance=jnp.zeros(()),
        penalty=l1(),
        side="server",
        function=3,
        strict=np.True_,
    )
    assert jax.jit(lambda rate: call(rate)[0])(-1.0) == -1.0  # traced values cannot be checked


def test_an_array_may_be_a_list_with_nan_and_no_text():
    @validated
    def call(values: jax.typing.ArrayLike):
        return values

    assert call([[16, 1.0], [16, np.nan]])[0] == [16, 1.0]
    for odd in ("1", [[1], [1, 2]], ["1"], None):
        with pytest.raises(ValueError, match="pass an array of numbers"):
            call(odd)


def test_names_that_only_a_type_checker_knows_are_passed_over():
    """As in a module that imports types under ``TYPE_CHECKING``; other annotations still count."""

    @validated
    def call(rate: Positive, array: "Unknown" = None):  # noqa: F821
        return rate, array

    assert call(1.0, 3) == (1.0, 3)
    with pytest.raises(ValueError, match="rate is 0"):
        call(0)

    class Hparams(NamedTuple):
        client_lr: Positive = 0.1
        other: "Unknown" = 0.0  # noqa: F821

    as_arrays(Hparams())
    with pytest.raises(ValueError, match="client_lr is -1"):
        as_arrays(Hparams(-1.0))


def test_a_file_that_was_executed_and_not_imported_is_validated():
    """As in a config file, whose module is not importable, with annotations as text."""
    names: dict = {"__name__": "never_imported"}
    text = """
from __future__ import annotations
from typing import NamedTuple
from fcojax.arguments import validated
from fcojax.types import Positive

class Hparams(NamedTuple):
    client_lr: Positive = 0.1

@validated
def call(rate: Positive):
    return rate
"""
    exec(text, names)
    as_arrays(names["Hparams"]())
    with pytest.raises(ValueError, match="rate is 0"):
        names["call"](0)


def test_a_call_that_python_refuses_is_left_to_python():
    with pytest.raises(TypeError, match="unexpected keyword"):
        call(rates=1)


def test_smaller_than_the_precision_in_use_is_zero():
    with jax.enable_x64(False), pytest.raises(ValueError, match="above 0 in float32"):
        call(1e-50)


def test_functions_that_a_factory_returns_stay_as_they_are():
    """They run in every step and appear in tracebacks."""
    made = uploads.top_k(2)
    assert made.encode.__module__ == "fcojax.uploads.sparse"
    assert not hasattr(made.encode, "__wrapped__")
    assert l1().prox.__code__.co_filename.endswith("penalties/l1.py")


def test_equal_factories_still_return_one_object():
    assert uploads.top_k(2) is uploads.top_k(2) and robust.krum(0.1) is robust.krum(0.1)


def test_a_share_may_be_an_array_of_one_number():
    halves = uploads.top_k(np.asarray(0.5, np.float16))
    assert halves.contraction(None, jnp.zeros(4)) == 0.5  # pyright: ignore[reportOptionalCall]


@pytest.mark.parametrize("module", [fcojax, fcojax.algorithms, fcojax.problems])
def test_help_prints_the_names_of_types(module):
    """Not what they stand for, such as typing.Annotated[typing.Any, Numbers(needed='a finite ..."""
    for name in module.__all__:
        made = getattr(module, name)
        for one in (made, getattr(made, "Hparams", made)):
            if inspect.isfunction(inspect.unwrap(one)) or hasattr(one, "__signature__"):
                assert "Numbers(" not in str(inspect.signature(one)), name
    assert str(inspect.signature(fcojax.algorithms.fed_avg.Hparams)) == (
        "(client_lr: Positive = 0.01, server_lr: Positive = 1.0)"
    )


def is_checked(function):
    """Whether it is, or wraps, a function of the decorator."""
    while function is not None:
        if inspect.getsourcefile(function) == inspect.getsourcefile(validated):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


PUBLIC = tuple(name for name in fcojax.__all__ if inspect.ismodule(getattr(fcojax, name)))
PUBLIC += ("problems.partition", *(f"theory.{name}" for name in fcojax.theory.__all__))
# Run inside compiled programs, on numbers that the library has made.
INSIDE = {"key_of_fold", "soft_threshold"}


@pytest.mark.parametrize("place", PUBLIC)
def test_a_public_function_with_annotated_numbers_checks_them(place):
    module = operator.attrgetter(place)(fcojax)
    for name in getattr(module, "__all__", vars(module)):
        made = getattr(module, name)
        if inspect.isfunction(made) and name not in INSIDE and name[0] != "_":
            kinds = field_annotations(inspect.unwrap(made)).values()
            assert is_checked(made) or not any(map(numbers_of, kinds)), name


@pytest.mark.parametrize("place", PUBLIC)
def test_a_public_function_refuses_odd_numbers_by_name(place, monkeypatch):
    """One argument is odd at a time; the others are not checked, nor is the body run."""
    module, check = operator.attrgetter(place)(fcojax), arguments.checked_value
    for made in filter(inspect.isfunction, map(vars(module).get, vars(module))):
        kinds = field_annotations(inspect.unwrap(made)) if is_checked(made) else {}
        parameters = inspect.signature(made).parameters
        for argument in (name for name in kinds if numbers_of(kinds[name]) and name in parameters):
            monkeypatch.setattr(
                arguments,
                "checked_value",
                lambda name, value, own=argument, **rest: (
                    check(name, value, **rest) if name == own else value
                ),
            )
            halves = [0.5] * numbers_of(kinds[argument]).whole
            for odd in ("odd", np.nan, np.inf, 1j, np.ones(2), *halves):
                with pytest.raises(ValueError, match=f"^{argument} is [^\n]*; pass [^\n]*$"):
                    made(**dict.fromkeys(parameters) | {argument: odd})
