r"""Error feedback: the error of compression is sent in later uploads.

Plain compression by a contractive C converges to a wrong point. Each of two kinds of uploads has
its remedy:

- ``ef14`` adds the error to the next upload, so that sums over rounds are right. It is for methods
  whose uploads vanish at the solution: those with control variates or with dual variables on the
  clients, such as ``composite_fl``, ``scaffold`` and ``fed_dr``.
- ``ef21`` and its relatives keep an estimate of each client's upload, which the server mirrors, and
  send compressed corrections of it. They are for methods whose uploads do not vanish, such as
  ``fed_avg`` and ``fed_mid``: clients with different data pull in different directions forever.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import Aggregator, Codec, tree
from fcojax.engine.aggregator import Aggregate, Change, Term, Uploads, mean_of
from fcojax.engine.hparams import number
from fcojax.memo import memoised
from fcojax.types import Array, NonNegative, Probability, PyTree, Share
from fcojax.uploads import coding
from fcojax.uploads.compressor import Compressor, factory, require_contractive


class Sum(NamedTuple):
    """A sum over rounds, and its rounding error."""

    value: PyTree
    residue: PyTree


class Averaged(NamedTuple):
    """A client's moving average v of its uploads, and its estimate g."""

    average: PyTree
    estimate: PyTree


class Controlled(NamedTuple):
    """The part e that a client has not sent yet, and its estimate g."""

    missing: PyTree
    estimate: PyTree


class Compared(NamedTuple):
    """A client's last upload, and its estimate g."""

    last: PyTree
    estimate: PyTree


class Either(NamedTuple):
    """An encoded change, or the whole change; ``whole`` tells which is sent."""

    encoded: coding.Encoded
    change: PyTree
    whole: Array


@factory
def ef14(compressor: Compressor) -> Codec:
    r"""Return the codec whose clients add the error of compression to their next upload.

    .. math:: c_i = C(u_i + e_i), \qquad e_i \leftarrow u_i + e_i - c_i

    So over any rounds the sum of the :math:`c_i` plus :math:`e_i` is the sum of the uploads
    :math:`u_i`, also for clients that were absent or whose uploads were lost. It is exact for
    methods whose uploads vanish at the solution.

    Args:
      compressor: a contractive compressor.

    Example:
      >>> from fcojax import uploads
      >>> codec, payload = ef14(uploads.top_k(1)), [jnp.array([3.0, 1.0])]
      >>> residual, key = codec.init(payload), jax.random.key(0)
      >>> for _ in range(4):
      ...     encoded, residual = codec.encode(None, payload, residual, key, key)
      ...     print(codec.decode(encoded)[0].tolist(), residual[0].tolist())
      [3.0, 0.0] [0.0, 1.0]
      [3.0, 0.0] [0.0, 2.0]
      [3.0, 0.0] [0.0, 3.0]
      [0.0, 4.0] [3.0, 0.0]

    References:
      Seide, Fu, Droppo, Li and Yu, "1-bit stochastic gradient descent and its application to
      data-parallel distributed training of speech DNNs", Interspeech 2014.
    """
    require_contractive(compressor)

    def encode(hparams, payload, missing, key):
        wanted = tree.add(tree.floats(payload), missing)
        encoded, sent = _sent(compressor, hparams, wanted, payload, key)
        return encoded, tree.sub(wanted, sent)

    return coding.codec_of(compressor, _zeros, encode, feeds_back=True)


