r"""Rounds on a few of very many features: a client touches only those that its examples have.

Where a step of an algorithm costs as much as the model is large, sparse rows alone save little.
But an entry that no gradient moves stays as the server sent it, so a client can work on those
that its batches touch and leave the others out.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.local import Batch, Local
from fcojax.memo import memoised
from fcojax.problems.sparse import SparseRows
from fcojax.types import Array, PyTree


@memoised
def lazy(algorithm: Algorithm) -> Algorithm:
    r"""The same algorithm, whose clients work on the features they meet in a round and no others.

    Let T be the features that the examples of a client's K batches have. The client is given
    :math:`z_T` in place of z, its examples with features numbered within T, and does what it
    always does; its upload is 0 outside of T. A step then costs K x batch x width, not d: the model
    is written once a client and not K times. Results are those of the algorithm itself, up to the
    order in which gradients are added.

    Two things have to be true. The algorithm is ``entrywise``: it reads the message entry by entry
    and leaves entries alone whose gradients are zero. So are ``fed_avg``, ``fed_opt`` with plain
    clients, ``fed_exp``, ``fed_mid_osp``, and with a penalty that is a sum over entries
    ``fed_dual_avg``; others are refused. And **the loss meets the weights of features in products
    with sparse rows alone**. That nobody can check: of a ridge term in the loss, which moves all
    weights, the untouched part would be left out, so give it as the penalty ``l2_squared``.

    Weights of features are the leaves with as many rows as there are features. Where the batches
    have no fewer entries than there are features, nothing is changed.

    Example:
      >>> import fcojax, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> index, value = np.array([[0, 7], [7, 3]]), np.array([[1.0, 2.0], [1.0, 1.0]])
      >>> x = fcojax.problems.SparseRows(index, value, 1000)
      >>> data = fcojax.from_rows({"x": x, "y": np.array([1.0, 2.0])}, [1, 1])
      >>> loss = lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2 / 2
      >>> algorithm = fcojax.algorithms.lazy(fcojax.algorithms.fed_dual_avg(loss, euclidean(l1())))
      >>> w, _ = fcojax.run(
      ...     algorithm, algorithm.hparams_type(client_lr=0.1, penalty_scale=0.01),
      ...     jnp.zeros(1000), data, jax.random.key(0), fcojax.local_steps(3), num_rounds=50)
      >>> np.flatnonzero(w).tolist()
      [0, 3, 7]
    """
    if not algorithm.entrywise:
        raise ValueError(
            "the algorithm is not entrywise: its clients move entries that no gradient touches, or "
            "mix entries; take fed_avg, fed_opt, fed_mid_osp, or fed_dual_avg with a penalty that "
            "is a sum over entries, or run it as it is."
        )

    def client_update(hparams, message, client, local, key):
        rows = _sparse_of(local.rows)
        touched = _touched(local, rows)
        if touched.size >= rows[0].num_features:
            return algorithm.client_update(hparams, message, client, local, key)
        given = hparams, message, client, local, key
        whole = jax.eval_shape(algorithm.client_update, *given).upload
        some = _Some(touched, rows[0].num_features)
        result = algorithm.client_update(
            hparams, some.of(message), client, some.seen_by(local), key
        )
        return result._replace(upload=some.spread(result.upload, whole))

    return algorithm._replace(client_update=client_update)


class _Some:
    """Some features out of all: a place for each mention, of which a feature uses one."""

    def __init__(self, touched: Array, num_features: int):
        self.touched, self.num_features = touched, num_features
        places = jnp.arange(touched.size, dtype=jnp.int32)
        # Of a feature's mentions any one may be written last; all then point to that one.
        blank = jnp.zeros(num_features, jnp.int32)
        self.place_of = blank.at[touched].set(places, mode="drop")
        self.used = self.place_of[touched] == places

    def of(self, message: PyTree) -> PyTree:
        """The message at these features."""

        def pick(leaf):
            if not jnp.ndim(leaf) or leaf.shape[0] != self.num_features:
                return leaf
            return leaf.at[self.touched].get(mode="fill")

        return jax.tree.map(pick, message)

    def spread(self, upload: PyTree, whole: PyTree) -> PyTree:
        """The upload in its full shapes, zero at all other features."""
        target = jnp.where(self.used, self.touched, self.num_features)

        def put(leaf, shape):
            if leaf.shape == shape.shape:
                return leaf
            return jnp.zeros(shape.shape, leaf.dtype).at[target].set(leaf, mode="drop")

        return jax.tree.map(put, upload, whole)

    def seen_by(self, local: Local) -> Local:
        """The client's examples with features numbered by their places."""

        def renumber(examples):
            return jax.tree.map(self._renumbered, examples, is_leaf=_is_sparse)

        fields = {field.name: getattr(local, field.name) for field in dataclasses.fields(local)}
        return _Renumbered(**fields, renumber=renumber)

    def _renumbered(self, field):
        if not _is_sparse(field):
            return field
        index = self.place_of.at[field.index].get(mode="fill", fill_value=self.touched.size)
        return SparseRows(index, field.value, self.touched.size)


@dataclasses.dataclass(frozen=True)
class _Renumbered(Local):
    """A client's view of its examples with the features of this round's batches alone."""

    renumber: Callable[[PyTree], PyTree]

    def full(self) -> Batch:
        if self.work.batch_size is not None:
            raise ValueError(
                "the algorithm looks at all examples of a client beside its minibatches, whose "
                "features alone are at hand; pass batch_size=None, or run it as it is."
            )
        batch = super().full()
        return batch._replace(examples=self.renumber(batch.examples))

    def _batch(self, index, rows, weights):
        batch = super()._batch(index, rows, weights)
        return batch._replace(examples=self.renumber(batch.examples))


def _is_sparse(field: PyTree) -> bool:
    return isinstance(field, SparseRows)


def _sparse_of(examples: PyTree) -> list[SparseRows]:
    """The fields of sparse rows; there is at least one, and all have the same features."""
    fields = [field for field in jax.tree.leaves(examples, is_leaf=_is_sparse) if _is_sparse(field)]
    sizes = sorted({field.num_features for field in fields})
    if len(sizes) != 1:
        found = f"fields with {sizes} features" if sizes else "no SparseRows"
        raise ValueError(
            f"lazy needs examples with sparse rows of one number of features and found {found}; "
            "see fcojax.problems.sparse_rows."
        )
    return fields


def _touched(local: Local, fields: list[SparseRows]) -> Array:
    """The features that a client's batches of this round have, with repetitions."""
    num_steps = local.work.max_steps(local.max_size)
    batch_size = local.work.batch_size
    if batch_size is None or num_steps * batch_size >= local.max_size:
        mentioned = [field.index for field in _sparse_of(local.full().examples)]
    else:
        indices, _ = local.draw(jnp.arange(num_steps, dtype=jnp.int32))
        rows = local.offset + indices.reshape(-1)
        mentioned = [field.index[rows] for field in fields]
    return jnp.concatenate([index.reshape(-1) for index in mentioned])
