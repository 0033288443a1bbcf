"""The flags of the launcher, and the error messages for wrong ones."""

import difflib
import math
import sys
from collections.abc import Iterator
from typing import Any

from absl import flags, logging
from ml_collections import ConfigDict, config_flags

from experiments.config.config_file import ConfigFile, load
from experiments.config.keys import MEANINGS, OPTIONAL
from experiments.config.settings import hyperparameters
from experiments.process.errors import CANNOT, UserError, suggest
from experiments.process.invocation import speak
from experiments.study import Sweep

# Unknown keys are accepted here, because they may be hyperparameters; the others are refused once
# the algorithms are known.
try:
    CONFIG = config_flags.DEFINE_config_file(
        "config", help_string="The config file.", lock_config=False, accept_new_attributes=True
    )
except flags.Error as error:  # defining the flag reads the --flagfile of the command line
    speak("run", str(error))
    sys.exit(CANNOT)
WORKDIR = flags.DEFINE_string("workdir", None, "The folder for all results.")
QUICK = flags.DEFINE_bool("quick", False, "Shrink the run to under a minute.")
OVERWRITE = flags.DEFINE_bool("overwrite", False, "First remove the run in the workdir.")
RESUMING = flags.DEFINE_enum(
    "resume", "yes", ["yes", "anyway"], "Resume a run; anyway: even if code has changed."
)
CHECKPOINT_EVERY = flags.DEFINE_float(
    "checkpoint_every", 15.0, "Seconds between two checkpoints.", lower_bound=0.0
)
flags.register_validator(
    "checkpoint_every", math.isfinite, "pass a number of seconds, 0 or more, such as 15"
)
COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "HOST:PORT of the first of several processes that are one run."
)
NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "The number of processes.")
PROCESS_ID = flags.DEFINE_integer("process_id", None, "The index of this process, from 0.")
TRACEBACK = flags.DEFINE_bool("traceback", False, "Show the traceback of an error.")


# Two keys for the same thing: the one on the command line counts.
_RIVALS = (("num_steps", "num_epochs"), ("participation", "cohort_size"))
_emptied: list[str] = []

# How absl says that it cannot read a value, and what to pass.
_UNREADABLE = {
    "('Non-boolean argument to boolean flag'": "True or False",  # absl puts a tuple there
    "invalid literal for int()": "a whole number",
    "could not convert string to float": "a number",
}


def parse(argv: list[str]) -> list[str]:
    """Parse the command line; raise ``UserError`` with one sentence.

    If a key is given twice, the last value counts.
    """
    logger = logging.get_absl_logger()
    logger.disabled = True  # absl would log a warning beside our own error message
    try:
        return flags.FLAGS([_with_quotes(argument) for argument in _last_of_each(argv)])
    except (Exception, SystemExit) as error:  # a config that exits would end as a run that is done
        raise UserError(_explain(argv, error)) from error
    finally:
        logger.disabled = False


def overrides() -> dict[str, Any]:
    """Return the keys that ``--config.KEY=VALUE`` has set."""
    return config_flags.get_override_values(flags.FLAGS["config"]) | dict.fromkeys(_emptied)


def override(config: ConfigDict) -> None:
    """Set the keys given on the command line again, because ``quick`` may have changed them."""
    given = overrides()
    with config.ignore_type():
        config.update_from_flattened_dict(given)
        for one, other in _RIVALS:
            both = [key for key in (one, other) if given.get(key) is not None]
            law = str(config.get("participation"))
            if one == "participation" and not law.startswith("coin_flips"):
                continue
            if len(both) == 2:
                raise UserError(
                    f"{one} and {other} are both given and contradict; pass one of them."
                )
            if both and config.get(rival := other if both == [one] else one) is not None:
                config[rival] = "uniform" if rival == "participation" else None


def config_among(argv: list[str]) -> str | None:
    """Return the config file that unparsed arguments name."""
    paths = [arg.removeprefix("--config=") for arg in argv if arg.startswith("--config=")]
    return paths[-1] if paths else None


def config_path() -> str | None:
    """Return the path of the config file, ``None`` if none was given."""
    if not flags.FLAGS["config"].present:
        return None
    return config_flags.get_config_filename(flags.FLAGS["config"])


