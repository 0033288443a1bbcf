"""The contract of uploads: what engine, chain and aggregator hand each other."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Public
from fcojax.arguments import shown
from fcojax.types import Array, Key, ManyArrays, PyTree, Scalar


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=[], meta_fields=["structure", "leaves"]
)
@dataclasses.dataclass(frozen=True)
class Form:
    """The structure of an upload, and the shapes of its arrays."""

    structure: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]

    def join(self, private: list, public: list) -> PyTree:
        """Return the upload of these private and public parts."""
        parts, structure = jax.tree.flatten(self.shapes(), is_leaf=_is_public)
        sources = {False: iter(private), True: iter(public)}
        return jax.tree.unflatten(structure, [next(sources[_is_public(part)]) for part in parts])

    def shapes(self) -> PyTree:
        """Return the shapes of the upload."""
        return jax.tree.unflatten(self.structure, self.leaves)


def split(upload: PyTree) -> tuple[list, list, Form]:
    """Return the private and the public parts of an upload, and its form."""
    # A public part may hold a whole subtree, which then bypasses the chain as one.
    parts = jax.tree.leaves(upload, is_leaf=_is_public)
    shapes, structure = jax.tree.flatten(jax.eval_shape(lambda upload: upload, upload))
    return (
        [part for part in parts if not _is_public(part)],
        [part for part in parts if _is_public(part)],
        Form(structure, tuple(shapes)),
    )


def _is_public(part: Any) -> bool:
    return isinstance(part, Public)


def require_same_form(function: str, before: PyTree, after: PyTree, noun: str = "state") -> None:
    """Raise ``ValueError`` unless a result has the structure, shapes and dtypes of an argument."""
    # As text: one comparison then covers structure, shapes and dtypes, and the message can print
    # both.
    expected, found = (
        jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", state)
        for state in (before, after)
    )
    if jax.tree.flatten(expected) != jax.tree.flatten(found):
        raise ValueError(
            f"{function} was given a {noun} of form {shown(expected)} and returned one of form "
            f"{shown(found)}; return the same structure, shapes and dtypes."
        )


def merged(theirs: dict[str, Array], ours: dict[str, Array], function: str) -> dict[str, Array]:
    """Merge the user's measures with the engine's; raise ``ValueError`` for a name in both."""
    taken = sorted(set(theirs) & set(ours))
    if taken:
        raise ValueError(
            f"{function} returns a measure called {taken[0]}, which the engine counts itself; "
            "choose another name."
        )
    return theirs | ours


class At(NamedTuple):
    """What a transform may read, beside the upload and its own state.

    Attributes:
      hparams: the hyperparameters of the round.
      round: index of the round.
      client: index of the client; ``None`` in ``receive``.
      key: in ``send`` a key of this client, round and transform; otherwise ``None``.
      round_key: a key of the round that clients and the server share, as for a coin.
      private_key: in ``receive`` a key of the server alone. It differs between runs, rounds,
        transforms and all hyperparameters, so that the points of a sweep never share noise.
      by_rule: whether the aggregator compares uploads, and so gets each of them opened; static.
      inclusion: in ``open`` a function that returns the probability that this upload arrives.

    Example:
      >>> At(hparams=None, round=0, key=jax.random.key(0)).private_key is None  # on a client
      True
    """

    hparams: Any
    round: Any
    client: Any = None
    key: Any = None
    round_key: Any = None
    private_key: Any = None
    by_rule: bool = False
    inclusion: Callable[[], Any] | None = None


class Received(NamedTuple):
    """The result of a round, from which the algorithm updates the server's state.

    Attributes:
      mean: what the aggregator returned, or ``receive`` of the transform after this one: the
        weighted mean of the opened uploads. A transform whose facts say ``needs_sum`` gets the sum
        over the clients, each times its share of the cohort's weight, and returns a mean.
      public: the mean of the public parts.
      fraction: the counted clients' share of the population's weight, for ``server_update``.
      step: whether the server updates its state.

    Example:
      >>> found = Received([jnp.ones(2)], [], jnp.array(0.5), jnp.array(True))
      >>> doubled = found._replace(mean=tree.scale(2, found.mean))
    """

    mean: list
    public: list
    fraction: Array
    step: Array


class RoundWeights(NamedTuple):
    """Weights of the clients of a round, for transforms with a denominator of their own.

    Attributes:
      share: the weight of the counted clients, as a share of the cohort's; 0 if none counts.
      cohort_weight: the sum of the weights p_m over the cohort, counted or not.
      population_weight: the sum of the weights over all clients.
      count: number of counted clients.
      expected_weight: the expected weight of a cohort, from the sampler's mean size.
      largest: the largest weight of a client of the population.
    """

    share: Array
    cohort_weight: Array
    population_weight: Array
    count: Array
    expected_weight: Array
    largest: Array

    @property
    def fraction(self) -> Array:
        """The share of the population's weight that the counted clients have."""
        return self.share * (self.cohort_weight / self.population_weight)


