"""Uplinks that clip uploads and add noise to their sum: the Gaussian mechanism in every round.

Only what is sent is protected, against someone who sees every model. A client's contribution to the
sum is at most its weight times the clipping norm, whatever the algorithm does.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from fcojax import Plan, Uplink, tree
from fcojax.extend import (
    NO_UPLINK,
    RoundWeights,
    checked_value,
    counted_fraction,
    forgetful,
    no_memory,
    plain_mean,
    unchanged,
)
from fcojax.privacy.bands import BandedMean, with_bands
from fcojax.privacy.budgets import Budget
from fcojax.privacy.noise import key_of, with_fixed_denominator, with_noise
from fcojax.robust.mass import number
from fcojax.robust.means import clip
from fcojax.types import Array, Key, NonNegative, Positive, PyTree, Share
from fcojax.uploads.compressor import factory
from fcojax.uploads.modular import ModularMean


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

    The share is private too: its sum gets noise of its own, and the uploads get so much more that
    both together cost what ``noise`` of ``gaussian`` says.

    Args:
      quantile: q, the share of uploads that should not be clipped.
      start: norm of the first round.
      rate: :math:`\eta`.
      noise: standard deviation of the noise on the number of uploads within the norm; a twentieth
        of the clients of a round is usual. It must be above half of ``noise`` of ``gaussian``.

    Example:
      >>> from fcojax import privacy
      >>> privacy.adaptive_clip(0.5, start=0.1, noise=2.5)
      AdaptiveClip(quantile=0.5, start=0.1, rate=0.2, noise=2.5)

    References:
      Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive
      clipping", NeurIPS 2021, algorithm 1 and theorem 1.
    """
    return AdaptiveClip(float(quantile), float(start), float(rate), float(noise))


@dataclasses.dataclass(frozen=True)
class NoisyMean:
    """The sum of clipped uploads with noise, over a fixed denominator; the plain mean without.

    Attributes:
      noise: the noise multiplier.
      clip: the clipping norm.
    """

    noise: Any
    clip: Any

    def __call__(self, hparams: Any, total: PyTree, weights: RoundWeights, key: Key) -> PyTree:
        """Return the mean; see ``Uplink.finish``."""
        if not is_noisy(self.noise):
            return plain_mean(hparams, total, weights, key)
        multiplier = number(hparams, self.noise) * number(hparams, self.clip)
        deviation = multiplier * weights.largest
        return with_fixed_denominator(total, deviation, weights, key_of(hparams, key))


@dataclasses.dataclass(frozen=True)
class NoisyUnits:
    """The same for uploads in units of an adaptive norm, and for the share within it.

    Attributes:
      noise: the noise multiplier of both together.
      adaptive: how the norm follows.
    """

    noise: Any
    adaptive: AdaptiveClip

    def __call__(self, hparams: Any, total: tuple, weights: RoundWeights, key: Key) -> PyTree:
        """Return the mean upload, the share less one half, and whether there is one."""
        if not is_noisy(self.noise):
            return *plain_mean(hparams, total, weights, key), weights.count > 0
        key, own = jax.random.split(key_of(hparams, key))
        update, within = total
        multiplier = noise_on_uploads(number(hparams, self.noise), self.adaptive.noise)
        update = with_fixed_denominator(update, multiplier * weights.largest, weights, key)
        deviation = self.adaptive.noise * weights.largest
        [within] = with_fixed_denominator([within], deviation, weights, own)
        return update, within, jnp.asarray(True)


@dataclasses.dataclass(frozen=True)
class NoisyModularMean:
    """The sum of whole numbers with noise, over a fixed denominator; NaN if that would wrap.

    Attributes:
      noise: the noise multiplier.
      clip: the clipping norm.
      modular: the mean without noise.
    """

    noise: Any
    clip: Any
    modular: ModularMean

    def __call__(self, hparams: Any, total: list, weights: RoundWeights, key: Key) -> list:
        """Return the mean; see ``Uplink.finish``."""
        if not is_noisy(self.noise):
            return self.modular(hparams, total, weights, key)
        step = jnp.asarray(self.modular.size(hparams), float)
        deviation = number(hparams, self.noise) * number(hparams, self.clip) / step
        keys = jax.random.split(key_of(hparams, key), max(1, len(total)))
        scale = step * weights.largest / weights.expected_weight
        return self.modular.means(
            total,
            weights,
            lambda noisy, count: noisy * scale.astype(noisy.dtype),
            lambda whole, index: with_noise(whole, deviation, keys[index]),
        )


