"""Costs of an algorithm, read off its programs: numbers sent, state kept, proxes computed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import from_clients, local_steps
from fcojax.algorithms.base import uncounted
from fcojax.arguments import validated
from fcojax.check.population import quadratic, quadratic_clients
from fcojax.check.subject import COUNTED, Subject
from fcojax.engine.members import local_handle
from fcojax.xla.loops import inner_programs

_DIM, _NUM_STEPS = 4, 10


class Costs(NamedTuple):
    """Costs of a round of K = 10 local steps, for one client and for the server.

    Attributes:
      down: numbers sent to the client, as models of d numbers and further numbers.
      up: numbers that the client sends.
      state: numbers that the client keeps between rounds.
      client_proxes: proxes, or mirror steps, of the client.
      server_proxes: proxes, or mirror steps, of the server, including the one that reads the model.
      needs_everyone: whether every client has to take part in every round.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_dual_avg))
      >>> cost.down, cost.up  # a model of d numbers, and one more number
      ('1 d + 1', '1 d + 1')
    """

    down: str
    up: str
    state: str
    client_proxes: int
    server_proxes: int
    needs_everyone: bool


@validated
def facts(subject: Subject) -> Costs:
    """Return the costs of an algorithm without running it.

    Args:
      subject: the algorithm, as ``subject_of`` makes it.

    Example:
      >>> import fcojax
      >>> fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_avg))
      Costs(down='1 d', up='1 d', state='0', client_proxes=0, server_proxes=0, needs_everyone=False)
    """
    data = from_clients(quadratic_clients(sizes=(3, 3), dim=_DIM))
    algorithm = subject.counting(quadratic)
    hparams = jax.tree.map(lambda value: jnp.asarray(value, float), subject.hparams())
    point, index = jnp.full(_DIM, 0.5), jnp.zeros((), jnp.int32)
    server, client = algorithm.init(hparams, point)

    def client_round(server, client):
        local = local_handle(data, local_steps(_NUM_STEPS), jax.random.key(0), index, index, index)
        message = algorithm.broadcast(hparams, server)
        return message, algorithm.client_update(hparams, message, client, local, jax.random.key(0))

    message, result = jax.eval_shape(client_round, server, client)
    upload = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), result.upload)

    def server_round(server, upload):
        key = jax.random.key(0)
        after = algorithm.server_update(hparams, server, upload, jnp.ones(()), key)
        return algorithm.model(hparams, after)

    down, up, state = map(_size, (uncounted(message), result.upload, client))
    on_client = _proxes(jax.make_jaxpr(client_round)(server, client).jaxpr)
    on_server = _proxes(jax.make_jaxpr(server_round)(server, upload).jaxpr)
    needs_everyone = bool(algorithm.facts.needs_everyone)
    return Costs(down, up, state, on_client, on_server, needs_everyone)


def _size(payload: Any) -> str:
    """Return a number of entries as multiples of d and a remainder."""
    size = sum(leaf.size for leaf in jax.tree.leaves(payload))
    models, rest = divmod(size, _DIM)
    return f"{models} d" + (f" + {rest}" if rest else "") if size else "0"


def _proxes(jaxpr: Any) -> int:
    """Count how often proxes run in a traced program, taking the largest count over branches."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.params.get("name") == COUNTED:
            total += 1
            continue
        inner = [_proxes(program) for program in inner_programs(equation)]
        if equation.primitive.name == "cond":
            total += max(inner)
        else:
            total += equation.params.get("length", 1) * sum(inner)
    return total
