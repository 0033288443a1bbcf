"""Privacy accounting of a sweep: epsilon in every row, and a ledger of all runs."""

import bisect
import functools
import hashlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from experiments.config.settings import Settings
from experiments.execution.jobs import Job
from experiments.process.invocation import UserError
from experiments.report.summary import curves
from experiments.storage.row_store import RowStore
from fcojax import Status, privacy
from fcojax.extend import Noise, num_points, take
from fcojax.privacy import multiplier_of, together
from fcojax.problems import ClientData

_OPEN = "measures, figures, checkpoints, and choices that are made by them"


def delta_of(settings: Settings, data: ClientData) -> float:
    """Return the delta of a sweep, by default the number of clients to the power of -1.1.

    Raises ``UserError`` for one client, whose default of 1 protects nothing.
    """
    if settings.keys.privacy_delta is not None:
        return settings.keys.privacy_delta
    if data.num_clients == 1:
        raise UserError(
            "privacy_delta is 1 by default with one client, which protects nothing; pass a number "
            "well below 1."
        )
    return data.num_clients**-1.1


def _noises(job: Job) -> list[float]:
    return [multiplier_of(job.plan, take(job.grid, point)) for point in range(num_points(job.grid))]


def epsilons_of(job: Job, settings: Settings) -> Callable[[int, int], float] | None:
    """Return ``(point, rounds) -> epsilon`` of one run; ``None`` for a job without noise."""
    known = job.plan.uploads.noisy
    if not known:
        return None
    if isinstance(known, Noise) and len(known.bands) > 1:
        raise UserError("noise with bands is accounted by privacy.epsilon, and not in a sweep.")
    noises, delta = _noises(job), delta_of(settings, job.train)

    @functools.cache
    def epsilon(noise: float, rounds: int) -> float:
        entry = privacy.Releases(job.plan.cohort, noise, rounds)
        return _total([entry], job.train, delta)

    return lambda point, rounds: epsilon(noises[point], rounds)


def within_budget(jobs: Sequence[Job], settings: Settings) -> tuple[Settings, str | None]:
    """Return the settings with the rounds that the budget allows, and a message if it allows fewer.

    All points, seeds and algorithms share the budget, including points that a search stops early.
    """
    keys, budget = settings.keys, settings.keys.privacy_budget
    if budget is None:
        return settings, None
    if keys.extend:
        raise UserError(
            "privacy_budget and extend contradict, as the number of runs is unknown; pass one."
        )
    delta, data = delta_of(settings, jobs[0].train), jobs[0].train
    # Each algorithm and seed has its own cohorts, which its points share.
    noises = [(job.plan.cohort, together(_noises(job))) for job in jobs]

    def spent(num_rounds: int) -> float:
        each = num_rounds * len(keys.seeds)
        return _total([privacy.Releases(*pair, each) for pair in noises], data, delta)

    # The number of rounds from 1 on whose epsilon is within the budget.
    rounds = bisect.bisect_right(range(1, keys.num_rounds + 1), budget, key=spent)
    if rounds >= keys.num_rounds:
        return settings, None
    detail = (
        f"the budget is an epsilon of {budget:g} at delta {delta:g}, of which "
        f"{spent(rounds):.4g} is spent by then"
    )
    if not rounds:
        number = len(keys.seeds) * sum(num_points(job.grid) for job in jobs)
        raise UserError(f"no round is allowed to {number} runs, as {detail}; add noise or clients.")
    last = min(keys.criterion_rounds, rounds)
    fewer = keys._replace(num_rounds=rounds, criterion_rounds=last)
    return settings._replace(keys=fewer), f"All runs {Status.SPENT.sentence(rounds, detail)}."


def ledger(jobs: Sequence[Job], settings: Settings, store: RowStore) -> dict[str, Any]:
    """Return the privacy cost of all runs together, counting every round that was evaluated."""
    data, delta = jobs[0].train, delta_of(settings, jobs[0].train)
    largest, runs, entries = 0.0, [], []
    for job in jobs:
        same = defaultdict(list)  # the points of a seed have the same cohorts
        for point, seeds in curves(store.rows[job.label], job.grid._fields).items():
            hparams = type(job.grid)(*point)
            noise = multiplier_of(job.plan, hparams) if job.plan.uploads.noisy else 0.0
            for seed, curve in seeds.items():
                entry = privacy.Releases(job.plan.cohort, noise, curve[-1]["round"])
                largest = max(largest, _total([entry], data, delta))
                same[seed].append(entry)
        runs += [entry for of_seed in same.values() for entry in of_seed]
        entries += [entry for of_seed in same.values() for entry in side_by_side(of_seed)]
    total, large = _total(entries, data, delta), privacy.large_delta(delta, data.num_clients)
    endless = "infinite, as there are runs without noise"
    one, every = (epsilon if np.isfinite(epsilon) else endless for epsilon in (largest, total))
    laws = {privacy.law(entry.cohort, data.num_clients) for entry in entries}
    return {
        "accounted as": "; ".join(sorted({law.name for law in laws})),
        "neighbours": "; ".join(sorted({f"{law.relation} a client" for law in laws})),
        "delta": delta,
        "runs with visible results": len(runs),
        "rounds of all of them": sum(entry.num_rounds for entry in runs),
        "largest epsilon of one run": one,
        "epsilon of all together, with the choice of the best": every,
        "not protected": _OPEN,
    } | ({"large delta": f"{large[0].upper()}{large[1:]}"} if large else {})


def side_by_side(runs: Sequence[privacy.Releases]) -> list[privacy.Releases]:
    """Return the ledger entries of runs that share their cohorts, of which some stop earlier."""
    entries, first = Counter(), 0
    for last in sorted({run.num_rounds for run in runs}):
        noise = together([run.noise for run in runs if run.num_rounds >= last])
        entries[noise] += last - first
        first = last
    return [privacy.Releases(runs[0].cohort, noise, num) for noise, num in entries.items()]


def _total(entries: Sequence[privacy.Releases], data: ClientData, delta: float) -> float:
    with warnings.catch_warnings():  # a large delta is on the page
        warnings.filterwarnings("ignore", "delta is .* clients")
        return privacy.total_epsilon(entries, data.num_clients, delta)


def fingerprint_of(data: ClientData) -> str:
    """Return a hash of all examples, sizes and weights."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves((data.examples, data.offsets, data.weights)):
        array = np.ascontiguousarray(leaf)
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()
