r"""Principal components over the Stiefel manifold: Zhang, Hu, So and Johansson (NeurIPS 2024).

    python -m experiments.run --config=configs/kpca.py --workdir=runs/kpca
    python -m experiments.run --config=configs/kpca.py --workdir=runs/kpca_mnist \
        --config.data_dir=DIR --config.num_rounds=500

Their method against RFedAvg, RFedProx and RFedSVRG (Li and Ma, 2023), all at the same local rate:
the gradient norm and the suboptimality over rounds, over floats sent and over seconds; then the
effect of the number of local steps and of the batch size. Without ``data_dir`` on a synthetic set
in which every client has directions of its own, 16 seconds on two cores; with it on MNIST, cut
into clients by digit and by writer, eleven minutes.

The source does not give k, the rates, the number of rounds or mu. The local rate is 0.2 over the
largest eigenvalue of any client, the strength of RFedProx 0.14 times that eigenvalue (10 on MNIST).
A round of RFedSVRG is two exchanges, and counts as one round here. The source's method can do with
one array down a round; ours sends two, so that absent clients may come back.

With full batches a client is its second moment, one example of 784 x 784 numbers in place of
thousands of rows: the same gradients, in double precision. Minibatch runs use the rows, in single
precision. ``DIR`` holds the idx files of MNIST with the writers of QMNIST, or ``mnist_train.npz``
with arrays images, labels and writer. Seconds are those of the rounds alone, without compilation.
"""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.ticker import EngFormatter
from ml_collections import ConfigDict

import fcojax
from experiments.report import axes
from experiments.report.claims import Claim
from experiments.report.plots import style
from experiments.study import Study
from fcojax import algorithms
from fcojax.engine.round import Plan, message_bytes
from fcojax.engine.run import as_arrays, block, start, with_chunk_size
from fcojax.problems import ClientData, from_clients, loaders, pca, synthetic_pca
from fcojax.problems.pca import variance_loss
from fcojax.theory.manifold import drift_floor
from fcojax.transforms import stiefel

TITLE = "Principal components on the Stiefel manifold"
MANIFOLD = stiefel(method="svd")  # the iterative ones take four times as long to compile


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.algorithms = ("fed_manifold", "r_fed_avg", "r_fed_prox", "r_fed_svrg")
    config.data_dir = ""
    config.num_clients = 10
    config.num_components = 5
    config.relative_lr = 0.2
    config.relative_prox = 0.14
    config.server_lr = 1.0
    config.num_steps = 10
    config.num_rounds = 100
    config.eval_every = 2
    config.step_counts = (5, 10, 15, 20)
    config.batch_shares = (1 / 30, 1 / 12, 1 / 6)
    config.seeds = (0, 1, 2)
    config.tolerance = 1e-5

    config.num_examples = 60
    config.dim = 30
    config.data_seed = 0
    return config


def quick(config):
    """Shrinks the run to under a minute on a laptop."""
    config.num_rounds = 60
    config.step_counts = (10, 20)
    config.batch_shares = (1 / 6,)
    config.seeds = (0, 1)


class Split(NamedTuple):
    """The same data cut into clients in one way.

    Attributes:
      name: how they were cut.
      rows: clients that hold rows, in single precision.
      moments: clients that hold their second moment as their one example.
      judge: the measures of a point.
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
def moment_loss(basis, rows):
    """``-tr(B^T S B) / 2`` for each symmetric second moment S."""
    return -jnp.sum(basis[None] * _times(rows["moment"], basis), axis=(1, 2)) / 2


@moment_loss.defjvp
def _moment_loss_jvp(primals, tangents):
    """One pass over S, where a derivative that does not know its symmetry takes two."""
    (basis, rows), (along, _) = primals, tangents
    product = _times(rows["moment"], basis)
    value = -jnp.sum(basis[None] * product, axis=(1, 2)) / 2
    return value, -jnp.sum(along[None] * product, axis=(1, 2))


def _times(moments, basis):
    return jnp.einsum("nde,ek->ndk", moments, basis, precision="highest")


def splits(config) -> Iterator[Split]:
    """The data in every way that they are cut into clients."""
    if not config.data_dir:
        problem = synthetic_pca(
            num_clients=config.num_clients,
            num_examples=config.num_examples,
            dim=config.dim,
            num_components=config.num_components,
            seed=config.data_seed,
        )
        offsets = np.asarray(problem.train.offsets)
        yield split("synthetic", np.split(np.asarray(problem.train.examples["x"]), offsets[1:-1]),
                    config)  # fmt: skip
        return
    pooled = loaders.mnist(config.data_dir)
    x, digits = pooled.examples["x"], pooled.examples["y"]
    by_digit = np.argsort(digits, kind="stable")
    yield split("by digit", np.array_split(x[by_digit], config.num_clients), config)
    writer = np.asarray(pooled.client)
    groups = np.array_split(np.unique(writer), config.num_clients)
    yield split("by writer", [x[np.isin(writer, group)] for group in groups], config)


def split(name: str, clients: list[np.ndarray], config) -> Split:
    """The clients' rows with what is computed of them once."""
    moments = [rows.astype(np.float64).T @ rows.astype(np.float64) / len(rows) for rows in clients]
    mean = np.mean(moments, axis=0)
    rows = from_clients([{"x": x} for x in clients])
    return Split(
        name,
        rows,
        from_clients([{"moment": moment[None]} for moment in moments]),
        jax.jit(pca(rows, num_components=config.num_components).measures),
        max(float(np.linalg.eigvalsh(moment)[-1]) for moment in moments),
        np.linalg.eigh(mean)[1][:, : -config.num_components - 1 : -1],
    )


