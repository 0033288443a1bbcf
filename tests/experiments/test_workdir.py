"""Ownership of a workdir, and its state when a command is repeated."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from experiments.process.errors import UserError
from experiments.publishing import comparison
from experiments.report import page
from experiments.report import rows as tidy
from experiments.storage import checkpoints
from experiments.storage.provenance import LAYOUT
from experiments.storage.workdir import Workdir, held

OURS = {
    "layout": LAYOUT,
    "config": {"num_rounds": 5},
    "options": {"jax_enable_x64": False},
    "code": {"config file": "a1", "experiments.studies.lasso": "b1"},
    "versions": {"fcojax": "0.2.0", "jax": "0.10.2", "python": "3.11.2"},
    "command": ["python"],
    "devices": ["cpu:0"],
    "device_kind": "cpu",
    "xla_flags": "",
    "git_commit": None,
}


def workdir(path, said=None, overwrite=False, resume="yes"):
    return Workdir(os.fspath(path), overwrite, resume, (said if said is not None else []).append)


def begun(path, ours=OURS):
    """Return a folder in which this run has a row."""
    with workdir(path).claimed(ours, True):
        (path / "rows.jsonl").write_text('{"round": 0}\n')
    return path


def with_(what, **changes):
    return OURS | {what: OURS[what] | changes}


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (with_("config", num_rounds=6), "with num_rounds = 5 and this one has 6"),
        (with_("code", **{"config file": "a2"}), "by another version of the config file"),
        (with_("versions", fcojax="0.3.0"), "by fcojax 0.2.0 and this is fcojax 0.3.0"),
    ],
)
def test_a_run_of_other_numbers_is_refused_and_its_folder_kept(tmp_path, now, message):
    begun(tmp_path / "w")
    before = (tmp_path / "w" / "config.json").read_bytes()
    with pytest.raises(UserError, match=message):
        workdir(tmp_path / "w").look(now)
    assert (tmp_path / "w" / "config.json").read_bytes() == before


def test_resume_anyway_notes_code_that_changed(tmp_path):
    begun(tmp_path / "w")
    said, now = [], with_("code", **{"config file": "a2"})
    with workdir(tmp_path / "w", said, resume="anyway").claimed(now, True):
        pass
    assert "it was begun by another version of the config file" in said[0]
    known = json.loads((tmp_path / "w" / "config.json").read_text())
    assert known["code"] == OURS["code"] and len(known["resumed"]) == 1


def test_other_versions_and_devices_are_noted_when_a_run_resumes(tmp_path):
    begun(tmp_path / "w")
    said, now = [], with_("versions", jax="0.12.0") | {"devices": ["cpu:0", "cpu:1"]}
    for _ in range(2):
        with workdir(tmp_path / "w", said).claimed(now, True):
            pass
    assert said == [
        f"going on with the run in {tmp_path / 'w'}, but jax was 0.10.2 and is 0.12.0; there were "
        "1 devices and are 2."
    ]
    known = json.loads((tmp_path / "w" / "config.json").read_text())
    assert known["versions"]["jax"] == "0.10.2"
    assert known["resumed"][0]["versions"]["jax"] == "0.12.0"


def test_overwrite_removes_what_runs_write_and_nothing_else(tmp_path):
    folder = begun(tmp_path / "w")
    (folder / "notes.txt").write_text("mine")
    (folder / "checkpoints" / "x").mkdir(parents=True)
    now = with_("config", num_rounds=6)
    with workdir(folder, overwrite=True).claimed(now, True):
        assert not (folder / "rows.jsonl").exists()
        (folder / "rows.jsonl").write_text('{"round": 0}\n')
    assert {path.name for path in folder.iterdir()} == {"notes.txt", "config.json", "rows.jsonl"}
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("1")
    with pytest.raises(UserError, match="neither an empty folder"):
        workdir(tmp_path / "thesis", overwrite=True).look(now)


@pytest.mark.parametrize(
    "name", ["config.json", "rows.jsonl", "figures", "figures/curves.png", "models/a.npz", "lock"]
)
@pytest.mark.parametrize("target", ["mine", "nowhere", "/dev/zero"])
def test_a_folder_with_links_is_refused_and_their_targets_are_kept(tmp_path, name, target):
    folder = begun(tmp_path / "w")
    (tmp_path / "mine").write_text("mine")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / target)
    refused = pytest.raises(UserError, match=f"{folder / name} is a link or a device; remove it")
    with refused:
        workdir(folder, overwrite=True).look(OURS)
    assert {path.name for path in tmp_path.iterdir()} == {"w", "mine"}
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["config.json", "rows.jsonl", "lock"])
def test_a_named_pipe_is_refused_where_a_run_would_wait_for_ever(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=f"{name} is a link or a device"):
        workdir(tmp_path).look(OURS)


def test_files_beside_are_new_whatever_link_has_their_name(tmp_path):
    (tmp_path / "mine").write_text("mine")
    for name in ("config.partial", "rows.partial", "index.partial", "partial"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    tidy.write_json(tmp_path / "config.json", OURS)
    tidy.write(tmp_path / "rows.jsonl", [{"round": 0}])
    page.write(tmp_path / "index.html", "Title", "command", [], [])
    checkpoints.save(tmp_path, 5, {"a": np.ones(2)}, {})
    made = {"config.json", "rows.jsonl", "index.html", "5.npz"}
    assert {path.name for path in tmp_path.iterdir()} == made | {"mine"}
    assert not any((tmp_path / name).is_symlink() for name in made)
    assert (tmp_path / "mine").read_text() == "mine"


def test_files_of_100_000_brackets_are_damaged_ones(tmp_path):
    deep, said = "[" * 100_000, []
    folder = begun(tmp_path / "w")
    (folder / "rows.jsonl").write_text(f'{{"round": 0}}\n{deep}\n')
    (folder / "summary.json").write_text(deep)
    assert workdir(folder, said).look(OURS) == {} and "summary.json has changed" in said[0]
    assert workdir(folder).rows().rows == {"": [{"round": 0}]}
    (folder / "config.json").write_text(deep)
    with pytest.raises(UserError, match="config.json is damaged"):
        workdir(folder).look(OURS)
    with pytest.raises(UserError, match="holds no finished sweep"):
        comparison.read(folder)


@pytest.mark.slow
def test_a_lock_is_held_by_one_and_gone_afterwards(tmp_path):
    path, said = tmp_path / "lock", []
    with held(path, said.append):
        ours = pytest.raises(UserError, match=f"process {os.getpid()} on .* is writing to")
        with ours, held(path, said.append):
            raise AssertionError
        other = (
            "import pathlib, sys; from experiments.storage.workdir import held\n"
            "try:\n  held(pathlib.Path(sys.argv[1]), print).__enter__()\n"
            "except Exception as error: print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", other, path], capture_output=True, text=True, check=True
        )
        assert f"process {os.getpid()} on" in done.stdout
    assert not path.exists() and said == []


def test_a_lock_of_a_process_that_was_killed_is_taken_over(tmp_path):
    path, said = tmp_path / "lock", []
    dying = (
        "import os, pathlib, sys; from experiments.storage.workdir import held\n"
        "with held(pathlib.Path(sys.argv[1]), print): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", dying, path], check=False)
    assert path.exists()
    with held(path, said.append):
        pass
    assert "which has ended" in said[0] and not path.exists()