def mean_of(total: PyTree, weights: RoundWeights) -> PyTree:
    """Return the weighted mean from a sum of terms, each times its share of the cohort's weight."""
    # Without a counted client the sum is zero: divided by one it stays zero, where 0 / 0 is NaN in
    # the value and in every derivative.
    return tree.scale(1 / jnp.where(weights.share > 0, weights.share, 1), total)


@dataclasses.dataclass(frozen=True)
class UploadChain:
    """What happens to the uploads of a round: nothing. See ``UploadTransform`` for what can.

    The engine calls these functions for all transforms of a plan together.
    """

    transforms: ClassVar[tuple[Any, ...]] = ()
    names: ClassVar[tuple[str, ...]] = ()
    needs_sum: ClassVar[bool] = False
    noisy: ClassVar[Any] = False
    example = "uploads.compressed(uploads.top_k(0.1)), or uploads.chain(...) of several"

    def first_states(self, payload: list) -> tuple[tuple, tuple]:
        """Return what one client and the server keep before the first round."""
        return (), ()

    def through(self, at: At, payload: list, states: tuple, servers: tuple, metrics: dict) -> tuple:
        """Return an opened payload, its weight, metrics, which names keep it, and new states."""
        return payload, None, metrics, {}, states

    def received(self, at: At, found: Received, weights, servers: tuple) -> tuple[Received, tuple]:
        """Return the result of a round after all transforms, and what the server keeps."""
        return found, servers

    def num_bytes(self, at: At, payload: list) -> Scalar:
        """Return the bytes of an upload, given a payload of zeros."""
        return tree.num_bytes(payload)

    def require_fit(self, algorithm, plan, update, at: At, result, states, data) -> None:
        """Raise ``ValueError`` if the chain does not fit the algorithm."""


class Collector(NamedTuple):
    """How the terms of a round are accumulated, chunk by chunk; results of devices are summed.

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


def weighted_mean(
    hparams: Any, total: PyTree, weights: RoundWeights, memory: PyTree, key: Key
) -> tuple[PyTree, PyTree]:
    """Return the weighted mean over the counted clients, from their sum."""
    del hparams, key
    return mean_of(total, weights), memory


class Aggregator(NamedTuple):
    """How the server combines the uploads of a round; its numbers are fields of ``hparams``.

    Attributes:
      init: ``(payload) -> memory``: the initial memory, given an opened payload of zeros.
      term: ``(hparams, payload, memory) -> term``: the arrays of one client that are collected.
      collect: ``SUM`` of the terms, each times its client's share of the cohort's weight; or
        ``STACK``, which keeps all terms of a round in memory, for rules that need them together.
      finish: ``(hparams, collected, weights, memory, key) -> (mean, memory)``, with the
        ``RoundWeights``. The points of a sweep share the key.
      attack: the attack that it simulates, as of ``attacks.seeing_all``.

    Example:
      >>> def signs(hparams, payload, memory):
      ...     return jax.tree.map(jnp.sign, payload)
      >>> mean_of_signs = Aggregator(term=signs)
    """

    init: Callable[[ManyArrays], PyTree] = lambda payload: ()
    term: Callable[[Any, Any, PyTree], PyTree] = lambda hparams, payload, memory: payload
    collect: Collector = SUM
    finish: Callable[[Any, PyTree, RoundWeights, PyTree, Key], tuple[PyTree, PyTree]] = (
        weighted_mean
    )
    attack: Any = None

    example = "robust.median()"


MEAN = Aggregator()


class Estimate(NamedTuple):
    """The clients' estimate of the message, and what was sent for it last."""

    message: PyTree
    sent: PyTree


class Broadcast(NamedTuple):
    """How the server sends its message to all clients, present or not.

    Attributes:
      name: the call that makes it.
      first: ``(message) -> estimate``, before the first round: clients know the first message.
      following: ``(hparams, estimate, message, key) -> estimate``, after a round.
    """

    name: str
    first: Callable[[PyTree], Estimate]
    following: Callable[[Any, Estimate, PyTree, Key], Estimate]

    example = "uploads.ef21p(uploads.top_k(0.1))"
