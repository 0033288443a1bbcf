"""Before the first round: sites introduce themselves, and some are refused."""

import functools
import json
import re
from typing import Any, NamedTuple

import jax

from fcojax.extend import validated
from fcojax.types import PyTree
from fcojax_sites import safetensors
from fcojax_sites.flower.answers import BadAnswer, plain, read
from fcojax_sites.flower.federation import Federation, difference
from fcojax_sites.flower.site import site_hash

_MOST_LETTERS, _MOST_AXES = 100, 32
MOST_ROWS = 2**31 - 1  # rows are counted in int32
_DTYPES = {
    *("bool", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


class Site(NamedTuple):
    """The facts that a site states about itself before the first round.

    Attributes:
      name: the name in its node config.
      num_examples: number of its rows.
      columns: the shapes and dtypes of its rows.
      data: a hash of its rows, for the record; empty if it sent none.
    """

    name: str
    num_examples: int
    columns: PyTree
    data: str = ""


@validated
def invitation(federation: Federation, run: str) -> bytes:
    """Return the message that asks sites to introduce themselves.

    Args:
      federation: the ``Federation`` that the server and all sites build from the same code.
      run: a name of the run.

    Example:
      >>> import fcojax, fcojax_sites, jax.numpy as jnp
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (w - rows["a"]) ** 2)
      >>> federation = fcojax_sites.flower.Federation(
      ...     fed_avg, fcojax.local_steps(1), fed_avg.hparams_type(), jnp.array(0.0))
      >>> message = fcojax_sites.flower.invitation(federation, "run 1")
      >>> _, facts = fcojax_sites.safetensors.loads(message)
      >>> facts["kind"], facts["run"]
      ('join', 'run 1')
    """
    return safetensors.dumps({}, {"kind": "join", "run": run, "federation": federation.digest})


@validated
def admitted(federation: Federation, reply: Any) -> Site:
    """Return the site that introduced itself; raise ``ValueError`` for one of another federation.

    The name and the number of rows that it states are not verified.

    Args:
      federation: the ``Federation`` that the server and all sites build from the same code.
      reply: its answer to ``invitation``.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> from fcojax_sites import flower
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (w - rows["a"]) ** 2)
      >>> federation = flower.Federation(
      ...     fed_avg, fcojax.local_steps(1), fed_avg.hparams_type(), jnp.array(0.0))
      >>> sites = flower.in_process(federation, {"Ghent": {"a": np.ones(2)}})
      >>> replies = sites.join(flower.invitation(federation, "run 1"))
      >>> flower.admitted(federation, replies[0]).columns["a"].shape
      (2,)
    """
    facts, name = introduced(reply)
    try:
        return _admitted(federation, name, facts)
    except BadAnswer as error:
        raise ValueError(f"site {name} is refused: {error}") from None


def introduced(reply: Any) -> tuple[dict[str, str], str]:
    """Return the facts of an introduction, and the name of its site; raise ``BadAnswer``.

    Args:
      reply: a site's answer to ``invitation``.
    """
    _, facts = read(reply)
    name = facts.get("site", "")
    if not name or not name.isprintable() or len(name) > _MOST_LETTERS:
        raise BadAnswer(
            f"the name of its site is '{plain(name, _MOST_LETTERS)}'; pass 1 to {_MOST_LETTERS} "
            "printable letters."
        )
    return facts, name


def _admitted(federation: Federation, name: str, facts: dict[str, str]) -> Site:
    if facts.get("kind") != "join":
        raise BadAnswer("it answers another message than the invitation.")
    try:
        theirs, shapes = json.loads(facts["description"]), json.loads(facts["columns"])
        size, program = facts["num_examples"], facts["program"]
    except (KeyError, RecursionError, ValueError) as error:
        raise BadAnswer(f"its introduction cannot be read: {plain(error)}.") from None
    if not isinstance(theirs, dict):
        raise BadAnswer("its introduction has no table of facts.")
    wrong = difference(federation.description, theirs, "at the server")
    if wrong is not None:
        raise ValueError(
            f"site {name} runs another federation: {plain(wrong)}; start both from the same code."
        )
    if not re.fullmatch("[1-9][0-9]{0,9}", size) or int(size) > MOST_ROWS:
        raise BadAnswer(
            f"the number of its rows is '{plain(size)}'; pass a number from 1 to {MOST_ROWS}."
        )
    if not re.fullmatch("[a-z]+ [0-9a-f]{64}", program):
        raise BadAnswer(f"its program is '{plain(program)}', which is not a hash.")
    columns = jax.tree.map(functools.partial(_column, int(size)), shapes, is_leaf=_is_column)
    if not jax.tree.leaves(columns):
        raise BadAnswer("its rows have no columns.")
    try:
        ours = site_hash(federation, columns)
    except Exception as error:  # the loss is anybody's code, and these columns are anybody's too
        raise BadAnswer(
            f"the algorithm does not take its columns, {plain(columns)}: {plain(error)}"
        ) from None
    # Other backends compute the same in other programs.
    if program.partition(" ")[0] == ours.partition(" ")[0] and ours != program:
        raise ValueError(
            f"site {name} runs another program of the same name, such as another loss; start both "
            "from the same code."
        )
    data = facts.get("data", "")
    return Site(name, int(size), columns, data if re.fullmatch("[0-9a-f]{64}", data) else "")


def _is_column(value: Any) -> bool:
    """Whether a part of the columns describes one column: a list of its dtype and its lengths."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _column(size: int, column: Any) -> jax.ShapeDtypeStruct:
    """Return the shape of a column of so many rows."""
    if not _is_column(column) or column[0] not in _DTYPES:
        raise BadAnswer(f"a column is {plain(column)}, which is not a dtype with a shape.")
    shape = column[1:]
    lengths = all(type(length) is int and 0 < length <= MOST_ROWS for length in shape)
    if not lengths or len(shape) > _MOST_AXES:
        raise BadAnswer(f"a column has the shape {plain(shape)}.")
    return jax.ShapeDtypeStruct((size, *shape), column[0])
