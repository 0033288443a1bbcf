"""Odd values of ``select`` and odd tables, and what the command has to say to them.

    python -m tests.studies.odd_tables SEED NUMBER

Each case is run in a fork of one process that has imported all, up to the point where computing
would begin. A command with a wrong value or file has to be refused in a sentence that names it; any
other has to begin, and on the rows that the table has.
"""

import contextlib
import os
import pathlib
import random
import re
import sys
import tempfile
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fcojax_sites.configs import select as select_config

CONFIG = select_config.__file__
SELECT = ["num_strengths=4", "sizes=12,9,7", "dim=4", "max_rounds=50"]


class Data(NamedTuple):
    """What a table holds: cells as numbers, NaN if missing."""

    names: list[str]
    x: np.ndarray
    y: np.ndarray
    site: list[str]


class Case(NamedTuple):
    """A command, the words of which a refusal has to have one (none: it begins), and its data."""

    arguments: list[str]
    wrong: tuple[str, ...] = ()
    data: Data | None = None


class Verdict(NamedTuple):
    """``raw``, ``silent``, ``unnamed`` or ``needless``, empty if all is well, and what was said."""

    kind: str
    said: str
    case: Case
    shown: bytes = b""


class _Begun(BaseException):
    """Computing would begin."""


# Values of keys by kind: those that run, and those that have to be refused.
_JUNK = ("abc", "[]", "{}", "None,1", "1;2", "''")
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count": (("2", "4"), ("0", "-1", "1.5", "nan", "inf", str(2**40), "2,3", "True", *_JUNK)),
    "whole": (("0", "3"), ("-1", "0.5", "nan", str(2**33), *_JUNK)),
    "positive": (("0.5", "1e-3", "2"), ("0", "-1", "nan", "inf", "1e400", "abc", "[]", "True")),
    "positives": (
        ("0.5", "0.1,0.2", "1,2"),
        ("0", "-1", "0.1,nan", "inf", "0.1,0.1", "()", "0.1,abc", "True", "0.1,-1"),
    ),
    "not negative": (("0", "0.5"), ("-1", "nan", "inf", "-0.1", "abc", "True")),
    "share": (("0.5", "1.0"), ("2", "-0.1", "nan", "inf", "abc", "1.0001")),
    "truth": (("True", "False"), ("2", "maybe", "0.5", "None")),
    "name": ((), ("abc", "''", "1", "grid ", "None")),
}
# Keys of the selection: kind, and further values that are wrong.
SELECT_KEYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "num_folds": ("", ("0", "-1", "1.5", "abc")),
    "num_draws": ("count", ()),
    "num_strengths": ("count", ()),
    "max_rounds": ("count", ()),
    "dim": ("count", ()),
    "sizes": ("", ("-5,5", "0,5", "()", "abc", "5.5,4", "nan", "5")),
    "seed": ("whole", ()),
    "data_seed": ("whole", ()),
    "tolerance": ("positive", ()),
    "concentration": ("positive", ()),
    "l1_fraction": ("share", ("0",)),
    "least": ("", ("0", "1", "2", "-0.1", "nan", "abc")),
    "group_fraction": ("", ("2", "-1", "nan", "abc", "inf")),
    "one_standard_error": ("truth", ()),
    "loss": ("name", ("logit", "Linear")),
    "by": ("name", ("sit", "BIC", "fold")),
    "group_penalty": ("name", ("l2", "Norm")),
    "positive_above": ("", ("nan", "abc")),
    "codec": ("name", ("topk:3", "top_k:0")),
    "groups": ("", ("lab", "lab=", "=x1", "lab=nothing_*", "/", "a=x1,b=x1")),
    "drop": ("", ("x99", "x1,x99")),
    "targets": ("", ("y",)),
    "sites": ("", ("a",)),
}


