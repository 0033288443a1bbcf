"""Runs that signals end, and go on with the same command, are equal to whole ones bit for bit."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent


def started(config: str, workdir: pathlib.Path) -> subprocess.Popen:
    """Start the quick run, with a checkpoint every other moment."""
    arguments = [f"--config={config}", f"--workdir={workdir}", "--checkpoint_every=0.2", "--quick"]
    environment = {"JAX_COMPILATION_CACHE_DIR": os.fspath(ROOT / ".jax_cache")} | os.environ
    # A shell ignores SIGINT for programs in the background, and so would what they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command = [sys.executable, "-m", "fcojax", "run", *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)


def untimed(value: Any) -> Any:
    """Return the value without what is measured in seconds."""
    if isinstance(value, dict):
        return {name: untimed(part) for name, part in value.items() if "seconds" not in name}
    return [untimed(part) for part in value] if isinstance(value, list) else value


def result(workdir: pathlib.Path) -> tuple[list[str], str, dict[str, bytes]]:
    """Return rows and summary as text, in which every bit of a number shows, and the models."""
    lines = (workdir / "rows.jsonl").read_text("utf-8").splitlines()
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))
    models = {
        f"{path.name} {name}": array.tobytes()
        for path in workdir.glob("models/*")
        for name, array in np.load(path).items()
    }
    rows = [json.dumps(untimed(json.loads(line))) for line in lines]
    return rows, json.dumps(untimed(summary), sort_keys=True), models


# A run with client state, sampled cohorts, lost uploads and error feedback; configs with data that
# are made; studies, the last two, start over.
CONFIGS = ["tests/experiments/survivor.py"]
CONFIGS += [f"configs/{name}.py" for name in ("lasso", "matrix_completion", "kpca", "compress")]


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
def test_a_run_that_three_signals_end_is_the_same_bit_for_bit(config, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert started(config, whole).wait() in (0, 1)
    expected = result(whole)
    for turn, number in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGKILL)):
        least = len(expected[0]) * (turn + 1) // 5
        began, rows = time.time(), broken / "rows.jsonl"
        with started(config, broken) as process:
            while not (  # rows of this process, and not of the one before
                rows.exists()
                and rows.stat().st_mtime > began
                and rows.read_bytes().count(b"\n") >= least
            ):
                assert process.poll() is None
                time.sleep(0.005)
            process.send_signal(number)
            said = process.communicate(timeout=600)[1].decode()
        assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), said
        assert number == signal.SIGKILL or "; the same command goes on." in said
    assert started(config, broken).wait() in (0, 1)
    assert result(broken) == expected
