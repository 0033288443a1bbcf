"""A round of FedAvg in four programs: the bar figure of the README.

    python -m benchmarks.bar_figure [--repeats=5] [--environments=FOLDER] [--quick] [--out=FOLDER]

Ten clients of 100 images in 62 classes, all in each round, one epoch in batches of 20, from the
same start: softmax regression (48,670 parameters) and the EMNIST CNN (1,206,590). The sides are
fcojax with its default settings, FedJAX, a loop in PyTorch, and Flower's simulation with that loop
as its clients. Milliseconds are wall time, after a first round that compiles or starts processes.
Each side runs in fresh processes, in turn; the figure has medians over ``--repeats``. The program
fails if the loss of a side after the last round differs from ours by more than a hundredth: each
library draws its own minibatches, so losses agree no further than that.

FedJAX, Flower and PyTorch are installed from the package index into environments of their own, in a
temporary folder or in the folder ``--environments``, which later runs reuse. FedJAX needs an older
JAX. On Linux, PyTorch from the index brings several gigabytes of CUDA along; if pip also finds the
wheel for CPUs, as with ``PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu``, it installs
that wheel.

The program writes ``round_times.json``, with versions, machine and date, and ``round_times.png``;
with ``--readme`` it also writes the line of the README that begins with "- **Fast**".
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp

import fcojax
from benchmarks import emnist_cnn
from benchmarks.processes import last_line
from fcojax import networks

_PACKAGES = {
    "fedjax": "fedjax==0.0.17 jax==0.4.30 jaxlib==0.4.30 dm-haiku==0.0.12 flax==0.8.5 optax==0.2.3 "
    "chex==0.1.86",
    "flower": "flwr[simulation]==1.42.0 torch==2.13.0 numpy",
}
_SIDES = {  # the name in the figure, the environment and the module that runs there
    "fcojax": (None, ["benchmarks.bar_figure", "--alone"]),
    "FedJAX": ("fedjax", ["benchmarks.fedjax_side"]),
    "PyTorch loop": ("flower", ["benchmarks.torch_side"]),
    "Flower": ("flower", ["benchmarks.torch_side", "--flower"]),
}
_MODELS = {"softmax regression": (["--linear"], 20), "EMNIST CNN": ([], 3)}  # rounds timed together
_TOLERANCE = 0.01


def ours(rounds: int, linear: bool, quick: bool) -> dict:
    """Measure the library in this process, as a user would call it, and return a JSON line."""
    x, y = emnist_cnn.draw(quick)
    params = emnist_cnn.start(linear)
    image = jax.ShapeDtypeStruct((1, 28, 28, 1), jnp.float32)
    network = networks.functions_of(networks.emnist_net(dropout_rates=(0.0, 0.0)), image, (1, 62))

    def logits(params, x):
        if not linear:
            return network.apply(params, x, None)
        layer = params["dense"]
        return x.reshape(len(x), -1) @ layer["kernel"] + layer["bias"][None]

    def loss(params, rows):
        scores = jax.nn.log_softmax(logits(params, rows["x"]))
        return -jnp.take_along_axis(scores, rows["y"][:, None], axis=1)[:, 0]

    rows = {"x": x.reshape(-1, 28, 28, 1), "y": y.reshape(-1)}
    data = fcojax.from_rows(rows, [x.shape[1]] * len(x))
    algorithm = fcojax.algorithms.fed_avg(loss)
    hparams = algorithm.hparams_type(client_lr=emnist_cnn.LR)
    plan = fcojax.Plan(fcojax.local_epochs(1, emnist_cnn.BATCH_SIZE))
    params = jax.tree.map(jnp.asarray, params)

    def run(num_rounds):
        key = jax.random.key(0)
        model, _ = fcojax.run(algorithm, hparams, params, data, key, plan, num_rounds=num_rounds)
        return jax.block_until_ready(model)

    row, model = emnist_cnn.timings(run, rounds)
    last = float(jnp.mean(jax.jit(loss)(model, rows)))
    versions = f"fcojax {fcojax.__version__}, JAX {jax.__version__}"
    return row | {"loss": last, "versions": versions}


def python_of(name: str, folder: pathlib.Path) -> str:
    """Make an environment unless it exists, and return its Python."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        print(f"installing {_PACKAGES[name]}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        install = [python, "-m", "pip", "install", "--quiet", *_PACKAGES[name].split()]
        subprocess.run(install, check=True)
    return str(python)


