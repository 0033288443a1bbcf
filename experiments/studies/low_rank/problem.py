"""A planted matrix of low rank, and the nuclear norm."""

from fcojax.problems import low_rank
from fcojax.transforms import named, nuclear, on_subtree


def problem(config):
    """The clients and the loss."""
    return low_rank(
        num_clients=config.num_clients,
        num_examples=config.num_examples,
        shape=(config.side, config.side),
        true_rank=config.true_rank,
        mean_scale=config.mean_scale,
        bias_scale=config.bias_scale,
        noise_scale=config.noise_scale,
        num_validation=config.num_validation,
        cuts=tuple(config.cuts),
        seed=config.data_seed,
    )


def penalty(config):
    """The nuclear norm of the kernel; the bias stays free."""
    del config
    return on_subtree(nuclear(), named("kernel"))
