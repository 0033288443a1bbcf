"""The command ``fcojax``, which is also ``python -m fcojax``: experiments without a clone.

    fcojax run lasso --workdir=runs/lasso [--config.KEY=VALUE ...]
    fcojax configs
    fcojax check mine:scaffold

A wheel carries the launcher and the configs in a folder of its own, so that it takes no top-level
names such as ``experiments``; in a clone they lie beside the library. Here they are found.
"""

import ast
import importlib.util
import os
import pathlib
import runpy
import sys
from collections.abc import Sequence

import fcojax

_PACKAGED = pathlib.Path(__file__).parent / "_launcher"
# Where ``experiments`` and ``configs`` lie.
LAUNCHER = _PACKAGED if _PACKAGED.is_dir() else pathlib.Path(__file__).parent.parent
_USAGE = """usage: fcojax COMMAND

  fcojax run NAME|FILE.py --workdir=DIR   runs one of the configs below, or your own
  fcojax run NAME|FILE.py --help          the flags, and the keys of that config
  fcojax figures NAME|FILE.py --workdir=DIR   draws a finished run again
  fcojax launch FILE.py                   runs a list of experiments, several at a time
  fcojax configs                          lists the configs that come with the library
  fcojax check MODULE:FACTORY             runs the library's laws on an algorithm of your own
  fcojax --version"""
_NEEDED = ("ml_collections", "matplotlib", "rich")


def main() -> None:
    """Runs the command; a mistake ends in one sentence and exit code 2."""
    try:
        try:
            _obey(*(sys.argv[1:] or ["--help"]))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # as of fcojax configs | head, whose reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _obey(command: str, *rest: str) -> None:
    if command in ("--help", "-h", "help"):
        print(_USAGE)
    elif command in ("--version", "-V"):
        print(f"fcojax {fcojax.__version__}")
    elif command == "configs":
        _list_configs()
    elif command in ("run", "figures"):
        _launch(f"experiments.{command}", _with_config(rest))
    elif command == "launch":
        _launch("experiments.launch", rest)
    elif command == "check":
        sys.path.insert(0, os.getcwd())  # as python -m does
        _become("fcojax.check", rest)
    else:
        _leave(f"there is no command {command}; there are run, figures, launch, configs and check.")


def configs() -> dict[str, pathlib.Path]:
    """The configs that come with the library, by name."""
    return {path.stem: path for path in sorted((LAUNCHER / "configs").glob("*.py"))}


def summary(path: pathlib.Path) -> str:
    """The first line of a config's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


def _list_configs() -> None:
    for name, path in configs().items():
        print(f"{name:20}{summary(path)}")


def _with_config(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``lasso`` or ``mine.py`` in front as ``--config=FILE``."""
    if not arguments or arguments[0].startswith("-"):
        return list(arguments)
    name, *rest = arguments
    if name.endswith(".py"):
        return [f"--config={name}", *rest]
    known = configs()
    if name not in known:
        _leave(f"there is no config {name}; pass a FILE.py or one of {', '.join(known)}.")
    return [f"--config={known[name]}", *rest]


def _launch(module: str, arguments: Sequence[str]) -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        _leave(f"experiments need {missing[0]}; pip install 'fcojax[experiments]'.")
    sys.path[:0] = [os.fspath(LAUNCHER), os.getcwd()]
    # For processes that the launcher starts.
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.fspath(LAUNCHER), inherited]))
    _become(module, arguments)


def _become(module: str, arguments: Sequence[str]) -> None:
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _leave(sentence: str) -> None:
    sys.stderr.write(f"fcojax: {sentence}\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
