"""Softmax regression or a network on digits, with each dense kernel in a ball."""

import pathlib

import jax
import jax.numpy as jnp

from fcojax.problems import Problem, loaders, softmax, synthetic_softmax
from fcojax.problems.clients import ids_of
from fcojax.transforms import l1_ball, l2_ball, named, on_subtree, per_leaf

_BALLS = {"l1": l1_ball, "l2": l2_ball}
_MODELS = ("softmax", "mlp", "cnn")
_NUM_CLASSES = 10


def problem(config):
    """The model on its data, with a feasible start and the excess over the radius as a measure."""
    base = _model(config, *_data(config))
    if len(config.penalty_scale) != 1:
        raise ValueError(
            f"penalty_scale is {tuple(config.penalty_scale)}; pass one radius a run, because the "
            "violation is measured against it."
        )
    (radius,) = config.penalty_scale
    chosen = _constrained(config)

    def measures(params):
        kernels = [leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)
                   if chosen(path, leaf)]  # fmt: skip
        norms = jnp.stack([_norm(config.constraint, kernel) for kernel in kernels])
        violation = jnp.maximum(jnp.max(norms) / radius - 1, 0)
        return base.measures(params) | {"violation": violation}

    ball = penalty(config)
    return base._replace(init=lambda key: ball.prox(base.init(key), 0.0, radius), measures=measures)


def penalty(config):
    """One ball for each dense kernel."""
    if config.constraint not in _BALLS:
        raise ValueError(f"constraint is {config.constraint!r}; pass {' or '.join(_BALLS)}.")
    return on_subtree(per_leaf(_BALLS[config.constraint]()), _constrained(config))


def _constrained(config):
    """The predicate for leaves that are constrained to a ball."""
    if config.model == "softmax":
        return named("kernel")
    from fcojax.problems.networks import dense_kernels

    return dense_kernels


def _norm(constraint, kernel):
    size = jnp.abs(kernel)
    return jnp.sum(size) if constraint == "l1" else jnp.sqrt(jnp.sum(size**2))


def _data(config):
    if not config.data_dir:
        drawn = synthetic_softmax(
            num_clients=config.num_clients,
            dim=config.dim,
            num_classes=_NUM_CLASSES,
            seed=config.data_seed,
        )
        return drawn.train, drawn.validation
    stem = pathlib.Path(config.data_dir) / "fed_emnist_digitsonly"
    if stem.with_name(f"{stem.name}_train.h5").exists():
        train = loaders.by_client(
            loaders.emnist(f"{stem}_train.h5", share=config.share_of_writers), "examples"
        )
        test = loaders.emnist(f"{stem}_test.h5", client_ids=ids_of(train).tolist())
        return train, loaders.by_client(test, "examples")
    return tuple(
        loaders.by_client(loaders.mnist(config.data_dir, split), "examples")
        for split in ("train", "test")
    )


def _model(config, train, validation) -> Problem:
    options = {"num_classes": _NUM_CLASSES, "cuts": tuple(config.cuts)}
    if config.model == "softmax":
        return softmax(train, validation, **options)
    if config.model not in _MODELS:
        raise ValueError(f"model is {config.model!r}; pass {', '.join(_MODELS)}.")
    from fcojax.problems.networks import conv_net, network, two_layer

    num_features = train.examples["x"].shape[1]
    if config.model == "mlp":
        build = two_layer(num_features, config.num_hidden, _NUM_CLASSES)
    elif num_features == 28 * 28:
        build = conv_net(num_hidden=config.num_hidden, num_classes=_NUM_CLASSES)
    else:
        raise ValueError(f"model=cnn needs images of 28 x 28, not {num_features} features; pass "
                         "data_dir, or model=mlp.")  # fmt: skip
    return network(build, train, validation, **options)
