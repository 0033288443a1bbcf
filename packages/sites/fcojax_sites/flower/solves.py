"""The solves of a path over sites. Each solve is a separate run, and its messages are counted."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fcojax import ClientData, tree
from fcojax.extend import Outcome, violation_at
from fcojax.transforms import Penalty
from fcojax.types import Array, Key, Params
from fcojax_sites.flower.answers import Judge
from fcojax_sites.flower.federation import Federation
from fcojax_sites.flower.joining import Site
from fcojax_sites.flower.loop import Report, Transport, num_bytes
from fcojax_sites.flower.server import Gradients, Server, ServerProgress
from fcojax_sites.flower.site import SOLVE
from fcojax_sites.selection import (
    Entry,
    Fits,
    Folds,
    Ledger,
    Solver,
    Split,
    Start,
    draw_folds,
)

_TRIES = 3  # exchanges of gradients before a silent site ends the path
# Rounds in a row: one site may be silent in some, and each of them costs the timeout.
_ROUNDS = 10


@dataclasses.dataclass(frozen=True)
class Solves:
    """Solves and exchanges over the sites, whose messages are counted."""

    federation: Federation
    transport: Transport
    sites: list[Site]
    run: str
    eval_every: int
    max_rounds: int
    report: Report | None
    part: str = "path"
    # Shared with the copies that `on` returns:
    numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)
    entries: dict[str, Entry] = dataclasses.field(default_factory=dict)
    judge: Judge = dataclasses.field(default_factory=Judge)

    @functools.cached_property
    def server(self) -> Server:
        return Server(self.federation, self.sites, self.run, self.judge)

    def on(self, weights: np.ndarray, part: str) -> "Solves":
        """Return a copy with other weights of the sites; a site of weight 0 is not asked."""
        federation = dataclasses.replace(self.federation, weights=weights)
        return dataclasses.replace(self, federation=federation, part=part)

    def ledger(self) -> Ledger:
        """Return the bytes of all messages so far."""
        return Ledger(tuple(self.entries.values()), tuple(site.name for site in self.sites))

    def exchange(self, params: Params) -> Gradients:
        """Return the losses of the sites and the gradient of F at a point."""
        for _ in range(_TRIES):
            index = str(next(self.numbers))
            replies = self._sent(self.server.ask_gradient(params, index))
            found = self.server.gradient(params, index, replies)
            if found is not None:
                return found
        missing = self.judge.silent("certificate", 1)
        raise ValueError(_silent(self.judge, missing, f"sent its gradient in {_TRIES} exchanges"))

    def losses(self, models: Sequence[Params]) -> np.ndarray:
        """Return the mean loss of each model."""
        return np.array([float(self.server.mean(self.exchange(w).losses)) for w in models])

    def solver(self) -> Solver:
        """Return the solver of a path over the sites."""

        def gradient(params):
            found = self.exchange(params)
            if found.nonfinite:  # the first strength, and with it all others, would be NaN
                raise ValueError(
                    f"the loss or gradient of site {found.nonfinite[0]} is not finite at the start "
                    "of the path; look at its rows."
                )
            return self.server.mean(found.losses), found.gradient

        return Solver(
            penalty_of(self.federation),
            len(self.sites),
            gradient,
            begin=lambda params, key: Start.first(params),
            solve=self.solve,
        )

    def solve(self, start: Start, strength: Array, key: Key, tolerance: Any) -> tuple[Start, Fits]:
        """Solve for one strength; return the start of the next solve, and the fit."""
        federation, before = self.federation, self._billed()
        model, hparams = start.extrapolated(strength), federation.hparams
        scale = jnp.asarray(strength, jnp.asarray(hparams.penalty_scale).dtype)
        hparams = hparams._replace(penalty_scale=scale)
        federation = dataclasses.replace(federation, hparams=hparams, params=model)
        run = f"{self.run}{SOLVE}{next(self.numbers)}"
        server = Server(federation, self.sites, run, self.judge)
        now = server.start(key)
        found, objective, violation = self._judged(server, now, strength)
        first, checks, failed = violation, 1, not np.isfinite(violation)
        while not (failed or violation <= tolerance) and now.round < self.max_rounds:
            measures: dict[str, float] = {}
            for _ in range(self.eval_every):
                now, measures = server.step(now, self._sent(server.ask(now)))
                missing = self.judge.silent("round", _ROUNDS)
                if missing:
                    what = f"sent an upload in {_ROUNDS} rounds"
                    raise ValueError(_silent(self.judge, missing, what))
            found, objective, violation = self._judged(server, now, strength)
            failed = bool(has_failed(measures, violation, first)) or not np.isfinite(violation)
            checks += 1
        self._bill(np.zeros_like(before), now.round)
        down, up = self._billed() - before
        outcome = Outcome(
            violation=jnp.asarray(violation),
            rounds=jnp.asarray(now.round, jnp.int32),
            checks=jnp.asarray(checks),
            solved=jnp.asarray(not failed and violation <= tolerance),
            diverged=jnp.asarray(failed),
            bytes_down=jnp.asarray(down),
            bytes_up=jnp.asarray(up),
        )
        if self.report is not None:
            ended = {"rounds": float(now.round), "violation": violation}
            self.report({"strength": float(strength), **ended})
        is_sound = not failed and bool(tree.all_finite(found))
        return start.after(found, strength, is_sound), Fits(found, objective, outcome)

    def _judged(
        self, server: Server, now: ServerProgress, strength: Array
    ) -> tuple[Params, Array, float]:
        """Return the model, its objective and its violation."""
        model, penalty = server.model(now), penalty_of(self.federation)
        losses, gradient, _ = self.exchange(model)
        objective = self.server.mean(losses) + penalty.value(model, strength)
        return model, objective, float(violation_at(gradient, penalty, strength, model))

    def _sent(self, messages: dict[str, bytes]) -> dict[str, bytes]:
        """Exchange messages, and count their bytes."""
        replies, names = self.transport.exchange(messages), [site.name for site in self.sites]
        sent = [[num_bytes(each.get(name)) for name in names] for each in (messages, replies)]
        self._bill(np.array(sent), 0)
        return replies

    def _bill(self, sent: np.ndarray, rounds: int) -> None:
        """Add bytes [down and up, sites] and rounds to the totals of this part."""
        before = self.entries[self.part].rounds if self.part in self.entries else 0
        down, up = self._billed() + sent
        self.entries[self.part] = Entry(self.part, down, up, before + rounds)

    def _billed(self) -> np.ndarray:
        """Return the bytes of this part so far, axes [down and up, sites]."""
        entry = self.entries.get(self.part)
        return np.zeros((2, len(self.sites))) if entry is None else np.array(entry[1:3])


def _silent(judge: Judge, sites: list[str], what: str) -> str:
    which = f"site {sites[0]} has" if len(sites) == 1 else f"sites {', '.join(sites)} have"
    return f"{which} not {what}; start it again, or wait longer for answers.{judge.fault(sites)}"


def folds_of_sites(by: Split, data: ClientData, key: Key) -> Folds:
    """Return the folds; raise ``ValueError`` if they divide the rows of a site."""
    folds = draw_folds(by, data, key, 1)
    if folds.train.rows is not None:
        raise ValueError(
            "the folds divide the rows of sites, and no message asks for a part of them; pass "
            "by_client(), hold_out(share, clients=True) or a criterion."
        )
    return folds


def penalty_of(federation: Federation) -> Penalty:
    """Return the penalty of a federation that has one."""
    assert federation.penalty is not None
    return federation.penalty


def has_failed(counts: Any, violation: Any, first: Any) -> bool:
    """Return whether a solve cannot go on."""
    none_finite = counts["participants"] > 0 and counts["dropped"] >= counts["participants"]
    return none_finite or counts["refused"] > 0 or violation > 1e8 * first
