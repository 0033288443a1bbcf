r"""DiLoCo: many AdamW steps on each client, Nesterov momentum on the server.

Douillard, Feng, Rusu, Chhaparia, Donchev, Kuncoro, Ranzato, Szlam and Shen, "DiLoCo: distributed
low-communication training of language models", 2023 (arXiv 2311.08105).
"""

from typing import NamedTuple

import optax

from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.fed_opt import fed_opt
from fcojax.problems.losses import Loss
from fcojax.types import NonNegative, Positive, Probability


class DiLoCoHparams(NamedTuple):
    """``client_lr``, ``b1``, ``b2``, ``weight_decay`` are AdamW's; the others are the server's."""

    client_lr: Positive = 4e-4
    b1: Probability = 0.9
    b2: Probability = 0.999
    weight_decay: NonNegative = 0.1
    server_lr: Positive = 0.3
    momentum: Probability = 0.9


@takes(DiLoCoHparams)
def diloco(loss: Loss) -> Algorithm:
    r"""DiLoCo, ``fed_opt`` with AdamW on the clients and Nesterov momentum on the server.

    Clients keep the moments of AdamW from round to round; only displacements travel. With their
    mean :math:`\Delta_r = \sum_m p_m (w^m_K - w_r)` the server's step is

    .. math:: v_{r+1} = \beta v_r + \Delta_r, \qquad
              w_{r+1} = w_r + \eta_s (\Delta_r + \beta v_{r+1}).

    Over all later rounds a displacement counts :math:`\eta_s / (1 - \beta)` times, 3 by default.

    Args:
      loss: one loss per example.

    Example:
      >>> import fcojax
      >>> hparams = fcojax.algorithms.diloco.Hparams()
      >>> round(hparams.server_lr / (1 - hparams.momentum), 3)
      3.0
    """
    return fed_opt(
        loss, client=_adamw, server=_nesterov, hparams_type=DiLoCoHparams, keep_client_state=True
    )


def _adamw(hparams):
    return optax.adamw(hparams.client_lr, hparams.b1, hparams.b2, weight_decay=hparams.weight_decay)


def _nesterov(hparams):
    return optax.sgd(hparams.server_lr, hparams.momentum, nesterov=True)