def study(config) -> Iterator[dict[str, Any]]:
    """One row for each look at each run; and where RFedAvg is predicted to stall."""
    for place, cut in enumerate(splits(config)):
        eta = config.relative_lr / cut.curvature
        floor = drift_floor(
            moment_loss, MANIFOLD, cut.moments, jnp.asarray(cut.solution), eta, config.num_steps
        )
        yield {
            "part": "floor", "split": cut.name, "grad_norm": float(floor),
            "client_lr": eta, "curvature": cut.curvature,
        }  # fmt: skip
        for name in config.algorithms:
            for row in one_run(config, cut, name, config.num_steps, None, 0):
                yield {"part": "methods"} | row
        if place:  # the effects of steps and batches are shown once
            continue
        for num_steps in config.step_counts:
            for row in one_run(config, cut, "fed_manifold", num_steps, None, 0):
                yield {"part": "steps"} | row
        for share in config.batch_shares:
            for seed in config.seeds:
                batch_size = max(1, round(share * cut.rows.min_size))
                for row in one_run(config, cut, "fed_manifold", config.num_steps, batch_size, seed):
                    yield {"part": "batches"} | row


_ADVANCE = jax.jit(block, static_argnums=(0, 1, 2))


@functools.cache
def algorithm_of(name: str, loss) -> algorithms.Algorithm:
    """The algorithm; the same object for every seed, because a rebuilt one is compiled anew."""
    return getattr(algorithms, name)(loss, MANIFOLD)


def one_run(config, cut: Split, name: str, num_steps: int, batch_size: int | None, seed: int):
    """The looks at one run, all of which start at the same point."""
    full = batch_size is None
    data, loss = (cut.moments, moment_loss) if full else (cut.rows, variance_loss)
    factory, algorithm = getattr(algorithms, name), algorithm_of(name, loss)
    hparams = factory.Hparams(config.relative_lr / cut.curvature, config.server_lr)
    if "prox_scale" in factory.Hparams._fields:
        hparams = hparams._replace(prox_scale=config.relative_prox * cut.curvature)
    hparams = as_arrays(hparams)
    shape = (cut.rows.examples["x"].shape[1], config.num_components)
    left, _, right = np.linalg.svd(
        np.random.default_rng(0).standard_normal(shape), full_matrices=False
    )
    params = jnp.asarray(left @ right, jnp.float64 if full else jnp.float32)
    plan = Plan(fcojax.local_steps(num_steps, batch_size), fcojax.everyone())
    plan = with_chunk_size(plan, algorithm, hparams, params, data)
    exchanges = 2 if name == "r_fed_svrg" else 1
    down, up = (size // params.dtype.itemsize
                for size in message_bytes(algorithm, plan, hparams, params, data))  # fmt: skip
    key = jax.random.key(seed)
    state = start(algorithm, hparams, params, data)
    advance = functools.partial(_ADVANCE, algorithm, plan, exchanges * config.eval_every)
    jax.block_until_ready(advance(hparams, data, state, key))  # compiles, outside the time below
    seconds = 0.0
    for done in range(0, config.num_rounds + 1, config.eval_every):
        if done:
            began = time.perf_counter()
            state, _ = jax.block_until_ready(advance(hparams, data, state, key))
            seconds += time.perf_counter() - began
        model = algorithm.model(hparams, state.server)
        yield {
            "split": cut.name,
            "algorithm": name,
            "num_steps": num_steps,
            "batch_size": batch_size or 0,
            "seed": seed,
            "round": done,
            "floats_up": done * exchanges * up,
            "floats_down": done * exchanges * down,
            "seconds": seconds,
        } | {measure: float(value) for measure, value in cut.judge(model).items()}


def summarise(config, rows):
    """What each method has reached, and what it took to reach the tolerance."""
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
    steps = [
        {"split": name, "num_steps": num_steps, "grad_norm": curve[-1]["grad_norm"]}
        for (name, num_steps), curve in curves(rows, "steps", "split", "num_steps").items()
    ]
    batches = [
        {"split": name, "batch_size": size, "floor": late_mean_square(curve)}
        for (name, size), curve in curves(rows, "batches", "split", "batch_size").items()
    ]
    floors = [row for row in rows if row["part"] == "floor"]
    return {"methods": table, "steps": steps, "batches": batches, "floors": floors}


def curves(rows, part: str, *fields: str) -> dict[tuple, list[dict]]:
    """The rows of one part by the values of some columns, in the order of the run."""
    result: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["part"] == part:
            result.setdefault(tuple(row[field] for field in fields), []).append(row)
    return result


