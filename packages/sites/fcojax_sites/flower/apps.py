"""The two apps of Flower's message API, around bytes.

Each message has one record with one value, the bytes of a safetensors file. Shapes, names and
metrics are inside that file, not in fields of Flower's records.
"""

import hashlib
import json
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

from fcojax.extend import validated
from fcojax.types import Count, Key, Positive, PyTree
from fcojax_sites import safetensors
from fcojax_sites.flower.answers import LOG, BadAnswer, plain
from fcojax_sites.flower.checkpoints import private
from fcojax_sites.flower.federation import Federation
from fcojax_sites.flower.joining import introduced
from fcojax_sites.flower.loop import Report, Transport, coordinate
from fcojax_sites.flower.site import SOLVE, answer

_RECORD, _VALUE = "fcojax", "bytes"
_KINDS = {"join": "query", "round": "train", "certificate": "evaluate", "sums": "evaluate"}
_POLL_SECONDS = 0.5  # Flower's own loop sleeps for 3 s


@validated
def client_app(federation: Federation, rows: Callable[[dict[str, Any]], PyTree]) -> Any:
    """Return the ClientApp of a site.

    The site's name is ``site`` in its node config. It keeps its state between rounds in Flower's
    context, which ends with the run or the SuperNode. With ``folder`` in the node config it keeps
    one file per run in that folder, from which a killed site continues.

    Needs Flower, ``pip install 'fcojax-sites[flower]'``.

    Args:
      federation: the ``Federation`` that the server and all sites build from the same code.
      rows: ``(node config) -> rows``, which reads the rows of the site: a pytree of arrays.

    Example:
      >>> import fcojax, fcojax_sites, jax.numpy as jnp, numpy as np
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
      >>> federation = fcojax_sites.flower.Federation(
      ...     fed_avg, fcojax.local_steps(5), fed_avg.hparams_type(), jnp.zeros(20))
      >>> app = fcojax_sites.flower.client_app(
      ...     federation, lambda config: dict(np.load(config["file"])))  # doctest: +SKIP
    """
    flower = _flower()
    app = flower.clientapp.ClientApp()

    def handle(message: Any, context: Any) -> Any:
        config = dict(context.node_config)
        if "site" not in config:
            raise ValueError("the node config has no site; pass --node-config 'site=\"name\"'.")
        name, sent = str(config["site"]), message.content[_RECORD][_VALUE]
        store, own = _store(config, sent, context, flower), _read(rows, config, name)
        reply, kept = answer(federation, name, own, store.read(), sent)
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
    nodes: dict[str, int] | None = None,
    progress: Report | None = None,
) -> Any:
    """Return the ServerApp.

    It waits for the sites, runs the rounds, and writes ``model.safetensors`` and ``history.jsonl``
    to the folder. A run that was stopped continues from the folder.

    Needs Flower, ``pip install 'fcojax-sites[flower]'``.

    Args:
      federation: the ``Federation`` that the server and all sites build from the same code.
      key: PRNG key, the only source of randomness. Read it from a file that only the server has:
        the app travels to all sites, and whoever has the key can subtract the noise of the run.
      num_sites: number of sites to wait for.
      num_rounds: the largest number of rounds.
      folder: where the progress of every round and the result are kept.
      eval_every: rounds between two exchanges for the certificate.
      tolerance: stop when the violation is at most this; ``None`` for all rounds.
      timeout: seconds to wait for sites before the first round, and for answers in each; a later
        answer is a lost upload.
      nodes: the id of each site's SuperNode, by the site's name, as for ``over_grid``.
      progress: called with the metrics of every round; by default they are printed.

    Example:
      >>> import fcojax, fcojax_sites, jax, jax.numpy as jnp, numpy as np
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
      >>> federation = fcojax_sites.flower.Federation(
      ...     fed_avg, fcojax.local_steps(5), fed_avg.hparams_type(), jnp.zeros(20))
      >>> of_server = np.fromfile("/runs/mine.key", np.uint32)  # doctest: +SKIP
      >>> app = fcojax_sites.flower.server_app(
      ...     federation, jax.random.wrap_key_data(of_server), num_sites=3, num_rounds=20,
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
            over_grid(grid, num_sites, float(timeout), nodes),
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


def over_grid(
    grid: Any, num_sites: int, timeout: float, nodes: dict[str, int] | None = None
) -> Transport:
    """Return the transport of a Flower Grid.

    A site states its own name, and states it again if its SuperNode reconnects under another id. So
    any client that can connect can claim the name of a site, unless ``nodes`` gives the SuperNode
    of each.

    Args:
      grid: Flower's ``Grid``.
      num_sites: number of sites to wait for.
      timeout: seconds to wait for sites, and for the answers to a message.
      nodes: the id of each site's SuperNode, by the site's name; other nodes are not asked. Flower
        ties an id to a key if the SuperLink has ``--enable-supernode-auth``: ``flwr supernode
        register`` prints the id.

    Example:
      >>> def main(grid, context):  # of a ServerApp
      ...     transport = fcojax_sites.flower.over_grid(grid, num_sites=3, timeout=600.0)
      ...     return fcojax_sites.flower.path(federation, transport, key, strengths=10)
    """
    flower = _flower()
    names: dict[int, str | None] = {}  # the site at each node; None if it has none
    told: set[int] = set()
    invitations: list[bytes] = []

    def tell(node: int, what: str) -> None:
        """Log what is wrong with a node, once."""
        if node not in told:
            told.add(node)
            LOG.warning("node %d: %s", node, plain(what))

    def send(messages: dict[int, bytes]) -> dict[int, Any]:
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
        for reply in replies:
            if reply.has_error():
                tell(reply.metadata.src_node_id, f"its app has failed: {reply.error.reason}")
        # An app that failed has no answer.
        sound = [reply for reply in replies if not reply.has_error()]
        return {reply.metadata.src_node_id: _content(reply) for reply in sound}

    def meet() -> list[bytes]:
        allowed = grid.get_node_ids()
        if nodes is not None:
            allowed = [node for node in allowed if node in nodes.values()]
        found = []
        unknown = [node for node in allowed if node not in names]
        for node, reply in send(dict.fromkeys(unknown, invitations[0])).items():
            try:
                names[node] = name = introduced(reply)[1]
                if nodes is not None and nodes.get(name) != node:
                    raise BadAnswer(f"it introduces itself as site {name}, which is another node.")
            except BadAnswer as error:
                names[node] = None  # it is not asked again
                tell(node, f"it is refused: {error}")
            else:
                found.append(reply)
        return found

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
        # If several nodes have stated a name, the last one has it.
        places = {name: node for node, name in names.items() if name and node in online}
        asked = {places[name]: name for name in messages if name in places}
        replies = send({node: messages[name] for node, name in asked.items()})
        return {asked[node]: reply for node, reply in replies.items() if node in asked}

    return Transport(join, exchange)


class _InContext:
    """Stores the state of a site in the context of its run."""

    def __init__(self, context: Any, flower: Any):
        self._context, self._flower = context, flower

    def read(self) -> bytes | None:
        state = self._context.state
        return state[_RECORD][_VALUE] if _RECORD in state else None

    def write(self, kept: bytes) -> None:
        self._context.state[_RECORD] = self._flower.app.ConfigRecord({_VALUE: kept})


class _InFile:
    """Stores the state of a site in a file, which is replaced in one step."""

    def __init__(self, path: pathlib.Path):
        self._path = path

    def read(self) -> bytes | None:
        return self._path.read_bytes() if self._path.exists() else None

    def write(self, kept: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".unfinished")
        with private():
            unfinished.write_bytes(kept)
        unfinished.replace(self._path)


def _read(rows: Callable[[dict[str, Any]], PyTree], config: dict[str, Any], name: str) -> PyTree:
    """Return the rows of a site; an error may quote a cell of them, and stays in the site's log."""
    try:
        return rows(config)
    except Exception:
        LOG.exception("site %s: its rows cannot be read", name)
    raise ValueError(f"the rows of site {name} cannot be read; the log of its SuperNode says why.")


def _store(config: dict[str, Any], message: bytes, context: Any, flower: Any) -> Any:
    """Return the store of a site's state; each run has its own, since several may run at once."""
    if "folder" not in config:
        return _InContext(context, flower)
    run = safetensors.loads(message)[1]["run"].partition(SOLVE)[0]
    name = hashlib.sha256(run.encode()).hexdigest()[:16]
    return _InFile(
        pathlib.Path(str(config["folder"])) / f"site {config['site']} {name}.safetensors"
    )


def _record(flower: Any, content: bytes) -> Any:
    return flower.app.RecordDict({_RECORD: flower.app.ConfigRecord({_VALUE: content})})


def _content(reply: Any) -> Any:
    """Return the value that a node sent in place of the bytes; ``None`` if it sent nothing."""
    try:
        return reply.content[_RECORD][_VALUE]
    except (KeyError, TypeError):
        return None


def _flower() -> Any:
    try:
        import flwr.app  # pyright: ignore[reportMissingImports]
        import flwr.clientapp  # pyright: ignore[reportMissingImports]
        import flwr.serverapp  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("the apps need Flower; pip install 'fcojax-sites[flower]'.") from error
    return flwr
