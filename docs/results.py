"""Writes results.md and the pages in results/ from full runs.

    python docs/results.py [--only=lasso,theory] [--stored] [--data=FOLDER]

The runs are those of results/runs.toml. Of a run that is finished in --workdir
only the claims and the figures are made again; with --stored nothing else is
computed. Other runs keep their columns and sections. What is written by hand
stays: on a page the reasons for statements that do not hold, as
``- **statement** (kind): reason``, and the remarks; in results.md what is above
and below the table.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

import fcojax.experiments  # noqa: F401  puts the launcher on the path
from experiments.config import config_file
from experiments.config.config_file import ConfigFile
from experiments.report import tables
from experiments.report.claims import NOT_DECIDED
from experiments.report.tables import Statement, author, lines, statements
from experiments.study import Sweep
from fcojax.__main__ import LAUNCHER, configs

Claims = dict[str, list[dict[str, Any]]]  # by the name of the run

_LONG = 900  # seconds above which a run is marked
_FEW = 3  # statements that need data are named if they are no more
_ELSEWHERE = (
    "The same statements in settings of our own, which show how far they carry "
    "and are not counted."
)
_OURS = "Statements of our own, in all runs."
# The five sources of the project: the paper on federated composite
# optimisation; the lecture, with the theorem it shows; the paper on
# submanifolds; FedPD; and the note on FedPD and FedDyn, with FedDyn.
_FIVE = (
    "Yuan, Zaheer and Reddi",
    "lecture on FedGD",
    "Li, Huang, Yang, Wang and Zhang",
    "Zhang, Hu, So and Johansson",
    "Zhang et al. (IEEE TSP 2021)",
    "note on FedPD and FedDyn",
    "Acar et al.",
)
# What came out of a statement, of which all but the first are kinds of reasons.
HOLDS, FAILS, UNDECIDED = "holds", "fails", NOT_DECIDED
THE_SOURCES, NEEDS_DATA = "the source's", "needs data"
_COUNTED = {
    HOLDS: ("holds", "hold"),
    THE_SOURCES: (
        "fails for a reason of its source",
        "fail for a reason of their source",
    ),
    NEEDS_DATA: (
        "needs data that cannot be had",
        "need data that cannot be had",
    ),
    UNDECIDED: ("is not decided", "are not decided"),
    FAILS: ("fails", "fail"),
}
KINDS = [*_COUNTED][1:]
_NEED_DATA = (
    "is about data that cannot be had",
    "are about data that cannot be had",
)
_REASON = re.compile(r"^- \*\*(.+?)\*\* \(([^)]*)\): (.+)$", re.M)
_COUNTS = re.compile(
    r"^Of the \d+ statements .*?^```\{toctree\}.*?^```\n", re.M | re.S
)


class Run(NamedTuple):
    """One full run; ``results/runs.toml`` says what the fields mean."""

    name: str
    config: str
    options: Sequence[str] = ()
    heading: str = "The run"
    data: str = ""
    reported: bool = True
    instead_of: str = ""
    figure: str = "curves"
    cost: str = ""

    @property
    def path(self) -> pathlib.Path:
        """The path of the config file."""
        return configs()[self.config]

    @property
    def file(self) -> ConfigFile:
        """The config file."""
        return config_file.load(str(self.path))


class Page(NamedTuple):
    """What stays: sections by heading, reasons by statement, and remarks."""

    sections: dict[str, str]
    reasons: dict[str, tuple[str, str]]
    remarks: str


def read_runs(folder: pathlib.Path) -> list[Run]:
    """Return the runs whose pages are in a folder, in order."""
    listed = tomllib.loads((folder / "runs.toml").read_text("utf-8"))
    return [Run(name, **fields) for name, fields in listed.items()]


def configs_of(runs: Sequence[Run]) -> list[str]:
    """Return the configs of runs, in their order."""
    return list(dict.fromkeys(run.config for run in runs))


def summary_of(workdir: pathlib.Path) -> dict[str, Any]:
    """Return the summary of a run; an empty one if there is none."""
    path = workdir / "summary.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def is_finished(workdir: pathlib.Path) -> bool:
    """Return whether a run is finished."""
    return summary_of(workdir).get("finished", False)


def command_of(run: Run) -> str:
    """Return what follows ``python -m experiments.run``, with DIR for data."""
    data = [f"--config.data_dir=DIR/{run.data}"] if run.data else []
    return " ".join([f"--config=configs/{run.config}.py", *run.options, *data])


def section(
    run: Run,
    workdir: pathlib.Path,
    figures: pathlib.Path,
    data: str = "",
    on_top: bool = False,
) -> str:
    """Return the section of a finished run: command, figures and tables.

    The folder of real data is written as DIR; the figure on top of the page is
    left out.
    """
    summary, experiment = summary_of(workdir), run.file.experiment
    known = json.loads((workdir / "config.json").read_text("utf-8"))
    facts = summary.get("data", "")
    if not isinstance(facts, str):
        pairs = facts[0].items() if facts else ()
        told = [
            f"{name.replace('_', ' ')}: {tables.cell(value)}"
            for name, value in pairs
        ]
        facts = f"{', '.join(told)}." if told else ""
    seconds, versions = tables.seconds_of(summary), known["versions"]
    long = ", more than a quarter of an hour" if seconds > _LONG else ""
    panels = experiment.panels if isinstance(experiment, Sweep) else ()
    printed = () if isinstance(experiment, Sweep) else experiment.printed
    parts = [
        f"### {run.heading}",
        f"`{command_of(run)}`. {run.file.summary} "
        f"{facts.replace(data, 'DIR') if data else facts}",
        f"{known['date']}, {seconds:.0f} s{long}. {known['machine']}; "
        f"fcojax {versions['fcojax']}, Python {versions['python']}, "
        f"JAX {versions['jax']}.",
        "\n".join(
            picture(figures, f"{run.name}_{path.stem}")
            for path in sorted((workdir / "figures").glob("*.png"))
            if not (on_top and path.stem == run.figure)
        ),
        narrow(
            tables.best_points(summary, [panel.measure for panel in panels])
        ),
        *(narrow(summary.get(name, [])) for name in ("best", "methods")),
        *(
            f"#### {name}\n\n{narrow(summary[name])}"
            for name in printed
            if summary.get(name)
        ),
    ]
    return "\n\n".join(part.strip() for part in parts if part)


def picture(figures: pathlib.Path, stem: str) -> str:
    """Return a figure in Markdown, which links to its PDF if there is one."""
    shown = f"![{stem.replace('_', ' ')}](../{figures.name}/{stem}.png)"
    linked = (figures / f"{stem}.pdf").exists()
    return f"[{shown}](../{figures.name}/{stem}.pdf)" if linked else shown


def narrow(entries: Sequence[dict[str, Any]]) -> str:
    """Return a table, and a sentence for columns that are the same for all.

    Example:
      >>> print(narrow([{"method": name, "strength": 1} for name in "ab"]))
      | method |
      | --- |
      | a |
      | b |
      <BLANKLINE>
      For all: strength 1.
    """
    names = dict.fromkeys(name for entry in entries for name in entry)
    values = {
        name: {tables.cell(entry.get(name)) for entry in entries}
        for name in names
    }
    same = [
        name for name in names if len(entries) > 1 and len(values[name]) == 1
    ]
    facts = [
        f"{name} {value}" for name in same for value in values[name] - {"-"}
    ]
    left = {*same, "seconds", "diverged"}
    rows = [
        {k: entry.get(k) for k in names if k not in left} for entry in entries
    ]
    return tables.markdown(rows) + (
        f"\n\nFor all: {', '.join(facts)}." if facts else ""
    )


def read_page(path: pathlib.Path) -> Page:
    """Return what stays on a page; empty if there is no page."""
    text = path.read_text("utf-8") if path.exists() else ""
    body, _, remarks = text.partition("\n## Remarks\n")
    _, *sections = body.partition("\n## Runs\n")[2].split("\n### ")
    return Page(
        {own.split("\n")[0]: f"### {own.strip()}" for own in sections},
        {words: (kind, why) for words, kind, why in _REASON.findall(body)},
        remarks.strip(),
    )


def columns(
    runs: Sequence[Run], claims: Claims, source: bool
) -> dict[str, list[dict[str, Any]]]:
    """Return the claims by column: a run, or one of its cases."""
    by_run = {
        run.heading: tables.by_case(claims.get(run.name, []), source)
        for run in runs
    }
    by_run = {heading: cases for heading, cases in by_run.items() if cases}
    found = {}
    for heading, cases in by_run.items():
        for case, own in cases.items():
            name = heading if len(cases) == 1 else f"{heading}: {case}"
            found[name if len(by_run) > 1 else case] = own
    return found


def outcomes(runs: Sequence[Run], claims: Claims, page: Page) -> dict[str, str]:
    """Return the outcome of each statement that runs of its setting decide."""
    reported = [run for run in runs if run.reported]
    own = [run for run in reported if not run.instead_of]
    names = (
        columns(own, claims, source=True) if len(own) == len(reported) else {}
    )
    return {
        one.text: outcome(
            one, list(names), page.reasons.get(one.text, ("", ""))[0]
        )
        for one in statements(columns(reported, claims, source=True))
    }


def verdict(statement: Statement, reported: Sequence[str]) -> str:
    """Return whether a statement holds, fails or is not decided.

    In these columns one case that refutes it makes it fail, and one that is
    open leaves it undecided.
    """
    cells = statement.cells
    found = {cells[name][0] for name in reported if name in cells}
    if False in found:
        return FAILS
    return UNDECIDED if None in found or not found else HOLDS


def outcome(statement: Statement, reported: Sequence[str], kind: str) -> str:
    """Return what came out of a statement of a source.

    Args:
      statement: the statement.
      reported: the columns whose setting and data are the source's.
      kind: the kind of the reason that is written for it, if there is one.
    """
    if not any(name in statement.cells for name in reported):
        return UNDECIDED if kind == UNDECIDED else NEEDS_DATA
    found = verdict(statement, reported)
    return kind if found == FAILS and kind in KINDS else found


def told(outcomes: dict[str, str], reasons: dict[str, str]) -> str:
    """Return what came out, in a sentence for each outcome.

    Of the reasons for what does not hold, the first clause is told.

    Example:
      >>> told({"a is ahead": HOLDS, "b": FAILS}, {"b": "it is dense; see"})
      'Of 2 statements 1 holds. One fails: "b" (it is dense).'
    """
    by_kind = {
        kind: [text for text, found in outcomes.items() if found == kind]
        for kind in (HOLDS, THE_SOURCES, FAILS, UNDECIDED, NEEDS_DATA)
    }
    words = _COUNTED | {NEEDS_DATA: _NEED_DATA}
    held, count = len(by_kind[HOLDS]), len(outcomes)
    if count > 1 and len({*outcomes.values()}) == 1:
        return (
            f"All {count} statements {words[next(iter(outcomes.values()))][1]}."
        )
    statements = "statements" if count > 1 else "statement"
    parts = [
        f"Of {count} {statements} {held or 'none'} {words[HOLDS][held > 1]}."
    ]
    for kind, texts in by_kind.items():
        if not texts or kind == HOLDS:
            continue
        if kind == NEEDS_DATA and len(texts) > _FEW:
            parts.append(f"{len(texts)} {words[kind][1]}.")
            continue
        number = ("One", "Two", "Three")[len(texts) - 1 :][:1]
        quoted = []
        for text in texts:
            why = re.split(r"[;:]\s|\.(?:\s|$)", reasons.get(text, ""))[0]
            quoted.append(f'"{text}" ({why})' if why else f'"{text}"')
        parts.append(
            f"{''.join(number) or len(texts)} {words[kind][len(texts) > 1]}: "
            f"{', '.join(quoted)}."
        )
    return " ".join(parts)


def write_page(
    path: pathlib.Path,
    runs: Sequence[Run],
    claims: Claims,
    page: Page,
    figures: pathlib.Path,
) -> list[str]:
    """Write a config's page; return statements that fail without a reason."""
    known = [run for run in runs if run.heading in page.sections]
    if not known:
        return []
    theirs = [run for run in known if run.reported]
    others = [run for run in known if not run.reported]
    source = statements(columns(theirs, claims, source=True))
    elsewhere = statements(columns(others, claims, source=True))
    ours = statements(columns(known, claims, source=False))
    parts = [
        f"# {runs[0].file.experiment.title}",
        _verdict(outcomes(known, claims, page), page, source, ours, theirs),
        picture(figures, f"{runs[0].name}_{runs[0].figure}"),
    ]
    explained: dict[str, str] = {}
    for heading, who, found in (
        ("## What the source says", _source(source), source),
        ("## What we add", _ELSEWHERE, elsewhere),
        ("" if elsewhere else "## What we add", _OURS, ours),
    ):
        reasons = {
            one.text: ""
            for one in found
            if not _holds(one) and one.text not in explained
        }
        for text, (kind, why) in page.reasons.items():
            if text in reasons:
                reasons[text] = f"- **{text}** ({kind}): {why}"
        explained |= reasons
        table = re.sub(
            r"\| no(?=[:,] )", "| **no**", tables.markdown(lines(found))
        )
        parts += (
            [heading, who, table, "\n".join(filter(None, reasons.values()))]
            if found
            else []
        )
    lacking = [
        f"{run.heading} ({run.cost})" if run.cost else run.heading
        for run in runs
        if run not in known
    ]
    parts += ["## Runs", f"Not run: {'; '.join(lacking)}." if lacking else ""]
    parts += [page.sections[run.heading] for run in known]
    parts += ["## Remarks", page.remarks] if page.remarks else []
    path.write_text("\n\n".join(part for part in parts if part) + "\n", "utf-8")
    return [text for text, reason in explained.items() if not reason]


