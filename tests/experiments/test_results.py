"""The pages of results: what is kept without a new run, and reasons for all that does not hold."""

import functools
import importlib.util
import json
import math
import pathlib
import re
import shutil
import types

import pytest

from experiments.report.claims import Claim
from experiments.report.tables import statements

DOCS = pathlib.Path(__file__).parent.parent.parent / "docs"
_SPEC = importlib.util.spec_from_file_location("docs_results", DOCS / "results.py")
pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pages)
Run, read_page, write_page = pages.Run, pages.read_page, pages.write_page
HOLDS, FAILS, UNDECIDED = pages.HOLDS, pages.FAILS, pages.UNDECIDED
THE_SOURCES, NEEDS_DATA = pages.THE_SOURCES, pages.NEEDS_DATA
CLAIMS, RUNS = pages.read_claims(DOCS / "results"), pages.read_runs(DOCS / "results")
CONFIGS = pages.configs_of(RUNS)


def of_config(name):
    return [run for run in RUNS if run.config == name]


def made_run(folder, claims):
    """Write what a finished run of the lasso leaves; return its workdir."""
    best = {"best": {"client_lr": 0.1, "server_lr": 1.0}, "edges": {}, "score": 0.9}
    rest = {"verdict": "converged", "diverged": [], "points": 2, "seeds": 3, "seconds": 1000.0}
    criterion = {"measure": "f1", "goal": "max", "last_rounds": 1, "within": 0.0, "reach": None}
    entry = best | rest | {"last": {}, "final_from": {}, "criterion": criterion}
    summary = {
        "algorithms": {"fed_mid": entry, "fed_avg": entry | {"score": 0.8}},
        "claims": [claim.as_json() for claim in claims],
        "data": "Data: 64 clients, read from /data/set.",
    }
    versions = {"fcojax": "1", "python": "3", "jax": "0.1"}
    known = {"date": "2026-01-02", "machine": "a machine, 1 GiB", "versions": versions}
    (folder / "figures").mkdir(parents=True)
    for name in ("curves", "rates"):
        (folder / "figures" / f"{name}.png").write_bytes(b"")
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "config.json").write_text(json.dumps(known))
    return folder


def test_a_page_is_made_from_stored_runs_and_keeps_what_is_written_by_hand(tmp_path):
    page, figures = tmp_path / "lasso.md", tmp_path / "figures"
    figures.mkdir()
    (figures / "lasso_rates.pdf").write_bytes(b"")
    first, ours = (next(r for r in of_config("lasso") if r.reported is x) for x in (True, False))
    claims = {
        first.name: [
            Claim("it is sparse", 1.0, 2.0, source="A (2020), Figure 1"),
            Claim("it is fast", 3.0, 2.0, source="A (2020), Figure 1"),
        ],
        ours.name: [Claim("it is fast", 1.0, 2.0, source="A (2020), Figure 1")],
    }
    kept = read_page(page)
    for run in (first, ours):
        workdir = made_run(tmp_path / run.name, claims[run.name])
        kept.sections[run.heading] = pages.section(
            run, workdir, figures, data="/data", on_top=run is first
        )
    stored = {name: [claim.as_json() for claim in own] for name, own in claims.items()}
    missing = write_page(page, of_config("lasso"), stored, kept, figures)
    assert missing == ["it is sparse", "it is fast"]
    text = page.read_text()
    assert 'One fails: "it is sparse".' in text and "read from DIR/set" in text
    assert "2026-01-02, 2000 s, more than a quarter of an hour. a machine" in text
    assert "[![lasso rates](../figures/lasso_rates.png)](../figures/lasso_rates.pdf)" in text
    assert "| it is sparse | **no**: 1 |" in text and text.count("lasso_curves.png") == 1
    # What is written by hand is kept, and the reason follows the table.
    reason = "- **it is sparse** (the source's): it forgets a factor."
    page.write_text(
        text.replace("## What we add", f"{reason}\n\n## What we add") + "\n## Remarks\n\nSo.\n"
    )
    kept = read_page(page)
    assert list(kept.sections) == [first.heading, ours.heading] and kept.remarks == "So."
    assert write_page(page, of_config("lasso"), stored, kept, figures) == ["it is fast"]
    again = page.read_text()
    assert 'One fails for a reason of its source: "it is sparse" (it forgets a factor).' in again
    assert again.index(reason) < again.index("## What we add") and again.endswith("\nSo.\n")
    # A second writing changes nothing.
    write_page(page, of_config("lasso"), stored, read_page(page), figures)
    assert page.read_text() == again


