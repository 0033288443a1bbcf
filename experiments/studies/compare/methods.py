"""The compared methods, and two baselines that the library does not have."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.shared import Task
from fcojax import algorithms
from fcojax.algorithms import Algorithm, takes
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.transforms import Penalty, euclidean, moreau_envelope
from fcojax.types import Count, NonNegative, Positive


@takes(algorithms.fed_dr.Hparams, "penalty")
def late(loss: Any, penalty: Penalty, *, solver: Any, max_delay: Count = 3) -> Algorithm:
    """Return FedDR whose clients receive a message from up to ``max_delay`` rounds ago.

    This is asyncFedDR: Tran-Dinh, Pham, Phan and Nguyen, "FedDR: randomized Douglas-Rachford
    splitting algorithms for nonconvex federated composite optimization", NeurIPS 2021
    (arXiv 2103.03452), Algorithm 2. With one client per round, a round is one event of that
    algorithm. Each round's delay is drawn uniformly from 0 up to ``max_delay``.
    """
    algorithm = algorithms.fed_dr(loss, penalty, solver=solver)
    # The server's state, its last messages, newest first, and the message that it broadcasts.

    def init(hparams, params):
        inner, client = algorithm.init(hparams, params)
        message = algorithm.broadcast(hparams, inner)
        past = jax.tree.map(lambda leaf: jnp.stack([leaf] * (max_delay + 1)), message)
        return (inner, past, message), client

    def server_update(hparams, server, mean_upload, fraction, key):
        inner = algorithm.server_update(hparams, server[0], mean_upload, fraction, key)
        newest = algorithm.broadcast(hparams, inner)
        past = jax.tree.map(
            lambda new, old: jnp.concatenate([new[None], old[:-1]]), newest, server[1]
        )
        delay = jax.random.randint(key, (), 0, max_delay + 1)
        return inner, past, jax.tree.map(lambda leaf: leaf[delay], past)

    return algorithm._replace(
        init=init,
        broadcast=lambda hparams, server: server[2],
        server_update=server_update,
        model=lambda hparams, server: algorithm.model(hparams, server[0]),
    )


class SmoothedHparams(NamedTuple):
    """``smoothing`` is mu, which a schedule decreases; the others are those of ``fed_avg``."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1
    smoothing: Positive = 1.0


@takes(SmoothedHparams, "penalty")
def smoothed(loss: Any, penalty: Penalty) -> Algorithm:
    r"""Return FedAvg on F plus the Moreau envelope of psi with parameter mu.

    The gradient of the envelope, :math:`(w - \mathrm{prox}_{\mu\psi}(w)) / \mu`, is 1 / mu
    Lipschitz. With a fixed mu the limit is near the minimiser of the smoothed objective; the model
    has no exact zeros.
    """
    envelope = moreau_envelope(penalty)
    huber = Penalty(lambda w, numbers: envelope(w, *numbers), penalty.prox)
    plain = algorithms.fed_avg_subgradient(loss, huber)

    def client_update(hparams, *given):
        numbers = hparams.smoothing, hparams.penalty_scale
        return plain.client_update(hparams._replace(penalty_scale=numbers), *given)

    return plain._replace(client_update=client_update)


def decreasing(first: float, power: float, num_rounds: int) -> Any:
    r"""Return the schedule :math:`\mu_r = \mu_0 / (r + 1)^a`."""
    return fcojax.schedule(first / np.arange(1.0, num_rounds + 1) ** power)


class Method(NamedTuple):
    """A row of the tables.

    Attributes:
      text: the name of the method in the tables.
      name: the factory in ``fcojax.algorithms``.
      limit: ``"claimed"`` if its source claims that the limit is the optimum, ``"exact"`` if we
        expect it, ``"biased"`` if we expect an error proportional to the step; else empty.
      tuned: ``"round"``, steps as multiples of 1 / (K L); ``"step"``, of 1 / L; ``"prox"``, the
        prox step as a multiple of 1 / L.
      options: further arguments of the factory.
      numbers: hyperparameters that are not tuned.
      half: whether half of the clients take part in a round, instead of all.
      random: whether seeds differ even if all clients take part.
      own: a factory in place of that in ``fcojax.algorithms``.
    """

    text: str
    name: str
    limit: str = "claimed"
    tuned: str = "round"
    options: Mapping[str, Any] = {}
    numbers: Mapping[str, float] = {}
    half: bool = False
    random: bool = False
    own: Any = None

    @property
    def factory(self) -> Any:
        """The factory."""
        return self.own or getattr(algorithms, self.name)

    def build(self, task: Task) -> Algorithm:
        """Return the algorithm."""
        mirror = self.factory.geometry == ("mirror",)
        psi = euclidean(task.penalty) if mirror else task.penalty
        return self.factory(task.loss, psi, **self.options)

    def fixed(self, task: Task) -> dict[str, Any]:
        """Return the hyperparameters that are not tuned, some of which follow from the problem."""
        known = {
            "smoothing": decreasing(1 / task.smoothness, 0.5, 20_000),
            "strong_convexity": task.least_curvature,
            "prox_step": 4 / task.smoothness,
        }
        own = {name: known[name] for name in self.factory.Hparams._fields if name in known}
        return {"penalty_scale": task.scale} | own | dict(self.numbers)


