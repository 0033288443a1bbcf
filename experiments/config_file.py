"""A config file: its numbers, how to shrink them, and the experiment that they are for."""

import importlib.util
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from ml_collections import ConfigDict

from experiments.study import Experiment, Study, Sweep

_NEEDED = ("get_config", "quick", "EXPERIMENT")


class ConfigFile(NamedTuple):
    """What a config file defines.

    Attributes:
      get_config: everything that can be set with ``--config.KEY=VALUE``.
      quick: shrinks a config, in place, to a run of under a minute.
      experiment: what is run with these numbers.
      summary: the first paragraph of the file's docstring.
    """

    get_config: Callable[[], ConfigDict]
    quick: Callable[[ConfigDict], None]
    experiment: Experiment
    summary: str


def load(path: str) -> ConfigFile:
    """Reads a config file; raises ``ValueError`` if it is missing or lacks a part."""
    if not pathlib.Path(path).is_file():
        raise ValueError(f"there is no config file {path}; the ones we ship are in configs/.")
    spec = importlib.util.spec_from_file_location("experiment_config", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
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
    summary = (module.__doc__ or "").partition("\n\n")[0]
    return ConfigFile(found["get_config"], found["quick"], experiment, summary)
