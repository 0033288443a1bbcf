"""Makes docs/results.md anew, from full runs: python -m experiments.results [--only=lasso,theory].

Runs that are finished in ``--workdir`` are only judged and drawn anew; those that need data are
left out unless ``--data`` says where it lies. A run that is left out keeps its section of the page.
"""

import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

from absl import app, flags

from experiments import config_file
from experiments.report import lines
from experiments.study import Study, Sweep

FLAGS = flags.FLAGS
_ROOT = pathlib.Path(__file__).parent.parent


class Run(NamedTuple):
    """One full run that the page reports.

    Attributes:
      name: of its workdir and of its figures.
      config: the config file, without folder and suffix.
      options: overrides, as on the command line.
      heading: what sets it apart from the config's other runs, if it has any.
      data: the folder under ``--data`` that it reads; none for synthetic data.
    """

    name: str
    config: str
    options: tuple[str, ...] = ()
    heading: str = ""
    data: str = ""


RUNS = (
    Run("lasso", "lasso"),
    Run("lasso_64", "lasso", ("--config.num_true=64",), "64 true features"),
    Run("lasso_8", "lasso", ("--config.num_true=8",), "8 true features"),
    Run(
        "lasso_256_clients",
        "lasso",
        ("--config.num_clients=256", "--config.num_examples=32"),
        "256 clients with 32 examples",
    ),
    Run(
        "lasso_pooled",
        "lasso",
        (
            "--config.algorithms=prox_gd,mirror_descent,dual_averaging",
            "--config.server_lr=1.0",
        ),
        "centralised references",
    ),
    Run("low_rank", "low_rank"),
    Run("low_rank_weak", "low_rank", ("--config.penalty_scale=0.1",), "half the penalty"),
    Run(
        "fmri_slice",
        "fmri",
        ("--config.cohort_size=9",),
        "half a slice of one subject",
        "haxby2001_subj1",
    ),
    Run("fmri", "fmri", heading="a surrogate of the full size"),
    Run("fmri_zero", "fmri", ("--config.start_scale=0.0",), "the surrogate, started at zero"),
    Run("emnist_mnist", "emnist", heading="MNIST by writer", data="mnist"),
    Run("emnist", "emnist", heading="synthetic data"),
    Run("recovery_lasso", "recovery_lasso"),
    Run("recovery_low_rank", "recovery_low_rank"),
    Run("recovery_digits", "recovery_digits", data="mnist"),
    Run("kpca", "kpca"),
    Run("kpca_mnist", "kpca", ("--config.num_rounds=500",), "MNIST", data="mnist"),
    Run("matrix_completion", "matrix_completion"),
    Run("fed_gd", "fed_gd"),
    Run("fedpd_feddyn", "fedpd_feddyn"),
    Run("theory", "theory"),
    Run("compare", "compare"),
    Run("saddle", "saddle"),
    Run("sites", "sites"),
)


def section(run: Run, workdir: pathlib.Path, figures: str) -> str:
    """A finished run as markdown."""
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))
    known = json.loads((workdir / "config.json").read_text("utf-8"))
    file = config_file.load(str(_ROOT / "configs" / f"{run.config}.py"))
    entries = summary.get("algorithms", {})
    seconds = summary.get("seconds") or sum(entry["seconds"] for entry in entries.values())
    options = list(run.options) + ([f"--config.data_dir=DIR/{run.data}"] if run.data else [])
    parts = [
        f"## {_title(run, file.experiment)}",
        f"`{' '.join(['--config=configs/' + run.config + '.py', *options])}`. {file.summary} "
        f"{_drawn_from(summary)}",
        f"{known['date']}, {seconds:.0f} s. {_machine(known)}",
        "\n".join(
            f"![{path.stem.replace('_', ' ')}]({figures}/{run.name}_{path.name})"
            for path in sorted((workdir / "figures").glob("*.png"))
        ),
        _table(lines.best_points(summary, _measures(file.experiment))),
        _table(summary.get("best", [])),  # of a study, which has a table of its own
        *lines.edge_warnings(summary),
        _claims("what the source says", lines.claims(summary, source=True)),
        _claims("what we expect", lines.claims(summary, source=False)),
        file.experiment.remarks,
    ]
    return "\n\n".join(part for part in parts if part)


def _title(run: Run, experiment: Sweep | Study) -> str:
    return f"{experiment.title}: {run.heading}" if run.heading else experiment.title


def _machine(known: dict[str, Any]) -> str:
    versions = known["versions"]
    return (
        f"{known['machine']}; fcojax {versions['fcojax']}, Python {versions['python']}, JAX "
        f"{versions['jax']}."
    )


