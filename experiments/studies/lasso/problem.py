"""Planted sparse weights, and an l1 norm."""

from fcojax.problems import lasso
from fcojax.transforms import l1, named, on_subtree


def problem(config):
    """The clients and the loss."""
    return lasso(
        num_clients=config.num_clients,
        num_examples=config.num_examples,
        dim=config.dim,
        num_true=config.num_true,
        mean_scale=config.mean_scale,
        correlation=config.correlation,
        bias_scale=config.bias_scale,
        noise_scale=config.noise_scale,
        num_validation=config.num_validation,
        cuts=tuple(config.cuts),
        seed=config.data_seed,
    )


def penalty(config):
    """The penalty that all clients share; the bias stays free."""
    del config
    return on_subtree(l1(), named("kernel"))
