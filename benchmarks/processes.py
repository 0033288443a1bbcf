"""Run sides of a benchmark in fresh processes; this file does not import JAX."""

import json
import subprocess
import sys


def in_fresh_process(module: str, **options) -> dict:
    """Run ``python -m benchmarks.MODULE --NAME=VALUE ...``; return its last line, which is JSON.

    On a CPU XLA is fast or slow for the life of a process, so medians are taken over processes.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}"]
    command += [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])
