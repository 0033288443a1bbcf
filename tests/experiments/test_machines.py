"""The files for clusters: their commands, on this machine, with what each platform sets.

Two runs of one process each are the judge: FedDualAvg and the proximal gradient method (FedMiD-OSP
with one full local step), both with EF21.
"""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from experiments.report import rows as tidy
from tests.experiments.test_launch import RECIPES, until
from tests.experiments.test_processes import begun, coordinator, ended
from tests.experiments.test_run import ROOT, TOY, environment

yaml = pytest.importorskip("yaml")
LABELS = ("fed_dual_avg", "fed_mid_osp")
FLAGS = [
    *(flag for flag in TOY[1:] if "batch_size" not in flag and "num_steps" not in flag),
    f"--config.algorithms={','.join(LABELS)}",
    "--config.codec=top_k:0.3,ef21",
    "--config.num_steps=1",
    "--config.batch_size=None",
    "--config.num_rounds=60",
    "--config.client_lr=0.003,0.005,0.008,0.01,0.015,0.02,0.025,0.03",
    "--checkpoint_every=0",
]
# Slurm starts the tasks, and sends SIGTERM before the time limit: here once there is a checkpoint.
SRUN = """#!{python}
import glob, os, signal, subprocess, sys, time
tasks = [
    subprocess.Popen(sys.argv[2:], env=os.environ | {{
        "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_PROCID": str(index), "SLURM_LOCALID": str(index)}})
    for index in range(4)
]
if sys.argv[1] != "--kill-on-bad-exit=1":
    sys.exit("srun was given " + sys.argv[1])
while not os.path.exists("requeued") and all(task.poll() is None for task in tasks):
    if glob.glob("run/checkpoints/*/*/*.npz"):
        for task in tasks:
            task.send_signal(signal.SIGTERM)
        break
    time.sleep(0.02)
sys.exit(max(task.wait() for task in tasks))
"""


def sky(index, number, where):
    return {
        "SKYPILOT_NODE_IPS": "127.0.0.1\n" * number,
        "SKYPILOT_NUM_NODES": str(number),
        "SKYPILOT_NODE_RANK": str(index),
    }


def kubernetes(index, number, where):
    return {"JOB_COMPLETION_INDEX": str(index), "COORDINATOR": where}


def kubeflow(index, number, where):
    return {
        "JAX_PROCESS_ID": str(index),
        "JAX_NUM_PROCESSES": str(number),
        "JAX_COORDINATOR_ADDRESS": where,
    }


def commanded(name):
    """Return the command line of a file, and the number of its processes."""
    *_, job = yaml.safe_load_all((RECIPES / name).read_text())
    if name == "skypilot.yaml":
        return ["bash", "-c", job["run"]], job["num_nodes"]
    if name == "kubeflow.yaml":
        trainer = job["spec"]["trainer"]
        return [*trainer["command"], *trainer["args"]], trainer["numNodes"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    return [*container["command"], *container["args"]], job["spec"]["completions"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return the results of one process with one device."""
    workdir = tmp_path_factory.mktemp("machines") / "one"
    line = [sys.executable, "-m", "fcojax", "run", "lasso", *FLAGS, f"--workdir={workdir}"]
    codes, said = ended([begun(line, devices=1)])
    assert codes == [0], said
    return workdir


def tools(folder, **scripts):
    """Return variables with scripts, and a ``fcojax`` that adds flags, in front of the path."""
    flags = " ".join([*FLAGS, f"--workdir={folder / 'run'}"])
    scripts["fcojax"] = f'#!/bin/sh\nexec {sys.executable} -m fcojax "$@" {flags}\n'
    (folder / "bin").mkdir()
    for name, text in scripts.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    path = os.pathsep.join([os.fspath(folder / "bin"), os.environ["PATH"]])
    return environment() | {"PYTHONPATH": os.fspath(ROOT), "PATH": path, "XLA_FLAGS": ""}


def assert_same(found, expected):
    """The models of both methods, and the objectives of all rounds."""
    for label in LABELS:
        models = [np.load(folder / "models" / f"{label}.npz") for folder in (found, expected)]
        for leaf in models[1]:
            np.testing.assert_allclose(models[0][leaf], models[1][leaf], rtol=1e-5, atol=1e-6)
    curves = [
        {(row["algorithm"], row["client_lr"], row["round"]): row["objective"] for row in rows}
        for rows in (tidy.load(folder / "rows.jsonl") for folder in (found, expected))
    ]
    assert curves[0] == pytest.approx(curves[1], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variables"),
    [("kubernetes.yaml", kubernetes), ("kubeflow.yaml", kubeflow), ("skypilot.yaml", sky)],
)
def test_a_file_runs_and_after_a_process_is_killed_continues(tmp_path, alone, name, variables):
    around, (line, number) = tools(tmp_path), commanded(name)

    def start():
        where = coordinator()
        return [
            subprocess.Popen(
                line,
                env=around | {"JAX_NUM_CPU_DEVICES": "2"} | variables(index, number, where),
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            for index in range(number)
        ]

    running = start()
    checkpoints = tmp_path / "run" / "checkpoints"
    until(lambda: [*checkpoints.rglob("*.npz")] or running[0].poll() is not None)
    os.killpg(running[1].pid, signal.SIGKILL)
    codes, said = ended(running)
    assert codes[0] not in (0, 2), said
    codes, said = ended(start())
    assert codes == [0] * number, said
    assert_same(tmp_path / "run", alone)


@pytest.mark.slow
def test_the_slurm_file_continues_after_its_time_limit(tmp_path, alone):
    """Four tasks with one device each."""
    scontrol = '#!/bin/sh\necho "$@" > requeued\n'
    around = tools(tmp_path, srun=SRUN.format(python=sys.executable), scontrol=scontrol)
    around |= {"JAX_NUM_CPU_DEVICES": "1", "SLURM_JOB_ID": str(os.getpid())}
    script = ["bash", os.fspath(RECIPES / "slurm.sh")]
    codes = [subprocess.run(script, cwd=tmp_path, env=around).returncode for _ in range(2)]
    assert codes == [128 + signal.SIGTERM, 0]
    assert (tmp_path / "requeued").read_text() == f"requeue {os.getpid()}\n"
    assert_same(tmp_path / "run", alone)


@pytest.mark.slow
def test_a_network_spread_over_a_mesh_is_the_one_of_one_device(tmp_path):
    around = tools(tmp_path) | {"JAX_NUM_CPU_DEVICES": "4"}
    script = [sys.executable, os.fspath(RECIPES / "model_axis.py")]
    done = subprocess.run(script, env=around, capture_output=True, text=True)
    assert done.stdout == "equal; a device holds 250 of 484 parameters\n", done.stderr
