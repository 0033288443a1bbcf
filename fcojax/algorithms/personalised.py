"""A model for each client: pulled towards a common one, or with a part that stays at the client."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fcojax import tree
from fcojax.algorithms.averages import primal
from fcojax.algorithms.base import Algorithm, Facts, Known, takes
from fcojax.algorithms.controls import control_variate, with_control
from fcojax.algorithms.frame import Correction, method
from fcojax.algorithms.local import Batch, Local, mean_gradient
from fcojax.arguments import factory
from fcojax.problems.loss_kinds import RandomLoss, WholeBatchLoss
from fcojax.problems.losses import Loss
from fcojax.transforms.calculus.predicates import PathPredicate
from fcojax.transforms.penalties.separable import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, PyTree


class DittoHparams(NamedTuple):
    r"""``client_lr`` is eta_c, ``server_lr`` is eta_s, ``prox_scale`` is :math:`\lambda`.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_scale: NonNegative = 1.0
    penalty_scale: NonNegative = 0.1


class DittoClient(NamedTuple):
    """A client's control variate, and its personal model."""

    control: Params
    model: Params


@takes(DittoHparams, "penalty")
def ditto(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""The minimiser x of the mean loss plus psi, and personal models near it.

    .. math:: v_i = \arg\min_v \; f_i(v) + \psi(v) + \tfrac{\lambda}{2} |v - x|^2

    The model x is that of ``scaffold(loss, penalty, prox="feedback")``, so it is exact with any
    cohort; the paper takes FedAvg, which has no penalty. In each of its rounds a client then takes
    as many steps on its personal model, implicit in the quadratic term,

    .. math:: v_i \leftarrow \mathrm{prox}_{\eta_c (\psi + \lambda/2 |\cdot - x|^2)}
              \big(v_i - \eta_c \nabla f_i(v_i)\big),

    so that a rate that is safe for :math:`f_i` is safe for every :math:`\lambda`. With
    :math:`\lambda = 0` clients learn alone; for :math:`\lambda \to \infty` all use x. Personal
    models are read by ``fcojax.personal.read_models``; nothing more is sent than without them.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.ditto(None, fcojax.transforms.l1()).facts.parts
      ('primal', 'control, own', 'feedback')

    References:
      Li, Hu, Beirami and Smith, "Ditto: fair and robust federated learning through
      personalization", ICML 2021.
    """
    shared, gradient, psi = control_variate(), mean_gradient(loss), penalty or zero()

    def begin(hparams, message, own, local):
        return shared.begin(hparams, message, own.control, local)

    def keep(hparams, message, own, local, steps):
        control, upload = shared.keep(hparams, message, own.control, local, steps)
        center, rate = message.point, hparams.client_lr
        shrink = 1 / (1 + rate * hparams.prox_scale)

        def step(v, batch):
            # The prox of the sum of psi and the quadratic term is a prox of psi at a mean of v and
            # x. In this form it moves from x by a multiple of v - x: as the strength grows, v is x
            # to the last bit.
            moved = tree.add_scaled(v, -rate, gradient(v, batch))
            between = tree.add_scaled(center, shrink, tree.sub(moved, center))
            return psi.prox(between, rate * shrink, hparams.penalty_scale)

        return DittoClient(control, local.scan(step, own.model)), upload

    correction = Correction(
        "control, own",
        begin,
        keep,
        lambda params, memory: DittoClient(tree.zeros_like(params), params),
        client_model=lambda hparams, message, own: own.model,
    )
    server = with_control(psi, feedback=True)
    return method(loss, primal(), correction, server, facts=Facts(exact=True))


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
    Nothing of the shape of :math:`v_i` is sent. A minimiser is a fixed point if it is one of
    ``base``. The algorithm's ``model`` has the start point's part v;
    ``fcojax.personal.read_models`` returns the clients' models.

    Args:
      base: ``(loss) -> Algorithm`` for u, with its penalty. The point has ``None`` in place of
        the kept leaves. Its hyperparameters include ``client_lr``.
      loss: one loss per example, of the whole model.
      keeps: which leaves stay at the clients, such as ``fcojax.transforms.named("head")``.
      penalty: :math:`\psi_v`, of strength ``penalty_scale``; none by default.

    Example:
      >>> import fcojax
      >>> algorithm = fcojax.algorithms.partial_sharing(
      ...     fcojax.algorithms.fed_avg, lambda w, rows: rows["x"] @ w["body"] - w["head"],
      ...     fcojax.transforms.named("head"))
      >>> algorithm.facts.parts
      ('primal', 'none', 'average')

    References:
      Arivazhagan, Aggarwal, Singh and Choudhary, "Federated learning with personalization layers",
      2019 (arXiv 1912.00818); Collins, Hassani, Mokhtari and Shakkottai, "Exploiting shared
      representations for personalized federated learning", ICML 2021, which is this order of steps.
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