@pytest.mark.parametrize(
    ("leads", "reported", "kind", "expected"),
    [
        ([1.0, -1.0], ["0"], "", HOLDS),
        ([1.0, -1.0], ["0"], THE_SOURCES, HOLDS),  # the reason is of another setting
        ([1.0, -1.0], ["0", "1"], "", FAILS),
        ([1.0, -1.0], ["1"], THE_SOURCES, THE_SOURCES),
        ([1.0, -1.0], ["1"], UNDECIDED, UNDECIDED),
        ([1.0, -1.0], ["1"], "misspelt", FAILS),
        ([1.0, -1.0], ["1"], HOLDS, FAILS),
        ([1.0, -1.0], [], THE_SOURCES, NEEDS_DATA),
        ([1.0, -1.0], [], UNDECIDED, UNDECIDED),  # for another reason than its data
        ([1.0, math.nan], ["0", "1"], "", UNDECIDED),
        ([1.0, -1.0, math.nan], ["0", "1", "2"], "", FAILS),
    ],
)
def test_one_case_that_refutes_a_statement_makes_it_fail(leads, reported, kind, expected):
    """And a written kind counts only where the numbers refute; NaN stands for two seeds."""
    cases = {
        str(at): [Claim("a", lead, 0.0, seeds=2 if math.isnan(lead) else None).as_json()]
        for at, lead in enumerate(leads)
    }
    [found] = statements(cases)
    assert pages.outcome(found, reported, kind) == expected


def test_what_came_out_names_each_statement_that_does_not_hold():
    assert pages.told({"a": HOLDS, "b": HOLDS}, {}) == "All 2 statements hold."
    assert pages.told({"a": NEEDS_DATA, "b": NEEDS_DATA}, {}) == (
        "All 2 statements are about data that cannot be had."
    )
    assert pages.told({"a": HOLDS}, {}) == "Of 1 statement 1 holds."
    outcomes = {"a": HOLDS, "b": NEEDS_DATA, "c": FAILS, "d": FAILS, "e": UNDECIDED}
    mixed = pages.told(outcomes, {"e": "two seeds of 0.5; three decide", "d": "it is slow."})
    assert mixed == (
        'Of 5 statements 1 holds. Two fail: "c", "d" (it is slow). '
        'One is not decided: "e" (two seeds of 0.5). '
        'One is about data that cannot be had: "b".'
    )


def test_settings_of_our_own_and_data_in_place_of_the_sources_are_not_counted():
    reported, ours, other = (
        Run("a", "lasso", heading="A"),
        Run("b", "lasso", heading="B", reported=False),
        Run("c", "lasso", heading="C", instead_of="scans"),
    )
    page = read_page(DOCS / "no such page")
    good, bad = (
        [Claim("it is fast", value, 2.0, source="A (2020), Figure 1").as_json()] for value in (3, 1)
    )
    fast = "it is fast"
    assert pages.outcomes([reported, ours], {"a": good, "b": bad}, page) == {fast: HOLDS}
    assert pages.outcomes([reported, ours], {"a": bad, "b": good}, page) == {fast: FAILS}
    assert pages.outcomes([other, ours], {"c": good, "b": good}, page) == {fast: NEEDS_DATA}


