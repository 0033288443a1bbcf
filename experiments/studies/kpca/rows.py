"""Rows and tables of the manifold method and the baselines, with the cost of a round."""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.study import Config, from_config
from fcojax import algorithms, datasets, from_clients
from fcojax.problems import ClientData, pca, synthetic_pca
from fcojax.problems.pca import variance_loss
from fcojax.theory.manifold import drift_floor
from fcojax.transforms import stiefel
from fcojax.types import Array, PyTree

Curves = dict[tuple, list[Row]]  # rows by the values of some columns
METHODS = ("fed_manifold", "r_fed_avg", "r_fed_prox", "r_fed_svrg")
# The parts that vary one parameter of the manifold method, and its column.
EFFECTS = {"steps": "num_steps", "batches": "batch_size", "servers": "server_lr"}
WITH_COHORTS = ("fed_manifold", "r_fed_svrg")  # which run with a part of the clients too

MANIFOLD = stiefel()


class Split(NamedTuple):
    """The data, split into clients.

    Attributes:
      name: the name of the division.
      rows: clients with their rows, in single precision.
      moments: clients with their second moment as their only example.
      judge: returns the measures of a point.
      curvature: the largest eigenvalue of any client's second moment.
      solution: the leading eigenvectors of the mean second moment.
    """

    name: str
    rows: ClientData
    moments: ClientData
    judge: Callable[[jax.Array], dict[str, jax.Array]]
    curvature: float
    solution: np.ndarray


@jax.custom_jvp
def moment_loss(basis: Array, rows: PyTree) -> Array:
    """``-tr(B^T S B) / 2`` for each symmetric second moment S."""
    return -jnp.sum(basis[None] * _times(rows["moment"], basis), axis=(1, 2)) / 2


# The derivative in one pass over S; automatic differentiation needs two.
moment_loss.defjvps(
    lambda along, value, basis, rows: (
        -jnp.sum(along[None] * _times(rows["moment"], basis), axis=(1, 2))
    ),
    None,
)


def _times(moments: Array, basis: Array) -> Array:
    return jnp.einsum("nde,ek->ndk", moments, basis, precision="highest")


def splits(config: Config) -> Iterator[Split]:
    """Yield each split of the data."""
    for name, clients in _divisions(config):
        moments = [x.astype(np.float64).T @ x.astype(np.float64) / len(x) for x in clients]
        rows = from_clients([{"x": x} for x in clients])
        yield Split(
            name,
            rows,
            from_clients([{"moment": moment[None]} for moment in moments]),
            jax.jit(pca(rows, num_components=config.num_components).measures),
            max(float(np.linalg.eigvalsh(moment)[-1]) for moment in moments),
            np.linalg.eigh(np.mean(moments, axis=0))[1][:, : -config.num_components - 1 : -1],
        )