def command_case(rng: random.Random, folder: pathlib.Path) -> Case:
    """The config with up to two odd values."""
    keys = SELECT_KEYS
    arguments = [f"--config.{one}" for one in SELECT]
    wrong: list[str] = []
    for key in rng.sample(list(keys), rng.choice([0, 1, 1, 1, 2])):
        kind, also = keys[key]
        good, bad = KINDS.get(kind, ((), ()))
        bad = (*bad, *also)
        if good and rng.random() < 0.15:
            arguments.append(f"--config.{key}={rng.choice(good)}")
            continue
        value = rng.choice(bad)
        if value == "None" and key == "codec":
            continue
        arguments.append(f"--config.{key}={value}")
        wrong.append(key)
        if (kind == "name" or key == "groups") and len(
            value
        ) > 2:  # the value tells which key it is of
            wrong += value.split(":")[0].strip("=").split("=")[:2]
    if rng.random() < 0.1:
        key = _misspelt(rng, rng.choice(list(keys)))
        if key not in keys:
            arguments.append(f"--config.{key}=1")
            wrong.append(key)
    given = {argument.partition("=")[0] for argument in arguments[len(SELECT) :]}
    kept = [one for one in arguments[: len(SELECT)] if one.partition("=")[0] not in given]
    arguments = kept + arguments[len(SELECT) :]
    rng.shuffle(arguments)
    return Case([f"--config={CONFIG}", f"--workdir={folder / 'run'}", *arguments], tuple(wrong))


def _misspelt(rng: random.Random, word: str) -> str:
    at = rng.randrange(len(word) - 1)
    return rng.choice(
        [
            word[:at] + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word + "s",
            word.upper(),
            word.replace("_", "-"),
        ]
    )


def _file(folder: pathlib.Path, name: str, content: str | bytes) -> pathlib.Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _linked(folder: pathlib.Path, name: str, target: str) -> pathlib.Path:
    (folder / name).symlink_to(target)
    return folder / name


def _made(folder: pathlib.Path, name: str) -> pathlib.Path:
    (folder / name).mkdir()
    return folder / name


# What a missing value, and a number, may be written as.
MISSING = ("", "NA", "n/a", "#N/A", "NULL", "null", "?", ".", "nan", "NaN", "None")
WRITTEN: list[Callable[[float], str]] = [
    repr,
    lambda value: f"{value:+.17g}",
    lambda value: f"{value:.17E}",
    lambda value: f" {value!r} ",
]
NAMES = ("age", "dose", "größe", "体重", "a b", "x1", "crp%", "Ålder", "q'uote", "e\u0301")
SITES = ("Lima", "Ghent", "Zürich", "北京", "St. Mary's", "7", "42", "site, A")


def table_case(rng: random.Random, folder: pathlib.Path) -> Case:
    """A file with rows that are known, written in an odd but right way, or with one thing wrong."""
    numbers = np.random.default_rng(rng.randrange(2**31))
    rows, columns, sites = rng.randint(12, 30), rng.randint(2, 5), rng.randint(3, 4)
    x = np.round(numbers.normal(size=(rows, columns)) * 10.0 ** rng.randint(-3, 6), 6)
    site = [SITES[0]] * rows
    chosen = rng.sample(SITES, sites)
    site = [chosen[row % sites] for row in range(rows)]
    y = numbers.integers(0, 2, rows).astype(float)
    for place in range(2 * sites):  # every site has both classes
        y[place] = place // sites
    data = Data(rng.sample(NAMES, columns), x, y, site)
    fault = rng.choice(FAULTS) if rng.random() < 0.7 else ODD_BUT_RIGHT
    written = Written(rng, folder, data)
    wrong = fault(written)
    path = written.path or written.write()
    arguments = [
        f"--config={CONFIG}",
        f"--workdir={folder / 'run'}",
        f"--config.data_dir={path}",
        "--config.num_strengths=4",
        "--config.max_rounds=50",
        *written.arguments,
    ]
    return Case(arguments, tuple(wrong), None if wrong else written.data)


