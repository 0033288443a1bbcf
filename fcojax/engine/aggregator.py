"""Codecs, which encode uploads, and aggregators, which combine them on the server.

A codec encodes the upload of each client; an aggregator combines the uploads of a round into one
mean. Algorithms depend on neither. Parts of an upload that are wrapped in ``Public`` bypass both.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Public
from fcojax.types import Array, Key, ManyArrays, PyTree, Scalar


class RoundWeights(NamedTuple):
    """Weights of the clients of a round, for aggregators with a denominator of their own.

    Attributes:
      share: the weight of the counted clients, as a share of the cohort's; 0 if none counts.
      cohort_weight: the sum of the weights p_m over the cohort, counted or not.
      population_weight: the sum of the weights over all clients.
      count: number of counted clients.
      arrived: number of clients whose finite upload arrived, counted or not.
      expected_weight: the expected weight of a cohort, from the sampler's mean size.
      largest: the largest weight of a client of the population.
    """

    share: Array
    cohort_weight: Array
    population_weight: Array
    count: Array
    arrived: Array
    expected_weight: Array
    largest: Array

    @property
    def fraction(self) -> Array:
        """The share of the population's weight that the counted clients have."""
        return self.share * (self.cohort_weight / self.population_weight)

    def aggregate(self, mean: PyTree, memory: PyTree) -> "Aggregate":
        """Return the result for a mean of the counted clients, with a step if any client counts."""
        return Aggregate(mean, self.fraction, memory, self.count > 0)


class Change(NamedTuple):
    """A correction to the server's estimate of an upload, which some codecs send instead of it.

    An aggregator without ``takes_changes`` is refused for such a codec: it would use the mean of
    corrections as the mean of uploads.
    """

    value: PyTree


class Term(NamedTuple):
    """One client's contribution to a round.

    Attributes:
      value: the arrays that the collector gathers.
      keep: 0 leaves the client out of the round: it keeps its state, and is counted in
        ``history["left_out"]``; ``None`` for aggregators that use all.
      metrics: scalars for the history, averaged like the clients' metrics.
    """

    value: PyTree
    keep: Array | None = None
    # Shared by all terms; nothing writes to it, as `merged` returns a new dictionary.
    metrics: dict[str, Array] = {}


class Aggregate(NamedTuple):
    """The result of an aggregator for one round.

    Attributes:
      mean: the mean payload that the algorithm receives.
      fraction: the counted clients' share of the population's weight, for ``server_update``;
        ``None`` if the mean is an estimate over all clients, present or not. Algorithms whose
        server step depends on ``fraction`` are then refused.
      memory: the memory for the next round; it is stored even if the server's step is refused.
      step: whether the server updates its state.
    """

    mean: PyTree
    fraction: Array | None
    memory: PyTree
    step: Array


class Noise(NamedTuple):
    """The noise of an aggregator, as privacy accounting needs it.

    Attributes:
      multiplier: standard deviation of the noise divided by the largest contribution of one client,
        a number or a function of the hyperparameters.
      bands: coefficients of noise that is correlated across rounds.
      allowance: ``(cohort, runs, num_clients) -> Allowance``, called on the host before the first
        round; ``runs`` has for each seed a list of the hyperparameters of its points, which share
        cohorts. ``None`` for any number of rounds.
    """

    multiplier: Any
    bands: tuple[float, ...] = (1.0,)
    allowance: Callable[[Any, list, int], "Allowance"] | None = None


class Allowance(NamedTuple):
    """The number of rounds that each run may have, and the reason, as the end of a sentence."""

    rounds: int
    detail: str


class Collector(NamedTuple):
    """How the terms of a round are accumulated, chunk by chunk; results of devices are summed.

    So a rule that needs the whole cohort can also run in chunks and on several devices.

    Attributes:
      start: ``(shapes, num_places) -> collected``: the initial value, given the shapes of one
        client's term and the number of places in a cohort.
      add: ``(collected, terms, weights, places) -> collected``: adds one chunk; ``terms`` has a
        leading axis of clients. A client that does not count has weight 0, and its term may be NaN.
    """

    start: Callable[[PyTree, int], PyTree]
    add: Callable[[PyTree, PyTree, Array, Array], PyTree]


def _no_sum(shapes: PyTree, num_places: int) -> PyTree:
    del num_places
    # At least float32: a sum of ones in bfloat16 stops growing at 256.
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, tree.mean_dtype(leaf.dtype)), shapes)


def _add_to_sum(total: PyTree, terms: PyTree, weights: Array, places: Array) -> PyTree:
    del places

    def accumulate(sum_, leaf):
        counted = _column(weights, leaf) > 0
        masked = jnp.where(counted, leaf.astype(sum_.dtype), 0)  # zero times NaN is NaN
        return sum_ + jnp.sum(_column(weights.astype(sum_.dtype), leaf) * masked, axis=0)

    return jax.tree.map(accumulate, total, terms)


def _column(weights: Array, like: Array) -> Array:
    return weights.reshape(-1, *(1,) * (like.ndim - 1))


SUM = Collector(_no_sum, _add_to_sum)


def bytes_of_all(hparams: Any, encoded: PyTree) -> int:
    """Return the bytes of all arrays of an encoded payload."""
    del hparams
    return tree.num_bytes(encoded)


