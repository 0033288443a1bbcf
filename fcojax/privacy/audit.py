r"""An audit: a lower bound of epsilon, from many runs with and without one client.

A test that finds the client in a share TPR of the runs with it, and in a share FPR of those without
it, shows that :math:`\epsilon \ge \log((\mathrm{TPR} - \delta) / \mathrm{FPR})`. Half of the runs
choose the test, and the other half bounds both shares.

Jagielski, Ullman and Oprea, "Auditing differentially private machine learning: how private is
private SGD?", NeurIPS 2020.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import ClientData, Plan, tree
from fcojax.algorithms import Algorithm
from fcojax.arguments import validated
from fcojax.engine.hparams import as_arrays, is_schedule, num_points, take
from fcojax.engine.members import folded_by
from fcojax.engine.participation.samplers import DerivedSampler
from fcojax.privacy.accounting import law, releases, together, total_epsilon
from fcojax.types import Array, Count, CountOrZero, Fraction, Key, Params, PyTree
from fcojax.uploads.chain import chain
from fcojax.uploads.transform import Sent, UploadTransform

# Far beyond any clipping norm, so that the client sends as much as it may.
_LARGE = 1e3
_MOST_ENTRIES = 10  # entries of the server's state that are tested one by one
_RUNS_EACH, _RIDGE = 5, 1e-9  # runs for each entry of a joint spread; relative to its diagonal
_THRESHOLDS = np.linspace(0.005, 0.995, 100)


class Audit(NamedTuple):
    """The result of ``audit``.

    Attributes:
      lower: epsilon is at least this, with the given confidence.
      promised: the epsilon of ``privacy.epsilon``; if it is below ``lower``, there is an error.
      statistic: the statistic that distinguished the two populations best, in words.
      threshold: the value above which, or below which, a run counts as one with the client.
    """

    lower: float
    promised: float
    statistic: str
    threshold: float


@validated
def audit(
    algorithm: Algorithm,
    hparams: Any,
    params: Params,
    data: ClientData,
    client: CountOrZero,
    plan: Plan,
    *,
    num_rounds: Count,
    delta: Fraction,
    key: Key,
    num_runs: Count = 1000,
    released: Sequence[str] = (),
    confidence: Fraction = 0.99,
) -> Audit:
    """Return a lower bound of epsilon, from runs with one client and without it.

    In place of its own uploads, on which privacy must not depend, the client sends a large random
    vector, another one in each round and at each point of a grid. The neighbour follows
    ``privacy.law``: the population in which it never takes part, or the one in which it sends the
    opposite vectors. An attacker sees the server's state and the model after every round. A bound
    above ``promised`` shows an error in the transforms or their accounting; one below it proves
    nothing.

    Args:
      algorithm: the algorithm of the audited runs.
      hparams: its hyperparameters; or a grid of several points, all of which are released.
      params: the start point.
      data: the clients; a small population suffices.
      client: index of the client.
      plan: a plan whose chain adds noise.
      num_rounds: number of rounds.
      delta: failure probability of (epsilon, delta)-privacy.
      key: PRNG key of the audit.
      num_runs: runs of each population, at least 4. With n of them no bound exceeds about the
        logarithm of n / 10.
      released: entries of the history that the attacker sees too, such as ``"refused"``. Numbers
        of clients, bytes and measures are not protected, and an audit finds that.
      confidence: probability that the bound holds.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax import privacy
      >>> data = fcojax.from_clients([{"a": np.array([a])} for a in (1.0, 2.0, 3.0)])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uploads=privacy.gaussian(1.0, noise=2.0))
      >>> found = privacy.audit(
      ...     fed_avg, fed_avg.hparams_type(), jnp.array(0.0), data, 0, plan,
      ...     num_rounds=1, delta=1e-2, key=jax.random.key(0), num_runs=100)
      >>> found.lower <= found.promised
      True
    """
    if client >= data.num_clients or num_runs < 4:
        raise ValueError(
            f"client is {client} of {data.num_clients} and num_runs {num_runs}; pass an index "
            "below the number of clients, and at least 4 runs."
        )
    grid = _as_grid(hparams)
    as_arrays(grid, sweeping=True)
    entries = [releases(plan, num_rounds, hparams=take(grid, i)) for i in range(num_points(grid))]
    entry = entries[0]._replace(noise=together([entry.noise for entry in entries]))
    promised = total_epsilon([entry], data.num_clients, delta)

    direction, key = jax.random.split(key)
    present = _with_planted(plan, client, direction, 1.0)
    if law(plan.cohort, data.num_clients).relation == "replace":
        absent = _with_planted(plan, client, direction, -1.0)
    else:
        absent = present._replace(cohort=_Without(plan.cohort, client))
    keys = jax.random.split(key, 2 * num_runs)
    seen = [
        _seen(algorithm, grid, params, data, own, its_plan, num_rounds, released)
        for its_plan, own in ((present, keys[:num_runs]), (absent, keys[num_runs:]))
    ]
    names, (choosing, bounding) = _statistics(seen[0], seen[1], num_runs // 2)
    # Some runs choose a statistic, a threshold and a side, and the others bound epsilon.
    thresholds = np.quantile(np.concatenate(choosing), _THRESHOLDS, axis=0)
    bounds = _bounds(choosing, thresholds, delta, 1 - confidence)
    side, row, column = np.unravel_index(np.argmax(bounds), bounds.shape)
    threshold = thresholds[row, column]
    own = tuple(values[:, [column]] for values in bounding)
    lower = _bounds(own, np.array([[threshold]]), delta, 1 - confidence)[side, 0, 0]
    return Audit(max(0.0, float(lower)), promised, names[column], float(threshold))


@dataclasses.dataclass(frozen=True)
class _Without(DerivedSampler):
    """A sampler of a population in which one client never takes part; the mean size is public."""

    client: int

    def draw(self, key, round_index, num_clients, sizes=None):
        drawn = self.sampler.draw(key, round_index, num_clients, sizes)
        return drawn._replace(present=drawn.present & (drawn.indices != self.client))

    @property
    def can_be_absent(self) -> bool:
        return True


def _with_planted(plan: Plan, client: int, key: Key, sign: float) -> Plan:
    """Return the plan in which one client sends random vectors that are the same in all runs."""

    def send(at, payload, state):
        # If rounds or points shared their noise, their difference would be that of these vectors.
        own = folded_by(jax.random.fold_in(key, at.round), at.hparams)
        keys = jax.random.split(own, max(1, len(payload)))
        sent = [
            sign * _LARGE * jax.random.normal(own, leaf.shape, leaf.dtype)
            for leaf, own in zip(payload, keys, strict=False)
        ]
        return Sent(tree.where(at.client == client, sent, payload), state)

    return plan._replace(uploads=chain(UploadTransform("planted", send=send), plan.uploads))


def _seen(algorithm, grid, params, data, keys, plan, num_rounds, released) -> dict[str, np.ndarray]:
    """Return what an attacker sees in each run, a vector by the name of what it is."""

    def observe(hparams, server, context):
        model = algorithm.model(hparams, server)
        return {"seen_state": _as_vector(server), "seen_model": _as_vector(model)}

    whole = algorithm._replace(model=lambda hparams, server: server)
    _, history = fcojax.sweep(
        whole, grid, params, data, keys, plan, num_rounds=num_rounds, observe=observe
    )
    # The runs first: [runs, points, rounds, entries].
    states, models, *others = (
        np.moveaxis(np.asarray(history[name], float), 1, 0)
        for name in ("seen_state", "seen_model", *released)
    )
    seen = {
        "the steps of the server's state": np.diff(states, axis=2, prepend=0),
        "the server's last state": states[:, :, -1],
        "the last model": models[:, :, -1],
        "the support of the models": (models != 0).astype(float),
    } | {f"history[{name!r}]": other for name, other in zip(released, others, strict=True)}
    return {
        name: np.nan_to_num(values.reshape(len(values), -1), nan=-1e30, posinf=1e30, neginf=-1e30)
        for name, values in seen.items()
    }


def _statistics(present: dict, absent: dict, half: int) -> tuple[list[str], list[tuple]]:
    """Return each statistic's name, and its columns on the choosing and on the bounding runs."""
    names, columns = [], ([], [])
    for name, *both in ((name, present[name], absent[name]) for name in present):
        first = [each[:half] for each in both]
        apart = first[0].mean(axis=0) - first[1].mean(axis=0)
        spread = first[0].var(axis=0) + first[1].var(axis=0)
        scale = np.where(spread > 0, spread, 1)
        # An entry that is constant in each of the two distinguishes them wherever it differs.
        ratio = np.where((spread == 0) & (apart != 0), np.inf, apart**2 / scale)
        best, along = np.argsort(-ratio)[:_MOST_ENTRIES], _direction(first, apart, scale)
        names += [f"{name}, along Fisher's direction", f"the sum of {name}"]
        names += [f"entry {index} of {name}" for index in best]
        for column, each in zip(columns, both, strict=True):
            column += [each @ along, each.sum(axis=1), *each[:, best].T]
    both = [np.stack(column, axis=1) for column in columns]
    parts = slice(half), slice(half, None)
    return names, [tuple(each[part] for each in both) for part in parts]


