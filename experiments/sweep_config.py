"""The keys that every sweep has, and what they are unless a config says otherwise."""

from typing import Any

from ml_collections import ConfigDict, config_dict


def sweep_config(**values: Any) -> ConfigDict:
    """A config with all shared keys and some of its own, in the order given.

    ``algorithms``, the hyperparameters by name, ``num_rounds``, ``cohort_size`` (``None`` for
    everyone), ``criterion`` and ``criterion_rounds`` have no value that suits all.
    """
    config = ConfigDict()
    config.eval_every = 10
    config.seeds = (0, 1, 2)
    config.cohort_size = config_dict.placeholder(int)
    config.participation = "uniform"
    config.dropout_probability = 0.0
    config.num_steps = config_dict.placeholder(int)
    config.num_epochs = config_dict.placeholder(int)
    config.batch_size = config_dict.placeholder(int)
    config.client_chunk_size = config_dict.placeholder(int)
    config.time_chunks = False
    config.point_chunk_size = config_dict.placeholder(int)
    config.search = "grid"
    config.data_dir = ""
    config.data_seed = 0
    config.criterion_goal = "min"
    config.update(values)
    return config
