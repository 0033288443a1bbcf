"""The loop over the rounds of a federation, for any transport of messages."""

import os
import secrets
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fcojax.extend import VIOLATION, validated
from fcojax.types import Count, Key, NonNegative, Params, PyTree
from fcojax_sites.flower import checkpoints as saved
from fcojax_sites.flower.answers import BadAnswer
from fcojax_sites.flower.federation import Federation, described
from fcojax_sites.flower.joining import Site, admitted, invitation
from fcojax_sites.flower.server import Server, ServerProgress
from fcojax_sites.flower.site import answer

Report = Callable[[dict[str, float]], Any]


class Transport(NamedTuple):
    """How messages travel between the server and the sites.

    Attributes:
      join: ``(message) -> replies``: sends one message to every site and waits for all expected
        replies.
      exchange: ``(messages) -> replies``: sends a message to each of these sites, by name, and
        returns the answers that came in time, by name. The transport guarantees the sender of an
        answer; its content is checked.

    Example:
      >>> from fcojax_sites.flower import Transport
      >>> silent = Transport(join=lambda message: [], exchange=lambda messages: {})
    """

    join: Callable[[bytes], list[bytes]]
    exchange: Callable[[dict[str, bytes]], dict[str, bytes]]


@validated
def coordinate(
    federation: Federation,
    transport: Transport,
    key: Key,
    *,
    num_rounds: Count,
    run: str | None = None,
    eval_every: Count = 1,
    tolerance: NonNegative | None = None,
    checkpoints: str | os.PathLike | None = None,
    progress: Report | None = None,
) -> tuple[Params, list[dict[str, float]]]:
    """Run the rounds of a federation.

    An answer that is not valid is a lost upload, and its site is logged once. Warns if no round
    has changed the model.

    Args:
      federation: the ``Federation`` that the server and all sites build from the same code.
      transport: how messages travel.
      key: PRNG key, the only source of randomness. With the same key, rows and cohorts the result
        is that of ``fcojax.run``.
      num_rounds: the largest number of rounds.
      run: a name of the run, by which sites keep their states; drawn if it is ``None``.
      eval_every: rounds between two exchanges for the certificate.
      tolerance: stop when the violation is at most this; needs the federation's loss and penalty.
      checkpoints: a folder for the progress after every round, from which a stopped run continues.
        It is refused with a ``ValueError`` if it has a run of another federation, key or number of
        rows.
      progress: called with the metrics of every round.

    Returns:
      The model, and one dict for each round: metrics and counts as in a history, the bytes of all
      messages as ``bytes_down`` and ``bytes_up``, ``seconds``, and where the certificate was
      evaluated ``objective`` and ``violation``.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax_sites import flower
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> federation = flower.Federation(
      ...     fed_avg, fcojax.local_steps(1), fed_avg.hparams_type(client_lr=0.5), jnp.array(0.0))
      >>> rows = {"Ghent": {"a": np.array([1.0])}, "Lima": {"a": np.array([3.0])}}
      >>> model, history = flower.coordinate(
      ...     federation, flower.in_process(federation, rows), jax.random.key(0), num_rounds=30)
      >>> round(float(model), 5), history[-1]["participants"]
      (2.0, 2.0)
    """
    if tolerance is not None and federation.loss is None:
        raise ValueError(
            "tolerance needs a certificate; pass Federation(..., loss=loss, penalty=penalty)."
        )
    with saved.held(checkpoints):
        return _coordinated(
            federation,
            transport,
            key,
            run or drawn_name(),
            num_rounds,
            eval_every,
            tolerance,
            checkpoints,
            progress,
        )


