"""The pages of results in Markdown: statements on top, runs with their tables below.

What is written by hand stays on a page when it is written again: the reasons for statements that
do not hold, as ``- **statement** (kind): reason``, and the remarks.
"""

import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.publishing.runs import Run
from experiments.report import tables
from experiments.report.statements import (
    FAILS,
    HOLDS,
    NEEDS_DATA,
    THE_SOURCES,
    UNDECIDED,
    Statement,
    author,
    lines,
    outcome,
    statements,
    told,
)
from experiments.study import Sweep

_LONG = 900  # seconds above which a run is marked


def section(
    run: Run, workdir: pathlib.Path, figures: pathlib.Path, data: str = "", on_top: bool = False
) -> str:
    """Return the section of a finished run as Markdown: its command, its figures and its tables.

    Args:
      run: the run.
      workdir: its folder.
      figures: the folder of the figures, beside that of the pages.
      data: the folder of real data, written as DIR.
      on_top: whether the run's figure is on top of the page.
    """
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))
    known = json.loads((workdir / "config.json").read_text("utf-8"))
    experiment = run.file.experiment
    entries = summary.get("algorithms", {})
    seconds = summary.get("seconds") or sum(entry["seconds"] for entry in entries.values())
    options = list(run.options) + ([f"--config.data_dir=DIR/{run.data}"] if run.data else [])
    panels = experiment.panels if isinstance(experiment, Sweep) else ()
    long = ", more than a quarter of an hour" if seconds > _LONG else ""
    parts = [
        f"### {run.heading}",
        f"`{' '.join(['--config=configs/' + run.config + '.py', *options])}`. {run.file.summary} "
        f"{_describe_data(summary, data)}",
        f"{known['date']}, {seconds:.0f} s{long}. {_machine(known)}",
        "\n".join(
            picture(figures, f"{run.name}_{path.stem}")
            for path in sorted((workdir / "figures").glob("*.png"))
            if not (on_top and path.stem == run.figure)
        ),
        narrow(run.config, tables.best_points(summary, [panel.measure for panel in panels])),
        *_tables(run.config, experiment, summary),
    ]
    return "\n\n".join(part.strip() for part in parts if part)


def picture(figures: pathlib.Path, stem: str) -> str:
    """Return a figure in Markdown, which links to its PDF if there is one."""
    shown = f"![{stem.replace('_', ' ')}](../{figures.name}/{stem}.png)"
    linked = (figures / f"{stem}.pdf").exists()
    return f"[{shown}](../{figures.name}/{stem}.pdf)" if linked else shown


def _tables(config: str, experiment: Any, summary: dict[str, Any]) -> list[str]:
    """Return a study's own tables, those that it prints under their names."""
    printed = () if isinstance(experiment, Sweep) else experiment.printed
    named = [
        f"#### {name}\n\n{narrow(config, summary[name])}" for name in printed if summary.get(name)
    ]
    return [*(narrow(config, summary.get(name, [])) for name in ("best", "methods")), *named]


_WIDEST = 8  # columns of a table that still fit on a page
# Columns that a page leaves out, of tables with more.
_LEFT_OUT = {
    "compress": ("rounds to 0.001", "kB up to 0.001", "times fewer to 0.001"),
    "emnist": ("score", "validation_loss", "violation", "failed points"),
    "sites": ("standard error", "KKT", "test error", "kB of the fit"),
}
_ALWAYS_LEFT_OUT = ("seconds", "diverged")