def late_mean_square(curve) -> float:
    """The mean squared gradient norm over the second half of the rounds."""
    last = max(row["round"] for row in curve)
    return float(np.mean([row["grad_norm"] ** 2 for row in curve if row["round"] > last / 2]))


def claims(config, rows, summary):
    """What the paper says, on every split; the summary is not needed."""
    del summary
    result = []
    floors = {row["split"]: row["grad_norm"] for row in rows if row["part"] == "floor"}
    methods = curves(rows, "methods", "split", "algorithm")
    for name, floor in floors.items():
        least = {
            algorithm: min(row["grad_norm"] for row in curve if row["round"] > 0)
            for (where, algorithm), curve in methods.items()
            if where == name
        }
        rounds = config.num_rounds
        if "fed_manifold" in least:
            result.append(
                Claim(f"{name}: the manifold method's least gradient norm in {rounds} rounds",
                      least["fed_manifold"], config.tolerance, at_least=False)
            )  # fmt: skip
        if "r_fed_avg" in least:
            late = [row["grad_norm"] for row in methods[name, "r_fed_avg"]
                    if row["round"] > rounds / 2]  # fmt: skip
            result.append(
                Claim(f"{name}: RFedAvg stalls; its least gradient norm in the second half of the "
                      "rounds over half of its predicted floor", min(late) / (floor / 2), 1.0)
            )  # fmt: skip
        batches = sorted(
            (size, late_mean_square(curve))
            for (where, size), curve in curves(rows, "batches", "split", "batch_size").items()
            if where == name
        )
        if len(batches) > 1:
            result.append(
                Claim(f"{name}: a larger batch lowers the floor; that of batch {batches[0][0]} "
                      f"over that of batch {batches[-1][0]}", batches[0][1] / batches[-1][1], 1.0)
            )  # fmt: skip
    return result


def draw(config, rows, summary, directory):
    """For each split the methods over rounds, floats and seconds; and the two effects."""
    del summary
    paths = []
    for floor in (row for row in rows if row["part"] == "floor"):
        mine = [row for row in rows if row["split"] == floor["split"]]
        slug = floor["split"].replace(" ", "_")
        paths.append(draw_methods(config, mine, floor, directory / f"methods_{slug}.png"))
        if curves(mine, "steps"):
            paths.append(draw_effects(config, mine, floor, directory / f"effects_{slug}.png"))
    return paths


_OVER = (
    ("round", "round"),
    ("floats_up", "floats sent by a client"),
    ("seconds", "seconds, compilation excluded"),
)
_NORM = "norm of the Riemannian gradient"


def draw_methods(config, rows, floor, path):
    """Gradient norm and suboptimality of the four methods, over what a user may have to pay."""
    figure, grid = axes.panels(3, 2)
    for place, axis in enumerate(grid):
        column, label = _OVER[place % 3]
        measure = "grad_norm" if place < 3 else "suboptimality"
        for (algorithm,), curve in curves(rows, "methods", "algorithm").items():
            name, colour, line = style(algorithm)
            x, y = ([row[key] for row in curve] for key in (column, measure))
            axis.plot(x, y, line, color=colour, label=name, linewidth=1.5)
        if place < 3:
            axis.axhline(floor["grad_norm"], color="#555555", linestyle=":", linewidth=1.2,
                         label="predicted floor of RFedAvg")  # fmt: skip
        if column == "floats_up":
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.describe(axis, label, "" if place % 3 else (_NORM if place < 3 else "F - F*"), log="y")
    title = f"{TITLE}, {floor['split']}: {config.num_steps} local steps, full batches"
    return axes.finish(figure, path, title)


def draw_effects(config, rows, floor, path):
    """The manifold method's gradient norm for several numbers of steps and several batch sizes."""
    figure, grid = axes.panels(2)
    by_steps = curves(rows, "steps", "num_steps")
    for (num_steps,), colour in zip(by_steps, axes.shades(len(by_steps)), strict=True):
        curve = by_steps[num_steps,]
        grid[0].plot([row["round"] for row in curve], [row["grad_norm"] for row in curve],
                     color=colour, label=f"{num_steps} local steps", linewidth=1.5)  # fmt: skip
    axes.describe(grid[0], "round", _NORM, title="full batches", log="y")
    by_size = curves(rows, "batches", "batch_size")
    for (size,), colour in zip(by_size, axes.shades(len(by_size)), strict=True):
        by_seed: dict[int, list] = {}
        for row in by_size[size,]:
            by_seed.setdefault(row["seed"], []).append(row)
        rounds = [row["round"] for row in next(iter(by_seed.values()))]
        lines = np.array([[row["grad_norm"] for row in curve] for curve in by_seed.values()])
        axes.band(grid[1], rounds, lines, "--", color=colour, label=f"batch {size}")
    title = f"minibatches, {config.num_steps} local steps"
    axes.describe(grid[1], "round", "", title=title, log="y")
    for axis in grid:
        axis.tick_params(which="minor", labelsize=7.5)
    return axes.finish(figure, path, f"The manifold method, {floor['split']}", 4)


EXPERIMENT = Study(
    title=TITLE,
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    x64=True,
)
