r"""FedOpt: an optimiser of optax on the clients and one on the server.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, "Adaptive federated
optimization", ICLR 2021, Algorithm 1.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.arguments import shown
from fcojax.problems.losses import Loss
from fcojax.types import Params, Positive, PyTree

Choose = optax.GradientTransformation | Callable[[Any], optax.GradientTransformation]


class FedOptHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0


class Optimised(NamedTuple):
    """The model, and the state of the server's optimiser."""

    params: Params
    state: PyTree


def plain_client(hparams: Any) -> optax.GradientTransformation:
    """Return gradient steps of size ``client_lr``."""
    return optax.sgd(hparams.client_lr)


def plain_server(hparams: Any) -> optax.GradientTransformation:
    """Return gradient steps of size ``server_lr``."""
    return optax.sgd(hparams.server_lr)


@takes(cast(Any, FedOptHparams))  # the caller may choose another type
def fed_opt(
    loss: Loss,
    *,
    server: Choose = plain_server,
    client: Choose = plain_client,
    hparams_type: type = FedOptHparams,
    keep_client_state: bool = False,
    proximal_term: bool = False,
) -> Algorithm:
    r"""Federated learning with an optimiser on the clients and one on the server.

    A client takes its local steps from :math:`w_r` with its own optimiser; the server takes one
    step with its optimiser, whose gradient is minus the mean displacement:

    .. math:: w^m_{k+1} = \mathrm{step}_c\big(w^m_k, \nabla f(w^m_k; \xi^m_k)\big), \qquad
              w_{r+1} = \mathrm{step}_s\Big(w_r, -\sum_m p_m (w^m_K - w_r)\Big).

    Pass an optimiser, whose numbers are fixed, or a function of the hyperparameters that returns
    one, whose numbers are traced and can be swept. An optax schedule in it counts the steps taken:
    on the server, the rounds that had an upload. By default both sides take gradient steps of
    ``client_lr`` and ``server_lr``, which is FedAvg.

    The model is the point that the server's optimiser updates; if the optimiser also keeps an
    average, as ``optax.contrib.schedule_free`` does, the average is in ``state.server.state``. A
    client optimiser that draws noise is refused, because all clients would draw the same noise from
    its seed. One that needs the loss, such as a line search, is refused as well.

    It takes no penalty: a Euclidean prox after a step with a rate per entry does not converge to
    the minimiser. ``fed_mid`` and ``fed_dual_avg`` take one, ``fed_da`` in an adaptive metric.

    Steps and states have the widest dtype of the model, at least float32; only the model is rounded
    to its own dtypes.

    Args:
      loss: one loss per example.
      server: the server's optimiser, or ``(hparams) -> optimiser``.
      client: the same for the clients.
      hparams_type: the type of the hyperparameters that the two functions read. By default it has
        ``client_lr`` and ``server_lr``, but not the rate of a side that is given an optimiser
        instead of a function.
      keep_client_state: whether a client's optimiser keeps its state between rounds, beginning with
        the state of the start point; otherwise every round initialises it.
      proximal_term: whether clients also minimise :math:`(\mu / 2) |w - w_r|^2`, with mu the
        ``prox_scale``; see ``fed_prox``.

    Example:
      >>> import optax
      >>> class Numbers(NamedTuple):
      ...     client_lr: float = 0.1
      ...     server_lr: float = 0.01
      ...     b1: float = 0.9
      >>> algorithm = fed_opt(
      ...     lambda w, rows: (w - rows["a"]) ** 2, hparams_type=Numbers, keep_client_state=True,
      ...     client=lambda hparams: optax.sgd(hparams.client_lr, momentum=0.5),
      ...     server=lambda hparams: optax.lion(hparams.server_lr, b1=hparams.b1))
      >>> algorithm.hparams_type is Numbers
      True
    """
    if hparams_type is FedOptHparams:
        # A grid over an unused rate would have equal points.
        sides = {"client_lr": client, "server_lr": server}
        hparams_type = _with_rates(tuple(name for name, side in sides.items() if callable(side)))
    _check_fields(hparams_type, server, client, proximal_term)
    gradient = mean_gradient(loss)

    def init(hparams, params):
        first = Optimised(params, _init("server", server, hparams, params))
        state = _init("client", client, hparams, params)
        return first, state if keep_client_state else ()

    def broadcast(hparams, server):
        return server.params

    def client_update(hparams, message, state, local, key):
        def step(carry, batch):
            w, state = carry
            slope = gradient(w, batch)
            if proximal_term:
                slope = tree.add_scaled(slope, hparams.prox_scale, tree.sub(w, message))
            return _step("client", client, hparams, w, slope, state)

        first = state if keep_client_state else _init("client", client, hparams, message)
        end, state = local.scan(step, (message, first))
        return ClientResult(state if keep_client_state else (), tree.sub(end, message), {})

    def server_update(hparams, now, mean_upload, fraction, key):
        slope = tree.scale(-1.0, mean_upload)
        return Optimised(*_step("server", server, hparams, now.params, slope, now.state))

    def model(hparams, server):
        return server.params

    functions = init, broadcast, client_update, server_update, model
    return Algorithm(*functions, hparams_type=hparams_type)


