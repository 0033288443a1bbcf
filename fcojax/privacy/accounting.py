"""Accounting, by the package dp-accounting: epsilon, and the noise and the rounds that it allows.

The protected unit is a client with all of its data. Every round of every run counts as a release of
the model; measures, histories and checkpoints of a simulation are not protected.
"""

import bisect
import contextlib
import importlib
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from fcojax import Plan, Sampler
from fcojax.arguments import validated
from fcojax.engine.participation.samplers import CoinFlips, Cyclic, Trace, UniformCohort
from fcojax.engine.plan import Everyone
from fcojax.types import Count, Fraction, Positive
from fcojax.uploads.transform import Noise, number


class Law(NamedTuple):
    """How the accounting treats a sampler.

    Attributes:
      name: the law in words.
      relation: which populations are neighbours: ``"add or remove"`` a client, or ``"replace"``
        one, which changes a sum by twice the clipping norm.
      event: ``(noise multiplier) -> DpEvent`` of one round.
    """

    name: str
    relation: Literal["add or remove", "replace"]
    event: Callable[[float], Any]


@validated
def law(sampler: Sampler, num_clients: Count) -> Law:
    """Return how the accounting treats a sampler; raise ``ValueError`` if it cannot.

    ``coin_flips`` is Poisson sampling, a ``uniform_cohort`` sampling without replacement. For
    others rounds are added up without any gain from sampling, as if a client took part in each.
    Lost uploads are accounted as if they had arrived.

    Args:
      sampler: who takes part.
      num_clients: size of the population.

    Example:
      >>> import fcojax
      >>> law(fcojax.uniform_cohort(cohort_size=5), num_clients=100).relation
      'replace'
    """
    if isinstance(sampler, CoinFlips):
        rate = sampler.probability
        return Law(
            f"Poisson sampling with probability {rate:g}",
            "add or remove",
            lambda noise: _package().PoissonSampledDpEvent(rate, _gaussian(noise)),
        )
    if isinstance(sampler, UniformCohort):
        size = sampler.size(num_clients)
        return Law(
            f"{size} of {num_clients} clients without replacement",
            "replace",
            lambda noise: _package().SampledWithoutReplacementDpEvent(
                num_clients, size, _gaussian(noise / 2)
            ),
        )
    if isinstance(sampler, Everyone):
        return Law("every client in every round", "add or remove", _gaussian)
    if isinstance(sampler, Cyclic | Trace):
        name = "no gain from sampling, as if every client took part in every round"
        return Law(name, "add or remove", _gaussian)
    raise ValueError(
        f"the cohort is {sampler}, which cannot be accounted for, as participation may depend on "
        f"the data; pass coin_flips(...), uniform_cohort(...) or everyone()."
    )


class Releases(NamedTuple):
    r"""Rounds whose models are released or inspected: an entry of a ledger.

    Attributes:
      cohort: who takes part.
      noise: the noise multiplier of a round. If n runs share their cohorts, it is :math:`z /
        \sqrt{n}`, the multiplier of all their releases together.
      num_rounds: number of rounds whose cohorts are drawn independently.
      bands: as for ``gaussian``; with several bands, all rounds belong to one run.

    Example:
      >>> import fcojax
      >>> ledger = [Releases(fcojax.everyone(), noise=2.0, num_rounds=30)]
    """

    cohort: Sampler
    noise: float
    num_rounds: int
    bands: tuple[float, ...] = (1.0,)


@validated
def releases(
    plan: Plan, num_rounds: Count, *, hparams: Any = None, num_runs: Count = 1
) -> Releases:
    """Return the releases of a number of runs of a plan, for a ledger.

    Args:
      plan: a plan whose chain has noise, as of ``gaussian``.
      num_rounds: number of rounds of each run.
      hparams: the hyperparameters, if the noise is a function of them.
      num_runs: number of runs with the same key, such as the points of a sweep. They have the same
        cohorts, so sampling hides a client from all of them or from none. Runs with other keys,
        such as other seeds, need separate entries.

    Example:
      >>> import fcojax
      >>> from fcojax import privacy
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uploads=privacy.gaussian(1.0, noise=2.0))
      >>> releases(plan, 10, num_runs=4).noise
      1.0
    """
    noise, known = together([multiplier_of(plan, hparams)] * num_runs), plan.uploads.noisy
    bands = known.bands if isinstance(known, Noise) else (1.0,)
    return Releases(plan.cohort, noise, num_rounds, bands)


