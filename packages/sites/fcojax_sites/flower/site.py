"""A site: it answers the server's messages, and its rows and states stay with it.

A site does not know whether its upload arrived. So it keeps two states, the one before the upload
and the one after it, until the server's next message says which of its uploads counted last.
"""

import functools
import hashlib
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import ClientData, Plan, from_rows
from fcojax.extend import jit_per, pooled_gradient, remote, validated
from fcojax.problems import population_loss
from fcojax.types import PyTree
from fcojax_sites import safetensors
from fcojax_sites.flower.federation import Federation, program_hash

SOLVE = "#"  # between the name of a path and the number of one of its solves, in names of runs


def forms(federation: Federation, examples: PyTree) -> remote.Forms:
    """Return the shapes for a site.

    Args:
      federation: the ``Federation`` that the server and all sites build from the same code.
      examples: the rows of the site, or their shapes.
    """
    leaves, structure = jax.tree.flatten(examples)
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    return _forms(federation, structure, shapes)


@functools.lru_cache(16)
def _forms(federation: Federation, structure: Any, shapes: tuple) -> remote.Forms:
    examples = jax.tree.unflatten(structure, shapes)
    own = federation.hparams_at(0), federation.params, examples
    return remote.forms(federation.algorithm, federation.plan, *own)


def site_hash(federation: Federation, examples: PyTree) -> str:
    """Return the hash of the program that a site with these rows runs."""
    form, key = forms(federation, examples), jax.eval_shape(lambda: jax.random.key(0))
    keys = remote.Keys(*(key,) * 4)
    given = federation.hparams_at(0), form.message, form.rows, examples, keys
    step = functools.partial(remote.answer, federation.algorithm, federation.plan)
    index = jax.ShapeDtypeStruct((), jnp.int32)
    return program_hash(step, *given, index, index)


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
    like = {
        "message": form.message,
        "hparams": tuple(hparams),
        "keys": remote.Keys(*(key_form,) * 4),
    }
    counted = int(facts["counted"])
    if counted < 0:
        like["client"] = form.rows.states
    given = safetensors.filled(like, sent)
    try:
        before = _state_before(plan, form, kept, facts["run"], counted, given)
    except ValueError as error:
        return safetensors.dumps({}, own | {"refused": str(error)}), kept
    keys = remote.Keys(
        *(jax.random.wrap_key_data(key, impl=facts["keys"]) for key in given["keys"])
    )
    upload, after, finite = remote.answer(
        federation.algorithm,
        plan,
        type(hparams)(*given["hparams"]),
        given["message"],
        before,
        data.examples,
        keys,
        jnp.int32(int(facts["client"])),
        jnp.int32(int(facts["round"])),
    )
    # A site whose result is not finite keeps its state, as one whose upload is lost does.
    states = {"counted": before, "pending": after if finite else before}
    places = {"run": facts["run"], "counted": facts["counted"], "pending": facts["round"]}
    reply = safetensors.dumps(upload if finite else {}, own | {"finite": str(bool(finite))})
    return reply, safetensors.dumps(states, places)


def _state_before(
    plan: Plan, form: remote.Forms, kept: bytes | None, run: str, counted: int, given: dict
) -> Any:
    """Return the state that belongs to the last upload of this site that counted."""
    if counted < 0:
        return remote.first_rows(plan, form.decoded[0], given["client"])
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
