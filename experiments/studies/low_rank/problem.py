"""A planted matrix of low rank, and the nuclear norm."""

from experiments.study import Config, from_config
from fcojax.problems import Problem, low_rank
from fcojax.transforms import Penalty, named, nuclear, on_subtree


def problem(config: Config) -> Problem:
    """Return the clients and the loss."""
    return from_config(low_rank, config, shape=(config.side, config.side), seed=config.data_seed)


def penalty(config: Config) -> Penalty:
    """Return the nuclear norm of the kernel; the bias is free."""
    del config
    return on_subtree(nuclear(), named("kernel"))
