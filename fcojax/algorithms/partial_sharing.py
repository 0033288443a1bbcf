r"""Partial sharing: a named part of the model stays at the client, the rest is common.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated learning with personalization layers", 2019
(arXiv 1912.00818), and Collins, Hassani, Mokhtari and Shakkottai, "Exploiting shared
representations for personalized federated learning", ICML 2021, which is this order of steps.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fcojax import tree
from fcojax.algorithms.base import Algorithm, Known
from fcojax.algorithms.local import Batch, Local, mean_gradient
from fcojax.arguments import factory
from fcojax.problems.losses import Loss, RandomLoss, WholeBatchLoss
from fcojax.transforms.calculus.predicates import PathPredicate
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params, PyTree


class PartialServer(NamedTuple):
    """The server's state, and the first value of the part that clients keep."""

    server: PyTree
    first: Params


class PartialMessage(NamedTuple):
    """The message of the base, and u, at which a client starts its steps and so knows it."""

    message: PyTree
    common: Known


class PartialClient(NamedTuple):
    """A client's state, and its own part of the model."""

    client: PyTree
    own: Params


class Owned(NamedTuple):
    """A client's examples, with its own part of the model."""

    examples: PyTree
    own: Params


@dataclasses.dataclass(frozen=True)
class OwningLocal(Local):
    """A client's handle on its examples, whose batches also hold its own part of the model."""

    own: Any = None

    def full(self) -> Batch:
        return self._owned(super().full())

    def _gather(self, step: Array, rows: Array, weights: Array | None) -> Batch:
        return self._owned(super()._gather(step, rows, weights))

    def _owned(self, batch: Batch) -> Batch:
        return batch._replace(examples=Owned(batch.examples, self.own))


@factory
def partial_sharing(
    base: Callable[[Loss], Algorithm],
    loss: Loss,
    keeps: PathPredicate,
    *,
    penalty: Penalty | None = None,
) -> Algorithm:
    r"""Return an algorithm for the shared part u of a model, whose other part stays at the clients.

    .. math:: \min_{u, v_1, \dots, v_M} \sum_i p_i \big(f_i(u, v_i) + \psi_v(v_i)\big) + \psi_u(u)

    A client first takes the steps of the plan on its own :math:`v_i`, proximal gradient steps of
    ``client_lr`` with u as it was sent, and then its round of ``base`` on :math:`f_i(\cdot, v_i)`.
    Neither :math:`v_i` nor anything of its shape is sent. If nothing is kept, this is ``base``; a
    minimiser is a fixed point if the minimiser is one of ``base``. The algorithm's ``model`` has
    the start point's part v; ``fcojax.personal.read_models`` returns the clients' models.

    Args:
      base: ``(loss) -> Algorithm`` for u, with its penalty. The point has ``None`` in place of
        the kept leaves. Its hyperparameters include ``client_lr``.
      loss: one loss per example, of the whole model.
      keeps: which leaves stay at the clients, such as ``fcojax.transforms.named("head")``.
      penalty: :math:`\psi_v`, of strength ``penalty_scale``; none by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import named
      >>> data = fcojax.from_clients([{"a": np.array([0.0])}, {"a": np.array([4.0])}])
      >>> loss = lambda w, rows: (w["slope"] - 1) ** 2 / 2 + (w["level"] - rows["a"]) ** 2 / 2
      >>> algorithm = fcojax.algorithms.partial_sharing(
      ...     fcojax.algorithms.fed_avg, loss, named("level"))
      >>> hparams, plan = algorithm.hparams_type(client_lr=0.5), fcojax.local_steps(5)
      >>> start = {"slope": jnp.array(0.0), "level": jnp.array(0.0)}
      >>> state = fcojax.start(algorithm, hparams, start, data, jax.random.key(0), plan)
      >>> state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=20)
      >>> models = fcojax.personal.read_models(algorithm, hparams, state)
      >>> print(models["slope"].round(2), models["level"].round(2))
      [1. 1.] [0. 4.]
    """
    gradient = mean_gradient(loss)
    shared = base(_with_own(loss))

    def split(params):
        """Return the shared and the kept part, with ``None`` in place of the other's leaves."""
        kept = jax.tree_util.tree_map_with_path(lambda path, leaf: bool(keeps(path, leaf)), params)
        common = jax.tree.map(lambda leaf, is_kept: None if is_kept else leaf, params, kept)
        own = jax.tree.map(lambda leaf, is_kept: leaf if is_kept else None, params, kept)
        return common, own

    def init(hparams, params):
        common, own = split(params)
        server, client = shared.init(hparams, common)
        return PartialServer(server, own), PartialClient(client, own)

    def broadcast(hparams, server):
        common = shared.model(hparams, server.server)
        return PartialMessage(shared.broadcast(hparams, server.server), Known(common))

    def client_update(hparams, message, client, local, key):
        def step(own, batch):
            slope = split(gradient(joined(message.common.value, own), batch))[1]
            moved = tree.add_scaled(own, -hparams.client_lr, slope)
            if penalty is None:
                return moved
            return penalty.prox(moved, hparams.client_lr, hparams.penalty_scale)

        own = local.scan(step, client.own) if jax.tree.leaves(client.own) else client.own
        fields = {field.name: getattr(local, field.name) for field in dataclasses.fields(local)}
        owning = OwningLocal(**fields, own=own)
        result = shared.client_update(hparams, message.message, client.client, owning, key)
        return result._replace(state=PartialClient(result.state, own))

    def server_update(hparams, server, mean_upload, fraction, key):
        stepped = shared.server_update(hparams, server.server, mean_upload, fraction, key)
        return server._replace(server=stepped)

    def model(hparams, server):
        return joined(shared.model(hparams, server.server), server.first)

    def sent(hparams, before, after):
        return shared.sent(hparams, before.server, after.server)

    def client_model(hparams, message, client):
        return joined(message.common.value, client.own)

    return shared._replace(
        init=init,
        broadcast=broadcast,
        client_update=client_update,
        server_update=server_update,
        model=model,
        sent=sent,
        client_model=client_model,
    )


def _with_own(loss: Loss) -> Loss:
    """Return the loss of the shared part, whose examples hold the client's own part."""
    if isinstance(loss, WholeBatchLoss):
        return WholeBatchLoss(
            lambda common, rows, weights: loss(joined(common, rows.own), rows.examples, weights)
        )
    if isinstance(loss, RandomLoss):
        return RandomLoss(
            lambda common, rows, key: loss(joined(common, rows.own), rows.examples, key)
        )
    return lambda common, rows: loss(joined(common, rows.own), rows.examples)


def joined(common: Params, own: Params) -> Params:
    """Return the model of two parts with ``None`` in place of each other's leaves."""
    return jax.tree.map(
        lambda leaf, other: other if leaf is None else leaf,
        common,
        own,
        is_leaf=lambda leaf: leaf is None,
    )
