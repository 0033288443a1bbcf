"""Random command lines for the launcher, valid and not: each must end well or in one sentence.

    python -m benchmarks.command_lines [--count=500] [--seed=0] [--only=NUMBER]

A command ends well with exit code 0 and a finished folder, or with 1 if every point diverged; or it
writes one sentence, ends with exit code 2, and leaves the folder as it was; ``told where`` counts
sentences that name a line of the source instead of what to do. A traceback, a hang, or
a folder begun and left is a failure. Each command is a fork of this process, which has imported
everything and computed nothing. Prints one JSON line: how many ended how, and those that failed.
"""

import argparse
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback

from absl import app

from experiments import run

ROOT = pathlib.Path(__file__).parent.parent
_SECONDS = 240
_SMALL = {
    "configs/lasso.py": (
        "num_clients=4 num_examples=8 dim=6 num_true=2 num_validation=2 cohort_size=2 num_steps=2 "
        "batch_size=4 num_rounds=4 eval_every=2 client_lr=0.01 server_lr=1.0 criterion_rounds=2 "
        "seeds=0 algorithms=fed_mid"
    ),
    "configs/kpca.py": (
        "num_rounds=4 eval_every=2 step_counts=2 batch_shares=0.5 seeds=0 num_clients=3 "
        "num_examples=12 dim=6 num_components=2 num_steps=2 algorithms=fed_manifold"
    ),
    "configs/matrix_completion.py": (
        "num_rounds=4 eval_every=2 client_lr=0.01 server_lr=1.0 criterion_rounds=2 seeds=0 "
        "shape=6,5 true_rank=1 num_users=6 num_clients=3 cohort_size=2 num_steps=2 "
        "algorithms=fed_mid"
    ),
}
_NASTY = (
    "",
    "None",
    "abc",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "1.5",
    "-0.5",
    "nan",
    "inf",
    "1e400",
    "1e-50",
    "99999999999999999999",
    "2147483648",
    "-99999999999",
    "True",
    "()",
    "(1,2)",
    "1,2,3",
    "0.1,0.1",
    "[",
    "{}",
    "'",
    '"a',
    "é",
    "a,b",
    "0x10",
    "1_000",
    " ",
    "lambda: 0",
)
_GOOD = (
    "seeds=0,1",
    "seeds=3",
    "client_lr=0.001,0.01",
    "client_lr=1e9",
    "num_epochs=1",
    "batch_size=None",
    "cohort_size=None",
    "eval_every=1",
    "eval_every=4",
    "search=halving",
    "point_chunk_size=1",
    "client_chunk_size=1",
    "client_chunk_size=3",
    "precision=highest",
    "dropout_probability=0.25",
    "participation=coin_flips:0.5",
    "participation=cyclic:2",
    "participation=weighted:1",
    "participation=markov:0.2,0.5",
    "criterion=objective",
    "criterion_goal=min",
    "algorithms=fed_avg",
    "algorithms=fed_dual_avg,fed_mid",
    "algorithms=fed_pd",
    "algorithms=fed_dyn",
    "penalty_scale=0.1",
    "penalty_scale=0.1,0.2",
    "data_seed=1",
    "upload_norm=3.0",
    "num_rounds=2",
    "time_chunks=False",
)
_BAD = (
    "algorithms=nope",
    "algorithms=",
    "algorithms=os:path",
    "algorithms=nope:x",
    "algorithms=:",
    "participation=coin_flips",
    "participation=coin_flips:2",
    "participation=nope",
    "participation=markov:1",
    "num_rounds=99999999999999999999",
    "num_rounds=3",
    "seeds=0,0",
    "seeds=4294967296",
    "seeds=-1",
    "client_lr=0.1,0.1",
    "client_lr=0.1,0.10000000001",
    "client_lr=-1",
    "client_lr=1e50",
    "client_lr[0]=5",
    "num_clients=-1",
    "num_clients=0",
    "cohort_size=99",
    "batch_size=1000",
    "dim=0",
    "criterion=nope",
    "criterion_rounds=0",
    "search=random",
    "precision=fast",
    "cuts=abc",
    "data_dir=/nope",
    "own_grids=3",
    "nope=1",
    "upload_quantile=0.5",
    "upload_norm=-1.0",
    "num_steps.x=1",
    "client_lr.x=1",
    "criterion_goal=up",
    "eval_every=0",
)
_FLAGS = (
    "--quick=maybe",
    "--nope",
    "stray",
    "--overwrite",
    "--resume=no",
    "--resume=perhaps",
    "--resume=anyway",
    "--config",
    "--config=nope.py",
    "--config=README.md",
    "--workdir",
    "--",
    "--config.num_steps=2 --config.num_epochs=1",
    "--config.seeds=0 --config.seeds=1",
    "--tensorboard",
)
_BROKEN = (
    "def get_config(:\n",
    "raise RuntimeError('no')\n",
    "import nope\n",
    "x = 1\n",
    "\0",
    "def get_config(): return 1 / 0\ndef quick(config): pass\nEXPERIMENT = 3\n",
    "def get_config(): return 3\ndef quick(config): pass\nfrom configs.lasso import EXPERIMENT\n",
    "get_config = quick = 3\nfrom configs.lasso import EXPERIMENT\n",
    "",
)


