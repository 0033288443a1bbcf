"""Quick runs of studies, with rows as read from disk."""

import functools
import importlib
import json

import jax

from experiments.report import rows as tidy


@functools.cache  # each study runs once a process
def quick_study(name):
    """Return the study of a config, its quick config, the rows and the summary."""
    module = importlib.import_module(f"configs.{name}")
    study = module.EXPERIMENT
    config = module.get_config()
    module.quick(config)
    config.lock()
    with jax.enable_x64(study.x64), jax.numpy_dtype_promotion("standard"):  # like the launcher
        rows = [json.loads(tidy.line(tidy.plain(row))) for row in study.rows(config)]
    return study, config, rows, study.summarise(config, rows)


def draw_figures(found, directory):
    """Return the names of the figures of a quick run, none of which is nearly empty."""
    study, *rest = found
    drawn = study.figures(*rest, directory)
    assert all(path.stat().st_size > 10_000 for path in drawn)
    return [path.name for path in drawn]
