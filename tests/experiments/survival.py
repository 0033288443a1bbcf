"""A run that is killed repeatedly and an undisturbed one must be equal bit for bit.

The run, ``survivor.py``, has client state, sampled cohorts, lost uploads and a codec with
residuals. It is killed at random moments, from the first import to the last figure, and started
again with the same command until it is done.
"""

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent.parent


def command(workdir: pathlib.Path, quick: bool) -> list[str]:
    """The run, with a checkpoint every other moment."""
    arguments = [f"--workdir={workdir}", "--checkpoint_every=0.2", *(["--quick"] if quick else [])]
    config = "--config=tests/experiments/survivor.py"
    return [sys.executable, "-m", "experiments.run", config, *arguments]


def start(workdir: pathlib.Path, quick: bool) -> subprocess.Popen:
    environment = {"JAX_COMPILATION_CACHE_DIR": os.fspath(ROOT / ".jax_cache")} | os.environ
    return subprocess.Popen(
        command(workdir, quick),
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def kill_and_resume(workdir: pathlib.Path, kills: int, number: int, seed: int, quick: bool) -> dict:
    """Kills the run so often and lets it finish; what was seen on the way."""
    rng = random.Random(seed)
    codes: dict[int, int] = {}
    slowest = 0.0
    said = []
    done = 0
    while codes.get(0, 0) == 0:
        with start(workdir, quick) as process:
            if done < kills:
                # From the imports to some way into the rounds, wherever the last one got to.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(rng.uniform(0.5, 6.0 if quick else 11.0))
                if process.poll() is None:
                    process.send_signal(number)
                    done += 1
            began = time.monotonic()
            _, errors = process.communicate(timeout=900)
            if process.returncode != 0:
                slowest = max(slowest, time.monotonic() - began)
            codes[process.returncode] = codes.get(process.returncode, 0) + 1
            said += [line for line in errors.splitlines() if "took over" not in line]
            if process.returncode not in (0, -number, 128 + number):
                raise SystemExit("\n".join(["the run ended by itself:", *said[-3:]]))
    return {
        "kills": done,
        "exit_codes": codes,
        "slowest_s": round(slowest, 2),
        "said": sorted(set(said)),
    }


def differences(one: pathlib.Path, other: pathlib.Path) -> list[str]:
    """What two workdirs of the same run do not have in common, but for times."""
    found = []
    rows = [(folder / "rows.jsonl").read_text("utf-8").splitlines() for folder in (one, other)]
    if rows[0] != rows[1]:
        found.append(f"rows: {len(rows[0])} and {len(rows[1])}")
    summaries = [
        json.loads((folder / "summary.json").read_text("utf-8")) for folder in (one, other)
    ]
    for summary in summaries:
        del summary["fingerprint"]  # of the seconds too
        for entry in summary["algorithms"].values():
            del entry["seconds"]
    if summaries[0] != summaries[1]:
        found.append("summary")
    for path in sorted((one / "models").iterdir()):
        arrays = [np.load(folder / "models" / path.name) for folder in (one, other)]
        if set(arrays[0]) != set(arrays[1]) or any(
            arrays[0][name].tobytes() != arrays[1][name].tobytes() for name in arrays[0]
        ):
            found.append(f"model {path.name}")
    return found


def measure(kills: int, name: str, seed: int, quick: bool) -> dict:
    """Runs both and compares them."""
    with tempfile.TemporaryDirectory() as place:
        whole, broken = pathlib.Path(place) / "whole", pathlib.Path(place) / "broken"
        with start(whole, quick) as process:
            _, errors = process.communicate(timeout=900)
        assert process.returncode == 0, errors
        number = signal.Signals[f"SIG{name}"]
        seen = kill_and_resume(broken, kills, number, seed, quick)
        return {
            "signal": name,
            "seed": seed,
            **seen,
            "rows": len((whole / "rows.jsonl").read_text("utf-8").splitlines()),
            "differences": differences(whole, broken),
        }
