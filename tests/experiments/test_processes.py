"""Several processes of one run, on loopback with gloo, and the files that start them."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import fcojax
from experiments.process import distributed
from experiments.report import rows as tidy
from tests.experiments.test_run import ROOT, TOY, command, environment

# Eight points, so that the devices of four processes have one each; a method that keeps states.
RECIPES = ROOT / "docs" / "machines"
SHORT = [
    *TOY,
    "--config.algorithms=fed_dyn",
    "--config.num_rounds=60",
    "--checkpoint_every=0",
    "--config.client_lr=0.003,0.005,0.008,0.01,0.015,0.02,0.025,0.03",
]


def coordinator():
    """Return a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def begun(arguments, devices=2):
    around = environment() | {"XLA_FLAGS": "", "JAX_NUM_CPU_DEVICES": str(devices)}
    return subprocess.Popen(
        arguments,
        cwd=ROOT,
        env=around | {"PYTHONPATH": os.fspath(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def until(condition):
    """Wait for a condition, at most four minutes."""
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def begin(workdir, number, short=SHORT):
    """Start ``number`` processes of one command."""
    where = f"--coordinator={coordinator()}"
    each = [
        ["--workdir", os.fspath(workdir), where, f"--num_processes={number}", f"--process_id={i}"]
        for i in range(number)
    ]
    return [begun(command(*short, *arguments)) for arguments in each]


def ended(running, seconds=240):
    """Return exit codes and messages."""
    try:
        said = [process.communicate(timeout=seconds)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    return [process.returncode for process in running], said


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return the results of one process with one device."""
    workdir = tmp_path_factory.mktemp("processes") / "one"
    codes, said = ended([begun(command(*SHORT, f"--workdir={workdir}"), devices=1)])
    assert codes == [0], said
    return workdir


def assert_same(found, expected):
    """Models to 1e-6, and as many rows with the same numbers."""
    models = [np.load(folder / "models" / "fed_dyn.npz") for folder in (found, expected)]
    for leaf in models[1]:
        np.testing.assert_allclose(models[0][leaf], models[1][leaf], rtol=1e-6, atol=1e-6)
    rows = [tidy.load(folder / "rows.jsonl") for folder in (found, expected)]
    assert len(rows[0]) == len(rows[1])
    objectives = [
        {(row["client_lr"], row["round"]): row["objective"] for row in of_run} for of_run in rows
    ]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "devices", "messages"),
    [
        (
            # The rate would be refused in one process alone.
            ["--config.algorithms=fed_avg", "--config.client_lr=-1"],
            2,
            ["was started unlike process 1; start all of them with", "with algorithms = "],
        ),
        ([], 1, ["have different numbers of devices"] * 2),
    ],
)
def test_processes_with_other_flags_or_devices_are_refused(tmp_path, flags, devices, messages):
    """Each reports it, and nothing is written."""
    where = [f"--coordinator={coordinator()}", "--num_processes=2", f"--workdir={tmp_path / 'run'}"]
    first = begun(command(*SHORT, *where, "--process_id=0"))
    second = begun(command(*SHORT, *where, "--process_id=1", *flags), devices)
    codes, said = ended([first, second], 60)
    assert codes == [2, 2] and not (tmp_path / "run").exists(), said
    assert all(message in text for message, text in zip(messages, said, strict=True)), said


def begun_and_saved(workdir):
    """Start two processes of one command, and wait for a checkpoint and rows."""
    running = begin(workdir, 2)
    saved = workdir / "checkpoints" / "fed_dyn" / "0-7.npz"
    while all(process.poll() is None for process in running):
        if saved.exists() and len(tidy.load(workdir / "rows.jsonl")) > 8 * 4:
            break
        time.sleep(0.01)
    return running


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "number"), [(0, 2), (1, 1)])
def test_a_signal_to_one_process_ends_all_of_them(tmp_path, alone, asked, number):
    workdir = tmp_path / "run"
    running = begun_and_saved(workdir)
    running[asked].send_signal(signal.SIGTERM)
    codes, said = ended(running)
    assert codes == [128 + signal.SIGTERM] * 2, said
    assert not any("Traceback" in text for text in said)
    assert len(tidy.load(workdir / "rows.jsonl")) < len(tidy.load(alone / "rows.jsonl"))
    codes, said = ended(begin(workdir, number))
    assert codes == [0] * number, said
    assert_same(workdir, alone)


@pytest.mark.parametrize(
    ("around", "several"),
    [
        ({}, False),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, False),  # a batch script, not its tasks
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"TPU_WORKER_HOSTNAMES": "one,two"}, True),
    ],
)
def test_jobs_of_several_tasks_are_known(monkeypatch, around, several):
    for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "TPU_WORKER_HOSTNAMES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in around.items():
        monkeypatch.setenv(name, value)
    assert distributed.is_job_of_several() == several


ON_DISK = """
import jax
import fcojax
from configs import lasso
from configs.lasso import get_config, quick

def problem(config):
    own = fcojax.open_clients(f"{folder}/clients_{{jax.process_index()}}")
    return lasso.EXPERIMENT.problem(config)._replace(train=own)

EXPERIMENT = lasso.EXPERIMENT._replace(problem=problem)
"""


@pytest.mark.slow
def test_each_of_two_processes_reads_its_own_clients_from_disk(tmp_path):
    """Each of four devices has eight clients; the model is as with all clients in memory.

    The copy of each process has NaN in all rows of the other's clients.
    """
    from configs import lasso

    sizes = ["--config.num_clients=32", "--config.num_examples=128", "--config.dim=256"]
    options = [*SHORT[1:], *sizes, "--config.client_lr=1e-4", "--config.num_rounds=10"]
    config = lasso.get_config()
    config.num_clients, config.num_examples, config.dim, config.num_true = 32, 128, 256, 4
    train = lasso.EXPERIMENT.problem(config).train
    for index in range(2):
        half = {name: np.array(leaf) for name, leaf in train.examples.items()}
        for leaf in half.values():
            leaf[2048 * (1 - index) : 2048 * (2 - index)] = np.nan
        own = dataclasses.replace(train, examples=half)
        fcojax.save_clients(own, tmp_path / f"clients_{index}")
    (tmp_path / "on_disk.py").write_text(ON_DISK.format(folder=os.fspath(tmp_path)))
    codes, said = ended([begun(command(SHORT[0], *options, f"--workdir={tmp_path / 'one'}"))])
    assert codes == [0], said
    flags = [f"--workdir={tmp_path / 'two'}", f"--coordinator={coordinator()}", "--num_processes=2"]
    codes, said = ended(
        [
            begun(command(f"--config={tmp_path}/on_disk.py", *options, *flags, f"--process_id={i}"))
            for i in range(2)
        ]
    )
    assert codes == [0, 0], said
    assert_same(tmp_path / "two", tmp_path / "one")


# The files for clusters, with what each platform sets; the run of one process is the judge.
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
    if glob.glob("run/checkpoints/*/*.npz"):
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
    yaml = pytest.importorskip("yaml")
    *_, job = yaml.safe_load_all((RECIPES / name).read_text())
    if name == "skypilot.yaml":
        return ["bash", "-c", job["run"]], job["num_nodes"]
    if name == "kubeflow.yaml":
        trainer = job["spec"]["trainer"]
        return [*trainer["command"], *trainer["args"]], trainer["numNodes"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    return [*container["command"], *container["args"]], job["spec"]["completions"]


def tools(folder, **scripts):
    """Return variables with scripts, and a ``fcojax`` that adds flags, in front of the path."""
    flags = " ".join([*SHORT[1:], f"--workdir={folder / 'run'}"])
    scripts["fcojax"] = f'#!/bin/sh\nexec {sys.executable} -m fcojax "$@" {flags}\n'
    (folder / "bin").mkdir()
    for name, text in scripts.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    path = os.pathsep.join([os.fspath(folder / "bin"), os.environ["PATH"]])
    return environment() | {"PYTHONPATH": os.fspath(ROOT), "PATH": path, "XLA_FLAGS": ""}


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
