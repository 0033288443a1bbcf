"""Names used in signatures: arrays and pytrees, and the numbers that an argument may be."""

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar

import jax

Array = jax.Array
Scalar = jax.Array | float
PyTree = Any
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Arrays(NamedTuple):
    """The arrays that an argument may hold.

    Attributes:
      needed: the arrays in words, as in "pass a matrix".
      ndim: how many axes they have; ``None`` for any number.
      key: whether they are typed PRNG keys in place of real numbers.
      tree: whether a pytree of them, or of numbers, is passed.
      finite: whether NaN and infinity are refused.
      real: whether integers are refused.
    """

    needed: str
    ndim: int | None = None
    key: bool = False
    tree: bool = False
    finite: bool = False
    real: bool = False


class Numbers(NamedTuple):
    """The numbers that an argument may hold.

    Attributes:
      needed: the numbers in words, as in "pass a number above 0".
      holds: tells for each entry of an array of finite numbers whether it is allowed.
      whole: whether they have to be whole, and known before tracing.
      largest: the largest whole number that is allowed; rounds, steps and clients are int32.
    """

    needed: str
    holds: Callable[[Any], Any] = lambda values: values == values
    whole: bool = False
    largest: float = 2**31 - 1


OneArray = Any  # an array, or a jax.ShapeDtypeStruct
ManyArrays = Any  # an array or a pytree of arrays
Real = Annotated[Any, Numbers("a finite number")]
Positive = Annotated[Any, Numbers("a finite number above 0", lambda values: values > 0)]
NonNegative = Annotated[Any, Numbers("a finite number, 0 or more", lambda values: values >= 0)]
Probability = Annotated[
    Any,
    Numbers("a number of at least 0 and below 1", lambda values: (values >= 0) & (values < 1)),
]
Share = Annotated[
    Any, Numbers("a number above 0 and at most 1", lambda values: (values > 0) & (values <= 1))
]
Count = Annotated[int, Numbers("a whole number of at least 1", lambda count: count >= 1, True)]
CountOrZero = Annotated[
    int, Numbers("a whole number of at least 0", lambda count: count >= 0, True)
]
Axis = Annotated[int, Numbers("a whole number", whole=True)]
Seed = Annotated[
    int, Numbers("a whole number of at least 0", lambda seed: seed >= 0, True, math.inf)
]
Fraction = Annotated[
    Any,
    Numbers("a number strictly between 0 and 1", lambda values: (values > 0) & (values < 1)),
]
Key = Annotated[jax.Array, Arrays("a key, as in jax.random.key(0)", key=True)]
Matrix = Annotated[Any, Arrays("a matrix of finite numbers", 2, finite=True)]
NumberTree = Annotated[Any, Arrays("a pytree of numbers", tree=True)]
FiniteTree = Annotated[Any, Arrays("a pytree of finite numbers", tree=True, finite=True)]
# The point being optimised.
Params = Annotated[Any, Arrays("a pytree of floating-point arrays", tree=True, real=True)]