def _direction(both: list[np.ndarray], apart: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return Fisher's direction; with few runs for the number of entries, as if independent."""
    runs, size = both[0].shape
    if size * _RUNS_EACH > runs:
        return apart / scale
    # Noise that entries share is gone along some direction, so the spread may be singular.
    units = [(values - values.mean(axis=0)) / np.sqrt(scale) for values in both]
    spread = sum(values.T @ values / runs for values in units) + _RIDGE * np.eye(size)
    return np.linalg.solve(spread, apart / np.sqrt(scale)) / np.sqrt(scale)


def _bounds(both: tuple, thresholds: np.ndarray, delta: float, level: float) -> np.ndarray:
    """Return a bound for each side, threshold and statistic."""
    runs = len(both[0])
    least = _least_probabilities(runs, level / 2)  # the other share gets the same level
    most = 1 - least[::-1]
    found, falsely = ((values[None] > thresholds[:, None]).sum(axis=1) for values in both)
    sides = [(found, falsely), (falsely, found)]
    sides += [(runs - one, runs - other) for one, other in sides]
    with np.errstate(divide="ignore"):
        return np.stack(
            [np.log(np.maximum(least[one] - delta, 0) / most[other]) for one, other in sides]
        )


@functools.cache
def _least_probabilities(runs: int, level: float) -> np.ndarray:
    """Return Clopper and Pearson's lower bound of a probability for 0 to all successes of runs."""
    count = jnp.arange(1, runs + 1, dtype=jnp.result_type(float))

    def step(_, ends):
        low, high = ends
        middle = (low + high) / 2
        above = jax.scipy.special.betainc(count, runs + 1 - count, middle) > level
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    ends = jnp.zeros_like(count), jnp.ones_like(count)
    low, _ = jax.lax.fori_loop(0, 40, step, ends)
    return np.concatenate([[0.0], np.asarray(low, float)])


def _as_grid(hparams: PyTree) -> PyTree:
    """Return hyperparameters of one point as a grid, and a grid unchanged."""
    one = (np.ndim(x.values) == 1 if is_schedule(x) else np.ndim(x) == 0 for x in hparams)
    return jax.tree.map(lambda x: np.asarray(x)[None], hparams) if all(one) else hparams


def _as_vector(state: PyTree) -> Array:
    leaves = [jnp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(state)]
    return jnp.concatenate(leaves)