def kept(page: pathlib.Path) -> dict[str, str]:
    """The sections that a page has, by their title."""
    if not page.exists():
        return {}
    _, *sections = page.read_text("utf-8").split("\n## ")
    return {text.split("\n")[0]: f"## {text.strip()}" for text in sections}


def _drawn_from(summary: dict[str, Any]) -> str:
    """The data in words; where they lie on this machine concerns nobody."""
    facts = summary.get("data", "")
    if not isinstance(facts, str):
        pairs = facts[0].items() if facts else ()
        facts = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in pairs) + "."
    return facts.replace(FLAGS.data, "DIR") if FLAGS.data else facts


def _measures(experiment: Sweep | Study) -> list[str]:
    panels = experiment.panels if isinstance(experiment, Sweep) else ()
    return [panel.measure for panel in panels]


def _claims(heading: str, found: list[dict[str, Any]]) -> str:
    return _table(
        [
            {
                heading: entry["claim"] if entry["holds"] is True else f"**{entry['claim']}**",
                **{key: entry[key] for key in ("measured", "95 % interval", "needed")},
                "holds": entry["holds"],
            }
            for entry in found
        ]
    )


def _table(entries: list[dict[str, Any]]) -> str:
    if not entries:
        return ""
    headings = list(dict.fromkeys(key for entry in entries for key in entry))
    texts = [[_cell(entry.get(heading)) for heading in headings] for entry in entries]
    return "\n".join(
        f"| {' | '.join(line)} |" for line in [headings, ["---"] * len(headings), *texts]
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _finish(run: Run, workdir: pathlib.Path) -> None:
    """Runs it, or judges and draws it anew if it is finished, by whichever version."""
    summary = workdir / "summary.json"
    if summary.exists() and json.loads(summary.read_text("utf-8")).get("finished"):
        subprocess.run(
            [
                sys.executable, "-m", "experiments.figures", f"--config=configs/{run.config}.py",
                f"--workdir={workdir.absolute()}",
            ],
            cwd=_ROOT, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return
    options = list(run.options)
    if run.data:
        options.append(f"--config.data_dir={FLAGS.data}/{run.data}")
    subprocess.run(
        [
            sys.executable, "-m", "experiments.run", f"--config=configs/{run.config}.py",
            f"--workdir={workdir.absolute()}", *options,
        ],
        cwd=_ROOT, check=True,
    )  # fmt: skip


def main(argv: list[str]) -> None:
    """Runs what is not finished, and writes the page and its figures."""
    del argv
    chosen = [run for run in RUNS if not FLAGS.only or run.name in FLAGS.only]
    unknown = set(FLAGS.only) - {run.name for run in RUNS}
    if unknown:
        sys.exit(f"experiments.results: there is no run {unknown.pop()}; pass one of "
                 f"{', '.join(run.name for run in RUNS)}.")  # fmt: skip
    folder, page = pathlib.Path(FLAGS.workdir), pathlib.Path(FLAGS.page)
    figures = page.parent / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    before, sections = kept(page), []
    for run in RUNS:
        workdir = folder / run.name
        if run not in chosen or (run.data and not FLAGS.data):
            if run in chosen:
                print(f"{run.name} needs --data, where {run.data} lies; left out.")
            file = config_file.load(str(_ROOT / "configs" / f"{run.config}.py"))
            sections.append(before.get(_title(run, file.experiment), ""))
            continue
        _finish(run, workdir)
        for picture in (workdir / "figures").glob("*.png"):
            shutil.copy(picture, figures / f"{run.name}_{picture.name}")
        sections.append(section(run, workdir, figures.name))
    sections = [text for text in sections if text]
    page.write_text("\n\n".join([_INTRODUCTION, *sections]) + "\n", "utf-8")
    print(f"{len(sections)} runs are in {page}.")


_INTRODUCTION = """# Results

Made by `python -m experiments.results` from full runs. Nothing is tuned by hand: grid, criterion
and seeds are in the config, each algorithm is shown at the best point of its grid, and a star marks
a value on the edge of its grid. Claims are those of the sources, in their words as far as a number
can decide them; what we expect ourselves stands in a table of its own. Where seeds differ the
interval is Student's for the mean of the differences, pair by pair, and all of it has to lie beyond
the threshold: methods that do the same are not better than each other. Claims that do **not** hold
are in bold, with the reason below the table where we found it."""


if __name__ == "__main__":
    flags.DEFINE_string("workdir", "runs", "The folder with one workdir for each run.")
    flags.DEFINE_string("data", "", "The folder with real data sets.")
    flags.DEFINE_list("only", [], "The runs to make; all of them without it.")
    flags.DEFINE_string("page", "docs/results.md", "Where the page goes; figures go beside it.")
    app.run(main)
