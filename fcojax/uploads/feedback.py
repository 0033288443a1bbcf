r"""Error feedback: the error of compression is sent in later uploads.

Plain compression converges to a wrong point. ``ef14`` is for methods whose uploads vanish at the
solution, such as ``composite_fl``, ``scaffold`` and ``fed_dr``. ``ef21`` and its relatives are for
methods whose uploads do not vanish, such as ``fed_avg`` and ``fed_mid``, because clients with
different data pull in different directions forever.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Known
from fcojax.types import NonNegative, Probability, PyTree, Share
from fcojax.uploads import coding
from fcojax.uploads.compressor import Compressor, factory, require_contractive
from fcojax.uploads.contract import At, Broadcast, Estimate
from fcojax.uploads.transform import Facts, Sent, UploadTransform, number


class Sum(NamedTuple):
    """A sum over rounds, and its rounding error."""

    value: PyTree
    residue: PyTree


class Estimated(NamedTuple):
    """A client's estimate g, and what it keeps beside it: its error e or its last upload."""

    beside: PyTree
    estimate: PyTree


@factory
def ef14(compressor: Compressor) -> UploadTransform:
    r"""Return the transform that adds the error of compression to a client's next upload.

    .. math:: c_i = C(u_i + e_i), \qquad e_i \leftarrow u_i + e_i - c_i

    So over any rounds the sum of the :math:`c_i` plus :math:`e_i` is the sum of the uploads
    :math:`u_i`, also for clients that were absent or whose uploads were lost. It is exact for
    methods whose uploads vanish at the solution.

    Args:
      compressor: a contractive compressor.

    Example:
      >>> import fcojax
      >>> from fcojax import uploads
      >>> plan = fcojax.Plan(fcojax.local_steps(5), uploads=ef14(uploads.top_k(0.01)))

    References:
      Seide, Fu, Droppo, Li and Yu, "1-bit stochastic gradient descent and its application to
      data-parallel distributed training of speech DNNs", Interspeech 2014.
    """
    require_contractive(compressor)

    def send(at, payload, missing):
        wanted = tree.add(tree.floats(payload), missing)
        encoded, sent = _sent(compressor, at, wanted, payload)
        return _sent_by(encoded, tree.sub(wanted, sent))

    return UploadTransform(
        f"ef14({compressor.name})",
        lambda payload: (_zeros(payload), ()),
        send,
        lambda at, wire, kept: coding.decode(compressor, wire),
        facts=Facts(feeds_back=True),
    )


@factory
def ef21(compressor: Compressor) -> UploadTransform:
    r"""Return the transform that keeps an estimate of each upload, and sends corrections of it.

    .. math:: c_i = C(u_i - g_i), \quad g_i \leftarrow g_i + c_i, \qquad
              g \leftarrow g + \sum_i p_i c_i

    The algorithm receives :math:`g = \sum_i p_i g_i`, over **all** clients: absent clients, and
    clients whose upload was lost, keep their :math:`g_i`, on both sides (EF21-PP). So it is exact
    for methods that take the mean of uploads that do not vanish, at the step sizes of its theory;
    the bias of several local steps remains. Algorithms that depend on ``fraction`` are refused. An
    aggregator that compares uploads gets the estimates of this round's clients.

    Args:
      compressor: a contractive compressor.

    Example:
      >>> from fcojax import uploads
      >>> ef21(uploads.top_k(0.01)).facts.estimates_all  # and not of the cohort alone
      True

    References:
      Richtarik, Sokolov and Fatkhullin, "EF21: a new, simpler, theoretically better, and
      practically faster error feedback", NeurIPS 2021; Fatkhullin, Sokolov, Gorbunov, Li and
      Richtarik, "EF21 with bells and whistles", 2021, for cohorts.
    """
    require_contractive(compressor)
    send = _corrections(compressor, lambda hparams, payload: 1)
    return _mirrored(f"ef21({compressor.name})", compressor, send)


@factory
def momentum(beta: Probability | Callable[[Any], Any] = 0.9) -> UploadTransform:
    r"""Return the transform whose clients send a moving average of their uploads.

    .. math:: v_i \leftarrow \beta v_i + (1 - \beta) u_i

    With it robust means resist bad clients that stay within the noise of minibatches, and
    ``chain(momentum(0.9), ef21(c))`` is EF21-SGDM, whose feedback does not carry that noise.

    Args:
      beta: in [0, 1); or ``hparams -> beta``, to sweep it.

    Example:
      >>> from fcojax.uploads import At
      >>> sent = momentum(0.75).send(At(None, round=0), [jnp.array(4.0)], [jnp.array(0.0)])
      >>> float(sent.wire[0])
      1.0

    References:
      Karimireddy, He and Jaggi, "Learning from history for Byzantine robust optimization", ICML
      2021; Fatkhullin, Tyurin and Richtarik, "Momentum provably improves error feedback", NeurIPS
      2023.
    """

    def send(at, payload, average):
        share = number(at.hparams, beta)
        average = jax.tree.map(
            lambda v, u: jnp.asarray(share, v.dtype) * v + jnp.asarray(1 - share, v.dtype) * u,
            average,
            tree.floats(payload),
        )
        return Sent(tree.cast_like(average, payload), average)

    return UploadTransform(
        f"momentum({beta})",
        lambda payload: (_zeros(payload), ()),
        send,
        facts=Facts(feeds_back=True),
    )