_FULL = functools.partial(Method, tuned="prox", options={"solver": exact()})
_PART = functools.partial(Method, tuned="prox", options={"solver": gd()})
_CLIENT, _FEEDBACK = {"server_prox": False}, {"prox": "feedback"}
_PLAIN, _SKIPS = {"relaxation": 1.0}, {"skip_probability": 0.5}

METHODS = {
    "prox_gd": Method("ProxGD, centralised", "prox_gd", own=algorithms.fed_mid_osp),
    "subgradient": Method("FedAvg, subgradient", "fed_avg_subgradient", "biased"),
    "smoothed": Method("FedAvg, smoothed penalty", "fed_avg_subgradient", "", own=smoothed),
    "fed_mid": Method("FedMiD as printed", "fed_mid", ""),
    "fed_mid_client": Method("FedMiD, client prox only", "fed_mid", "biased", options=_CLIENT),
    "fed_mid_osp": Method("FedMiD-OSP", "fed_mid_osp", "biased"),
    "fed_dual_avg": Method("FedDualAvg", "fed_dual_avg", "biased"),
    "osp": Method("FedDualAvg-OSP", "fed_dual_avg_osp", ""),
    "dual_tracking": Method("FedDualAvg, tracking", "fed_dual_avg_tracking", "exact"),
    "fast": Method("Fast-FedDualAvg", "fast_fed_dual_avg", ""),
    "composite_fl": Method("Composite FL", "composite_fl", "exact"),  # proved: a neighbourhood
    "scaffold": Method("SCAFFOLD, client prox", "scaffold"),
    "scaffold_server": Method("SCAFFOLD, server prox", "scaffold", "", options={"prox": "server"}),
    "feedback": Method("SCAFFOLD, server prox, feedback", "scaffold", "exact", options=_FEEDBACK),
    "fast_scaffold": Method("SCAFFOLD, feedback, momentum", "fast_scaffold", "exact"),
    "mime": Method("MimeSVRG", "mime"),
    "prox_skip": Method("ProxSkip, p = 1/K", "prox_skip", tuned="step"),
    "normal_map": Method("Normal map", "fed_normal_map"),
    "fed_dr": _FULL("FedDR, exact, alpha 1", "fed_dr", numbers=_PLAIN),
    "fed_dr_over": _FULL("FedDR, exact, alpha 1.9", "fed_dr", numbers={"relaxation": 1.9}),
    "fed_dr_gd": _PART("FedDR, K steps, alpha 1", "fed_dr", numbers=_PLAIN),
    "fed_dr_late": _PART(
        "FedDR, K steps, up to 3 rounds late", "fed_dr", numbers=_PLAIN, random=True, own=late
    ),
    "fed_admm": _PART("FedADMM, K steps", "fed_admm"),
    "fed_pd": _FULL("FedPD, exact solves", "fed_pd"),
    "fed_pd_gd": _PART("FedPD, K steps", "fed_pd"),
    "skipping": _FULL("FedPD, exact, skips half", "fed_pd", "", numbers=_SKIPS, random=True),
    "fed_dyn": _PART("FedDyn, K steps", "fed_dyn"),
    "composite_fl_half": Method(
        "Composite FL, half the clients", "composite_fl", "exact", half=True
    ),
    "prox_skip_half": Method("ProxSkip, half the clients", "prox_skip", "exact", "step", half=True),
    "fed_dyn_half": _PART("FedDyn, half the clients", "fed_dyn", half=True),
}
