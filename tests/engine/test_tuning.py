"""The fastest chunk size: the minimum of the timings, timed once, stored for the program."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.engine import tuning
from tests.support import federations

DATA = fcojax.from_rows({"a": np.arange(40.0)}, [2] * 20)
ALGORITHM = fcojax.algorithms.fed_avg(lambda w, rows: (w - rows["a"]) ** 2)
HPARAMS = fcojax.algorithms.fed_avg.Hparams(client_lr=0.1)


def fastest(**options):
    options = federations.planned({"work": fcojax.local_steps(1)} | options)
    return fcojax.devices.fastest_chunk_size(ALGORITHM, HPARAMS, jnp.array(0.0), DATA, **options)


@pytest.fixture
def stopwatch(monkeypatch):
    """Make four side by side the fastest; record what was timed."""
    timed = []

    def seconds(lowered, arrays):
        timed.append(sorted(lowered))
        return {size: abs(size - 4) + 1.0 for size in lowered}

    monkeypatch.setattr(tuning, "_seconds_a_round", seconds)
    return timed


def test_the_least_time_wins(stopwatch):
    assert fastest() == 4 and fastest(candidates=(1, 2)) == 2
    assert stopwatch == [[1, 4, 16, 20], [1, 2]]


@pytest.mark.slow
def test_other_programs_are_timed_anew(stopwatch, tmp_path):
    programs = (
        {},
        {},
        {"work": fcojax.local_steps(2)},
        {"num_points": 3},
        {"cohort": fcojax.uniform_cohort(cohort_size=6)},
        {"num_points": 3},
    )
    for program in programs:
        assert fastest(remember=tmp_path / "chunks.json", **program) == 4
    assert stopwatch == [[1, 4, 16, 20]] * 3 + [[1, 4, 6]]


@pytest.mark.slow
def test_the_answer_outlives_the_process(stopwatch, tmp_path):
    file = tmp_path / "chunks.json"
    assert fastest(remember=file) == 4 and len(stopwatch) == 1
    ((name, times),) = json.loads(file.read_text()).items()
    assert times == {"1": 4.0, "4": 1.0, "16": 13.0, "20": 17.0}
    file.write_text(json.dumps({name: {"1": 4.0, "20": 3.0}}))
    assert fastest(remember=file) == 20 and len(stopwatch) == 1
    assert fastest(remember=file, candidates=(1, 2)) == 2 and len(stopwatch) == 2
    assert len(json.loads(file.read_text())) == 2


def test_a_chunk_beyond_memory_is_not_timed(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "usable_memory", lambda: 50)
    needed = iter((40, 60, 50))
    monkeypatch.setattr(tuning, "needed_bytes", lambda program: next(needed))
    file = tmp_path / "chunks.json"
    fastest(candidates=(1, 4, 20), remember=file)
    (times,) = json.loads(file.read_text()).values()
    assert set(times) == {"1", "20"}


def test_real_times_are_of_rounds(tmp_path):
    file = tmp_path / "chunks.json"
    chosen = fastest(candidates=(1, 20), remember=file)
    (times,) = json.loads(file.read_text()).values()
    assert chosen == int(min(times, key=times.get))
    assert set(times) == {"1", "20"} and min(times.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("axes", "points"), [({"clients": 2}, 1), ({"sweep": 2}, 3)])
def test_programs_on_a_mesh_are_timed_too(axes, points, tmp_path):
    file = tmp_path / "chunks.json"
    chosen = fcojax.devices.fastest_chunk_size(
        ALGORITHM,
        HPARAMS,
        jnp.array(0.0),
        fcojax.devices.shard_clients(DATA, fcojax.devices.device_mesh(**axes)),
        plan=fcojax.local_steps(1),
        num_points=points,
        num_seeds=2,
        candidates=(4,),
        remember=file,
    )
    (times,) = json.loads(file.read_text()).values()
    assert chosen == 4 and times["4"] > 0
