"""The compared methods, and two baselines that the library does not have."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.compare.problem import Task
from fcojax import algorithms
from fcojax.algorithms import Algorithm, takes
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.extend import memoised
from fcojax.transforms import Penalty, euclidean, moreau_envelope
from fcojax.types import NonNegative, Positive, PyTree


class Late(NamedTuple):
    """The server's state, its last messages, newest first, and the message that it broadcasts."""

    inner: PyTree
    past: PyTree
    message: PyTree


@memoised
def late(algorithm: Algorithm, max_delay: int) -> Algorithm:
    """Return the algorithm with clients that receive a message from up to ``max_delay`` rounds ago.

    With FedDR it is asyncFedDR: Tran-Dinh, Pham, Phan and Nguyen, "FedDR: randomized
    Douglas-Rachford splitting algorithms for nonconvex federated composite optimization", NeurIPS
    2021 (arXiv 2103.03452), Algorithm 2. With one client per round, a round is one event of that
    algorithm, with a bounded delay.

    Args:
      algorithm: its server must broadcast its model.
      max_delay: the largest delay in rounds; each round's delay is drawn uniformly from 0 up to it.
    """

    def init(hparams, params):
        inner, client = algorithm.init(hparams, params)
        message = algorithm.broadcast(hparams, inner)
        past = jax.tree.map(lambda leaf: jnp.stack([leaf] * (max_delay + 1)), message)
        return Late(inner, past, message), client

    def broadcast(hparams, server):
        return server.message

    def server_update(hparams, server, mean_upload, fraction, key):
        inner = algorithm.server_update(hparams, server.inner, mean_upload, fraction, key)
        newest = algorithm.broadcast(hparams, inner)
        past = jax.tree.map(
            lambda old, new: jnp.concatenate([new[None], old[:-1]]), server.past, newest
        )
        delay = jax.random.randint(key, (), 0, max_delay + 1)
        return Late(inner, past, jax.tree.map(lambda leaf: leaf[delay], past))

    def model(hparams, server):
        return algorithm.model(hparams, server.inner)

    return algorithm._replace(
        init=init, broadcast=broadcast, server_update=server_update, model=model
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

    def client_update(hparams, message, client, local, key):
        numbers = hparams.smoothing, hparams.penalty_scale
        return plain.client_update(
            hparams._replace(penalty_scale=numbers), message, client, local, key
        )

    return plain._replace(client_update=client_update)


def decreasing(first: float, power: float, num_rounds: int) -> Any:
    r"""Return the schedule :math:`\mu_r = \mu_0 / (r + 1)^a`."""
    return fcojax.schedule(first / np.arange(1.0, num_rounds + 1) ** power)


class Method(NamedTuple):
    """A row of the tables.

    Attributes:
      text: the name of the method in the tables.
      name: the factory in ``fcojax.algorithms``.
      exact: whether its limit is claimed to be the optimum; ``None`` if nothing is claimed.
      tuned: ``"round"``, steps as multiples of 1 / (K L); ``"step"``, of 1 / L; ``"prox"``, the
        prox step as a multiple of 1 / L.
      options: further arguments of the factory.
      fixed: ``task -> hyperparameters`` that are not tuned.
      claimed: whether the source makes this claim; otherwise it is our expectation.
      half: whether half of the clients take part in a round, instead of all.
      random: whether seeds differ even if all clients take part.
      change: what is done to the algorithm.
      factory: in place of that in ``fcojax.algorithms``.
    """

    text: str
    name: str
    exact: bool | None = True
    tuned: str = "round"
    options: Mapping[str, Any] = {}
    fixed: Callable[[Task], dict[str, Any]] = lambda task: {}
    claimed: bool = True
    half: bool = False
    random: bool = False
    change: Callable[[Algorithm], Algorithm] = lambda algorithm: algorithm
    factory: Any = None

    @property
    def hparams(self) -> type:
        """The type of its hyperparameters."""
        return (self.factory or getattr(algorithms, self.name)).Hparams

    def build(self, loss: Any, penalty: Penalty) -> Algorithm:
        """Return the algorithm."""
        factory = self.factory or getattr(algorithms, self.name)
        psi = euclidean(penalty) if factory.geometry == ("mirror",) else penalty
        return self.change(factory(loss, psi, **self.options))


_EXACT, _GD = {"solver": exact()}, {"solver": gd()}


def _relaxed(by: float) -> Callable[[Task], dict[str, Any]]:
    return lambda task: {"relaxation": by}


def _smoothing(task: Task) -> dict[str, Any]:
    return {"smoothing": decreasing(1 / task.smoothness, 0.5, 20_000)}


METHODS = {
    "prox_gd": Method("ProxGD, centralised", "prox_gd", factory=algorithms.fed_mid_osp),
    "subgradient": Method("FedAvg, subgradient", "fed_avg_subgradient", False),
    "smoothed": Method(
        "FedAvg, smoothed penalty", "fed_avg_subgradient", None, fixed=_smoothing, factory=smoothed
    ),
    "fed_mid": Method("FedMiD as printed", "fed_mid", None),
    "fed_mid_client": Method(
        "FedMiD, client prox only", "fed_mid", False, options={"server_prox": False}
    ),
    "fed_mid_osp": Method("FedMiD-OSP", "fed_mid_osp", False),
    "fed_dual_avg": Method("FedDualAvg", "fed_dual_avg", False),
    "osp": Method("FedDualAvg-OSP", "fed_dual_avg_osp", None),
    "dual_tracking": Method("FedDualAvg, tracking", "fed_dual_avg_tracking", claimed=False),
    "fast": Method(
        "Fast-FedDualAvg",
        "fast_fed_dual_avg",
        None,
        fixed=lambda task: {"strong_convexity": task.least_curvature},
    ),
    # Its source proves a neighbourhood.
    "composite_fl": Method("Composite FL", "composite_fl", claimed=False),
    "scaffold": Method("SCAFFOLD, client prox", "scaffold"),
    "scaffold_server": Method(
        "SCAFFOLD, server prox", "scaffold", None, options={"prox": "server"}
    ),
    "feedback": Method(
        "SCAFFOLD, server prox, feedback", "scaffold", options={"prox": "feedback"}, claimed=False
    ),
    "fast_scaffold": Method("SCAFFOLD, feedback, momentum", "fast_scaffold", claimed=False),
    "mime": Method("MimeSVRG", "mime"),
    "prox_skip": Method("ProxSkip, p = 1/K", "prox_skip", tuned="step"),
    "normal_map": Method(
        "Normal map", "fed_normal_map", fixed=lambda task: {"prox_step": 4 / task.smoothness}
    ),
    "fed_dr": Method("FedDR, exact, alpha 1", "fed_dr", True, "prox", _EXACT, _relaxed(1.0)),
    "fed_dr_over": Method("FedDR, exact, alpha 1.9", "fed_dr", True, "prox", _EXACT, _relaxed(1.9)),
    "fed_dr_gd": Method("FedDR, K steps, alpha 1", "fed_dr", True, "prox", _GD, _relaxed(1.0)),
    "fed_dr_late": Method(
        "FedDR, K steps, up to 3 rounds late",
        "fed_dr",
        True,
        "prox",
        _GD,
        _relaxed(1.0),
        random=True,
        change=functools.partial(late, max_delay=3),
    ),
    "fed_admm": Method("FedADMM, K steps", "fed_admm", True, "prox", _GD),
    "fed_pd": Method("FedPD, exact solves", "fed_pd", True, "prox", _EXACT),
    "fed_pd_gd": Method("FedPD, K steps", "fed_pd", True, "prox", _GD),
    "skipping": Method(
        "FedPD, exact, skips half",
        "fed_pd",
        None,
        "prox",
        _EXACT,
        lambda task: {"skip_probability": 0.5},
        random=True,
    ),
    "fed_dyn": Method("FedDyn, K steps", "fed_dyn", True, "prox", _GD),
    "composite_fl_half": Method(
        "Composite FL, half the clients", "composite_fl", claimed=False, half=True
    ),
    "prox_skip_half": Method(
        "ProxSkip, half the clients", "prox_skip", tuned="step", claimed=False, half=True
    ),
    "fed_dyn_half": Method("FedDyn, half the clients", "fed_dyn", True, "prox", _GD, half=True),
}
