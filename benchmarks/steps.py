"""A gradient step inside the library, beside the same step compiled alone.

    python -m benchmarks.steps [--network=emnist_net,char_gru] [--steps=10] [--repeats=7] [--quick]

One JSON line for each network: milliseconds of a step in ``fcojax.run``, of FedAvg on one client;
of the same gradient step as a function of its own; and of that with XLA's own convolutions and
pooling, as one writes it without the library. All of them in turn, on one device; medians.
"""

import argparse
import functools
import json
import statistics
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from benchmarks.alternating import alternate
from benchmarks.cases import attempt
from fcojax import networks
from fcojax.algorithms.local import Batch, mean_gradient
from fcojax.networks.modules import Module
from fcojax.problems import Problem
from fcojax.xla import rules

_EXAMPLES = 100


class Setting(NamedTuple):
    """A network with the shapes on which it is usually trained.

    Attributes:
      build: makes the model, at full size or as a toy.
      shape: of one example.
      outputs: classes, characters or tags.
      batch_size: examples a step.
      task: ``classes``, ``characters`` or ``tags``.
    """

    build: Callable[[bool], Module]
    shape: tuple[int, ...]
    outputs: int
    batch_size: int
    task: str = "classes"


def _recurrent(build: Callable) -> Setting:
    return Setting(lambda quick: build(num_units=8 if quick else 256), (80,), 90, 4, "characters")


SETTINGS = {
    "two_layer": Setting(lambda quick: networks.two_layer(), (784,), 10, 20),
    "conv_net": Setting(
        lambda quick: networks.conv_net(num_filters=(2, 2) if quick else (32, 64)), (784,), 10, 20
    ),
    "emnist_net": Setting(lambda quick: networks.emnist_net(), (784,), 62, 20),
    "resnet": Setting(
        lambda quick: networks.resnet(blocks_per_stage=1 if quick else 3), (32, 32, 3), 10, 20
    ),
    "char_gru": _recurrent(networks.char_gru),
    "char_lstm": _recurrent(networks.char_lstm),
    "transformer": Setting(
        lambda quick: networks.transformer(num_units=8 if quick else 128),
        (80,),
        90,
        4,
        "characters",
    ),
    "tag_regression": Setting(lambda quick: networks.tag_regression(), (10_000,), 500, 20, "tags"),
}


def problem(setting: Setting, quick: bool) -> Problem:
    """One client with random examples."""
    rng, rows = np.random.default_rng(0), (_EXAMPLES, *setting.shape)
    outputs = setting.outputs
    if setting.task == "characters":
        text = rng.integers(1, outputs, (rows[0], rows[1] + 1), dtype=np.int32)
        data = fcojax.from_rows({"x": text[:, :-1], "y": text[:, 1:]}, [_EXAMPLES])
        return networks.language_model(setting.build(quick), data, num_tokens=outputs)
    x = rng.random(rows, dtype=np.float32)
    if setting.task == "tags":
        tags = rng.integers(0, 2, (_EXAMPLES, outputs), dtype=np.int32)
        data = fcojax.from_rows({"x": x, "y": tags}, [_EXAMPLES])
        return networks.tag_model(setting.build(quick), data, num_tags=outputs)
    labels = rng.integers(0, outputs, _EXAMPLES, dtype=np.int32)
    data = fcojax.from_rows({"x": x, "y": labels}, [_EXAMPLES])
    return networks.network(setting.build(quick), data, num_classes=outputs)


def measure(setting: Setting, steps: int, repeats: int, quick: bool) -> dict:
    """Return the row of a network."""
    task, lr = problem(setting, quick), 0.01
    params, key = task.init(jax.random.key(0)), jax.random.key(1)
    data = task.train.to_device()
    algorithm = fcojax.algorithms.fed_avg(task.loss)
    hparams = fcojax.algorithms.fed_avg.Hparams(client_lr=lr)
    plan = fcojax.Plan(fcojax.local_steps(steps, setting.batch_size))
    gradient = mean_gradient(task.loss)

    @rules.in_full_precision
    def one_step(params, rows, key):
        batch = Batch(rows, jnp.ones(setting.batch_size), key, jnp.int32(0))
        slope = gradient(params, batch)
        return jax.tree.map(lambda leaf, g: leaf - lr * g, params, slope)

    rows = jax.tree.map(lambda leaf: leaf[: setting.batch_size], data.examples)
    with rules.pretend("gpu"):
        as_usual = jax.jit(one_step).lower(params, rows, key).compile()
    ways = {
        "library": lambda: fcojax.run(algorithm, hparams, params, data, key, plan, num_rounds=1),
        "alone": functools.partial(jax.jit(one_step), params, rows, key),
        "without": functools.partial(as_usual, params, rows, key),
    }
    seconds = alternate(ways, repeats)
    ms = {name: 1e3 * statistics.median(times) for name, times in seconds.items()}
    ms["library"] /= steps
    return {
        "library_ms": round(ms["library"], 3),
        "alone_ms": round(ms["alone"], 3),
        "xlas_own_ms": round(ms["without"], 3),
        "ratio": round(ms["library"] / ms["alone"], 3),
        "ratio_to_xlas_own": round(ms["library"] / ms["without"], 3),
    }


def main() -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps")
    parser.add_argument("--network", default="emnist_net,char_gru", help="names, or all")
    parser.add_argument("--steps", type=int, default=10, help="of a round")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="toy networks")
    options = parser.parse_args()
    names = list(SETTINGS) if options.network == "all" else options.network.split(",")
    for name in names:
        if name not in SETTINGS:
            parser.error(f"there is no network {name}; choose from {', '.join(SETTINGS)}, or all")
        row = attempt(
            name,
            lambda name=name: measure(
                SETTINGS[name], options.steps, options.repeats, options.quick
            ),
        )
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
