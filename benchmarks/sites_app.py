"""The apps that ``benchmarks.sites`` has Flower run: one fault of each kind.

What to run is in the environment of the processes, as ``FCOJAX_SITES``.
"""

import json
import os
import pathlib
import time

import numpy as np
from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]
from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]

import fcojax
from benchmarks.federations import (
    BY,
    CHOICE,
    CUT,
    DEAD,
    KEY,
    LATE,
    NAMES,
    federation_of,
    federation_of_choice,
    loss,
)
from fcojax import flower
from fcojax.transforms import euclidean, group_l2, l1

PAUSES = DEAD[0], DEAD[0] + 1  # the server waits there, while a SuperNode is killed or started
TOLD = json.loads(os.environ.get("FCOJAX_SITES", "{}"))
FOLDER = pathlib.Path(TOLD.get("folder", "."))


def federation() -> flower.Federation:
    """Return the federation, or that of a wrong peer."""
    wrong, name = TOLD.get("wrong"), TOLD["algorithm"]
    if name == "select":
        return federation_of_choice()
    if wrong == "version":
        fcojax.__version__ = "0.1"
    if wrong == "algorithm":
        name = "fed_avg"
    found = federation_of(name, loss=loss, penalty=l1())
    if wrong == "penalty":
        algorithm = fcojax.algorithms.fed_dual_avg(loss, euclidean(group_l2(axis=0)))
        found = flower.Federation(algorithm, found.plan, found.hparams, found.params, loss, l1())
    return found


def report(row: dict[str, float]) -> None:
    """Let the command kill or start a SuperNode before the next round."""
    index = int(row["round"])
    (FOLDER / f"round {index}").touch()
    while index in PAUSES and not (FOLDER / f"go {index}").exists():
        time.sleep(0.1)


def with_faults(inner: ClientApp) -> ClientApp:
    """Return a client app of which some answers come late or never, after its work."""
    outer = ClientApp()

    def handle(message, context):
        reply = inner(message, context)
        _, facts = fcojax.safetensors.loads(message.content["fcojax"]["bytes"])
        place = int(facts.get("round", -1)), NAMES.index(context.node_config["site"])
        if facts["kind"] != "round" or TOLD["algorithm"] == "select":
            return reply
        if place == CUT:
            raise RuntimeError("the line was cut")
        while place == LATE and not (FOLDER / f"round {LATE[0] + 1}").exists():
            time.sleep(0.1)
        return reply

    for register in (outer.query(), outer.train(), outer.evaluate()):
        register(handle)
    return outer


def client_app() -> ClientApp:
    """Return the ClientApp."""
    return with_faults(flower.client_app(federation(), lambda node: dict(np.load(node["file"]))))


def server_app() -> ServerApp:
    """Return the ServerApp."""
    if TOLD["algorithm"] == "select":
        return choosing_app()
    return flower.server_app(
        federation(),
        KEY,
        num_sites=TOLD["sites"],
        num_rounds=TOLD["rounds"],
        folder=FOLDER,
        eval_every=TOLD["rounds"],
        timeout=TOLD["timeout"],
        progress=report,
    )


def choosing_app() -> ServerApp:
    """Return a ServerApp that chooses a strength, and writes the path and its scores."""
    app = ServerApp()

    @app.main()
    def main(grid, context):
        transport = flower.over_grid(grid, TOLD["sites"], TOLD["timeout"])
        found = flower.select(federation(), transport, KEY, by=BY, **CHOICE)
        assert found.fold_outcome is not None
        kept = {
            "strengths": found.path.strengths,
            "models": found.path.models,
            "rounds": found.path.outcome.rounds,
            "scores": found.scores,
            "fold_rounds": found.fold_outcome.rounds,
            "model": found.model,
        }
        fcojax.safetensors.save(FOLDER / "choice.safetensors", kept)

    return app
