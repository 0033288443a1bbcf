"""The command ``fcojax``, from the clone; .ci/run has it from a wheel in an empty folder."""

import contextlib
import importlib.metadata
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import fcojax
from fcojax import __main__ as command

ROOT = pathlib.Path(__file__).parent.parent


def typed(monkeypatch, capsys, *arguments):
    """Return the command's output and its exit code."""
    monkeypatch.setattr(sys, "argv", ["fcojax", *arguments])
    try:
        command.main()
        code = 0
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    return out + err, code


def test_every_config_is_listed_with_what_it_shows(monkeypatch, capsys):
    said, code = typed(monkeypatch, capsys, "configs")
    assert code == 0
    listed = dict(line.split(maxsplit=1) for line in said.splitlines() if line.startswith("  "))
    assert set(listed) == set(command.configs())
    assert all(line.endswith(".") for line in listed.values())


def test_configs_of_a_package_are_found_by_its_entry_point(monkeypatch, capsys, tmp_path):
    def installed(*names):
        entries = [importlib.metadata.EntryPoint(name, name, "fcojax.configs") for name in names]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)

    folder = tmp_path / "their_configs"
    folder.mkdir()
    for name in ("__init__", "theirs", "lasso"):
        (folder / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    installed("their_configs")
    assert command.configs()["theirs"] == folder / "theirs.py"
    assert command.configs()["lasso"] == ROOT / "configs" / "lasso.py"  # is never replaced
    installed()
    assert {*command.configs()} == {path.stem for path in (ROOT / "configs").glob("*.py")}
    said, code = typed(monkeypatch, capsys, "run", "select", "--workdir=here")
    assert code == 2 and "pip install ./packages/sites" in said
    # A package that was made for another version is named, and does not end the command.
    broken = tmp_path / "broken_package"
    broken.mkdir()
    (broken / "__init__.py").write_text("from fcojax import nothing_of_this_name\n")
    installed("broken_package.configs")
    said, code = typed(monkeypatch, capsys, "configs")
    assert code == 0 and "broken_package.configs are left out: cannot import name" in said


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--version"], f"fcojax {fcojax.__version__}", 0),
        (["rnu"], "no command rnu; did you mean run?", 2),
        (["--completion"], "complete -o default -F _fcojax fcojax", 0),
        (["algorithms", "fed_avg"], "algorithms takes no arguments, and fed_avg was given", 2),
        (["run", "laso", "--workdir=here"], "no config laso; did you mean lasso", 2),
        (["copy", "lasso", "no/such/folder/mine.py"], "cannot be written: No such file", 2),
    ],
)
def test_short_answers(monkeypatch, capsys, arguments, said, code):
    found, status = typed(monkeypatch, capsys, *arguments)
    assert said in found and status == code


def test_a_config_is_copied_once(monkeypatch, capsys, tmp_path):
    mine = tmp_path / "mine.py"
    said, code = typed(monkeypatch, capsys, "copy", "lasso", str(mine))
    assert code == 0 and "is written" in said
    assert f"fcojax run {mine} --workdir" in mine.read_text("utf-8")
    mine.write_text("mine")
    said, code = typed(monkeypatch, capsys, "copy", "lasso", str(mine))
    assert "exists already" in said and code == 2 and mine.read_text("utf-8") == "mine"


def test_the_figures_of_a_table_are_drawn_by_the_name_that_ran_it(monkeypatch, capsys, tmp_path):
    (tmp_path / "mine.csv").touch()
    given = []
    monkeypatch.setattr(command, "_become", lambda module, arguments: given.extend(arguments))
    typed(monkeypatch, capsys, "figures", str(tmp_path / "mine.csv"), "--workdir=run")
    assert given == [f"--config={ROOT / 'configs' / 'table.py'}", "--workdir=run"]


@pytest.mark.parametrize(
    ("arguments", "is_searched"),
    [
        (["run", "lasso"], False),
        (["figures", "lasso"], False),
        (["run", "mine.csv"], False),
        (["results"], False),
        (["run", "mine.py"], True),
        (["run", "--config=mine.py"], True),
    ],
)
def test_the_current_folder_is_searched_for_modules_of_a_file_alone(
    monkeypatch, capsys, tmp_path, arguments, is_searched
):
    (tmp_path / "mine.csv").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    searched = []
    monkeypatch.setattr(command.runpy, "run_module", lambda *_, **__: searched.extend(sys.path))
    typed(monkeypatch, capsys, *arguments, "--workdir=run")
    places = [place for place, folder in enumerate(searched) if folder == os.fspath(tmp_path)]
    assert searched[0] == os.fspath(command.LAUNCHER) and places == [1] * is_searched


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
def test_a_signal_in_the_imports_ends_the_command_in_a_line(tmp_path, number, name):
    (tmp_path / "jax.py").write_text(f"import os, signal\nos.kill(os.getpid(), {int(number)})\n")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fcojax", "run", "lasso"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.fspath(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 128 + number and not done.stdout
    assert done.stderr == f"fcojax: stopped by {name} before the command began.\n"


@pytest.mark.slow
@pytest.mark.parametrize("first", ["-c", "fcojax"])
def test_a_program_and_a_command_that_has_begun_have_the_signals_of_python(first):
    begin = "import fcojax" if first == "-c" else "from fcojax.__main__ import main; main()"
    code = (
        f"import signal, sys; sys.argv = [{first!r}, '--version']\n"
        "kinds = signal.SIGINT, signal.SIGTERM\n"
        "signal.signal(kinds[0], signal.default_int_handler)\n"
        f"before = [*map(signal.getsignal, kinds)]; {begin}\n"
        "assert [*map(signal.getsignal, kinds)] == before"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("arguments", [[], ["configs"], ["run", "laso"]])
def test_a_reader_that_has_gone_is_no_error(monkeypatch, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as nobody:
        monkeypatch.setattr(sys, "stdout", nobody)
        monkeypatch.setattr(sys, "argv", ["fcojax", *arguments])
        with contextlib.suppress(SystemExit):
            command.main()
