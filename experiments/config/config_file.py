"""A config file: its numbers, a function that shrinks them, and its experiment."""

import importlib.util
import os
import pathlib
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.study import Experiment, Study, Sweep

_NEEDED = ("get_config", "quick", "EXPERIMENT")


class ConfigFile(NamedTuple):
    """What a config file defines.

    Attributes:
      get_config: returns the config, whose keys ``--config.KEY=VALUE`` sets.
      quick: shrinks a config, in place, to a run that takes less than a minute.
      experiment: the sweep or study.
      about: the file's docstring, whose first paragraph is on the page.
    """

    get_config: Callable[[], ConfigDict]
    quick: Callable[[ConfigDict], None]
    experiment: Experiment
    about: str

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring."""
        return self.about.partition("\n\n")[0]


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
    _called(path, spec.loader.exec_module, module)
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
    if not isinstance(config := _called(path, found["get_config"]), ConfigDict):
        raise ValueError(
            f"get_config in {path} returned a {type(config).__name__}; return a ConfigDict."
        )
    quick = lambda config: _called(path, found["quick"], config)  # noqa: E731
    return ConfigFile(found["get_config"], quick, experiment, module.__doc__ or "")


def _called(path: str, function: Callable, *arguments: Any) -> Any:
    """Call a function of a config file; name the place in an error.

    A ``SystemExit`` would end the process like a finished run.
    """
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        frames, own = traceback.extract_tb(error.__traceback__), os.path.abspath(path)
        lines = [frame.lineno for frame in frames if os.path.abspath(frame.filename) == own]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
        where = path if line is None else f"{path}, line {line}"
        said = str(error).partition("\n")[0]
        raise ValueError(f"{where}: {type(error).__name__}: {said}") from error
