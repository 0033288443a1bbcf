"""The server's side: messages to the sites, and a round from their answers.

The server's step is the engine's own, on uploads that came as bytes instead of from a loop over
clients.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import ClientData, Draw, Plan, from_rows, tree
from fcojax.extend import VIOLATION, draw_cohort, remote, violation_at
from fcojax.types import Array, Key, PyTree
from fcojax_sites import safetensors
from fcojax_sites.flower.answers import (
    BadAnswer,
    Checked,
    Judge,
    Refusal,
    Value,
    filled,
    plain,
    read,
)
from fcojax_sites.flower.federation import Federation
from fcojax_sites.flower.joining import MOST_ROWS, Site
from fcojax_sites.flower.site import forms


class ServerProgress(NamedTuple):
    """Everything that the server needs to continue.

    Attributes:
      server: the algorithm's server state.
      memory: what transforms and the aggregator keep on the server.
      key: PRNG key of the run.
      round: number of rounds so far.
      counted: for each site the index of the last round in which its upload counted; -1 if none
        did.
    """

    server: PyTree
    memory: PyTree
    key: Key
    round: int
    counted: np.ndarray


class Gradients(NamedTuple):
    """The losses and the gradient at a point.

    Attributes:
      losses: the mean loss of each site of positive weight.
      gradient: the gradient of F.
      nonfinite: names of the sites whose loss or gradient is not finite.
    """

    losses: Array
    gradient: PyTree
    nonfinite: list[str]


class Server:
    """The server of a federation, whose methods work on a ``ServerProgress``.

    Attributes:
      federation: the federation.
      judge: reads the answers; the only part of a server that changes.
      sites: the sites, sorted by name; their order is that of the clients.
      data: their sizes and weights, and the shapes of their rows.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax_sites import flower
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> federation = flower.Federation(
      ...     fed_avg, fcojax.local_steps(1), fed_avg.hparams_type(client_lr=0.5), jnp.array(0.0))
      >>> transport = flower.in_process(federation, {"Ghent": {"a": np.array([4.0])}})
      >>> replies = transport.join(flower.invitation(federation, "run 1"))
      >>> server = flower.Server(
      ...     federation, [flower.admitted(federation, reply) for reply in replies], "run 1")
      >>> progress = server.start(jax.random.key(0))
      >>> for _ in range(2):
      ...     replies = transport.exchange(server.ask(progress))
      ...     progress, measures = server.step(progress, replies)
      >>> float(server.model(progress)), measures["participants"]
      (3.0, 1.0)
    """

    def __init__(
        self, federation: Federation, sites: list[Site], run: str, judge: Judge | None = None
    ):
        """Create the server of a run.

        Args:
          federation: the ``Federation`` that the server and all sites build from the same code.
          sites: the sites that introduced themselves.
          run: a name of the run; sites do not use states that they kept from another run.
          judge: the judge of the answers, if several runs share one.
        """
        self.sites = sorted(sites, key=lambda site: site.name)
        names = [site.name for site in self.sites]
        twice = [name for name, next_one in zip(names, names[1:], strict=False) if name == next_one]
        if twice:
            raise ValueError(f"two sites have one name, {twice[0]}; rename one.")
        columns = [str(jax.tree.map(lambda x: (x.shape[1:], x.dtype), s.columns)) for s in sites]
        for site, column in zip(sites, columns, strict=True):
            if column != columns[0]:
                raise ValueError(
                    f"the sites {sites[0].name} and {site.name} have different columns: "
                    f"{plain(columns[0])} and {plain(column)}."
                )
        sizes = np.array([site.num_examples for site in self.sites])
        if sizes.sum() > MOST_ROWS:
            largest = self.sites[int(np.argmax(sizes))]
            raise ValueError(
                f"the sites have {sizes.sum()} rows in all, {largest.num_examples} of them site "
                f"{largest.name}, and at most {MOST_ROWS} are allowed."
            )
        self.judge = judge or Judge()
        self.federation, self._run = federation, run
        self._plan: Plan = federation.plan
        weights = _weights_of(_in_order(federation.weights, names), sizes, names)
        self._weights = jnp.asarray(weights, jnp.result_type(float))
        self.data = ClientData(
            examples=jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct((int(sizes.sum()), *leaf.shape[1:]), leaf.dtype),
                self.sites[0].columns,
            ),
            offsets=jnp.asarray(np.concatenate([[0], np.cumsum(sizes)]), jnp.int32),
            weights=self._weights,
            num_clients=len(sites),
            min_size=int(sizes.min()),
            max_size=int(sizes.max()),
            size_bounds=(int(sizes.max()),),
        )
        self._plan.cohort.size(len(sites))  # a cohort beyond the population is refused now

    @functools.cached_property
    def _forms(self) -> remote.Forms:
        return forms(self.federation, self.sites[0].columns)

    def start(self, key: Key) -> ServerProgress:
        """Return the progress before the first round.

        Args:
          key: PRNG key, the only source of randomness.
        """
        if self._plan.uploads.noisy:
            self._require_private()
        given = self.federation.hparams_at(0), self.federation.params, self.data
        server, memory = remote.begin(self.federation.algorithm, self._plan, *given)
        return ServerProgress(server, memory, key, 0, np.full(len(self.sites), -1))

    def _require_private(self) -> None:
        """Raise ``ValueError`` if noise would not hide which sites took part, or what they have."""
        federation, work = self.federation, self._plan.work
        if isinstance(federation.weights, str):
            raise ValueError(
                "the plan adds noise for known weights, but sites state their own numbers "
                "of rows; pass weights= by the names of the sites."
            )
        if work.num_steps is None or len(set(work.counts or (0,))) > 1:
            raise ValueError(
                "the plan adds noise, but sites of different sizes take different numbers "
                "of steps, which tell who took part; pass local_steps(...) with one number."
            )

    def ask(self, progress: ServerProgress) -> dict[str, bytes]:
        """Return the messages of a round, by the names of the sites that take part in it.

        Args:
          progress: the progress before the round.
        """
        federation = self.federation
        hparams = federation.hparams_at(progress.round)
        draw, asked = self._asked(progress)
        members = np.asarray(draw.indices)
        message, keys = remote.ask(
            federation.algorithm,
            hparams,
            progress.server,
            progress.key,
            jnp.int32(progress.round),
            members,
        )
        first = ()
        if (progress.counted < 0).any():
            first = federation.algorithm.init(federation.hparams_at(0), federation.params)[1]
        found = {}
        for place in np.flatnonzero(asked):
            client = int(members[place])
            own = jax.tree.map(lambda key, place=place: key[place], keys)
            content = {"message": message, "hparams": tuple(hparams), "keys": own}
            if progress.counted[client] < 0:
                content["client"] = first
            facts = {
                "kind": "round",
                "run": self._run,
                "federation": federation.digest,
                "num_examples": str(self.sites[client].num_examples),
                "round": str(progress.round),
                "counted": str(progress.counted[client]),
                "client": str(client),
                "keys": str(jax.random.key_impl(progress.key)),
            }
            found[self.sites[client].name] = safetensors.dumps(content, facts)
        return found

    def step(
        self, progress: ServerProgress, replies: dict[str, bytes]
    ) -> tuple[ServerProgress, dict[str, float]]:
        """Return the progress after a round, and its metrics and counts.

        An answer that is missing, not valid or of an earlier round is a lost upload. Raise
        ``ValueError`` if all sites say that they cannot go on. If the server's step is not finite,
        the progress stays but for its round, and the site of the largest upload is logged.

        Args:
          progress: the progress before the round.
          replies: the answers to the messages of ``ask``, by the names of the sites.
        """
        draw, asked = self._asked(progress)
        members = np.asarray(draw.indices)
        own = self._forms
        payload, public = own.decoded
        sent = own.sent._replace(own=payload, public=public)
        shapes = sent, (*own.rows, self.sites[0].columns)
        zeros, idle = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        found = [
            self._read(progress, client, replies) if is_asked else None
            for client, is_asked in zip(members, asked, strict=True)
        ]
        self.judge.require_some([site.name for site in self._weighing()])
        arrives = np.array([one is not None for one in found])
        finite = np.array([one is None or one != () for one in found])
        given = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one or zeros for one in found))
        weights = jnp.where(asked, self._weights[members], 0)
        expected = self._plan.cohort.mean_size(len(self.sites)) / len(self.sites)
        server, memory, counted, measures = remote.step(
            self.federation.algorithm,
            self._plan,
            self.federation.hparams,
            self.federation.hparams_at(progress.round),
            (progress.server, progress.memory),
            progress.key,
            jnp.int32(progress.round),
            jnp.asarray(members),
            own.form,
            (given, arrives, finite),
            (weights, self._weights, expected),
            idle,
        )
        if measures["refused"]:
            self._name_largest(members, (given.own, given.public))
        last = progress.counted.copy()
        last[members[np.asarray(counted)]] = progress.round
        after = ServerProgress(server, memory, progress.key, progress.round + 1, last)
        return after, {name: float(value) for name, value in measures.items()}

    def _name_largest(self, members: np.ndarray, sent: PyTree) -> None:
        """Log the site that sent the largest number in a round whose step is not finite."""
        sizes = np.zeros(len(members))
        for leaf in jax.tree.leaves(sent):
            # Remainders of a modular sum are integers, whose sizes say nothing.
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                rows = np.abs(np.asarray(leaf, float)).reshape(len(members), -1)
                sizes = np.maximum(sizes, rows.max(axis=1, initial=0))
        place = int(np.argmax(sizes))
        if sizes[place] > 0:
            what = f"it sent the largest number, {sizes[place]:g}, and the step is not finite."
            self.judge.name(self.sites[int(members[place])].name, what)

    def model(self, progress: ServerProgress) -> PyTree:
        """Return the current model.

        Args:
          progress: the progress that ``start`` or ``step`` returned.
        """
        hparams = self.federation.hparams_at(max(progress.round - 1, 0))
        return self.federation.algorithm.model(hparams, progress.server)

    def ask_certificate(self, progress: ServerProgress) -> dict[str, bytes]:
        """Return the messages that ask each site for its loss and gradient at the model.

        Args:
          progress: the progress that ``start`` or ``step`` returned.
        """
        return self.ask_gradient(self.model(progress), str(progress.round))

    def certificate(self, progress: ServerProgress, replies: dict[str, bytes]) -> dict[str, float]:
        """Return the objective and the violation, or nothing if the answer of a site is missing.

        Args:
          progress: the progress that ``start`` or ``step`` returned.
          replies: the answers to the messages of ``ask_certificate``.
        """
        penalty, params = self.federation.penalty, self.model(progress)
        assert penalty is not None
        found = self.gradient(params, str(progress.round), replies)
        if found is None:
            return {}
        hparams = self.federation.hparams_at(max(progress.round - 1, 0))
        scale = getattr(hparams, "penalty_scale", 0.0)
        return {
            "objective": float(self.mean(found.losses) + penalty.value(params, scale)),
            VIOLATION: float(violation_at(found.gradient, penalty, scale, params)),
        }

    def ask_gradient(self, params: PyTree, index: str) -> dict[str, bytes]:
        """Return the messages that ask for loss and gradient at a point.

        A site of weight 0 is not asked.

        Args:
          params: the point.
          index: identifier of the request, repeated in its replies.
        """
        facts = {
            "kind": "certificate",
            "run": self._run,
            "federation": self.federation.digest,
            "round": index,
        }
        return {
            site.name: safetensors.dumps(
                {"params": params}, facts | {"num_examples": str(site.num_examples)}
            )
            for site in self._weighing()
        }

    def gradient(self, params: PyTree, index: str, replies: dict[str, bytes]) -> Gradients | None:
        """Return the losses of the sites and the gradient of F, ``None`` if an answer is missing.

        Args:
          params: the point.
          index: identifier of the request, repeated in its replies.
          replies: the answers to the messages of ``ask_gradient``.
        """
        scalar = jax.ShapeDtypeStruct((), jnp.result_type(float))
        like, found = {"loss": scalar, "gradient": params}, []
        # Read all of them, even if one is missing, so that every faulty site is logged.
        for site in self._weighing():
            one = self._answer(
                site.name, "certificate", index, like, replies, lambda a, _: filled(like, a)
            )
            found.append(one)
        if any(one is None for one in found):
            return None
        # These are valid answers: far from the solution a loss may overflow, which ends a solve.
        nonfinite = [
            site.name
            for site, one in zip(self._weighing(), found, strict=True)
            if not tree.all_finite(one)
        ]
        for name in nonfinite:
            self.judge.name(name, "its loss or gradient is not finite.")
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)
        return Gradients(stacked["loss"], jax.tree.map(self.mean, stacked["gradient"]), nonfinite)

    def ask_sums(self, name: str, given: dict[str, Array], index: str) -> dict[str, bytes]:
        """Return the messages that ask each site for its sums of this name.

        Args:
          name: the name among ``federation.sums``.
          given: arrays for the function.
          index: identifier of the request, repeated in its replies.
        """
        facts = {
            "kind": "sums",
            "sums": name,
            "run": self._run,
            "federation": self.federation.digest,
            "round": index,
        }
        return {
            site.name: safetensors.dumps(given, facts | {"num_examples": str(site.num_examples)})
            for site in self.sites
        }

    def sums(
        self, name: str, given: dict[str, Array], index: str, replies: dict[str, bytes]
    ) -> PyTree | None:
        """Return the sums with a leading axis of sites, ``None`` if an answer is missing.

        Sums that are not finite, or not those of the rows that a site introduced, do not count.

        Args:
          name: the name among ``federation.sums``.
          given: arrays for the function.
          index: identifier of the request, repeated in its replies.
          replies: the answers to the messages of ``ask_sums``.
        """
        function, columns = self.federation.sums[name], self.sites[0].columns
        like = jax.eval_shape(function, columns, given)

        def reader(site: Site, arrays: dict[str, np.ndarray], facts: dict[str, str]) -> PyTree:
            sums = filled(like, arrays)
            if not tree.all_finite(sums):
                raise BadAnswer("its sums are not finite.")
            check = function.check if isinstance(function, Checked) else lambda *given: ""
            if reason := check(sums, given, site.num_examples):
                raise BadAnswer(reason)
            return sums

        found = [
            self._answer(site.name, "sums", index, like, replies, functools.partial(reader, site))
            for site in self.sites
        ]
        if any(one is None for one in found):
            return None
        return jax.tree.map(lambda *leaves: np.stack(leaves), *found)

    def mean(self, of_sites: Array) -> Array:
        """Return the weighted mean over the sites of positive weight.

        Args:
          of_sites: an array whose leading axis is these sites.
        """
        weights = self._weights[self._weights > 0]
        return jnp.tensordot((weights / jnp.sum(weights)).astype(of_sites.dtype), of_sites, 1)

    def _weighing(self) -> list[Site]:
        weights = np.asarray(self._weights)
        return [site for site, weight in zip(self.sites, weights, strict=True) if weight > 0]

    def _asked(self, progress: ServerProgress) -> tuple[Draw, np.ndarray]:
        """Return the cohort of a round, and which of its places are asked for an upload."""
        draw = draw_cohort(self._plan, self.data, progress.key, jnp.int32(progress.round))
        weights = np.asarray(self._weights)[np.asarray(draw.indices)]
        return draw, np.asarray(draw.present) & (weights > 0)

    def _answer(
        self,
        name: str,
        kind: str,
        index: str,
        like: PyTree,
        replies: dict[str, bytes],
        reader: Callable[[dict[str, np.ndarray], dict[str, str]], Value],
    ) -> Value | None:
        """Return the content of a site's answer; ``None`` if the answer is missing or not valid."""
        place = {"site": name, "run": self._run, "kind": kind, "round": index}

        def read_one(reply: Any) -> Value:
            arrays, facts = read(reply, like)
            if any(facts.get(fact) != value for fact, value in place.items()):
                raise BadAnswer("it answers another message, such as that of an earlier round.")
            if "refused" in facts:
                raise Refusal(f"it {plain(facts['refused'])}")
            return reader(arrays, facts)

        return self.judge.judged(name, kind, replies, read_one)

    def _read(self, progress: ServerProgress, client: int, replies: dict[str, bytes]) -> Any:
        """Return a site's upload and metrics; ``()`` if they are not finite, ``None`` if lost."""

        def reader(arrays: dict[str, np.ndarray], facts: dict[str, str]) -> Any:
            if facts.get("finite") == "False":
                return ()
            if facts.get("finite") != "True":
                raise BadAnswer("it does not say whether it is finite.")
            sent = filled(self._forms.sent, arrays)
            hparams = self.federation.hparams_at(progress.round)
            place = jnp.int32(progress.round), client
            payload, public = remote.decode(
                self._plan, hparams, sent, self._forms, progress.key, *place
            )
            if not tree.all_finite((payload, public)):
                raise BadAnswer("it says that it is finite, and is not.")
            return sent._replace(own=payload, public=public)

        name = self.sites[client].name
        return self._answer(name, "round", str(progress.round), self._forms.sent, replies, reader)


def _in_order(weights: Any, names: list[str]) -> Any:
    """Return weights in the order of these names, if they are by name."""
    if not isinstance(weights, dict):
        return weights
    unknown = [name for name in names if name not in weights]
    if unknown:
        raise ValueError(
            f"site {unknown[0]} has no weight and is refused; the weights are of "
            f"{', '.join(sorted(weights))}."
        )
    absent = sorted(set(weights) - set(names))
    if absent:
        raise ValueError(
            f"site {absent[0]} has a weight and has not answered; start it, or leave it out of "
            "the weights."
        )
    return [weights[name] for name in names]


def _weights_of(weights: Any, sizes: np.ndarray, names: list[str]) -> Array:
    """Return the weights of sites, by the rule of ``from_rows``."""
    rows = {"row": np.zeros(int(np.sum(sizes)), np.int8)}
    return from_rows(rows, [int(size) for size in sizes], weights=weights, ids=names).weights