def test_columns_are_named_by_run_and_case():
    claim = Claim("it is fast", 3.0, 2.0, source="A (2020), Figure 1")
    cases = [claim._replace(case=case).as_json() for case in ("x", "y")]
    one, two = Run("a", "lasso", heading="A"), Run("b", "lasso", heading="B")
    assert list(pages.columns([one], {"a": cases}, source=True)) == ["x", "y"]
    both = {"a": cases, "b": cases[:1]}
    assert list(pages.columns([one, two], both, source=True)) == ["A: x", "A: y", "B"]


@pytest.mark.parametrize(
    "config", [name for name in CONFIGS if (DOCS / "results" / f"{name}.md").exists()]
)
def test_every_statement_that_does_not_hold_has_a_reason_on_its_page(config, tmp_path):
    """And the page is what the code makes of its claims, sections and reasons."""
    path, written = DOCS / "results" / f"{config}.md", tmp_path / f"{config}.md"
    page = read_page(path)
    figures = DOCS / "figures"
    assert write_page(written, of_config(config), CLAIMS, page, figures) == []
    assert written.read_text() == path.read_text()
    assert {kind for kind, _ in page.reasons.values()} <= {*pages.KINDS}


def test_every_claim_of_a_source_names_it_and_its_number():
    for name, own in CLAIMS.items():
        assert all(entry["measure"] for entry in own), name
        for one in statements({"all": [entry for entry in own if entry["source"]]}):
            assert re.search(r"[^,]+, .+", one.source), one


def test_every_run_has_its_section_in_order_with_date_time_and_machine():
    for config in CONFIGS:
        sections = read_page(DOCS / "results" / f"{config}.md").sections
        # Runs that were not made yet have no section.
        assert list(sections) == [
            run.heading for run in of_config(config) if run.heading in sections
        ]
        for text in sections.values():
            line = r"^\d{4}-\d\d-\d\d, \d+ s.* .*(cores|GiB); .*JAX [\d.]+\.$"
            assert re.search(line, text, re.M), text[:200]
            for drawn in re.findall(r"\]\(\.\./(.*?(?:png|pdf))\)", text):
                assert (DOCS / drawn).exists()


def shown_runs():
    """Yield each run that is on a page, and its section."""
    for run in RUNS:
        sections = read_page(DOCS / "results" / f"{run.config}.md").sections
        if run.heading in sections:
            yield pytest.param(run, sections[run.heading], id=run.name)


@pytest.mark.parametrize(("run", "section"), list(shown_runs()))
def test_the_command_of_a_section_is_that_of_its_run_and_makes_its_data(run, section):
    """Clients, examples, seeds and rates of the section are those of the command's config."""
    [command] = re.findall(r"^`(--config=[^`]+)`", section, re.M)
    assert command == pages.command_of(run)
    config = run.file.get_config()
    for option in command.split()[1:]:
        key, text = option.removeprefix("--config.").split("=", 1)
        before = functools.reduce(getattr, key.split("."), config)
        several = isinstance(before, tuple)
        kind = type(before[0] if several else before)
        found = [text == "True" if kind is bool else kind(one) for one in text.split(",")]
        config.update_from_flattened_dict({key: tuple(found) if several else found[0]})
    words = r"Data: (\S+) clients with (\S+) examples, (.+?); runs with seeds (.+?)\."
    if found := re.search(words, section):
        clients, examples = (int(number.replace(",", "")) for number in found.groups()[:2])
        seeds = config.seeds if isinstance(config.seeds, tuple) else (config.seeds,)
        assert found[4] == ", ".join(map(str, seeds))
        if config.get("data_dir"):
            assert found[3] == f"read from {config.data_dir}"
        else:
            assert re.match(rf"drawn from seed {config.data_seed}\b", found[3])
            assert ("plus the run's" in found[3]) is config.get("data_by_seed", False)
            scans = "sessions" in config  # the last subject's are held out
            assert clients == (sum(config.sessions[:-1]) if scans else config.num_clients)
            each = 18 if scans else config.get("num_examples")
            assert each is None or examples == clients * each
        own = [grid.get("client_lr", ()) for grid in (config.get("own_grids") or {}).values()]
        tried = {f"{rate:g}" for rates in (config.client_lr, *own) for rate in rates}
        common = re.findall(r"^For all: client rate (\d[\d.e-]*)", section, re.M)
        row = r"^\| [^|]+ \| (\d[\d.e-]*)\*?(?:, | \| )[\d.-]+\*? \|"
        shown = common or re.findall(row, section, re.M)
        assert shown and (config.extend or {*shown} <= tried)


