"""FedAvg in FedJAX, for ``benchmarks.bar_figure``; run by its own Python."""

import argparse
import importlib.metadata
import itertools
import json

import fedjax  # pyright: ignore[reportMissingImports]
import haiku as hk  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp

from benchmarks import emnist_cnn


def _forward(batch):
    x = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID")(batch["x"]))
    x = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID")(x))
    x = hk.Flatten()(hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(x))
    x = jax.nn.relu(hk.Linear(128)(x))
    return hk.Linear(emnist_cnn.NUM_CLASSES)(x)


def _linear(batch):
    return hk.Linear(emnist_cnn.NUM_CLASSES)(hk.Flatten()(batch["x"]))


def _cross_entropy(batch, logits):
    return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--linear", action="store_true", help="softmax regression, not the CNN")
    options = parser.parse_args()
    x, y = emnist_cnn.draw(options.quick)
    model = fedjax.create_model_from_haiku(
        hk.transform(_linear if options.linear else _forward),
        {"x": x[0, :1], "y": y[0, :1]},
        _cross_entropy,
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(emnist_cnn.LR),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=emnist_cnn.BATCH_SIZE, num_epochs=1),
    )
    names = ("linear",) if options.linear else ("conv2_d", "conv2_d_1", "linear", "linear_1")
    params = {
        name: {"w": jnp.asarray(layer["kernel"]), "b": jnp.asarray(layer["bias"])}
        for name, layer in zip(names, emnist_cnn.start(options.linear).values(), strict=True)
    }
    datasets = [
        fedjax.ClientDataset({"x": images, "y": labels})
        for images, labels in zip(x, y, strict=True)
    ]

    def run(rounds):
        state, keys = algorithm.init(params), map(jax.random.PRNGKey, itertools.count())
        for _ in range(rounds):
            state, _ = algorithm.apply(
                state, [(place, data, next(keys)) for place, data in enumerate(datasets)]
            )
        return jax.block_until_ready(state.params)

    row, params = emnist_cnn.timings(run, options.rounds)
    every = {"x": x.reshape(-1, 28, 28, 1), "y": y.reshape(-1)}
    logits = model.apply_for_eval(params, every)
    loss = float(jnp.mean(_cross_entropy(every, logits)))
    versions = f"FedJAX {importlib.metadata.version('fedjax')}, JAX {jax.__version__}"
    print(json.dumps(row | {"loss": loss, "jax": jax.__version__, "versions": versions}))


if __name__ == "__main__":
    main()