class Written:
    """A table on its way to a file."""

    def __init__(self, rng: random.Random, folder: pathlib.Path, data: Data):
        self.rng, self.folder, self.data = rng, folder, data
        self.header = [*data.names, "y", "client"]
        self.cells = [
            [*(self.number(value) for value in row), f"{int(y)}", site]
            for row, y, site in zip(data.x, data.y, data.site, strict=True)
        ]
        self.path: pathlib.Path | None = None
        self.arguments: list[str] = []
        self.encoding = rng.choice(["utf-8", "utf-8-sig"])
        self.end = rng.choice(["\n", "\r\n"])
        self.delimiter = ","
        self.quoted = rng.random() < 0.3
        self.name = "table.csv"
        self.raw: Callable[[bytes], bytes] = lambda content: content
        for _ in range(rng.choice([0, 0, 3])):
            row, column = rng.randrange(len(self.cells)), rng.randrange(len(data.names))
            self.cells[row][column] = rng.choice(MISSING)
            data.x[row, column] = np.nan

    def number(self, value: float) -> str:
        return self.rng.choice(WRITTEN)(float(value))

    def any_row(self) -> int:
        return self.rng.randrange(len(self.cells))

    def any_feature(self) -> tuple[int, str]:
        at = self.rng.randrange(len(self.data.names))
        return at, self.header[at]

    def write(self) -> pathlib.Path:
        lines = []
        for cells in [self.header, *self.cells]:
            each = []
            for cell in cells:
                special = self.delimiter in cell or '"' in cell or "\n" in cell
                quote = special or (self.quoted and self.rng.random() < 0.5)
                each.append('"' + cell.replace('"', '""') + '"' if quote else cell)
            lines.append(self.delimiter.join(each))
        content = self.raw((self.end.join(lines) + self.end).encode(self.encoding))
        path = self.folder / self.name
        path.write_bytes(content)
        return path


def ODD_BUT_RIGHT(table: Written) -> list[str]:
    """Blank lines, columns in another order, quotes, no last line end."""
    rng = table.rng
    if rng.random() < 0.3:
        order = rng.sample(range(len(table.header)), len(table.header))
        table.header = [table.header[at] for at in order]
        table.cells = [[row[at] for at in order] for row in table.cells]
        names = [name for name in table.header if name not in ("y", "client")]
        place = [table.data.names.index(name) for name in names]
        table.data = table.data._replace(names=names, x=table.data.x[:, place])
    if rng.random() < 0.3:
        table.raw = lambda content: content.rstrip(b"\r\n")
    elif rng.random() < 0.3:
        table.raw = lambda content: content + b"\n\n"
    if rng.random() < 0.2:
        table.arguments.append("--config.features=" + ",".join(table.data.names))
    return []


def _cell(value: str) -> Callable[[Written], list[str]]:
    """A feature's cell that is no finite number."""

    def fault(table: Written) -> list[str]:
        at, name = table.any_feature()
        table.cells[table.any_row()][at] = value
        return [name]

    return fault


def _target(value: str) -> Callable[[Written], list[str]]:
    def fault(table: Written) -> list[str]:
        table.cells[table.any_row()][len(table.data.names)] = value
        return ["y is", "y has"]

    return fault


def _site(value: str) -> Callable[[Written], list[str]]:
    def fault(table: Written) -> list[str]:
        table.cells[table.any_row()][-1] = value
        return ["client"]

    return fault


def _bytes(change: Callable[[bytes], bytes], *named: str) -> Callable[[Written], list[str]]:
    def fault(table: Written) -> list[str]:
        table.raw = change
        return list(named or ("table.csv",))

    return fault


def _given(*arguments: str, named: str) -> Callable[[Written], list[str]]:
    def fault(table: Written) -> list[str]:
        table.arguments += [f"--config.{one}" for one in arguments]
        return [named]

    return fault


def _another_file(make: Callable[[Written], Any], named: str) -> Callable[[Written], list[str]]:
    def fault(table: Written) -> list[str]:
        table.path = make(table)
        return [named]

    return fault


def _renamed(name: str) -> Callable[[Written], list[str]]:
    """The same content under another name."""
    return _another_file(lambda table: table.write().rename(table.folder / name), name)


def _header(change: Callable[[Written, int], str]) -> Callable[[Written], list[str]]:
    def fault(table: Written) -> list[str]:
        at, _ = table.any_feature()
        table.header[at] = change(table, at)
        return [table.header[at].strip() or "''"]

    return fault


def _one_class(table: Written) -> list[str]:
    for row in table.cells:
        row[len(table.data.names)] = "1"
    return ["y is 1"]


def _three_classes(table: Written) -> list[str]:
    table.cells[0][len(table.data.names)] = "2"
    return ["y has 3"]


def _a_column_is_empty(table: Written) -> list[str]:
    at, name = table.any_feature()
    for row in table.cells:
        row[at] = table.rng.choice(MISSING)
    return [name]


def _all_columns_are_constant(table: Written) -> list[str]:
    for row in table.cells:
        row[: len(table.data.names)] = ["0.1"] * len(table.data.names)
    return ["one value"]


