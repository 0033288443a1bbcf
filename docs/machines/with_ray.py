"""Run the commands in runs.sh on Ray, with workdirs on a shared disk."""

import pathlib
import subprocess

import ray

ray.init()  # ray.init("auto") on a cluster that runs already
# A command that fails is repeated and continues; num_gpus=1 gives it a GPU.
call = ray.remote(num_cpus=1, max_retries=3, retry_exceptions=True)(
    subprocess.check_call
)
commands = pathlib.Path("runs.sh").read_text("utf-8").splitlines()
print(
    "exit codes",
    ray.get([call.remote(command, shell=True) for command in commands]),
)
