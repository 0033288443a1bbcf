"""Laws of compressors: the stated error and bytes of a compressor, checked by simulation."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.check.subject import Finding, located
from fcojax.uploads import Compressor, coding

_DRAWS, _DEVIATIONS, _RARE, _ROUNDING = 4000, 5, 12, 1e-9


def laws_of(compressor: Compressor, size: int) -> dict[str, Finding]:
    """Return for each law of compressors whether it holds, on vectors of ``size`` entries.

    The stated error is compared with 4000 draws for a few float64 vectors, with normal,
    heavy-tailed, large, small and equal entries, and with a single one.
    """
    try:
        form = _form(compressor, size)
    except Exception as error:  # code of the user may raise anything
        form = Finding(False, located(error))
    if not form.holds:
        return {"form": form}
    vectors, keys = _vectors(size), jax.random.split(jax.random.key(0), _DRAWS)
    of_vectors = jax.vmap(functools.partial(_once, compressor), in_axes=(0, None))
    decoded = np.asarray(jax.jit(jax.vmap(of_vectors, in_axes=(None, 0)))(vectors, keys))
    return {"form": form} | {name: law(compressor, vectors, decoded) for name, law in _LAWS.items()}


def _vectors(size: int) -> np.ndarray:
    """Return vectors of all kinds for which a bound may be wrong."""
    rng = np.random.default_rng(0)
    normal, place = rng.standard_normal((2, size)), np.arange(size)
    equal, single = np.ones(size), -1.0 * (place == size // 3)
    rows = [normal[0], normal[1] ** 3, 1e3 * normal[0], 1e-3 * normal[1], equal, single]
    return np.stack([*rows, 1.0 + place, 1 / (1.0 + place) ** 2])


def _once(compressor: Compressor, x: Any, key: Any) -> Any:
    """Return C(x), decoded from the shape and dtype of x and no more."""
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return compressor.decode(None, compressor.encode(None, x, key), key, like)


def _form(compressor: Compressor, size: int) -> Finding:
    """The decoded vector has the shape and the dtype of the vector, and zero stays zero."""
    for dtype in (jnp.float64, jnp.float32):
        zeros = jnp.zeros(size, dtype)
        encoded = compressor.encode(None, zeros, jax.random.key(0))
        if not all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(encoded)):
            return Finding(False, "encode returns parts that are not arrays")
        found = _once(compressor, zeros, jax.random.key(0))
        if jnp.shape(found) != zeros.shape or jnp.result_type(found) != dtype:
            kind = f"{jnp.result_type(found)}{list(jnp.shape(found))}"
            return Finding(False, f"of {zeros.dtype}{[size]} it decodes {kind}")
        if not np.all(np.asarray(found) == 0):
            return Finding(False, "zeros are decoded as something else")
    return Finding(True, "vectors keep their shape and dtype, and zeros stay zero")


# Laws of a compressor; vectors are [vectors, size], and decoded ones [draws, vectors, size], with
# independent keys.


def _eager(compressor: Compressor, vectors: np.ndarray, decoded: np.ndarray) -> Finding:
    """The compiled compressor gives the same results as without compilation."""
    key = jax.random.split(jax.random.key(0), _DRAWS)[0]
    found = np.stack([_once(compressor, jnp.asarray(x), key) for x in vectors])
    off = np.abs(found - decoded[0]).max() / np.abs(vectors).max()
    if off <= _ROUNDING:
        return Finding(True, "the same key gives the same result, compiled or not")
    return Finding(False, f"the same key gives another result when it is compiled, by {off:.2g}")


def _unbiased(compressor: Compressor, vectors: np.ndarray, decoded: np.ndarray) -> Finding:
    """The mean over draws of a compressor that states a variance is the vector."""
    if compressor.variance is None:
        return Finding(None, "it states no variance, so it need not be unbiased")
    size = np.linalg.norm(vectors, axis=-1, keepdims=True)
    units = vectors / size
    along = np.sum(decoded / size * units, axis=-1, keepdims=True)  # small errors add up
    found = np.concatenate([decoded / size, along], axis=-1)
    expected = np.concatenate([units, np.ones_like(size)], axis=-1)
    off, deviation = np.abs(found.mean(axis=0) - expected), found.std(axis=0)
    # The deviation of an entry that is rarely sent is unknown: few draws have it, or none.
    rare = _RARE * np.abs(found).max(axis=(0, 2))[:, None] * np.ones_like(off)
    rare[:, -1] *= deviation[:, -1] > _ROUNDING
    if np.all(off <= _DEVIATIONS * deviation / np.sqrt(_DRAWS) + rare / _DRAWS + _ROUNDING):
        return Finding(True, f"the mean of {_DRAWS} draws is the vector")
    return Finding(False, f"the mean of {_DRAWS} draws is off by {off.max():.2g} of the norm")


def _variance(compressor: Compressor, vectors: np.ndarray, decoded: np.ndarray) -> Finding:
    """The error of an unbiased compressor is at most w."""
    if compressor.variance is None:
        return Finding(None, "it states no variance")
    number = float(compressor.variance(None, jax.ShapeDtypeStruct(vectors.shape[1:], float)))
    return _within(vectors, decoded, number, number)


def _contraction(compressor: Compressor, vectors: np.ndarray, decoded: np.ndarray) -> Finding:
    """The error of a contractive compressor is at most 1 - a, and a is above 0."""
    if compressor.contraction is None:
        return Finding(None, "it states no contraction, so ef14 and ef21 refuse it")
    number = float(compressor.contraction(None, jax.ShapeDtypeStruct(vectors.shape[1:], float)))
    if not 0 < number <= 1:
        return Finding(False, f"stated {number:.4g}; a is above 0 and at most 1")
    return _within(vectors, decoded, number, 1 - number)


def _within(vectors: np.ndarray, decoded: np.ndarray, stated: float, most: float) -> Finding:
    errors = np.sum((decoded - vectors) ** 2, axis=-1) / np.sum(vectors**2, axis=-1)
    mean = errors.mean(axis=0)
    allowed = _DEVIATIONS * errors.std(axis=0) / np.sqrt(_DRAWS) + _ROUNDING
    holds = bool(np.all(mean <= most + allowed))
    found = f"errors are at most {mean.max():.4g}" if holds else f"but an error is {mean.max():.4g}"
    return Finding(holds, f"stated {stated:.4g}{';' if holds else ','} {found} of the norm squared")


def _bytes(compressor: Compressor, vectors: np.ndarray, decoded: np.ndarray) -> Finding:
    """The arrays that are sent have at most the bytes of the vector."""
    size, key = vectors.shape[1], jax.random.key(0)
    like = jax.ShapeDtypeStruct((size,), jnp.float32)
    encoded = jax.eval_shape(lambda x: coding.encode(compressor, None, [x], key), like)
    sent = coding.num_bytes(encoded)
    return Finding(sent <= 4 * size, f"{sent} for {size} numbers of float32, which take {4 * size}")


_LAWS: dict[str, Callable[[Compressor, np.ndarray, np.ndarray], Finding]] = {
    "compiled": _eager,
    "unbiased": _unbiased,
    "variance": _variance,
    "contraction": _contraction,
    "bytes": _bytes,
}
