"""Rows and tables: each method at its best point, with the score of every client."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, select
from experiments.studies.shared import Chart, Curve, figure, least
from experiments.studies.shared import digits as pixels
from experiments.study import Config
from fcojax import algorithms, personal, tree
from fcojax.algorithms import Algorithm
from fcojax.problems import feature_skew, partition, softmax
from fcojax.problems.least_squares import half_squared_error
from fcojax.transforms import Penalty, l1, named, on_subtree, scaled

Client = dict[str, np.ndarray]


class Task(NamedTuple):
    """A population, with one entry for each client in all lists.

    Attributes:
      train: training rows.
      validation: rows by which the points of a method are compared.
      test: test rows.
      loss: one loss per row.
      start: the start point: a vector, or a dictionary of a kernel and a bias.
      curvature: the second derivative of the loss in the scores, at most.
      truth: the true weights of each client, or ``None``.
    """

    train: list[Client]
    validation: list[Client]
    test: list[Client]
    loss: Any
    start: Any
    curvature: float
    truth: np.ndarray | None = None

    @property
    def penalty(self) -> Penalty:
        """The l1 norm of the weights; a bias is free."""
        return on_subtree(l1(), named("kernel")) if isinstance(self.start, dict) else l1()

    @property
    def data(self) -> fcojax.ClientData:
        return fcojax.from_clients(self.train)

    @property
    def smoothness(self) -> float:
        """The largest smoothness constant of a client's mean loss."""
        wide = int(isinstance(self.start, dict))  # a column of ones for the bias
        xs = [np.pad(rows["x"], ((0, 0), (0, wide)), constant_values=1.0) for rows in self.train]
        return self.curvature * max(float(np.linalg.norm(x, 2)) ** 2 / len(x) for x in xs)


def lasso(config: Config, seed: int) -> Task:
    """Return regressions on features of different scales, with partly shared supports."""
    own, rng = config.lasso, np.random.default_rng(seed)
    kinds = (own.num_rows, own.num_held_out, own.num_held_out)
    num_clients, dim = own.num_clients, own.dim
    common = np.zeros(dim)
    common[: own.num_shared] = rng.choice([-1.0, 1.0], own.num_shared)
    truth = np.where(common, common + own.spread * rng.standard_normal((num_clients, dim)), 0)
    for weights in truth:
        chosen = rng.choice(np.arange(own.num_shared, dim), own.num_own, replace=False)
        weights[chosen] = rng.choice([-1.0, 1.0], own.num_own)
    x = rng.standard_normal((num_clients * sum(kinds), dim))
    owner = partition.by_column(np.repeat(np.arange(num_clients), sum(kinds)))
    x = feature_skew(x, owner, scale=own.skew, seed=seed).reshape(num_clients, -1, dim)
    y = np.einsum("mnj,mj->mn", x, truth) + own.noise * rng.standard_normal(x.shape[:2])
    ends = np.cumsum(kinds)[:-1]
    train, validation, test = (
        [{"x": a, "y": b} for a, b in zip(xs, ys, strict=True)]
        for xs, ys in zip(np.split(x, ends, axis=1), np.split(y, ends, axis=1), strict=True)
    )
    return Task(train, validation, test, half_squared_error, jnp.zeros(dim), 1.0, truth)


def digits(config: Config, seed: int) -> Task:
    """Return scikit-learn's digits at clients with Dirichlet shares of the classes."""
    own, rows = config.digits, pixels()
    shares = partition.dirichlet(
        rows["y"], own.num_clients, own.concentration, min_size=30, seed=seed
    )
    rng, parts = np.random.default_rng(seed), ([], [], [])
    for mine in np.split(shares.order, np.cumsum(shares.sizes)[:-1]):
        mine = mine[rng.permutation(len(mine))]
        cuts = np.round(np.cumsum((0.6, 0.2)) * len(mine)).astype(int)
        for part, chosen in zip(parts, np.split(mine, cuts), strict=True):
            part.append({name: values[chosen] for name, values in rows.items()})
    problem = softmax(fcojax.from_clients(parts[0]), num_classes=10)
    return Task(*parts, problem.loss, problem.init(jax.random.key(0)), 0.5)


