"""A model of a round's seconds on several hosts, checked against processes of this machine.

    python -m benchmarks.hosts

One process gives the seconds of a client and of a round without clients; two processes give latency
and speed of the link, by all-reduces of two sizes. The model then predicts rounds of two and four
processes. On loopback a message is the work of the two processors, so all times are processor
seconds of the first process, which do not depend on what else the machine does.
"""

import functools
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

CORES, FEATURES, ROUNDS, REPEATS = 2, 4096, (2, 22), 15


def seconds_of_a_round(
    clients: int,
    num_bytes: float,
    hosts: int,
    *,
    per_client: float,
    per_round: float = 0.0,
    latency: float,
    bytes_per_second: float,
    per_all_reduce: float = 0.0,
    all_reduces: int = 7,
) -> float:
    """Return the seconds of a round.

    The hosts share the clients. Counts are summed along a tree, there and back, and uploads along a
    ring, in which each host sends its share of the bytes to the next one, 2 (hosts - 1) times.

    Args:
      clients: clients a round.
      num_bytes: bytes of the mean upload.
      hosts: processes, each with its own cores or accelerator.
      per_client: seconds of one client on one host.
      per_round: seconds of a round without clients: draws, server step, launches.
      latency: seconds of an empty message between two hosts.
      bytes_per_second: speed of a link.
      per_all_reduce: seconds of an all-reduce of a vector beside its messages.
      all_reduces: all-reduces of a round, by the compiled program of FedDualAvg.

    Example:
      >>> link = {"latency": 5e-5, "bytes_per_second": 1e9}
      >>> [round(seconds_of_a_round(100, 4e6, n, per_client=0.01, **link), 3) for n in (1, 4, 100)]
      [1.0, 0.257, 0.023]
    """
    seconds = per_round + -(-clients // hosts) * per_client
    if hosts > 1:
        seconds += 2 * math.ceil(math.log2(hosts)) * all_reduces * latency + per_all_reduce
        seconds += 2 * (hosts - 1) / hosts * num_bytes / bytes_per_second
    return seconds


def median(function) -> float:
    """Return the median processor seconds of several calls, after one that compiles."""
    import jax

    times = []
    for _ in range(REPEATS + 1):
        began = time.process_time()
        jax.block_until_ready(function())
        times.append(time.process_time() - began)
    return statistics.median(times[1:])


def measured(mesh, clients: int) -> float:
    """Return the seconds of a round of FedDualAvg on a mesh."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import fcojax

    rng = np.random.default_rng(0)
    rows = {"x": rng.standard_normal((clients * 8, FEATURES), dtype=np.float32)}
    data = fcojax.devices.shard_clients(fcojax.from_rows(rows, [8] * clients), mesh)
    algorithm = fcojax.algorithms.fed_dual_avg(
        lambda w, row: jnp.logaddexp(0.0, -row["x"] @ w),
        fcojax.transforms.euclidean(fcojax.transforms.l1()),
    )
    hparams = algorithm.hparams_type(client_lr=1e-4, server_lr=1.0, penalty_scale=1e-3)
    plan = fcojax.Plan(fcojax.local_steps(20, batch_size=4), fcojax.everyone())
    start = jnp.zeros(FEATURES)
    rounds = functools.partial(fcojax.run, algorithm, hparams, start, data, jax.random.key(0), plan)
    # The difference leaves out what a call of ``run`` costs.
    few, many = (median(functools.partial(rounds, num_rounds=number)) for number in ROUNDS)
    return (many - few) / (ROUNDS[1] - ROUNDS[0])


def all_reduce(mesh, size: int) -> float:
    """Return the seconds of an all-reduce of so many floats."""
    import jax
    import jax.numpy as jnp

    spec = jax.sharding.PartitionSpec

    def sums(x):
        each = lambda _, x: jax.lax.psum(x, "clients") * 0.5  # noqa: E731
        return jax.lax.fori_loop(0, 10, each, x)

    over_hosts = jax.jit(
        jax.shard_map(sums, mesh=mesh, in_specs=spec(), out_specs=spec(), check_vma=False)
    )
    return median(functools.partial(over_hosts, jnp.ones(size))) / 10


def worker(index: int, number: int, where: str) -> None:
    """Measure in one of several processes; the first prints."""
    os.sched_setaffinity(0, {index % CORES})
    import jax

    jax.config.update("jax_num_cpu_devices", 1)
    if number > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(where, number, index)
    import fcojax

    mesh = fcojax.devices.client_mesh()
    times = {f"clients_{clients}": measured(mesh, clients) for clients in (16, 64)}
    if number > 1:
        times |= {f"floats_{size}": all_reduce(mesh, size) for size in (1, FEATURES, 32 * FEATURES)}
    if index == 0:
        print(json.dumps(times))


def processes(number: int) -> dict[str, float]:
    """Measure with so many processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "benchmarks.hosts"]
    running = [
        subprocess.Popen([*command, str(i), str(number), where], stdout=subprocess.PIPE, text=True)
        for i in range(number)
    ]
    said = [process.communicate()[0] for process in running]
    return json.loads(said[0].splitlines()[-1])


# Seconds of a client: measured on two cores (README.md: 67 ms of the EMNIST CNN, and 1.7 us of 256
# features), or 6e12 operations at 400 TFLOP/s, 40 % of an H100's peak, of 1e4 tokens.
PLANS = {  # seconds of a client, bytes of an upload, clients a round
    "logistic regression, 256 features": (1.7e-6, 1e3, 1000),
    "EMNIST CNN": (0.067, 4.8e6, 100),
    "transformer, 1e8 parameters": (0.015, 4e8, 100),
}
LINKS = {  # latency, bytes a second
    "10 Gb/s Ethernet": (5e-5, 1.25e9),
    "400 Gb/s InfiniBand": (1e-5, 5e10),
}


def plan(clients_a_day: int = 1_000_000) -> None:
    """Print the hours that so many clients take, for each plan, link and number of hosts."""
    for name, (per_client, num_bytes, clients) in PLANS.items():
        for link, (latency, speed) in LINKS.items():
            hours = {
                hosts: seconds_of_a_round(
                    clients,
                    num_bytes,
                    hosts,
                    per_client=per_client,
                    latency=latency,
                    bytes_per_second=speed,
                )
                * clients_a_day
                / clients
                / 3600
                for hosts in (1, 2, 8, 32)
            }
            print(f"{name}, {link}: " + ", ".join(f"{n}: {h:.2g} h" for n, h in hours.items()))


def compare(found: dict[int, dict[str, float]]) -> None:
    """Print constants, and each prediction beside what was measured with so many processes."""
    one, two = found[1], found[2]
    per_client = (one["clients_64"] - one["clients_16"]) / 48
    few, many = two[f"floats_{FEATURES}"], two[f"floats_{32 * FEATURES}"]
    constants: dict[str, Any] = {
        "per_client": per_client,
        "per_round": max(0.0, one["clients_16"] - 16 * per_client),
        "latency": two["floats_1"] / 2,
        "bytes_per_second": 4 * 31 * FEATURES / (many - few),
        "per_all_reduce": few - two["floats_1"],
    }
    print(json.dumps(constants))
    for number, times in found.items():
        for clients in (16, 64):
            model = seconds_of_a_round(clients, 4 * FEATURES, number, **constants)
            row = {"processes": number, "clients": clients, "model_ms": 1e3 * model}
            print(json.dumps(row | {"measured_ms": 1e3 * times[f"clients_{clients}"]}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        worker(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        plan()
        compare({number: processes(number) for number in (1, 2, 4)})