def narrow(config: str, entries: list[dict[str, Any]]) -> str:
    """Return a table of at most eight columns, and a sentence on what else was the same for all.

    Example:
      >>> print(narrow("lasso", [{"method": name, "strength": 1} for name in "ab"]))
      | method |
      | --- |
      | a |
      | b |
      <BLANKLINE>
      For all: strength 1.
    """
    if not entries:
        return ""
    lines = [_with_rates(entry) for entry in entries]
    names = list(dict.fromkeys(name for line in lines for name in line))
    left = _ALWAYS_LEFT_OUT + _LEFT_OUT.get(config, ())
    names = [name for name in names if name not in left]
    values = {name: {_cell(line.get(name)) for line in lines} for name in names}
    same = [name for name in names if len(lines) > 1 and len(values[name]) == 1]
    names = [name for name in names if name not in same]
    shown = [*names[: _WIDEST - 1], names[-1]] if len(names) > _WIDEST else names
    table = _table([{name: line.get(name) for name in shown} for line in lines])
    facts = [f"{name} {value}" for name in same for value in values[name] if value != "-"]
    return f"{table}\n\nFor all: {', '.join(facts)}." if facts else table


def _with_rates(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a line with both rates in one column."""
    names = ("client rate", "server rate")
    own = [name for name in names if name in entry]
    if not own:
        return entry
    both = ", ".join(_cell(entry.get(name)) for name in names)
    return {
        ("rates" if name == own[0] else name): both if name == own[0] else value
        for name, value in entry.items()
        if name not in own[1:]
    }


def _machine(known: dict[str, Any]) -> str:
    versions = known["versions"]
    return (
        f"{known['machine']}; fcojax {versions['fcojax']}, Python {versions['python']}, JAX "
        f"{versions['jax']}."
    )


class Page(NamedTuple):
    """What is written on a page by hand, and the sections that are kept.

    Attributes:
      sections: the sections of runs, by heading.
      reasons: why statements do not hold: kind and text, by statement.
      remarks: what else there is to say.
    """

    sections: dict[str, str]
    reasons: dict[str, tuple[str, str]]
    remarks: str


_REASON = re.compile(r"^- \*\*(.+?)\*\* \(([^)]*)\): (.+)$", re.M)


def read_page(path: pathlib.Path) -> Page:
    """Return the parts of a page that a run does not make again; empty if there is no page."""
    text = path.read_text("utf-8") if path.exists() else ""
    _, _, remarks = text.partition("\n## Remarks\n")
    body = text.removesuffix(f"\n## Remarks\n{remarks}")
    _, *sections = body.partition("\n## Runs\n")[2].split("\n### ")
    return Page(
        {own.split("\n")[0]: f"### {own.strip()}" for own in sections},
        {words: (kind, why) for words, kind, why in _REASON.findall(body)},
        remarks.strip(),
    )


Claims = dict[str, list[dict[str, Any]]]  # by the name of the run


def columns(runs: Sequence[Run], claims: Claims, source: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the claims of the sources, or ours, by column: a run, or one of its cases."""
    by_run = {run.heading: tables.by_case(claims.get(run.name, []), source) for run in runs}
    by_run = {heading: cases for heading, cases in by_run.items() if cases}
    found = {}
    for heading, cases in by_run.items():
        for case, own in cases.items():
            several = len(by_run) > 1
            name = heading if several and len(cases) == 1 else case
            found[f"{heading}: {case}" if several and len(cases) > 1 else name] = own
    return found


def outcomes(runs: Sequence[Run], claims: Claims, page: Page) -> dict[str, str]:
    """Return the outcome of each statement of a source that a run of its setting decides."""
    reported = [run for run in runs if run.reported]
    own = [run for run in reported if not run.instead_of]
    names = columns(own, claims, source=True) if len(own) == len(reported) else {}
    return {
        one.text: outcome(one, list(names), page.reasons.get(one.text, ("", ""))[0])
        for one in statements(columns(reported, claims, source=True))
    }


def write_page(
    path: pathlib.Path, runs: Sequence[Run], claims: Claims, page: Page, figures: pathlib.Path
) -> list[str]:
    """Write a config's page; return the statements that do not hold and have no reason.

    Args:
      path: the page.
      runs: the runs of its config.
      claims: their claims.
      page: the sections, the reasons and the remarks.
      figures: the folder of the figures.
    """
    known = [run for run in runs if run.heading in page.sections]
    if not known:
        return []
    theirs = [run for run in known if run.reported]
    others = [run for run in known if not run.reported]
    source = statements(columns(theirs, claims, source=True))
    elsewhere = statements(columns(others, claims, source=True))
    ours = statements(columns(known, claims, source=False))
    found = outcomes(known, claims, page)
    missing: list[str] = []
    explained: set[str] = set()

    def reasons(of: Sequence[Statement]) -> str:
        wanted = [
            one.text
            for one in of
            if one.verdict(list(one.cells)) != HOLDS and one.text not in explained
        ]
        explained.update(wanted)
        missing.extend(text for text in wanted if text not in page.reasons)
        given = {text: page.reasons[text] for text in wanted if text in page.reasons}
        return "\n".join(f"- **{text}** ({kind}): {why}" for text, (kind, why) in given.items())

    parts = [
        f"# {runs[0].file.experiment.title}",
        _verdict(found, page, source, ours, theirs),
        picture(figures, f"{runs[0].name}_{runs[0].figure}"),
    ]
    if source:
        parts += [
            "## What the source says",
            _source(source),
            _table(lines(source)),
            reasons(source),
        ]
    if elsewhere or ours:
        parts.append("## What we add")
    if elsewhere:
        parts += [_ELSEWHERE, _table(lines(elsewhere)), reasons(elsewhere)]
    if ours:
        parts += [_OURS, _table(lines(ours)), reasons(ours)]
    parts += ["## Runs", _not_made([run for run in runs if run not in known])]
    parts += [page.sections[run.heading] for run in known]
    parts += ["## Remarks", page.remarks] if page.remarks else []
    path.write_text("\n\n".join(part for part in parts if part) + "\n", "utf-8")
    return missing


_ELSEWHERE = (
    "The same statements in settings of our own, which show how far they carry and are not counted."
)
_OURS = "Statements of our own, in all runs."


def _not_made(runs: Sequence[Run]) -> str:
    """Return the runs that have no section, with what they take."""
    told = [f"{run.heading} ({run.cost})" if run.cost else run.heading for run in runs]
    return f"Not run: {'; '.join(told)}." if told else ""


def _source(found: Sequence[Statement]) -> str:
    """Return who makes the statements, and where, as far as it is the same for all."""
    places, authors = {one.source for one in found}, {author(one.source) for one in found}
    if len(authors) > 1:
        return ""
    told = next(iter(places if len(places) == 1 else authors))
    return f"{told[0].upper()}{told[1:]}."


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
        parts.append(told(found, {text: why for text, (_, why) in page.reasons.items()}))
        lacking = list(dict.fromkeys(run.instead_of for run in theirs if run.instead_of))
        if lacking:
            held = sum(one.verdict(list(one.cells)) == HOLDS for one in source)
            parts.append(
                f"Without {' and '.join(lacking)}, {held} of {len(source)} hold on what stands in."
            )
    if ours:
        held = sum(one.verdict(list(one.cells)) == HOLDS for one in ours)
        parts.append(f"Of what we expected, {held} of {len(ours)} hold in every run.")
    return " ".join(parts)


def _describe_data(summary: dict[str, Any], data: str) -> str:
    """Return the data in words, with the folder of real data written as DIR."""
    facts = summary.get("data", "")
    if not isinstance(facts, str):
        pairs = facts[0].items() if facts else ()
        facts = ", ".join(f"{name.replace('_', ' ')}: {_cell(value)}" for name, value in pairs)
        facts += "." if facts else ""
    return facts.replace(data, "DIR") if data else facts


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
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"**no**{value[2:]}" if str(value).startswith(("no: ", "no, ")) else str(value)


def configs_of(runs: Sequence[Run]) -> list[str]:
    """Return the configs of runs, in their order."""
    return list(dict.fromkeys(run.config for run in runs))


def index(folder: pathlib.Path, all_runs: Sequence[Run]) -> str:
    """Return the page that links the pages in ``folder`` and counts the statements.

    What stands below a heading of the page is written by hand and stays.
    """
    page = folder.with_suffix(".md")
    _, heading, kept = page.read_text("utf-8").partition("\n## ") if page.exists() else ("", "", "")
    claims, entries, total = read_claims(folder), [], []
    names = [name for name in configs_of(all_runs) if (folder / f"{name}.md").exists()]
    for name in names:
        path = folder / f"{name}.md"
        text = path.read_text("utf-8")
        runs = [run for run in all_runs if run.config == name]
        found = list(outcomes(runs, claims, read_page(path)).values())
        made = re.findall(r"^(\d{4}-\d\d-\d\d), (\d+) s", text, re.M)
        title = text.partition("\n")[0].removeprefix("# ")
        entries.append(
            {
                "study": f"[{title}]({folder.name}/{name}.md)",
                "statements of the source": len(found),
                **{words[1]: found.count(kind) for kind, words in _COUNTED.items()},
                "seconds": _seconds([int(seconds) for _, seconds in made]),
                "last run": max((date for date, _ in made), default=""),
            }
        )
        total += found
    pages = "\n".join(f"{folder.name}/{name}" for name in names)
    counts = ", ".join(
        f"{number} {words[number > 1]}"
        for kind, words in _COUNTED.items()
        if (number := total.count(kind))
    )
    return (
        f"{_INTRODUCTION}\n\nOf the {len(total)} statements {counts}.\n\n{_table(entries)}\n\n"
        f"```{{toctree}}\n:hidden:\n{pages}\n```\n{heading}{kept}"
    )


def _seconds(of_runs: Sequence[int]) -> str:
    """Return the seconds of a config's runs together, and those of a long run in bold."""
    told = f"{sum(of_runs)}" + (f" in {len(of_runs)} runs" if len(of_runs) > 1 else "")
    longest = max(of_runs, default=0)
    if longest <= _LONG:
        return told
    return f"{told}, the longest **{longest}**" if len(of_runs) > 1 else f"**{told}**"


_COUNTED = {
    HOLDS: ("holds", "hold"),
    THE_SOURCES: ("fails for a reason of its source", "fail for a reason of their source"),
    NEEDS_DATA: ("needs data that cannot be had", "need data that cannot be had"),
    UNDECIDED: ("is not decided", "are not decided"),
    FAILS: ("fails", "fail"),
}


def read_claims(folder: pathlib.Path) -> Claims:
    """Return the claims of all runs whose pages are in a folder."""
    path = folder / "claims.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write_claims(folder: pathlib.Path, claims: Claims, all_runs: Sequence[Run]) -> None:
    """Write the claims of all runs, one a line, in the order of the runs."""
    runs = [
        f" {json.dumps(run.name)}: [\n  "
        + ",\n  ".join(json.dumps(entry) for entry in claims[run.name])
        + "\n ]"
        for run in all_runs
        if claims.get(run.name)
    ]
    (folder / "claims.json").write_text("{\n" + ",\n".join(runs) + "\n}\n", "utf-8")


_INTRODUCTION = """# Results

Full runs of the configs, written by `fcojax results`.
Rates are not chosen by hand: each algorithm is shown at the best point of its grid, by the \
criterion of the config.
A star marks a value at the edge of the grid.
The remarks of a page say which problem sizes, run lengths and grids were changed after a first \
run.
A support or a rank is final from the first evaluation after which it stays the same in every \
seed; it is not final if it changes at the last evaluation, or if a run diverged.

A page has one line for each statement of a source, as the source makes it, and one column for \
each run.
A statement holds if every number that decides it is beyond its threshold in every setting that \
its source reports; settings and statements of our own stand apart and are not counted.
A difference is beyond a threshold if its whole 95 % interval (Student's t, of the differences \
paired by seed) is; a tie does not count, and one or two seeds decide nothing.
A difference in accuracy must also pass McNemar's exact test over the held-out examples, where a \
run records which examples are right.
Numbers without an interval are those of exact methods, of bounds and of best rates.
Below the table stands the reason for each statement that does not hold.

Seconds are those of two cores; a run of more than a quarter of an hour is in bold.
A page names the runs of its config that have not been made."""
