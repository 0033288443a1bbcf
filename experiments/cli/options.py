"""The flags of the launcher, and the error messages for wrong ones."""

import inspect
import math
import sys

from absl import flags, logging
from ml_collections import ConfigDict, config_flags

from experiments.config.config_file import ConfigFile, load
from experiments.config.keys import OPTIONAL, SweepKeys
from experiments.config.settings import hyperparameters
from experiments.process.invocation import CANNOT, UserError, speak, suggest
from experiments.study import Sweep, flattened

# Unknown keys are accepted here, because they may be hyperparameters; the others are refused once
# the algorithms are known.
try:
    CONFIG = config_flags.DEFINE_config_file(
        "config", help_string="The config file.", lock_config=False, accept_new_attributes=True
    )
except flags.Error as error:  # defining the flag reads the --flagfile of the command line
    speak("run", str(error))
    sys.exit(CANNOT)
WORKDIR = flags.DEFINE_string("workdir", None, "The folder for all results.", required=True)
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

_emptied: list[str] = []  # keys that the command line sets to None


def parse(argv: list[str]) -> list[str]:
    """Parse the command line; raise ``UserError`` with one sentence.

    If a key is given twice, the last value counts.
    """
    for argument in argv:
        dashes, _, key = argument.partition("=")[0].partition("config.")
        if dashes in ("-", "--") and "-" in key:
            raise UserError(f"the config has no key {key}; did you mean {key.replace('-', '_')}?")
    logger = logging.get_absl_logger()
    logger.disabled = True  # absl would log a warning beside the error message
    try:
        return flags.FLAGS([_with_quotes(argument) for argument in _last_of_each(argv)])
    except (Exception, SystemExit) as error:  # a config that exits would end as a run that is done
        if path := config_among(argv):
            load(path)  # says where a config fails
        raise UserError(str(error) or f"the flags raise {type(error).__name__}.") from error
    finally:
        logger.disabled = False


def resolved(file: ConfigFile) -> ConfigDict:
    """Return the config with ``quick`` and the changes of the command line, locked.

    Keys that are neither in the config nor hyperparameters of its algorithms are refused. They come
    from the command line, or from ``quick`` of a file with a misspelt key.
    """
    config, sweep, defaults = CONFIG.value, file.experiment, file.get_config()
    known = {*defaults, *dict(flattened(defaults))}
    given = config_flags.get_override_values(flags.FLAGS["config"]) | dict.fromkeys(_emptied)
    if QUICK.value:
        file.quick(config)
    of_quick = config if isinstance(sweep, Sweep) else dict(flattened(config))
    new = [key for key in (*given, *of_quick) if key not in known]
    further = hyperparameters(config, sweep) if new and isinstance(sweep, Sweep) else set()
    if unknown := [key for key in new if key not in further]:
        what = "the config has no key" if unknown[0] in given else "quick sets an unknown key,"
        raise UserError(f"{what} {unknown[0]}; {suggest(unknown[0], known | further)}")
    with config.ignore_type():
        config.update_from_flattened_dict(given)  # again, because quick may have changed them
    return config.lock()


def manual(path: str | None) -> str:
    """Return the help: a config's docstring and numbers, the shared keys, and the flags."""
    about = ["usage: fcojax run NAME|FILE --workdir=DIR [--config.KEY=VALUE ...] [flags]", ""]
    if path is not None:
        file = load(path)
        about += [file.about, "", inspect.getsource(file.get_config)]
    known = flags.FLAGS.flags_by_module_dict()[__name__]
    lines = [f"  --{flag.name}: {flag.help}" for flag in known if flag.name != "config"]
    return "\n".join([*about, inspect.getdoc(SweepKeys) or "", "", "Flags:", *lines])


def config_among(argv: list[str]) -> str | None:
    """Return the config file that unparsed arguments name."""
    paths = [arg.removeprefix("--config=") for arg in argv if arg.startswith("--config=")]
    return paths[-1] if paths else None


def _last_of_each(argv: list[str]) -> list[str]:
    """Return the arguments without keys that are given again later or set to ``None``."""
    last = {argument.partition("=")[0]: argument for argument in argv}
    left = []
    _emptied.clear()
    for argument in argv:
        key, _, value = argument.partition("=")
        if not key.startswith("--config."):
            left.append(argument)
        elif last[key] is argument:
            name = key.removeprefix("--config.")
            is_empty = name in OPTIONAL and value == "None"
            (_emptied if is_empty else left).append(name if is_empty else argument)
    return left


def _with_quotes(argument: str) -> str:
    """Quote the names in ``a,mine:b``, because the flag parser fails at the colon."""
    key, _, value = argument.partition("=")
    if key != "--config.algorithms" or ":" not in value or set(value) & set("()[]'\""):
        return argument
    return f"{key}={tuple(value.split(','))!r}"
