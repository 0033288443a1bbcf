"""A config file: its numbers, a function that shrinks them, and its experiment."""

import importlib.util
import os
import pathlib
import traceback
from collections.abc import Callable
from typing import NamedTuple

from ml_collections import ConfigDict

from experiments.study import Experiment, Study, Sweep

_NEEDED = ("get_config", "quick", "EXPERIMENT")


class ConfigFile(NamedTuple):
    """What a config file defines.

    Attributes:
      get_config: returns the config, whose keys ``--config.KEY=VALUE`` sets.
      quick: shrinks a config, in place, to a run that takes less than a minute.
      experiment: the sweep or study.
      summary: the first paragraph of the file's docstring.
    """

    get_config: Callable[[], ConfigDict]
    quick: Callable[[ConfigDict], None]
    experiment: Experiment
    summary: str


def load(path: str) -> ConfigFile:
    """Read a config file; raise ``ValueError`` if it is missing or incomplete."""
    if not pathlib.Path(path).is_file():
        raise ValueError(
            f"there is no config file {path}; `fcojax configs` lists the shipped ones."
        )
    spec = importlib.util.spec_from_file_location("experiment_config", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file; pass a file whose name ends in .py.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # SystemExit would end the process like a finished run
        raise ValueError(_broken(path, error)) from error
    found = vars(module)
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise ValueError(f"{path} does not define {missing[0]}; a config needs {list(_NEEDED)}.")
    experiment = found["EXPERIMENT"]
    if not isinstance(experiment, Sweep | Study):
        raise ValueError(
            f"EXPERIMENT in {path} has the type {type(experiment).__name__}; "
            "make it a Sweep or a Study of experiments.study."
        )
    for name in ("problem", "penalty", "mirror", "manifold", "plan", "rows"):
        if not callable(piece := getattr(experiment, name, len)):
            raise ValueError(
                f"{name} of EXPERIMENT in {path} is a {type(piece).__name__}; pass a function "
                "of the config that returns one."
            )
    summary = (module.__doc__ or "").partition("\n\n")[0]
    for name in ("get_config", "quick"):
        if not callable(found[name]):
            raise ValueError(f"{name} in {path} is {found[name]!r}; it must be a function.")
    try:
        config = found["get_config"]()
    except (Exception, SystemExit) as error:
        raise ValueError(_broken(path, error)) from error
    if not isinstance(config, ConfigDict):
        raise ValueError(
            f"get_config in {path} returned a {type(config).__name__}; return a ConfigDict."
        )

    def quick(config: ConfigDict) -> None:
        try:
            found["quick"](config)
        except (Exception, SystemExit) as error:
            raise ValueError(_broken(path, error)) from error

    return ConfigFile(found["get_config"], quick, experiment, summary)


def _broken(path: str, error: BaseException) -> str:
    """Return the place and the reason why a config file cannot be read."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.abspath(frame.filename) == os.path.abspath(path)
    ]
    line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
    where = path if line is None else f"{path}, line {line}"
    return f"{where}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
