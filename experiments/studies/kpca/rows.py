"""Rows and tables of the manifold method and the baselines, with the cost of a round."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, by_seed
from experiments.studies.kpca.problem import MANIFOLD, Split, moment_loss, splits
from experiments.study import Config
from fcojax import algorithms
from fcojax.problems.pca import variance_loss
from fcojax.theory.manifold import drift_floor

Curves = dict[tuple, list[Row]]  # rows by the values of some columns
METHODS = ("fed_manifold", "r_fed_avg", "r_fed_prox", "r_fed_svrg")


class Run(NamedTuple):
    """One run of the study; all runs start at the same point.

    Attributes:
      relative_lr: the client rate times the curvature.
      batch_size: rows per step; ``None`` for full batches, by second moments.
    """

    num_steps: int
    relative_lr: float
    server_lr: float = 1.0
    algorithm: str = "fed_manifold"
    batch_size: int | None = None
    seed: int = 0


def study(config: Config) -> Iterator[dict[str, Any]]:
    """Yield one row per run and evaluation, and the predicted floor of RFedAvg."""
    usual = Run(config.num_steps, config.relative_lr, config.server_lr)
    for place, cut in enumerate(splits(config)):
        eta = config.relative_lr / cut.curvature
        floor = drift_floor(
            moment_loss, MANIFOLD, cut.moments, jnp.asarray(cut.solution), eta, config.num_steps
        )
        yield {
            "part": "floor",
            "split": cut.name,
            "grad_norm": float(floor),
            "client_lr": eta,
            "curvature": cut.curvature,
        }
        for part, run in _runs(config, usual, cut, effects=place == 0):
            for row in one_run(config, cut, run):
                yield {"part": part} | row
    if config.data_dir:
        return
    for num_clients in config.crowds:
        more = config.copy_and_resolve_references()
        more.num_clients = num_clients
        (cut,) = splits(more)
        for seed in config.seeds:
            for row in one_run(
                config, cut, usual._replace(batch_size=config.crowd_batch, seed=seed)
            ):
                yield {"part": "crowds", "num_clients": num_clients} | row


def _runs(config: Config, usual: Run, cut: Split, effects: bool) -> Iterator[tuple[str, Run]]:
    """Yield each run's part and settings on one split; without ``effects`` only the methods."""
    for name in config.algorithms:
        yield "methods", usual._replace(algorithm=name)
    if not effects:
        return
    for num_steps in config.step_counts:
        yield "steps", usual._replace(num_steps=num_steps)
    for server_lr in (1.0, math.sqrt(config.num_clients)):
        yield "servers", usual._replace(relative_lr=config.server_relative_lr, server_lr=server_lr)
    for share in config.batch_shares:
        for seed in config.seeds:
            yield (
                "batches",
                usual._replace(batch_size=max(1, round(share * cut.rows.min_size)), seed=seed),
            )