def _init(side: str, chosen: Choose, hparams: Any, params: Params) -> PyTree:
    """Return the state of an optimiser before its first step."""
    dtype = widest_dtype(params)
    with jax.numpy_dtype_promotion("standard"):
        optimiser = _optimiser(side, chosen, hparams, dtype)
        with _refused(side):
            state = optimiser.init(as_dtype(params, dtype))
    if side == "client" and any(map(_is_key, jax.tree_util.tree_leaves_with_path(state))):
        raise ValueError(
            "the optimiser of the client draws random numbers from a seed, which would be the same "
            "for all clients; pass one without noise, and add noise with the plan's aggregator."
        )
    return state


def _step(
    side: str, chosen: Choose, hparams: Any, w: Params, gradient: Params, state: PyTree
) -> tuple[Params, PyTree]:
    """Return the point after one step from w, and the optimiser's next state."""
    dtype = widest_dtype(w)
    wide, gradient = as_dtype((w, gradient), dtype)
    # Optax raises traced decays to integer powers, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        optimiser = _optimiser(side, chosen, hparams, dtype)
        with _refused(side):
            updates, state = optimiser.update(gradient, state, wide)
    return jax.tree.map(lambda x, u, old: (x + u).astype(old.dtype), wide, updates, w), state


@contextlib.contextmanager
def _refused(side: str) -> Iterator[None]:
    """Turn the failure of an optimiser into an error that names the arguments it is given."""
    try:
        yield
    except (AttributeError, TypeError, IndexError) as error:
        raise ValueError(
            f"the optimiser of the {side} fails in its init(params) or update(gradient, state, "
            f"params): {error}; pass one that needs no other arguments."
        ) from error


def _is_key(entry: tuple[tuple, Any]) -> bool:
    """Return whether a leaf of an optimiser's state is a PRNG key, typed or of plain integers."""
    path, leaf = entry
    is_typed = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return is_typed or getattr(path[-1] if path else None, "name", "") == "rng_key"


def _optimiser(side: str, chosen: Choose, hparams: Any, dtype: Any) -> optax.GradientTransformation:
    if callable(chosen):
        chosen = chosen(floats_as_dtype(hparams, dtype))
    if not isinstance(chosen, optax.GradientTransformation):
        raise ValueError(
            f"the optimiser of the {side} is {shown(chosen)}; pass one from optax, as in "
            f"{side}=optax.adam(0.01), or a function of hparams that returns one, as in "
            f"{side}=lambda h: optax.adam(h.{side}_lr)."
        )
    return chosen


def widest_dtype(params: Params) -> Any:
    """Return the widest dtype of a model's leaves, at least float32."""
    dtypes = [tree.mean_dtype(jnp.result_type(leaf)) for leaf in jax.tree.leaves(params)]
    return max(dtypes, key=lambda dtype: jnp.finfo(dtype).bits)


def as_dtype(numbers: PyTree, dtype: Any) -> PyTree:
    """Return the numbers as arrays of the given dtype."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), numbers)


def floats_as_dtype(numbers: PyTree, dtype: Any) -> PyTree:
    """Return the numbers, with floating-point ones in the given dtype."""

    def in_dtype(number):
        number = jnp.asarray(number)
        return number.astype(dtype) if jnp.issubdtype(number.dtype, jnp.floating) else number

    return jax.tree.map(in_dtype, numbers)


@functools.cache
def _with_rates(names: tuple[str, ...]) -> type:
    """Return ``FedOptHparams`` with only these fields."""
    defaults = FedOptHparams._field_defaults
    if names == FedOptHparams._fields:
        return FedOptHparams
    fields = [(name, Positive) for name in names]
    made: Any = NamedTuple("FedOptHparams", fields)  # pyright: ignore[reportArgumentType]
    made.__new__.__defaults__ = tuple(defaults[name] for name in names)
    made._field_defaults = {name: defaults[name] for name in names}
    return made


def _check_fields(hparams_type: Any, server: Choose, client: Choose, proximal_term: bool) -> None:
    needed = {
        "client_lr": client is plain_client,
        "server_lr": server is plain_server,
        "prox_scale": proximal_term,
    }
    fields, name = hparams_type._fields, hparams_type.__name__
    missing = [field for field, reads in needed.items() if reads and field not in fields]
    if missing:
        raise ValueError(
            f"{name} has no field {missing[0]}, which these arguments need; "
            f"add it, as in fcojax.extended({name}, 'Mine', {missing[0]}=0.1)."
        )