def _holds(one: Statement) -> bool:
    return verdict(one, list(one.cells)) == HOLDS


def _source(found: Sequence[Statement]) -> str:
    """Return who makes the statements, and where, if it is the same for all."""
    places, authors = (
        {one.source for one in found},
        {author(one.source) for one in found},
    )
    told = "".join(
        places if len(places) == 1 else authors if len(authors) == 1 else ()
    )
    return f"{told[0].upper()}{told[1:]}." if told else ""


def _verdict(
    found: dict[str, str],
    page: Page,
    source: Sequence[Statement],
    ours: Sequence[Statement],
    theirs: Sequence[Run],
) -> str:
    """Return what came out, in a few sentences."""
    parts = []
    if found:
        parts.append(
            told(found, {text: why for text, (_, why) in page.reasons.items()})
        )
        if lacking := list(
            dict.fromkeys(run.instead_of for run in theirs if run.instead_of)
        ):
            held = f"{sum(map(_holds, source))} of {len(source)} hold"
            data = " and ".join(lacking)
            parts.append(f"Without {data}, {held} on what stands in.")
    if ours:
        held = f"{sum(map(_holds, ours))} of {len(ours)} hold in every run."
        parts.append(f"Of what we expected, {held}")
    return " ".join(parts)


def index(folder: pathlib.Path, all_runs: Sequence[Run]) -> str:
    """Return the page that links the pages and counts the statements."""
    claims, entries, total, pages = read_claims(folder), [], [], ""
    five: list[str] = []
    for name in configs_of(all_runs):
        path = folder / f"{name}.md"
        if not path.exists():
            continue
        text = path.read_text("utf-8")
        runs = [run for run in all_runs if run.config == name]
        by_text = outcomes(runs, claims, read_page(path))
        reported = columns([one for one in runs if one.reported], claims, True)
        five += [
            by_text[one.text]
            for one in statements(reported)
            if one.source.startswith(_FIVE)
        ]
        found = list(by_text.values())
        made = re.findall(r"^(\d{4}-\d\d-\d\d), (\d+) s", text, re.M)
        title = text.partition("\n")[0].removeprefix("# ")
        entries.append(
            {
                "study": f"[{title}]({folder.name}/{name}.md)",
                "statements of the source": len(found),
                **{
                    words[1]: found.count(kind)
                    for kind, words in _COUNTED.items()
                },
                "seconds": _seconds([int(seconds) for _, seconds in made]),
                "last run": max((date for date, _ in made), default=""),
            }
        )
        total += found
        pages += f"{folder.name}/{name}\n"
    counts = ", ".join(
        f"{number} {words[number > 1]}"
        for kind, words in _COUNTED.items()
        if (number := total.count(kind))
    )
    held, all_held = five.count(HOLDS), total.count(HOLDS)
    new = f"Of the {len(total)} statements {counts}.\n"
    if five:
        new += (
            f"{len(five)} of them are from the five sources of the project, of "
            f"which {held} hold, and {len(total) - len(five)} from other "
            f"papers, of which {all_held - held} hold.\n"
        )
    new += f"\n{tables.markdown(entries)}\n\n"
    new += f"```{{toctree}}\n:hidden:\n{pages}```\n"
    page = folder.with_suffix(".md")
    known = page.read_text("utf-8") if page.exists() else ""
    if not _COUNTS.search(known):
        return f"# Results\n\n{new}"
    return _COUNTS.sub(lambda _: new, known, count=1)