TASKS: dict[str, Callable[[Config, int], Task]] = {"lasso": lasso, "digits": digits}


def _partial(config: Config, task: Task) -> Algorithm:
    """Return SCAFFOLD on the common part, beside own parts; an l1 norm on each.

    So is the data shared lasso of Gross and Tibshirani, Comput. Stat. Data Anal. 2016. Own parts
    have a larger strength: at the common one the sums at a minimiser are the local models, as
    |u + v| is at most |u| + |v|, and at M times it an entry of a single client costs as much in
    the common part. We take sqrt(M) times.
    """

    def base(loss):
        return algorithms.scaffold(loss, task.penalty, prox="feedback")

    own = scaled(task.penalty, config.own_strength * len(task.train) ** 0.5)
    return algorithms.partial_sharing(base, _of_sum(task.loss), named("own"), penalty=own)


def _of_sum(plain: Any) -> Any:
    """Return the loss of the sum of a common and an own part."""
    return lambda parts, rows: plain(tree.add(parts["common"], parts["own"]), rows)


def _ditto(config: Config, task: Task) -> Algorithm:
    return algorithms.ditto(task.loss, task.penalty)


METHODS: dict[str, Callable[[Config, Task], Algorithm]] = {
    "global": lambda config, task: algorithms.scaffold(task.loss, task.penalty, prox="feedback"),
    "local": _ditto,  # without a pull towards the common model
    "ditto": _ditto,
    "partial": _partial,
}


def study(config: Config) -> Iterator[Row]:
    """Yield a row for each task, seed and method."""
    for name, seed in itertools.product(config.tasks, config.seeds):
        task = TASKS[name](config, seed)
        for method in config.methods:
            given = {"part": f"{name}: {method}", "task": name, "seed": seed, "method": method}
            yield given | _best(config, seed, task, method)


def _best(config: Config, seed: int, task: Task, method: str) -> Row:
    """Return a method at the point with the least validation loss."""
    algorithm, data, smoothness = METHODS[method](config, task), task.data, task.smoothness
    pulls, is_split, first = method == "ditto", method == "partial", _first_strength(task)
    strengths = [first * x for x in (config.few_strengths if pulls else config.strengths)]
    numbers: dict[str, Any] = {"client_lr": [1 / smoothness], "penalty_scale": strengths}
    if method in ("local", "ditto"):
        numbers["prox_scale"] = [smoothness * pull for pull in config.pulls] if pulls else [0.0]
    grid = fcojax.grid.product(algorithm.hparams_type, **numbers)
    start = {"common": task.start, "own": task.start} if is_split else task.start
    keys, plan = jax.random.key(seed)[None], fcojax.local_steps(config.num_steps)
    state = fcojax.start(algorithm, grid, start, data, keys, plan)
    once: Any = dict.fromkeys(("num_rounds", "eval_every"), config.num_rounds)
    state, _ = fcojax.advance(algorithm, grid, state, data, plan, **once)
    loss = _of_sum(task.loss) if is_split else task.loss

    def losses(rows: list[Client]) -> np.ndarray:
        """Return the mean loss of each client's rows at its own model, axes [points, clients]."""
        observe = personal.by_client(algorithm, fcojax.from_clients(rows), loss, vectors=True)
        return np.asarray(fcojax.look(algorithm, grid, state, observe)["loss_by_client"])[:, 0]

    if algorithm.client_model is not None:
        models = personal.read_models(algorithm, grid, state)  # axes [points, seeds, clients]
    else:
        model = fcojax.read_model(algorithm, grid, state)
        models = jax.tree.map(lambda leaf: jnp.stack([leaf] * data.num_clients, axis=2), model)
    if is_split:
        models = tree.add(models["common"], models["own"])
    points = jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], models)
    scores = losses(task.validation).mean(axis=1)
    best = least(scores)
    found = {
        "points": len(scores),
        "penalty_scale": float(np.asarray(grid.penalty_scale)[best] / first),
        "second": float(np.asarray(grid.prox_scale)[best]) if pulls else None,
        "validation": float(scores[best]),
        "sizes": [len(rows["x"]) for rows in task.train],
        "loss": losses(task.test)[best].tolist(),
    }
    if task.truth is None:
        own = zip(task.test, points["kernel"][best], points["bias"][best], strict=True)
        found["accuracy"] = [
            float(np.mean((rows["x"] @ kernel + bias).argmax(axis=1) == rows["y"]))
            for rows, kernel, bias in own
        ]
    else:
        by_point = np.array([_f1(point, task.truth) for point in points])
        found["f1"] = by_point[best].tolist()
        # With the strength that fits the supports best, which only the truth can tell.
        found["largest f1"] = by_point[by_point.mean(axis=1).argmax()].tolist()
    return found


