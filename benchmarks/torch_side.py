"""FedAvg in PyTorch, as a loop and as Flower's clients, for ``bar_figure``; run by their Python.

    PYTHON -m benchmarks.torch_side [--flower] [--linear] [--rounds=2] [--quick]

Flower runs its own FedAvg in its simulation, and its clients take the loop's local steps. The
simulation has one process per core, each with one thread of PyTorch, its fastest setting here.
"""

import argparse
import functools
import importlib
import json

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from benchmarks import emnist_cnn
from benchmarks.flower_simulation import simulate

_CNN = ("conv_1", "conv_2", "dense_1", "dense_2")


class _Flat(nn.Module):
    """Images as rows, with channels last as in JAX."""

    def forward(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)


def model_of(linear: bool) -> nn.Module:
    """Return the model with the parameters of ``emnist_cnn.start``."""
    params = emnist_cnn.start(linear)
    if linear:
        layers = [nn.Flatten(), nn.Linear(784, emnist_cnn.NUM_CLASSES)]
    else:
        layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [_Flat(), nn.Linear(12 * 12 * 64, 128), nn.ReLU()]
        layers += [nn.Linear(128, emnist_cnn.NUM_CLASSES)]
    model = nn.Sequential(*layers)
    named = [layer for layer in model if hasattr(layer, "weight")]
    with torch.no_grad():
        for layer, given in zip(named, params.values(), strict=True):
            axes = (3, 2, 0, 1) if given["kernel"].ndim == 4 else (1, 0)
            layer.weight.copy_(torch.from_numpy(given["kernel"].transpose(axes).copy()))
            layer.bias.copy_(torch.from_numpy(given["bias"]))
    return model


@functools.cache
def clients(quick: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return images, channels first, and labels of each client."""
    x, y = emnist_cnn.draw(quick)
    images = torch.from_numpy(x.transpose(0, 1, 4, 2, 3).copy())
    return list(zip(images, torch.from_numpy(y).long(), strict=True))


def train(model: nn.Module, rows: tuple, rng: np.random.Generator) -> None:
    """Take an epoch of steps of SGD on one client."""
    (x, y), lr = rows, emnist_cnn.LR
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    for batch in torch.from_numpy(rng.permutation(len(x))).split(emnist_cnn.BATCH_SIZE):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()


def loss_of(model: nn.Module, quick: bool) -> float:
    """Return the mean loss over all clients' examples."""
    x, y = (torch.cat(parts) for parts in zip(*clients(quick), strict=True))
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(x), y))


def loop(rounds: int, linear: bool, quick: bool) -> dict:
    """Run the clients one after the other in one process, and average them."""
    if linear:  # its steps are shorter than waking a second thread
        torch.set_num_threads(1)
    rows, model = clients(quick), model_of(linear)

    def run(num_rounds):
        server, rng = model_of(linear).state_dict(), np.random.default_rng(2)
        for _ in range(num_rounds):
            total = {name: torch.zeros_like(value) for name, value in server.items()}
            for own in rows:
                model.load_state_dict(server)
                train(model, own, rng)
                for name, value in model.state_dict().items():
                    total[name] += value / len(rows)
            server = total
        return server

    row, server = emnist_cnn.timings(run, rounds)
    model.load_state_dict(server)
    return row | {"loss": loss_of(model, quick), "versions": f"PyTorch {torch.__version__}"}


def flower(rounds: int, linear: bool, quick: bool) -> dict:
    """Run Flower's simulation; time all rounds but the first, in which its actors start."""
    times, model, versions = simulate(
        functools.partial(model_of, linear),
        functools.partial(_train_one, quick),
        len(clients(quick)),
        rounds + 1,
    )
    return {
        "ms": 1e3 * (times[-1] - times[1]) / rounds,
        "first_round_s": times[1] - times[0],
        "loss": loss_of(model, quick),
        "versions": versions,
    }


def _train_one(quick: bool, model: nn.Module, place: int, index: int) -> int:
    own = clients(quick)[place]
    train(model, own, np.random.default_rng([2, index, place]))
    return len(own[0])


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flower", action="store_true")
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    # Ray's workers import what clients call, so that it must not be defined in ``__main__``.
    this = importlib.import_module("benchmarks.torch_side")
    side = this.flower if options.flower else this.loop
    print(json.dumps(side(options.rounds, options.linear, options.quick)))


if __name__ == "__main__":
    main()
