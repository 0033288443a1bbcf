"""Encoding and decoding of payloads, and compression without feedback."""

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import validated
from fcojax.types import Array, Key, NumberTree, Params, PyTree, Scalar
from fcojax.uploads.compressor import Compressor, factory
from fcojax.uploads.contract import Form
from fcojax.uploads.transform import Sent, UploadTransform


class Encoded(NamedTuple):
    """An encoded payload; ``sent`` and ``whole`` are transmitted.

    Attributes:
      sent: the floats as one encoded vector; empty if there are none.
      whole: leaves that are sent uncompressed: integers, and arrays of size zero.
      finite: whether the payload was finite; otherwise its floats decode to NaN.
      known: the hyperparameters and the key, which the server has.
      form: the form of the payload.
    """

    sent: list
    whole: list
    finite: Array
    known: tuple[Any, Key]
    form: Form


class Constants(NamedTuple):
    """The constants of a compressor for one payload.

    Attributes:
      unbiased: whether E C(x) = x.
      variance: w of ``Compressor``; ``None`` if it is biased.
      contraction: a of ``Compressor``; ``None`` if it is not contractive.
      num_bytes: bytes of an encoded payload, including indices.
      whole_bytes: bytes of the payload without compression.
    """

    unbiased: bool
    variance: Scalar | None
    contraction: Scalar | None
    num_bytes: Scalar
    whole_bytes: int


@validated
def facts(compressor: Compressor, payload: Params, hparams: NumberTree | None = None) -> Constants:
    """Return the constants of a compressor for payloads of this form.

    Args:
      compressor: a compressor, such as ``uploads.top_k(0.1)``.
      payload: arrays, or their shapes.
      hparams: the hyperparameters, if a strength is a function of them.

    Example:
      >>> from fcojax import uploads
      >>> model = {"kernel": jnp.zeros((24, 4), "float32"), "bias": jnp.zeros(4, "float32")}
      >>> uploads.facts(uploads.rand_k(0.25), model)
      Constants(unbiased=True, variance=3.0, contraction=None, num_bytes=100, whole_bytes=400)
    """
    payload = jax.eval_shape(lambda payload: payload, payload)
    vectors = _vectors(payload)

    def constant(bound, without_floats):
        if bound is None:
            return None
        return bound(hparams, vectors[0]) if vectors else without_floats

    shapes = jax.eval_shape(lambda x: encode(compressor, hparams, x, jax.random.key(0)), payload)
    bounds = constant(compressor.variance, 0.0), constant(compressor.contraction, 1.0)
    unbiased = compressor.variance is not None
    return Constants(unbiased, *bounds, num_bytes(shapes), tree.num_bytes(payload))


def variance(compressor: Compressor, hparams: Any, payload: PyTree) -> Scalar:
    """Return w of an unbiased compressor for a payload."""
    assert compressor.variance is not None
    return max((compressor.variance(hparams, one) for one in _vectors(payload)), default=0.0)


def encode(compressor: Compressor, hparams: Any, payload: PyTree, key: Key) -> Encoded:
    """Return the encoded payload; the key is known to the client and to the server."""
    floats, whole = _split(payload)
    sent = [
        compressor.encode(
            hparams,
            jnp.concatenate([leaf.reshape(-1).astype(like.dtype) for leaf in floats]),
            jax.random.fold_in(key, 0),
        )
        for like in _vectors(payload)
    ]
    leaves, structure = jax.tree.flatten(payload)
    form = Form(structure, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves))
    return Encoded(sent, whole, tree.all_finite(floats), (hparams, key), form)


def decode(compressor: Compressor, encoded: Encoded) -> PyTree:
    """Return the payload that the server decodes."""
    (hparams, key), like = encoded.known, encoded.form.shapes()
    floats, found = _split(like)[0], []
    for sent, vector in zip(encoded.sent, _vectors(like), strict=True):
        decoded = compressor.decode(hparams, sent, jax.random.fold_in(key, 0), vector)
        found = from_vector(decoded, floats)
    parts = iter([jnp.where(encoded.finite, leaf, jnp.nan) for leaf in found])
    whole = iter(encoded.whole)
    leaves = [next(parts) if _is_float(leaf) else next(whole) for leaf in encoded.form.leaves]
    return jax.tree.unflatten(encoded.form.structure, leaves)


def from_vector(vector: Array, like: list) -> list:
    """Return a vector as a list of arrays of these shapes and dtypes."""
    ends = list(itertools.accumulate((leaf.size for leaf in like), initial=0))
    return [
        vector[first:end].reshape(leaf.shape).astype(leaf.dtype)
        for leaf, first, end in zip(like, ends[:-1], ends[1:], strict=True)
    ]


def num_bytes(encoded: Encoded) -> int:
    """Return the transmitted bytes of an encoded payload, or of its shapes."""
    return tree.num_bytes((encoded.sent, encoded.whole))


@factory
def compressed(compressor: Compressor) -> UploadTransform:
    """Return the transform that compresses each upload, without error feedback.

    With an unbiased compressor the mean upload is unbiased; with a biased one the limit is wrong,
    and ``ef14`` or ``ef21`` is needed.

    Args:
      compressor: a compressor, such as ``uploads.qsgd(7)``.

    Example:
      >>> from fcojax import uploads
      >>> unbiased = compressed(uploads.qsgd(7))
    """

    def send(at, payload, state):
        encoded = encode(compressor, at.hparams, payload, at.key)
        return Sent(encoded, state, num_bytes=num_bytes(encoded))

    return UploadTransform(
        f"compressed({compressor.name})",
        send=send,
        decode=lambda at, encoded, state: decode(compressor, encoded),
    )


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating) and math.prod(leaf.shape) > 0


def _split(payload: PyTree) -> tuple[list, list]:
    """Return the leaves that are compressed, and the others."""
    leaves = jax.tree.leaves(payload)
    return [x for x in leaves if _is_float(x)], [x for x in leaves if not _is_float(x)]


def _vectors(payload: PyTree) -> list:
    """Return the shape of the one vector that is compressed; nothing without floats."""
    floats, _ = _split(payload)
    dtypes = {leaf.dtype for leaf in floats}
    if not dtypes:
        return []
    widest = max(map(tree.mean_dtype, dtypes), key=lambda dtype: jnp.finfo(dtype).bits)
    size = sum(math.prod(leaf.shape) for leaf in floats)
    return [jax.ShapeDtypeStruct((size,), dtypes.pop() if len(dtypes) == 1 else widest)]
