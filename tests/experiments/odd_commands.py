"""Odd command lines, and what the command has to say to them.

    python -m tests.experiments.odd_commands SEED NUMBER

Each case is run in a fork of one process that has imported all, up to the point where computing
would begin. A command with a wrong value or file has to be refused in a sentence that names it; any
other has to begin.
"""

import contextlib
import functools
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

from experiments.config.keys import OPTIONAL

TOY = [
    "num_clients=4",
    "num_examples=4",
    "num_validation=4",
    "dim=6",
    "num_true=2",
    "cohort_size=2",
    "num_steps=2",
    "batch_size=2",
    "num_rounds=20",
    "eval_every=5",
    "eval_all_until=0",
    "criterion_rounds=10",
    "seeds=0",
    "client_lr=0.01,0.03",
    "server_lr=1.0",
]


class Case(NamedTuple):
    """A command, and the words of which a refusal has to have one (none: it begins)."""

    arguments: list[str]
    wrong: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """``raw``, ``silent``, ``unnamed`` or ``needless``, empty if all is well, and what was said."""

    kind: str
    said: str
    case: Case


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
# Keys of a sweep: kind, and further values that are wrong.
SWEEP_KEYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "num_rounds": ("count", ()),
    "eval_every": ("count", ("7", "40")),
    "cohort_size": ("count", ("5", "100")),
    "num_steps": ("count", ()),
    "batch_size": ("count", ("5",)),
    "client_chunk_size": ("count", ()),
    "point_chunk_size": ("count", ()),
    "criterion_rounds": ("count", ("21",)),
    "num_clients": ("count", ()),
    "num_examples": ("count", ()),
    "num_validation": ("count", ()),
    "dim": ("count", ()),
    "num_true": ("count", ("7",)),
    "eval_all_until": ("whole", ()),
    "data_seed": ("whole", ()),
    "client_lr": ("positives", ("1e39",)),
    "server_lr": ("positives", ()),
    "penalty_scale": ("", ("-1", "nan", "0.1,0.1", "()", "True")),
    "candidates": ("positive", ("0.1,nan", "()", "0.1,abc", "0.1,-1")),
    "mean_scale": ("not negative", ()),
    "feature_skew": ("not negative", ()),
    "bias_scale": ("not negative", ()),
    "noise_scale": ("not negative", ()),
    "criterion_within": ("not negative", ()),
    "correlation": ("", ("1.5", "-1", "nan", "abc")),
    "clip_norm": ("positive", ()),
    "upload_norm": ("positive", ()),
    "dropout_probability": ("", ("1.5", "-0.1", "nan", "abc", "1")),
    "by_client": ("truth", ()),
    "certificate": ("truth", ()),
    "extend": ("truth", ()),
    "search": ("name", ("halv", "GRID")),
    "criterion": ("name", ("f2", "objectiv")),
    "criterion_goal": ("name", ("least", "MIN")),
    "strength": ("name", ("validate",)),
    "precision": ("name", ("fast",)),
    "algorithms": ("name", ("fed_midd", "fed_mid,fed_averag", "FedMid", "()", "json:loads")),
    "participation": (
        "name",
        (
            "cyclic",
            "coin_flips:2",
            "coin_flips:a",
            "weighted:1,2",
            "weighted:nan",
            "cyclic:9",
            "coin",
        ),
    ),
    "client_schedule": ("name", ("invers:5", "inverse", "warm_up:0", "staircase:2", "inverse:nan")),
    "clock": ("name", ("constant:1", "log_normal:a,1,1", "by_size:1,-1", "fast:1,1")),
    "correct": ("name", ("knwon",)),
    "late": ("name", ("dropped",)),
    "codec": ("name", ("topk:3", "top_k:0", "top_k:x", "top_k:3,ef99", "qsgd:-1", "top_k:3,diana")),
    "broadcast": ("name", ("topk:3", "top_k:-1", "top_k:3,ef21")),
    "seeds": ("", ("0,0", "0.5", "nan", "abc", "()")),
    "cuts": ("", ("-1", "nan", "abc", "()")),
    "own_grids.fed_mid.client_lr": ("", ("0", "nan", "-1", "abc")),
    "own_grids.fed_midd.client_lr": ("", ("0.1",)),
    "own_grids.fed_mid.clientlr": ("", ("0.1",)),
    "client_lrs": ("", ("0.1",)),
    "penalty_scales": ("", ("0.1",)),
    "step_size": ("", ("0.1",)),
}