def _seconds(of_runs: Sequence[int]) -> str:
    """Return the seconds of all runs together, those of a long one in bold."""
    told, longest = f"{sum(of_runs)}", max(of_runs, default=0)
    if len(of_runs) < 2:
        return f"**{told}**" if longest > _LONG else told
    return f"{told} in {len(of_runs)} runs" + f", the longest **{longest}**" * (
        longest > _LONG
    )


def read_claims(folder: pathlib.Path) -> Claims:
    """Return the claims of all runs whose pages are in a folder."""
    path = folder / "claims.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write_claims(
    folder: pathlib.Path, claims: Claims, all_runs: Sequence[Run]
) -> None:
    """Write the claims of all runs, one a line, in the order of the runs."""
    runs = [
        f" {json.dumps(run.name)}: [\n  "
        + ",\n  ".join(json.dumps(entry) for entry in claims[run.name])
        + "\n ]"
        for run in all_runs
        if claims.get(run.name)
    ]
    (folder / "claims.json").write_text(
        "{\n" + ",\n".join(runs) + "\n}\n", "utf-8"
    )


def _finish(run: Run, workdir: pathlib.Path, data: str) -> None:
    """Compute a run; if it is finished, compute only its claims and figures.

    A finished run with another config than that of its command is refused.
    """
    options, finished = list(run.options), is_finished(workdir)
    if run.data:
        options.append(f"--config.data_dir={data}/{run.data}")
    given = [f"--config={run.path}", f"--workdir={workdir.absolute()}"]
    resume = ["--resume=anyway"] if finished else []
    commands = [["experiments.run", *given, *options, *resume]]
    if finished:
        commands.append(["experiments.publishing.figures", *given])
    for command in commands:
        subprocess.run(
            [sys.executable, "-m", *command], cwd=LAUNCHER, check=True
        )


