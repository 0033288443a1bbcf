"""Modules of Flax, Linen or NNX, as pure functions of a plain dict of parameters."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from flax import errors, linen, nnx

from fcojax import tree
from fcojax.problems.fields import shown
from fcojax.problems.problem import Loss, RandomLoss
from fcojax.types import Array, Key, Params, PyTree

Build = Callable[[nnx.Rngs], nnx.Module]  # a fresh model, its weights drawn from the streams
Module = linen.Module | Build


class Functions(NamedTuple):
    """A module as pure functions.

    Attributes:
      init: ``(key) -> params``, a dict of dicts of arrays, one per layer.
      apply: ``(params, x, key) -> outputs``; in training with a key for dropout and the like, and
        with ``None`` where the model is judged.
      draws: whether it draws anything in training.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax.problems import networks
      >>> image = jax.ShapeDtypeStruct((1, 4), jnp.float32)
      >>> functions = networks.functions_of(networks.two_layer(4, 3, 2), image, (1, 2))
      >>> sorted(jax.eval_shape(functions.init, jax.random.key(0))), functions.draws
      (['dense_1', 'dense_2', 'dense_3'], False)
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, PyTree, Key | None], Array]
    draws: bool


def functions_of(model: Module, x: PyTree, wanted: tuple[int, ...]) -> Functions:
    """The functions of a module, refused if it does not fit a federated round or the task.

    Args:
      model: a Linen module, or ``(rngs) -> module`` that builds an NNX one.
      x: one example, as an array or its shape and dtype with a leading axis of 1.
      wanted: the shape of the outputs for this example.

    Raises:
      ValueError: if the model has state beyond its parameters, as batch normalisation has, or
        gives outputs of another shape.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax.problems import networks
      >>> image = jax.ShapeDtypeStruct((1, 4), jnp.float32)
      >>> functions = networks.functions_of(networks.two_layer(4, 3, 2), image, (1, 2))
      >>> params = jax.eval_shape(functions.init, jax.random.key(0))
      >>> jax.eval_shape(functions.apply, params, jnp.ones((5, 4), jnp.float32), None).shape
      (5, 2)
    """
    if isinstance(model, type) and issubclass(model, linen.Module):
        raise ValueError(f"the model is the class {model.__name__}; call it: {model.__name__}().")
    if isinstance(model, linen.Module):
        functions = _from_linen(model, x)
    elif callable(model) and not isinstance(model, nnx.Module):
        functions = _from_nnx(model)
    else:
        raise ValueError(
            f"the model is {shown(model)}; pass a Linen module, or a function of rngs that builds "
            "an NNX one, as in lambda rngs: Net(rngs=rngs)."
        )
    start = jax.eval_shape(functions.init, jax.random.key(0))
    outputs = jax.eval_shape(lambda params, x: functions.apply(params, x, None), start, x).shape
    if outputs != wanted:
        raise ValueError(
            f"the model gives outputs of shape {outputs} for one example, and the task needs "
            f"{wanted}; change its last layer."
        )
    return functions


def refuse_swapped(model: Any, train: Any) -> None:
    """Raises ``ValueError`` where the clients come before the model."""
    if hasattr(model, "examples") and not hasattr(train, "examples"):
        raise ValueError("the model is a population; pass the model first, then the clients.")


def loss_of(functions: Functions, compare: Callable[[Array, PyTree], Array]) -> Loss:
    """The loss ``compare(outputs, rows)``, one number an example, of a network on ``rows["x"]``.

    Outputs in less than float32 are compared in float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax.problems import networks
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
        """What the module calls the difference between training and being judged."""
        known = {"train": training, "training": training, "deterministic": not training}
        return {name: value for name, value in known.items() if name in names}

    def start(key):
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), x)
        return module.init(key, blank, **mode(training=False))

    variables = jax.eval_shape(start, jax.random.key(0))
    _refuse_state(
        _names({kind: part for kind, part in variables.items() if kind != "params"}),
        batch_statistics="batch_stats" in variables,
    )
    params = variables.get("params", {})

    def outputs(params, x, key, *, training):
        rngs = None if key is None else {"params": key}  # the stream that serves all that lack one
        return cast(Array, module.apply({"params": params}, x, rngs=rngs, **mode(training)))

    def draws(training: bool) -> bool:
        try:
            jax.eval_shape(lambda params, x: outputs(params, x, None, training=training), params, x)
        except errors.InvalidRngError:
            return True
        return False

    if draws(training=False):
        raise ValueError(
            f"{type(module).__name__} draws random numbers where it is judged; let its __call__ "
            "take train, training or deterministic, and draw in training alone."
        )

    def apply(params, x, key):
        return outputs(params, x, key, training=key is not None)

    return Functions(lambda key: start(key).get("params", {}), apply, draws(training=True))


def _from_nnx(build: Build) -> Functions:
    model = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    model.train()
    training, _, luck, rest = nnx.split(model, nnx.Param, nnx.RngState, ...)
    model.eval()
    judged, *_ = nnx.split(model, nnx.Param, nnx.RngState, ...)
    _refuse_state(
        _names(rest), batch_statistics=bool(jax.tree.leaves(nnx.state(model, nnx.BatchStat)))
    )

    def init(key):
        return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

    def apply(params, x, key):
        graph = judged if key is None else training
        return nnx.merge(graph, params, _seeded(luck, key))(x)

    return Functions(init, apply, bool(jax.tree.leaves(luck)))


def _seeded(luck: Any, key: Key | None) -> Any:
    """The model's streams, begun anew with a key; they are not used where there is none."""
    leaves, structure = jax.tree.flatten(luck)
    key = jax.random.key(0) if key is None else key
    fresh = []
    for place, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            fresh.append(jax.random.split(jax.random.fold_in(key, place), leaf.shape))
        else:
            fresh.append(jnp.zeros(leaf.shape, leaf.dtype))  # how often each stream was asked
    return jax.tree.unflatten(structure, fresh)


def _names(state: PyTree) -> list[str]:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    return sorted(jax.tree_util.keystr(path, simple=True, separator=".") for path in paths)


def _refuse_state(names: Sequence[str], *, batch_statistics: bool) -> None:
    named = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    if batch_statistics:
        raise ValueError(
            f"the model normalises over the batch ({named}): its outputs for one example "
            "would depend on the others and on padding, and statistics of clients with other data "
            "have no common mean; use GroupNorm or LayerNorm instead of BatchNorm."
        )
    if names:
        raise ValueError(
            f"the model keeps state beyond its parameters ({named}), for which a round has "
            "no place; make it parameters, or compute it in __call__."
        )
