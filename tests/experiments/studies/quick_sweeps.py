"""A quick config of a sweep."""

import importlib


def quick_config(name):
    """Return the sweep of a config and its quick config."""
    module = importlib.import_module(f"configs.{name}")
    config = module.get_config()
    module.quick(config)
    return module.EXPERIMENT, config
