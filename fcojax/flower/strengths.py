"""Paths of strengths over sites, and the choice of one: the solves of ``fcojax.path`` as rounds."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import validated
from fcojax.engine.hparams import at_round
from fcojax.engine.optimality import violation_at
from fcojax.engine.solve import Outcome
from fcojax.flower.federation import Federation
from fcojax.flower.joining import Site
from fcojax.flower.loop import Report, Transport, drawn_name, met
from fcojax.flower.server import Progress, Server
from fcojax.flower.site import SOLVE
from fcojax.selection import Criterion, Ledger, Path, Selection, by_client
from fcojax.selection.folds import Fraction, Split
from fcojax.selection.ledger import Entry
from fcojax.selection.path import grid_of
from fcojax.selection.select import choice, draw_folds, standard_error
from fcojax.selection.solves import (
    Fits,
    Start,
    ahead,
    beyond_all,
    cast_like,
    key_of_fold,
    null_key,
    prox_gradient_step,
)
from fcojax.transforms import Penalty
from fcojax.types import Array, Count, Key, NonNegative, Params

_BLOW_UP = 1e8  # as in fcojax.solve
_TRIES = 3  # exchanges of gradients before a site that is silent ends the path


@validated
def path(
    federation: Federation,
    transport: Transport,
    key: Key,
    *,
    strengths: int | Sequence[float] | np.ndarray = 50,
    least: Fraction = 1e-2,
    tolerance: NonNegative = 1e-6,
    eval_every: Count = 10,
    max_rounds: Count = 10_000,
    run: str | None = None,
    progress: Report | None = None,
) -> Path:
    """Fit a model for each strength of the federation's penalty, as ``fcojax.path`` does.

    Each solve is a run of its own for the sites, which starts where the line through the last two
    models leads. The start point of the federation gives only the shapes, and its hyperparameters
    all numbers but ``penalty_scale``: a rate is not searched for. The models are those of
    ``fcojax.path`` with the same algorithm, plan and key.

    Args:
      federation: what is agreed on, with a loss and a penalty.
      transport: how messages travel.
      key: PRNG key, the only source of randomness.
      strengths: how many, or the strengths themselves, in the order in which they are solved.
      least: the last strength as a share of the first, if ``strengths`` is a number.
      tolerance: on the violation of the optimality conditions, in units of the first strength.
      eval_every: rounds between two evaluations of the violation.
      max_rounds: for each strength, rounded up to a multiple of ``eval_every``.
      run: a name of the path, by which sites keep their states; drawn if it is ``None``.
      progress: called after each solve with its strength, rounds and violation.

    Returns:
      The path. Its ledger has the bytes of all messages.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax import flower
      >>> from fcojax.transforms import euclidean, l1
      >>> loss = lambda w, rows: 0.5 * (rows["x"] @ w - rows["y"]) ** 2
      >>> method = fcojax.algorithms.fed_mid_osp(loss, euclidean(l1()))
      >>> federation = flower.Federation(
      ...     method, fcojax.local_steps(1), method.hparams_type(client_lr=2.0), jnp.zeros(2),
      ...     loss, l1())
      >>> rows = {"Ghent": {"x": np.eye(2), "y": np.array([4.0, 1.0])},
      ...         "Lima": {"x": np.eye(2), "y": np.array([2.0, 1.0])}}
      >>> found = flower.path(
      ...     federation, flower.in_process(federation, rows), jax.random.key(0), strengths=3,
      ...     least=0.25, eval_every=1)
      >>> found.strengths.tolist(), found.num_nonzero.tolist()
      ([1.5, 0.75, 0.375], [0, 1, 2])
    """
    run = run or drawn_name()
    sites = met(_judgeable(federation), transport, run)
    solves = _Solves(federation, transport, sites, run, eval_every, max_rounds, progress)
    grid, relative = grid_of(_penalty(federation), strengths, least)
    return _path(solves, key, grid, relative, tolerance)[0]


@validated
def select(
    federation: Federation,
    transport: Transport,
    key: Key,
    *,
    by: Split | Criterion | None = None,
    one_standard_error: bool = True,
    strengths: int | Sequence[float] | np.ndarray = 50,
    least: Fraction = 1e-2,
    tolerance: NonNegative = 1e-5,
    eval_every: Count = 10,
    max_rounds: Count = 10_000,
    run: str | None = None,
    progress: Report | None = None,
) -> Selection:
    """Choose the strength of the federation's penalty, as ``fcojax.select`` does.

    Folds hold out sites, one path after the other; a held-out site sends its loss at each model.
    There is no refit.

    Args:
      federation: what is agreed on, with a loss and a penalty.
      transport: how messages travel.
      key: PRNG key, the only source of randomness.
      by: ``selection.by_client()``, the default, ``by_client(k)``, ``hold_out(share,
        clients=True)``, or a criterion; not folds of rows, which no message asks for.
      one_standard_error: as for ``fcojax.select``.
      strengths: how many, or the strengths themselves, in the order in which they are solved.
      least: the last strength as a share of the first, if ``strengths`` is a number.
      tolerance: on the violation of the optimality conditions, in units of the first strength.
      eval_every: rounds between two evaluations of the violation.
      max_rounds: for each strength, rounded up to a multiple of ``eval_every``.
      run: a name of the choice, by which sites keep their states; drawn if it is ``None``.
      progress: called after each solve with its strength, rounds and violation.

    Returns:
      The path on all sites, the scores and the choice.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax import flower
      >>> from fcojax.transforms import euclidean, l1
      >>> loss = lambda w, rows: 0.5 * (rows["x"] @ w - rows["y"]) ** 2
      >>> method = fcojax.algorithms.fed_mid_osp(loss, euclidean(l1()))
      >>> federation = flower.Federation(
      ...     method, fcojax.local_steps(1), method.hparams_type(client_lr=2.0), jnp.zeros(2),
      ...     loss, l1())
      >>> rows = {"Ghent": {"x": np.eye(2), "y": np.array([4.0, 1.0])},
      ...         "Lima": {"x": np.eye(2), "y": np.array([2.0, 1.0])}}
      >>> found = flower.select(
      ...     federation, flower.in_process(federation, rows), jax.random.key(0), strengths=3,
      ...     least=0.25, eval_every=1)
      >>> found.scores.shape, found.strength  # each site judges the path of the other
      ((2, 3), 0.75)
    """
    by = by_client() if by is None else by
    run = run or drawn_name()
    sites = met(_judgeable(federation), transport, run)
    solves = _Solves(federation, transport, sites, run, eval_every, max_rounds, progress)
    grid, relative = grid_of(_penalty(federation), strengths, least)
    found, unit = _path(solves, key, grid, relative, tolerance)
    models = _each(found.models, found.strengths.size)
    if isinstance(by, Criterion):
        sizes = np.array([site.num_examples for site in sites], float)
        losses = solves.on(sizes, "validation").losses(models)
        size = sum(leaf.size for leaf in jax.tree.leaves(models[0]))
        nonzero = np.asarray(found.num_nonzero)
        scores = by.scores(losses, nonzero, float(sizes.sum()), size)[None]
        name, outcome = by.name, None
    else:
        folds = draw_folds(by, solves.server.data, key, 1)
        if folds.train.rows is not None:
            raise ValueError(
                "the folds divide the rows of sites, which no message asks for; pass "
                "by_client(), hold_out(share, clients=True) or a criterion."
            )
        rows, outcomes = [], []
        plan, parts = federation.plan, zip(folds.train.clients, folds.held.clients, strict=True)
        for index, (train, held) in enumerate(parts):
            fold = solves.on(np.asarray(train), "tune paths")
            own = key_of_fold(plan, key, index)
            of_fold, _ = _path(fold, own, np.asarray(found.strengths), False, tolerance, unit)
            models = _each(of_fold.models, found.strengths.size)
            rows.append(solves.on(np.asarray(held), "validation").losses(models))
            outcomes.append(of_fold.outcome)
        scores = np.array(rows)
        name, outcome = "loss on held-out data", _stacked(outcomes)
    mean, error = scores.mean(axis=0), standard_error(scores, 1)
    best, chosen = choice(mean, error, np.asarray(found.strengths), one_standard_error)
    ledger = solves.ledger()
    model = jax.tree.map(lambda leaf: leaf[chosen], found.models)
    return Selection(
        found._replace(ledger=ledger), name, scores, mean, error, best, chosen, model, None, None,
        ledger, outcome,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Solves:
    """Solves and exchanges over the sites, whose messages are counted."""

    federation: Federation
    transport: Transport
    sites: list[Site]
    run: str
    eval_every: int
    max_rounds: int
    report: Report | None
    part: str = "path"
    # Shared with those on other weights:
    numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)
    entries: dict[str, Entry] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def server(self) -> Server:
        return Server(self.federation, self.sites, self.run)

    def on(self, weights: np.ndarray, part: str) -> "_Solves":
        """Return the same with other weights of the sites; a site of weight 0 is not asked."""
        federation = dataclasses.replace(self.federation, weights=weights)
        return dataclasses.replace(self, federation=federation, part=part)

    def ledger(self) -> Ledger:
        """Return the bytes of all messages so far."""
        return Ledger(tuple(self.entries.values()), tuple(site.name for site in self.sites))

    def exchange(self, params: Params) -> tuple[Array, Params]:
        """Return the losses of the sites and the gradient of F at a point."""
        for _ in range(_TRIES):
            index = str(next(self.numbers))
            replies = self._sent(self.server.ask_gradient(params, index))
            found = self.server.gradient(params, index, replies)
            if found is not None:
                return found
        raise ValueError(
            f"a site has not sent its gradient in {_TRIES} exchanges; start it again, or wait "
            "longer for answers."
        )

    def losses(self, models: Sequence[Params]) -> np.ndarray:
        """Return the mean loss of each model."""
        return np.array([float(self.server.mean(self.exchange(w)[0])) for w in models])

    def solve(self, start: Start, strength: Array, key: Key, tolerance: Any) -> tuple[Start, Fits]:
        """Solve for one strength; return where the next solve starts, too."""
        federation, before = self.federation, self._billed()
        model, hparams = ahead(start, strength), federation.hparams
        hparams = hparams._replace(penalty_scale=cast_like(strength, hparams.penalty_scale))
        restart, memory = federation.algorithm.restart, None
        if restart is not None:
            of_first = at_round(hparams, 0)
            model, subgradient = prox_gradient_step(
                _penalty(federation), of_first.client_lr, model, strength, self.exchange(model)[1]
            )
            memory = restart(of_first, model, subgradient, self.eval_every)
        federation = dataclasses.replace(federation, hparams=hparams, params=model)
        server = Server(federation, self.sites, f"{self.run}{SOLVE}{next(self.numbers)}")
        now = server.start(key)
        if memory is not None:
            now = now._replace(server=memory)
        found, objective, violation = self._judged(server, now, strength)
        first, checks, failed = violation, 1, not np.isfinite(violation)
        while not (failed or violation <= tolerance) and now.round < self.max_rounds:
            measures: dict[str, float] = {}
            for _ in range(self.eval_every):
                now, measures = server.step(now, self._sent(server.ask(now)))
            found, objective, violation = self._judged(server, now, strength)
            failed = 0 < measures["participants"] <= measures["dropped"]
            failed |= measures["refused"] > 0 or not violation <= _BLOW_UP * first
            checks += 1
        self._bill(np.zeros_like(before), now.round)
        down, up = self._billed() - before
        outcome = Outcome(
            jnp.asarray(violation), jnp.asarray(now.round, jnp.int32), jnp.asarray(checks),
            jnp.asarray(not failed and violation <= tolerance), jnp.asarray(failed),
            jnp.asarray(down), jnp.asarray(up), jnp.zeros((), bool),
        )  # fmt: skip
        if self.report is not None:
            ended = {"rounds": float(now.round), "violation": violation}
            self.report({"strength": float(strength), **ended})
        is_sound = not failed and bool(tree.all_finite(found))
        last = found if is_sound else start.model
        following = Start(last, strength, (start.model, start.strength), ())
        return following, Fits(found, objective, outcome)

    def _judged(
        self, server: Server, now: Progress, strength: Array
    ) -> tuple[Params, Array, float]:
        """Return the model, its objective and its violation."""
        model, penalty = server.model(now), _penalty(self.federation)
        losses, gradient = self.exchange(model)
        objective = self.server.mean(losses) + penalty.value(model, strength)
        return model, objective, float(violation_at(gradient, penalty, strength, model))

    def _sent(self, messages: dict[str, bytes]) -> dict[str, bytes]:
        """Exchange messages, and count their bytes."""
        replies, names = self.transport.exchange(messages), [site.name for site in self.sites]
        sent = [[len(each.get(name, b"")) for name in names] for each in (messages, replies)]
        self._bill(np.array(sent), 0)
        return replies

    def _bill(self, sent: np.ndarray, rounds: int) -> None:
        """Add bytes [down and up, sites] and rounds to those of this part so far."""
        before = self.entries[self.part].rounds if self.part in self.entries else 0
        down, up = self._billed() + sent
        self.entries[self.part] = Entry(self.part, down, up, before + rounds)

    def _billed(self) -> np.ndarray:
        """Return the bytes of this part so far, axes [down and up, sites]."""
        entry = self.entries.get(self.part)
        return np.zeros((2, len(self.sites))) if entry is None else np.array(entry[1:3])


def _path(
    solves: _Solves, key: Key, grid: np.ndarray, relative: bool, tolerance, unit: Any = None
) -> tuple[Path, Any]:
    """Return the path, and the strength in whose units the tolerance is."""
    penalty, zeros = _penalty(solves.federation), tree.zeros_like(solves.federation.params)
    nowhere = beyond_all(tree.norm(zeros).dtype)
    start, first = Start(zeros, nowhere, (zeros, nowhere), ()), jnp.ones_like(nowhere)
    if penalty.scale_max is not None:
        guess = penalty.scale_max(solves.exchange(zeros)[1])
        first_key = jax.random.fold_in(null_key(key), 0)
        _, null = solves.solve(start, beyond_all(guess.dtype), first_key, tolerance * guess)
        first = penalty.scale_max(solves.exchange(null.models)[1])
        start = Start(null.models, nowhere, (null.models, nowhere), ())
    strengths = jnp.asarray(grid, first.dtype) * (first if relative else 1)
    if unit is None:
        tiny = jnp.finfo(first.dtype).tiny
        unit = first if relative else jnp.maximum(jnp.max(strengths), tiny)
    fits = []
    for index, strength in enumerate(strengths):
        each_key = jax.random.fold_in(key, index)
        start, fit = solves.solve(start, strength, each_key, tolerance * unit)
        fits.append(fit)
    every = _stacked(fits)
    return Path(strengths, every.models, every.objective, every.outcome, solves.ledger()), unit


def _judgeable(federation: Federation) -> Federation:
    """Raise ``ValueError`` unless the federation has what a path needs."""
    if federation.loss is None or not hasattr(federation.hparams, "penalty_scale"):
        raise ValueError(
            "a path needs the violation and a strength; pass Federation(..., loss=loss, "
            "penalty=penalty) and an algorithm with a penalty_scale."
        )
    return federation


def _penalty(federation: Federation) -> Penalty:
    assert federation.penalty is not None
    return federation.penalty


def _each(models: Params, count: int) -> list[Params]:
    return [jax.tree.map(lambda leaf, i=i: leaf[i], models) for i in range(count)]


def _stacked(parts: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
