"""A site: it answers the server's messages, and its rows and states stay with it.

A site does not know whether its upload arrived. So it keeps two states, the one before the upload
and the one after it, until the server's next message says which of its uploads counted last.
"""

import functools
import hashlib
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import ClientData, Codec, Plan, from_rows, tree
from fcojax_sites import safetensors
from fcojax.algorithms import Algorithm, ClientResult, Local
from fcojax.extend import (
    Rows,
    decoded_upload,
    depend_on_first,
    in_full_precision,
    jit_per,
    pooled_gradient,
    split,
    through_codec,
    validated,
)
from fcojax_sites.flower.federation import Federation, program_hash
from fcojax.problems import population_loss
from fcojax.types import Array, PyTree

SOLVE = "#"  # between the name of a path and the number of one of its solves, in names of runs


class Keys(NamedTuple):
    """The keys of one site in one round.

    A site learns neither the run's own key nor the keys of other sites.
    """

    client: Any  # keys, their data, or their shapes
    batches: Any
    encode: Any
    shared: Any  # the same for all sites, such as for a coin of the round


class EncodedUpload(NamedTuple):
    """The answer of a site in a round: the encoded upload and its metrics.

    Attributes:
      own: the arrays of the encoded payload that depend on the payload; the server knows the other
        arrays, such as keys.
      public: the public parts of the upload.
      metrics: scalars.
    """

    own: list
    public: list
    metrics: dict[str, Array]


def site_traced(
    algorithm: Algorithm, plan: Plan, hparams, message, before: Rows, examples, keys: Keys, client
) -> tuple[EncodedUpload, Rows, Array]:
    """Compute one site's round: its upload, its new state, and whether both are finite."""
    result = updated(algorithm, plan, hparams, message, before.states, examples, keys, client)
    payload, public, _ = split(result.upload)
    if plan.codec is None:
        own, upload, residual = payload, result.upload, before.residuals
    else:
        given = payload, before.residuals, keys.encode, keys.shared
        encoded, _ = plan.codec.encode(hparams, *given)
        is_own = own_leaves(plan.codec, hparams, *given)
        leaves = zip(jax.tree.leaves(encoded), is_own, strict=True)
        own = [leaf for leaf, kept in leaves if kept]
        upload, residual = through_codec(
            plan.codec, hparams, result.upload, before.residuals, keys.encode, keys.shared
        )
    after = Rows(result.state, residual)
    return EncodedUpload(own, public, result.metrics), after, tree.all_finite((upload, after))


site_compiled = jit_per(num_static=2)(in_full_precision(site_traced))


def own_leaves(codec: Codec, hparams, payload, residual, key, shared) -> list[bool]:
    """Return for each array of an encoded payload whether it depends on the payload."""

    def encode(given, hparams, key, shared):
        return jax.tree.leaves(codec.encode(hparams, *given, key, shared)[0])

    return depend_on_first(encode, (payload, residual), hparams, key, shared)


def decoded_traced(
    codec: Codec | None, hparams, sent: EncodedUpload, like, residual, key, shared
) -> PyTree:
    """Return a site's decoded upload; the server computes the parts that were not sent."""
    payload, _, join = split(like)
    if codec is None:
        return join(sent.own, sent.public)
    given = payload, residual, key, shared
    encoded, _ = codec.encode(hparams, *given)
    leaves, structure = jax.tree.flatten(encoded)
    is_own, own = own_leaves(codec, hparams, *given), iter(sent.own)
    leaves = [next(own) if kept else leaf for leaf, kept in zip(leaves, is_own, strict=True)]
    encoded = jax.tree.unflatten(structure, leaves)
    return decoded_upload(codec, encoded, payload, sent.public, join)


class Forms(NamedTuple):
    """The shapes of the arrays that a site with given columns receives, computes, keeps and sends.

    ``decoded`` has the shapes of its decoded upload.
    """

    message: PyTree
    result: ClientResult
    rows: Rows
    sent: EncodedUpload
    decoded: PyTree

    def payload(self) -> list:
        """Return zeros in the form of the part of an upload that is encoded."""
        private, _, _ = split(self.result.upload)
        return [jnp.zeros(leaf.shape, leaf.dtype) for leaf in private]


