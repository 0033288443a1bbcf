"""Rows on disk to figures: python -m experiments.figures --workdir=W --config=configs/lasso.py."""

import json
import pathlib
import sys
from types import ModuleType

from absl import app, flags

from experiments.settings import load_module
from fcojax.report import plots
from fcojax.report import rows as tidy


def best_rows(workdir: pathlib.Path, name: str, entry: dict) -> list[tidy.Row]:
    """The rows of an algorithm at the hyperparameters that its summary calls best."""
    return [
        row
        for row in tidy.load(workdir / "rows.jsonl")
        if row["algorithm"] == name
        and all(row[field] == value for field, value in entry["best"].items())
    ]


def draw(workdir: pathlib.Path, module: ModuleType) -> pathlib.Path:
    """Draws the config's panels, each algorithm at its best; returns where the figure is."""
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))["algorithms"]
    (workdir / "figures").mkdir(exist_ok=True)
    path = workdir / "figures" / "curves.png"
    plots.over_rounds(
        path,
        module.PANELS,
        {name: best_rows(workdir, name, entry) for name, entry in summary.items()},
        module.TITLE,
        {name: list(entry["best"]) for name, entry in summary.items()},
    )
    return path


def _main(argv: list[str]) -> None:
    del argv
    workdir = pathlib.Path(flags.FLAGS.workdir)
    if not (workdir / "summary.json").exists():
        sys.stderr.write(f"experiments.figures: {workdir} holds no finished run.\n")
        sys.exit(2)
    print(draw(workdir, load_module(flags.FLAGS.config)))


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "A folder that experiments.run wrote.", required=True)
    flags.DEFINE_string("config", None, "The config file it was run with.", required=True)
    app.run(_main)
