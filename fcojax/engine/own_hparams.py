"""Hyperparameters of one's own: schedules over rounds, and further fields."""

import typing
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.arguments import field_annotations, shown, validated
from fcojax.engine.hparams import Schedule
from fcojax.types import Count, Real


@validated
def schedule(values: Any, num_rounds: Count | None = None) -> Schedule:
    """Make a hyperparameter that changes from round to round, in place of a number.

    Args:
      values: one value for each round, at least as many as rounds are run; or a function of the
        round, such as an optax schedule, with ``num_rounds``.
      num_rounds: number of rounds for which a function is evaluated.

    Example:
      >>> import optax
      >>> schedule(optax.linear_schedule(1.0, 0.0, 4), num_rounds=4).values.tolist()
      [1.0, 0.75, 0.5, 0.25]
    """
    if callable(values) != (num_rounds is not None):
        raise ValueError(
            f"values is {shown(values)} and num_rounds is {num_rounds}; pass a function and "
            f"num_rounds, or only an array."
        )
    if num_rounds is not None:
        values = jax.vmap(lambda index: jnp.asarray(values(index)))(jnp.arange(num_rounds))
    values = jnp.asarray(values)
    if values.ndim == 0 or values.shape[0] == 0:
        raise ValueError(f"the schedule has shape {values.shape}; pass a value for each round.")
    return Schedule(values)


@validated
def extended(base: type, name: str, **defaults: Any) -> type:
    """Return the hyperparameter type ``base`` with additional fields, as one flat named tuple.

    Use it in wrappers of an algorithm that need more numbers: they can be swept like the
    algorithm's own, and the algorithm still reads its fields by name. ``defaults`` are the
    additional fields with their defaults.

    Example:
      >>> from fcojax.algorithms import fed_avg
      >>> Clipped = extended(fed_avg.Hparams, "Clipped", clip_norm=1.0)
      >>> Clipped(client_lr=0.1)
      Clipped(client_lr=0.1, server_lr=1.0, clip_norm=1.0)
    """
    annotations = field_annotations(base)
    fields = [(field, annotations.get(field, Real)) for field in (*base._fields, *defaults)]  # pyright: ignore
    known = dict(base._field_defaults) | defaults  # pyright: ignore
    # The functional form of `NamedTuple` takes no defaults, so they are set afterwards, as a class
    # statement sets them.
    both = typing.NamedTuple(name, fields)  # pyright: ignore
    both.__new__.__defaults__ = tuple(known[field] for field, _ in fields if field in known)
    both._field_defaults = known
    # `require_hparams` reads this: an algorithm for the base accepts the extended type too.
    both.extends = (base, *getattr(base, "extends", ()))  # pyright: ignore
    return both