def measure(repeats: int, folder: pathlib.Path, quick: bool) -> dict:
    """Run all sides of both models in turn, check the losses, and return medians and conditions."""
    pythons: dict[str | None, str] = {None: sys.executable}
    pythons |= {name: python_of(name, folder) for name in _PACKAGES}
    results = {model: {side: [] for side in _SIDES} for model in _MODELS}
    for _ in range(repeats):
        for model, (options, rounds) in _MODELS.items():
            sizes = [*options, f"--rounds={2 if quick else rounds}", *["--quick"] * quick]
            for side, (environment, command) in _SIDES.items():
                command = [pythons[environment], "-m", *command, *sizes]
                row = last_line(command)
                results[model][side].append(row)
                print(f"{model}, {side}: {row['ms']:.3g} ms", file=sys.stderr)
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "repeats": repeats,
        "quick": quick,
        "models": {model: _medians(sides) for model, sides in results.items()},
    }


def _medians(sides: dict[str, list[dict]]) -> dict:
    own = statistics.median(row["loss"] for row in sides["fcojax"])
    for side, rows in sides.items():
        for row in rows:
            if abs(row["loss"] - own) > _TOLERANCE * own:
                raise RuntimeError(f"the loss of {side} is {row['loss']}, and ours is {own}.")
    ours_ms = statistics.median(row["ms"] for row in sides["fcojax"])
    return {
        side: {
            "ms": statistics.median(row["ms"] for row in rows),
            "all_ms": [round(row["ms"], 4) for row in rows],
            "times_ours": round(statistics.median(row["ms"] for row in rows) / ours_ms, 2),
            "first_round_s": round(statistics.median(row["first_round_s"] for row in rows), 2),
            "loss": statistics.median(row["loss"] for row in rows),
            "versions": rows[0]["versions"],
        }
        for side, rows in sides.items()
    }


def machine() -> str:
    """Describe the processor, its cores and the load before the run."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor()
    return f"{os.cpu_count()} cores of {name}, load {os.getloadavg()[0]:.1f}"


def _shown(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.2g} ms"


def draw(found: dict, path: pathlib.Path) -> None:
    """Draw a panel for each model, with a bar from zero for each side."""
    from experiments.report import axes

    with axes.house():
        figure, panels = axes.panels(2, height=1.3)
        for panel, (model, sides) in zip(panels, found["models"].items(), strict=True):
            names = list(sides)[::-1]
            times = [sides[name]["ms"] for name in names]
            bars = panel.barh(names, times, color=["#999999"] * (len(names) - 1) + ["C0"])
            panel.bar_label(bars, [_shown(ms) for ms in times], padding=3)
            panel.set_xlim(0, 1.15 * max(times))
            panel.grid(visible=False, axis="y")
            axes.describe(panel, "milliseconds a round", "", title=model)
        figure.savefig(path)


def sentence(found: dict) -> str:
    """Return the README's line about speed, with the measured ratios."""

    def ratios(model):
        sides = found["models"][model]
        return [f"{sides[side]['times_ours']:.2g}" for side in ("FedJAX", "PyTorch loop", "Flower")]

    linear, network = _MODELS
    fedjax, torch, flower = ratios(linear)
    of_cnn = ratios(network)
    return (
        f"- **Fast**: for a round of {linear} FedJAX takes {fedjax}, a PyTorch loop {torch} and "
        f"Flower {flower} times as long as fcojax; for a round of a CNN they take {of_cnn[0]}, "
        f"{of_cnn[1]} and {of_cnn[2]} times as long. Clients, steps and losses are the same "
        "(`python -m benchmarks.bar_figure`)."
    )


def main() -> None:
    """Measure and draw, or run our side in this process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bar_figure")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--environments", type=pathlib.Path, help="where they are made, and kept")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/figures"))
    parser.add_argument("--quick", action="store_true", help="two clients of one batch")
    parser.add_argument("--readme", action="store_true", help="write the README's line too")
    parser.add_argument("--redraw", action="store_true", help="draw the JSON in --out again")
    parser.add_argument("--alone", action="store_true", help="our side, in this process")
    parser.add_argument("--linear", action="store_true", help="softmax regression, with --alone")
    parser.add_argument("--rounds", type=int, default=20, help="rounds, with --alone")
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(ours(options.rounds, options.linear, options.quick)))
        return
    path = options.out / "round_times.json"
    if not options.redraw:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.environments or pathlib.Path(temporary)).absolute()
            found = measure(options.repeats, folder, options.quick)
        options.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    found = json.loads(path.read_text("utf-8"))
    draw(found, path.with_suffix(".png"))
    if options.readme:
        readme = pathlib.Path("README.md")
        text = readme.read_text("utf-8")
        text = re.sub(r"^- \*\*Fast\*\*.*$", lambda _: sentence(found), text, flags=re.MULTILINE)
        readme.write_text(text, "utf-8")
    for model, sides in found["models"].items():
        for side, row in sides.items():
            print(f"{model}: {side} {row['ms']:.3g} ms, {row['times_ours']} of ours")


if __name__ == "__main__":
    main()