@factory
def ef21(compressor: Compressor) -> Uploads:
    r"""Return a codec and an aggregator that keep an estimate of each upload, and improve it.

    .. math:: c_i = C(u_i - g_i), \quad g_i \leftarrow g_i + c_i, \qquad
              g \leftarrow g + \sum_i p_i c_i

    The algorithm receives :math:`g = \sum_i p_i g_i`, over **all** clients: absent clients, and
    clients whose upload was lost, keep their :math:`g_i`, on both sides (EF21-PP). So it is exact
    for methods that take the mean of uploads that do not vanish, at the step sizes of its theory;
    the bias of several local steps remains. Algorithms that depend on ``fraction`` are refused.

    Args:
      compressor: a contractive compressor.

    Example:
      >>> from fcojax import uploads
      >>> codec, _ = ef21(uploads.top_k(1))
      >>> payload, key = [jnp.array([3.0, 1.0])], jax.random.key(0)
      >>> estimate = codec.init(payload)
      >>> for _ in range(2):
      ...     encoded, estimate = codec.encode(None, payload, estimate, key, key)
      ...     print(codec.decode(encoded).value[0].tolist(), estimate[0].tolist())
      [3.0, 0.0] [3.0, 0.0]
      [0.0, 1.0] [3.0, 1.0]

    References:
      Richtarik, Sokolov and Fatkhullin, "EF21: a new, simpler, theoretically better, and
      practically faster error feedback", NeurIPS 2021; Fatkhullin, Sokolov, Gorbunov, Li and
      Richtarik, "EF21 with bells and whistles", 2021, for cohorts.
    """
    require_contractive(compressor)

    def encode(hparams, payload, estimate, key):
        wanted = tree.sub(tree.floats(payload), estimate)
        encoded, sent = _sent(compressor, hparams, wanted, payload, key)
        return encoded, tree.add(estimate, sent)

    return _mirrored(compressor, _zeros, encode)


@factory
def ef21_sgdm(
    compressor: Compressor, momentum: Probability | Callable[[Any], Any] = 0.9
) -> Uploads:
    r"""Return ``ef21`` of moving averages of the uploads, for minibatches.

    .. math:: v_i \leftarrow \beta v_i + (1 - \beta) u_i, \quad c_i = C(v_i - g_i), \quad
              g_i \leftarrow g_i + c_i

    Without averaging, the feedback would also carry the noise of minibatches. With
    :math:`\beta = 0` it is ``ef21``.

    Args:
      compressor: a contractive compressor.
      momentum: beta; or ``hparams -> beta``, to sweep it.

    Example:
      >>> from fcojax import uploads
      >>> (codec, _), payload = ef21_sgdm(uploads.identity(), 0.5), [jnp.array([4.0])]
      >>> kept, key = codec.init(payload), jax.random.key(0)
      >>> for _ in range(2):
      ...     _, kept = codec.encode(None, payload, kept, key, key)
      >>> kept.estimate[0].tolist()
      [3.0]

    References:
      Fatkhullin, Tyurin and Richtarik, "Momentum provably improves error feedback", NeurIPS 2023.
    """
    require_contractive(compressor)

    def encode(hparams, payload, kept, key):
        beta = number(hparams, momentum)
        average = jax.tree.map(
            lambda v, u: jnp.asarray(beta, v.dtype) * v + jnp.asarray(1 - beta, v.dtype) * u,
            kept.average,
            tree.floats(payload),
        )
        wanted = tree.sub(average, kept.estimate)
        encoded, sent = _sent(compressor, hparams, wanted, payload, key)
        return encoded, Averaged(average, tree.add(kept.estimate, sent))

    return _mirrored(compressor, lambda zeros: Averaged(_zeros(zeros), _zeros(zeros)), encode)


@factory
def econtrol(compressor: Compressor, rate: NonNegative | Callable[[Any], Any] = 0.1) -> Uploads:
    r"""Return ``ef21`` that also sends, little by little, the accumulated error.

    .. math:: c_i = C(\eta e_i + u_i - g_i), \quad e_i \leftarrow e_i + u_i - g_i - c_i, \quad
              g_i \leftarrow g_i + c_i

    So over any rounds the sum of the estimates plus :math:`e_i` is the sum of the uploads. With
    :math:`\eta = 0` it is ``ef21``; with a large one it does not converge.

    Args:
      compressor: a contractive compressor.
      rate: eta, at most about the contraction a; or ``hparams -> eta``, to sweep it.

    Example:
      >>> from fcojax import uploads
      >>> (codec, _), payload = econtrol(uploads.top_k(1)), [jnp.array([3.0, 1.0])]
      >>> kept, key = codec.init(payload), jax.random.key(0)
      >>> _, kept = codec.encode(None, payload, kept, key, key)
      >>> kept.estimate[0].tolist(), kept.missing[0].tolist()
      ([3.0, 0.0], [0.0, 1.0])

    References:
      Gao, Islamov and Stich, "EControl: fast distributed optimization with compression and error
      control", ICLR 2024.
    """
    require_contractive(compressor)

    def encode(hparams, payload, kept, key):
        eta = number(hparams, rate)
        error = tree.sub(tree.floats(payload), kept.estimate)
        wanted = tree.add_scaled(error, eta, kept.missing)
        encoded, sent = _sent(compressor, hparams, wanted, payload, key)
        missing = tree.add(kept.missing, tree.sub(error, sent))
        return encoded, Controlled(missing, tree.add(kept.estimate, sent))

    return _mirrored(compressor, lambda zeros: Controlled(_zeros(zeros), _zeros(zeros)), encode)


