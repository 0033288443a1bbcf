"""What an algorithm costs, read off its programs: numbers sent, state kept, proxes computed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Cohort
from fcojax.algorithms.work import local_steps
from fcojax.check.population import quadratic, quadratic_clients
from fcojax.check.subject import COUNTED, Subject
from fcojax.engine.luck import local_handle
from fcojax.problems.clients import from_clients
from fcojax.programs import inner_programs

_DIM, _NUM_STEPS = 4, 10


class Facts(NamedTuple):
    """What a round of K = 10 local steps costs one client, and what is asked of it.

    Attributes:
      down: what is sent to it, in models and numbers beyond.
      up: what it sends, likewise.
      state: what it keeps, likewise.
      client_proxes: proxes, or mirror steps, that it computes.
      server_proxes: those of the server, reading the model included.
      needs_everyone: whether every client has to take part in every round.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_dual_avg))
      >>> cost.down, cost.up  # a model of d numbers, and one number beyond
      ('1 d + 1', '1 d + 1')
    """

    down: str
    up: str
    state: str
    client_proxes: int
    server_proxes: int
    needs_everyone: bool


def facts(subject: Subject) -> Facts:
    """Reads them off, without running anything.

    Example:
      >>> import fcojax
      >>> fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_avg))
      Facts(down='1 d', up='1 d', state='0', client_proxes=0, server_proxes=0, needs_everyone=False)
    """
    data = from_clients(quadratic_clients(sizes=(3, 3), dim=_DIM))
    algorithm = subject.counting(quadratic)
    hparams = jax.tree.map(lambda value: jnp.asarray(value, float), subject.hparams())
    point, index = jnp.full(_DIM, 0.5), jnp.zeros((), jnp.int32)
    server, client = algorithm.init(hparams, point)

    def of_client(server, client):
        local = local_handle(data, local_steps(_NUM_STEPS), jax.random.key(0), index, index, index)
        message = algorithm.broadcast(hparams, server)
        return message, algorithm.client_update(hparams, message, client, local, jax.random.key(0))

    message, result = jax.eval_shape(of_client, server, client)
    upload = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), result.upload)

    def of_server(server, upload):
        cohort, key = Cohort(None, jnp.ones(2), jnp.ones(())), jax.random.key(0)
        after = algorithm.server_update(hparams, server, upload, cohort, key)
        return algorithm.model(hparams, after)

    return Facts(
        _size(message),
        _size(result.upload),
        _size(client),
        _proxes(jax.make_jaxpr(of_client)(server, client).jaxpr),
        _proxes(jax.make_jaxpr(of_server)(server, upload).jaxpr),
        algorithm.needs_everyone,
    )


def _size(payload: Any) -> str:
    """So many models, and so many numbers beside them."""
    sizes = [leaf.size for leaf in jax.tree.leaves(payload)]
    models, rest = divmod(sum(sizes), _DIM)
    return f"{models} d" + (f" + {rest}" if rest else "") if sum(sizes) else "0"


def _proxes(jaxpr: Any) -> int:
    """How often the prox is computed when a traced program is run: at most, where it branches."""
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
