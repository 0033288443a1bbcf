"""Three problems, and the methods that need more than a loss and a mirror.

The lasso and the matrix have half the squared error as their loss; the third problem is digits.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.study import Config, from_config, with_support
from fcojax import algorithms, datasets
from fcojax.algorithms import takes
from fcojax.algorithms.base import Factory
from fcojax.problems import (
    Problem,
    hold_out_examples,
    lasso,
    low_rank,
    softmax,
    synthetic_softmax,
)
from fcojax.problems.linear_models import squared_error
from fcojax.transforms import Penalty

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
    """Return softmax regression by writer, without bias; examples are held out."""
    if config.data_dir:
        data = datasets.by_client(datasets.mnist(config.data_dir, "train"), "examples")
        data = data.select(np.arange(min(config.num_clients, data.num_clients)))
    else:
        options = {"num_classes": _NUM_CLASSES, "seed": config.data_seed}
        data = from_config(synthetic_softmax, config, **options).train
    split = hold_out_examples(data, config.share_held_out, jax.random.key(config.data_seed))
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


def methods(factors: Sequence[float], ball: Penalty) -> dict[str, Factory]:
    """Return by label C- and MC-FedDualAvg in this ball, and Fast-FedDualAvg with end points.

    Fast-FedDualAvg averages the clients' end points too, as in the authors' code.
    """
    staged, fast = algorithms.mc_fed_dual_avg, algorithms.fast_fed_dual_avg

    def stages(factors):
        return takes(staged.Hparams, "mirror")(
            lambda loss, mirror: staged(loss, mirror, penalty_factors=factors, ball=ball)
        )

    return {
        "c_fed_dual_avg": stages((1.0,)),
        "mc_fed_dual_avg": stages(tuple(factors)),
        "fast_end_points": takes(fast.Hparams, "mirror")(
            lambda loss, mirror: fast(loss, mirror, end_points=True)
        ),
    }
