"""Skeleton of an experiment with a network: the sparsest of equal accuracy."""

import numpy as np
from sklearn.datasets import load_digits

import fcojax
from fcojax import networks
from fcojax.experiments import Panel, Sweep, sweep_config
from fcojax.transforms import l1, on_subtree
from fcojax.types import Count


def digits(config):
    """Return scikit-learn's digits, of each client mostly some classes."""
    x, y = load_digits(return_X_y=True)
    images = (x / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    rows = {"x": images[:1500], "y": y[:1500].astype(np.int32)}
    shares = fcojax.problems.partition.dirichlet(
        rows["y"], config.num_clients, 1.0, seed=config.data_seed
    )
    held = {"x": images[1500:], "y": y[1500:].astype(np.int32)}
    validation = fcojax.from_rows(held, [len(held["y"])])
    model = networks.conv_net((8, 8, 1), (8, 16), 64)
    return networks.network(
        model, shares.apply(rows), validation, num_classes=10
    )


EXPERIMENT = Sweep(
    title="A sparse network",
    problem=digits,
    penalty=lambda config: on_subtree(l1(), networks.dense_kernels),
    panels=(
        Panel("accuracy", "accuracy on held-out digits"),
        Panel("density", "share of nonzero dense weights"),
    ),
    keys={Count: "num_clients"},
)


def get_config():
    """Return the config; a strength of 0 would be as accurate, but dense."""
    return sweep_config(
        algorithms=("fed_avg", "fed_dual_avg"),
        client_lr=(0.03, 0.1),
        server_lr=(1.0,),
        penalty_scale=(0.0, 0.001, 0.01),
        num_rounds=40,
        num_steps=10,
        batch_size=20,
        criterion="accuracy",
        criterion_goal="max",
        criterion_rounds=20,
        criterion_within=0.01,  # of these the sparsest point is best
        num_clients=10,  # clients of the population
    )


def quick(config):
    """Shrink the run to a trial."""
    config.client_lr = (0.1,)
    config.num_rounds = 20
    config.seeds = (0,)