def _f1(kernels: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the F1 of each client's support."""
    found, true = np.abs(kernels) > 1e-6, truth != 0
    return 2 * (found & true).sum(axis=1) / (found.sum(axis=1) + true.sum(axis=1))


def _first_strength(task: Task) -> float:
    """Return the largest root mean square, over clients, of an entry of their gradients at zero."""
    slopes = []
    for rows in (jax.tree.map(jnp.asarray, rows) for rows in task.train):
        slope = jax.grad(lambda w, rows=rows: jnp.mean(task.loss(w, rows)))(task.start)
        slopes.append(slope["kernel"] if isinstance(slope, dict) else slope)
    return float(np.sqrt(np.mean(np.square(np.stack(slopes)), axis=0)).max())


def score(row: Row) -> np.ndarray:
    """Return the score of each client, larger is better."""
    return np.array(row["accuracy"]) if "accuracy" in row else -np.array(row["loss"])


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return a table of the methods on each task: scores over clients, and who gains over whom."""
    table = []
    for name, method in itertools.product(config.tasks, config.methods):
        seen = []
        for row in select(rows, task=name, method=method):
            at = score(row)
            found = personal.spread("score", at, larger_is_better=True)
            entry = {"mean score": at.mean(), "tenth quantile": found["score_p10"]}
            entry["worst tenth"] = found["score_worst"]
            for rival in ("global", "local"):
                for other in select(rows, task=name, seed=row["seed"], method=rival):
                    entry[f"gain over {rival}"] = np.mean(at > score(other))
            for measure in filter(row.__contains__, ("f1", "largest f1")):
                entry[measure.replace("f1", "F1")] = np.mean(row[measure])
            seen.append(entry)
        means = {key: float(np.mean([entry[key] for entry in seen])) for key in seen[0]}
        table.append({"method": method, "task": name} | means)
    return {"methods": table}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the clients' scores, sorted, and their gains by size for tasks of unequal clients."""
    charts, shown = [], [name for name in METHODS if name in config.methods]
    for name in config.tasks:
        own = select(rows, task=name)
        measure = "accuracy" if "accuracy" in own[0] else "minus the test loss"
        ranks, gains = [], []
        for at, method in enumerate(shown):
            [first] = select(own, method=method, seed=config.seeds[0])
            ends, size = enumerate(np.sort(score(first))), len(first["sizes"])
            points = [{"share": (k + 0.5) / size, "score": value} for k, value in ends]
            ranks.append(Curve(points, "score", f"C{at}", method, "o-"))
            pairs = zip(select(own, method=method), select(own, method="local"), strict=False)
            points = [
                {"size": size, "more": more}
                for mine, alone in pairs
                for size, more in zip(mine["sizes"], score(mine) - score(alone), strict=True)
            ]
            gains.append(Curve(points, "more", f"C{at}", method, "o"))
        charts.append(Chart("share", (f"{name}: share of clients", measure), ranks))
        if "local" in shown and any(len({*row["sizes"]}) > 1 for row in own):
            labels = f"{name}: training rows of a client", f"gain in {measure} over local"
            charts.append(Chart("size", labels, gains, "", "x"))
    return figure(directory / "clients.png", "What each client gets", charts, height=3.0)
