"""Write docs/results.md and the pages in docs/results/ from full runs.

    fcojax results [--only=lasso,theory] [--stored]

For a run that is finished in ``--workdir`` only the claims and the figures are made again; with
``--stored`` nothing else is computed. Runs on real data need ``--data``. Other runs keep their
columns and sections, and the reasons and remarks that are written on the pages stay.
"""

import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

from absl import app, flags

from experiments.publishing import pages
from experiments.publishing.runs import RUNS, Run

FLAGS = flags.FLAGS
_ROOT = pathlib.Path(__file__).parent.parent.parent


def _finished(workdir: pathlib.Path) -> bool:
    summary = workdir / "summary.json"
    return summary.exists() and json.loads(summary.read_text("utf-8")).get("finished", False)


def _finish(run: Run, workdir: pathlib.Path) -> None:
    """Compute a run; if it is finished, compute only its claims and figures."""
    module, options = "experiments.run", list(run.options)
    if run.data:
        options.append(f"--config.data_dir={FLAGS.data}/{run.data}")
    if _finished(workdir):
        module, options = "experiments.publishing.figures", []
    subprocess.run(
        [
            sys.executable,
            "-m",
            module,
            f"--config={run.path}",
            f"--workdir={workdir.absolute()}",
            *options,
        ],
        cwd=_ROOT,
        check=True,
    )


def main(argv: list[str], all_runs: Sequence[Run] = RUNS) -> None:
    """Run the chosen experiments, and write their pages, their figures and the index."""
    del argv
    unknown = set(FLAGS.only) - {run.name for run in all_runs}
    if unknown:
        sys.exit(
            f"experiments.publishing.results: there is no run {unknown.pop()}; pass one of "
            f"{', '.join(run.name for run in all_runs)}."
        )
    page = pathlib.Path(FLAGS.page)
    folder, figures = page.parent / page.stem, page.parent / "figures"
    for made in (folder, figures):
        made.mkdir(parents=True, exist_ok=True)
    claims = pages.read_claims(folder)
    for name in pages.configs_of(all_runs):
        runs = [run for run in all_runs if run.config == name]
        kept = pages.read_page(folder / f"{name}.md")
        for run in runs:
            if FLAGS.only and run.name not in FLAGS.only:
                continue
            workdir = pathlib.Path(FLAGS.workdir) / run.name
            if FLAGS.stored and not _finished(workdir):
                continue
            if run.data and not FLAGS.data:
                print(f"{run.name} skipped: pass the folder that has {run.data} as --data.")
                continue
            _finish(run, workdir)
            for drawn in (workdir / "figures").glob("*.p[nd][gf]"):
                shutil.copy(drawn, figures / f"{run.name}_{drawn.name}")
            kept.sections[run.heading] = pages.section(
                run, workdir, figures, FLAGS.data, on_top=run is runs[0]
            )
            summary = json.loads((workdir / "summary.json").read_text("utf-8"))
            claims[run.name] = summary["claims"]
        for text in pages.write_page(folder / f"{name}.md", runs, claims, kept, figures):
            print(f"{name}.md gives no reason for: {text}")
    pages.write_claims(folder, claims, all_runs)
    page.write_text(pages.index(folder, all_runs), "utf-8")
    print(f"The results are in {page} and {folder}.")


def define_flags(page: str = "docs/results.md") -> None:
    """Define the flags, with the index that is written."""
    flags.DEFINE_string("workdir", "runs", "The folder with one workdir for each run.")
    flags.DEFINE_string("data", "", "The folder with real data sets.")
    flags.DEFINE_list("only", [], "The runs; all by default.")
    flags.DEFINE_bool("stored", False, "Only the runs that are finished in --workdir.")
    flags.DEFINE_string("page", page, "The index; pages and figures are written beside it.")


if __name__ == "__main__":
    define_flags()
    app.run(main)
