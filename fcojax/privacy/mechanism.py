"""Transforms that clip uploads and add noise to their sum: the Gaussian mechanism in every round.

Only uploads are protected, against an attacker who sees every model.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import checked_value, factory
from fcojax.robust.rules import clip as clipped_to
from fcojax.types import Array, Key, NonNegative, Positive, Real, Share
from fcojax.uploads.contract import Received, RoundWeights
from fcojax.uploads.transform import Facts, Noise, Opened, UploadTransform, number


@dataclasses.dataclass(frozen=True)
class AdaptiveClip:
    """See ``adaptive_clip``."""

    quantile: float
    start: float
    rate: float
    noise: float


@factory
def adaptive_clip(
    quantile: Share = 0.5, *, start: Positive, rate: Positive = 0.2, noise: NonNegative = 0.0
) -> AdaptiveClip:
    r"""Return a clipping norm that follows a quantile of the norms of uploads.

    .. math:: C_{r+1} = C_r \exp(-\eta (b_r - q)), \qquad b_r \text{ the share of norms} \le C_r

    The share is private too: its sum gets separate noise, and the uploads get more, so that both
    releases together are as private as one with the ``noise`` of ``gaussian``.

    Args:
      quantile: q, the share of uploads that should not be clipped.
      start: norm of the first round.
      rate: :math:`\eta`.
      noise: standard deviation of the noise on the number of uploads within the norm; a twentieth
        of the clients of a round is usual. It must be above half of ``noise`` of ``gaussian``.

    Example:
      >>> private = gaussian(adaptive_clip(0.5, start=0.1, noise=2.5), noise=1.0)

    References:
      Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive
      clipping", NeurIPS 2021, algorithm 1 and theorem 1.
    """
    return AdaptiveClip(float(quantile), float(start), float(rate), float(noise))


@factory
def gaussian(
    clip: Any, noise: Any = 0.0, *, per_leaf: bool = False, bands: tuple[Real, ...] = (1.0,)
) -> UploadTransform:
    r"""Return the transform that clips each upload, and adds Gaussian noise to the sum of a round.

    .. math:: \frac{1}{q W} \Big( \sum_i p_i x_i \min(1, C / |x_i|)
        + z C \max_m p_m \, \mathcal{N}(0, I) \Big)

    with qW the expected weight of a cohort: the denominator must not reveal who takes part. For the
    same reason the algorithm receives the fraction q in every round, and the server also steps in
    rounds without clients. Weights are assumed to be public. Parts of an upload are clipped
    jointly, on the server, after decoding; ``Public`` ones bypass it, and are refused if they could
    differ between clients or with the data.

    The points of a sweep have independent noise, and a resumed run repeats the noise of the same
    release and no other. The share of clients that were clipped is ``history["clipped"]``, which is
    not private, and NaN in rounds without clients.

    Args:
      clip: C, the largest norm of an upload; infinity for none; or ``adaptive_clip(...)``.
      noise: z, the noise multiplier: the deviation of the noise relative to the largest
        contribution of a client; 0 for the plain mean.
      per_leaf: whether each of L leaves is clipped to :math:`C / \sqrt{L}`.
      bands: coefficients of a strategy matrix, such as those of the square root of prefix sums, the
        products of (2 j - 1) / (2 j) up to k: 1, 0.5, 0.375, 0.3125. With more than one the noise
        of a round cancels a part of the earlier noise, so sums over rounds have less. No client
        may come back within that many rounds, as in ``cyclic(num_groups=4)``.

    Example:
      >>> import fcojax
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uploads=gaussian(clip=3.0, noise=1.0))

    References:
      McMahan, Ramage, Talwar and Zhang, "Learning differentially private recurrent language
      models", ICLR 2018.

      Fichtenberger, Henzinger and Upadhyay, "Constant matters: fine-grained error bound on
      differentially private continual observation", ICML 2023, equation (2), for the bands.
    """
    known = _noise_of(clip, noise, bands)
    name, facts = f"gaussian({clip}, {noise})", Facts(noisy=known, needs_sum=bool(known))
    if isinstance(clip, AdaptiveClip):
        return _adaptive(name, clip, noise, per_leaf, facts)

    def open_(at, payload, client_state, past):
        clipped, longer = _clipped(tree.floats(payload), number(at.hparams, clip), per_leaf)
        return Opened(clipped, metrics={"clipped": longer})

    def receive(at, found, weights, past):
        deviation = number(at.hparams, noise) * number(at.hparams, clip)
        drawn, past = _correlated(bands, _normal_like(found.mean, at.private_key), past)
        mean = _over_expected(found.mean, weights, deviation, drawn)
        return _hidden(found._replace(mean=mean), weights), past

    return UploadTransform(
        name,
        lambda payload: ((), _first_noise(bands, payload)),
        open=open_,
        receive=receive if known else None,
        bound=lambda hparams, norm: jnp.minimum(norm, number(hparams, clip)),
        facts=facts,
    )


def _adaptive(
    name: str, adaptive: AdaptiveClip, noise: Any, per_leaf: bool, facts: Facts
) -> UploadTransform:
    """Return the transform with an adaptive norm; opened uploads are in units of the norm."""

    def open_(at, payload, client_state, norm):
        clipped, longer = _clipped(tree.floats(payload), norm, per_leaf)
        # Plus and minus one half: one client moves the sum by a half.
        return Opened([*tree.scale(1 / norm, clipped), 0.5 - longer], metrics={"clipped": longer})

    def receive(at, found, weights, norm):
        *update, within = found.mean
        if facts.noisy:
            key, own = jax.random.split(at.private_key)
            scale = noise_on_uploads(number(at.hparams, noise), adaptive.noise)
            update = _over_expected(update, weights, scale, _normal_like(update, key))
            [within] = _over_expected(
                [within], weights, adaptive.noise, _normal_like([within], own)
            )
            found = _hidden(found, weights)
        change = jnp.exp(-adaptive.rate * (within + 0.5 - adaptive.quantile)).astype(norm.dtype)
        after = jnp.where(found.step, norm * change, norm)
        return found._replace(mean=tree.scale(norm, update)), after

    return UploadTransform(
        name,
        lambda payload: ((), jnp.asarray(adaptive.start, jnp.result_type(float))),
        open=open_,
        receive=receive,
        bound=lambda hparams, norm: jnp.sqrt(1.25),  # in units of the norm, with the half
        facts=facts,
    )


def _first_noise(bands: tuple[float, ...], payload: list) -> list:
    """Return the noise of the rounds before the first: zeros for all bands but one."""
    later = len(bands) - 1
    if not later:
        return []
    return [jnp.zeros((later, *x.shape), tree.mean_dtype(x.dtype)) for x in payload]


def _correlated(bands: tuple[float, ...], normals: list, past: list) -> tuple[list, list]:
    r"""Return the noise of a round, from normals and the last noise, and the new past.

    With C the banded Toeplitz matrix of :math:`c_{t-s}` in row t and column s, the noise is row t
    of :math:`C^{-1} Z`. Releasing the sums plus that is equivalent to releasing C times the sums
    plus Z. A client that takes part k times, never twice within b rounds, changes this by at most
    :math:`\sqrt{k} \, |c|` clipping norms, because its columns of C have no common row. Later sums
    may depend on earlier releases, as Z is Gaussian (Denisov, McMahan, Rush, Smith and Thakurta,
    NeurIPS 2022, theorem 2.1; Choquette-Choo et al., NeurIPS 2023).
    """
    first, *later = bands
    if not later:
        return [normal / first for normal in normals] if first != 1 else normals, past

    def one(normal: Array, before: Array) -> Array:
        taken = jnp.tensordot(jnp.asarray(later, before.dtype), before, axes=1)
        return (normal - taken) / first

    noise = [one(normal, before) for normal, before in zip(normals, past, strict=True)]
    pairs = zip(noise, past, strict=True)
    return noise, [jnp.concatenate([own[None], before[:-1]]) for own, before in pairs]


def noise_on_uploads(noise: Any, count: float) -> Any:
    r"""Return z_D with :math:`z^{-2} = z_D^{-2} + (2 s)^{-2}`, for noise s on the count."""
    return (noise**-2.0 - (2 * count) ** -2.0) ** -0.5


def _hidden(found: Received, weights: RoundWeights) -> Received:
    """Return a result that does not reveal who took part."""
    expected = weights.expected_weight / weights.population_weight
    return found._replace(fraction=expected, step=jnp.asarray(True))


def _normal_like(leaves: list, key: Key) -> list:
    keys = jax.random.split(key, max(1, len(leaves)))
    pairs = zip(leaves, keys[: len(leaves)], strict=True)
    return [jax.random.normal(own, leaf.shape, leaf.dtype) for leaf, own in pairs]


def _over_expected(total: list, weights: RoundWeights, deviation: Any, drawn: list) -> list:
    """Return noisy sums divided by the expected weight of a cohort, which is public."""

    def one(leaf, normal):
        noise = (deviation * weights.largest).astype(leaf.dtype) * normal
        whole = leaf * weights.cohort_weight.astype(leaf.dtype)
        return (whole + noise) / weights.expected_weight.astype(leaf.dtype)

    return list(map(one, total, drawn))


def _clipped(payload: list, norm: Any, per_leaf: bool) -> tuple[list, Array]:
    """Return an upload clipped to a joint norm, and 1 if it was longer, else 0."""
    if not payload:
        return payload, jnp.zeros(())
    if not per_leaf:
        clipped, longer = clipped_to(payload, norm)
        return clipped, longer.astype(float)
    pairs = [clipped_to(leaf, norm / math.sqrt(len(payload))) for leaf in payload]
    return [own for own, _ in pairs], jnp.any(jnp.stack([one for _, one in pairs])).astype(float)


def _noise_of(clip: Any, noise: Any, bands: tuple = (1.0,)) -> Noise | bool:
    """Return the noise for accounting, ``False`` without; refuse norms that cannot be meant."""
    if not callable(noise):
        checked_value("noise", noise, NonNegative, single=True)
    if isinstance(clip, AdaptiveClip):
        if not callable(noise) and noise > 0 and not noise < 2 * clip.noise:
            raise ValueError(
                f"noise is {noise} and adaptive_clip has {clip.noise}; pass a number above "
                f"{noise / 2} to adaptive_clip, so that both have the privacy of noise."
            )
        if len(bands) > 1:
            raise ValueError("bands need a fixed norm; pass one band, or a number as clip.")
    elif not callable(clip) and not (isinstance(clip, float) and clip == math.inf):
        checked_value("clip", clip, Positive, single=True)
    if not bands or bands[0] <= 0:
        raise ValueError(f"bands is {bands!r}; pass finite numbers, the first above 0.")
    if not callable(noise) and noise == 0:
        return False
    if clip == math.inf:
        raise ValueError("clip is infinite, so no noise is enough; pass a finite norm.")
    return Noise(noise, bands)
