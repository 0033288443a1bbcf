"""Skeleton of an experiment: algorithms compared at their best grid points."""

import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax.experiments import (
    Panel,
    Sweep,
    from_config,
    on_kernel,
    sweep_config,
)
from fcojax.types import Count


def my_problem(*, num_clients, dim, data_seed):
    """Return clients with linear data that depend on the same two features."""
    rng = np.random.default_rng(data_seed)
    truth = np.zeros(dim, np.float32)
    truth[:2] = 1.0
    x = rng.standard_normal((num_clients, 40, dim)).astype(np.float32)
    y = x @ truth + 0.1 * rng.standard_normal((num_clients, 40)).astype(
        np.float32
    )
    return fcojax.problems.Problem(
        loss=lambda params, rows: (
            (rows["x"] @ params["kernel"] - rows["y"]) ** 2 / 2
        ),
        train=fcojax.from_clients(
            [{"x": x[i], "y": y[i]} for i in range(num_clients)]
        ),
        validation=None,
        init=lambda key: {"kernel": jnp.zeros(dim)},
        measures=lambda params: {"nonzeros": jnp.sum(params["kernel"] != 0)},
    )


# The suboptimality needs the optimum: leave its panel out where the loss is not
# convex, Problem(convex=False), or where it takes long, solve_optimum=False.
EXPERIMENT = Sweep(
    title="My experiment",
    problem=lambda config: from_config(my_problem, config),
    penalty=on_kernel(fcojax.transforms.l1()),
    panels=(
        Panel("suboptimality", "objective above the optimum", log=True),
        Panel("nonzeros", "nonzero entries"),
    ),
    keys={Count: "dim num_clients"},
)


def get_config():
    """Return the config; set its keys with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=("fed_avg", "fed_dual_avg"),
        client_lr=(0.01, 0.03, 0.1),
        server_lr=(1.0,),
        penalty_scale=(0.1,),
        num_rounds=200,
        num_steps=5,
        criterion="objective",
        criterion_rounds=50,
        num_clients=8,  # clients of the population
        dim=30,  # features
    )


def quick(config):
    """Shrink the run to a few seconds."""
    config.client_lr = (0.03,)
    config.num_rounds = 20
    config.criterion_rounds = 10
    config.seeds = (0,)
