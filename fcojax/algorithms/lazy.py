r"""Lazy updates for sparse features: a client works only on features that its examples have.

Sparse rows alone save little where a step of the algorithm costs as much as the model is large. But
an entry that no gradient moves stays as the server sent it, so a client can leave it out.
"""

import dataclasses

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.local import Local, Minibatch
from fcojax.memo import memoised
from fcojax.problems.sparse import SparseRows
from fcojax.types import Array, PyTree


@memoised
def lazy(algorithm: Algorithm) -> Algorithm:
    r"""Return the same algorithm, whose clients work only on the features of their batches.

    Let T be the features that occur in the K batches of a client. The client receives :math:`z_T`
    in place of z and its examples with features numbered within T; its upload is 0 outside of T. A
    step then costs K x batch x width instead of d: the model is written once per client, not K
    times. Results equal those of the algorithm itself, up to the order of summation.

    Two conditions have to hold. The algorithm is ``entrywise``: it reads the message entry by entry
    and does not change entries whose gradients are zero. This is true of ``fed_avg``, ``fed_opt``
    with plain clients, ``fed_exp``, ``fed_mid_osp`` and, with a penalty that is a sum over entries,
    ``fed_dual_avg``; others are refused. And **the loss uses the weights of features only in
    products with sparse rows**, which is not checked. A ridge term in the loss moves all weights
    and would be left out for most of them: pass it as the penalty ``l2_squared`` instead.

    Weights of features are the leaves with as many rows as there are features. If the batches have
    at least as many entries as there are features, the algorithm runs unchanged.

    Args:
      algorithm: an entrywise one.

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
            "the algorithm is not entrywise, so its clients may move entries whose gradients are "
            "zero; pass fed_avg, fed_opt, fed_mid_osp or fed_dual_avg with a separable penalty, or "
            "run it without lazy."
        )

    def client_update(hparams, message, client, local, key):
        rows = _sparse_of(local.rows)
        touched = _touched(local, rows)
        if touched.size >= rows[0].num_features:
            return algorithm.client_update(hparams, message, client, local, key)
        args = hparams, message, client, local, key
        full_upload = jax.eval_shape(algorithm.client_update, *args).upload
        features = _Features(touched, rows[0].num_features)
        result = algorithm.client_update(
            hparams, features.restrict(message), client, features.renumber(local), key
        )
        return result._replace(upload=features.extend(result.upload, full_upload))

    return algorithm._replace(client_update=client_update)


class _Features:
    """A subset T of all features, given with repetitions; one of these represents a feature."""

    def __init__(self, touched: Array, num_features: int):
        self.touched, self.num_features = touched, num_features
        places = jnp.arange(touched.size, dtype=jnp.int32)
        # Any of a feature's repetitions may be written last; all of them then point to that one.
        blank = jnp.zeros(num_features, jnp.int32)
        self.place_of = blank.at[touched].set(places, mode="drop")
        self.used = self.place_of[touched] == places

    def restrict(self, message: PyTree) -> PyTree:
        """The message at these features."""

        def pick(leaf):
            if not jnp.ndim(leaf) or leaf.shape[0] != self.num_features:
                return leaf
            return leaf.at[self.touched].get(mode="fill")

        return jax.tree.map(pick, message)

    def extend(self, upload: PyTree, full_upload: PyTree) -> PyTree:
        """The upload in the shapes of ``full_upload``, zero at all other features."""
        target = jnp.where(self.used, self.touched, self.num_features)

        def put(leaf, full):
            if leaf.shape == full.shape:
                return leaf
            return jnp.zeros(full.shape, leaf.dtype).at[target].set(leaf, mode="drop")

        return jax.tree.map(put, upload, full_upload)

    def renumber(self, local: Local) -> Local:
        """The same client, whose batches have features numbered by their places."""

        def transform(batch):
            if local.work.batch_size is not None and not isinstance(batch, Minibatch):
                raise ValueError(
                    "the algorithm evaluates all examples of a client, but lazy collects the "
                    "features of its minibatches only; pass batch_size=None, or run it without "
                    "lazy."
                )
            renumbered = jax.tree.map(self._renumber, batch.examples, is_leaf=_is_sparse)
            return batch._replace(examples=renumbered)

        return dataclasses.replace(local, transform=transform)

    def _renumber(self, field):
        if not _is_sparse(field):
            return field
        index = self.place_of.at[field.index].get(mode="fill", fill_value=self.touched.size)
        return SparseRows(index, field.value, self.touched.size)


def _is_sparse(field: PyTree) -> bool:
    return isinstance(field, SparseRows)


def _sparse_of(examples: PyTree) -> list[SparseRows]:
    """The fields of sparse rows: at least one, all with the same number of features."""
    fields = [field for field in jax.tree.leaves(examples, is_leaf=_is_sparse) if _is_sparse(field)]
    sizes = sorted({field.num_features for field in fields})
    if len(sizes) != 1:
        found = f"sparse fields with {sizes} features" if sizes else "no SparseRows"
        raise ValueError(
            f"the examples have {found}; pass SparseRows of one number of features, made by "
            "fcojax.problems.sparse_rows."
        )
    return fields


def _touched(local: Local, fields: list[SparseRows]) -> Array:
    """The features of a client's batches in this round, with repetitions."""
    num_steps = local.work.max_steps(local.max_size)
    batch_size = local.work.batch_size
    if batch_size is None or num_steps * batch_size >= local.max_size:
        indices_used = [field.index for field in _sparse_of(local.full().examples)]
    else:
        indices, _ = local.draw(jnp.arange(num_steps, dtype=jnp.int32))
        rows = local.offset + indices.reshape(-1)
        indices_used = [field.index[rows] for field in fields]
    return jnp.concatenate([index.reshape(-1) for index in indices_used])
