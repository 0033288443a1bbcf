"""Planted sparse weights, and an l1 norm."""

from experiments.study import Config, from_config
from fcojax.problems import Problem, lasso
from fcojax.transforms import Penalty, l1, named, on_subtree


def problem(config: Config) -> Problem:
    """Return the clients and the loss."""
    return from_config(lasso, config, seed=config.data_seed)


def penalty(config: Config) -> Penalty:
    """Return the l1 norm of the weights; the bias is free."""
    del config
    return on_subtree(l1(), named("kernel"))
