"""The command ``fcojax``, which is also ``python -m fcojax``.

usage: fcojax COMMAND

  fcojax run NAME|FILE --workdir=DIR          run a config, a FILE.py of your own, or a FILE.csv
  fcojax figures NAME|FILE --workdir=DIR      draw a finished run again
  fcojax results DIR... [--format=latex]      print the best points of finished runs in one table
  fcojax configs                              list the configs that come with the library
  fcojax copy NAME FILE.py                    copy a config to a file of your own
  fcojax algorithms                           print the table of methods, and what they send
  fcojax check MODULE:NAME                    check the library's laws on your algorithm, penalty,
                                              sampler, codec, ...

The first minute:
  fcojax run lasso --quick --workdir=runs/quick     one of the configs that fcojax configs lists
  fcojax run FILE.csv --config.target=COLUMN --config.client=COLUMN --workdir=runs/mine
  fcojax check scaffold                             the laws, on an algorithm of the library

fcojax run NAME --help lists the flags, and the keys of a config.
fcojax --version prints the version; eval "$(fcojax --completion)" completes words in bash.
"""

import ast
import difflib
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import runpy
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

import fcojax
from fcojax import starting

_PACKAGED = pathlib.Path(__file__).parent / "_launcher"
# The folder of ``experiments`` and ``configs``: a separate one in a wheel, so that it installs no
# top-level names such as ``experiments``; in a clone they are beside the library.
LAUNCHER = _PACKAGED if _PACKAGED.is_dir() else pathlib.Path(__file__).parent.parent
_TABLES = (".csv", ".xlsx", ".parquet", ".npz", ".svm", ".libsvm")
_NEEDED = ("filelock", "jinja2", "ml_collections", "matplotlib")
_OF_SITES = ("select", "sites", "flamby")  # configs that come with fcojax-sites


# The module of each command, which declares its own flags; this file does what has none.
COMMANDS = {
    "run": "experiments.run",
    "figures": "experiments.publishing.figures",
    "results": "experiments.publishing.results",
    "configs": None,
    "copy": None,
    "algorithms": "fcojax.check.methods",
    "check": "fcojax.check",
}


def main() -> None:
    """Run the command; a mistake ends in one sentence and exit code 2."""
    if sys.argv[1:2] != ["run"]:  # which has signals of its own
        for number, handler in starting.REPLACED.items():
            signal.signal(number, handler)
    try:
        try:
            _dispatch(*(sys.argv[1:] or ["--help"]))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # as in fcojax configs | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(name: str, *rest: str) -> None:
    if name in ("--help", "-h", "help"):
        print(__doc__)
    elif name in ("--version", "-V"):
        print(f"fcojax {fcojax.__version__}")
    elif name == "--completion":
        sys.path.insert(0, os.fspath(LAUNCHER))
        keys = importlib.import_module("experiments.config.keys").SweepKeys._fields
        flags = [f"--config.{key}=" for key in keys] + ["--workdir=", "--quick", "--overwrite"]
        print(_COMPLETION % (" ".join(COMMANDS), " ".join(configs()), " ".join(flags)))
    elif name not in COMMANDS:
        _leave(f"there is no command {name}; {_meant(name, COMMANDS, 'pass')}")
    elif name in ("configs", "algorithms") and rest:
        _leave(f"{name} takes no arguments, and {rest[0]} was given; type fcojax {name}.")
    elif name == "configs":
        print(_listed())
    elif name == "copy":
        _copy(*rest)
    else:
        arguments = _with_config(rest) if name in ("run", "figures") else rest
        if any(word.endswith(".py") for word in rest):  # it may import modules beside you
            sys.path.insert(0, os.getcwd())
        if name == "figures":  # `figures` reads only the rows
            arguments = [given for given in arguments if not given.startswith("--config.data=")]
        _become(str(COMMANDS[name]), arguments)


