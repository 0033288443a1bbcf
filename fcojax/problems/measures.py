"""Measures of a point other than its loss: jittable functions of the parameters."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fcojax.arguments import checked_value, validated
from fcojax.problems.client_data import ClientData
from fcojax.problems.clients import require_one_device
from fcojax.problems.losses import Loss
from fcojax.problems.problem import population_loss
from fcojax.types import Array, Axis, NonNegative, Params, PyTree
from fcojax.xla.linalg import singular_values

Predict = Callable[[Params, PyTree], Array]  # (params, examples) -> one label per example


def at_cuts(measure: Callable[[float], dict[str, Array]], cuts: Sequence[float]) -> dict:
    """Evaluate a measure at several cuts; names at all but the first contain the cut.

    Args:
      measure: ``(cut) -> dict`` of measures.
      cuts: thresholds.

    Example:
      >>> at_cuts(lambda cut: {"rank": 3 if cut < 0.1 else 2}, (1.0, 1e-4))
      {'rank': 2, 'rank_above_0.0001': 3}
    """
    for cut in cuts:
        checked_value("an entry of cuts", cut, NonNegative, single=True)
    result = measure(cuts[0])
    for cut in cuts[1:]:
        result |= {f"{name}_above_{cut:g}": value for name, value in measure(cut).items()}
    return result


@validated
def support_recovery(estimate: Array, truth: ArrayLike, cut: NonNegative) -> dict[str, Array]:
    r"""Compare the support of ``estimate`` with that of ``truth``.

    With :math:`A = \{i: |w_i| > cut\}` and T the support of the truth: density :math:`|A| / d`,
    precision :math:`|A \cap T| / |A|`, recall :math:`|A \cap T| / |T|`, and F1, the harmonic mean
    of the two. Zero divided by zero counts as zero.

    Args:
      estimate: array of weights w.
      truth: array of the same shape.
      cut: magnitude above which an entry of the estimate counts as nonzero.

    Returns:
      A dict of ``density``, ``precision``, ``recall`` and ``f1``.

    Example:
      >>> found = support_recovery(jnp.array([2.0, 0.1, 0.0, 1.0]), jnp.array([1, 1, 0, 0]), 0.05)
      >>> {name: round(float(value), 3) for name, value in found.items()}
      {'density': 0.75, 'precision': 0.667, 'recall': 1.0, 'f1': 0.8}
    """
    if jnp.shape(estimate) != jnp.shape(truth):
        raise ValueError(
            f"truth has shape {jnp.shape(truth)} but estimate has {jnp.shape(estimate)}; pass "
            "arrays of one shape."
        )
    dtype = jnp.result_type(float)
    found, true = jnp.abs(estimate) > cut, jnp.asarray(truth) != 0
    num_found, num_true, num_both = (
        jnp.sum(where).astype(dtype) for where in (found, true, found & true)
    )
    precision = num_both / jnp.maximum(num_found, 1)
    recall = num_both / jnp.maximum(num_true, 1)
    f1 = 2 * num_both / jnp.maximum(num_found + num_true, 1)
    density = num_found / found.size
    return {"density": density, "precision": precision, "recall": recall, "f1": f1}


def density(kernels: PyTree, cut: float) -> dict[str, Array]:
    """Return the share of entries, over all leaves, with a magnitude above ``cut``.

    Example:
      >>> float(density([jnp.array([2.0, 0.0]), jnp.array([0.0, -1.0])], cut=1e-4)["density"])
      0.5
    """
    leaves = jax.tree.leaves(kernels)
    found = sum(jnp.sum(jnp.abs(leaf) > cut) for leaf in leaves)
    share = jnp.asarray(found).astype(jnp.result_type(float)) / sum(leaf.size for leaf in leaves)
    return {"density": share}


def rank(matrix: Array, cut: float) -> dict[str, Array]:
    """Count the singular values above ``cut``; zero if the matrix is not finite.

    Example:
      >>> int(rank(jnp.diag(jnp.array([3.0, 0.5, 1e-6])), cut=1e-2)["rank"])
      2
    """
    # LAPACK prints a line for each matrix that it cannot decompose.
    matrix = jnp.where(jnp.all(jnp.isfinite(matrix)), matrix, 0)
    return {"rank": jnp.sum(singular_values(matrix) > cut, dtype=jnp.int32)}


def accuracy(predict: Predict, validation: ClientData | None) -> Callable[[Params], dict]:
    """Return the measure ``accuracy``: the share of correctly predicted labels."""

    def is_correct(params, rows):
        return (predict(params, rows) == rows["y"]).astype(jnp.result_type(float))

    return on_validation(validation, accuracy=is_correct)


def on_validation(validation: ClientData | None, **functions: Loss) -> Callable[[Params], dict]:
    """Return measures that are population means on validation; none without validation.

    Clients count with the weights of ``validation``: equally by default, by their number of
    examples if it was built with ``weights="examples"``.

    Args:
      validation: validation data, or ``None``.
      **functions: ``(params, examples) -> one number per example``, by the name of the measure.
    """
    if validation is None:
        return lambda params: {}
    return lambda params: {
        name: population_loss(function, params, validation) for name, function in functions.items()
    }


@validated
def client_means(values: ArrayLike, data: ClientData) -> Array:
    r"""Return the mean of each client's entries of an array with one number per example.

    Args:
      values: :math:`v_{m,i}`, one number or truth value per example, in the order of
        ``data.examples``.
      data: the clients, on one device.

    Returns:
      :math:`\tfrac{1}{n_m} \sum_i v_{m,i}`, one entry for each of ``data.ids``.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"label": np.array([1, 0, 1])}, [2, 1])
      >>> fcojax.problems.client_means(data.examples["label"] == 1, data).tolist()
      [0.5, 1.0]
    """
    require_one_device(data)
    shape, num_rows = np.shape(values), jax.tree.leaves(data.examples)[0].shape[0]
    if shape != (num_rows,):
        raise ValueError(f"values have shape {shape}; pass one number for each of {num_rows} rows.")
    numbers = jnp.asarray(values)
    if not jnp.issubdtype(numbers.dtype, jnp.floating):
        numbers = numbers.astype(float)
    owner = jnp.repeat(jnp.arange(data.num_clients), data.sizes, total_repeat_length=num_rows)
    sums = jax.ops.segment_sum(numbers, owner, data.num_clients)
    return sums / data.sizes.astype(sums.dtype)


@validated
def identified(values: ArrayLike, rounds: ArrayLike, axis: Axis = 0) -> np.ndarray:
    """Return for each entry of a history the first round from which it keeps its last value.

    Use it for a support, a rank or another discrete quantity. An entry that is NaN at the end gets
    the last round.

    Args:
      values: the quantity at every evaluation, such as ``history["support"]``.
      rounds: the rounds of the evaluations, ``history["round"]`` of a run.
      axis: the axis of ``values`` that counts evaluations, which the result lacks: 0 in the history
        of a run. Other axes are entries, clients or runs.

    Example:
      >>> supports = np.array([[True, True], [False, True], [True, True], [True, True]])
      >>> each = identified(supports, [0, 10, 20, 30])  # of which the support has the last
      >>> each.tolist(), int(each.max())
      ([20, 0], 20)
    """
    found = np.moveaxis(np.asarray(values), axis, 0)
    at = np.asarray(rounds)
    if at.shape != found.shape[:1]:
        raise ValueError(
            f"rounds has shape {at.shape} but there are {found.shape[0]} evaluations; pass one "
            "round for each."
        )
    differs = (found != found[-1])[::-1]
    never = ~differs.any(axis=0)
    last = np.where(never, 0, found.shape[0] - np.argmax(differs, axis=0))
    return at[np.minimum(last, at.size - 1)]
