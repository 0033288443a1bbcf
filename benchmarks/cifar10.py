"""The CIFAR-10 benchmark of pfl-research, on any device.

    python -m benchmarks.cifar10 --data_dir=FOLDER [--rounds=1500] [--eval_every=10]
    python -m benchmarks.cifar10 --clients=4 --cohort=2 --test=40 --rounds=2

FedAvg runs on 1,000 clients of 50 random images, with 50 clients per round and one epoch in batches
of 10 at a rate of 0.1. The network has two 3 x 3 convolutions, max pooling, two dense layers,
dropout of 0.25 and 0.5, and 1,626,442 parameters from Glorot's uniform draw. Each channel is scaled
to mean 0 and variance 1 on the training images.

``FOLDER`` has the binary version of the data, ``data_batch_1.bin`` to ``data_batch_5.bin`` and
``test_batch.bin``. Without it random images of the same shape are used, and the accuracy has no
meaning. The program prints a JSON line after every ``eval_every`` rounds, and at the end a line
with the times of the first block, with compilation, and the median of the others, all without
evaluations.
"""

import argparse
import json
import pathlib
import statistics
import time

import jax
import numpy as np

import fcojax
from fcojax import networks
from fcojax.problems import Problem

NUM_TRAINING, NUM_TEST, ROWS, BATCH_SIZE, NUM_CLASSES, SHAPE = 50_000, 10_000, 50, 10, 10, (32, 32)
TRAINING = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
Images = tuple[np.ndarray, np.ndarray]


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


def drawn(num_rows: int, seed: int) -> Images:
    """Return random images of the same shape."""
    rng = np.random.default_rng(seed)
    images = 255 * rng.random((num_rows, *SHAPE, 3), dtype=np.float32)
    return images, rng.integers(0, NUM_CLASSES, num_rows, dtype=np.int32)


def problem_of(training: Images, test: Images, num_clients: int) -> Problem:
    """Return the problem: clients of 50 images each, in random order.

    Args:
      training: images and labels, of which the first ones needed are used.
      test: images and labels for the accuracy.
      num_clients: number of clients.
    """
    images, labels = training
    order = np.random.default_rng(0).permutation(len(labels))[: num_clients * ROWS]
    mean, deviation = images.mean((0, 1, 2)), images.std((0, 1, 2))
    rows = {"x": (images[order] - mean) / deviation, "y": labels[order]}
    held = {"x": (test[0] - mean) / deviation, "y": test[1]}
    count = len(labels[order]) // ROWS
    return networks.network(
        networks.emnist_net((*SHAPE, 3), NUM_CLASSES),
        fcojax.from_rows(rows, [ROWS] * count),
        fcojax.from_rows(held, [len(test[1])]),
        num_classes=NUM_CLASSES,
    )


def run(problem: Problem, cohort_size: int, num_rounds: int, eval_every: int) -> dict:
    """Run the benchmark, print its lines, and return the last one.

    Args:
      problem: the result of ``problem_of``.
      cohort_size: clients in each round.
      num_rounds: number of rounds.
      eval_every: rounds between two lines.
    """
    algorithm, data = fcojax.algorithms.fed_avg(problem.loss), problem.train
    plan = fcojax.Plan(
        fcojax.local_epochs(1, BATCH_SIZE), fcojax.uniform_cohort(cohort_size=cohort_size)
    )
    hparams = algorithm.hparams_type(client_lr=0.1, server_lr=1.0)
    key, measure, seconds = jax.random.key(0), jax.jit(problem.measures), []
    state = fcojax.start(algorithm, hparams, problem.init(key), data, key, plan)
    measures = {}
    for last in range(eval_every, num_rounds + 1, eval_every):
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
        "cohort": cohort_size,
        "clients": data.num_clients,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(problem.init(key))),
        "first_block_s": seconds[0],
        "ms_per_round": statistics.median(later) if later else None,
        "device": jax.devices()[0].device_kind,
    }


def main() -> None:
    """Read or draw the data, and run."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("--data_dir", type=pathlib.Path)
    flags.add_argument("--rounds", type=int, default=1500)
    flags.add_argument("--eval_every", type=int, default=10)
    flags.add_argument("--clients", type=int, default=NUM_TRAINING // ROWS)
    flags.add_argument("--cohort", type=int, default=50)
    flags.add_argument("--test", type=int, default=NUM_TEST, help="number of test images")
    given = flags.parse_args()
    if given.data_dir is None:
        training, test = drawn(given.clients * ROWS, 0), drawn(given.test, 1)
        source = "random images, because no --data_dir was given"
    else:
        training, test = read(given.data_dir, TRAINING), read(given.data_dir, ("test_batch.bin",))
        test, source = (test[0][: given.test], test[1][: given.test]), "CIFAR-10"
    problem = problem_of(training, test, given.clients)
    eval_every = min(given.eval_every, given.rounds)
    line = run(problem, given.cohort, given.rounds, eval_every)
    print(json.dumps({"data": source} | line))


if __name__ == "__main__":
    main()