@factory
def gaussian(
    clip: Any,
    noise: Any = 0.0,
    *,
    per_leaf: bool = False,
    bands: tuple = (1.0,),
    uplink: Uplink | None = None,
    budget: Budget | None = None,
) -> Uplink:
    r"""Return the uplink that clips each upload, and adds Gaussian noise to the sum of a round.

    .. math:: \frac{1}{q W} \Big( \sum_i p_i x_i \min(1, C / |x_i|)
        + z C \max_m p_m \, \mathcal{N}(0, I) \Big)

    with qW the weight that takes part on average, which is public: the denominator must not tell
    who takes part. For the same reason the algorithm is told that fraction in every round, and the
    server steps in rounds without clients. Weights are taken to be public. Parts of an upload are
    clipped jointly; ``Public`` ones pass by, and are refused if they depend on the data.

    The noise is drawn from the key of the run, the round and the hyperparameters, so the points of
    a sweep have independent noise and a resumed run repeats no noise but that of the same release.
    The share of clients that were clipped is ``history["clipped"]``, which is not private.

    Args:
      clip: C, the largest norm of an upload; infinity for none; or ``adaptive_clip(...)``.
      noise: z, the noise multiplier; the deviation of the noise relative to what one client adds.
        With 0 the mean is the plain one.
      per_leaf: whether each of L leaves is clipped to :math:`C / \sqrt{L}`.
      bands: of a strategy matrix, such as ``square_root_bands(4)``; with more than one the noise of
        a round takes away some of that of the rounds before, which is less in sums over rounds. No
        client may come back within that many rounds, as in ``cyclic(num_groups=4)``.
      uplink: how uploads are encoded, such as ``uploads.compressed(...)``; what the server decodes
        is clipped. With ``uploads.modular_sum(...)`` clients clip to C less the most that rounding
        can add, so that what is sent is within C; the noise is added to the sum, and a round is
        refused if the noisy sum would wrap. The server then sees no single upload, and
        ``history`` has no ``"clipped"``.
      budget: ends runs before they cost more, as ``privacy.budget(epsilon, delta)`` says; ``None``
        for any number of rounds.

    Example:
      >>> import fcojax, numpy as np
      >>> from fcojax import privacy
      >>> data = fcojax.from_clients([{"a": np.array([a])} for a in (1.0, 2.0, 900.0)])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uplink=gaussian(clip=3.0))
      >>> model, history = fcojax.run(
      ...     fed_avg, fed_avg.hparams_type(client_lr=1.0), jnp.array(0.0), data,
      ...     jax.random.key(0), plan, num_rounds=1)
      >>> float(model), round(float(history["clipped"][0]), 3)  # (1 + 2 + 3) / 3
      (2.0, 0.333)

    References:
      McMahan, Ramage, Talwar and Zhang, "Learning differentially private recurrent language
      models", ICLR 2018.
    """
    base = uplink or NO_UPLINK
    _require(clip, noise, base)
    if budget is not None:
        base = base._replace(limit=functools.partial(budget.limit, noise, bands))
    if len(bands) > 1 and (isinstance(clip, AdaptiveClip) or isinstance(base.finish, ModularMean)):
        raise ValueError("bands need a fixed norm and a plain sum; pass one band, or a number.")
    if isinstance(clip, AdaptiveClip):
        return _adaptive(clip, noise, per_leaf, base)
    if isinstance(base.finish, ModularMean):
        return _of_modular_sum(clip, noise, per_leaf, base, base.finish)

    def receive(hparams, payload, memory):
        clipped, longer = _clipped(_wide(payload), number(hparams, clip), per_leaf)
        return clipped, {"clipped": longer}

    if len(bands) > 1 and is_noisy(noise):
        fields = with_bands(BandedMean(noise, clip, tuple(map(float, bands))))
        return base._replace(receive=receive, **fields, **_hidden(noise))
    return base._replace(receive=receive, finish=NoisyMean(noise, clip), **_hidden(noise))


def _adaptive(adaptive: AdaptiveClip, noise: Any, per_leaf: bool, base: Uplink) -> Uplink:
    """Terms are in units of the norm, which the server multiplies back."""

    def receive(hparams, payload, norm):
        clipped, longer = _clipped(_wide(payload), norm, per_leaf)
        within = 0.5 - longer  # plus and minus one half: one client moves the sum by a half
        return (tree.scale(1 / norm, clipped), within), {"clipped": longer}

    def recall(hparams, mean, norm, fraction):
        update, within, known = mean
        off = jnp.where(known, within + 0.5 - adaptive.quantile, 0)
        return tree.scale(norm, update), norm * jnp.exp(-adaptive.rate * off).astype(norm.dtype)

    return base._replace(
        receive=receive,
        finish=NoisyUnits(noise, adaptive),
        recall=recall,
        memory=lambda zeros: jnp.asarray(adaptive.start, jnp.result_type(float)),
        **_hidden(noise),
    )


