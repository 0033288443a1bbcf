"""Published settings of CIFAR-10, on any device, and beside Flower's simulation.

    python -m benchmarks.cifar10 [--data_dir=FOLDER] [--rounds=1500] [--eval_every=10]
    python -m benchmarks.cifar10 --setting=blazefl
    python -m benchmarks.cifar10 --setting=blazefl --beside=ENVIRONMENTS [--repeats=3]

``pfl`` is the benchmark of pfl-research: FedAvg on 1,000 clients of 50 images, 50 clients per
round, one epoch in batches of 10, two 3 x 3 convolutions, max pooling, two dense layers and
dropout of 0.25 and 0.5, 1,626,442 parameters. ``blazefl`` is the one of BlazeFL: 100 clients of 500
images, all in each of 5 rounds, 5 epochs in batches of 50, a network of 62,006 parameters with two
5 x 5 convolutions. The rate is 0.1. Each channel is scaled to mean 0 and variance 1 on the training
images.

``FOLDER`` has the binary version of the data, ``data_batch_1.bin`` to ``data_batch_5.bin`` and
``test_batch.bin``. Without it random images of the same shape are used, and the accuracy has no
meaning. The program prints a JSON line after every ``eval_every`` rounds, and at the end a line
with the times of all rounds, of the first block, with compilation, and the median of the others,
all without evaluations.

With ``--beside`` both sides run in fresh processes, in turn, on random images; Flower and PyTorch
are installed into the folder, in the versions of ``benchmarks.bar_figure``.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import jax
import numpy as np
from flax import nnx

import fcojax
from benchmarks.cifar10_settings import NUM_CLASSES, SETTINGS, SHAPE, Images, Setting, drawn, scaled
from benchmarks.processes import last_line
from fcojax import networks
from fcojax.problems import Problem

NUM_TEST = 10_000
TRAINING = tuple(f"data_batch_{number}.bin" for number in range(1, 6))


class LeNet(nnx.Module):
    """Two convolutions of 5 x 5 with max pooling, and three dense layers."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv_1 = nnx.Conv(3, 6, (5, 5), padding="VALID", rngs=rngs)
        self.conv_2 = nnx.Conv(6, 16, (5, 5), padding="VALID", rngs=rngs)
        self.dense_1 = nnx.Linear(400, 120, rngs=rngs)
        self.dense_2 = nnx.Linear(120, 84, rngs=rngs)
        self.dense_3 = nnx.Linear(84, NUM_CLASSES, rngs=rngs)

    def __call__(self, x):
        for layer in (self.conv_1, self.conv_2):
            x = nnx.max_pool(nnx.relu(layer(x)), (2, 2), (2, 2))
        x = nnx.relu(self.dense_1(x.reshape(x.shape[0], -1)))
        return self.dense_3(nnx.relu(self.dense_2(x)))


def read(folder: pathlib.Path, names: tuple[str, ...]) -> Images:
    """Return images, [rows, 32, 32, 3] from 0 to 255, and labels from files of the binary version.

    Args:
      folder: has the files in binary version.
      names: the files in it; a record is a byte for the label and three planes of 1,024 bytes.
    """
    records = np.concatenate([np.fromfile(folder / name, np.uint8) for name in names])
    if not records.size or records.size % 3073:
        raise ValueError(
            f"{folder} has files of {records.size} bytes, which are not records of 3,073; pass the "
            "folder of the binary version of CIFAR-10."
        )
    records = records.reshape(-1, 3073)
    images = records[:, 1:].reshape(-1, 3, *SHAPE).transpose(0, 2, 3, 1)
    return images.astype(np.float32), records[:, 0].astype(np.int32)