@validated
def together(noises: Sequence[float]) -> float:
    r"""Return the noise multiplier of several releases about one cohort.

    Gaussian releases of :math:`z_1, z_2, \dots` about the same sum reveal as much as one release of
    :math:`(\sum_i z_i^{-2})^{-1/2}`.

    Args:
      noises: their noise multipliers.

    Example:
      >>> round(together([2.0] * 4), 6)
      1.0
    """
    if not all(noises):
        return 0.0
    return noises[0] if len(noises) == 1 else sum(noise**-2.0 for noise in noises) ** -0.5


@validated
def total_epsilon(ledger: Sequence[Releases], num_clients: Count, delta: Fraction) -> float:
    """Return the epsilon of everything that was released about the same clients.

    Args:
      ledger: the runs, including tuning. All are accounted for the same neighbours: a
        ``uniform_cohort`` cannot be combined with ``coin_flips`` or ``everyone``.
      num_clients: size of the population, which is public.
      delta: failure probability of (epsilon, delta)-privacy.

    Example:
      >>> total_epsilon([], num_clients=100, delta=1e-3)
      0.0
    """
    ledger = [entry for entry in ledger if entry.num_rounds]
    if not ledger:
        return 0.0
    if any(entry.noise == 0 for entry in ledger):
        return float("inf")
    laws = [law(entry.cohort, num_clients) for entry in ledger]
    if len({accounted.relation for accounted in laws}) > 1:
        raise ValueError(
            "the ledger has runs that are accounted for the replacement of a client, and others "
            "for one client more or less; pass each kind separately."
        )
    _warn_of(delta, num_clients)
    accountant = _accountant(laws[0])
    with _without_its_log():
        for accounted, entry in zip(laws, ledger, strict=True):
            accountant.compose(*_events(accounted, entry))
        return float(accountant.get_epsilon(delta))


@validated
def epsilon(
    plan: Plan,
    num_clients: Count,
    num_rounds: Count,
    delta: Fraction,
    *,
    hparams: Any = None,
    num_runs: Count = 1,
) -> float:
    """Return the epsilon of a plan after a number of rounds; infinity without noise.

    Args:
      plan: a plan whose chain has noise, as of ``gaussian``.
      num_clients: size of the population, which is public.
      num_rounds: number of rounds.
      delta: failure probability; below one over the number of clients.
      hparams: the hyperparameters, if the noise is a function of them.
      num_runs: runs whose results are released or inspected, such as the points of a sweep from
        which the best was taken; with the same key, as for ``releases``.

    Example:
      >>> import fcojax
      >>> plan = fcojax.Plan(fcojax.local_steps(1))
      >>> epsilon(plan, num_clients=100, num_rounds=10, delta=1e-3)
      inf
    """
    entry = releases(plan, num_rounds, hparams=hparams, num_runs=num_runs)
    return total_epsilon([entry], num_clients, delta)


@validated
def noise_for(
    target: Positive,
    delta: Fraction,
    cohort: Sampler,
    num_clients: Count,
    num_rounds: Count,
    *,
    num_runs: Count = 1,
) -> float:
    """Return the smallest noise multiplier whose epsilon is within a target.

    Args:
      target: the largest epsilon.
      delta: as for ``epsilon``, like all other arguments.
      cohort: who takes part.
      num_clients: size of the population.
      num_rounds: number of rounds.
      num_runs: number of runs.

    Example:
      >>> import fcojax
      >>> noise_for(2.0, 1e-3, fcojax.weighted_cohort(cohort_size=2), 100, 10)
      Traceback (most recent call last):
      ValueError: the cohort is WeightedCohort(cohort_size=2, power=1.0), which cannot be ...
    """
    accounted = law(cohort, num_clients)
    _warn_of(delta, num_clients)
    package = _package()

    def all_rounds(noise):
        if noise == 0:
            return package.NonPrivateDpEvent()
        event = accounted.event(together([noise] * num_runs))
        return package.SelfComposedDpEvent(event, num_rounds)

    guess = package.LowerEndpointAndGuess(0.0, 1.0)
    with _without_its_log():
        found = package.calibrate_dp_mechanism(
            lambda: _accountant(accounted), all_rounds, target, delta, guess
        )
    return float(found)