def workdirs(folder: pathlib.Path) -> list[str]:
    """Places where a run can go, and others where it cannot."""
    (folder / "file").write_text("a file")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.txt").write_text("not ours")
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    good = ["a", "b c", "deep/er/still", "ünïcödé", "trailing/", "./dotted/../x", "%s", "~/home"]
    bad = [
        "file",
        "file/under",
        "foreign",
        "dangling",
        "loop",
        "n" * 300,
        "/proc/none",
        "/dev/null",
    ]
    return [f"{folder}/{name}" if name[0] not in "/~" else name for name in (good * 3 + bad)]


def command(rng: random.Random, folder: pathlib.Path) -> list[str]:
    """One command line: a small config, and up to three changes of all kinds."""
    config = rng.choice([*_SMALL, "configs/lasso.py", "configs/lasso.py"])
    settings = [f"--config.{pair}" for pair in _SMALL[config].split()]
    keys = [pair.partition("=")[0] for pair in _SMALL[config].split()]
    arguments = [f"--config={config}", f"--workdir={rng.choice(workdirs(folder))}", *settings]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))):
        kind = rng.random()
        if kind < 0.3:
            arguments.append(f"--config.{rng.choice(_GOOD)}")
        elif kind < 0.5:
            arguments.append(f"--config.{rng.choice(_BAD)}")
        elif kind < 0.75:
            arguments.append(f"--config.{rng.choice(keys)}={rng.choice(_NASTY)}")
        elif kind < 0.9:
            arguments += rng.choice(_FLAGS).split()
        elif kind < 0.95:
            broken = folder / "broken.py"
            broken.write_text(rng.choice(_BROKEN))
            arguments.append(f"--config={broken}")
        else:
            del arguments[rng.randrange(2)]
    return arguments


def outcome(arguments: list[str], folder: pathlib.Path) -> tuple[str, str]:
    """How a command ended: ``well``, ``told`` or what was wrong; and what it wrote."""
    before = _contents(folder)
    out, err = folder.parent / "out", folder.parent / "err"
    began, process = time.monotonic(), os.fork()
    if process == 0:
        _become(arguments, folder, out, err)
    code = None
    while code is None and time.monotonic() - began < _SECONDS:
        done, status = os.waitpid(process, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if done else None
        time.sleep(0.02)
    if code is None:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return "a hang", err.read_text("utf-8")
    said = err.read_text("utf-8")
    lines = [line for line in said.splitlines() if line.strip()]
    if "Traceback" in said:
        return "a traceback", said
    if code in (0, 1):
        unfinished = [path for path in _contents(folder) - before if path.endswith("config.json")]
        whole = all((pathlib.Path(path).parent / "index.html").exists() for path in unfinished)
        return ("well" if whole else "a half-written folder"), said
    if code != 2 or len(lines) != 1:
        return f"exit code {code} and {len(lines)} lines", said
    if _contents(folder) != before:
        return "a half-written folder", said
    return ("told where" if "pass --traceback" in said else "told"), said


def _become(arguments: list[str], folder: pathlib.Path, out: pathlib.Path, err: pathlib.Path):
    """The launcher, in this process, with its output in files; does not return."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8") for n in (1, 2))
    os.environ["HOME"] = os.fspath(folder)
    sys.argv = ["experiments.run", *arguments]
    code = 70
    try:
        app.run(run.main, argv=sys.argv, flags_parser=run.parse_flags)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _contents(folder: pathlib.Path) -> set[str]:
    return {os.fspath(path) for path in folder.rglob("*") if ".cache" not in path.parts}


def measure(count: int, seed: int, only: int | None = None) -> dict:
    """How ``count`` random command lines ended."""
    ends: dict[str, int] = {}
    failures = []
    began = time.monotonic()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.fspath(ROOT / ".jax_cache"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    for number in range(count) if only is None else [only]:
        rng = random.Random(f"{seed} {number}")
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place) / "here"
            folder.mkdir()
            arguments = command(rng, folder)
            end, said = outcome(arguments, folder)
            shutil.rmtree(folder, ignore_errors=True)
        ends[end] = ends.get(end, 0) + 1
        if only is not None or end not in ("well", "told", "told where"):
            text = shlex.join(arguments)
            failures.append({"number": number, "end": end, "command": text, "said": said[-1500:]})
    return {
        "count": count,
        "seed": seed,
        "ends": ends,
        "seconds": round(time.monotonic() - began, 1),
        "failures": failures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many commands")
    parser.add_argument("--seed", type=int, default=0, help="which commands")
    parser.add_argument("--only", type=int, help="run this one alone and tell how it ended")
    given = parser.parse_args()
    print(json.dumps(measure(given.count, given.seed, given.only)))


if __name__ == "__main__":
    main()
