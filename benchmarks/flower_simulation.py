"""Rounds of FedAvg in Flower's simulation, with clients of PyTorch: for the Flower side of others.

One process per core, each with one thread of PyTorch, which is its best setting on a CPU.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]


def simulate(
    build: Callable[[], nn.Module],
    train: Callable[[nn.Module, int, int], int],
    num_clients: int,
    num_rounds: int,
    share: float = 1.0,
) -> tuple[list[float], nn.Module, str]:
    """Run the simulation; return the time after each round, the last model, and the versions.

    The first time is that of the start, before any round, and the first round starts the actors.

    Args:
      build: makes the model, with any start.
      train: ``(model, client, round) -> number of examples``, which changes the model. Ray's
        workers import it, so it must not be defined in ``__main__``.
      num_clients: the number of clients.
      num_rounds: the number of rounds.
      share: the share of the clients in each round.
    """
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    # Ray's workers start elsewhere, and find the benchmarks by their path.
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

    client_app, server_app, times, model = ClientApp(), ServerApp(), [], build()

    @client_app.train()
    def on_train(message, context):
        torch.set_num_threads(1)
        client = build()
        client.load_state_dict(message.content["arrays"].to_torch_state_dict())
        place = int(context.node_config["partition-id"])
        count = train(client, place, message.content["config"]["server-round"])
        content = {
            "arrays": ArrayRecord(client.state_dict()),
            "metrics": MetricRecord({"num-examples": count}),
        }
        return Message(content=RecordDict(content), reply_to=message)

    def after(index, arrays):
        times.append(time.perf_counter())
        if index == num_rounds:
            model.load_state_dict(arrays.to_torch_state_dict())

    @server_app.main()
    def on_start(grid, context):
        strategy = FedAvg(fraction_train=share, fraction_evaluate=0.0)
        first = ArrayRecord(model.state_dict())
        strategy.start(grid=grid, initial_arrays=first, num_rounds=num_rounds, evaluate_fn=after)

    backend: Any = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": os.cpu_count(), "include_dashboard": False},
    }
    run_simulation(server_app, client_app, num_supernodes=num_clients, backend_config=backend)
    return times, model, f"Flower {flwr.__version__}, PyTorch {torch.__version__}"
