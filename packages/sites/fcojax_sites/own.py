"""What the package needs of small things: a few lines each."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import Plan
from fcojax.problems import population_loss

Loss = Callable[..., Any]
VIOLATION = "violation"


def memoised(function):
    """Cache by arguments, where they can be compared."""
    cached = functools.lru_cache(256)(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return cached(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)

    return call


def as_plan(plan):
    return plan if isinstance(plan, Plan) else Plan(plan)


def as_params(params):
    return jax.tree.map(jnp.asarray, params)


def pooled_gradient(loss, params, data):
    return jax.grad(lambda w: population_loss(loss, w, data))(params)


def backend():
    return jax.default_backend()


def is_schedule(value):
    return type(value).__name__ == "Schedule"


def at_round(hparams, index):
    def one(value):
        return value.values[index] if is_schedule(value) else value

    return jax.tree.map(one, hparams, is_leaf=is_schedule)


def has_failed(counts, violation, first):
    taking_part, dropped = counts["participants"], counts["dropped"]
    none_finite = taking_part > 0 and dropped >= taking_part
    return none_finite or counts["refused"] > 0 or violation > 1e8 * first


def least_scale(stays_zero, high):
    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        enough = stays_zero(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    return jax.lax.fori_loop(0, 100, bisect, (jnp.zeros_like(high), high))[1]


def row_weights(data):
    sizes = jnp.diff(data.offsets)
    each = data.weights / jnp.sum(data.weights) / sizes.astype(data.weights.dtype)
    num_rows = jax.tree.leaves(data.examples)[0].shape[0]
    return jnp.repeat(each, sizes, total_repeat_length=num_rows)


def sizes_matter(work, data):
    if work.batch_size is None:
        return len(data.size_bounds) > 1
    return work.max_steps(data.min_size) < work.max_steps(data.max_size)


def require_one_device(data):
    if data.mesh is not None:
        raise ValueError("the population is on a mesh; pass the one it was made from.")


def shown(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def weights_of(weights, sizes, names):
    """The rule of ``from_rows``, by a population of small integers."""
    rows = {"row": np.zeros(int(np.sum(sizes)), np.int8)}
    return fcojax.from_rows(rows, [int(s) for s in sizes], weights=weights, ids=names).weights


# For studies.
Config = Any
Row = dict[str, Any]
Summary = dict[str, Any]


def observe_model(hparams, model, context):
    return {"model": model}


@contextlib.contextmanager
def naming(key, value):
    try:
        yield
    except ValueError as error:
        if key in str(error):
            raise
        raise ValueError(f"{key} is {value!r}: {error}") from error
