"""Where an algorithm ends up on a heterogeneous lasso, and whether that is the minimiser."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.algorithms.work import local_steps
from fcojax.check.population import Task, heterogeneous_lasso
from fcojax.check.subject import NOT_OF_CLIENTS, Finding, Subject
from fcojax.engine.cohort import Sampler, dropout, everyone, uniform_cohort
from fcojax.engine.plan import Plan
from fcojax.engine.sweep import sweep
from fcojax.problems.quadratic import factored_loss
from fcojax.transforms import l1, zero

NUM_STEPS = 10
_EXACT = 1e-10  # relative distance to the minimiser, in double precision


class Limit(NamedTuple):
    """Where a run has ended.

    Attributes:
      distance: to the minimiser of F + psi, relative to it.
      halved: the same at half the step.
      halfway: the same after half of the rounds.
      nonzeros: entries that are not zero.

    Example:
      >>> from fcojax.check import Limit
      >>> Limit(distance=0.02, halved=0.01, halfway=0.02, nonzeros=5).word  # in step with the rate
      'neighbourhood'
    """

    distance: float
    halved: float
    halfway: float
    nonzeros: int

    @property
    def word(self) -> str:
        """``exact``, ``neighbourhood``, ``approaching``, ``elsewhere`` or ``diverges``."""
        if max(self.distance, self.halved) <= _EXACT:
            return "exact"
        if not np.isfinite([self.distance, self.halved]).all() or self.distance > 10:
            return "diverges"
        if self.halfway / self.distance > 1.5:
            return "approaching"
        return "neighbourhood" if 1.6 <= self.distance / self.halved <= 2.4 else "elsewhere"


def task_for(subject: Subject) -> Task:
    """The lasso, or least squares for an algorithm without a penalty."""
    return heterogeneous_lasso(l1() if subject.composite else zero())


def limit(
    subject: Subject, cohort: Sampler | None = None, *, num_rounds: int = 6000, seed: int = 0
) -> Limit:
    """Where it ends at client rate 1 / (K L) and at half of it, K = 10, with full gradients.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fed_split)
      >>> fcojax.check.limit(subject, num_rounds=20).word
      'approaching'
    """
    task = task_for(subject)
    hparams = _safe(subject, task)
    halved = {
        name: getattr(hparams, name) / 2
        for name in hparams._fields
        if name.endswith(("_lr", "_step")) and name not in NOT_OF_CLIENTS
    }
    both = hparams, hparams._replace(**halved)
    grid = jax.tree.map(lambda *pair: jnp.stack([jnp.asarray(v, float) for v in pair]), *both)
    models, history = sweep(
        subject.in_plain_space(factored_loss), grid, jnp.zeros(task.optimum.size), task.data,
        jax.random.key(seed)[None], Plan(local_steps(NUM_STEPS), cohort or everyone()),
        num_rounds=num_rounds, eval_every=num_rounds // 2, observe=_look,
        context=jnp.asarray(task.optimum),
    )  # fmt: skip
    distances = np.asarray(history["distance"])[:, 0]
    nonzeros = int(np.count_nonzero(np.asarray(models)[0, 0]))
    far, near = distances[:, -1].tolist()
    return Limit(far, near, float(distances[0, 0]), nonzeros)


def _look(hparams, model, optimum):
    return {"distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum)}


def _safe(subject: Subject, task: Task):
    """Hyperparameters with the client rate 1 / (K L)."""
    client_lr = 1 / (NUM_STEPS * task.smoothness)
    return subject.hparams(client_lr=client_lr, penalty_scale=task.scale)


def _distance(w: np.ndarray, task: Task) -> float:
    return float(np.linalg.norm(w - task.optimum) / np.linalg.norm(task.optimum))


def floor(subject: Subject, *, num_rounds: int = 20_000) -> float:
    """The relative distance that is left in single precision."""
    task = task_for(subject)
    narrow = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf,
        task.data.examples,
    )
    data = dataclasses.replace(task.data, examples=narrow)
    hparams = _safe(subject, task)
    grid = jax.tree.map(lambda value: jnp.asarray(value, jnp.float32)[None], hparams)
    models, _ = sweep(
        subject.in_plain_space(factored_loss), grid, jnp.zeros(task.optimum.size, jnp.float32),
        data, jax.random.key(0)[None], local_steps(NUM_STEPS), num_rounds=num_rounds,
        eval_every=num_rounds,
    )  # fmt: skip
    return _distance(np.asarray(models[0, 0], float), task)


def limits(subject: Subject, *, num_rounds: int = 6000) -> dict[str, Finding]:
    """What ``limit`` finds with everyone, with half of the clients, and with lost uploads.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fed_split)
      >>> found = fcojax.check.limits(subject, num_rounds=20)
      >>> {name: finding.holds for name, finding in found.items()}
      {'limit': False, 'half the clients': None, '30 per cent lost': None}
    """
    if "manifold" in subject.takes:
        where = "least squares in plain space"
    else:
        where = "the heterogeneous lasso" if subject.composite else "heterogeneous least squares"
    found = {"everyone": limit(subject, num_rounds=num_rounds)}
    composite = subject.composite
    on = f"on {where}, after {num_rounds} rounds"
    result = {"limit": _told(found["everyone"], on, composite)}
    for name, cohort in (
        ("half the clients", uniform_cohort(4)),
        ("30 per cent lost", dropout(everyone(), 0.3)),
    ):
        if subject.build(None).needs_everyone:
            result[name] = Finding(None, "it needs every client in every round")
            continue
        partial = limit(subject, cohort, num_rounds=num_rounds)
        result[name] = _told(partial, f"with {name}", composite, found["everyone"])
    return result


def _told(found: Limit, where: str, composite: bool, everyone: Limit | None = None) -> Finding:
    """The limit in a sentence, beside that with everyone where only a part is heard."""
    sentences = {
        "exact": f"exact {where}: relative distance {found.distance:.1e}",
        "approaching": f"on its way {where}: relative distance {found.distance:.1e}, "
        f"and {found.halfway:.1e} halfway",
        "neighbourhood": f"a neighbourhood {where}: relative distance {found.distance:.1e}, "
        f"and {found.halved:.1e} at half the step",
        "elsewhere": f"not at the minimiser {where}: relative distance {found.distance:.1e}, "
        f"and {found.halved:.1e} at half the step",
        "diverges": f"it diverges {where}; pass a smaller client_lr",
    }
    told = f"{sentences[found.word]}; {found.nonzeros} nonzeros"
    if everyone is not None and _is_only_for_everyone(found, everyone):
        told += (
            "; with everyone the limit is right: is what the server adds up multiplied by "
            "cohort.fraction?"
        )
    elif composite and found.word == "elsewhere" and 0.9 <= found.distance / found.halved <= 1.1:
        told += (
            "; psi may have the wrong weight: compare the prox weight with the total step of a "
            "round"
        )
    return Finding(found.word == "exact", told)


def _is_only_for_everyone(found: Limit, everyone: Limit) -> bool:
    """Whether the limit with everyone is right, and that with a part off by more than chance.

    The noise of who takes part shrinks with the step; a sum of the wrong weight does not.
    """
    if everyone.word not in ("exact", "neighbourhood"):
        return False
    stays = found.word == "elsewhere" and found.distance <= 1.1 * found.halved
    return stays or found.word == "diverges"
