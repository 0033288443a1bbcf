"""The folder of a run: what may resume it, who may write to it, and what it keeps."""

import contextlib
import importlib.metadata
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import fcojax
from experiments.process import invocation
from experiments.process.invocation import UserError
from experiments.publishing import figures, results
from experiments.report import rows as tidy
from experiments.storage import checkpoints, provenance
from experiments.storage.row_store import RowStore
from experiments.storage.workdir import Workdir
from tests.experiments.test_run import ROOT

OURS = {
    "layout": provenance.LAYOUT,
    "config": {"num_rounds": 5},
    "options": {"jax_enable_x64": False},
    "code": {"the config file": "a1", "the module experiments.studies.lasso": "b1"},
    "versions": {"fcojax": "0.2.0", "jax": "0.10.2", "python": "3.11.2"},
    "device_kind": "cpu",
    "xla_flags": "",
}


def workdir(path, said=None, overwrite=False, resume="yes"):
    return Workdir(os.fspath(path), overwrite, resume, (said if said is not None else []).append)


def begun(path):
    """Return a folder in which this run has a row."""
    with workdir(path).claimed(OURS):
        (path / "rows.jsonl").write_text('{"round": 0}\n')
    return path


def with_(what, **changes):
    return OURS | {what: OURS[what] | changes}


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (with_("config", num_rounds=6), "with num_rounds = 5 and this one has 6"),
        (with_("options", jax_enable_x64=True), "with jax_enable_x64 = False and this one has"),
        (with_("code", **{"the config file": "a2"}), "by another version of the config file"),
        (OURS | {"layout": 0}, "with layout = "),
    ],
)
def test_a_run_of_other_numbers_is_refused_and_its_folder_kept(tmp_path, now, message):
    begun(tmp_path / "w")
    before = (tmp_path / "w" / "config.json").read_bytes()
    with pytest.raises(UserError, match=message):
        workdir(tmp_path / "w").look(now)
    assert (tmp_path / "w" / "config.json").read_bytes() == before
    (tmp_path / "w" / "rows.jsonl").unlink()
    assert workdir(tmp_path / "w").look(now) == {}  # without rows it is a new run


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (with_("code", **{"the config file": "a2"}), "by another version of the config file"),
        (with_("versions", jax="0.12.0"), "with jax = 0.10.2 and this one has 0.12.0"),
        (OURS | {"code": OURS["code"] | {"the module mine": "c"}}, None),  # loaded later
    ],
)
def test_a_run_that_goes_on_with_other_code_or_versions_says_so(tmp_path, now, told):
    begun(tmp_path / "w")
    said = []
    with workdir(tmp_path / "w", said, resume="anyway").claimed(now):
        pass
    assert (told in said[0]) if told else said == []


def test_what_makes_the_numbers_of_a_run_is_hashed(tmp_path):
    """The config file, the library, and studies; not what only reports and stores."""
    (tmp_path / "config.py").write_text("1")
    found = provenance.provenance({"client_lr": 0.1}, tmp_path / "config.py", [])
    assert {"the config file", "the library"} <= found["code"].keys()
    assert not any("experiments.storage" in name for name in found["code"])
    (tmp_path / "config.py").write_text("2")
    other = provenance.provenance({"client_lr": 0.1}, tmp_path / "config.py", [])
    assert "config file" in provenance.difference(found, other, provenance.CODE)


def test_overwrite_removes_what_runs_write_and_nothing_else(tmp_path):
    folder = begun(tmp_path / "w")
    (folder / "notes.txt").write_text("mine")
    (folder / "checkpoints" / "x").mkdir(parents=True)
    now = with_("config", num_rounds=6)
    with workdir(folder, overwrite=True).claimed(now):
        names = {path.name for path in folder.iterdir()}
    assert names - {"lock"} == {"notes.txt", "config.json"}
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("1")
    with pytest.raises(UserError, match="neither an empty folder"):
        workdir(tmp_path / "thesis", overwrite=True).look(now)


@pytest.mark.parametrize("name", ["config.json", "figures", "figures/curves.png", "lock"])
@pytest.mark.parametrize("target", ["mine", "nowhere", "/dev/zero"])
def test_a_folder_with_links_is_refused_and_their_targets_are_kept(tmp_path, name, target):
    folder = begun(tmp_path / "w")
    (tmp_path / "mine").write_text("mine")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / target)
    with pytest.raises(UserError, match=f"{folder / name} is a link or a device; remove it"):
        workdir(folder, overwrite=True).look(OURS)
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_named_pipe_is_refused_where_a_run_would_wait_for_ever(tmp_path):
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(UserError, match="is a link or a device"):
        workdir(tmp_path).look(OURS)


