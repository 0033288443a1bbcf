r"""Multiclass (softmax) logistic regression."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import optax

from fcojax.arguments import at_most, validated
from fcojax.problems.clients import ClientData, from_rows
from fcojax.problems.linear_models import classifier
from fcojax.problems.problem import Problem
from fcojax.types import Array, Count, NonNegative, Params, PyTree, Real, Seed, Share


@validated
def softmax(
    train: ClientData,
    validation: ClientData | None = None,
    *,
    num_classes: Count,
    cuts: Sequence[float] = (1e-4, 1e-2),
) -> Problem:
    r"""Softmax regression on features ``x`` and labels ``y`` in {0, ..., C - 1}.

    .. math:: f(W, b; x, y) = \log \sum_c \exp(z_c) - z_y, \qquad z = W^T x + b

    The measures are the ``accuracy`` on validation and the ``density`` of the kernel.

    Args:
      train: training data.
      validation: validation data, or ``None``.
      num_classes: number of classes C, of which some may not occur in the data.
      cuts: magnitudes above which a weight counts; all but the first appear in the measures' names.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"x": np.ones((2, 3)), "y": np.array([0, 4])}, [1, 1])
      >>> problem = fcojax.problems.softmax(data, num_classes=5)
      >>> params = problem.init(jax.random.key(0))
      >>> params["kernel"].shape, params["bias"].shape
      ((3, 5), (5,))
    """
    return classifier(
        cross_entropy,
        predict,
        train,
        validation,
        num_classes=num_classes,
        outputs=(num_classes,),
        cuts=cuts,
    )


def cross_entropy(params: Params, rows: PyTree) -> Array:
    """Return ``log sum_c exp(z_c) - z_y`` for each row, with z = x^T kernel + bias."""
    return optax.softmax_cross_entropy_with_integer_labels(_logits(params, rows), rows["y"])


def predict(params: Params, rows: PyTree) -> Array:
    """Return the most probable class of each row."""
    return jnp.argmax(_logits(params, rows), axis=1).astype(rows["y"].dtype)


def _logits(params, rows):
    return rows["x"] @ params["kernel"] + params["bias"][None, :]


@validated
def synthetic_softmax(
    *,
    num_clients: Count = 30,
    dim: Count = 60,
    num_classes: Count = 10,
    model_spread: NonNegative = 1.0,
    feature_spread: NonNegative = 1.0,
    decay: Real = 1.2,
    size_log_mean: Real = 4.0,
    size_log_scale: NonNegative = 1.0,
    min_size: Count = 10,
    validation_share: Share = 0.2,
    cuts: Sequence[float] = (1e-4, 1e-2),
    seed: Seed = 0,
) -> Problem:
    r"""The generator "Synthetic(alpha, beta)": clients differ in model, features and size.

    .. math:: y = \mathrm{argmax}(W_m^T x + b_m), \quad
              (W_m, b_m) \sim N(u_m, 1), \; u_m \sim N(0, \alpha), \quad
              x \sim N(v_m, \Sigma), \; v_m \sim N(B_m, 1), \; B_m \sim N(0, \beta)

    with :math:`\Sigma_{jj} = j^{-1.2}`. The clients' models differ even at alpha = 0.

    Args:
      num_clients: number of clients M.
      dim: number of features.
      num_classes: number of classes C.
      model_spread: alpha, a variance.
      feature_spread: beta, a variance.
      decay: exponent with which the variances of the features decrease, 1.2 in the formula.
      size_log_mean: mean of the logarithm of a client's number of examples.
      size_log_scale: its standard deviation.
      min_size: examples of every client beyond the log-normal number, at least 2.
      validation_share: share of each client's examples for validation, at least one of them.
      cuts: magnitudes above which a weight counts; all but the first appear in the measures' names.
      seed: seed of the data.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.synthetic_softmax(num_clients=4, dim=3, num_classes=2)
      >>> problem.train.num_clients, len(set(problem.train.sizes.tolist())) > 1  # ragged
      (4, True)

    References:
      Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated optimization in heterogeneous
      networks", MLSys 2020, section 5.1.
    """
    at_most("size_log_mean", size_log_mean, 20)  # 5e8 examples
    rng = np.random.default_rng(seed)
    deviations = np.arange(1, dim + 1) ** (-decay / 2)
    splits: tuple[list, list] = ([], [])
    for _ in range(num_clients):
        size = min_size + int(rng.lognormal(size_log_mean, size_log_scale))
        mean = rng.normal(rng.normal(0, feature_spread**0.5), 1, dim)
        centre = rng.normal(0, model_spread**0.5)
        kernel = rng.normal(centre, 1, (dim, num_classes))
        bias = rng.normal(centre, 1, num_classes)
        x = (mean + deviations * rng.standard_normal((size, dim))).astype(np.float32)
        y = np.argmax(x @ kernel + bias, axis=1).astype(np.int32)
        num_validation = min(max(1, round(validation_share * size)), size - 1)
        for split, rows in zip(
            splits, np.split(np.arange(size), [size - num_validation]), strict=True
        ):
            split.append({"x": x[rows], "y": y[rows]})
    train, validation = (
        from_rows(
            {name: np.concatenate([client[name] for client in split]) for name in "xy"},
            [len(client["y"]) for client in split],
        )
        for split in splits
    )
    return softmax(train, validation, num_classes=num_classes, cuts=cuts)
