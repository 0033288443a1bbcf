"""The two apps of Flower's message API, around bytes.

Each message has one record with one value, the bytes of a safetensors file. What the fields of
Flower's own records would say, shapes, names and metrics, is inside of it.
"""

import hashlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable
from typing import Any

from fcojax import safetensors
from fcojax.extend import validated
from fcojax.flower.federation import Federation
from fcojax.flower.loop import Report, Transport, coordinate
from fcojax.flower.site import SOLVE, answer
from fcojax.types import Count, Key, Positive, PyTree

_RECORD, _VALUE = "fcojax", "bytes"
_KINDS = {"join": "query", "round": "train", "certificate": "evaluate"}
_POLL_SECONDS = 0.5  # Flower's own loop sleeps for 3 s


@validated
def client_app(federation: Federation, rows: Callable[[dict[str, Any]], PyTree]) -> Any:
    """Return the ClientApp of a site.

    The site's name is ``site`` in its node config. What it keeps between rounds is in Flower's
    context, which ends with the run and with the SuperNode; with ``folder`` in the node config it
    is in a file for each run there, from which a site goes on that was killed.

    Needs Flower, ``pip install 'fcojax[flower]'``.

    Args:
      federation: what is agreed on.
      rows: ``(node config) -> rows``, which reads the rows of the site: a pytree of arrays.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
      >>> federation = fcojax.flower.Federation(
      ...     fed_avg, fcojax.local_steps(5), fed_avg.hparams_type(), jnp.zeros(20))
      >>> app = fcojax.flower.client_app(
      ...     federation, lambda config: dict(np.load(config["file"])))  # doctest: +SKIP
    """
    flower = _flower()
    app = flower.clientapp.ClientApp()

    def handle(message: Any, context: Any) -> Any:
        config = dict(context.node_config)
        if "site" not in config:
            raise ValueError("the node config has no site; pass --node-config 'site=\"name\"'.")
        name, sent = str(config["site"]), message.content[_RECORD][_VALUE]
        store = _store(config, sent, context, flower)
        reply, kept = answer(federation, name, rows(config), store.read(), sent)
        if kept is not None:
            store.write(kept)
        return flower.app.Message(_record(flower, reply), reply_to=message)

    for register in (app.query(), app.train(), app.evaluate()):
        register(handle)
    return app


