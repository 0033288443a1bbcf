"""Uplinks: how uploads are encoded between the clients and the server's mean.

An uplink encodes the upload of each client, decodes it before the mean, and finishes the sum.
Compression with error feedback, clipping with noise and fixed denominators are uplinks; algorithms
do not depend on them. Parts of an upload that are wrapped in ``Public`` bypass the uplink.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, Public
from fcojax.engine.uploads.collect import WEIGHTED_SUM, Collector
from fcojax.types import Array, Key, ManyArrays, PyTree, Scalar
from fcojax.xla.jaxprs import uses_first_argument


class RoundWeights(NamedTuple):
    """Weights of the clients of a round, for an uplink with a denominator of its own.

    Attributes:
      share: the weight of the counted clients, as a share of the cohort's; 0 if none counts.
      cohort_weight: the sum of the weights p_m over the cohort, counted or not.
      population_weight: the same over all clients.
      count: number of counted clients.
      expected_weight: the mean of the cohort's weight over many rounds, as the sampler has it.
      largest: the largest weight of a client of the population.
    """

    share: Array
    cohort_weight: Array
    population_weight: Array
    count: Array
    expected_weight: Array
    largest: Array


class Limit(NamedTuple):
    """How many rounds an uplink allows.

    Attributes:
      rounds: the largest number of rounds of each run.
      detail: what they use up, to continue a sentence.
    """

    rounds: int
    detail: str


def plain_mean(hparams: Any, total: PyTree, weights: RoundWeights, key: Key) -> PyTree:
    """Return the weighted mean over the counted clients."""
    del hparams, key
    return tree.scale(1 / jnp.where(weights.share > 0, weights.share, 1), total)


def counted_fraction(weights: RoundWeights) -> Array:
    """Return the share of the population's weight that the counted clients have."""
    return weights.share * (weights.cohort_weight / weights.population_weight)


def bytes_of_all(hparams: Any, encoded: PyTree) -> int:
    """Return the bytes of all arrays of an encoded payload."""
    del hparams
    return tree.num_bytes(encoded)


def no_memory(payload: PyTree) -> tuple:
    """Return the memory of a server that keeps none."""
    del payload
    return ()


def forgetful(hparams: Any, mean: PyTree, memory: PyTree, fraction: Array) -> tuple[PyTree, PyTree]:
    """Return the mean and the memory as they are."""
    del hparams, fraction
    return mean, memory


def no_more(hparams: Any, total: PyTree, memory: PyTree) -> PyTree:
    """Return the memory as it is, of an uplink with one pass."""
    del hparams, total
    return memory


def unchanged(hparams: Any, payload: PyTree, memory: PyTree) -> tuple[PyTree, dict[str, Array]]:
    """Return the payload as it is, and no measures."""
    del hparams, memory
    return payload, {}


def as_given(hparams: Any, key: Key) -> Any:
    """Return the hyperparameters as they are."""
    del key
    return hparams


