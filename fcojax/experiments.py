"""Public names for your own experiments, which a config for ``fcojax run FILE.py`` imports.

Needs the extra ``experiments``. The launcher is beside the library in a clone and in a
separate folder in a wheel; its names here are the same in both.
"""

import os
import sys

from fcojax.__main__ import LAUNCHER

sys.path.insert(0, os.fspath(LAUNCHER))

from experiments.codecs import codec
from experiments.config.keys import sweep_config
from experiments.report import axes
from experiments.report.claims import Claim, over_seeds
from experiments.report.plots import Panel, style
from experiments.report.rows import Row, Summary, by_seed, column, plain, select
from experiments.study import (
    Config,
    Study,
    Sweep,
    from_config,
    naming,
    observe_model,
    on_kernel,
)

sys.path.remove(os.fspath(LAUNCHER))

__all__ = [
    "Claim",
    "Config",
    "Panel",
    "Row",
    "Study",
    "Summary",
    "Sweep",
    "axes",
    "by_seed",
    "codec",
    "column",
    "from_config",
    "naming",
    "observe_model",
    "on_kernel",
    "over_seeds",
    "plain",
    "select",
    "style",
    "sweep_config",
]