def test_a_finished_run_of_another_config_gets_no_page(tmp_path, monkeypatch):
    """The launcher, which is asked first, refuses it; otherwise only figures are made again."""
    asked = []
    monkeypatch.setattr(pages.subprocess, "run", lambda words, **_: asked.append(words[2:]))
    run = next(run for run in RUNS if run.name == "low_rank_1")
    made_run(tmp_path, [])
    pages._finish(run, tmp_path, "")
    (tmp_path / "summary.json").write_text(json.dumps({"finished": True}))
    pages._finish(run, tmp_path, "")
    assert [words[0] for words in asked] == 2 * ["experiments.run"] + [
        "experiments.publishing.figures"
    ]
    assert all("--config.true_rank=1" in words for words in asked[:2])
    assert "--resume=anyway" in asked[1] and "--resume=anyway" not in asked[0]


def test_the_index_is_written_from_the_claims_and_readme_has_its_numbers():
    index = (DOCS / "results.md").read_text()
    assert index == pages.index(DOCS / "results", RUNS)
    counted = re.search(r"(\d+) of them .*? which (\d+) hold, and (\d+) .*? (\d+) hold", index)
    assert counted
    five, held, others, also = map(int, counted.groups())
    assert re.search(rf"Of the {five + others} statements {held + also} hold", index)
    readme = " ".join((DOCS.parent / "README.md").read_text().split())
    assert f"{held} of {five} of the five sources and {also} of {others} of other papers" in readme


def test_every_figure_is_on_a_page():
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    pages += (DOCS.parent / "README.md").read_text()
    unused = [path.name for path in (DOCS / "figures").iterdir() if path.name not in pages]
    assert unused == []


def test_the_index_is_that_of_the_pages(tmp_path):
    assert (DOCS / "results.md").read_text() == pages.index(DOCS / "results", RUNS)
    pages.write_claims(tmp_path, CLAIMS, RUNS)
    assert pages.read_claims(tmp_path) == CLAIMS


def test_pages_are_those_of_the_stored_runs(tmp_path):
    shutil.copytree(DOCS / "results", tmp_path / "results")
    shutil.copy(DOCS / "results.md", tmp_path)
    (tmp_path / "figures").symlink_to(DOCS / "figures")
    given = {"workdir": tmp_path / "runs", "page": tmp_path / "results.md", "stored": True}
    pages.write_pages(types.SimpleNamespace(data="", only=[], **given))
    assert (tmp_path / "results.md").read_text() == (DOCS / "results.md").read_text()
    for page in (DOCS / "results").iterdir():
        assert (tmp_path / "results" / page.name).read_text() == page.read_text()


def test_a_long_run_is_marked_and_one_that_was_not_made_is_named(tmp_path):
    page, figures = tmp_path / "emnist.md", tmp_path / "figures"
    kept = read_page(page)
    for run, seconds in zip(of_config("emnist"), (901, 30), strict=False):
        kept.sections[run.heading] = f"### {run.heading}\n\n2026-01-02, {seconds} s. a machine"
    write_page(page, of_config("emnist"), {}, kept, figures)
    assert "The CNN at its published size (seven hours on two cores;" in page.read_text()
    assert [*read_page(page).sections] == [run.heading for run in of_config("emnist")[:2]]
    assert "| 931 in 2 runs, the longest **901** | 2026-01-02 |" in pages.index(tmp_path, RUNS)


def test_a_figure_links_to_its_pdf(tmp_path):
    assert pages.picture(tmp_path, "a_b") == f"![a b](../{tmp_path.name}/a_b.png)"
