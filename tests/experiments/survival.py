"""A run that signals end repeatedly and an undisturbed one must be equal bit for bit.

It ends at random moments, from the first import to the last figure, and is started again with the
same command until it is done. Only times may differ.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent.parent


def start(config: str, workdir: pathlib.Path) -> subprocess.Popen:
    """The quick run, with a checkpoint every other moment."""
    arguments = [f"--config={config}", f"--workdir={workdir}", "--checkpoint_every=0.2", "--quick"]
    environment = {"JAX_COMPILATION_CACHE_DIR": os.fspath(ROOT / ".jax_cache")} | os.environ
    # A shell ignores SIGINT for programs in the background, and so would what they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.run", *arguments],
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_and_resume(
    config: str, workdir: pathlib.Path, names: Sequence[str], seed: int, latest: float
) -> dict[str, Any]:
    """Sends the signals, each within so many seconds of a start, and then lets the run finish.

    A run that is done before its signal starts over in an empty folder, and so does one whose
    signal comes after its last block, too late to change how it ends.
    """
    rng, left = random.Random(seed), [signal.Signals[f"SIG{name}"] for name in names]
    codes: list[int] = []
    rows_after, said, is_done, missed = 0, set(), False, 0
    while left or not is_done:
        started = time.monotonic()
        with start(config, workdir) as process:
            if left:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(rng.uniform(0.5, latest))
            began, before = time.monotonic(), num_rows(workdir)
            expected = [0, 1]  # 1: the best point of every algorithm diverged
            number = None
            if left and process.poll() is None:
                number = left.pop(0)
                process.send_signal(number)
                expected += [-number, 128 + number]
            _, errors = process.communicate(timeout=900)
            is_done = process.returncode in (0, 1)
        if process.returncode not in expected:
            raise AssertionError(f"{config} ended with {process.returncode}: {errors}")
        codes.append(process.returncode)
        ignored = is_done and number is not None
        if ignored:
            left, missed = [number, *left], missed + 1
            assert missed <= 2, f"{config} ignored {number.name} three times: {errors}"
        if is_done and left:
            # The whole run compiled, and this one may have read its programs from the disk.
            latest = min(latest, 0.8 * (began - started))
            shutil.rmtree(workdir)
        elif not is_done:
            rows_after = max(rows_after, num_rows(workdir) - before)
        # Until run.py itself begins, Ctrl-C ends Python with a traceback.
        if process.returncode != -signal.SIGINT and not ignored:
            said |= {line for line in errors.splitlines() if "took over" not in line}
    return {"exit_codes": codes, "rows_after": rows_after, "said": sorted(said)}


def num_rows(workdir: pathlib.Path) -> int:
    """Return how many rows a run has written."""
    rows = workdir / "rows.jsonl"
    return rows.read_bytes().count(b"\n") if rows.exists() else 0


def untimed(value: Any) -> Any:
    """The value without what is measured in seconds."""
    if isinstance(value, dict):
        return {name: untimed(part) for name, part in value.items() if "seconds" not in name}
    return [untimed(part) for part in value] if isinstance(value, list) else value


def differences(one: pathlib.Path, other: pathlib.Path) -> list[str]:
    """What two workdirs of the same run do not have in common, but for times."""
    found = []
    rows, summaries = [], []
    for folder in (one, other):
        lines = (folder / "rows.jsonl").read_text("utf-8").splitlines()
        rows.append([untimed(json.loads(line)) for line in lines])
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
        # Hashes of files that have seconds in them.
        summaries.append({**untimed(summary), "fingerprint": None, "rows": None})
    # As text, in which every bit of a number shows and NaN equals itself.
    if json.dumps(rows[0]) != json.dumps(rows[1]):
        found.append(f"rows: {len(rows[0])} and {len(rows[1])}")
    texts = [json.dumps(summary, sort_keys=True) for summary in summaries]
    if texts[0] != texts[1]:
        found.append("summary")
    models = [sorted(path.name for path in folder.glob("models/*")) for folder in (one, other)]
    if models[0] != models[1]:
        found.append("names of models")
    for name in models[0]:
        arrays = [np.load(folder / "models" / name) for folder in (one, other)]
        if set(arrays[0]) != set(arrays[1]) or any(
            arrays[0][leaf].tobytes() != arrays[1][leaf].tobytes() for leaf in arrays[0]
        ):
            found.append(f"model {name}")
    return found


def measure(
    config: str, names: Sequence[str], seed: int, latest: float | None = None
) -> dict[str, Any]:
    """Runs both and compares them; signals come within the seconds of the whole run by default."""
    with tempfile.TemporaryDirectory() as place:
        whole, broken = pathlib.Path(place) / "whole", pathlib.Path(place) / "broken"
        began = time.monotonic()
        with start(config, whole) as process:
            _, errors = process.communicate(timeout=900)
        assert process.returncode in (0, 1), errors
        latest = latest or 0.8 * (time.monotonic() - began)
        seen = interrupt_and_resume(config, broken, names, seed, latest)
        rows = len((whole / "rows.jsonl").read_text("utf-8").splitlines())
        return {**seen, "rows": rows, "differences": differences(whole, broken)}