@factory
def diana(
    compressor: Compressor, rate: NonNegative | Callable[[Any], Any] | None = None
) -> Uploads:
    r"""Return the codec and aggregator of DIANA: clients compress uploads minus a learned shift.

    .. math:: m_i = Q(u_i - h_i), \quad h_i \leftarrow h_i + \alpha m_i, \qquad
              g = h + \sum_i p_i m_i, \quad h \leftarrow h + \alpha \sum_i p_i m_i

    For an unbiased Q, g is unbiased, and its variance vanishes as the :math:`h_i` converge. Absent
    clients keep their shifts, on both sides; with a cohort, g is :math:`h` plus the cohort's
    mean of :math:`m_i`.

    Mishchenko, Gorbunov, Takac and Richtarik, "Distributed learning with compressed gradient
    differences", 2019.

    Args:
      compressor: an unbiased compressor.
      rate: alpha; ``None`` for 1 / (1 + w), the largest that the theory allows; or
        ``hparams -> alpha``.

    Example:
      >>> from fcojax import uploads
      >>> (codec, _), payload = diana(uploads.natural()), [jnp.array([4.0, 0.0])]
      >>> shift, key = codec.init(payload), jax.random.key(0)
      >>> _, shift = codec.encode(None, payload, shift, key, key)
      >>> [round(number, 3) for number in shift[0].tolist()]  # 8/9 of the upload
      [3.556, 0.0]
    """
    _require_unbiased(compressor)

    def alpha(hparams, payload):
        if rate is None:
            return 1 / (1 + coding.worst_variance(compressor, hparams, payload))
        return number(hparams, rate)

    def encode(hparams, payload, shift, key):
        wanted = tree.sub(tree.floats(payload), shift)
        encoded, sent = _sent(compressor, hparams, wanted, payload, key)
        return encoded, tree.add_scaled(shift, alpha(hparams, payload), sent)

    def estimated(hparams, mean, memory, fraction):
        learned = alpha(hparams, mean) * fraction
        kept = Sum(*tree.add_compensated(memory.value, memory.residue, learned, mean))
        return tree.add(memory.value, mean), kept

    return _mirrored(compressor, _zeros, encode, estimated)