def command_case(rng: random.Random, folder: pathlib.Path) -> Case:
    """A config with up to two odd values, and now and then an odd flag or folder."""
    keys = SWEEP_KEYS
    arguments = [f"--config.{one}" for one in TOY]
    wrong: list[str] = []
    for key in rng.sample(list(keys), rng.choice([0, 1, 1, 1, 2])):
        kind, also = keys[key]
        good, bad = KINDS.get(kind, ((), ()))
        bad = (*bad, *also)
        if good and rng.random() < 0.15:
            # Values that only run beside others would be refused with reason.
            if key not in ("num_rounds", "eval_every", "num_true", "batch_size"):
                arguments.append(f"--config.{key}={rng.choice(good)}")
            continue
        value = rng.choice(bad)
        if value == "None" and key in {*OPTIONAL, "participation"}:
            continue
        arguments.append(f"--config.{key}={value}")
        wrong.append("fed_midd" if "fed_midd" in key else key.split(".")[-1])
        if kind == "name" and len(value) > 2:  # the value tells which key it is of
            wrong += value.split(":")[0].split(",")[-1].strip("= ").split("=")[:2]
    if rng.random() < 0.1:
        key = _misspelt(rng, rng.choice([one for one in keys if "." not in one]))
        if key not in keys:
            arguments.append(f"--config.{key}=1")
            wrong.append(key)
    path: Any = "configs/lasso.py"
    workdir: Any = folder / "run"
    if rng.random() < 0.15:
        flag, named = rng.choice(FLAGS)
        arguments.append(flag)
        wrong += named
    if rng.random() < 0.1:
        workdir, named = rng.choice(WORKDIRS)(folder)
        wrong += named
    if rng.random() < 0.08:
        path, named = rng.choice(CONFIGS)(folder)
        wrong += named
    given = {argument.partition("=")[0] for argument in arguments[len(TOY) :]}
    kept = [one for one in arguments[: len(TOY)] if one.partition("=")[0] not in given]
    arguments = kept + arguments[len(TOY) :]
    rng.shuffle(arguments)
    front = [] if path is None else [f"--config={path}"]
    return Case([*front, f"--workdir={workdir}", *arguments], tuple(wrong))


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


FLAGS: list[tuple[str, list[str]]] = [
    ("--checkpoint_every=-1", ["checkpoint_every"]),
    ("--checkpoint_every=nan", ["checkpoint_every"]),
    ("--checkpoint_every=soon", ["checkpoint_every"]),
    ("--resume=maybe", ["resume"]),
    ("--quick=perhaps", ["quick"]),
    ("--quik", ["quik"]),
    ("--workdirs=x", ["workdirs"]),
    ("--num_processes=2", ["num_processes"]),
    ("--process_id=0", ["process_id"]),
    ("--coordinator=here", ["coordinator"]),
    ("--num_processes=two", ["num_processes"]),
    ("extra", ["extra"]),
    ("--config.", ["config"]),
    ("--config.=1", ["config"]),
    ("--noquick", []),
    ("--overwrite", []),
    ("--traceback=False", []),
]


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