_COMPLETION = """_fcojax() {
  local word=${COMP_WORDS[COMP_CWORD]}
  case $COMP_CWORD in
    1) COMPREPLY=($(compgen -W "%s" -- "$word")) ;;
    2) COMPREPLY=($(compgen -W "%s" -- "$word") $(compgen -f -- "$word")) ;;
    *) COMPREPLY=($(compgen -W "%s" -- "$word")); compopt -o nospace ;;
  esac
}
complete -o default -F _fcojax fcojax"""


def _listed() -> str:
    """Return the configs with the first lines of their docstrings, configs for own data first."""
    found = {name: f"  {name:19}{summary(path)}" for name, path in configs().items()}
    own = [found.pop(name) for name in ("table", "select") if name in found]
    headings = "Your own data:", "\nStudies of the literature and of ours:"
    how = "fcojax run NAME --quick --workdir=DIR takes under a minute; run NAME --help has more."
    return "\n".join([headings[0], *own, headings[1], *found.values(), "", how])


def configs() -> dict[str, pathlib.Path]:
    """Return the configs of the library and of installed packages, by name.

    A package names a package of its configs as an entry point of the group ``fcojax.configs``.
    """
    folders = [LAUNCHER / "configs"]
    for entry in importlib.metadata.entry_points(group="fcojax.configs"):
        try:
            spec = importlib.util.find_spec(entry.value)
        except ImportError as error:  # made for another version of the library
            print(f"fcojax: the configs of {entry.value} are left out: {error}.", file=sys.stderr)
            continue
        folders += map(pathlib.Path, (spec and spec.submodule_search_locations) or ())
    # The library's own come last, so that no package replaces them.
    found = {path.stem: path for folder in reversed(folders) for path in folder.glob("[!_]*.py")}
    return dict(sorted(found.items()))


def summary(path: pathlib.Path) -> str:
    """Return the first line of a config's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


def _copy(*arguments: str) -> None:
    """Copy a config to a new file, and change the commands in its docstring accordingly."""
    if len(arguments) != 2 or not arguments[1].endswith(".py"):
        _leave("copy takes a config and the name of a new file; type fcojax copy NAME FILE.py.")
    name, target = arguments
    text = _known(name).read_text("utf-8")
    text = text.replace(f"fcojax run {name} ", f"fcojax run {target} ")
    try:
        with open(target, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        _leave(f"{target} exists already; pass another name.")
    except OSError as error:
        _leave(f"{target} cannot be written: {error.strerror}.")
    print(f"{target} is written; fcojax run {target} --workdir=DIR runs it.")


def _known(name: str) -> pathlib.Path:
    """Return the file of a config that comes with the library."""
    known = configs()
    if name not in known and name in _OF_SITES:
        _leave(f"{name} comes with fcojax-sites; pip install ./packages/sites in a checkout.")
    if name not in known:
        _leave(f"there is no config {name}; {_meant(name, known, 'pass a FILE.py or')}")
    return known[name]


def _meant(name: str, known: Iterable[str], otherwise: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"{otherwise} one of {', '.join(known)}."


def _with_config(arguments: Sequence[str]) -> list[str]:
    """Replace ``lasso`` or ``mine.py`` in front by ``--config=FILE``."""
    if not arguments or arguments[0].startswith("-"):
        return list(arguments)
    name, *rest = arguments
    if name.endswith(".py"):
        return [f"--config={name}", *rest]
    if name.endswith(_TABLES):
        if not os.path.exists(name):
            _leave(f"there is no file {name}; pass the path of a table, or a config's name.")
        return [f"--config={_known('table')}", f"--config.data={name}", *rest]
    return [f"--config={_known(name)}", *rest]


def _become(module: str, arguments: Sequence[str]) -> None:
    """Run a module as ``python -m`` does, with the launcher on its path."""
    if module.startswith("experiments"):
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            _leave(f"experiments need {missing[0]}; in a checkout pip install -e '.[experiments]'.")
        # Also for processes that the launcher starts.
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.fspath(LAUNCHER), known]))
        sys.path.insert(0, os.fspath(LAUNCHER))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _leave(sentence: str) -> NoReturn:
    sys.stderr.write(f"fcojax: {sentence}\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
