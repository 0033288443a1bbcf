"""The data as rows and as second moments, for each division into clients."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.study import Config, from_config
from fcojax import datasets, from_clients
from fcojax.problems import ClientData, pca, synthetic_pca
from fcojax.transforms import stiefel
from fcojax.types import Array, PyTree

MANIFOLD = stiefel()


class Split(NamedTuple):
    """The data, split into clients.

    Attributes:
      name: the name of the division.
      rows: clients with their rows, in single precision.
      moments: clients with their second moment as their only example.
      judge: returns the measures of a point.
      curvature: the largest eigenvalue of any client's second moment.
      solution: the leading eigenvectors of the mean second moment.
    """

    name: str
    rows: ClientData
    moments: ClientData
    judge: Callable[[jax.Array], dict[str, jax.Array]]
    curvature: float
    solution: np.ndarray


@jax.custom_jvp
def moment_loss(basis: Array, rows: PyTree) -> Array:
    """``-tr(B^T S B) / 2`` for each symmetric second moment S."""
    return -jnp.sum(basis[None] * _times(rows["moment"], basis), axis=(1, 2)) / 2


# The derivative in one pass over S; automatic differentiation needs two.
moment_loss.defjvps(
    lambda along, value, basis, rows: (
        -jnp.sum(along[None] * _times(rows["moment"], basis), axis=(1, 2))
    ),
    None,
)


def _times(moments: Array, basis: Array) -> Array:
    return jnp.einsum("nde,ek->ndk", moments, basis, precision="highest")


def splits(config: Config) -> Iterator[Split]:
    """Yield each split of the data."""
    for name, clients in _divisions(config):
        moments = [x.astype(np.float64).T @ x.astype(np.float64) / len(x) for x in clients]
        rows = from_clients([{"x": x} for x in clients])
        yield Split(
            name,
            rows,
            from_clients([{"moment": moment[None]} for moment in moments]),
            jax.jit(pca(rows, num_components=config.num_components).measures),
            max(float(np.linalg.eigvalsh(moment)[-1]) for moment in moments),
            np.linalg.eigh(np.mean(moments, axis=0))[1][:, : -config.num_components - 1 : -1],
        )


def _divisions(config: Config) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield the name of each division, and the rows of its clients."""
    if not config.data_dir:
        data = from_config(synthetic_pca, config, seed=config.data_seed).train
        yield "synthetic", np.split(np.asarray(data.examples["x"]), np.asarray(data.offsets)[1:-1])
        return
    pooled = datasets.mnist(config.data_dir)
    x, digits, writer = pooled.examples["x"], pooled.examples["y"], np.asarray(pooled.client)
    by_digit = np.argsort(digits, kind="stable")
    yield "by digit", np.array_split(x[by_digit], config.num_clients)
    groups = np.array_split(np.unique(writer), config.num_clients)
    yield "by writer", [x[np.isin(writer, group)] for group in groups]
