"""How rates change over rounds, as text in a config: factors of the rate that a grid sets.

``exponential:100,0.5`` halves a rate every hundred rounds; ``warm_up:10*inverse_sqrt:1`` multiplies
two factors. Where optax has the schedule, it is optax's.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fcojax
from experiments.process.errors import suggest
from fcojax.extend import checked_value
from fcojax.types import Array, Count, Positive, PyTree

# A form in a config, the types of its numbers, and what is made of them.
Forms = Mapping[str, tuple[str, tuple[Callable[[str], Any], ...], Callable[..., Any]]]
# For each key, the hyperparameter that it changes.
RATES = {"client_schedule": "client_lr", "server_schedule": "server_lr"}


def _count(text: str) -> int:
    return checked_value("ROUNDS", int(text), Count)


def _positive(text: str) -> float:
    return checked_value("the number", float(text), Positive)


# All begin at one, except for the warm-up, which ends there: the rate of a grid is the largest.
_SHAPES: Forms = {
    "constant": ("constant", (), lambda: optax.constant_schedule(1.0)),
    "exponential": (
        "exponential:ROUNDS,FACTOR",
        (_count, _positive),
        lambda rounds, factor: optax.exponential_decay(1.0, rounds, factor),
    ),
    "staircase": (
        "staircase:ROUNDS,FACTOR",
        (_count, _positive),
        lambda rounds, factor: optax.exponential_decay(1.0, rounds, factor, staircase=True),
    ),
    "inverse": ("inverse:ROUNDS", (_positive,), lambda rounds: lambda t: 1 / (1 + t / rounds)),
    "inverse_sqrt": (
        "inverse_sqrt:ROUNDS",
        (_positive,),
        lambda rounds: lambda t: 1 / (1 + t / rounds) ** 0.5,
    ),
    "warm_up": (
        "warm_up:ROUNDS",
        (_count,),
        lambda rounds: optax.linear_schedule(1 / rounds, 1.0, max(rounds - 1, 1)),
    ),
}


def chosen(key: str, text: str, forms: Forms) -> tuple[Callable[..., Any], list]:
    """Return the function that a text such as ``NAME:NUMBER,NUMBER`` names, and its numbers."""
    name, _, rest = text.partition(":")
    if name not in forms:
        raise ValueError(f"there is no {key} {name!r}; {suggest(name, list(forms))}")
    form, kinds, build = forms[name]
    texts = rest.split(",") if rest else []
    try:
        return build, [kind(text) for kind, text in zip(kinds, texts, strict=True)]
    except ValueError:
        raise ValueError(f"{key} is {text!r}; pass {form}.") from None


def factors(key: str, text: str) -> Callable[[Array], Array]:
    """Return the factor of the rate as a function of the round, counted from zero.

    Example:
      >>> halving = factors("client_schedule", "staircase:2,0.5")
      >>> [float(halving(t)) for t in range(5)]
      [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    parts = []
    for part in text.split("*"):
        build, numbers = chosen(key, part.strip(), _SHAPES)
        parts.append(build(*numbers))
    return lambda t: jnp.prod(jnp.stack([jnp.asarray(part(t), float) for part in parts]))


def scheduled(grid: PyTree, schedules: Mapping[str, Callable], num_rounds: int) -> PyTree:
    """Return the grid with each scheduled rate as one value for each round.

    Args:
      grid: hyperparameters with a leading axis of points.
      schedules: ``round -> factor`` by the name of a field; fields that a grid lacks are left out.
      num_rounds: the number of rounds of the run.
    """
    changed = {}
    for field in schedules.keys() & set(grid._fields):
        factor = jax.vmap(schedules[field])(np.arange(num_rounds, dtype=np.float32))
        rates = np.multiply.outer(np.asarray(getattr(grid, field)), np.asarray(factor))
        changed[field] = fcojax.schedule(rates)
    return grid._replace(**changed)
