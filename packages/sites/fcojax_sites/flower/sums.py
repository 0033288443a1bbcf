"""Exchanges of sums over the rows of each site: statistics, moments of a loss, and checks."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from fcojax.extend import validated
from fcojax.types import PyTree
from fcojax_sites.flower.federation import Federation
from fcojax_sites.flower.loop import Transport, drawn_name, met, num_bytes
from fcojax_sites.flower.server import Server
from fcojax_sites.selection import Entry, Ledger

_TRIES = 3  # exchanges before a silent site ends the run, and a faulty one is left out


class LeftOut(ValueError):
    """A site is left out, whose sums do not count; the others can be asked anew."""


class Sums:
    """The sites of a federation, asked for sums over their rows by name.

    A message has the name of one of ``federation.sums`` and arrays for it; the answer has what this
    function returns, and nothing else of the site's rows.

    Attributes:
      sites: the sites, sorted by name, without those that were left out.
      left_out: a sentence on each of those, by its name.
      server: reads the answers.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> from fcojax_sites import flower
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (w - rows["a"]) ** 2)
      >>> federation = flower.Federation(
      ...     fed_avg, fcojax.local_steps(1), fed_avg.hparams_type(), jnp.array(0.0),
      ...     sums={"above": lambda rows, given: {"n": jnp.sum(rows["a"] > given["cut"])}})
      >>> rows = {"Ghent": {"a": np.arange(3.0)}, "Lima": {"a": np.arange(9.0)}}
      >>> sites = flower.Sums(federation, flower.in_process(federation, rows))
      >>> sites.ask("above", {"cut": np.array(1.5)})["n"].tolist()
      [1, 7]
    """

    @validated
    def __init__(
        self,
        federation: Federation,
        transport: Transport,
        run: str | None = None,
        progress: Callable[[str], Any] | None = None,
    ):
        """Meet the sites.

        Args:
          federation: the ``Federation`` that the server and all sites build from the same code.
          transport: how messages travel.
          run: a name of the run; drawn if it is ``None``.
          progress: called after every exchange, with its part of the work.
        """
        run = run or drawn_name()
        self.sites = met(federation, transport, run)
        self.server, self._run = Server(federation, self.sites, run), run
        self._transport, self._numbers = transport, itertools.count()
        self._progress = progress or (lambda part: None)
        self._names = tuple(site.name for site in self.sites)
        self.left_out: dict[str, str] = {}
        self._entries: dict[str, Entry] = {}

    def ask(self, name: str, given: dict[str, Any] | None = None, part: str = "") -> PyTree:
        """Return the sums of all sites, with a leading axis of sites.

        A site whose answers arrive but do not count is left out after three of them. Then it raises
        a ``ValueError``, as what was computed from its sums has to be computed again.

        Args:
          name: the name among ``federation.sums``.
          given: arrays for the function.
          part: the part of the work in the ledger; by default the name.
        """
        given = {} if given is None else {key: np.asarray(one) for key, one in given.items()}
        replies: dict[str, bytes] = {}
        for _ in range(_TRIES):
            index = str(next(self._numbers))
            messages = self.server.ask_sums(name, given, index)
            replies = self._transport.exchange(messages)
            self._bill(part or name, messages, replies)
            self._progress(part or name)
            found = self.server.sums(name, given, index, replies)
            if found is not None:
                return found
        asked = {site.name for site in self.sites}
        missing = [site for site in self.server.judge.silent("sums", 1) if site in asked]
        faulty = [site for site in missing if site in replies]
        if not faulty:
            raise ValueError(
                f"no answer from {', '.join(missing)} in {_TRIES} exchanges; start it again, or "
                f"wait longer.{self.server.judge.fault(missing)}"
            )
        self._leave_out(faulty)
        raise LeftOut(f"without {', '.join(faulty)} now; ask the others anew.{self._fault(faulty)}")

    def ledger(self) -> Ledger:
        """Return the bytes of all messages so far, by the part of the work."""
        return Ledger(tuple(self._entries.values()), self._names)

    def _leave_out(self, faulty: list[str]) -> None:
        rest = [site for site in self.sites if site.name not in faulty]
        if not rest:
            raise ValueError(f"no site is left.{self._fault(faulty)}")
        server = self.server
        self.server = Server(server.federation, rest, self._run, server.judge)
        self.sites = rest
        self.left_out |= {name: self._fault([name]).strip() for name in faulty}

    def _fault(self, faulty: list[str]) -> str:
        return "".join(self.server.judge.fault([name]) for name in faulty)

    def _bill(self, part: str, messages: dict[str, bytes], replies: dict[str, bytes]) -> None:
        sent = [
            np.array([float(num_bytes(each.get(name))) for name in self._names])
            for each in (messages, replies)
        ]
        before = self._entries.get(part, Entry(part, 0 * sent[0], 0 * sent[1]))
        down, up = before.down + sent[0], before.up + sent[1]
        self._entries[part] = Entry(part, down, up, before.rounds + 1)
