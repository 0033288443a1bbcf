"""Write docs/results.md and the pages in docs/results/ from full runs.

    python -m experiments.publishing.results [--only=lasso,theory]

If a run is finished in ``--workdir``, only its claims and figures are made again. Runs on real data
need ``--data``. Sections of other runs keep their text, and so do remarks, which are edited on the
pages.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

from absl import app, flags

from experiments.config import config_file
from experiments.config.config_file import ConfigFile
from experiments.report import tables
from experiments.report.claims import NOT_DECIDED
from experiments.study import Sweep

FLAGS = flags.FLAGS
_ROOT = pathlib.Path(__file__).parent.parent.parent
_DEFAULTS = "The config's defaults"


class Run(NamedTuple):
    """One full run: a section of the page ``docs/results/CONFIG.md``.

    Attributes:
      name: the name of its workdir, and the first part of its figures' names.
      config: the stem of the config file.
      options: overrides, as on the command line.
      heading: the heading of its section.
      data: the folder under ``--data`` from which it reads; empty for synthetic data.
    """

    name: str
    config: str
    options: tuple[str, ...] = ()
    heading: str = _DEFAULTS
    data: str = ""

    @property
    def file(self) -> ConfigFile:
        """The path of the config file."""
        return config_file.load(str(_ROOT / "configs" / f"{self.config}.py"))


_CROWD = ("--config.num_clients=256", "--config.num_examples=32")
# Three seeds leave intervals that contain the threshold and the mean beyond it.
_TEN_SEEDS = "--config.seeds=0,1,2,3,4,5,6,7,8,9"
_PATTERN = ("--config.strength=pattern", _TEN_SEEDS)
_POOLED = ("--config.algorithms=prox_gd,mirror_descent,dual_averaging", "--config.server_lr=1.0")
_OPTIMISED = (
    "--config.algorithms=fed_dual_avg_adam,fed_dual_avg_lamb,fed_mid_adam,fed_mid_lamb",
    "--config.server_lr=0.001,0.003,0.01,0.03,0.1,0.3,1.0",
    "--config.extend=True",
)
_SLICE = Run(
    "fmri_slice",
    "fmri",
    ("--config.cohort_size=9", "--config.extend=True"),
    "Half a slice of one subject",
    "haxby2001_subj1",
)
_WHOLE = Run(
    "fmri_whole",
    "fmri",
    (*_SLICE.options, "--config.view=wholebrain_25mm"),
    "The whole brain of one subject at 25 mm",
    "haxby2001_subj1",
)
_WIDE = (
    "--config.grid=20,32,32",
    "--config.num_voxels=4989",
    "--config.effect=0.072",
    "--config.smoothing=1.5",
    "--config.num_blobs=8",
)
_FULL = (
    "--config.grid=40,64,64",
    "--config.num_voxels=39912",
    "--config.effect=0.5",
    "--config.smoothing=1.5",
    "--config.num_blobs=8",
    "--config.sessions=12,12,12,12,11,12",
)
# The prox of either takes many steps, so the grids are small and the methods are two.
_DECREASING = (
    "--config.penalty=decreasing",
    "--config.algorithms=fed_dual_avg,fed_mid_osp",
    "--config.client_lr=0.001,0.003,0.01",
    "--config.server_lr=1.0",
    "--config.num_rounds=200",
    "--config.criterion=objective",
    "--config.criterion_goal=min",
)
_VARIATION = (
    "--config.penalty=grid_variation",
    "--config.algorithms=fed_dual_avg,fed_mid_osp,centralized",
    "--config.client_lr=0.03,0.1,0.3",
    "--config.server_lr=1.0,3.0",
)
_DIGITS = (
    "--config.relative_lr=0.2",
    "--config.num_steps=20",
    "--config.num_rounds=250",
    "--config.seeds=0,1,2",
)
_SEEDS = ("--config.seeds=0,1,2",)
_FEATURES = (
    "--config.models=klr,qlr",
    "--config.share_of_writers=0.05",
    "--config.seeds=0,1,2",
)
_CNN = (
    "--config.models=cnn",
    "--config.cnn_filters=32,64",
    "--config.cnn_hidden=512",
    "--config.seeds=0,1,2",
)
# A prox of 5,000 x 100 takes 11 ms, of which FedDualAvg and FedMiD have 26 a round.
_JESTER = (
    "--config.num_users=5000",
    "--config.client_lr=0.03,0.1",
    "--config.server_lr=3.0,10.0",
    "--config.num_rounds=100",
)
_CONCEPTS = (
    "--config.num_features=128",
    "--config.num_classes=10",
    "--config.kept=2,5,10,20,50,128",
)

RUNS = (
    Run("lasso", "lasso"),
    Run("lasso_64", "lasso", ("--config.num_true=64",), "64 true features"),
    Run("lasso_8", "lasso", ("--config.num_true=8",), "8 true features"),
    Run("lasso_256_clients", "lasso", _CROWD, "256 clients with 32 examples"),
    Run("lasso_pattern", "lasso", _PATTERN, "The strength that the pooled solver chooses"),
    Run("lasso_pooled", "lasso", _POOLED, "Centralised references"),
    Run("lasso_server_optimisers", "lasso", _OPTIMISED, "Adam and LAMB on the server"),
    Run("lasso_decreasing", "lasso", _DECREASING, "Decreasing weights in place of sparse ones"),
    Run("low_rank", "low_rank"),
    Run("low_rank_4", "low_rank", ("--config.true_rank=4", _TEN_SEEDS), "A true matrix of rank 4"),
    Run("low_rank_1", "low_rank", ("--config.true_rank=1",), "A true matrix of rank 1"),
    Run("low_rank_256_clients", "low_rank", _CROWD, "256 clients with 32 examples"),
    Run("low_rank_weak", "low_rank", ("--config.penalty_scale=0.1",), "Half the penalty"),
    _SLICE,
    _WHOLE,
    Run("fmri_calibrated", "fmri", heading="A surrogate on which one session carries signal"),
    Run("fmri_wide", "fmri", _WIDE, "A surrogate with more voxels than scans"),
    Run("fmri_full", "fmri", _FULL, "A surrogate of the full size"),
    Run(
        "fmri_zero", "fmri", (*_FULL, "--config.start_scale=0.0"), "The surrogate, started at zero"
    ),
    Run("fmri_variation", "fmri", _VARIATION, "Total variation of the voxels in place of l1"),
    Run("voxels", "voxels", heading="The surrogate, whose voxels are known"),
    Run("voxels_slice", "voxels", heading="Half a slice of one subject", data="haxby2001_subj1"),
    Run("emnist_mnist", "emnist", heading="MNIST by writer", data="mnist"),
    Run("emnist", "emnist", heading="Synthetic data"),
    Run("emnist_features", "emnist", _FEATURES, "Random and quadratic features", "mnist"),
    # Seven hours on two cores.
    Run("emnist_cnn", "emnist", _CNN, "The CNN at its published size", "mnist"),
    Run("recovery_lasso", "recovery_lasso"),
    Run("recovery_low_rank", "recovery_low_rank"),
    Run("recovery_digits", "recovery_digits", _SEEDS, "MNIST by writer, three seeds", data="mnist"),
    Run("kpca", "kpca"),
    Run("kpca_mnist", "kpca", _DIGITS, "MNIST", data="mnist"),
    Run("matrix_completion", "matrix_completion"),
    Run("jester", "matrix_completion", _JESTER, "Jester, all 5,000 users", "jester5k"),
    Run("fed_gd", "fed_gd"),
    Run("fed_gd_credit", "fed_gd", heading="German credit", data="libsvm"),
    Run("fedpd_feddyn", "fedpd_feddyn"),
    Run("theory", "theory"),
    Run("compare", "compare"),
    Run("compress", "compress"),
    Run("compress_digits", "compress_digits"),
    Run("compress_network", "compress_network", data="mnist"),
    Run("concepts", "concepts"),
    Run("concepts_mnist", "concepts", _CONCEPTS, "Features of a network trained on MNIST", "mnist"),
    Run("private", "private"),
    Run("robust", "robust"),
    Run("saddle", "saddle"),
    Run("sites", "sites"),
    Run("flamby", "flamby", data="flamby"),
)


_CONFIGS = list(dict.fromkeys(run.config for run in RUNS))


def section(run: Run, workdir: pathlib.Path, figures: str) -> str:
    """Return the section of a finished run as Markdown; ``figures`` is the folder it links to."""
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))
    known = json.loads((workdir / "config.json").read_text("utf-8"))
    experiment = run.file.experiment
    entries = summary.get("algorithms", {})
    seconds = summary.get("seconds") or sum(entry["seconds"] for entry in entries.values())
    options = list(run.options) + ([f"--config.data_dir=DIR/{run.data}"] if run.data else [])
    panels = experiment.panels if isinstance(experiment, Sweep) else ()
    parts = [
        f"## {run.heading}",
        f"`{' '.join(['--config=configs/' + run.config + '.py', *options])}`. {run.file.summary} "
        f"{_describe_data(summary)}",
        f"{known['date']}, {seconds:.0f} s. {_machine(known)}",
        "\n".join(
            f"![{path.stem.replace('_', ' ')}]({figures}/{run.name}_{path.name})"
            for path in sorted((workdir / "figures").glob("*.png"))
        ),
        _table(tables.best_points(summary, [panel.measure for panel in panels])),
        *_tables(experiment, summary),
        _claims("what the source says", tables.claims(summary, source=True)),
        _claims("what we expect", tables.claims(summary, source=False)),
    ]
    return "\n\n".join(part for part in parts if part)


def _tables(experiment: Any, summary: dict[str, Any]) -> list[str]:
    """Return a study's own tables, which it prints under their names."""
    printed = () if isinstance(experiment, Sweep) else experiment.printed
    named = [f"### {name}\n\n{_table(summary[name])}" for name in printed if summary.get(name)]
    return [*(_table(summary.get(name, [])) for name in ("best", "methods")), *named]