class Codec(NamedTuple):
    """How a client encodes its upload, and how many bytes it sends.

    A payload is the list of the arrays of an upload that are not ``Public``. Numbers such as a step
    size are fields of ``hparams``.

    Attributes:
      init: ``(payload) -> residual``: the initial residual of one client, given a payload of zeros.
        Like a client's state, it is unchanged if an upload is lost.
      encode: ``(hparams, payload, residual, client_key, round_key) -> (encoded, residual)`` for one
        client; all clients and the server share ``round_key``, for draws such as a coin.
      decode: ``(encoded) -> payload``, or a ``Change`` of one.
      num_bytes: ``(hparams, encoded) -> bytes``; by default it counts all arrays. Leave out arrays
        that the server can compute, such as draws from a key. It may depend on shapes, ``hparams``
        and draws from the round's key, not on the payload.
      feeds_back: whether a residual is added to later uploads. Algorithms whose uploads change
        their meaning between rounds are then refused.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> def cast_to(dtype):
      ...     return lambda payload: jax.tree.map(lambda leaf: leaf.astype(dtype), payload)
      >>> halves = fcojax.Codec(
      ...     init=lambda payload: (),
      ...     encode=lambda hparams, payload, kept, *keys: (cast_to(jnp.float16)(payload), kept),
      ...     decode=cast_to(jnp.float32))
      >>> plan = fcojax.Plan(fcojax.local_steps(1), codec=halves)
      >>> encoded, _ = halves.encode(None, [jnp.array([1.0, 2.0, 3.0])], (), None, None)
      >>> encoded[0].nbytes
      6
    """

    init: Callable[[ManyArrays], PyTree]
    encode: Callable[..., tuple[PyTree, PyTree]]
    decode: Callable[[Any], PyTree]
    num_bytes: Callable[[Any, PyTree], Scalar] = bytes_of_all
    feeds_back: bool = False

    example = "uploads.compressed(...)"


def no_memory(payload: PyTree) -> tuple:
    """Return the memory of an aggregator that keeps none."""
    del payload
    return ()


def whole(hparams: Any, payload: PyTree, memory: PyTree) -> Term:
    """Return the payload unchanged, as the term of a mean."""
    del hparams, memory
    return Term(payload)


def weighted_mean(
    hparams: Any, total: PyTree, weights: RoundWeights, memory: PyTree, key: Key
) -> Aggregate:
    """Return the weighted mean over the counted clients, from their sum."""
    del hparams, key
    return weights.aggregate(mean_of(total, weights), memory)


def mean_of(total: PyTree, weights: RoundWeights) -> PyTree:
    """Return the weighted mean from a sum of terms, each times its share of the cohort's weight."""
    # Without a counted client the sum is zero: divided by one it stays zero, where 0 / 0 is NaN in
    # the value and in every derivative.
    return tree.scale(1 / jnp.where(weights.share > 0, weights.share, 1), total)


class Aggregator(NamedTuple):
    """How the server combines the uploads of a round; its numbers are fields of ``hparams``.

    Attributes:
      init: ``(payload) -> memory``: the initial memory, given a decoded payload of zeros.
      term: ``(hparams, payload, memory) -> Term`` for one client.
      collect: ``SUM`` of the terms, each times its client's share of the cohort's weight; or
        ``STACK``, which keeps all terms of a round in memory, for rules that need them together.
      finish: ``(hparams, collected, weights, memory, key) -> Aggregate``. With ``noisy`` the key
        differs between all hyperparameters; otherwise the points of a sweep share it.
      noisy: whether it adds noise for privacy: a ``Noise``, or ``True`` if its amount is unknown,
        which privacy accounting refuses. Selection draws separate noise for each fold and refuses a
        refit without noise.
      takes_changes: whether each payload is a ``Change``, as with ``uploads.ef21``.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> def signs(hparams, payload, memory):
      ...     return fcojax.extend.Term(jax.tree.map(jnp.sign, payload))
      >>> data = fcojax.from_clients([{"a": np.array([a])} for a in (1.0, 2.0, 900.0)])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), aggregator=fcojax.Aggregator(term=signs))
      >>> model, _ = fcojax.run(
      ...     fed_avg, fed_avg.hparams_type(), jnp.array(0.0), data, jax.random.key(0), plan,
      ...     num_rounds=1)
      >>> float(model)
      1.0
    """

    init: Callable[[ManyArrays], PyTree] = no_memory
    term: Callable[[Any, PyTree, PyTree], Term] = whole
    collect: Collector = SUM
    finish: Callable[[Any, PyTree, RoundWeights, PyTree, Key], Aggregate] = weighted_mean
    noisy: bool | Noise = False
    takes_changes: bool = False

    example = "robust.averaged(...)"

    @property
    def noise(self) -> Noise | None:
        """The ``Noise``; ``None`` without noise, or if its amount is unknown."""
        return self.noisy if isinstance(self.noisy, Noise) else None


MEAN = Aggregator()


class Uploads(NamedTuple):
    """A codec and the aggregator that it needs, in the order of ``Plan``'s fields.

    Example:
      >>> import fcojax
      >>> from fcojax import uploads
      >>> plan = fcojax.Plan(
      ...     fcojax.local_steps(1), fcojax.everyone(), *uploads.ef21(uploads.top_k(0.1)))
      >>> plan.codec.feeds_back
      True
    """

    codec: Codec | None = None
    aggregator: Aggregator = MEAN

    example = "uploads.ef21(...)"


def split(upload: PyTree) -> tuple[list, list, Callable[[list, list], PyTree]]:
    """Return the private and the public parts of an upload, and a function that joins them."""
    # A public part may hold a whole subtree, which then bypasses codec and aggregator as one.
    parts, structure = jax.tree.flatten(upload, is_leaf=_is_public)
    public = [_is_public(part) for part in parts]

    def join(private: list, shared: list) -> PyTree:
        sources = {False: iter(private), True: iter(shared)}
        return jax.tree.unflatten(structure, [next(sources[kind]) for kind in public])

    return (
        [part for part, kind in zip(parts, public, strict=True) if not kind],
        [part for part, kind in zip(parts, public, strict=True) if kind],
        join,
    )


def _is_public(part: Any) -> bool:
    return isinstance(part, Public)
