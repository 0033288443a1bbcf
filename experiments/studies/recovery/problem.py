"""Three problems, and the methods that need more than a loss and a mirror.

The lasso and the matrix have half the squared error as their loss; the third problem is digits.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.study import Config, from_config, with_support
from fcojax import algorithms, datasets
from fcojax.algorithms import Algorithm, takes
from fcojax.algorithms.base import Factory
from fcojax.problems import (
    ClientData,
    Problem,
    hold_out_clients,
    hold_out_examples,
    lasso,
    low_rank,
    quadratic_features,
    random_features,
    softmax,
    synthetic_softmax,
)
from fcojax.problems.linear_models import squared_error
from fcojax.problems.losses import Loss
from fcojax.transforms import Mirror, Penalty

_NUM_CLASSES = 10


def sparse(config: Config) -> Problem:
    """Return a lasso with true weights 1 on the first features; clients differ in feature means."""
    drawn = from_config(lasso, config, bias_scale=0.0, seed=config.data_seed)
    truth = (jnp.arange(config.dim) < config.num_true).astype(jnp.float32)
    return with_support(_without_bias(drawn, truth), config.cuts[0])


def matrices(config: Config) -> Problem:
    """Return low-rank estimation of a matrix with ones on the first part of its diagonal."""
    shape = (config.side, config.side)
    drawn = from_config(low_rank, config, shape=shape, bias_scale=0.0, seed=config.data_seed)
    truth = jnp.diag((jnp.arange(config.side) < config.true_rank).astype(jnp.float32))
    return _without_bias(drawn, truth)


def _without_bias(drawn: Problem, truth: jax.Array) -> Problem:
    """Return the problem with half the squared error, a random start, and the error's norm."""

    def loss(params, rows):
        return squared_error(params | {"bias": jnp.zeros((), params["kernel"].dtype)}, rows) / 2

    def measures(params):
        error = jnp.sqrt(jnp.sum((params["kernel"] - truth) ** 2))
        return drawn.measures(params) | {"error": error}

    def init(key):
        return {"kernel": jax.random.normal(key, truth.shape, jnp.float32)}

    return drawn._replace(loss=loss, init=init, measures=measures)


def digits(config: Config) -> Problem:
    """Return softmax regression by writer, without bias; examples or writers are held out."""
    if config.data_dir:
        data = datasets.by_client(datasets.mnist(config.data_dir, "train"), "examples")
        data = data.select(np.arange(min(config.num_clients, data.num_clients)))
    else:
        options = {"num_classes": _NUM_CLASSES, "seed": config.data_seed}
        data = from_config(synthetic_softmax, config, **options).train
    hold_out = hold_out_clients if config.unseen_writers else hold_out_examples
    split = hold_out(data, config.share_held_out, jax.random.key(config.data_seed))
    split = [with_features(part, config) for part in split]
    full = softmax(*split, num_classes=_NUM_CLASSES, cuts=tuple(config.cuts))

    def with_bias(params):
        return params | {"bias": jnp.zeros(_NUM_CLASSES, params["kernel"].dtype)}

    def init(key):
        return {"kernel": jnp.zeros_like(full.init(key)["kernel"])}

    return full._replace(
        loss=lambda params, rows: full.loss(with_bias(params), rows),
        init=init,
        measures=lambda params: full.measures(with_bias(params)),
    )


def with_features(data: ClientData, config: Config) -> ClientData:
    """Return clients with the features that ``config.features`` names."""
    kind, _, number = config.features.partition(":")
    if config.features == "quadratic":
        return quadratic_features(data)
    if kind == "random" and number.isdecimal() and int(number):
        return random_features(data, num_features=int(number), seed=config.data_seed)
    if config.features:
        raise ValueError(
            f"features is {config.features!r}; pass quadratic, random:512 for that many random "
            "features, or nothing for the pixels."
        )
    return data


def staged(factors: Sequence[float], ball: Penalty) -> Factory:
    """Return MC-FedDualAvg with these stages in this ball; with one stage it is C-FedDualAvg."""
    rates = algorithms.mc_fed_dual_avg.Hparams

    @takes(rates, "mirror")
    def mc_fed_dual_avg(loss, mirror):
        return algorithms.mc_fed_dual_avg(loss, mirror, penalty_factors=factors, ball=ball)

    return mc_fed_dual_avg


@takes(algorithms.fast_fed_dual_avg.Hparams, "mirror")
def fast_with_end_points(loss: Loss, mirror: Mirror) -> Algorithm:
    """Fast-FedDualAvg that also averages the clients' end points, as in the authors' code."""
    return algorithms.fast_fed_dual_avg(loss, mirror, end_points=True)


def methods(factors: Sequence[float], ball: Penalty) -> dict[str, Factory]:
    """Return the factories by label."""
    return {
        "c_fed_dual_avg": staged((1.0,), ball),
        "mc_fed_dual_avg": staged(factors, ball),
        "fast_end_points": fast_with_end_points,
    }