def _machine(known: dict[str, Any]) -> str:
    versions = known["versions"]
    return (
        f"{known['machine']}; fcojax {versions['fcojax']}, Python {versions['python']}, JAX "
        f"{versions['jax']}."
    )


def sections_of(page: pathlib.Path) -> dict[str, str]:
    """Return the sections of a page by heading; an empty dictionary if there is no page."""
    if not page.exists():
        return {}
    _, *sections = page.read_text("utf-8").split("\n## ")
    return {text.split("\n")[0]: f"## {text.strip()}" for text in sections}


def _describe_data(summary: dict[str, Any]) -> str:
    """Return the data in words, with this machine's data folder written as DIR."""
    facts = summary.get("data", "")
    if not isinstance(facts, str):
        pairs = facts[0].items() if facts else ()
        facts = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in pairs) + "."
    return facts.replace(FLAGS.data, "DIR") if FLAGS.data else facts


def _claims(heading: str, found: list[dict[str, Any]]) -> str:
    return _table(
        [
            {
                heading: f"**{entry['claim']}**" if entry["holds"] is False else entry["claim"],
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


def index(folder: pathlib.Path) -> str:
    """Return the page that links the pages in ``folder`` and counts the claims that hold."""
    lines, total = [], []
    names = [name for name in _CONFIGS if (folder / f"{name}.md").exists()]
    for name in names:
        text = (folder / f"{name}.md").read_text("utf-8")
        of_source = re.findall(r"\| what the source says \|.*\n((?:\|.*\n?)+)", text)
        words = rf"\| (yes|\*\*no\*\*|{NOT_DECIDED}) \|$"
        verdicts = re.findall(words, "\n".join(of_source), re.M)
        dates = re.findall(r"^(\d{4}-\d\d-\d\d), \d+ s\.", text, re.M)
        title = text.partition("\n")[0].removeprefix("# ")
        lines.append(
            {
                "study": f"[{title}]({folder.name}/{name}.md)",
                "runs": len(dates),
                "last run": max(dates, default=""),
                "claims of the source": len(verdicts),
                "that hold": verdicts.count("yes"),
                NOT_DECIDED: verdicts.count(NOT_DECIDED),
            }
        )
        total += verdicts
    pages = "\n".join(f"{folder.name}/{name}" for name in names)
    return (
        f"{_INTRODUCTION}\n\nOf the {len(total)} claims {total.count('yes')} hold and "
        f"{total.count(NOT_DECIDED)} are not decided.\n\n{_table(lines)}\n\n"
        f"```{{toctree}}\n:hidden:\n{pages}\n```\n"
    )


def _finish(run: Run, workdir: pathlib.Path) -> None:
    """Compute a run; if it is finished, compute only its claims and figures."""
    summary = workdir / "summary.json"
    module, options = "experiments.run", list(run.options)
    if run.data:
        options.append(f"--config.data_dir={FLAGS.data}/{run.data}")
    if summary.exists() and json.loads(summary.read_text("utf-8")).get("finished"):
        module, options = "experiments.publishing.figures", []
    subprocess.run(
        [
            sys.executable,
            "-m",
            module,
            f"--config=configs/{run.config}.py",
            f"--workdir={workdir.absolute()}",
            *options,
        ],
        cwd=_ROOT,
        check=True,
    )


def main(argv: list[str]) -> None:
    """Run the chosen experiments, and write their pages, their figures and the index."""
    del argv
    unknown = set(FLAGS.only) - {run.name for run in RUNS}
    if unknown:
        sys.exit(
            f"experiments.publishing.results: there is no run {unknown.pop()}; pass one of "
            f"{', '.join(run.name for run in RUNS)}."
        )
    page = pathlib.Path(FLAGS.page)
    folder, figures = page.parent / page.stem, page.parent / "figures"
    for made in (folder, figures):
        made.mkdir(parents=True, exist_ok=True)
    for name in _CONFIGS:
        runs = [run for run in RUNS if run.config == name]
        sections = sections_of(folder / f"{name}.md")
        for run in runs:
            if FLAGS.only and run.name not in FLAGS.only:
                continue
            if run.data and not FLAGS.data:
                print(f"{run.name} skipped: pass the folder that has {run.data} as --data.")
                continue
            workdir = pathlib.Path(FLAGS.workdir) / run.name
            _finish(run, workdir)
            for picture in (workdir / "figures").glob("*.png"):
                shutil.copy(picture, figures / f"{run.name}_{picture.name}")
            sections[run.heading] = section(run, workdir, f"../{figures.name}")
        write_page(folder / f"{name}.md", runs, sections)
    page.write_text(index(folder), "utf-8")
    print(f"The results are in {page} and {folder}.")


def write_page(path: pathlib.Path, runs: list[Run], sections: dict[str, str]) -> None:
    """Write a config's page: its title, the sections of its runs, and the remarks already on it."""
    kept = [*(run.heading for run in runs), "Remarks"]
    texts = [sections[heading] for heading in kept if heading in sections]
    if texts:
        path.write_text("\n\n".join([f"# {runs[0].file.experiment.title}", *texts]) + "\n", "utf-8")


_INTRODUCTION = """# Results

Full runs of all configs except `select` and `text`, written by \
`python -m experiments.publishing.results`.
Rates are not chosen by hand: each algorithm is shown at the best point of its grid, by the \
criterion of the config.
A star marks a value at the edge of the grid.
The remarks of a page say which problem sizes, run lengths and grids were changed after a first \
run.
A support or a rank is final from the first evaluation after which it stays the same in every \
seed; it is not final if it changes at the last evaluation, or if a run diverged.

Claims of the sources are quoted in the sources' words, as far as they can be decided numerically.
Claims of our own are in a separate table.
A claim about a difference holds if the whole 95 % interval (Student's t) of the differences \
paired by seed is beyond the threshold; a tie does not count.
One or two seeds do not decide it.
Claims without an interval are about one number: an exact method, a bound, or a best rate.
Claims that do **not** hold are in bold, with the reason in the remarks if it is known."""


if __name__ == "__main__":
    flags.DEFINE_string("workdir", "runs", "The folder with one workdir for each run.")
    flags.DEFINE_string("data", "", "The folder with real data sets.")
    flags.DEFINE_list("only", [], "The runs; all by default.")
    flags.DEFINE_string(
        "page", "docs/results.md", "The index; pages and figures are written beside it."
    )
    app.run(main)
