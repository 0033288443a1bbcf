"""An experiment that computes its rows itself: closed forms, bounds, tables."""

import pathlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict
from rich.console import Console

from experiments.report import rows as tidy
from experiments.terminal import progress_bars


def study(
    module: ModuleType,
    config: ConfigDict,
    workdir: pathlib.Path,
    console: Console,
    start: Callable[[], None],
) -> dict[str, Any]:
    """Writes the study's rows as they come; returns its summary.

    Rows are cheap to compute and do not resume: an interrupted study starts anew.
    """
    began = time.monotonic()
    start()
    path = workdir / "rows.jsonl"
    path.unlink(missing_ok=True)
    with progress_bars(console) as progress:
        task = progress.add_task("starting", total=None)
        for row in module.study(config):
            tidy.append(path, [row])
            progress.update(task, description=str(row["part"]))
    rows = tidy.load(path)
    summary = module.summarise(config, rows) if hasattr(module, "summarise") else {}
    return summary | {"seconds": round(time.monotonic() - began, 3)}