def _one_site(table: Written) -> list[str]:
    for row in table.cells:
        row[-1] = "Lima"
    return ["Lima", "client", "site"]


def _ragged(table: Written) -> list[str]:
    row = table.any_row()
    table.cells[row] = table.cells[row] + ["1"] if table.rng.random() < 0.5 else ["1"]
    return ["table.csv, line"]


def _semicolons(table: Written) -> list[str]:
    table.delimiter = table.rng.choice([";", "\t", "|"])
    return ["table.csv"]


def _one_feature_is_constant(table: Written) -> list[str]:
    """Right: it is never selected."""
    at, _ = table.any_feature()
    value = table.rng.choice(["0.1", "1e-8", "12345.678"])
    for row in table.cells:
        row[at] = value
    table.data.x[:, at] = float(value)
    return []


def _two_forms(table: Written) -> list[str]:
    """Right: one site in two Unicode forms."""
    for row, name in zip(table.cells, table.data.site, strict=True):
        row[-1] = unicodedata.normalize(table.rng.choice(["NFC", "NFD"]), name)
    return []


def _minus_999(table: Written) -> list[str]:
    """Right: a number, unless it is said to stand for a missing value."""
    at, _ = table.any_feature()
    row = table.any_row()
    table.cells[row][at] = table.rng.choice(["-999", "-999.0"])
    table.data.x[row, at] = -999
    if table.rng.random() < 0.5:
        table.data.x[row, at] = np.nan
        table.arguments.append("--config.missing=unknown,-999")
        table.cells[table.any_row()][(at + 1) % len(table.data.names)] = "unknown"
        table.data.x[np.array([[cell == "unknown" for cell in r[:-2]] for r in table.cells])] = (
            np.nan
        )
    return []


def _without_targets(table: Written) -> list[str]:
    """Right: rows without a target are left out."""
    row = len(table.cells) - 1
    table.cells[row][len(table.data.names)] = table.rng.choice(MISSING)
    data = table.data
    table.data = data._replace(x=data.x[:row], y=data.y[:row], site=data.site[:row])
    return []


def _other_classes(table: Written) -> list[str]:
    """Right: two whole numbers, of which the larger is class 1."""
    low, high = table.rng.choice([("-1", "1"), ("1", "2"), ("1.0", "2.0"), ("-1", "0")])
    for row in table.cells:
        row[len(table.data.names)] = high if row[len(table.data.names)] == "1" else low
    return []


def _npz(**changes: Any) -> Callable[[Written], Any]:
    def make(table: Written) -> pathlib.Path:
        arrays = {"x": table.data.x, "y": table.data.y, "client": np.array(table.data.site)}
        np.savez(table.folder / "table.npz", **arrays | changes)
        table.arguments.append("--config.features=x")
        return table.folder / "table.npz"

    return make


def _as_npz(table: Written) -> list[str]:
    """Right: the same as arrays."""
    table.path = _npz()(table)
    names = [f"x{index + 1}" for index in range(len(table.data.names))]
    table.data = table.data._replace(names=names, x=table.data.x.astype(np.float32))
    return []


def _groups(content: str | bytes, *named: str) -> Callable[[Written], list[str]]:
    def fault(table: Written) -> list[str]:
        path = _file(table.folder, "groups.csv", content)
        table.arguments.append(f"--config.groups={path}")
        return list(named or ("groups.csv",))

    return fault


