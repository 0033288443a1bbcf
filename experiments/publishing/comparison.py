"""Several finished runs of one sweep on one page."""

import json
import pathlib
from typing import Any

from experiments.config.config_file import ConfigFile
from experiments.process.errors import UserError
from experiments.report import page, tables
from experiments.report import rows as tidy
from experiments.report.plots import style
from experiments.report.rows import Row
from experiments.study import Sweep


def gather(workdirs: list[pathlib.Path]) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows and best points of all runs, algorithms named ``FOLDER: ALGORITHM``."""
    rows, entries = [], {}
    for workdir in workdirs:
        summary = json.loads((workdir / "summary.json").read_text("utf-8"))
        for name, entry in summary["algorithms"].items():
            entries[label(workdir, name)] = entry
        for row in tidy.load(workdir / "rows.jsonl"):
            rows.append(row | {"algorithm": label(workdir, row["algorithm"])})
    return rows, {"algorithms": entries}


def label(workdir: pathlib.Path, name: str) -> str:
    """Return the name of a method of one of several runs."""
    return f"{workdir.name}: {style(name)[0]}"


def check_comparable(workdirs: list[pathlib.Path], file: ConfigFile) -> None:
    """Raise ``UserError`` unless the folders hold comparable sweeps and have different names."""
    if not isinstance(file.experiment, Sweep):
        raise UserError("runs side by side are sweeps; a study has figures of its own.")
    names = [workdir.name for workdir in workdirs]
    if len(set(names)) < len(names):
        raise UserError(f"the folders are called {', '.join(names)}; give each a name of its own.")
    criteria = set()
    for workdir in workdirs:
        entries = json.loads((workdir / "summary.json").read_text("utf-8")).get("algorithms")
        if not entries:
            raise UserError(f"{workdir} holds no sweep; pass folders of finished sweeps.")
        criteria |= {json.dumps(entry["criterion"], sort_keys=True) for entry in entries.values()}
    if len(criteria) > 1:
        raise UserError(
            "the runs choose their best points by different criteria: "
            f"{' and '.join(sorted(criteria))}; compare runs with one of them."
        )


def write(
    folder: pathlib.Path,
    workdirs: list[pathlib.Path],
    file: ConfigFile,
    figures: list[page.Shown],
    summary: dict[str, Any],
) -> pathlib.Path:
    """Write the page, with the command of every run; return its path."""
    commands = [
        " ".join(json.loads((workdir / "config.json").read_text("utf-8"))["command"])
        for workdir in workdirs
    ]
    path = folder / "index.html"
    page.write(
        path,
        file.experiment.title,
        "\n".join(commands),
        figures,
        {"best points (a star marks the edge of a grid)": tables.best_points(summary)},
        notes=f"{len(workdirs)} runs side by side: {', '.join(one.name for one in workdirs)}.",
        warnings=tables.edge_warnings(summary),
    )
    return path