def _divisions(config: Config) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield the name of each division, and the rows of its clients."""
    if not config.data_dir:
        data = from_config(synthetic_pca, config, seed=config.data_seed).train
        yield "synthetic", np.split(np.asarray(data.examples["x"]), np.asarray(data.offsets)[1:-1])
        return
    pooled = datasets.mnist(config.data_dir)
    x, digits, writer = pooled.examples["x"], pooled.examples["y"], np.asarray(pooled.client)
    by_digit = np.argsort(digits, kind="stable")
    yield "by digit", np.array_split(x[by_digit], config.num_clients)
    groups = np.array_split(np.unique(writer), config.num_clients)
    yield "by writer", [x[np.isin(writer, group)] for group in groups]


class Run(NamedTuple):
    """One run of the study; all runs start at the same point.

    Attributes:
      relative_lr: the client rate times the curvature.
      batch_size: rows per step; ``None`` for full batches, by second moments.
      cohort_size: clients in a round; ``None`` for all.
    """

    num_steps: int
    relative_lr: float
    server_lr: float = 1.0
    algorithm: str = "fed_manifold"
    batch_size: int | None = None
    seed: int = 0
    cohort_size: int | None = None


def study(config: Config) -> Iterator[dict[str, Any]]:
    """Yield the rows of each draw: each seed draws synthetic data anew, and MNIST is one draw."""
    for seeds in [config.seeds] if config.data_dir else zip(config.seeds, strict=True):
        own = config.copy_and_resolve_references()
        own.seeds, own.data_seed = seeds, config.data_seed + seeds[0]
        yield from (row | {"draw": own.data_seed} for row in _drawn(own))


def _drawn(config: Config) -> Iterator[dict[str, Any]]:
    """Yield one row per run and evaluation, and the predicted floor of RFedAvg."""
    usual = Run(config.num_steps, config.relative_lr, config.server_lr, seed=config.seeds[0])
    for place, cut in enumerate(splits(config)):
        eta = config.relative_lr / cut.curvature
        given = moment_loss, MANIFOLD, cut.moments, jnp.asarray(cut.solution)
        floor = drift_floor(*given, eta, config.num_steps)
        found = {"grad_norm": floor, "client_lr": eta, "curvature": cut.curvature}
        yield {"part": "floor", "split": cut.name} | found
        for part, run in _runs(config, usual, cut, effects=place == 0):
            for row in one_run(config, cut, run):
                yield {"part": part} | row
    for num_clients in () if config.data_dir else config.crowds:
        more = config.copy_and_resolve_references()
        more.num_clients = num_clients
        [cut] = splits(more)
        for seed in config.seeds:
            run = usual._replace(batch_size=config.crowd_batch, seed=seed)
            for row in one_run(config, cut, run):
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
    for share, seed in itertools.product(config.batch_shares, config.seeds):
        batch_size = max(1, round(share * cut.rows.min_size))
        yield "batches", usual._replace(batch_size=batch_size, seed=seed)
    for name, seed in itertools.product(WITH_COHORTS, config.seeds):
        yield "cohorts", usual._replace(algorithm=name, cohort_size=config.cohort_size, seed=seed)


def one_run(config: Config, cut: Split, run: Run) -> Iterator[Row]:
    """Yield the rows of one run."""
    full, size = run.batch_size is None, run.cohort_size
    data, loss = (cut.moments, moment_loss) if full else (cut.rows, variance_loss)
    factory = getattr(algorithms, run.algorithm)
    # With full participation the manifold method may send one array, as in the source.
    options = {"sends": "direction"} if run.algorithm == "fed_manifold" and not size else {}
    algorithm = factory(loss, MANIFOLD, **options)
    hparams = factory.Hparams(run.relative_lr / cut.curvature, run.server_lr)
    if "prox_scale" in factory.Hparams._fields:
        hparams = hparams._replace(prox_scale=config.relative_prox * cut.curvature)
    shape = (cut.rows.examples["x"].shape[1], config.num_components)
    start = np.random.default_rng(0).standard_normal(shape)
    left, _, right = np.linalg.svd(start, full_matrices=False)
    params = jnp.asarray(left @ right, jnp.float64 if full else jnp.float32)
    plan = work = fcojax.local_steps(run.num_steps, run.batch_size)
    if size:
        cohort = fcojax.uniform_cohort(cohort_size=size)
        # RFedSVRG has one cohort for both exchanges of a round.
        plan = fcojax.Plan(work, fcojax.held(cohort) if "svrg" in run.algorithm else cohort)
    state = fcojax.start(algorithm, hparams, params, data, jax.random.key(run.seed), plan)
    # A round of RFedSVRG is two rounds of the engine.
    num_rounds = config.eval_every * (2 if run.algorithm == "r_fed_svrg" else 1)

    def advance(state):
        once = {"num_rounds": num_rounds, "eval_every": num_rounds}
        return jax.block_until_ready(fcojax.advance(algorithm, hparams, state, data, plan, **once))

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
        cost = {"round": done, "floats_up": up, "floats_down": down, "seconds": seconds}
        settings = run._asdict() | {"batch_size": run.batch_size or 0}
        yield {"split": cut.name} | cost | cut.judge(model) | settings


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the end of each method, its cost to the tolerance, and the effects."""
    table, ends = [], ("round", "grad_norm", "suboptimality", "seconds")
    for curve in curves(rows, "methods", "split", "algorithm", "seed").values():
        first = next((row for row in curve if row["grad_norm"] <= config.tolerance), {})
        row = {key: curve[-1][key] for key in ("split", "algorithm", "seed", *ends)}
        costs = {key: first.get(key) for key in ("round", "floats_up", "seconds")}
        table.append(row | {f"{key}_to_tolerance": cost for key, cost in costs.items()})
    effects = {
        part: [
            {key: curve[-1][key] for key in ("split", "seed", EFFECTS[part])} | {name: end(curve)}
            for curve in curves(rows, part, "split", EFFECTS[part], "seed").values()
        ]
        for part, name, end in (
            ("steps", "grad_norm", lambda own: own[-1]["grad_norm"]),
            ("batches", "floor", late_mean_square),
            ("servers", "rounds_to_tolerance", lambda own: rounds_to(config.tolerance, own)),
        )
    }
    by_size = curves(rows, "crowds", "num_clients").items()
    crowds = [{"num_clients": n, "floor": late_mean_square(curve)} for (n,), curve in by_size]
    return {"methods": table} | effects | {"crowds": crowds, "floors": select(rows, part="floor")}


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


