"""Scaling curves: the time of a round against one size at a time, and a roofline figure.

    python -m benchmarks.curves [--axes=cohort,population] [--repeats=1] [--out=FOLDER] [--quick]

The axes are clients a round, clients of the population, features, points of a sweep, and processes
with one device each. The algorithm is FedDualAvg; the shapes are those of W6 with 256 features, W5,
W1, W1 and W2. Every size runs in a fresh process; with ``--repeats`` the least time counts. It
prints a JSON line for each size with the slope from the size before, log time over log size, and
the shares of the machine's peaks in products and in reading, which are measured first. ``--out``
writes ``curves.json``, ``curves.md``, and ``curves`` and ``roofline`` as PNG and PDF. It takes
under ten minutes on two idle cores.
"""

import argparse
import json
import math
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np

from benchmarks.peaks import Peaks, needs, peaks
from benchmarks.workloads import WORKLOADS, Workload, draw

_SECONDS = 2.0  # of timing per size, with at least three runs
_FAR = 0.25  # a share of a peak below which it bounds nothing


class Axis(NamedTuple):
    """A size that is varied.

    Attributes:
      title: what it counts.
      workload: the other sizes.
      sizes: its values.
      quick: its values in a test.
      field: the field of the workload, or ``None``.
    """

    title: str
    workload: Workload
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    field: str | None = None


AXES = {
    "cohort": Axis(
        "clients a round",
        WORKLOADS["W6"]._replace(dim=256),
        (10, 100, 1_000, 10_000),
        (2, 4),
        "cohort_size",
    ),
    "population": Axis(
        "clients", WORKLOADS["W5"], (1_000, 10_000, 100_000, 1_000_000), (20, 40), "num_clients"
    ),
    "features": Axis(
        "features",
        WORKLOADS["W1"]._replace(num_rounds=100),
        (64, 256, 1_024, 4_096, 16_384),
        (8, 16),
        "dim",
    ),
    "points": Axis("points", WORKLOADS["W1"]._replace(num_rounds=20), (1, 10, 100, 1_000), (1, 2)),
    "processes": Axis("processes", WORKLOADS["W2"]._replace(num_rounds=10), (1, 2), (1, 2)),
}


def sized(name: str, size: int, quick: bool) -> Workload:
    """Return the workload at one size."""
    axis = AXES[name]
    workload = axis.workload
    if quick:
        workload = workload._replace(num_clients=40, num_examples=10, dim=16, num_rounds=2)
    return workload if axis.field is None else workload._replace(**{axis.field: size})


def measure(name: str, size: int, quick: bool) -> dict:
    """Measure one size in this process."""
    import jax

    if name != "processes":
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    import fcojax
    from benchmarks.settings import plan, setting

    workload = sized(name, size, quick)
    algorithm, hparams, params, data = setting(workload, "fed_dual_avg", *draw(workload))
    how, points = fcojax.Plan(*plan(workload)), size if name == "points" else 1
    options = {"num_rounds": workload.num_rounds, "eval_every": workload.num_rounds, "plan": how}
    if name == "processes":
        mesh = fcojax.devices.device_mesh(clients=jax.device_count())
        data = fcojax.devices.shard_clients(data, mesh)
    else:
        data = fcojax.devices.spread(algorithm, hparams, params, data, how, num_points=points)
    if name == "points":
        rates = np.geomspace(3e-3, 2e-2, points, dtype=np.float32)
        grid = jax.tree.map(lambda field: np.full(points, field, np.float32), hparams)
        grid = grid._replace(client_lr=rates)

    def run(seed):
        if name == "points":
            keys = jax.random.split(jax.random.key(seed), 1)
            return fcojax.sweep(algorithm, grid, params, data, keys, **options)[0]
        return fcojax.run(algorithm, hparams, params, data, jax.random.key(seed), **options)[0]

    jax.block_until_ready(run(0))
    times: list[float] = []
    while len(times) < 3 or (sum(times) < _SECONDS and not quick):
        began = time.perf_counter()
        jax.block_until_ready(run(len(times)))
        times.append(time.perf_counter() - began)
        if name == "processes" and len(times) == 3:
            break  # all processes run equally often
    return {"ms_per_round": 1e3 * statistics.median(times) / workload.num_rounds}


def in_processes(name: str, size: int, quick: bool) -> dict:
    """Measure one size in a fresh process, or in as many as the size says."""
    command = [sys.executable, "-m", "benchmarks.curves", f"--axis={name}", f"--size={size}"]
    command += ["--quick"] * quick
    number = size if name == "processes" else 1
    if number > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            command.append(f"--port={free.getsockname()[1]}")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([*command, f"--process_id={index}"], **pipes) for index in range(number)
    ]
    ends = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, ends, strict=True):
        if process.returncode:
            raise RuntimeError(f"{' '.join(command[2:])} failed:\n{errors[-4000:]}")
    return json.loads(ends[0][0].splitlines()[-1])