def one_run(config: Config, cut: Split, run: Run) -> Iterator[Row]:
    """Yield the rows of one run."""
    full = run.batch_size is None
    data, loss = (cut.moments, moment_loss) if full else (cut.rows, variance_loss)
    factory = getattr(algorithms, run.algorithm)
    # With full participation the manifold method may send one array, as in the source.
    options = {"sends": "direction"} if run.algorithm == "fed_manifold" else {}
    algorithm = factory(loss, MANIFOLD, **options)
    hparams = factory.Hparams(run.relative_lr / cut.curvature, run.server_lr)
    if "prox_scale" in factory.Hparams._fields:
        hparams = hparams._replace(prox_scale=config.relative_prox * cut.curvature)
    shape = (cut.rows.examples["x"].shape[1], config.num_components)
    left, _, right = np.linalg.svd(
        np.random.default_rng(0).standard_normal(shape), full_matrices=False
    )
    params = jnp.asarray(left @ right, jnp.float64 if full else jnp.float32)
    plan = fcojax.local_steps(run.num_steps, run.batch_size)
    state = fcojax.start(algorithm, hparams, params, data, jax.random.key(run.seed), plan)
    # A round of RFedSVRG is two rounds of the engine.
    num_rounds = config.eval_every * (2 if run.algorithm == "r_fed_svrg" else 1)

    rounds = {"num_rounds": num_rounds, "eval_every": num_rounds}

    def advance(state):
        return jax.block_until_ready(
            fcojax.advance(algorithm, hparams, state, data, plan, **rounds)
        )

    advance(state)  # compile before the timing
    seconds, sent = 0.0, {"bytes_up": 0.0, "bytes_down": 0.0}
    for done in range(0, config.num_rounds + 1, config.eval_every):
        if done:
            began = time.perf_counter()
            state, history = advance(state)
            seconds += time.perf_counter() - began
            sent = {way: before + float(history[way][0]) for way, before in sent.items()}
        up, down = (round(total / params.itemsize / data.num_clients) for total in sent.values())
        model = fcojax.read_model(algorithm, hparams, state)
        yield {
            "split": cut.name,
            "round": done,
            "floats_up": up,
            "floats_down": down,
            "seconds": seconds,
            **{measure: float(value) for measure, value in cut.judge(model).items()},
            **run._asdict(),
            "batch_size": run.batch_size or 0,
        }


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the end of each method, its cost to the tolerance, and the effects."""
    table = []
    for (name, algorithm), curve in curves(rows, "methods", "split", "algorithm").items():
        there = [row for row in curve if row["grad_norm"] <= config.tolerance]
        entry = {"split": name, "algorithm": algorithm}
        entry |= {key: curve[-1][key] for key in ("round", "grad_norm", "suboptimality", "seconds")}
        first = there[0] if there else {}
        entry |= {
            f"{key}_to_tolerance": first.get(key) for key in ("round", "floats_up", "seconds")
        }
        table.append(entry)
    return {
        "methods": table,
        "steps": _ends(rows, "steps", "num_steps", "grad_norm", lambda own: own[-1]["grad_norm"]),
        "batches": _ends(rows, "batches", "batch_size", "floor", late_mean_square),
        "servers": _ends(
            rows,
            "servers",
            "server_lr",
            "rounds_to_tolerance",
            lambda own: rounds_to(config.tolerance, own),
        ),
        "crowds": [
            {"num_clients": size, "floor": late_mean_square(curve)}
            for (size,), curve in curves(rows, "crowds", "num_clients").items()
        ],
        "floors": [row for row in rows if row["part"] == "floor"],
    }


def _ends(rows: list[Row], part: str, field: str, name: str, end: Callable) -> list[Row]:
    """Return a measure of each curve of a part, by split and by the values of a column."""
    return [
        {"split": split, field: value, name: end(curve)}
        for (split, value), curve in curves(rows, part, "split", field).items()
    ]


def curves(rows: list[Row], part: str, *fields: str) -> Curves:
    """Return the rows of one part, grouped by columns, in the order of the run."""
    result: Curves = {}
    for row in rows:
        if row["part"] == part:
            result.setdefault(tuple(row[field] for field in fields), []).append(row)
    return result


def rounds_to(level: float, curve: list[Row]) -> int | None:
    """Return the first round whose gradient norm is at most ``level``."""
    return next((row["round"] for row in curve if row["grad_norm"] <= level), None)


def floors(curve: list[Row]) -> np.ndarray:
    """Return the late mean squared gradient norm of each seed, in the order of the seeds."""
    return np.array([late_mean_square(own) for own in by_seed(curve).values()])


def late_mean_square(curve: list[Row]) -> float:
    """Return the mean squared gradient norm over the second half of the rounds."""
    last = max(row["round"] for row in curve)
    return float(np.mean([row["grad_norm"] ** 2 for row in curve if row["round"] > last / 2]))
