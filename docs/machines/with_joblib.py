"""Run the commands in runs.sh, two at a time."""

import pathlib
import subprocess

from joblib import Parallel, delayed

commands = pathlib.Path("runs.sh").read_text("utf-8").splitlines()
calls = [delayed(subprocess.call)(command, shell=True) for command in commands]
print("exit codes", Parallel(n_jobs=2, backend="threading")(calls))