@validated
def rounds_within(
    target: Positive,
    delta: Fraction,
    plan: Plan,
    num_clients: Count,
    *,
    hparams: Any = None,
    num_runs: Count = 1,
    spent: Sequence[Releases] = (),
) -> int:
    """Return the largest number of rounds whose epsilon is within a budget; pass it to ``run``.

    Args:
      target: the largest epsilon.
      delta: as for ``epsilon``, like all other arguments.
      plan: a plan whose chain has noise.
      num_clients: size of the population.
      hparams: the hyperparameters.
      num_runs: number of runs.
      spent: earlier releases about these clients, such as from tuning.

    Example:
      >>> import fcojax
      >>> rounds_within(2.0, 1e-3, fcojax.Plan(fcojax.local_steps(1)), num_clients=100)
      0
    """

    def is_beyond(num_rounds):
        entry = releases(plan, num_rounds, hparams=hparams, num_runs=num_runs)
        return total_epsilon([*spent, entry], num_clients, delta) > target

    beyond = 1
    while beyond < 2**31 and not is_beyond(beyond):
        beyond *= 2
    return bisect.bisect_left(range(beyond), True, max(1, beyond // 2), key=is_beyond) - 1


@validated
def large_delta(delta: Fraction, num_clients: Count) -> str | None:
    """Return a warning if a delta is too large to protect a client; otherwise ``None``.

    A mechanism that publishes all data of one client, drawn at random, keeps delta = 1 / clients
    with an epsilon of 0.

    Args:
      delta: failure probability of (epsilon, delta)-privacy.
      num_clients: size of the population.

    Example:
      >>> large_delta(0.3, 3)
      'delta is 0.3 for 3 clients; pass one below 0.0333, a tenth of 1 / clients: ...'
    """
    if delta < 0.1 / num_clients:
        return None
    return (
        f"delta is {delta:.3g} for {num_clients} clients; pass one below {0.1 / num_clients:.3g}, "
        "a tenth of 1 / clients: with 1 / clients all data of one client may be published."
    )


def _warn_of(delta: float, num_clients: int) -> None:
    sentence = large_delta(delta, num_clients)
    if sentence is not None:
        warnings.warn(sentence, stacklevel=4)


@contextlib.contextmanager
def _without_its_log() -> Iterator[None]:
    """Ignore the accountant's log, a line for each order of Renyi divergence that it leaves out."""

    def is_not_its_own(record: logging.LogRecord) -> bool:
        return "dp_accounting" not in record.pathname

    logger = logging.getLogger("absl")
    logger.addFilter(is_not_its_own)
    try:
        yield
    finally:
        logger.removeFilter(is_not_its_own)


@validated
def multiplier_of(plan: Plan, hparams: Any) -> float:
    """Return the noise multiplier of a plan; 0 without noise.

    Args:
      plan: how rounds are run.
      hparams: the hyperparameters, if the noise is a function of them.

    Example:
      >>> import fcojax
      >>> multiplier_of(fcojax.Plan(fcojax.local_steps(1)), hparams=None)
      0.0
    """
    known = plan.uploads.noisy
    if not known:
        return 0.0
    if known is True:
        raise ValueError(
            "a transform of the plan does not say how much noise it adds; pass "
            "privacy.gaussian(...), or Facts(noisy=fcojax.extend.Noise(...)) in one of your own."
        )
    if any(one.facts.noisy and one.bound is None for one in plan.uploads.transforms):
        raise ValueError(
            "a transform of the plan adds noise and states no bound of an upload, without which "
            "nothing is private; pass UploadTransform(bound=...)."
        )
    # With a schedule, or inside of jit, there is no such number.
    return float(number(hparams, known.multiplier))


def _events(accounted: Law, entry: Releases) -> tuple[Any, int]:
    """Return an event and how often it happens."""
    if len(entry.bands) == 1:
        return accounted.event(entry.noise), entry.num_rounds
    cohort, num_bands = entry.cohort, len(entry.bands)
    if not isinstance(cohort, Cyclic) or cohort.num_groups < num_bands:
        raise ValueError(
            f"the noise has {num_bands} bands, so no client may come back within {num_bands} "
            f"rounds, and the cohort is {cohort}; pass cyclic(num_groups={num_bands}) or more."
        )
    # The rounds of one client change disjoint sets of rows of the released matrix.
    times = -(-entry.num_rounds // cohort.num_groups)
    return _gaussian(entry.noise / math.hypot(*entry.bands)), times


def _accountant(accounted: Law) -> Any:
    relations, replace = _package().NeighboringRelation, accounted.relation == "replace"
    return importlib.import_module("dp_accounting.rdp").RdpAccountant(
        neighboring_relation=relations.REPLACE_ONE if replace else relations.ADD_OR_REMOVE_ONE
    )


def _gaussian(noise: float) -> Any:
    return _package().GaussianDpEvent(noise)


def _package() -> Any:
    try:
        return importlib.import_module("dp_accounting")
    except ImportError as error:
        raise ImportError(
            "accounting needs the package dp-accounting; in a checkout pip install -e '.[privacy]'."
        ) from error
