"""Quick runs of studies, with rows as read from disk."""

import importlib

import jax

from experiments.report import rows as tidy


def quick_study(name, directory):
    """Return the study of a config, its quick config, the rows and the summary."""
    module = importlib.import_module(f"fcojax_sites.configs.{name}")
    study = module.EXPERIMENT
    config = module.get_config()
    module.quick(config)
    config.lock()
    with jax.enable_x64(study.x64), jax.numpy_dtype_promotion("standard"):  # like the launcher
        tidy.write(directory / "rows.jsonl", study.rows(config))
    rows = tidy.load(directory / "rows.jsonl")
    return study, config, rows, study.summarise(config, rows)


def draw_figures(found, directory):
    """Return the names of the figures of a quick run, none of which is nearly empty."""
    study, *rest = found
    drawn = study.figures(*rest, directory)
    assert all(path.stat().st_size > 10_000 for path in drawn)
    return [path.name for path in drawn]
