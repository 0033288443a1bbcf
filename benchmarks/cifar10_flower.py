"""The settings of ``benchmarks.cifar10`` in Flower's simulation, with clients of PyTorch.

    PYTHON -m benchmarks.cifar10_flower [--setting=pfl] [--rounds=1500]

``PYTHON`` has ``flwr[simulation]`` and PyTorch; ``benchmarks.cifar10 --beside=FOLDER`` installs
them. The simulation has one process per core, each with one thread of PyTorch, its best setting
here. It prints a JSON line: the seconds of all rounds, and the milliseconds of a round without the
first, in which its actors start.
"""

import argparse
import functools
import importlib
import json

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from benchmarks.cifar10_settings import NUM_CLASSES, SETTINGS, drawn, scaled
from benchmarks.flower_simulation import simulate


def model_of(network: str) -> nn.Module:
    """Return the network with PyTorch's own start."""
    if network == "lenet":
        convolutions = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)]
        convolutions += [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        dense = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
        return nn.Sequential(*convolutions, *dense, nn.Linear(84, NUM_CLASSES))
    convolutions = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
    pooled = [nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()]
    dense = [nn.Linear(14 * 14 * 64, 128), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*convolutions, *pooled, *dense, nn.Linear(128, NUM_CLASSES))


@functools.cache
def images(num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images, channels first, and labels."""
    x, y = drawn(num_rows, 0)
    return torch.from_numpy(scaled(x, x).transpose(0, 3, 1, 2).copy()), torch.from_numpy(y).long()


def run(name: str, rounds: int) -> dict:
    """Run the simulation; return the JSON line."""
    setting = SETTINGS[name]
    times, _, versions = simulate(
        functools.partial(model_of, setting.network),
        functools.partial(train, name),
        setting.num_clients,
        rounds,
        setting.cohort_size / setting.num_clients,
    )
    return {
        "setting": name,
        "rounds": rounds,
        "total_s": times[-1] - times[0],
        "ms_per_round": 1e3 * (times[-1] - times[1]) / max(1, rounds - 1),
        "versions": versions,
    }


def train(name: str, model: nn.Module, place: int, index: int) -> int:
    """Train a client's model for its epochs; return how many examples it has."""
    setting = SETTINGS[name]
    x, y = images(setting.num_clients * setting.num_rows)
    own = slice(place * setting.num_rows, (place + 1) * setting.num_rows)
    x, y, rng = x[own], y[own], np.random.default_rng([2, index, place])
    optimiser = torch.optim.SGD(model.parameters(), lr=setting.client_lr)
    for _ in range(setting.num_epochs):
        for batch in torch.from_numpy(rng.permutation(len(x))).split(setting.batch_size):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    return len(x)


def main() -> None:
    """Print one JSON line."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--setting", choices=list(SETTINGS), default="pfl")
    flags.add_argument("--rounds", type=int)
    given = flags.parse_args()
    # Ray's workers import what clients call, so that it must not be defined in ``__main__``.
    this = importlib.import_module("benchmarks.cifar10_flower")
    rounds = given.rounds or SETTINGS[given.setting].num_rounds
    print(json.dumps(this.run(given.setting, rounds)))


if __name__ == "__main__":
    main()