@validated
def server_app(
    federation: Federation,
    key: Key,
    *,
    num_sites: Count,
    num_rounds: Count,
    folder: str | os.PathLike,
    eval_every: Count = 1,
    tolerance: Any = None,
    timeout: Positive = 600.0,
    progress: Report | None = None,
) -> Any:
    """Return the ServerApp.

    It waits for the sites, runs the rounds, and writes ``model.safetensors`` and ``history.jsonl``
    to the folder. A run that was stopped goes on from the folder.

    Needs Flower, ``pip install 'fcojax[flower]'``.

    Args:
      federation: what is agreed on.
      key: PRNG key, the only source of randomness.
      num_sites: number of sites to wait for.
      num_rounds: the largest number of rounds.
      folder: where the progress of every round and the result are kept.
      eval_every: rounds between two exchanges for the certificate.
      tolerance: stop when the violation is at most this; ``None`` for all rounds.
      timeout: seconds to wait for sites before the first round, and for answers in each; a later
        answer is a lost upload.
      progress: called with the metrics of every round; by default they are printed.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
      >>> federation = fcojax.flower.Federation(
      ...     fed_avg, fcojax.local_steps(5), fed_avg.hparams_type(), jnp.zeros(20))
      >>> app = fcojax.flower.server_app(
      ...     federation, jax.random.key(0), num_sites=3, num_rounds=20,
      ...     folder="runs/federation")  # doctest: +SKIP
    """
    flower = _flower()
    app = flower.serverapp.ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        place = pathlib.Path(folder)
        place.mkdir(parents=True, exist_ok=True)

        def report(row: dict[str, float]) -> None:
            with open(place / "history.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            (progress or print)(row)

        model, _ = coordinate(
            federation,
            over_grid(grid, num_sites, float(timeout)),
            key,
            num_rounds=num_rounds,
            run=f"{context.run_id}",
            eval_every=eval_every,
            tolerance=tolerance,
            checkpoints=place,
            progress=report,
        )
        safetensors.save(place / "model.safetensors", model)

    return app


def over_grid(grid: Any, num_sites: int, timeout: float) -> Transport:
    """Return the transport of a Flower Grid.

    A site whose SuperNode has come back under another id is asked for its name again.

    Args:
      grid: Flower's.
      num_sites: number of sites to wait for.
      timeout: seconds to wait for sites, and for the answers to a message.

    Example:
      >>> def main(grid, context):  # of a ServerApp
      ...     transport = fcojax.flower.over_grid(grid, num_sites=3, timeout=600.0)
      ...     return fcojax.flower.path(federation, transport, key, strengths=10)
    """
    flower = _flower()
    nodes: dict[int, str] = {}  # the name of the site at each node
    invitations: list[bytes] = []

    def send(messages: dict[int, bytes]) -> dict[int, bytes]:
        kinds = {node: safetensors.loads(one)[1]["kind"] for node, one in messages.items()}
        outgoing = [
            flower.app.Message(
                content=_record(flower, one), dst_node_id=node, message_type=_KINDS[kinds[node]]
            )
            for node, one in messages.items()
        ]
        replies, end = [], time.monotonic() + timeout
        waiting = set(grid.push_messages(outgoing)) - {None} if outgoing else set()
        while waiting:
            found = list(grid.pull_messages(waiting))
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            replies += found
            if not found and time.monotonic() > end:
                break
            time.sleep(0.0 if found else _POLL_SECONDS)
        return dict(_contents(replies))

    def meet() -> list[bytes]:
        unknown = [node for node in grid.get_node_ids() if node not in nodes]
        replies = send(dict.fromkeys(unknown, invitations[0]))
        nodes.update({node: _site(reply) for node, reply in replies.items()})
        return list(replies.values())

    def join(message: bytes) -> list[bytes]:
        invitations[:] = [message]
        end, found = time.monotonic() + timeout, meet()
        while len(found) < num_sites and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
            found += meet()
        if len(found) < num_sites:
            raise ValueError(
                f"{len(found)} of {num_sites} sites have answered in {timeout:g} s; start the "
                "others, or pass a larger timeout."
            )
        return found

    def exchange(messages: dict[str, bytes]) -> dict[str, bytes]:
        meet()
        online = set(grid.get_node_ids())
        # The last one to come under a name has it.
        places = {name: node for node, name in nodes.items() if node in online}
        replies = send({places[name]: one for name, one in messages.items() if name in places})
        return {nodes[node]: reply for node, reply in replies.items()}

    return Transport(join, exchange)


class _InContext:
    """What a site keeps, in the context of its run."""

    def __init__(self, context: Any, flower: Any):
        self._context, self._flower = context, flower

    def read(self) -> bytes | None:
        state = self._context.state
        return state[_RECORD][_VALUE] if _RECORD in state else None

    def write(self, kept: bytes) -> None:
        self._context.state[_RECORD] = self._flower.app.ConfigRecord({_VALUE: kept})


class _InFile:
    """What a site keeps, in a file that is complete or the one before."""

    def __init__(self, path: pathlib.Path):
        self._path = path

    def read(self) -> bytes | None:
        return self._path.read_bytes() if self._path.exists() else None

    def write(self, kept: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_bytes(kept)
        unfinished.replace(self._path)


def _store(config: dict[str, Any], message: bytes, context: Any, flower: Any) -> Any:
    """Return where a site keeps its state: for each run of its own, since they may run at once."""
    if "folder" not in config:
        return _InContext(context, flower)
    run = safetensors.loads(message)[1]["run"].partition(SOLVE)[0]
    name = hashlib.sha256(run.encode()).hexdigest()[:16]
    return _InFile(
        pathlib.Path(str(config["folder"])) / f"site {config['site']} {name}.safetensors"
    )


def _record(flower: Any, content: bytes) -> Any:
    return flower.app.RecordDict({_RECORD: flower.app.ConfigRecord({_VALUE: content})})


def _contents(replies: Iterable[Any]) -> Iterable[tuple[int, bytes]]:
    """Yield the answers by node; an app that failed has none."""
    for reply in replies:
        node = reply.metadata.src_node_id
        if reply.has_error():
            print(f"node {node} has failed: {reply.error.reason}")
        else:
            yield node, reply.content[_RECORD][_VALUE]


def _site(reply: bytes) -> str:
    return safetensors.loads(reply)[1]["site"]


def _flower() -> Any:
    try:
        import flwr.app  # pyright: ignore[reportMissingImports]
        import flwr.clientapp  # pyright: ignore[reportMissingImports]
        import flwr.serverapp  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("the apps need Flower; pip install 'fcojax[flower]'.") from error
    return flwr
