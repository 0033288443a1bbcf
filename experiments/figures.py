"""Draws a finished run and its page: python -m experiments.figures --workdir=W --config=C."""

import json
import pathlib
import shlex
import sys
from typing import Any

from absl import app, flags
from ml_collections import ConfigDict

from experiments import config_file
from experiments.config_file import ConfigFile
from experiments.report import heat, page, plots
from experiments.report import rows as tidy
from experiments.report.summary import Criterion, at_best
from experiments.study import Sweep


def draw(workdir: pathlib.Path, file: ConfigFile, config: ConfigDict) -> list[pathlib.Path]:
    """Draws all figures of a finished run, and its page; returns the figures."""
    experiment = file.experiment
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))
    rows = tidy.load(workdir / "rows.jsonl")
    directory = workdir / "figures"
    directory.mkdir(exist_ok=True)
    drawn = []
    if isinstance(experiment, Sweep):
        drawn += _draw_sweep(directory, experiment, rows, summary["algorithms"])
    drawn += experiment.figures(config, rows, summary, directory)
    drawn = [figure for figure in drawn if figure.exists()]
    command = json.loads((workdir / "config.json").read_text("utf-8"))["command"]
    page.write(
        workdir / "index.html", experiment.title, shlex.join(command), drawn, _tables(summary),
        file.summary,
    )  # fmt: skip
    return drawn


def _draw_sweep(directory, sweep: Sweep, rows, entries) -> list[pathlib.Path]:
    """The curves at the best points, and the score over the two rates."""
    fields = {name: list(entry["best"]) for name, entry in entries.items()}
    plots.over_rounds(
        directory / "curves.png",
        sweep.panels,
        {name: at_best(rows, name, entry["best"]) for name, entry in entries.items()},
        sweep.title,
        fields,
    )
    by_name = {name: [row for row in rows if row["algorithm"] == name] for name in entries}
    criterion = Criterion(**next(iter(entries.values()))["criterion"])
    heat.maps(directory / "rates.png", by_name, fields, criterion)
    return [directory / "curves.png", directory / "rates.png"]


def _tables(summary: dict) -> dict[str, list[dict[str, Any]]]:
    entries = summary.get("algorithms", {})
    best = [
        {"algorithm": name, **entry["best"], entry["criterion"]["measure"]: entry["score"]}
        | {
            measure: value
            for measure, value in entry["last"].items()
            if measure not in (entry["criterion"]["measure"], "participants", "dropped")
        }
        | {"seconds": entry["seconds"], "verdict": entry["verdict"].split(":")[0]}
        for name, entry in entries.items()
    ]
    tables = {
        name: value
        for name, value in summary.items()
        if name not in ("algorithms", "claims") and isinstance(value, list)
    }
    return {
        "best rates and scores": best,
        "what the sources say": [_claim(claim) for claim in summary.get("claims", [])],
        **tables,
    }


def _claim(entry: dict[str, Any]) -> dict[str, Any]:
    """A claim as a line of a table, with its relation and threshold in one column."""
    relation = "at least" if "at least" in entry else "at most"
    return {
        "claim": entry["claim"],
        "measured": entry["measured"],
        "needed": f"{relation} {entry[relation]:.5g}",
        "holds": entry["holds"],
        "margin": entry["margin"],
    }


def _main(argv: list[str]) -> None:
    del argv
    workdir = pathlib.Path(flags.FLAGS.workdir)
    if not (workdir / "summary.json").exists():
        sys.stderr.write(f"experiments.figures: {workdir} holds no finished run.\n")
        sys.exit(2)
    config = ConfigDict(json.loads((workdir / "config.json").read_text("utf-8"))["config"])
    for figure in draw(workdir, config_file.load(flags.FLAGS.config), config):
        print(figure)


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "A folder that experiments.run wrote.", required=True)
    flags.DEFINE_string("config", None, "The config file it was run with.", required=True)
    app.run(_main)