def refuse_unknown_keys(file: ConfigFile, config: ConfigDict) -> None:
    """Refuse keys that are neither in the config nor hyperparameters of its algorithms.

    They come from the command line, or from ``quick`` of a file with a misspelt key.
    """
    known, given, sweep = file.get_config(), overrides(), file.experiment
    of_quick = config if isinstance(sweep, Sweep) else _flattened(config)
    new = [key for key in (*given, *of_quick) if not _has(known, key)]
    if not new:
        return
    further = hyperparameters(config, sweep) if isinstance(sweep, Sweep) else set()
    for key in new:
        if key not in further:
            what = "the config has no key" if key in given else "quick sets an unknown key,"
            raise UserError(f"{what} {key}; {suggest(key, {*_flattened(known), *further})}")


def _explain(argv: list[str], error: BaseException) -> str:
    given = [arg[len("--config.") :].split("=")[0] for arg in argv if arg[:9] == "--config."]
    path = config_among(argv)
    if nameless := [arg for arg in argv if arg.partition("=")[0] == "--config."]:
        return f"{nameless[0]} names no key; pass --config.KEY=VALUE."
    if given and path is None:
        return "--config.KEY also needs --config=FILE."
    try:
        known = ConfigDict() if path is None else load(path).get_config()
    except ValueError as own:
        return str(own)
    unknown = [key for key in given if not _has(known, key)]
    if unknown and isinstance(error, KeyError):
        return f"the config has no key {unknown[0]}; {suggest(unknown[0], known)}"
    flag = getattr(error, "flagname", "")  # set if absl does not know the flag
    if flag in known or flag in MEANINGS:
        return f"{flag} is a key of the config; pass --config.{flag}=VALUE."
    if flag:
        stem, *key = flag.split(".", 1)
        close = difflib.get_close_matches(stem, flags.FLAGS, n=1)
        advice = f"did you mean --{'.'.join([*close, *key])}?" if close else "--help lists them."
        return f"there is no flag --{flag}; {advice}"
    text = str(error).splitlines()[0] if str(error) else f"the flags raise {type(error).__name__}."
    if unknown and "malformed node" in text:
        return (
            f"--config.{unknown[0]} cannot be read: the config has no such key, and new ones take "
            f"numbers; {suggest(unknown[0], known)}"
        )
    for said, wanted in _UNREADABLE.items():
        flag, found, _ = text.partition(f": {said}")
        key, _, value = flag.removeprefix("flag ").partition("=")
        if found:
            return f"{key} is {value!r}; pass {wanted}."
    return text


def _last_of_each(argv: list[str]) -> list[str]:
    """Return the arguments without keys that are given again later or set to ``None``."""
    keys = [argument.partition("=")[0] for argument in argv]
    last = {key: place for place, key in enumerate(keys)}
    left = []
    _emptied.clear()
    for place, (key, argument) in enumerate(zip(keys, argv, strict=True)):
        optional = key.removeprefix("--config.") in OPTIONAL
        if key.startswith("--config.") and last[key] > place:
            continue
        if key.startswith("--config.") and optional and argument == f"{key}=None":
            _emptied.append(key.removeprefix("--config."))
        else:
            left.append(argument)
    return left


def _with_quotes(argument: str) -> str:
    """Quote the names in ``a,mine:b``, because the flag parser fails at the colon."""
    key, _, value = argument.partition("=")
    if key != "--config.algorithms" or ":" not in value or set(value) & set("()[]'\""):
        return argument
    return f"{key}={tuple(value.split(','))!r}"


def _flattened(config: ConfigDict, section: str = "") -> Iterator[str]:
    """Yield all keys, such as ``own`` and ``own.scale``."""
    for key, value in config.items():
        yield f"{section}{key}"
        if isinstance(value, ConfigDict):
            yield from _flattened(value, f"{section}{key}.")


def _has(config: Any, key: str) -> bool:
    """Return whether a config has a key such as ``own.scale``."""
    for part in key.split("."):
        if not isinstance(config, ConfigDict) or part not in config:
            return False
        config = config[part]
    return True