def forms(federation: Federation, examples: PyTree) -> Forms:
    """Return the shapes for a site.

    Args:
      federation: the ``Federation`` that the server and all sites build from the same code.
      examples: the rows of the site, or their shapes.
    """
    leaves, structure = jax.tree.flatten(examples)
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    return _forms(federation, structure, shapes)


@functools.lru_cache(16)
def _forms(federation: Federation, structure: Any, shapes: tuple) -> Forms:
    algorithm, plan, hparams = federation.algorithm, federation.plan, federation.hparams_at(0)
    server, client = jax.eval_shape(algorithm.init, hparams, federation.params)
    message = jax.eval_shape(algorithm.broadcast, hparams, server)
    examples = jax.tree.unflatten(structure, shapes)
    where = examples, Keys(*(_key(),) * 4), jax.ShapeDtypeStruct((), jnp.int32)
    update = functools.partial(updated, algorithm, plan)
    result = jax.eval_shape(update, hparams, message, client, *where)
    payload = split(result.upload)[0]
    rows = Rows(client, () if plan.codec is None else jax.eval_shape(plan.codec.init, payload))
    step = functools.partial(site_traced, algorithm, plan)
    sent, _, _ = jax.eval_shape(step, hparams, message, rows, *where)
    keys = _key(), _key()
    decoded = functools.partial(decoded_traced, plan.codec)
    upload = jax.eval_shape(decoded, hparams, sent, result.upload, rows.residuals, *keys)
    return Forms(message, result, rows, sent, upload)


def site_hash(federation: Federation, examples: PyTree) -> str:
    """Return the hash of the program that a site with these rows runs."""
    form = forms(federation, examples)
    given = federation.hparams_at(0), form.message, form.rows, examples, Keys(*(_key(),) * 4)
    step = functools.partial(site_traced, federation.algorithm, federation.plan)
    return program_hash(step, *given, jax.ShapeDtypeStruct((), jnp.int32))


@validated
def answer(
    federation: Federation, name: str, examples: PyTree, kept: bytes | None, message: bytes
) -> tuple[bytes, bytes | None]:
    """Return a site's answer to a message, and the bytes that it keeps until the next one.

    Neither rows nor states are in the answer.

    Args:
      federation: the ``Federation`` that the server and all sites build from the same code.
      name: the site's name.
      examples: a pytree of arrays, one row per example, as for ``fcojax.from_rows``.
      kept: the second result of the last call; ``None`` at first.
      message: the server's message.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> from fcojax_sites import flower
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> federation = flower.Federation(
      ...     fed_avg, fcojax.local_steps(1), fed_avg.hparams_type(client_lr=0.5), jnp.array(0.0))
      >>> reply, kept = flower.answer(
      ...     federation, "Ghent", {"a": np.ones(3)}, None, flower.invitation(federation, "run 1"))
      >>> flower.admitted(federation, reply).num_examples
      3
    """
    sent, facts = safetensors.loads(message)
    data = from_rows(examples, [jax.tree.leaves(examples)[0].shape[0]], ids=[name])
    own = {"site": name, "kind": facts["kind"], "run": facts["run"]}
    own["round"] = facts.get("round", "")
    if facts["kind"] == "join":
        return safetensors.dumps({}, own | _introduction(federation, data)), kept
    refused = None
    if facts["federation"] != federation.digest:
        refused = "runs another federation than the server; start both anew."
    elif facts["num_examples"] != str(data.max_size):
        refused = (
            f"has {data.max_size} rows and had {facts['num_examples']} when the run began; restore "
            "them, or begin a new run."
        )
    if refused is not None:
        return safetensors.dumps({}, own | {"refused": refused}), kept
    if facts["kind"] == "certificate":
        params = safetensors.filled({"params": federation.params}, sent)["params"]
        found = _gradient_compiled(federation.loss, params, data)
        return safetensors.dumps(found, own), kept
    if facts["kind"] == "sums":
        found = summed(federation.sums[facts["sums"]], data.examples, sent)
        return safetensors.dumps(found, own), kept
    return _round(federation, data, kept, sent, facts, own)


