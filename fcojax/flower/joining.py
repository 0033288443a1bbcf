"""Before the first round: sites introduce themselves, and some are refused."""

import json
from typing import NamedTuple

import jax

from fcojax import safetensors
from fcojax.extend import validated
from fcojax.flower.federation import Federation, difference
from fcojax.flower.site import site_hash
from fcojax.types import PyTree


class Site(NamedTuple):
    """What a site says of itself before the first round.

    Attributes:
      name: its name.
      num_examples: number of its rows.
      columns: the shapes and dtypes of its rows.
    """

    name: str
    num_examples: int
    columns: PyTree


@validated
def invitation(federation: Federation, run: str) -> bytes:
    """Return the message that asks sites to introduce themselves.

    Args:
      federation: what is agreed on.
      run: a name of the run.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (w - rows["a"]) ** 2)
      >>> federation = fcojax.flower.Federation(
      ...     fed_avg, fcojax.local_steps(1), fed_avg.hparams_type(), jnp.array(0.0))
      >>> _, facts = fcojax.safetensors.loads(fcojax.flower.invitation(federation, "run 1"))
      >>> facts["kind"], facts["run"]
      ('join', 'run 1')
    """
    return safetensors.dumps({}, {"kind": "join", "run": run, "federation": federation.digest})


@validated
def admitted(federation: Federation, reply: bytes) -> Site:
    """Return the site that introduced itself; raise ``ValueError`` for one of another federation.

    Args:
      federation: what is agreed on.
      reply: its answer to ``invitation``.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> from fcojax import flower
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (w - rows["a"]) ** 2)
      >>> federation = flower.Federation(
      ...     fed_avg, fcojax.local_steps(1), fed_avg.hparams_type(), jnp.array(0.0))
      >>> sites = flower.in_process(federation, {"Ghent": {"a": np.ones(2)}})
      >>> replies = sites.join(flower.invitation(federation, "run 1"))
      >>> flower.admitted(federation, replies[0]).columns["a"].shape
      (2,)
    """
    _, facts = safetensors.loads(reply)
    name = facts["site"]
    theirs = json.loads(facts["description"])
    wrong = difference(federation.description, theirs, "at the server")
    if wrong is not None:
        raise ValueError(
            f"site {name} runs another federation: {wrong}; start both from the same code."
        )
    size = int(facts["num_examples"])
    columns = jax.tree.map(
        lambda column: jax.ShapeDtypeStruct((size, *column[1:]), column[0]),
        json.loads(facts["columns"]),
        is_leaf=lambda column: isinstance(column, list) and isinstance(column[0], str),
    )
    ours, theirs = site_hash(federation, columns), facts["program"]
    # Other backends compute the same in other programs.
    if ours.split()[0] == theirs.split()[0] and ours != theirs:
        raise ValueError(
            f"site {name} runs another program of the same name, such as another loss; start both "
            "from the same code."
        )
    return Site(name, size, columns)