def row_of(name: str, size: int, quick: bool, milliseconds: float, known: Peaks) -> dict:
    """Return the row of one size, with the rates that it reaches."""
    operations, read = needs(sized(name, size, quick))
    operations *= size if name == "points" else 1
    gflops, gbytes = (1e-6 * amount / milliseconds for amount in (operations, read))
    shares = {"of_products": gflops / known.gflops, "of_reading": gbytes / known.gbytes}
    return {
        "axis": name,
        "size": size,
        "ms_per_round": milliseconds,
        "intensity": operations / read,
        "gflops": gflops,
        **shares,
    }


def with_slopes(rows: list[dict]) -> list[dict]:
    """Return the rows of an axis with slopes, and with what bounds them."""
    found = []
    for before, row in zip([None, *rows[:-1]], rows, strict=True):
        slope = None
        if before is not None:
            slope = math.log(row["ms_per_round"] / before["ms_per_round"]) / math.log(
                row["size"] / before["size"]
            )
        near = max(("of_products", "of_reading"), key=lambda share: row[share])
        bound = {"of_products": "products", "of_reading": "reading"}[near]
        found.append(
            row | {"slope": slope, "bound": bound if row[near] >= _FAR else "kernels and draws"}
        )
    return found


def table(rows: list[dict]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| a round against | size | ms | slope | of products | of reading | bound by |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in rows:
        slope = "" if row["slope"] is None else f"{row['slope']:.2f}"
        shares = f"{row['of_products']:.0%} | {row['of_reading']:.0%}".replace("%", " %")
        what, milliseconds = AXES[row["axis"]].title, f"{row['ms_per_round']:.3g}"
        cells = what, f"{row['size']:,}", milliseconds, slope, shares, row["bound"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw_figures(rows: list[dict], known: Peaks, folder: pathlib.Path) -> None:
    """Draw the curves, and all rows under the machine's two peaks."""
    from experiments.report import axes
    from experiments.report.look import house

    names = list(dict.fromkeys(row["axis"] for row in rows))
    with house():
        columns = axes.columns_for(len(names))
        figure, panels = axes.panels(columns, -(-len(names) // columns), height=1.9)
        for name, panel in zip(names, panels, strict=False):
            own = [row for row in rows if row["axis"] == name]
            times = [row["ms_per_round"] for row in own]
            panel.loglog([row["size"] for row in own], times, "o-")
            panel.set_ylim(min(times) / 3, 3 * max(times))  # a flat curve looks flat
            axes.describe(panel, AXES[name].title, "milliseconds a round", log="xy")
        for panel in panels[len(names) :]:
            panel.set_axis_off()
        axes.save(figure, folder / "curves.png")
        figure, (panel,) = axes.panels(1)
        for name, marker in zip(names, "os^Dv", strict=False):
            own = [row for row in rows if row["axis"] == name]
            across, speeds = ([row[key] for row in own] for key in ("intensity", "gflops"))
            panel.loglog(across, speeds, marker, label=AXES[name].title)
        low, high = (pick(row["intensity"] for row in rows) for pick in (min, max))
        reach = np.geomspace(low / 2, 2 * max(high, known.gflops / known.gbytes), 50)
        panel.loglog(reach, np.minimum(known.gflops, known.gbytes * reach), "k-", label="peaks")
        axes.describe(panel, "operations per byte read", "GFLOP/s", log="xy")
        panel.legend()
        axes.save(figure, folder / "roofline.png")


def main() -> None:
    """Print the JSON lines, or measure one size in this process."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.curves")
    flags.add_argument("--axes", default=",".join(AXES))
    flags.add_argument("--repeats", type=int, default=1, help="fresh processes of each size")
    flags.add_argument("--out", type=pathlib.Path)
    flags.add_argument("--quick", action="store_true", help="small sizes, for a test")
    flags.add_argument("--axis", help="measure one size in this process")
    flags.add_argument("--size", type=int)
    flags.add_argument("--port", type=int, help="of the coordinator of several processes")
    flags.add_argument("--process_id", type=int, default=0)
    given = flags.parse_args()
    if given.axis:
        if given.port:
            import jax

            jax.distributed.initialize(
                f"127.0.0.1:{given.port}", num_processes=given.size, process_id=given.process_id
            )
        print(json.dumps(measure(given.axis, given.size, given.quick)))
        return
    known, rows = peaks(), []
    for name in given.axes.split(","):
        axis, own = AXES[name], []
        for size in axis.quick if given.quick else axis.sizes:
            times = [
                in_processes(name, size, given.quick)["ms_per_round"] for _ in range(given.repeats)
            ]
            own.append(row_of(name, size, given.quick, min(times), known))
            print(json.dumps(with_slopes(own)[-1]), flush=True)
        rows += with_slopes(own)
    print(table(rows))
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        both = {"peaks": known._asdict(), "rows": rows}
        (given.out / "curves.json").write_text(json.dumps(both, indent=1))
        (given.out / "curves.md").write_text(table(rows))
        draw_figures(rows, known, given.out)


if __name__ == "__main__":
    main()
