"""The config keys that all sweeps share, with their defaults."""

from typing import Any

from ml_collections import ConfigDict, config_dict


def sweep_config(**values: Any) -> ConfigDict:
    """A config with the shared keys and any others.

    ``algorithms``, ``num_rounds``, ``criterion``, ``criterion_rounds`` and the hyperparameters have
    no default and have to be given. ``cohort_size`` is everyone unless it is given. ``own_grids``
    maps a label to values of hyperparameters that only this algorithm has. ``precision`` is that of
    products, a value of ``jax_default_matmul_precision``; if neither is set it is ``highest``.
    ``upload_norm`` drops clients whose upload is larger; with ``upload_quantile`` it is the first
    of bounds that follow this quantile of the uploads.
    Points within ``criterion_within`` of the best score are tied; the tie goes to the one that is
    first to reach ``criterion_reach``, or without it to the one with the lowest objective.
    """
    config = ConfigDict()
    config.eval_every = 10
    config.seeds = (0, 1, 2)
    config.cohort_size = config_dict.placeholder(int)
    config.participation = "uniform"
    config.dropout_probability = 0.0
    config.upload_norm = config_dict.placeholder(float)
    config.upload_quantile = config_dict.placeholder(float)
    config.num_steps = config_dict.placeholder(int)
    config.num_epochs = config_dict.placeholder(int)
    config.batch_size = config_dict.placeholder(int)
    config.client_chunk_size = config_dict.placeholder(int)
    config.time_chunks = False
    config.point_chunk_size = config_dict.placeholder(int)
    config.precision = config_dict.placeholder(str)
    config.search = "grid"
    config.extend = False
    config.data_dir = ""
    config.data_seed = 0
    config.criterion_goal = "min"
    config.criterion_within = 0.0
    config.criterion_reach = config_dict.placeholder(float)
    config.update(values)
    return config