def test_files_beside_are_new_whatever_link_has_their_name(tmp_path):
    (tmp_path / "mine").write_text("mine")
    for name in ("config.partial", "rows.partial", "index.partial", "0-1.partial"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    tidy.write_json(tmp_path / "config.json", OURS)
    tidy.write(tmp_path / "rows.jsonl", [{"round": 0}])
    figures.write_page(tmp_path / "index.html", "Title")
    checkpoints.save(tmp_path / "0-1.npz", {"a": np.ones(2)}, {})
    made = {"config.json", "rows.jsonl", "index.html", "0-1.npz"}
    assert {path.name for path in tmp_path.iterdir()} == made | {"mine"}
    assert not any((tmp_path / name).is_symlink() for name in made)
    assert (tmp_path / "mine").read_text() == "mine"


def test_files_of_100_000_brackets_are_damaged_ones(tmp_path):
    deep = "[" * 100_000
    folder = begun(tmp_path / "w")
    (folder / "rows.jsonl").write_text(f'{{"round": 0}}\n{deep}\n')
    (folder / "summary.json").write_text(deep)
    assert workdir(folder).look(OURS) == {}
    assert RowStore(folder / "rows.jsonl").rows == {"": [{"round": 0}]}
    assert tidy.load(folder / "rows.jsonl") == [{"round": 0}]  # it was written again
    for text in (deep, '{"model": 1}'):
        (folder / "config.json").write_text(text)
        with pytest.raises(UserError, match="config.json is damaged or of another program"):
            workdir(folder).look(OURS)
    with pytest.raises(UserError, match="holds no finished sweep"):
        results.read(folder)


def test_a_folder_has_one_writer_until_its_process_has_ended(tmp_path):
    dying = (
        "import os, sys; from tests.experiments.test_workdir import OURS, workdir\n"
        "with workdir(sys.argv[1]).claimed(OURS): os.kill(os.getpid(), 9)"
    )
    refused = pytest.raises(UserError, match="another process is writing to")
    with workdir(tmp_path / "w").claimed(OURS), refused:
        workdir(tmp_path / "w").claimed(OURS).__enter__()
    subprocess.run([sys.executable, "-c", dying, tmp_path / "w"], cwd=ROOT, check=False)
    begun(tmp_path / "w")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["python", "/bin/fcojax", "run", "lasso", "--quick"], "fcojax run lasso --quick"),
        (["python", "-m", "fcojax", "run", "a.py", "--quick"], "fcojax run a.py --quick"),
        (["python", "-m", "experiments.run", "--quick"], "python -m experiments.run --quick"),
    ],
)
def test_the_command_is_told_as_it_was_typed(given, told, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", given)
    monkeypatch.setattr(sys, "argv", ["experiments/run.py", "--quick"])
    assert " ".join(invocation.command("run")) == told


def test_a_checkout_on_the_path_has_no_metadata_and_runs(monkeypatch):
    known = importlib.metadata.version

    def version(name):
        if name == "fcojax":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = provenance.provenance({}, ROOT / "configs" / "lasso.py", [])
    assert found["versions"]["fcojax"] == found["code"]["the library"] == fcojax.__version__


def test_a_run_on_a_gpu_keeps_its_programs_and_the_choices_of_its_kernels(tmp_path, monkeypatch):
    cache, folder = tmp_path / "cache", tmp_path / "run"
    choices = "xla_gpu_per_fusion_autotune_cache_dir"
    assert jax.config.values["jax_persistent_cache_enable_xla_caches"] == choices
    (cache / choices).mkdir(parents=True)
    (cache / choices / "known").write_text("1")
    folder.mkdir()
    with jax_options(jax_compilation_cache_dir=os.fspath(cache)):
        with provenance.same_kernels(folder):
            assert not any(folder.iterdir())  # on a CPU
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        assert (
            provenance.provenance({}, ROOT / "configs" / "lasso.py", [])["compiled"] == "compiled"
        )
        with provenance.same_kernels(folder):
            jax.jit(lambda x: x @ x + 72.0)(np.ones((3, 3)))
            (folder / "compiled" / choices / "new").write_text("2")
        assert any(path.is_file() for path in (folder / "compiled").iterdir())
        assert {path.name for path in (cache / choices).iterdir()} == {"known", "new"}
        (cache / choices / "known").write_text("3")
        jax.config.update("jax_compilation_cache_dir", os.fspath(cache))
        with provenance.same_kernels(folder):  # resumed: with what it had
            assert (folder / "compiled" / choices / "known").read_text() == "1"
    compilation_cache.reset_cache()


@contextlib.contextmanager
def jax_options(**options):
    """Set options of JAX within the block, and store every program that is compiled."""
    options |= {
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: jax.config.values[name] for name in options}
    try:
        for name, value in options.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
