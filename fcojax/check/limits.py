"""The limit of an algorithm on a heterogeneous lasso, and whether it is the minimiser."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import Plan, Sampler, dropout, everyone, local_steps, sweep, uniform_cohort
from fcojax.arguments import validated
from fcojax.check.laws import fraction, kept
from fcojax.check.population import heterogeneous_lasso
from fcojax.check.subject import Finding, Subject
from fcojax.problems import factored_loss
from fcojax.transforms import l1, zero
from fcojax.types import Count, Probability, Seed

NUM_STEPS = 10
_EXACT = 1e-10  # relative distance to the minimiser, in double precision


class Limit(NamedTuple):
    """The distance of a run's last model to the minimiser.

    Attributes:
      distance: the distance to the minimiser of F + psi, relative to its norm.
      halved: the distance of a run with half the client rate and prox step.
      halfway: the distance after half of the rounds.
      nonzeros: nonzero entries of the last model.

    Example:
      >>> Limit(distance=0.02, halved=0.01, halfway=0.02, nonzeros=5).word  # as the rate
      'neighbourhood'
    """

    distance: float
    halved: float
    halfway: float
    nonzeros: int

    @property
    def word(self) -> str:
        """``exact``, ``neighbourhood``, ``approaching``, ``elsewhere`` or ``diverges``.

        In a neighbourhood the distance is proportional to the rate; if approaching, it still falls.
        """
        if max(self.distance, self.halved) <= _EXACT:
            return "exact"
        if not np.isfinite([self.distance, self.halved]).all() or self.distance > 10:
            return "diverges"
        if self.halfway / self.distance > 1.5:
            return "approaching"
        return "neighbourhood" if 1.6 <= self.distance / self.halved <= 2.4 else "elsewhere"


@validated
def limit(
    subject: Subject,
    cohort: Sampler | None = None,
    *,
    lost: Probability = 0.0,
    num_rounds: Count = 6000,
    seed: Seed = 0,
) -> Limit:
    """Return the limit at client rate 1 / (K L), with K = 10 full gradient steps a round.

    Args:
      subject: the algorithm, as ``subject_of`` makes it.
      cohort: which clients take part; everyone by default.
      lost: the probability that an upload is lost.
      num_rounds: an even number.
      seed: seed of the cohorts.

    Returns:
      A named tuple: ``distance`` to the minimiser, relative to its norm; ``halved``, the distance
      with half the client rate and prox step; ``halfway``, the distance after half of the rounds;
      ``nonzeros`` of the last model; and ``word``, which sums them up, such as ``"exact"``.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fed_split)
      >>> fcojax.check.limit(subject, num_rounds=20).word
      'approaching'
    """
    # Least squares for an algorithm without a penalty.
    task = heterogeneous_lasso(l1() if subject.composite else zero())
    client_lr = 1 / (NUM_STEPS * task.smoothness)
    hparams = subject.hparams(client_lr=client_lr, penalty_scale=task.scale)
    halved = {name: getattr(hparams, name) / 2 for name in subject.client_rates}
    both = hparams, hparams._replace(**halved)
    grid = jax.tree.map(lambda *pair: jnp.stack([jnp.asarray(v, float) for v in pair]), *both)
    algorithm, start = subject.in_plain_space(factored_loss), jnp.zeros(task.optimum.size)
    plan = Plan(local_steps(NUM_STEPS), cohort or everyone(), uploads=dropout(lost))
    given = algorithm, grid, start, task.data, jax.random.key(seed)[None], plan
    evaluated = {"observe": _distance_to, "context": jnp.asarray(task.optimum)}
    models, history = sweep(*given, num_rounds=num_rounds, eval_every=num_rounds // 2, **evaluated)
    distances = np.asarray(history["distance"])[:, 0]
    nonzeros = int(np.count_nonzero(np.asarray(models)[0, 0]))
    far, near = distances[:, -1].tolist()
    return Limit(far, near, float(distances[0, 0]), nonzeros)


def _distance_to(hparams, model, optimum):
    return {"distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum)}


@validated
def limits(subject: Subject, *, num_rounds: Count = 6000) -> dict[str, Finding]:
    """Return findings on the limit with all clients, with half of them, and with 30 % lost uploads.

    Args:
      subject: the algorithm, as ``subject_of`` makes it.
      num_rounds: an even number.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fed_split)
      >>> found = fcojax.check.limits(subject, num_rounds=20)
      >>> {name: finding.holds for name, finding in found.items()}
      {'limit': False, 'half the clients': None, '30 per cent lost': None}
    """
    if "manifold" in subject.takes:
        where = "least squares in Euclidean space"
    else:
        where = "the heterogeneous lasso" if subject.composite else "heterogeneous least squares"
    where = f"on {where}, after {num_rounds} rounds"
    result = {"limit": _finding(subject, limit(subject, num_rounds=num_rounds), where)}
    for name, cohort, lost in (
        ("half the clients", uniform_cohort(cohort_size=4), 0.0),
        ("30 per cent lost", everyone(), 0.3),
    ):
        if subject.build(None).facts.needs_everyone:
            result[name] = Finding(None, "it needs every client in every round")
            continue
        found = limit(subject, cohort, lost=lost, num_rounds=num_rounds)
        result[name] = _finding(subject, found, f"with {name}")
    return result


def _finding(subject: Subject, found: Limit, where: str) -> Finding:
    """Return the limit in a sentence, with the reason if a law shows one."""
    sentences = {
        "exact": f"exact {where}: relative distance {found.distance:.1e}",
        "approaching": f"still approaching {where}: relative distance {found.distance:.1e}, "
        f"and {found.halfway:.1e} halfway",
        "neighbourhood": f"a neighbourhood {where}: relative distance {found.distance:.1e}, "
        f"and {found.halved:.1e} at half the step",
        "elsewhere": f"not at the minimiser {where}: relative distance {found.distance:.1e}, "
        f"and {found.halved:.1e} at half the step",
        "diverges": f"diverges {where}; pass a smaller client_lr",
    }
    sentence = f"{sentences[found.word]}; {found.nonzeros} nonzeros"
    if found.word in ("elsewhere", "diverges"):
        findings = [law(subject) for law in (kept, fraction)]
        broken = [finding.sentence for finding in findings if finding.holds is False]
        if broken:
            sentence += f"; {broken[0]}"
        elif subject.composite and 0.9 <= found.distance / found.halved <= 1.1:
            sentence += (
                "; psi may have the wrong weight: compare the prox weight with the total step of "
                "a round"
            )
    return Finding(found.word == "exact", sentence)