def numbers_of(config: Config, rows: list[Row], floor: Row) -> dict[str, Any]:
    """Return the numbers of one draw of a split, by column."""
    rows = select(rows, split=floor["split"], draw=floor.get("draw"))
    methods = {name: curve for (name,), curve in curves(rows, "methods", "algorithm").items()}
    ours, averaged, pulled, reduced = (methods.get(name, []) for name in METHODS)
    effects = (sorted(curves(rows, *effect).items()) for effect in EFFECTS.items())
    steps, batches, servers = ([curve for _, curve in effect] for effect in effects)
    half, found = config.num_rounds / 2, {}
    if averaged:
        late = min(row["grad_norm"] for row in averaged if row["round"] > half)
        found["averaged"] = late / (floor["grad_norm"] / 2)
    if pulled:
        middle = next(row for row in pulled if row["round"] >= half)
        found["pulled"] = pulled[-1]["grad_norm"] / middle["grad_norm"]
    if ours:
        found["least"] = min(row["grad_norm"] for row in ours if row["round"] > 0)
    if ours and (others := [*averaged, *pulled, *reduced]):
        as_many = [row["grad_norm"] for row in others if _floats(row) <= _floats(ours[-1])]
        found["sent"] = ours[-1]["grad_norm"] / min(as_many)
    if ours and reduced:
        found["reduced"] = _saved(config.tolerance, reduced, ours)
        found["twice"] = _floats(reduced[-1]) / _floats(ours[-1])
    if len(steps) > 1:
        found["steps"] = min(_saved(config.tolerance, *pair) for pair in itertools.pairwise(steps))
    if len(batches) > 1:
        found["batches"] = floors(batches[0]) / floors(batches[-1])
    if ours and (cohorts := curves(rows, "cohorts", "algorithm", "seed")):
        own, rival = ([x for (at, _), x in cohorts.items() if at == name] for name in WITH_COHORTS)
        share = own[0][-1]["floats_up"] / ours[-1]["floats_up"]
        leasts = np.array([column(curve, "grad_norm").min() for curve in own])
        found["partial"] = leasts / max(config.tolerance, column(ours, "grad_norm").min())
        found["spared"] = [share * _saved(config.tolerance, curve, ours) for curve in own]
        late = [min(row["grad_norm"] for row in x if row["round"] > half) for x in rival]
        found["stopped"] = np.array(late) / leasts
    if servers:
        level = max(config.tolerance, servers[0][-1]["grad_norm"])
        found["servers"] = _ratio(level, *servers) / math.sqrt(config.num_clients)
    return found


def floors(curve: list[Row]) -> np.ndarray:
    """Return the late mean squared gradient norm of each seed, in the order of the seeds."""
    return np.array([late_mean_square(own) for own in by_seed(curve).values()])


def late_mean_square(curve: list[Row]) -> float:
    """Return the mean squared gradient norm over the second half of the rounds."""
    last = max(row["round"] for row in curve)
    return float(np.mean([row["grad_norm"] ** 2 for row in curve if row["round"] > last / 2]))


def _saved(tolerance: float, one: list[Row], other: list[Row]) -> float:
    """Return the ratio of the rounds in which two curves reach the tolerance.

    A run that is stopped above the tolerance is compared at the last level that both reach, not
    counted as never there.
    """
    least = (column(curve, "grad_norm").min() for curve in (one, other))
    return _ratio(max(tolerance, *least), one, other)


def _ratio(level: float, one: list[Row], other: list[Row]) -> float:
    """Return the ratio of the rounds in which two curves reach a level; NaN if one never does."""
    first, second = (rounds_to(level, curve) or math.nan for curve in (one, other))
    return first / second


def _floats(row: Row) -> int:
    """Return the floats that a client has sent and received."""
    return row["floats_up"] + row["floats_down"]