def _of_modular_sum(
    clip: Any, noise: Any, per_leaf: bool, base: Uplink, modular: ModularMean
) -> Uplink:
    """Clients clip before they round, which moves each of d entries by less than a step."""

    def encode(hparams, payload, residual, key):
        added = math.sqrt(sum(leaf.size for leaf in payload)) * modular.size(hparams)
        norm = number(hparams, clip) - added
        if not isinstance(norm, jax.Array) and norm <= 0:
            raise ValueError(
                f"clip is {clip}, but rounding alone can add {added:.4g} to a norm; pass a step of "
                "modular_sum well below clip over the square root of the number of entries."
            )
        clipped, _ = _clipped(payload, jnp.maximum(norm, 0), per_leaf)
        return base.encode(hparams, clipped, residual, key)

    finish = NoisyModularMean(noise, clip, modular)
    return base._replace(encode=encode, finish=finish, **_hidden(noise))


def noise_on_uploads(noise: Any, count_noise: float) -> Any:
    r"""Return :math:`(z^{-2} - (2 s)^{-2})^{-1/2}`, with which both releases cost what z costs.

    Args:
      noise: z.
      count_noise: s, the deviation of the noise on the number within the norm.
    """
    return (noise**-2.0 - (2 * count_noise) ** -2.0) ** -0.5


def is_noisy(noise: Any) -> bool:
    """Return whether there may be noise: a function of the hyperparameters, or a number above 0."""
    return callable(noise) or noise > 0


def is_private(plan: Plan) -> bool:
    """Return whether the uploads of a plan have noise.

    Args:
      plan: how rounds are driven.
    """
    return plan.uplink is not None and is_noisy(getattr(plan.uplink.finish, "noise", 0.0))


def _expected_fraction(weights: RoundWeights) -> Array:
    return weights.expected_weight / weights.population_weight


def _hidden(noise: Any) -> dict[str, Any]:
    """The fields of an uplink that do not tell who took part."""
    noisy = is_noisy(noise)
    return {
        "steps_when_empty": noisy,
        "fraction": _expected_fraction if noisy else counted_fraction,
    }


def _clipped(payload: list, norm: Any, per_leaf: bool) -> tuple[list, Array]:
    """Return the parts of an upload within a joint norm, and whether it was longer, as a number."""
    if not payload:
        return payload, jnp.zeros(())
    if not per_leaf:
        clipped, longer = clip(payload, norm)
        return clipped, longer.astype(float)
    pairs = [clip(leaf, norm / math.sqrt(len(payload))) for leaf in payload]
    longer = jnp.any(jnp.stack([pair[1] for pair in pairs]))
    return [pair[0] for pair in pairs], longer.astype(float)


def _wide(payload: list) -> list:
    return [leaf.astype(tree.mean_dtype(leaf.dtype)) for leaf in payload]


def _require(clip: Any, noise: Any, base: Uplink) -> None:
    if not callable(noise):
        checked_value("noise", noise, NonNegative, single=True)
    if isinstance(clip, AdaptiveClip):
        if not callable(noise) and noise > 0 and not noise < 2 * clip.noise:
            raise ValueError(
                f"noise is {noise} and that of adaptive_clip {clip.noise}; pass a number above "
                f"{noise / 2} to adaptive_clip, so that both together can cost what noise says."
            )
    elif not callable(clip) and clip != math.inf:
        checked_value("clip", clip, Positive, single=True)
    if clip == math.inf and is_noisy(noise):
        raise ValueError("clip is infinite, so no noise is enough; pass a finite norm.")
    if isinstance(base.finish, ModularMean):
        if isinstance(clip, AdaptiveClip):
            raise ValueError(
                "clip is adaptive_clip(...), which needs the norm of each upload, and the uplink "
                "is a modular sum, which hides it; pass a number."
            )
        return
    own = base.finish is not plain_mean or base.receive is not unchanged
    if own or base.memory is not no_memory or base.recall is not forgetful:
        raise ValueError(
            "the uplink has a mean or a memory of its own, which noise would make wrong; pass one "
            "that only encodes, such as uploads.compressed(...)."
        )
