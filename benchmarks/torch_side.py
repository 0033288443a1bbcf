"""FedAvg in PyTorch, as a loop and as Flower's clients, for ``bar_figure``; run by their Python.

    PYTHON -m benchmarks.torch_side [--flower] [--linear] [--rounds=2] [--quick]

Flower runs its own FedAvg in its simulation, and its clients take the loop's local steps. The
simulation has one process per core, each with one thread of PyTorch, its fastest setting here.
"""

import argparse
import functools
import importlib
import json
import os
import time
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from benchmarks import emnist_cnn

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
    x, y = emnist_cnn.draw(quick, learnable=True)
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
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    # Ray's workers start elsewhere, and find this file by their path.
    os.environ["PYTHONPATH"] = os.getcwd()
    import flwr  # pyright: ignore[reportMissingImports]
    from flwr.app import (  # pyright: ignore[reportMissingImports]
        ArrayRecord,
        Message,
        MetricRecord,
        RecordDict,
    )
    from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]
    from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]
    from flwr.serverapp.strategy import FedAvg  # pyright: ignore[reportMissingImports]
    from flwr.simulation import run_simulation  # pyright: ignore[reportMissingImports]

    client_app, server_app, times, losses = ClientApp(), ServerApp(), [], []

    @client_app.train()
    def on_train(message, context):
        torch.set_num_threads(1)
        place = int(context.node_config["partition-id"])
        model = model_of(linear)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        own = clients(quick)[place]
        index = message.content["config"]["server-round"]
        train(model, own, np.random.default_rng([2, index, place]))
        content = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(own[0])}),
        }
        return Message(content=RecordDict(content), reply_to=message)

    def after(index, arrays):
        times.append(time.perf_counter())
        if index == rounds:
            model = model_of(linear)
            model.load_state_dict(arrays.to_torch_state_dict())
            losses.append(loss_of(model, quick))

    @server_app.main()
    def on_start(grid, context):
        strategy = FedAvg(fraction_evaluate=0.0)
        first = ArrayRecord(model_of(linear).state_dict())
        strategy.start(grid=grid, initial_arrays=first, num_rounds=rounds + 1, evaluate_fn=after)

    backend: Any = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": os.cpu_count(), "include_dashboard": False},
    }
    run_simulation(
        server_app, client_app, num_supernodes=len(clients(quick)), backend_config=backend
    )
    return {
        "ms": 1e3 * (times[-1] - times[1]) / rounds,
        "first_round_s": times[1] - times[0],
        "loss": losses[0],
        "versions": f"Flower {flwr.__version__}, PyTorch {torch.__version__}",
    }


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flower", action="store_true")
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--learnable", action="store_true", help="always so here")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    # Ray's workers import what clients call, so that it must not be defined in ``__main__``.
    this = importlib.import_module("benchmarks.torch_side")
    side = this.flower if options.flower else this.loop
    print(json.dumps(side(options.rounds, options.linear, options.quick)))


if __name__ == "__main__":
    main()