def write_pages(given: argparse.Namespace) -> None:
    """Make the chosen runs; write their pages, their figures and the index."""
    folder, figures = (
        given.page.parent / given.page.stem,
        given.page.parent / "figures",
    )
    all_runs = read_runs(folder)
    if unknown := {*given.only} - {run.name for run in all_runs}:
        sys.exit(f"there is no run {unknown.pop()} in {folder / 'runs.toml'}.")
    figures.mkdir(exist_ok=True)
    claims = read_claims(folder)
    for name in configs_of(all_runs):
        runs = [run for run in all_runs if run.config == name]
        kept = read_page(folder / f"{name}.md")
        for run in runs:
            workdir = given.workdir / run.name
            if given.only and run.name not in given.only:
                continue
            if given.stored and not is_finished(workdir):
                continue
            if run.data and not given.data:
                print(
                    f"{run.name} needs {run.data}: pass its folder as --data."
                )
                continue
            _finish(run, workdir, given.data)
            for drawn in (workdir / "figures").glob("*.p[nd][gf]"):
                shutil.copy(drawn, figures / f"{run.name}_{drawn.name}")
            on_top = run is runs[0]
            kept.sections[run.heading] = section(
                run, workdir, figures, given.data, on_top
            )
            claims[run.name] = summary_of(workdir)["claims"]
        for text in write_page(
            folder / f"{name}.md", runs, claims, kept, figures
        ):
            print(f"{name}.md gives no reason for: {text}")
    write_claims(folder, claims, all_runs)
    given.page.write_text(index(folder, all_runs), "utf-8")
    print(f"The results are in {given.page} and {folder}.")


def main() -> None:
    """Read the command line, and write the pages."""
    parser = argparse.ArgumentParser(prog="python docs/results.py")
    add = parser.add_argument
    add(
        "--workdir",
        type=pathlib.Path,
        default="runs",
        help="the folder of the runs",
    )
    add("--data", default="", help="the folder of real data sets")
    add(
        "--only",
        type=lambda names: names.split(","),
        default=[],
        help="the runs: a,b",
    )
    add("--stored", action="store_true", help="only the runs that are finished")
    add(
        "--page",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_suffix(".md"),
        help="the index of the pages",
    )
    write_pages(parser.parse_args())


if __name__ == "__main__":
    main()