@jit_per(num_static=1)
def summed(function, rows, given) -> PyTree:
    """Return the sums of a site."""
    return function(rows, given)


@jit_per(num_static=1)
def _gradient_compiled(loss, params, data) -> dict[str, PyTree]:
    """Return the loss and the gradient of a site at a point."""
    return {
        "loss": population_loss(loss, params, data),
        "gradient": pooled_gradient(loss, params, data),
    }


def data_hash(examples: PyTree) -> str:
    """Return a hash of the rows, so that a page can say which data it is about."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(examples):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _introduction(federation: Federation, data: ClientData) -> dict[str, str]:
    shapes = jax.tree.map(lambda leaf: [str(leaf.dtype), *leaf.shape[1:]], data.examples)
    return {
        "num_examples": str(data.max_size),
        "columns": json.dumps(shapes),
        "data": data_hash(data.examples),
        "description": json.dumps(federation.description),
        "program": site_hash(federation, data.examples),
    }


def _round(
    federation: Federation, data: ClientData, kept: bytes | None, sent, facts, own
) -> tuple[bytes, bytes | None]:
    """Answer a message that asks for a round."""
    plan: Plan = federation.plan
    form = forms(federation, data.examples)
    hparams = federation.hparams_at(0)
    key_form = np.asarray(jax.random.key_data(jax.random.key(0, impl=facts["keys"])))
    like = {"message": form.message, "hparams": tuple(hparams), "keys": Keys(*(key_form,) * 4)}
    counted = int(facts["counted"])
    if counted < 0:
        like["client"] = form.rows.states
    given = safetensors.filled(like, sent)
    try:
        before = _state_before(plan, form, kept, facts["run"], counted, given)
    except ValueError as error:
        return safetensors.dumps({}, own | {"refused": str(error)}), kept
    keys = Keys(*(jax.random.wrap_key_data(key, impl=facts["keys"]) for key in given["keys"]))
    upload, after, finite = site_compiled(
        federation.algorithm,
        plan,
        type(hparams)(*given["hparams"]),
        given["message"],
        before,
        data.examples,
        keys,
        jnp.int32(int(facts["client"])),
    )
    # A site whose result is not finite keeps its state, as one whose upload is lost does.
    states = {"counted": before, "pending": after if finite else before}
    places = {"run": facts["run"], "counted": facts["counted"], "pending": facts["round"]}
    reply = safetensors.dumps(upload if finite else {}, own | {"finite": str(bool(finite))})
    return reply, safetensors.dumps(states, places)


def _state_before(
    plan: Plan, form: Forms, kept: bytes | None, run: str, counted: int, given: dict
) -> Rows:
    """Return the state that belongs to the last upload of this site that counted."""
    if counted < 0:
        residual = () if plan.codec is None else plan.codec.init(form.payload())
        return Rows(given["client"], residual)
    if not jax.tree.leaves(form.rows):
        return form.rows
    states, places = ({}, {}) if kept is None else safetensors.loads(kept)
    if places.get("run") == run:
        both = safetensors.filled({"counted": form.rows, "pending": form.rows}, states)
        for name in ("pending", "counted"):
            if int(places[name]) == counted:
                return both[name]
    raise ValueError(
        f"has not kept its state after round {counted + 1}; restore it, or begin a new run."
    )


def updated(
    algorithm: Algorithm, plan: Plan, hparams, message, client_state, examples, keys: Keys, client
) -> ClientResult:
    """Call the algorithm with a handle on the rows of this site alone."""
    size = jax.tree.leaves(examples)[0].shape[0]
    local = Local(
        rows=examples,
        client=client,
        offset=jnp.zeros((), jnp.int32),
        num_examples=jnp.asarray(size, jnp.int32),
        key=keys.batches,
        work=plan.work,
        min_size=size,
        max_size=size,
    )
    return algorithm.client_update(hparams, message, client_state, local, keys.client)


def _key() -> jax.ShapeDtypeStruct:
    return jax.eval_shape(lambda: jax.random.key(0))
