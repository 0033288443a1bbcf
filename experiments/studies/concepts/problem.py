"""Synthetic features of concepts, or features of a network, at clients with different classes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fcojax
from experiments.study import Config
from fcojax import datasets
from fcojax.problems import Problem, partition, softmax
from fcojax.transforms import l1, named, on_subtree

PENALTY = on_subtree(l1(), named("kernel"))


def head(config: Config) -> tuple[Problem, dict]:
    """Return the problem, whose start point is zero, and the validation rows."""
    train, validation = (_of_network if config.data_dir else _drawn)(config)
    shares = partition.dirichlet(
        train["y"], config.num_clients, config.concentration, seed=config.data_seed
    )
    rows = {name: values[shares.order] for name, values in train.items()}
    data = fcojax.from_rows(rows, shares.sizes, weights="examples")
    num_classes = config.num_classes
    zeros = {
        "kernel": jnp.zeros((config.num_features, num_classes)),
        "bias": jnp.zeros(num_classes),
    }
    return softmax(data, num_classes=num_classes)._replace(init=lambda key: zeros), validation


def _drawn(config: Config) -> tuple[dict, dict]:
    """Return rows in which every class has its own concepts."""
    rng = np.random.default_rng(config.data_seed)
    shape = config.num_classes, config.num_features
    active = np.argsort(rng.random(shape), axis=1) < config.num_active

    def drawn(number):
        y = rng.integers(config.num_classes, size=number)
        x = config.signal * active[y] + rng.normal(size=(number, config.num_features))
        return {"x": x.astype(np.float32), "y": y.astype(np.int32)}

    return drawn(config.num_train), drawn(config.num_validation)


def _of_network(config: Config) -> tuple[dict, dict]:
    """Return the last hidden layer of a network that was trained on other digits of MNIST.

    Features have mean 0 and variance 1 over the rows that the heads are trained on.
    """
    examples = datasets.mnist(config.data_dir, "train", writers=False).examples
    numbers = np.cumsum([config.num_network, config.num_train, config.num_validation])
    order = np.random.default_rng(config.data_seed).permutation(len(examples["y"]))[: numbers[-1]]
    rows = {name: np.asarray(values)[order] for name, values in examples.items()}
    network = _trained({name: values[: numbers[0]] for name, values in rows.items()}, config)
    x = jax.nn.relu(rows["x"] @ network["kernel"] + network["bias"])
    x = np.asarray(x)
    taught = x[numbers[0] : numbers[1]]
    rows["x"] = (x - taught.mean(axis=0)) / np.maximum(taught.std(axis=0), 1e-3)
    parts = [slice(numbers[0], numbers[1]), slice(numbers[1], numbers[2])]
    train, validation = [{name: rows[name][part] for name in ("x", "y")} for part in parts]
    return train, validation


def _trained(rows: dict, config: Config) -> dict:
    """Return the hidden layer of a two-layer network, trained by Adam in 20 epochs of batch 64."""
    keys = jax.random.split(jax.random.key(config.data_seed), 3)
    initial = jax.nn.initializers.glorot_uniform()
    start = {
        "kernel": initial(keys[0], (rows["x"].shape[1], config.num_features)),
        "bias": jnp.zeros(config.num_features),
        "head": initial(keys[1], (config.num_features, config.num_classes)),
    }
    optimiser = optax.adam(1e-3)

    def loss(params, batch):
        scores = jax.nn.relu(batch["x"] @ params["kernel"] + params["bias"]) @ params["head"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, batch["y"]).mean()

    def step(carry, chosen):
        params, state = carry
        gradient = jax.grad(loss)(params, jax.tree.map(lambda leaf: leaf[chosen], data))
        change, state = optimiser.update(gradient, state)
        return (optax.apply_updates(params, change), state), None

    data = jax.tree.map(jnp.asarray, {"x": rows["x"], "y": rows["y"]})
    number = len(rows["y"])
    batches = jax.random.randint(keys[2], (20 * number // 64, 64), 0, number)
    carry, _ = jax.jit(lambda carry: jax.lax.scan(step, carry, batches))(
        (start, optimiser.init(start))
    )
    return carry[0]
