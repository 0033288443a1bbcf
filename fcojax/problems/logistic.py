r"""Binary logistic regression, with an unpenalised bias."""

from collections.abc import Sequence

import jax
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.clients import ClientData, from_stacked
from fcojax.problems.linear_models import classifier, predictor
from fcojax.problems.measures import at_cuts, support_recovery
from fcojax.problems.problem import Problem
from fcojax.types import Array, Count, NonNegative, Params, PyTree, Seed


@validated
def logistic(
    train: ClientData,
    validation: ClientData | None = None,
    *,
    cuts: Sequence[float] = (1e-4, 1e-2),
) -> Problem:
    r"""Logistic regression on features ``x`` and labels ``y`` in {0, 1}.

    .. math:: f(w, b; x, y) = \log\big(1 + \exp(-s (x^T w + b))\big), \qquad s = 2 y - 1

    The measures are the ``accuracy`` on validation at probability one half, and the ``density`` of
    the kernel.

    Args:
      train: training data.
      validation: validation data, or ``None``.
      cuts: magnitudes above which a weight counts; all but the first appear in the measures' names.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.array([[2.0], [-2.0], [3.0]]), "y": np.array([1, 0, 0])}
      >>> data = fcojax.from_rows(rows, [3])
      >>> problem = fcojax.problems.logistic(data, validation=data)
      >>> params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
      >>> round(float(problem.measures(params)["accuracy"]), 3)  # two of three
      0.667
    """
    problem = classifier(
        logistic_loss, predict, train, validation, num_classes=2, outputs=(), cuts=cuts
    )
    labels = np.asarray(train.examples["y"])
    if np.ptp(labels) == 0:
        raise ValueError(
            f"every label y of the training data is {labels[0]}; pass examples of both classes, 0 "
            "and 1, because the loss of one class alone has no minimum."
        )
    return problem


def logistic_loss(params: Params, rows: PyTree) -> Array:
    """Return ``log(1 + exp(-s (x^T kernel + bias)))`` for each row, with s = 2 y - 1.

    Value and gradient are accurate at any margin.

    Args:
      params: dict of ``kernel`` and ``bias``.
      rows: dict of ``x`` and ``y``.

    Example:
      >>> import jax.numpy as jnp
      >>> params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
      >>> rows = {"x": jnp.array([[1e4], [-1e4]]), "y": jnp.array([1, 1])}
      >>> logistic_loss(params, rows).tolist()
      [0.0, 10000.0]
    """
    logits = predictor(params, rows)
    return jax.nn.softplus((1 - 2 * rows["y"].astype(logits.dtype)) * logits)


def predict(params: Params, rows: PyTree) -> Array:
    """Return the more probable label of each row."""
    return (predictor(params, rows) > 0).astype(rows["y"].dtype)


@validated
def synthetic_logistic(
    *,
    num_clients: Count = 50,
    num_examples: Count = 100,
    dim: Count = 200,
    num_true: Count = 20,
    weight_scale: NonNegative = 1.0,
    mean_scale: NonNegative = 0.1,
    truth_spread: NonNegative = 0.0,
    bias_scale: NonNegative = 0.0,
    num_validation: Count = 50,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: Seed = 0,
) -> Problem:
    r"""Labels from a sparse logistic model: ``num_true`` weights of random sign, the others zero.

    Client m draws :math:`x = \mu_m + \delta` with :math:`\mu_m \sim N(0, s^2 I)` fixed and
    :math:`\delta \sim N(0, I)`, and y = 1 with probability
    :math:`1 / (1 + \exp(-x^T (w + t\, u_m) - b))`, where :math:`u_m` is standard normal on the
    support. The measures are those of ``logistic`` and the recovery of the support.

    Args:
      num_clients: number of clients M.
      num_examples: training examples per client.
      dim: number of features.
      num_true: number of nonzero weights, the first ones.
      weight_scale: magnitude of the true weights.
      mean_scale: s, the standard deviation of the client means.
      truth_spread: t, the standard deviation of the clients' true weights around w.
      bias_scale: standard deviation of the true bias.
      num_validation: validation examples per client.
      cuts: magnitudes above which a weight counts; all but the first appear in the measures' names.
      seed: seed of the data.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.synthetic_logistic(
      ...     num_clients=3, num_examples=4, dim=6, num_true=2)
      >>> problem.train.examples["x"].shape, set(problem.train.examples["y"].tolist()) <= {0, 1}
      ((12, 6), True)
    """
    rng = np.random.default_rng(seed)
    truth = np.where(np.arange(dim) < num_true, weight_scale * rng.choice([-1.0, 1.0], dim), 0.0)
    own = truth + truth_spread * rng.standard_normal((num_clients, dim)) * (truth != 0)
    bias = bias_scale * rng.standard_normal()
    means = mean_scale * rng.standard_normal((num_clients, 1, dim))

    def draw(count: int) -> ClientData:
        x = (means + rng.standard_normal((num_clients, count, dim))).astype(np.float32)
        logits = np.einsum("mnd,md->mn", x, own) + bias
        # A standard logistic variable is below z with probability 1 / (1 + exp(-z)).
        y = (rng.logistic(size=logits.shape) < logits).astype(np.int32)
        return from_stacked(x=x, y=y)

    problem = logistic(draw(num_examples), draw(num_validation), cuts=cuts)

    def measures(params):
        return problem.measures(params) | at_cuts(
            lambda cut: support_recovery(params["kernel"], truth, cut), cuts
        )

    return problem._replace(measures=measures)
