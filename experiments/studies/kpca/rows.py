"""Rows of the manifold method and the Riemannian baselines, with the cost of a round."""

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row
from experiments.studies.kpca.problem import MANIFOLD, Split, moment_loss, splits
from experiments.study import Config
from fcojax import algorithms
from fcojax.problems.pca import variance_loss
from fcojax.theory.manifold import drift_floor

_METHODS = ("fed_manifold", "r_fed_avg", "r_fed_prox", "r_fed_svrg")


class Run(NamedTuple):
    """One run of the study; all runs start at the same point.

    Attributes:
      relative_lr: the client rate times the curvature.
      batch_size: rows a step; ``None`` for full batches, by second moments.
    """

    num_steps: int
    relative_lr: float
    server_lr: float = 1.0
    algorithm: str = "fed_manifold"
    batch_size: int | None = None
    seed: int = 0


def study(config: Config) -> Iterator[dict[str, Any]]:
    """Yield one row per run and evaluation, and the predicted floor of RFedAvg."""
    for name in config.algorithms:
        if name not in _METHODS:
            raise ValueError(f"algorithms contains {name!r}; pass {', '.join(_METHODS)}.")
    usual = Run(config.num_steps, config.relative_lr, config.server_lr)
    for place, cut in enumerate(splits(config)):
        eta = config.relative_lr / cut.curvature
        floor = drift_floor(
            moment_loss, MANIFOLD, cut.moments, jnp.asarray(cut.solution), eta, config.num_steps
        )
        yield {
            "part": "floor", "split": cut.name, "grad_norm": float(floor),
            "client_lr": eta, "curvature": cut.curvature,
        }  # fmt: skip
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
    """Yield the part and the settings of the runs on one split, with ``effects`` all parts."""
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

    def advance(state):
        return jax.block_until_ready(
            fcojax.advance(
                algorithm, hparams, state, data, plan, num_rounds=num_rounds, eval_every=num_rounds
            )
        )

    advance(state)  # compiles before the clock starts
    seconds, sent = 0.0, {"bytes_up": 0.0, "bytes_down": 0.0}
    for done in range(0, config.num_rounds + 1, config.eval_every):
        if done:
            began = time.perf_counter()
            state, history = advance(state)
            seconds += time.perf_counter() - began
            sent = {way: before + float(history[way][0]) for way, before in sent.items()}
        up, down = (
            round(total / params.dtype.itemsize / data.num_clients) for total in sent.values()
        )
        model = fcojax.read_model(algorithm, hparams, state)
        yield (
            {
                "split": cut.name,
                "round": done,
                "floats_up": up,
                "floats_down": down,
                "seconds": seconds,
            }
            | {measure: float(value) for measure, value in cut.judge(model).items()}
            | (run._asdict() | {"batch_size": run.batch_size or 0})
        )
