"""Several processes of one run: on loopback, with gloo, two CPU devices each."""

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
from fcojax import privacy
from tests.experiments.test_run import ROOT, TOY, command, environment

# Eight points, so that the devices of four processes have one each; a method that keeps states.
SHORT = [
    *TOY,
    "--config.algorithms=fed_dyn",
    "--config.num_rounds=60",
    "--checkpoint_every=0",
    "--config.client_lr=0.003,0.005,0.008,0.01,0.015,0.02,0.025,0.03",
]
SPREAD = """
import sys, jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from jax.experimental import multihost_utils
import fcojax
from tests.experiments.test_processes import solved
data, solve = solved()
spread = fcojax.devices.shard_clients(data, fcojax.devices.device_mesh(sweep=2, clients=2))
several = multihost_utils.process_allgather(solve(spread), tiled=True)
np.testing.assert_allclose(several, solve(data), rtol=1e-6, atol=1e-6)
print("same")
jax.distributed.shutdown()
"""


def solved():
    """Return a population, and a function that sweeps an algorithm with states over it."""
    import jax
    import jax.numpy as jnp

    import fcojax

    rng = np.random.default_rng(0)
    x = rng.standard_normal((24, 3), dtype=np.float32)
    data = fcojax.from_rows({"x": x, "y": x @ np.ones(3, np.float32)}, sizes=[5, 9, 3, 7])
    algorithm = fcojax.algorithms.scaffold(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
    grid = fcojax.grid.product(algorithm.hparams_type, client_lr=[0.01, 0.02])
    plan = fcojax.Plan(fcojax.local_steps(2, batch_size=2), fcojax.uniform_cohort(cohort_size=3))
    keys = jax.random.split(jax.random.key(0), 1)
    return data, lambda data: fcojax.sweep(
        algorithm, grid, jnp.zeros(3), data, keys, plan, num_rounds=20
    )[0]


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
def test_a_mesh_of_two_processes_gives_the_models_of_one():
    where = coordinator()
    codes, said = ended(
        [begun([sys.executable, "-c", SPREAD, where, str(index)]) for index in range(2)]
    )
    assert codes == [0, 0], said


@pytest.mark.slow
def test_two_processes_give_the_model_of_one(tmp_path, alone):
    codes, said = ended(begin(tmp_path / "run", 2))
    assert codes == [0, 0], said
    assert_same(tmp_path / "run", alone)


@pytest.mark.slow
def test_a_budget_ends_two_processes_with_the_round_and_the_models_of_one(tmp_path):
    """This holds if both are killed during the run, and one process continues."""

    def spent(rounds):  # by eight points with the same cohorts
        together = privacy.Releases(fcojax.coin_flips(0.5), 20 / 8**0.5, rounds)
        return privacy.total_epsilon([together], 6, 0.01)

    private = [
        *(argument for argument in SHORT if "cohort_size" not in argument),
        "--config.participation=coin_flips:0.5",
        "--config.clip_norm=0.01",
        "--config.noise_multiplier=20.0",
        "--config.privacy_delta=0.01",
        "--config.broadcast=half",
        f"--config.privacy_budget={(spent(22) + spent(23)) / 2}",
    ]
    codes, said = ended(begin(tmp_path / "one", 1, private), 900)
    assert codes == [0], said
    rows = tidy.load(tmp_path / "one" / "rows.jsonl")
    assert max(row["round"] for row in rows) == 22
    codes, said = ended(begin(tmp_path / "two", 2, private), 900)
    assert codes == [0, 0] and "stopped after round 22" in said[0], said
    assert_same(tmp_path / "two", tmp_path / "one")
    running = begin(tmp_path / "killed", 2, private)
    while not (tmp_path / "killed" / "rows.jsonl").exists() and running[0].poll() is None:
        time.sleep(0.01)
    running[0].send_signal(signal.SIGKILL)
    ended(running, 900)
    codes, said = ended(begin(tmp_path / "killed", 1, private), 900)
    assert codes == [0], said
    assert_same(tmp_path / "killed", tmp_path / "one")


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
        ([], 1, ["have 2, 1 devices; give all equally many"] * 2),
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
    saved = workdir / "checkpoints" / "fed_dyn" / "0-7"
    while all(process.poll() is None for process in running):
        is_saved = saved.is_dir() and any(saved.glob("*.npz"))
        if is_saved and len(tidy.load(workdir / "rows.jsonl")) > 8 * 4:
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


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_process_whose_others_never_come_ends_in_a_sentence(index):
    program = (
        "from experiments.process import distributed\n"
        "distributed._TOGETHER = 2\n"
        f"distributed.connect({coordinator()!r}, 2, {index})\n"
    )
    codes, said = ended([begun([sys.executable, "-c", program])], 60)
    assert codes == [distributed.GONE] and "did not find each other" in said[0], said


ON_DISK = """
import os, pathlib
import jax
import fcojax
from configs import lasso
from configs.lasso import get_config, quick
from fcojax.engine.placement import mesh

FOLDER, padded_rows = pathlib.Path({folder!r}), mesh._padded_rows

def problem(config):
    own = fcojax.open_clients(FOLDER / f"clients_{{jax.process_index()}}")
    return lasso.EXPERIMENT.problem(config)._replace(train=own)

def told_of(leaf, start, end, num_rows):
    if leaf.ndim == 2:
        with open(FOLDER / f"read {{os.getpid()}}", "a") as file:
            print(start, end - start, file=file)
    return padded_rows(leaf, start, end, num_rows)

if padded_rows.__name__ == "_padded_rows":  # the file is run more than once
    mesh._padded_rows = told_of
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
    read = [path.read_text().splitlines() for path in tmp_path.glob("read *")]
    quarters = ["0 1024", "1024 1024", "2048 1024", "3072 1024"]
    assert sorted(map(sorted, read)) == [quarters[:2], quarters[2:]]