def _coordinated(
    federation, transport, key, run, num_rounds, eval_every, tolerance, checkpoints, progress
) -> tuple[Params, list[dict[str, float]]]:
    """Run the rounds, while no other run writes to the folder of the checkpoints."""
    sites = met(federation, transport, run)
    if checkpoints is not None:
        rows = {f"rows of {site.name}": str(site.num_examples) for site in sites}
        given = {"federation": federation, "key": jax.random.key_data(key)}
        run = saved.run_of(checkpoints, rows | dict(described(given, "", set())), run)
    server = Server(federation, sites, run)
    now = server.start(key)
    if checkpoints is not None:
        now = saved.restored(checkpoints, now)
    history: list[dict[str, float]] = []
    if tolerance is not None and now.round < num_rounds:
        measures, traffic = _certificate(server, transport, now)
        if measures.get(VIOLATION, tolerance + 1) <= tolerance:
            return server.model(now), [measures | traffic | {"round": float(now.round)}]
    while now.round < num_rounds:
        begin = time.monotonic()
        messages = server.ask(now)
        replies = transport.exchange(messages)
        now, measures = server.step(now, replies)
        if checkpoints is not None:
            saved.save(checkpoints, now)
        traffic = _traffic(messages, replies)
        if federation.loss is not None and now.round % eval_every == 0:
            found, more = _certificate(server, transport, now)
            measures |= found
            traffic = {name: traffic[name] + more[name] for name in traffic}
        rows = {"round": float(now.round), "seconds": time.monotonic() - begin}
        history.append(measures | traffic | rows)
        if progress is not None:
            progress(history[-1])
        if tolerance is not None and measures.get(VIOLATION, tolerance + 1) <= tolerance:
            break
    _warn_if_idle(history)
    return server.model(now), history


def _warn_if_idle(history: list[dict[str, float]]) -> None:
    """Warn if no round has changed the model or, as ``run`` does, if a round was not finite."""
    counts = {
        name: [row.get(name, 0.0) for row in history]
        for name in ("participants", "dropped", "lost", "late", "left_out", "refused")
    }
    participants, dropped, lost, late, left_out, refused = map(np.array, counts.values())
    idle = (participants <= dropped + lost + late + left_out) | (refused > 0)
    nonfinite = ((participants > 0) & (dropped >= participants)) | (refused > 0)
    if history and (idle.all() or nonfinite.any()):
        which = "none" if idle.all() else f"only {(~idle).sum()}"
        warnings.warn(
            f"{which} of {len(history)} rounds have changed the model: {lost.sum():g} uploads were "
            f"lost, {late.sum():g} late, {dropped.sum():g} not finite and {left_out.sum():g} left "
            f"out, and {refused.sum():g} steps were not finite.",
            stacklevel=5,
        )


def drawn_name() -> str:
    """Return a name that no other run has."""
    return secrets.token_hex(8)


def met(federation: Federation, transport: Transport, run: str) -> list[Site]:
    """Return the sites that introduced themselves, by their names."""
    replies, sites = transport.join(invitation(federation, run)), []
    for index, reply in enumerate(replies):
        try:
            sites.append(admitted(federation, reply))
        except BadAnswer as error:
            raise ValueError(
                f"answer {index + 1} of {len(replies)} to the invitation has no name, and its site "
                f"is refused: {error}"
            ) from None
    if not sites:
        raise ValueError("no site has answered; start the sites, or wait for them longer.")
    return sorted(sites, key=lambda site: site.name)


@validated
def in_process(federation: Federation, rows: dict[str, PyTree]) -> Transport:
    """Return a transport to sites in this process, to try a federation without real sites.

    Args:
      federation: the ``Federation`` that the server and all sites build from the same code.
      rows: the rows of each site, by its name.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> from fcojax_sites import flower
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (w - rows["a"]) ** 2)
      >>> federation = flower.Federation(
      ...     fed_avg, fcojax.local_steps(1), fed_avg.hparams_type(), jnp.array(0.0))
      >>> transport = flower.in_process(federation, {"Ghent": {"a": np.ones(2)}})
      >>> len(transport.join(flower.invitation(federation, "run 1")))
      1
    """
    kept: dict[str, bytes | None] = dict.fromkeys(rows)

    def at(name: str, message: bytes) -> bytes:
        reply, kept[name] = answer(federation, name, rows[name], kept[name], message)
        return reply

    return Transport(
        join=lambda message: [at(name, message) for name in rows],
        exchange=lambda messages: {name: at(name, one) for name, one in messages.items()},
    )


def _certificate(
    server: Server, transport: Transport, now: ServerProgress
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the certificate, and the bytes of its exchange."""
    messages = server.ask_certificate(now)
    replies = transport.exchange(messages)
    return server.certificate(now, replies), _traffic(messages, replies)


def _traffic(messages: dict[str, bytes], replies: dict[str, bytes]) -> dict[str, float]:
    down, up = (float(sum(map(num_bytes, each.values()))) for each in (messages, replies))
    return {"bytes_down": down, "bytes_up": up}


def num_bytes(sent: Any) -> int:
    """Return the number of bytes of a message; 0 if a site sent something other than bytes."""
    return len(sent) if isinstance(sent, bytes) else 0
