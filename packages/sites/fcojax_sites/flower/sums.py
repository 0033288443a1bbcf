"""Exchanges of sums over the rows of each site: statistics, moments of a loss, and checks."""

import itertools
from typing import Any

import numpy as np

from fcojax.extend import validated
from fcojax.types import PyTree
from fcojax_sites.flower.federation import Federation
from fcojax_sites.flower.loop import Transport, drawn_name, met, num_bytes
from fcojax_sites.flower.server import Server
from fcojax_sites.selection import Entry, Ledger

_TRIES = 3  # exchanges before a silent site ends the run


class Sums:
    """The sites of a federation, asked for sums over their rows by name.

    A message has the name of one of ``federation.sums`` and arrays for it; the answer has what this
    function returns, and nothing else of the site's rows.

    Attributes:
      sites: the sites, sorted by name.
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
    def __init__(self, federation: Federation, transport: Transport, run: str | None = None):
        """Meet the sites.

        Args:
          federation: the ``Federation`` that the server and all sites build from the same code.
          transport: how messages travel.
          run: a name of the run; drawn if it is ``None``.
        """
        run = run or drawn_name()
        self.sites = met(federation, transport, run)
        self.server = Server(federation, self.sites, run)
        self._transport, self._numbers = transport, itertools.count()
        self._entries: dict[str, Entry] = {}

    def ask(self, name: str, given: dict[str, Any] | None = None, part: str = "") -> PyTree:
        """Return the sums of all sites, with a leading axis of sites.

        Args:
          name: the name among ``federation.sums``.
          given: arrays for the function.
          part: the part of the work in the ledger; by default the name.
        """
        given = {} if given is None else {key: np.asarray(one) for key, one in given.items()}
        for _ in range(_TRIES):
            index = str(next(self._numbers))
            messages = self.server.ask_sums(name, given, index)
            replies = self._transport.exchange(messages)
            self._bill(part or name, messages, replies)
            found = self.server.sums(name, given, index, replies)
            if found is not None:
                return found
        missing = self.server.judge.silent("sums", 1)
        raise ValueError(
            f"no answer from {', '.join(missing)} in {_TRIES} exchanges; start it again, or wait "
            f"longer.{self.server.judge.fault(missing)}"
        )

    def ledger(self) -> Ledger:
        """Return the bytes of all messages so far, by the part of the work."""
        return Ledger(tuple(self._entries.values()), tuple(site.name for site in self.sites))

    def _bill(self, part: str, messages: dict[str, bytes], replies: dict[str, bytes]) -> None:
        sent = [
            np.array([float(num_bytes(each.get(site.name))) for site in self.sites])
            for each in (messages, replies)
        ]
        before = self._entries.get(part, Entry(part, 0 * sent[0], 0 * sent[1]))
        down, up = before.down + sent[0], before.up + sent[1]
        self._entries[part] = Entry(part, down, up, before.rounds + 1)
