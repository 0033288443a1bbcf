"""Statistical recovery: Bao, Crawshaw, Luo and Liu (ICML 2022), section 6 and the authors' code."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.plots import Panel
from experiments.studies.recovery import claims
from experiments.study import Config, Sweep, from_config, on_kernel, with_support
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
from fcojax.transforms import Penalty, l1, l1_ball, named, nuclear, nuclear_ball, on_subtree
from fcojax.types import NonNegative, Positive

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


def _sweep(title, problem, penalty, factors, ball, panels, claims):
    return Sweep(
        title=title,
        problem=problem,
        penalty=on_kernel(penalty),
        algorithms=methods(factors, on_subtree(ball, named("kernel"))),
        panels=panels,
        claims=claims,
        keys={NonNegative: "cuts", Positive: "target_error"},
        solve_optimum=False,
    )


LASSO = _sweep(
    "Sparse recovery: distance to the true weights",
    sparse,
    l1(),
    (4.0, 2.0, 1.0),
    l1_ball(),
    (
        Panel("error", "distance to the true weights", log=True),
        Panel("f1", "F1 score of the support"),
        Panel("density", "share of nonzero weights"),
        Panel("loss", "training loss", log=True),
    ),
    claims.recovery,
)
LOW_RANK = _sweep(
    "Low-rank recovery: distance to the true matrix",
    matrices,
    nuclear(),
    (3.0, 1.5, 1.0),
    nuclear_ball(),
    (
        Panel("error", "Frobenius distance to the true matrix", log=True),
        Panel("rank", "rank (singular values above 0.01)", whole=True),
        Panel("loss", "training loss", log=True),
        Panel("validation_loss", "loss on validation", log=True),
    ),
    claims.recovery,
)
DIGITS = _sweep(
    "Digits by writer with an l1 norm",
    digits,
    l1(),
    (4.0, 2.0, 1.0, 1.0, 1.0),
    l1_ball(),
    (
        Panel("loss", "training loss", early=True),
        Panel("validation_loss", "loss on held-out examples", early=True),
        Panel("accuracy", "accuracy on held-out examples", early=True),
        Panel("density", "share of nonzero weights", early=True),
    ),
    claims.digits,
)
