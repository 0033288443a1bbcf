"""Encoding and decoding of payloads, and compression without feedback."""

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import validated
from fcojax.types import Array, Key, NumberTree, Params, PyTree, Scalar
from fcojax.uploads.compressor import Compressor, factory
from fcojax.uploads.forms import Form
from fcojax.uploads.transform import At, Sent, UploadTransform


class Encoded(NamedTuple):
    """An encoded payload; ``sent`` and ``whole`` are transmitted.

    Attributes:
      sent: the compressed units.
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
    r"""The constants of a compressor for one payload.

    Attributes:
      unbiased: whether E C(x) = x.
      variance: w with :math:`E |C(x) - x|^2 \le w |x|^2`; ``None`` if it is biased.
      contraction: a with :math:`E |C(x) - x|^2 \le (1 - a) |x|^2`; ``None`` if it is not
        contractive.
      num_bytes: bytes of an encoded payload, including indices.
      whole_bytes: bytes of the payload without compression.

    Example:
      >>> from fcojax import uploads
      >>> uploads.facts(uploads.rand_k(0.25), jnp.zeros(100, "float32"))
      Constants(unbiased=True, variance=3.0, contraction=None, num_bytes=100, whole_bytes=400)
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
      >>> model = {"kernel": jnp.zeros((100, 10), "float32"), "bias": jnp.zeros(10, "float32")}
      >>> uploads.facts(uploads.top_k(10), model).num_bytes  # 10 times 32 + 10 bits
      53
    """
    payload = jax.eval_shape(lambda payload: payload, payload)
    units = [jax.ShapeDtypeStruct(u.shape, u.dtype) for u in _units(compressor, _split(payload)[0])]
    variance = None if compressor.variance is None else worst_variance(compressor, hparams, payload)
    contraction = None
    if compressor.contraction is not None:
        contraction = functools.reduce(
            _smaller, [compressor.contraction(hparams, unit) for unit in units], 1.0
        )
    shapes = jax.eval_shape(
        lambda payload: encode(compressor, hparams, payload, jax.random.key(0)), payload
    )
    return Constants(
        variance is not None,
        variance,
        contraction,
        num_bytes(compressor, hparams, shapes),
        tree.num_bytes(payload),
    )


def worst_variance(compressor: Compressor, hparams: Any, payload: PyTree) -> Scalar:
    """Return the largest w over the units of a payload of an unbiased compressor."""
    assert compressor.variance is not None
    units = _units(compressor, _split(payload)[0])
    found = [compressor.variance(hparams, unit) for unit in units]
    return functools.reduce(lambda a, b: -_smaller(-a, -b), found, 0.0)


def encode(compressor: Compressor, hparams: Any, payload: PyTree, key: Key) -> Encoded:
    """Return the encoded payload; the key is known to the client and to the server."""
    floats, whole = _split(payload)
    units = _units(compressor, floats)
    if not compressor.leafwise and units:
        units = [jnp.concatenate([leaf.reshape(-1).astype(units[0].dtype) for leaf in floats])]
    sent = [
        compressor.encode(hparams, unit, jax.random.fold_in(key, index))
        for index, unit in enumerate(units)
    ]
    leaves, structure = jax.tree.flatten(payload)
    form = Form(structure, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves))
    return Encoded(sent, whole, tree.all_finite(floats), (hparams, key), form)


def decode(compressor: Compressor, encoded: Encoded) -> PyTree:
    """Return the payload that the server decodes."""
    hparams, key = encoded.known
    floats, _ = _split(encoded.form.shapes())
    units = [
        compressor.decode(hparams, sent, jax.random.fold_in(key, index), unit)
        for index, (sent, unit) in enumerate(
            zip(encoded.sent, _units(compressor, floats), strict=True)
        )
    ]
    if not compressor.leafwise and units:
        units = from_vector(units[0], floats)
    found = iter([jnp.where(encoded.finite, unit, jnp.nan) for unit in units])
    whole = iter(encoded.whole)
    leaves = [next(found) if _is_float(leaf) else next(whole) for leaf in encoded.form.leaves]
    return jax.tree.unflatten(encoded.form.structure, leaves)


def from_vector(vector: Array, like: list) -> list:
    """Return a vector as a list of arrays of these shapes and dtypes."""
    ends = list(itertools.accumulate((leaf.size for leaf in like), initial=0))
    return [
        vector[first:end].reshape(leaf.shape).astype(leaf.dtype)
        for leaf, first, end in zip(like, ends[:-1], ends[1:], strict=True)
    ]


def num_bytes(compressor: Compressor, hparams: Any, encoded: Encoded) -> Scalar:
    """Return the transmitted bytes of an encoded payload, or of its shapes."""
    whole = tree.num_bytes(encoded.whole)
    if compressor.num_bytes is None:
        return whole + tree.num_bytes(encoded.sent)
    floats, _ = _split(encoded.form.shapes())
    return whole + sum(compressor.num_bytes(hparams, unit) for unit in _units(compressor, floats))


@factory
def compressed(compressor: Compressor) -> UploadTransform:
    """Return the transform that compresses each upload, without error feedback.

    With an unbiased compressor the mean upload is unbiased; with a biased one the limit is wrong,
    and ``ef14`` or ``ef21`` is needed.

    Args:
      compressor: a compressor, such as ``uploads.qsgd(7)``.

    Example:
      >>> from fcojax import uploads
      >>> one, at = compressed(uploads.qsgd(7)), At(hparams=None, round=0, key=jax.random.key(0))
      >>> one.send(at, [jnp.zeros(2, "float32")], ()).num_bytes  # 2 of 4 bits, and a norm of 32
      5
    """

    def send(at, payload, state):
        return sent_by(compressor, at, encode(compressor, at.hparams, payload, at.key), state)

    name = f"compressed({compressor.name})"
    return UploadTransform(
        name, send=send, decode=lambda at, encoded, state: decode(compressor, encoded)
    )


def sent_by(compressor: Compressor, at: At, encoded: Encoded, state: PyTree) -> Sent:
    """Return an encoded payload with its bytes, and what the client keeps."""
    return Sent(encoded, state, num_bytes=num_bytes(compressor, at.hparams, encoded))


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating) and math.prod(leaf.shape) > 0


def _split(payload: PyTree) -> tuple[list, list]:
    """Return the leaves that are compressed, and the others."""
    leaves = jax.tree.leaves(payload)
    return [x for x in leaves if _is_float(x)], [x for x in leaves if not _is_float(x)]


def _units(compressor: Compressor, floats: list) -> list:
    """Return the arrays, or the shape of the one vector, that the compressor is applied to."""
    if compressor.leafwise or not floats:
        return floats
    size = sum(math.prod(leaf.shape) for leaf in floats)
    return [jax.ShapeDtypeStruct((size,), _widest({leaf.dtype for leaf in floats}))]


def _widest(dtypes: set) -> Any:
    """Return a dtype that holds all of these."""
    if len(dtypes) == 1:
        return dtypes.pop()
    return max(map(tree.mean_dtype, dtypes), key=lambda dtype: jnp.finfo(dtype).bits)


def _smaller(a: Scalar, b: Scalar) -> Scalar:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return min(a, b)
    return jnp.minimum(a, b)