WORKDIRS: list[Callable[[pathlib.Path], tuple[Any, list[str]]]] = [
    lambda at: (_file(at, "a_file", "x"), ["a_file"]),
    lambda at: (_file(at, "a_file", "x") / "under", ["a_file"]),
    lambda at: (_linked(at, "dangling", "nowhere"), ["dangling"]),
    lambda at: (_linked(at, "loop", "loop"), ["loop"]),
    lambda at: (_file(_made(at, "full"), "thing", "x").parent, ["full"]),
    lambda at: (at / ("long" * 100), ["longlong"]),
    lambda at: ("", ["workdir"]),
    lambda at: ("--overwrite", ["workdir"]),
    lambda at: ("/proc/nobody/run", ["/proc/nobody"]),
    lambda at: (at / os.fsdecode(b"run\xff"), ["workdir"]),
    lambda at: (_made(at, "empty folder"), []),
    lambda at: (at / "Zürich" / "läuft", []),
    lambda at: (f"{at}/run\twith tab", []),
]
CONFIGS: list[Callable[[pathlib.Path], tuple[Any, list[str]]]] = [
    lambda at: (None, ["config"]),
    lambda at: ("", ["config"]),
    lambda at: (at, [os.fspath(at)]),
    lambda at: ("configs/lassoo.py", ["lassoo"]),
    lambda at: (_file(at, "broken.py", "def f(:\n"), ["broken.py"]),
    lambda at: (_file(at, "raises.py", "1 / 0\n"), ["raises.py"]),
    lambda at: (_file(at, "exits.py", "raise SystemExit(0)\n"), ["exits.py"]),
    lambda at: (_file(at, "latin.py", b"x = '\xe4'\n"), ["latin.py"]),
    lambda at: (_file(at, "nul.py", b"x = 1\0\n"), ["nul.py"]),
    lambda at: (_file(at, "empty.py", ""), ["empty.py"]),
    lambda at: (_file(at, "text.txt", "hello"), ["text.txt"]),
    lambda at: (_file(at, "half.py", "get_config = quick = EXPERIMENT = None\n"), ["half.py"]),
    lambda at: (_linked(at, "loop.py", "loop.py"), ["loop.py"]),
]


def cases(seed: int, number: int, folder: pathlib.Path) -> Iterator[Case]:
    """Yield the cases of a seed, each with a folder of its own."""
    for index in range(number):
        rng = random.Random(f"{seed} {index}")
        own = _made(folder, str(index))
        yield command_case(rng, own)


def _run_in_child(case: Case, log: pathlib.Path) -> None:
    """Become the command, up to where computing begins; write what happened to the log."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from absl import app

    from experiments import run
    from experiments.execution import experiment

    def begin(*_: Any, **__: Any):
        raise _Begun

    experiment.solve_optima = begin
    sys.argv = ["run", *case.arguments]
    sys.orig_argv = [sys.executable, "-m", "experiments.run", *case.arguments]
    try:
        app.run(run.main, argv=sys.argv, flags_parser=run.parse_flags)
    except _Begun:
        os.write(2, b"\nBEGUN\n")
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
        return Verdict("silent" if case.wrong else "", said, case)
    if not case.wrong:
        return Verdict("needless", said, case)
    plain = unicodedata.normalize("NFC", said).lower()
    if not any(unicodedata.normalize("NFC", name).lower() in plain for name in case.wrong):
        return Verdict("unnamed", said, case)
    return Verdict("", said, case)


def judge(seed: int, number: int) -> Iterator[Verdict]:
    """Yield the verdicts that are not well."""
    import experiments.run  # noqa: F401  (before the forks)
    from configs import lasso  # noqa: F401
    from experiments.storage import provenance

    # Hashes of 229 source files, 1.3 s a command.
    provenance._outline = functools.cache(provenance._outline)
    provenance._code_of_users()
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
                yield verdict


def main(seed: str, number: str) -> None:
    """Print what is not well."""
    found = []
    for verdict in judge(int(seed), int(number)):
        found.append(verdict)
        print(f"{verdict.kind}: {verdict.said}\n  needs {verdict.case.wrong}")
        print("  " + " ".join(map(repr, verdict.case.arguments)), flush=True)
    kinds = ("raw", "silent", "unnamed", "needless")
    print(", ".join(f"{sum(v.kind == kind for v in found)} {kind}" for kind in kinds))


if __name__ == "__main__":
    main(*sys.argv[1:])
