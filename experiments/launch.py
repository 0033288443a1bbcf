"""Submit each command of a file as a job of submitit: on this machine, or as a Slurm array.

fcojax launch FILE [--cluster=local|slurm|debug] [--PARAMETER=VALUE ...]

FILE has one ``fcojax run ...`` a line, and PARAMETER is submitit's, as in ``--timeout_min=240
--slurm_partition=gpu --slurm_array_parallelism=8``; logs are in FILE.jobs. Before its time limit
a run saves, and is submitted again. The same command continues runs that ended early.
"""

import os
import pathlib
import shlex
import signal
import subprocess
import sys

import submitit

from experiments.process.invocation import CANNOT, speak

_MINUTES = 24 * 60  # submitit's own defaults are two here and five with Slurm
# A run that saves has made progress, so it may be submitted often; submitit's default is three.
_OFTEN = 1000


class Job:
    """One command, as ``submitit`` calls it; before the time limit it calls ``checkpoint``."""

    def __init__(self, arguments: list[str]):
        self.arguments = arguments

    def __call__(self) -> int:
        """Run the command; return 1 if all of it diverged, else 0. Otherwise the job has failed."""
        with subprocess.Popen([sys.executable, "-m", *self.arguments]) as process:
            self.pid = process.pid
            code = process.wait()
        if code not in (0, 1):
            raise subprocess.CalledProcessError(code, self.arguments)
        return code

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Let the run save and end; return what is to be submitted in its place."""
        os.kill(self.pid, signal.SIGTERM)
        # This handler has interrupted Popen.wait, which holds the lock that another wait needs.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return submitit.helpers.DelayedSubmission(Job(self.arguments))


def main(arguments: list[str]) -> int:
    """Submit the jobs; return the largest exit code, or 0 without waiting if Slurm has them."""
    if not arguments or {"-h", "--help"} & {*arguments}:
        print(__doc__)
        return 0
    file, pairs = pathlib.Path(arguments[0]), [word.partition("=") for word in arguments[1:]]
    given = {name[2:]: int(value) if value.isdecimal() else value for name, _, value in pairs}
    try:
        lines = file.read_text("utf-8").splitlines()
        commands = [words for line in lines if (words := shlex.split(line, comments=True))]
        if not commands or any(words[:2] != ["fcojax", "run"] for words in commands):
            raise ValueError(f"each line of {file} has to be a command fcojax run ...")
        often = {f"{engine}_max_num_timeout": _OFTEN for engine in ("local", "slurm")}
        cluster = str(given.pop("cluster", "")) or None
        executor = submitit.AutoExecutor(file.with_suffix(".jobs"), cluster, **often)
        executor.update_parameters(**{"timeout_min": _MINUTES} | given)
    except (AssertionError, NameError, OSError, RuntimeError, ValueError) as error:
        speak("launch", str(error))
        return CANNOT
    os.environ["PYTHONSAFEPATH"] = "1"  # no job runs modules of the current folder unasked
    with executor.batch():
        jobs = [executor.submit(Job(words)) for words in commands]
    for job, words in zip(jobs, commands, strict=True):
        print(f"{job.job_id}: {shlex.join(words)}")
    if executor.cluster == "slurm":
        return 0
    return max(CANNOT if job.exception() else job.result() for job in jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
