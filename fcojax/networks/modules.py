"""Flax modules, Linen or NNX, as pure functions of a dict of parameters."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from flax import errors, linen, nnx

from fcojax import tree
from fcojax.arguments import validated
from fcojax.problems import RandomLoss
from fcojax.problems.losses import Loss
from fcojax.types import Array, Key, NumberTree, Params, PyTree

Build = Callable[[nnx.Rngs], nnx.Module]  # a fresh model, its weights drawn from the streams


class Functions(NamedTuple):
    """A model as pure functions: from a Flax module, or your own for any other library.

    Attributes:
      init: ``(key) -> params``, a pytree of arrays; for a Flax module, a dict of dicts by layer.
      apply: ``(params, x, key) -> outputs``; ``key`` is a PRNG key in training, for dropout and
        the like, and ``None`` where the model is evaluated.
      draws: whether the module draws random numbers in training.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> image = jax.ShapeDtypeStruct((1, 4), jnp.float32)
      >>> functions = networks.functions_of(networks.two_layer(4, 3, 2), image, (1, 2))
      >>> sorted(jax.eval_shape(functions.init, jax.random.key(0))), functions.draws
      (['dense_1', 'dense_2', 'dense_3'], False)
      >>> own = networks.Functions(  # as good as a Flax module in ``network`` and the other tasks
      ...     init=lambda key: jax.random.normal(key, (4, 2)), apply=lambda w, x, key: x @ w)
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, PyTree, Key | None], Array]
    draws: bool = False


Module = linen.Module | Build | Functions


@validated
def functions_of(model: Module, x: NumberTree, output_shape: tuple[int, ...]) -> Functions:
    """Convert a module to pure functions, and check that it fits the task.

    Args:
      model: a Linen module, ``(rngs) -> module`` that builds an NNX one, or ``Functions``.
      x: one example, as an array or its shape and dtype with a leading axis of 1.
      output_shape: shape of the outputs for this example.

    Raises:
      ValueError: if the model has state besides its parameters, such as batch statistics, or
        outputs of another shape.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> image = jax.ShapeDtypeStruct((1, 4), jnp.float32)
      >>> functions = networks.functions_of(networks.two_layer(4, 3, 2), image, (1, 2))
      >>> params = jax.eval_shape(functions.init, jax.random.key(0))
      >>> jax.eval_shape(functions.apply, params, jnp.ones((5, 4), jnp.float32), None).shape
      (5, 2)
    """
    if isinstance(model, Functions):
        functions = model
    elif isinstance(model, linen.Module):
        functions = _from_linen(model, x)
    else:
        functions = _from_nnx(model)
    start = jax.eval_shape(functions.init, jax.random.key(0))
    outputs = jax.eval_shape(lambda params, x: functions.apply(params, x, None), start, x).shape
    if outputs != tuple(output_shape):
        raise ValueError(
            f"the outputs of the model have shape {outputs} for one example; the task needs "
            f"{output_shape}, so change its last layer."
        )
    return functions


@validated
def loss_of(functions: Functions, compare: Callable[[Array, PyTree], Array]) -> Loss:
    """Build the loss ``compare(outputs, rows)`` of a network on ``rows["x"]``.

    Outputs of lower precision are converted to float32 first.

    Args:
      functions: the network.
      compare: ``(outputs, rows) -> one loss per example``.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> image = jax.ShapeDtypeStruct((1, 4), jnp.float32)
      >>> functions = networks.functions_of(networks.two_layer(4, 3, 2), image, (1, 2))
      >>> loss = networks.loss_of(functions, lambda z, rows: ((z - rows["y"]) ** 2).sum(axis=1))
      >>> params = jax.eval_shape(functions.init, jax.random.key(0))
      >>> rows = {"x": jnp.ones((5, 4), jnp.float32), "y": jnp.ones((5, 2), jnp.float32)}
      >>> jax.eval_shape(loss, params, rows).shape
      (5,)
    """

    def drawn(params, rows, key):
        outputs = functions.apply(params, rows["x"], key)
        return compare(outputs.astype(tree.mean_dtype(outputs.dtype)), rows)

    return RandomLoss(drawn) if functions.draws else lambda params, rows: drawn(params, rows, None)


def _from_linen(module: linen.Module, x: PyTree) -> Functions:
    names = inspect.signature(module.__call__).parameters

    def mode(training: bool) -> dict[str, Any]:
        """The arguments of the module that distinguish training from evaluation."""
        known = {"train": training, "training": training, "deterministic": not training}
        return {name: value for name, value in known.items() if name in names}

    def start(key):
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), x)
        return module.init(key, blank, **mode(training=False))

    variables = jax.eval_shape(start, jax.random.key(0))
    _check_state(
        _names({kind: part for kind, part in variables.items() if kind != "params"}),
        batch_statistics="batch_stats" in variables,
    )
    params = variables.get("params", {})

    def outputs(params, x, key, *, training):
        rngs = None if key is None else {"params": key}  # the default for all other streams
        return cast(Array, module.apply({"params": params}, x, rngs=rngs, **mode(training)))

    try:
        jax.eval_shape(functools.partial(outputs, training=True), params, x, None)
        draws = False
    except errors.InvalidRngError:
        draws = True

    def apply(params, x, key):
        return outputs(params, x, key, training=key is not None)

    return Functions(lambda key: start(key).get("params", {}), apply, draws)


def _from_nnx(build: Build) -> Functions:
    model = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    model.train()
    training, _, streams, rest = nnx.split(model, nnx.Param, nnx.RngState, ...)
    model.eval()
    evaluated, *_ = nnx.split(model, nnx.Param, nnx.RngState, ...)
    _check_state(
        _names(rest), batch_statistics=bool(jax.tree.leaves(nnx.state(model, nnx.BatchStat)))
    )

    def init(key):
        return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

    def apply(params, x, key):
        graph = evaluated if key is None else training
        return nnx.merge(graph, params, _seeded(streams, key))(x)

    return Functions(init, apply, bool(jax.tree.leaves(streams)))


def _seeded(streams: Any, key: Key | None) -> Any:
    """Reseed the RNG streams of a model from a key; without a key they are not used."""
    leaves, structure = jax.tree.flatten(streams)
    key = jax.random.key(0) if key is None else key
    fresh = []
    for place, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            fresh.append(jax.random.split(jax.random.fold_in(key, place), leaf.shape))
        else:
            fresh.append(jnp.zeros(leaf.shape, leaf.dtype))  # the counter of each stream
    return jax.tree.unflatten(structure, fresh)


def _names(state: PyTree) -> list[str]:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    return sorted(jax.tree_util.keystr(path, simple=True, separator=".") for path in paths)


def _check_state(names: Sequence[str], *, batch_statistics: bool) -> None:
    named = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    if batch_statistics:
        raise ValueError(
            f"the model normalises over the batch ({named}): its outputs for one example would "
            "depend on the others and on padding, and batch statistics of clients with different "
            "data have no common mean; use GroupNorm or LayerNorm instead of BatchNorm."
        )
    if names:
        raise ValueError(
            f"the model has state besides its parameters ({named}), which a round cannot keep; "
            "make it parameters, or compute it in __call__."
        )