@factory
def econtrol(
    compressor: Compressor, rate: NonNegative | Callable[[Any], Any] = 0.1
) -> UploadTransform:
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
      >>> slowly = econtrol(uploads.top_k(0.01), rate=0.01)

    References:
      Gao, Islamov and Stich, "EControl: fast distributed optimization with compression and error
      control", ICLR 2024.
    """
    require_contractive(compressor)

    def send(at, payload, kept):
        error = tree.sub(tree.floats(payload), kept.estimate)
        wanted = tree.add_scaled(error, number(at.hparams, rate), kept.beside)
        encoded, sent = _sent(compressor, at, wanted, payload)
        missing = tree.add(kept.beside, tree.sub(error, sent))
        after = Estimated(missing, tree.add(kept.estimate, sent))
        return _sent_by(encoded, after)

    return _mirrored(f"econtrol({compressor.name}, {rate})", compressor, send, beside=_zeros)


@factory
def diana(
    compressor: Compressor, rate: NonNegative | Callable[[Any], Any] | None = None
) -> UploadTransform:
    r"""Return the transform of DIANA: clients compress uploads minus a learned shift.

    .. math:: m_i = Q(u_i - h_i), \quad h_i \leftarrow h_i + \alpha m_i, \qquad
              g = h + \sum_i p_i m_i, \quad h \leftarrow h + \alpha \sum_i p_i m_i

    For an unbiased Q, g is unbiased, and its variance vanishes as the :math:`h_i` converge. Absent
    clients keep their shifts, on both sides; with a cohort, g is :math:`h` plus the cohort's
    mean of :math:`m_i`.

    Args:
      compressor: an unbiased compressor.
      rate: alpha; ``None`` for 1 / (1 + w), the largest that the theory allows; or
        ``hparams -> alpha``.

    Example:
      >>> from fcojax import uploads
      >>> by_theory = diana(uploads.natural())  # alpha is 8/9

    References:
      Mishchenko, Gorbunov, Takac and Richtarik, "Distributed learning with compressed gradient
      differences", 2019.
    """
    _require_unbiased(compressor)

    def alpha(hparams, payload):
        if rate is None:
            return 1 / (1 + coding.variance(compressor, hparams, payload))
        return number(hparams, rate)

    name = f"diana({compressor.name})" if rate is None else f"diana({compressor.name}, {rate})"
    return _mirrored(name, compressor, _corrections(compressor, alpha), learned=alpha)


@factory
def marina(
    compressor: Compressor, probability: Share | Callable[[Any], Any] = 0.1
) -> UploadTransform:
    r"""Return the transform that sends compressed changes of uploads, or whole ones.

    All clients of a round share one coin, which shows heads with probability p. With :math:`u_i'`
    the previous upload,

    .. math:: g_i \leftarrow \begin{cases} u_i & \text{if heads} \\
              g_i + Q(u_i - u_i') & \text{otherwise} \end{cases}

    and the algorithm receives :math:`g = \sum_i p_i g_i`, over all clients: absent clients, and
    clients whose upload was lost, keep both. It is for uploads of full gradients, as the noise of
    minibatches would add up between two coins. The first :math:`u_i'` and :math:`g_i` are zero; in
    the paper the first uploads are whole.

    Args:
      compressor: an unbiased compressor.
      probability: p; the paper takes the ratio of the bytes of a compressed upload and a whole
        one. A function ``hparams -> p`` can be swept.

    Example:
      >>> from fcojax import uploads
      >>> by_the_paper = marina(uploads.rand_k(0.01), probability=0.01)

    References:
      Gorbunov, Burlachenko, Li and Richtarik, "MARINA: faster non-convex distributed learning with
      compression", ICML 2021.
    """
    _require_unbiased(compressor)

    def send(at, payload, kept):
        whole = jax.random.bernoulli(at.round_key, number(at.hparams, probability))
        upload = tree.floats(payload)
        encoded, sent = _sent(compressor, at, tree.sub(upload, kept.beside), payload)
        narrow = tree.cast_like(tree.sub(upload, kept.estimate), payload)
        change = tree.where(whole, tree.floats(narrow), sent)
        few = coding.num_bytes(encoded)
        return Sent(
            (encoded, narrow, whole),
            Estimated(upload, tree.add(kept.estimate, change)),
            num_bytes=jnp.where(whole, tree.num_bytes(narrow), few),
        )

    def decode(wire):
        encoded, narrow, whole = wire
        return tree.where(whole, narrow, coding.decode(compressor, encoded))

    name = f"marina({compressor.name}, {probability})"
    return _mirrored(name, compressor, send, beside=_zeros, decode=decode)


def _corrections(compressor: Compressor, share: Callable[[Any, list], Any]) -> Callable:
    """Return the ``send`` of compressed corrections, of which a share goes into the estimate."""

    def send(at, payload, kept):
        wanted = tree.sub(tree.floats(payload), kept.estimate)
        encoded, sent = _sent(compressor, at, wanted, payload)
        after = tree.add_scaled(kept.estimate, share(at.hparams, payload), sent)
        return _sent_by(encoded, Estimated((), after))

    return send


def _mirrored(
    name: str,
    compressor: Compressor,
    send: Callable,
    *,
    beside: Callable[[list], PyTree] = lambda payload: (),
    learned: Callable[[Any, list], Any] | None = None,
    decode: Callable[[Any], PyTree] | None = None,
) -> UploadTransform:
    """Return the transform that sends changes of an estimate, which the server adds up.

    Args:
      name: the call that makes it.
      compressor: encodes the changes.
      send: as in ``UploadTransform``, of the encoded change; clients keep an ``Estimated``.
      beside: ``(payload) -> beside``, what a client keeps first beside its estimate.
      learned: ``(hparams, change) -> share`` of a change that goes into the estimate; ``None`` for
        all of it. The algorithm receives the estimate before plus the whole change.
      decode: ``(wire) -> change``.
    """

    def decoded(at, wire, kept):
        change = coding.decode(compressor, wire) if decode is None else decode(wire)
        if not at.by_rule:
            return change
        return tree.cast_like(tree.add(kept.estimate, tree.floats(change)), change)

    def receive(at, found, weights, memory):
        if at.by_rule:
            return found, memory
        share = found.fraction
        if learned is not None:
            share = learned(at.hparams, found.mean) * share
        after = Sum(*tree.add_compensated(memory.value, memory.residue, share, found.mean))
        mean = after.value if learned is None else tree.add(memory.value, found.mean)
        return found._replace(mean=mean), after

    def init(payload):
        zeros = _zeros(payload)
        return Estimated(beside(payload), zeros), Sum(zeros, zeros)

    facts = Facts(feeds_back=True, estimates_all=True)
    return UploadTransform(name, init, send, decoded, receive=receive, facts=facts)


@factory
def ef21p(compressor: Compressor) -> Broadcast:
    r"""Return the broadcast of compressed corrections of the message, for ``Plan(broadcast=...)``.

    .. math:: \hat m \leftarrow \hat m + C(m - \hat m)

    for the message m of the algorithm. All clients, absent ones too, know the first message and
    receive each correction. The fixed points are those without compression. A message that grows
    forever, as the dual of ``fed_dual_avg`` with a penalty, has none: the estimate lags some rounds
    behind, and the limit is wrong. Single numbers and integers are sent uncompressed.

    Args:
      compressor: a contractive compressor, such as ``uploads.top_k(0.1)``.

    Example:
      >>> import fcojax
      >>> from fcojax import uploads
      >>> plan = fcojax.Plan(fcojax.local_steps(1), broadcast=ef21p(uploads.top_k(0.1)))

    References:
      Gruntkowska, Tyurin and Richtarik, "EF21-P and friends: improved theoretical communication
      complexity for distributed optimization with bidirectional compression", ICML 2023.
    """
    require_contractive(compressor)

    def is_long(leaf):
        return leaf.size > 1 and jnp.issubdtype(leaf.dtype, jnp.floating)

    def is_known(part):
        return isinstance(part, Known)

    def first(message):
        if any(map(is_known, jax.tree.leaves(message, is_leaf=is_known))):
            raise ValueError(
                "the algorithm's message has a part that clients know without receiving it, as "
                "partial_sharing's, and a compressed broadcast would change it; pass "
                "broadcast=None."
            )
        after = following(None, Estimate(message, ()), message, jax.random.key(0))
        return after._replace(message=message)

    def following(hparams, estimate, message, key):
        olds, structure = jax.tree.flatten(estimate.message)
        news = jax.tree.leaves(message)
        pairs = list(zip(news, olds, strict=True))
        change = [new - old for new, old in pairs if is_long(new)]
        encoded = coding.encode(compressor, hparams, change, key)
        parts = iter(coding.decode(compressor, encoded))
        leaves = [old + next(parts) if is_long(new) else new for new, old in pairs]
        short = [leaf for leaf in news if not is_long(leaf)]
        corrected = jax.tree.unflatten(structure, leaves)
        return Estimate(corrected, (encoded.sent, encoded.whole, short))

    return Broadcast(f"ef21p({compressor.name})", first, following)


def _sent(
    compressor: Compressor, at: At, wanted: PyTree, like: PyTree
) -> tuple[coding.Encoded, PyTree]:
    """Return the encoded payload, and the payload that the server decodes."""
    encoded = coding.encode(compressor, at.hparams, tree.cast_like(wanted, like), at.key)
    return encoded, tree.floats(coding.decode(compressor, encoded))


def _sent_by(encoded: coding.Encoded, client_state: PyTree) -> Sent:
    return Sent(encoded, client_state, num_bytes=coding.num_bytes(encoded))


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
