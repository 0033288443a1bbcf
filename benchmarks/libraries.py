"""A round of one CNN in Linen, NNX, Haiku, Equinox and plain JAX, and a round of FedJAX.

    python -m benchmarks.libraries [--sides=linen,haiku] [--fedjax=PYTHON] [--repeats=5] [--quick]

The workload is the EMNIST CNN (1.2 million parameters, no dropout) with FedAvg, 10 clients of 100
examples, one epoch of batch 20. Most sides are a model of that library in ``fcojax.run``; ``loop``
is a jitted gradient step in Python loops (``plain_loop.py``), and ``fedjax`` is FedJAX itself.
Every side starts at the same parameters. Each runs in fresh processes, in turn; the results are
medians of wall and processor milliseconds per round, and the median of the ratios of processes in
the same turn.

Haiku and Equinox are not dependencies: pip install dm-haiku equinox. FedJAX needs an older JAX, so
it needs a separate environment, whose Python is ``--fedjax``:

    python3.11 -m venv FOLDER
    FOLDER/bin/pip install fedjax==0.0.17 jax==0.4.30 jaxlib==0.4.30 dm-haiku==0.0.12 \
        flax==0.8.5 optax==0.2.3 chex==0.1.86
"""

import argparse
import json
import statistics
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fcojax
from benchmarks import emnist_cnn, plain_loop
from benchmarks.emnist_models import MODELS

_REFERENCE = "emnist_net"


def measure(side: str, rounds: int, devices: int, quick: bool) -> dict:
    """Measure one side in this process."""
    jax.config.update("jax_num_cpu_devices", devices)
    x, y = emnist_cnn.draw(quick)
    make = plain_loop_side if side == "loop" else library_side
    run, loss = make(side, x, y)
    row, params = emnist_cnn.timings(run, rounds)
    rows = {"x": x.reshape(-1, 28, 28, 1), "y": y.reshape(-1)}
    return row | {"loss": float(jnp.mean(jax.jit(loss)(params, rows))), "jax": jax.__version__}


def library_side(side: str, x: np.ndarray, y: np.ndarray):
    """Return ``fcojax.run`` of a model, as ``rounds -> model``, and its loss."""
    params, apply = MODELS[side](emnist_cnn.start())

    def loss(params, rows):
        logits = apply(params, rows["x"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, rows["y"])

    rows = {"x": x.reshape(-1, 28, 28, 1), "y": y.reshape(-1)}
    data = fcojax.from_rows(rows, [x.shape[1]] * len(x))
    algorithm = fcojax.algorithms.fed_avg(loss)
    hparams = algorithm.hparams_type(client_lr=emnist_cnn.LR)
    plan = fcojax.Plan(fcojax.local_epochs(1, emnist_cnn.BATCH_SIZE))
    params = jax.tree.map(jnp.asarray, params)
    placed = fcojax.devices.spread(algorithm, hparams, params, data, plan=plan)
    placed = placed.to_device() if placed.mesh is None else placed

    def run(rounds):
        key = jax.random.key(0)
        model, _ = fcojax.run(algorithm, hparams, params, placed, key, plan, num_rounds=rounds)
        return jax.block_until_ready(model)

    return run, loss


def plain_loop_side(_: str, x: np.ndarray, y: np.ndarray):
    """Return a jitted step in Python loops with full participation, and the model's loss."""
    rng = np.random.default_rng(2)

    def run(rounds):
        orders = rng.permuted(np.tile(np.arange(x.shape[1]), (rounds, len(x), 1)), axis=2)
        return jax.block_until_ready(
            plain_loop.run(
                "fed_avg",
                "emnist_net",
                {"client_lr": emnist_cnn.LR, "penalty_scale": 0.0},
                jax.tree.map(jnp.asarray, emnist_cnn.start()),
                {"x": x, "y": y},
                np.tile(np.arange(len(x)), (rounds, 1)),
                orders.reshape(rounds, len(x), -1, emnist_cnn.BATCH_SIZE),
            )
        )

    return run, plain_loop.cross_entropy(plain_loop.emnist_net)


def summary(results: dict[str, list[dict]]) -> list[dict]:
    """Return one row per side: medians, and ratios to ``emnist_net`` and to FedJAX."""
    rows = []
    for side, own in results.items():
        row = {"side": side} | {
            name: round(statistics.median(result[name] for result in own), 4)
            for name in ("ms", "cpu_ms", "first_round_s", "loss")
        }
        for other in (_REFERENCE, "fedjax"):
            if other in results and other != side:
                for name in ("ms", "cpu_ms"):
                    ratios = [a[name] / b[name] for a, b in zip(own, results[other], strict=True)]
                    row[f"{name}_to_{other}"] = round(statistics.median(ratios), 3)
        rows.append(row | {"jax": own[0]["jax"], "repeats": len(own)})
    return rows


def main() -> None:
    """Print a line for each side."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libraries")
    parser.add_argument("--sides", default=",".join([*MODELS, "loop"]), help="names, with commas")
    parser.add_argument("--fedjax", help="a Python that has FedJAX; without it, no such side")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--devices", type=int, default=1, help="of the CPU, for ours")
    parser.add_argument("--quick", action="store_true", help="two clients of one batch")
    parser.add_argument("--alone", action="store_true", help="measure the side in this process")
    options = parser.parse_args()
    if options.alone:
        row = measure(options.sides, options.rounds, options.devices, options.quick)
        print(json.dumps(row))
        return
    sizes = [f"--rounds={options.rounds}", *(["--quick"] if options.quick else [])]
    ours = [sys.executable, "-m", "benchmarks.libraries", "--alone", f"--devices={options.devices}"]
    commands = {side: [*ours, f"--sides={side}", *sizes] for side in options.sides.split(",")}
    if options.fedjax:
        commands["fedjax"] = [options.fedjax, "-m", "benchmarks.fedjax_side", *sizes]
    results: dict[str, list[dict]] = {side: [] for side in commands}
    for _ in range(options.repeats):
        for side, command in commands.items():
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                parser.exit(1, f"the side {side} failed:\n{done.stderr}")
            results[side].append(json.loads(done.stdout.splitlines()[-1]))
    for row in summary(results):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