def problem_of(training: Images, test: Images, setting: Setting) -> Problem:
    """Return the problem, with the images in random order.

    Args:
      training: images and labels, of which the first ones needed are used.
      test: images and labels for the accuracy.
      setting: the sizes.
    """
    images, labels = training
    size = setting.num_clients * setting.num_rows
    order = np.random.default_rng(0).permutation(len(labels))[:size]
    rows = {"x": scaled(images[order], images), "y": labels[order]}
    held = {"x": scaled(test[0], images), "y": test[1]}
    build = networks.emnist_net((*SHAPE, 3), NUM_CLASSES)
    if setting.network == "lenet":
        build = lambda rngs: LeNet(rngs)  # noqa: E731
    return networks.network(
        build,
        fcojax.from_rows(rows, [setting.num_rows] * (len(labels[order]) // setting.num_rows)),
        fcojax.from_rows(held, [len(test[1])]),
        num_classes=NUM_CLASSES,
    )


def arguments_of(problem: Problem, setting: Setting) -> tuple:
    """Return the arguments of ``fcojax.run``, with the data on their devices."""
    algorithm, data = fcojax.algorithms.fed_avg(problem.loss), problem.train
    work = fcojax.local_epochs(setting.num_epochs, setting.batch_size)
    everyone = setting.cohort_size == data.num_clients
    cohort = fcojax.uniform_cohort(cohort_size=setting.cohort_size)
    plan = fcojax.Plan(work, fcojax.everyone() if everyone else cohort)
    hparams = algorithm.hparams_type(client_lr=setting.client_lr, server_lr=1.0)
    key = jax.random.key(0)
    start = problem.init(key)
    data = fcojax.devices.spread(algorithm, hparams, start, data, plan)
    data = data.to_device() if data.mesh is None else data
    return algorithm, hparams, start, data, key, plan


def run(problem: Problem, setting: Setting, eval_every: int) -> dict:
    """Run the setting, print its lines, and return the last one.

    Args:
      problem: the result of ``problem_of``.
      setting: the sizes.
      eval_every: rounds between two lines.
    """
    given = algorithm, hparams, start, data, _, plan = arguments_of(problem, setting)
    state, measure = fcojax.start(*given), jax.jit(problem.measures)
    measures, seconds = {}, []
    for last in range(eval_every, setting.num_rounds + 1, eval_every):
        began = time.perf_counter()
        state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=eval_every)
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - began)
        found = measure(fcojax.read_model(algorithm, hparams, state))
        measures = {name: float(found[name]) for name in ("accuracy", "validation_loss")}
        print(json.dumps({"round": last} | measures), flush=True)
    later = [1e3 * each / eval_every for each in seconds[1:]]
    return measures | {
        "rounds": len(seconds) * eval_every,
        "cohort": setting.cohort_size,
        "clients": data.num_clients,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(start)),
        "total_s": sum(seconds),
        "first_block_s": seconds[0],
        "ms_per_round": statistics.median(later) if later else None,
        "device": jax.devices()[0].device_kind,
        "versions": f"fcojax {fcojax.__version__}, JAX {jax.__version__}",
    }


def beside(name: str, folder: pathlib.Path, rounds: int, repeats: int) -> dict:
    """Run both sides in turn; return the seconds of each and the median ratio."""
    from benchmarks.bar_figure import python_of

    arguments = [f"--setting={name}", f"--rounds={rounds}"]
    sides = {
        "ours": [sys.executable, "-m", "benchmarks.cifar10", *arguments, "--test=100"],
        "flower": [python_of("flower", folder), "-m", "benchmarks.cifar10_flower", *arguments],
    }
    # A block of one round: a process of each side ends its first round by compiling or starting.
    sides["ours"].append("--eval_every=1")
    rows: dict[str, list[dict]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, command in sides.items():
            rows[side].append(last_line(command))
    pairs = list(zip(*rows.values(), strict=True))
    found = {
        side: {
            "total_s": [round(row["total_s"], 2) for row in results],
            "ms_per_round": [row["ms_per_round"] for row in results],
            "versions": results[0]["versions"],
        }
        for side, results in rows.items()
    }
    ratio = statistics.median(ours["total_s"] / theirs["total_s"] for ours, theirs in pairs)
    return {"setting": name, "rounds": rounds, **found, "ratio_of_totals": round(ratio, 3)}


def main() -> None:
    """Read or draw the data, and run."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("--setting", choices=list(SETTINGS), default="pfl")
    flags.add_argument("--data_dir", type=pathlib.Path)
    flags.add_argument("--rounds", type=int, help="by default those of the setting")
    flags.add_argument("--eval_every", type=int, default=10)
    flags.add_argument("--clients", type=int, help="by default those of the setting")
    flags.add_argument("--cohort", type=int, help="by default that of the setting")
    flags.add_argument("--test", type=int, default=NUM_TEST, help="number of test images")
    flags.add_argument("--beside", type=pathlib.Path, help="folder of Flower's environment")
    flags.add_argument("--repeats", type=int, default=3, help="fresh processes of each side")
    given = flags.parse_args()
    setting = SETTINGS[given.setting]
    setting = setting._replace(
        num_rounds=given.rounds or setting.num_rounds,
        num_clients=given.clients or setting.num_clients,
        cohort_size=given.cohort or setting.cohort_size,
    )
    if given.beside is not None:
        print(json.dumps(beside(given.setting, given.beside, setting.num_rounds, given.repeats)))
        return
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    if given.data_dir is None:
        size = setting.num_clients * setting.num_rows
        training, test = drawn(size, 0), drawn(given.test, 1)
        source = "random images, because no --data_dir was given"
    else:
        training, test = read(given.data_dir, TRAINING), read(given.data_dir, ("test_batch.bin",))
        test, source = (test[0][: given.test], test[1][: given.test]), "CIFAR-10"
    problem = problem_of(training, test, setting)
    line = run(problem, setting, min(given.eval_every, setting.num_rounds))
    print(json.dumps({"setting": given.setting, "data": source} | line))


if __name__ == "__main__":
    main()
