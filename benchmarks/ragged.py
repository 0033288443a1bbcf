"""A round of clients of very different sizes, beside one of equal clients with as many examples.

    python -m benchmarks.ragged [--dim=64] [--batch_size=20] [--devices=0] [--repeats=9] [--quick]

Prints one JSON line. Sizes are log-uniform from 1 to 5,000. ``--batch_size=0`` means full batches,
five steps a round; otherwise a round is one epoch. On a CPU ``--devices`` are made of the cores, by
default one of each, and ``fcojax.devices.spread`` decides for either side whether they share the
clients.
Both sides run in this process, alternating; medians. ``padded_share`` is what part of the rows in
the steps is padding.
"""

import json
import os
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import fcojax
from fcojax.engine.hparams import as_arrays
from fcojax.engine.placement.chunk_size import choose_chunk_size
from fcojax.engine.plan import Plan
from fcojax.transforms import euclidean, l1

FLAGS = flags.FLAGS


def loss(w, rows):
    """Least squares."""
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def sizes(num_clients: int, largest: int) -> dict[str, np.ndarray]:
    """Sizes that are log-uniform, and equal ones of the same sum, up to one each."""
    quantiles = (np.arange(num_clients) + 0.5) / num_clients
    ragged = np.floor((largest + 1.0) ** quantiles).astype(int)
    ragged[[0, -1]] = 1, largest
    equal = np.full(num_clients, round(ragged.sum() / num_clients))
    return {"ragged": np.random.default_rng(0).permutation(ragged), "equal": equal}


def population(sizes: np.ndarray, dim: int) -> fcojax.ClientData:
    """Standard normal features, and labels of a sparse model."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((sizes.sum(), dim), dtype=np.float32)
    y = x[:, :5].sum(axis=1) + rng.standard_normal(len(x), dtype=np.float32)
    return fcojax.from_rows({"x": x, "y": y}, sizes, "examples")


def compare(dim: int, batch_size: int, repeats: int, quick: bool) -> dict:
    """Return the JSON line as a dict."""
    num_clients, largest, num_rounds = (20, 50, 2) if quick else (200, 5000, 10)
    work = fcojax.local_epochs(1, batch_size) if batch_size else fcojax.local_steps(5)
    algorithm = fcojax.algorithms.fed_dual_avg(loss, euclidean(l1()))
    hparams = fcojax.algorithms.fed_dual_avg.Hparams(
        client_lr=1e-3, server_lr=1.0, penalty_scale=0.05
    )
    zero = jnp.zeros(dim)
    data = {
        name: fcojax.devices.spread(algorithm, hparams, zero, population(each, dim), plan=work)
        for name, each in sizes(num_clients, largest).items()
    }

    def run(name):
        began = time.perf_counter()
        jax.block_until_ready(
            fcojax.run(
                algorithm,
                hparams,
                zero,
                data[name],
                jax.random.key(0),
                num_rounds=num_rounds,
                eval_every=num_rounds,
                plan=work,
            )
        )
        return time.perf_counter() - began

    first = {name: run(name) for name in data}
    times = {name: [] for name in data}
    for _ in range(repeats):
        for name in data:
            times[name].append(1e3 * run(name) / num_rounds)
    medians = {name: statistics.median(column) for name, column in times.items()}
    least = {name: min(column) for name, column in times.items()}
    plan = Plan(work, fcojax.everyone())
    server, _ = algorithm.init(as_arrays(hparams), zero)
    chunk = choose_chunk_size(plan, algorithm, as_arrays(hparams), server, data["ragged"])
    return {
        "dim": dim,
        "batch_size": batch_size or None,
        "examples": {name: int(jnp.sum(each.sizes)) for name, each in data.items()},
        "first_run_s": {name: round(value, 2) for name, value in first.items()},
        "devices": {name: each.num_shards for name, each in data.items()},
        "ms_per_round": {name: round(value, 3) for name, value in medians.items()},
        "ratio": round(medians["ragged"] / medians["equal"], 2),
        "ratio_of_minima": round(least["ragged"] / least["equal"], 2),
        "clients_side_by_side": chunk,
        "padded_share": round(fcojax.devices.padded_share(data["ragged"], work, chunk), 3),
    }


def main(argv: list[str]) -> None:
    """Print the JSON line."""
    del argv
    jax.config.update("jax_num_cpu_devices", FLAGS.devices or os.cpu_count())
    print(json.dumps(compare(FLAGS.dim, FLAGS.batch_size, FLAGS.repeats, FLAGS.quick)))


if __name__ == "__main__":
    flags.DEFINE_integer("dim", 64, "Features.")
    flags.DEFINE_integer("batch_size", 20, "Examples a step; 0 for all.")
    flags.DEFINE_integer("devices", 0, "Devices that the cores make; 0 for one of each.")
    flags.DEFINE_integer("repeats", 9, "How often each side is timed.")
    flags.DEFINE_boolean("quick", False, "Toy sizes.")
    app.run(main)