FAULTS: list[Callable[[Written], list[str]]] = [
    *(_cell(value) for value in ("yes", "1,5", "2020-01-31", "inf", "-Infinity", "1e400", "1e200")),
    *(_cell(value) for value in ("0x10", "1_000", "12 kg", "#REF!", "TRUE", "--", "1 2")),
    *(_target(value) for value in ("yes", "inf", "1,5", "2020-01-31", "0.5", "1e200", "1_0")),
    *(_site(value) for value in ("", "NA", "n/a", "NULL", "nan", "None", " ", "?")),
    _bytes(lambda content: b""),
    _bytes(lambda content: b"\n"),
    _bytes(lambda content: content.splitlines(keepends=True)[0]),
    _bytes(lambda content: content + b"\0"),
    _bytes(lambda content: content.replace(b",", b",\0", 1)),
    _bytes(lambda content: content + b'"open'),
    _bytes(lambda content: content + b"\xe4,1\n"),
    _bytes(lambda content: content.decode("utf-8-sig").encode("utf-16")),
    _bytes(lambda content: b"PK\x03\x04" + content),
    _bytes(lambda content: b"y\n1\n0\n"),
    _bytes(lambda content: b"y,client\n1,a\n0,b\n"),
    _bytes(lambda content: b"{}"),
    _ragged,
    _semicolons,
    _one_class,
    _three_classes,
    _one_site,
    _a_column_is_empty,
    _all_columns_are_constant,
    _header(lambda table, at: table.header[at - 1] if at else table.header[1]),
    _header(lambda table, at: f" {table.header[(at + 1) % len(table.data.names)]} "),
    _header(lambda table, at: "y"),
    _header(lambda table, at: ""),
    _header(lambda table, at: "Unnamed: 0"),
    _given("target=outcome", named="outcome"),
    _given("client=hospital", named="hospital"),
    _given("features=weight", named="weight"),
    _given("features=y,client", named="features"),
    _given("drop=weight", named="weight"),
    _given("target=client", named="client"),
    _given("client=y", "drop=client", named="y"),
    _given("target=", named="target"),
    _given("loss=cox", named="time"),
    _given("loss=poisson", "target=client", named="client"),
    _given("client=", "drop=client", "num_clients=1000", named="num_clients"),
    _given("client=", "drop=client", "num_clients=1", named="num_clients"),
    _given("client=", "drop=client", "num_clients=10", "concentration=1e-9", named="concentration"),
    _given("client=", "drop=client", "loss=linear", named="client is empty"),
    _given("by=sites", "num_folds=99", named="folds"),
    _given("by=sites", "num_folds=1", named="num_folds"),
    _given("by=examples", "num_folds=999", named="folds"),
    _given("groups=lab=nothing*", named="nothing*"),
    _given("group_fraction=0.5", named="group_fraction"),
    _given("group_penalty=slope", named="group_penalty"),
    _given("positive_above=1e9", named="positive_above"),
    _given("positive_above=0.5", "loss=linear", named="positive_above"),
    _given("group_fraction=2", named="group_fraction is 2"),
    _groups(""),
    _groups("\n\n"),
    _groups("column,group\n"),
    _groups("a,b,c\n"),
    _groups('age,"lab\n'),
    _groups("age,lab\0\n"),
    _groups(b"\xe4,lab\n"),
    _groups("nobody,lab\n", "nobody"),
    _another_file(lambda table: table.folder / "nowhere.csv", "nowhere.csv"),
    _another_file(lambda table: table.folder, "data_dir"),
    _another_file(lambda table: _made(table.folder, "empty"), "empty"),
    _another_file(lambda table: _made(table.folder, "odd.csv"), "odd.csv"),
    _another_file(lambda table: _linked(table.folder, "loop.csv", "loop.csv"), "loop.csv"),
    _another_file(lambda table: "/dev/null", "/dev/null"),
    *(_renamed(f"table.{end}") for end in ("json", "xls", "tsv", "parquet", "npz", "txt", "svm")),
    *(_renamed(f"table.{end}") for end in ("xlsx", "csv.gz", "dta", "feather")),
    _another_file(_npz(x=np.ones(3)), "x in"),
    _another_file(_npz(y=np.array(["a"] * 3)), "y in"),
    _another_file(_npz(client=np.ones(1)), "client in"),
    _another_file(_npz(x=np.array([[object()]])), "table.npz"),
    _one_feature_is_constant,
    _two_forms,
    _minus_999,
    _without_targets,
    _other_classes,
    _as_npz,
]


def cases(seed: int, number: int, folder: pathlib.Path) -> Iterator[Case]:
    """Yield the cases of a seed, each with a folder of its own."""
    for index in range(number):
        rng = random.Random(f"{seed} {index}")
        own = _made(folder, str(index))
        kind = command_case if index % 2 else table_case
        yield kind(rng, own)