@factory
def marina(compressor: Compressor, probability: Share | Callable[[Any], Any] = 0.1) -> Uploads:
    r"""Return a codec and an aggregator that send compressed changes of uploads, or whole ones.

    All clients of a round share one coin, which shows heads with probability p. With :math:`u_i'`
    the previous upload,

    .. math:: g_i \leftarrow \begin{cases} u_i & \text{if heads} \\
              g_i + Q(u_i - u_i') & \text{otherwise} \end{cases}

    and the algorithm receives :math:`g = \sum_i p_i g_i`, over all clients: absent clients, and
    clients whose upload was lost, keep both. It is for uploads of full gradients, as the noise of
    minibatches would add up between two coins. The first :math:`u_i'` and :math:`g_i` are zero; in
    the paper the first uploads are whole.

    Gorbunov, Burlachenko, Li and Richtarik, "MARINA: faster non-convex distributed learning with
    compression", ICML 2021.

    Args:
      compressor: an unbiased compressor.
      probability: p; the paper takes the ratio of the bytes of a compressed upload and a whole
        one. A function ``hparams -> p`` can be swept.

    Example:
      >>> from fcojax import uploads
      >>> (codec, _), payload = marina(uploads.rand_k(1), 0.5), [jnp.array([4, 2.0], "float32")]
      >>> kept, coins = codec.init(payload), []
      >>> for key in jax.random.split(jax.random.key(0), 8):
      ...     encoded, kept = codec.encode(None, payload, kept, key, key)
      ...     coins.append(int(codec.num_bytes(None, encoded)))  # one of two numbers, or both
      >>> sorted(set(coins)), kept.estimate[0].tolist()
      ([4, 8], [4.0, 2.0])
    """
    _require_unbiased(compressor)

    def encode(hparams, payload, kept, key, round_key):
        whole = jax.random.bernoulli(round_key, number(hparams, probability))
        upload = tree.floats(payload)
        wanted = tree.sub(upload, kept.last)
        encoded, sent = _sent(compressor, hparams, wanted, payload, key)
        narrow = jax.tree.map(
            lambda u, g, own: (u - g).astype(own.dtype), upload, kept.estimate, payload
        )
        change = tree.where(whole, tree.floats(narrow), sent)
        kept = Compared(upload, tree.add(kept.estimate, change))
        return Either(encoded, narrow, whole), kept

    def decode(either):
        decoded = coding.decode(compressor, either.encoded)
        return Change(tree.where(either.whole, either.change, decoded))

    def num_bytes(hparams, either):
        compressed = coding.num_bytes(compressor, hparams, either.encoded)
        return jnp.where(either.whole, tree.num_bytes(either.change), compressed)

    codec = Codec(
        lambda zeros: Compared(_zeros(zeros), _zeros(zeros)), encode, decode, num_bytes, True
    )
    return Uploads(codec, _mirror(_summed))


def _mirrored(
    compressor: Compressor, init: Callable, encode_with: Callable, estimated: Callable | None = None
) -> Uploads:
    """Return a codec that sends changes of an estimate, and the aggregator that adds them up."""
    codec = coding.codec_of(
        compressor,
        init,
        encode_with,
        decode=lambda encoded: Change(coding.decode(compressor, encoded)),
        feeds_back=True,
    )
    return Uploads(codec, _mirror(estimated or _summed))


def _summed(hparams: Any, mean: PyTree, memory: Sum, fraction: Array) -> tuple[PyTree, Sum]:
    """Return the sum of all mean changes so far, as the estimate and as the memory."""
    after = Sum(*tree.add_compensated(memory.value, memory.residue, fraction, mean))
    return after.value, after


@memoised
def _mirror(estimated: Callable) -> Aggregator:
    """Return the aggregator that adds up changes of the clients' estimates.

    Args:
      estimated: ``(hparams, mean change, memory, fraction) -> (estimate, memory)``.
    """

    def init(payload):
        return Sum(_zeros(payload.value), _zeros(payload.value))

    def term(hparams, payload, memory):
        return Term(payload.value)

    def finish(hparams, total, weights, memory, key):
        mean = mean_of(total, weights)
        estimate, after = estimated(hparams, mean, memory, weights.fraction)
        return Aggregate(estimate, fraction=None, memory=after, step=weights.count > 0)

    return Aggregator(init, term, finish=finish, takes_changes=True)


def _sent(
    compressor: Compressor, hparams: Any, wanted: PyTree, like: PyTree, key: Array
) -> tuple[coding.Encoded, PyTree]:
    """Return the encoded payload, and the payload that the server decodes."""
    narrow = jax.tree.map(lambda leaf, own: leaf.astype(own.dtype), wanted, like)
    encoded = coding.encode(compressor, hparams, narrow, key)
    return encoded, tree.floats(coding.decode(compressor, encoded))


def _zeros(payload: PyTree) -> PyTree:
    for leaf in jax.tree.leaves(payload):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"an upload has a leaf of {leaf.dtype}, which can have no residual; wrap it "
                "in fcojax.algorithms.Public, or upload floats."
            )
    return tree.floats(tree.zeros_like(payload))


def _require_unbiased(compressor: Compressor) -> None:
    if compressor.variance is None:
        raise ValueError(
            f"compressor is {compressor.name}, which is biased; pass an unbiased one, such as "
            "rand_k(0.1) or qsgd(7)."
        )