class Uplink(NamedTuple):
    """An encoding of uploads, as pure functions; numbers are passed as ``hparams``.

    Attributes:
      init: ``(payload) -> residual``: the first state of one client's encoder, given zeros in the
        shape of its payload. Like a client's state, it is unchanged if an upload is lost.
      encode: ``(hparams, payload, residual, key) -> (encoded, residual)`` for one client, where the
        key is that of the client and the round.
      decode: ``(encoded) -> payload``, before the mean.
      finish: ``(hparams, total, weights, key) -> mean``, with ``total`` the sum of decoded
        payloads, each times its client's share of the cohort's weight, and ``weights`` a
        ``RoundWeights``. With another ``collector`` or ``receive``, ``total`` is what these make.
      steps_when_empty: whether the server steps in rounds in which no client counts, with what
        ``finish`` returns for a sum of zero; noise must not reveal whether anybody took part.
        ``Public`` parts that depend on the data are refused then, as they pass without noise.
      num_bytes: ``(hparams, encoded) -> bytes``, where ``encoded`` holds shapes; by default those
        of all arrays. Some may be known to the server, such as what is drawn from the key.
      memory: ``(payload) -> memory``: what the server keeps of the uploads before the first round,
        given zeros in the shape of a payload; by default nothing.
      recall: ``(hparams, mean, memory, fraction) -> (mean, memory)``, after ``finish``: the mean
        that the algorithm receives, and the memory for the next round. ``fraction`` is the share of
        the population's weight behind the mean. It is applied in every round, also where no client
        counts and where the server's step is refused, as clients keep their residuals then too.
      of_population: whether ``recall`` returns an estimate of the mean over all clients. An
        algorithm whose server adds up its uploads in proportion to ``fraction`` is then refused.
      feeds_back: whether what was left out of an upload is added to later ones. An algorithm whose
        uploads mean something else in the next round is then refused.
      receive: ``(hparams, payload, memory) -> (term, measures)`` for one client, after ``decode``:
        what of it is collected, of any form that ``finish`` and ``recall`` make a mean of, and
        scalars for the history, averaged as the clients' metrics are.
      collector: ``WEIGHTED_SUM``, or ``WHOLE_COHORT`` for a rule that needs all terms at once:
        ``total`` is then a ``Cohort`` of them, which takes the memory of all uploads of a round.
      num_passes: how often the server goes through the uploads of a round. It keeps none, so
        clients compute and send them again, with the same keys.
      between: ``(hparams, total, memory) -> memory``: what ``receive`` is given in the next pass,
        and ``recall`` after the last.
      fraction: ``(weights) -> fraction``: the value that ``server_update`` receives, the share of
        the population's weight behind the mean; by default that of the mean's denominator.
      limit: ``(cohort, runs, num_clients) -> Limit``: how many rounds are allowed to each of
        several runs together, given the hyperparameters of each, in lists of those that have the
        same cohorts, as the points of one seed do; ``None`` for any number. It is asked on the host
        before the first round.
      of_round: ``(hparams, key) -> hparams``: what ``encode`` and ``num_bytes`` receive as the
        hyperparameters, given the key of the round, for what all clients and the server share, such
        as a coin; by default the hyperparameters as they are.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> def cast_to(dtype):
      ...     return lambda payload: jax.tree.map(lambda leaf: leaf.astype(dtype), payload)
      >>> halves = fcojax.Uplink(
      ...     init=lambda payload: (),
      ...     encode=lambda hparams, payload, kept, key: (cast_to(jnp.float16)(payload), kept),
      ...     decode=cast_to(jnp.float32))
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uplink=halves)
      >>> encoded, _ = halves.encode(None, [jnp.array([1.0, 2.0, 3.0])], (), None)
      >>> encoded[0].nbytes
      6
    """

    init: Callable[[ManyArrays], PyTree]
    encode: Callable[[Any, ManyArrays, PyTree, Key], tuple[PyTree, PyTree]]
    decode: Callable[[ManyArrays], PyTree]
    finish: Callable[[Any, PyTree, RoundWeights, Key], PyTree] = plain_mean
    steps_when_empty: bool = False
    num_bytes: Callable[[Any, PyTree], Scalar] = bytes_of_all
    memory: Callable[[PyTree], PyTree] = no_memory
    recall: Callable[[Any, PyTree, PyTree, Array], tuple[PyTree, PyTree]] = forgetful
    of_population: bool = False
    feeds_back: bool = False
    receive: Callable[[Any, PyTree, PyTree], tuple[PyTree, dict[str, Array]]] = unchanged
    collector: Collector = WEIGHTED_SUM
    num_passes: int = 1
    between: Callable[[Any, PyTree, PyTree], PyTree] = no_more
    fraction: Callable[[RoundWeights], Array] = counted_fraction
    limit: Callable[[Any, list, int], Limit] | None = None
    of_round: Callable[[Any, Key], Any] = as_given


NO_UPLINK = Uplink(
    init=lambda payload: (),
    encode=lambda hparams, payload, residual, key: (payload, residual),
    decode=lambda encoded: encoded,
)


def split(upload: PyTree) -> tuple[list, list, Callable[[list, list], PyTree]]:
    """Return the private and the public parts of an upload, and a function that joins them."""
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


def require_fitting(
    uplink: Uplink,
    algorithm: Algorithm,
    hparams: PyTree,
    server: PyTree,
    upload: PyTree,
    name: str = "uplink",
) -> None:
    """Raise ``ValueError`` if an algorithm cannot have the feedback of an uplink.

    An estimate of the mean over all clients is wrong where the server's step depends on
    ``fraction``, as sums of uploads do.

    Args:
      uplink: the uplink.
      algorithm: the algorithm.
      hparams: its hyperparameters.
      server: the server's state, or its shapes.
      upload: the shapes of an upload.
      name: what the plan calls it.
    """
    if uplink.feeds_back and algorithm.codecs == "without feedback":
        raise ValueError(
            f"the {name} adds what it left out of an upload to later ones, which mean another "
            "thing in this algorithm; pass an uplink without feedback, such as "
            "uploads.compressed(...)."
        )
    if not uplink.of_population:
        return

    def step(fraction, hparams, server, upload):
        return algorithm.server_update(hparams, server, upload, fraction, jax.random.key(0))

    fraction = jax.ShapeDtypeStruct((), jnp.result_type(float))
    if uses_first_argument(step, fraction, hparams, server, upload):
        raise ValueError(
            "the algorithm's server adds up its uploads, in proportion to fraction, and the "
            f"{name} returns an estimate of the mean over all clients; pass one that returns what "
            "was sent, such as uploads.ef14(...), which keeps sums."
        )


def _is_public(part: Any) -> bool:
    return isinstance(part, Public)