def expected_rows(data: Data) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Standardised features, classes and sites, sorted by site: what the problem has to hold."""
    mean, deviation = np.nanmean(data.x, axis=0), np.nanstd(data.x, axis=0)
    constant = np.array([len(set(column[~np.isnan(column)])) == 1 for column in data.x.T])
    scaled = (data.x - mean) / np.where(constant, 1, deviation)
    scaled = np.where(np.isnan(scaled) | constant, 0, scaled)
    site = np.array([unicodedata.normalize("NFC", name) for name in data.site])
    order = np.argsort(site, kind="stable")
    return scaled[order], data.y[order], site[order].tolist()


def _difference(case: Case, problem: Any) -> str:
    """How the rows of a problem differ from those of the table; empty if they do not."""
    if case.data is None:
        return ""
    x, y, site = expected_rows(case.data)
    train = problem.train
    names = np.repeat(np.asarray(train.ids), np.asarray(train.sizes)).tolist()
    found = train.examples
    if names != site:
        return f"sites {names} in place of {site}"
    if np.asarray(found["y"]).tolist() != y.tolist():
        return "other targets"
    if found["x"].shape != x.shape or not np.allclose(found["x"], x, rtol=1e-5, atol=1e-5):
        return "other features"
    return ""


def _run_in_child(case: Case, log: pathlib.Path) -> None:
    """Become the command, up to where computing begins; write what happened to the log."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from absl import app

    import fcojax_sites
    from experiments import run

    taken: dict[str, Any] = {}
    real_select = fcojax_sites.select

    def select(problem, *arguments, **options):
        taken["problem"] = problem
        return real_select(problem, *arguments, **options)

    def begin(*_: Any, **__: Any):
        raise _Begun

    # The package has a function of the module's name.
    sys.modules["fcojax_sites.selection.select"]._search = begin  # pyright: ignore
    fcojax_sites.select = select  # pyright: ignore[reportAttributeAccessIssue]
    sys.argv = ["run", *case.arguments]
    sys.orig_argv = [sys.executable, "-m", "experiments.run", *case.arguments]
    try:
        app.run(run.main, argv=sys.argv, flags_parser=run.parse_flags)
    except _Begun:
        try:
            different = _difference(case, taken.get("problem"))
        except Exception:
            different = traceback.format_exc()
        os.write(2, f"\nBEGUN {different}\n".encode())
        os._exit(0)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 99)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(98)


def judged(case: Case, code: int, said: str) -> Verdict:
    """Judge what a command has said, and how it ended."""
    said = said.strip()
    begun = "BEGUN" in said
    located = re.search(r"pass --traceback to see how|Traceback|Warning:", said)
    if located or (not begun and (code != 2 or len(said.splitlines()) != 1)):
        return Verdict("raw", said, case)
    if begun:
        bad = case.wrong or not said.endswith("BEGUN")
        return Verdict("silent" if bad else "", said, case)
    if not case.wrong:
        return Verdict("needless", said, case)
    plain = unicodedata.normalize("NFC", said).lower()
    if not any(unicodedata.normalize("NFC", name).lower() in plain for name in case.wrong):
        return Verdict("unnamed", said, case)
    return Verdict("", said, case)


def judge(seed: int, number: int) -> Iterator[Verdict]:
    """Yield the verdicts that are not well."""
    import experiments.run  # noqa: F401  (before the forks)
    import fcojax_sites.selection.select  # noqa: F401

    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        for index, case in enumerate(cases(seed, number, folder)):
            log = folder / f"{index}.log"
            child = os.fork()
            if not child:
                with contextlib.suppress(BaseException):
                    _run_in_child(case, log)
                os._exit(97)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            verdict = judged(case, code, log.read_text("utf-8", "replace"))
            if verdict.kind:
                file = folder / str(index) / "table.csv"
                shown = file.read_bytes()[:400] if file.is_file() else b""
                yield verdict._replace(shown=shown)


def main(seed: str, number: str) -> None:
    """Print what is not well."""
    found = []
    for verdict in judge(int(seed), int(number)):
        found.append(verdict)
        print(f"{verdict.kind}: {verdict.said}\n  needs {verdict.case.wrong}")
        print("  " + " ".join(map(repr, verdict.case.arguments)))
        print(f"  {verdict.shown!r}", flush=True)
    kinds = ("raw", "silent", "unnamed", "needless")
    print(", ".join(f"{sum(v.kind == kind for v in found)} {kind}" for kind in kinds))


if __name__ == "__main__":
    main(*sys.argv[1:])
