"""Rows, summary and figure: limits with the safe step, and rounds with tuned steps."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.ticker import LogLocator

import fcojax
from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.report.summary import final_from
from experiments.report.tables import best_point
from experiments.studies.shared import Task
from experiments.study import Config, from_config
from fcojax import algorithms
from fcojax.algorithms import Algorithm, takes
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.check.population import regression_clients
from fcojax.extend import is_schedule, num_points, take
from fcojax.problems import factored, factored_loss, population_loss
from fcojax.problems.least_squares import half_squared_error
from fcojax.reference import fista
from fcojax.transforms import Penalty, euclidean, group_l2, l1, moreau_envelope
from fcojax.types import Array, Count, NonNegative, Positive

_TUNED = ("client_lr", "server_lr", "prox_step")


@takes(algorithms.fed_dr.Hparams, "penalty")
def late(loss: Any, penalty: Penalty, *, solver: Any, max_delay: Count = 3) -> Algorithm:
    """Return FedDR whose clients receive a message from up to ``max_delay`` rounds ago.

    This is asyncFedDR: Tran-Dinh, Pham, Phan and Nguyen, "FedDR: randomized Douglas-Rachford
    splitting algorithms for nonconvex federated composite optimization", NeurIPS 2021
    (arXiv 2103.03452), Algorithm 2. With one client per round, a round is one event of that
    algorithm. Each round's delay is drawn uniformly from 0 up to ``max_delay``.
    """
    algorithm = algorithms.fed_dr(loss, penalty, solver=solver)
    # The server's state, its last messages, newest first, and the message that it broadcasts.

    def init(hparams, params):
        inner, client = algorithm.init(hparams, params)
        message = algorithm.broadcast(hparams, inner)
        past = jax.tree.map(lambda leaf: jnp.stack([leaf] * (max_delay + 1)), message)
        return (inner, past, message), client

    def server_update(hparams, server, mean_upload, fraction, key):
        inner = algorithm.server_update(hparams, server[0], mean_upload, fraction, key)
        newest = algorithm.broadcast(hparams, inner)
        past = jax.tree.map(
            lambda new, old: jnp.concatenate([new[None], old[:-1]]), newest, server[1]
        )
        delay = jax.random.randint(key, (), 0, max_delay + 1)
        return inner, past, jax.tree.map(lambda leaf: leaf[delay], past)

    return algorithm._replace(
        init=init,
        broadcast=lambda hparams, server: server[2],
        server_update=server_update,
        model=lambda hparams, server: algorithm.model(hparams, server[0]),
    )


class SmoothedHparams(NamedTuple):
    """``smoothing`` is mu, which a schedule decreases; the others are those of ``fed_avg``."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1
    smoothing: Positive = 1.0


@takes(SmoothedHparams, "penalty")
def smoothed(loss: Any, penalty: Penalty) -> Algorithm:
    r"""Return FedAvg on F plus the Moreau envelope of psi with parameter mu.

    The gradient of the envelope, :math:`(w - \mathrm{prox}_{\mu\psi}(w)) / \mu`, is 1 / mu
    Lipschitz. With a fixed mu the limit is near the minimiser of the smoothed objective; the model
    has no exact zeros.
    """
    envelope = moreau_envelope(penalty)
    huber = Penalty(lambda w, numbers: envelope(w, *numbers), penalty.prox)
    plain = algorithms.fed_avg_subgradient(loss, huber)

    def client_update(hparams, *given):
        numbers = hparams.smoothing, hparams.penalty_scale
        return plain.client_update(hparams._replace(penalty_scale=numbers), *given)

    return plain._replace(client_update=client_update)


def decreasing(first: float, power: float, num_rounds: int) -> Any:
    r"""Return the schedule :math:`\mu_r = \mu_0 / (r + 1)^a`."""
    return fcojax.schedule(first / np.arange(1.0, num_rounds + 1) ** power)


class Method(NamedTuple):
    """A row of the tables.

    Attributes:
      text: the name of the method in the tables.
      name: the factory in ``fcojax.algorithms``.
      limit: ``"claimed"`` if its source claims that the limit is the optimum, ``"exact"`` if we
        expect it, ``"biased"`` if we expect an error proportional to the step; else empty.
      tuned: ``"round"``, steps as multiples of 1 / (K L); ``"step"``, of 1 / L; ``"prox"``, the
        prox step as a multiple of 1 / L.
      options: further arguments of the factory.
      numbers: hyperparameters that are not tuned.
      half: whether half of the clients take part in a round, instead of all.
      random: whether seeds differ even if all clients take part.
      own: a factory in place of that in ``fcojax.algorithms``.
    """

    text: str
    name: str
    limit: str = "claimed"
    tuned: str = "round"
    options: Mapping[str, Any] = {}
    numbers: Mapping[str, float] = {}
    half: bool = False
    random: bool = False
    own: Any = None

    @property
    def factory(self) -> Any:
        """The factory."""
        return self.own or getattr(algorithms, self.name)

    def build(self, task: Task) -> Algorithm:
        """Return the algorithm."""
        mirror = self.factory.geometry == ("mirror",)
        psi = euclidean(task.penalty) if mirror else task.penalty
        return self.factory(task.loss, psi, **self.options)

    def fixed(self, task: Task) -> dict[str, Any]:
        """Return the hyperparameters that are not tuned, some of which follow from the problem."""
        known = {
            "smoothing": decreasing(1 / task.smoothness, 0.5, 20_000),
            "strong_convexity": task.least_curvature,
            "prox_step": 4 / task.smoothness,
        }
        own = {name: known[name] for name in self.factory.Hparams._fields if name in known}
        return {"penalty_scale": task.scale} | own | dict(self.numbers)


_FULL = functools.partial(Method, tuned="prox", options={"solver": exact()})
_PART = functools.partial(Method, tuned="prox", options={"solver": gd()})
_CLIENT, _FEEDBACK = {"server_prox": False}, {"prox": "feedback"}
_PLAIN, _SKIPS = {"relaxation": 1.0}, {"skip_probability": 0.5}

METHODS = {
    "prox_gd": Method("ProxGD, centralised", "prox_gd", own=algorithms.fed_mid_osp),
    "subgradient": Method("FedAvg, subgradient", "fed_avg_subgradient", "biased"),
    "smoothed": Method("FedAvg, smoothed penalty", "fed_avg_subgradient", "", own=smoothed),
    "fed_mid": Method("FedMiD as printed", "fed_mid", ""),
    "fed_mid_client": Method("FedMiD, client prox only", "fed_mid", "biased", options=_CLIENT),
    "fed_mid_osp": Method("FedMiD-OSP", "fed_mid_osp", "biased"),
    "fed_dual_avg": Method("FedDualAvg", "fed_dual_avg", "biased"),
    "osp": Method("FedDualAvg-OSP", "fed_dual_avg_osp", ""),
    "dual_tracking": Method("FedDualAvg, tracking", "fed_dual_avg_tracking", "exact"),
    "fast": Method("Fast-FedDualAvg", "fast_fed_dual_avg", ""),
    "composite_fl": Method("Composite FL", "composite_fl", "exact"),  # proved: a neighbourhood
    "scaffold": Method("SCAFFOLD, client prox", "scaffold"),
    "scaffold_server": Method("SCAFFOLD, server prox", "scaffold", "", options={"prox": "server"}),
    "feedback": Method("SCAFFOLD, server prox, feedback", "scaffold", "exact", options=_FEEDBACK),
    "fast_scaffold": Method("SCAFFOLD, feedback, momentum", "fast_scaffold", "exact"),
    "mime": Method("MimeSVRG", "mime"),
    "prox_skip": Method("ProxSkip, p = 1/K", "prox_skip", tuned="step"),
    "normal_map": Method("Normal map", "fed_normal_map"),
    "fed_dr": _FULL("FedDR, exact, alpha 1", "fed_dr", numbers=_PLAIN),
    "fed_dr_over": _FULL("FedDR, exact, alpha 1.9", "fed_dr", numbers={"relaxation": 1.9}),
    "fed_dr_gd": _PART("FedDR, K steps, alpha 1", "fed_dr", numbers=_PLAIN),
    "fed_dr_late": _PART(
        "FedDR, K steps, up to 3 rounds late", "fed_dr", numbers=_PLAIN, random=True, own=late
    ),
    "fed_admm": _PART("FedADMM, K steps", "fed_admm"),
    "fed_pd": _FULL("FedPD, exact solves", "fed_pd"),
    "fed_pd_gd": _PART("FedPD, K steps", "fed_pd"),
    "skipping": _FULL("FedPD, exact, skips half", "fed_pd", "", numbers=_SKIPS, random=True),
    "fed_dyn": _PART("FedDyn, K steps", "fed_dyn"),
    "composite_fl_half": Method(
        "Composite FL, half the clients", "composite_fl", "exact", half=True
    ),
    "prox_skip_half": Method("ProxSkip, half the clients", "prox_skip", "exact", "step", half=True),
    "fed_dyn_half": _PART("FedDyn, half the clients", "fed_dyn", half=True),
}


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all tables, problem by problem."""
    for problem in config.problems:
        task, facts = lasso(config, problem)
        yield {"part": "problem", "problem": problem} | facts
        for name in config.methods:
            for row in limits(config, task, name):
                yield {"part": "limit", "problem": problem, "method": name} | row
            for row in tuned(config, task, name, config[problem].num_rounds):
                yield {"problem": problem, "method": name} | row


def limits(config: Config, task: Task, name: str) -> Iterator[Row]:
    """Yield the end points of a method with the safe step, and with half of it."""
    step = config.limit_prox_step * task.smoothness if METHODS[name].tuned == "prox" else 1.0
    num_rounds = config.own_limit_rounds.get(name, config.limit_rounds)
    for share in (1.0, 0.5):
        _, history = run(config, task, name, [share * step], num_rounds, num_rounds // 10)
        ends = {key: float(history[key][0, :, -1].mean()) for key in ("distance", "nonzeros")}
        yield {"step_share": share} | ends


def tuned(config: Config, task: Task, name: str, num_rounds: int) -> Iterator[Row]:
    """Yield all points of a method's grid, and what the best one needs to each distance."""
    factors = config.prox_factors if METHODS[name].tuned == "prox" else config.step_factors
    grid, history = run(config, task, name, factors, num_rounds, 1)
    needed = _until(history, config.tolerance)
    lasts = history["distance"][..., -1].mean(axis=-1)
    best = np.lexsort([lasts, needed["rounds"]])[0]  # NaN sorts last
    supports = np.moveaxis(history["support"], 2, 0)
    settled = final_from(supports, 1 + np.arange(num_rounds)).max(axis=(1, 2))
    needed |= {"last_distance": lasts, "final": np.where(np.isfinite(lasts), settled, np.nan)}
    for i in range(num_points(grid)):
        fields = take(grid, i)._asdict().items()
        row = {field: float(x) for field, x in fields if not is_schedule(x)}
        row |= {key: float(numbers[i]) for key, numbers in needed.items()}
        yield {"part": "point", "best": bool(i == best)} | row
    for tolerance in config.tolerances:
        reached = {key: float(at[best]) for key, at in _until(history, tolerance).items()}
        yield {"part": "reached", "tolerance": tolerance} | reached


def _until(history: Mapping[str, np.ndarray], tolerance: float) -> dict[str, np.ndarray]:
    """Return the rounds and floats until a distance, means over seeds; infinity if it is not."""
    within = history["distance"] <= tolerance
    reached, first = within.any(axis=-1), within.argmax(axis=-1)
    counts = {"rounds": first + 1}
    for way in ("up", "down"):
        total = history[f"bytes_{way}"] / 8  # in double precision
        counts[f"floats_{way}"] = np.take_along_axis(total, first[..., None], axis=-1)[..., 0]
    return {key: np.where(reached, at, np.inf).mean(axis=-1) for key, at in counts.items()}


def points(config: Config, task: Task, name: str, factors: Sequence[float]) -> Any:
    """Return the grid of a method, with step sizes as multiples of the safe one."""
    method, hparams, safe = METHODS[name], METHODS[name].factory.Hparams, 1 / task.smoothness
    if method.tuned == "round" and name != "prox_gd":
        safe /= task.work.num_steps or 1
    steps = [factor * safe for factor in factors]
    if method.tuned == "prox":
        grid = {key: [value] * len(steps) for key, value in method.fixed(task).items()}
        grid["client_lr"] = [1 / (task.smoothness + 1 / eta) for eta in steps]
        return fcojax.grid.zipped(hparams, **grid | {"prox_step": steps})
    grid = {key: [value] for key, value in method.fixed(task).items()} | {"client_lr": steps}
    if "server_lr" in hparams._fields:
        grid["server_lr"] = list(config.server_lr) if len(factors) > 1 else [1.0]
    return fcojax.grid.product(hparams, **grid)


def run(
    config: Config, task: Task, name: str, factors: Sequence[float], *rounds: int
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the grid, and the history with axes [points, seeds, rounds]."""
    method, cohort = METHODS[name], fcojax.everyone()
    if method.half:
        cohort = fcojax.uniform_cohort(cohort_size=max(1, config.num_clients // 2))
    plan = fcojax.Plan(fcojax.local_steps(1) if name == "prox_gd" else task.work, cohort)
    seeds = config.seeds if method.half or method.random else config.seeds[:1]
    grid = points(config, task, name, factors)
    return grid, task.swept(method.build(task), grid, seeds, plan, *rounds)


def ends(rows: list[Row], problem: str, name: str) -> tuple[Row, Row, list[Row], Row]:
    """Return a method's limits, at the safe step and at half of it, its points and its best one."""
    own = select(rows, problem=problem, method=name)
    (far, near), points = select(own, part="limit"), select(own, part="point")
    return far, near, points, select(points, best=True)[0]


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return, by problem and method, the best point of the grid, and what it needs."""
    table, needed = [], {}
    for problem, name in itertools.product(config.problems, config.methods):
        far, _, points, best = ends(rows, problem, name)
        row = {"problem": problem, "method": METHODS[name].text} | best_point(points, _TUNED)
        row |= {"exchanges": best["rounds"], "limit": far["distance"]}
        table.append(row | {"support final from round": best["final"]})
        reached = select(rows, part="reached", problem=problem, method=name)
        to = ", ".join(f"{row['tolerance']:g}" for row in reached)
        needed.setdefault(name, {"method": METHODS[name].text, "to": to})[problem] = _told(reached)
    return {"best": table, "exchanges; thousands of floats": list(needed.values())}


def _told(rows: list[Row]) -> str:
    """Return the exchanges to each distance, and the thousands of floats; "-" for none."""
    counts = column(rows, "rounds"), column(rows, "floats_up") + column(rows, "floats_down")
    texts = [
        ", ".join(f"{at / unit:.{digits}f}" if np.isfinite(at) else "-" for at in count)
        for count, unit, digits in zip(counts, (1, 1000), (0, 1), strict=True)
    ]
    return "; ".join(texts) if np.isfinite(counts[0]).any() else "-"


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the limits of all methods, a panel for each problem."""
    drawn, panels = axes.panels(len(config.problems), height=1.0 + 0.16 * len(config.methods))
    places = -np.arange(len(config.methods))
    for axis, problem in zip(panels, config.problems, strict=True):
        for share, marker in ((1.0, "o"), (0.5, "<")):
            own = select(rows, part="limit", problem=problem, step_share=share)
            for place, row in zip(places, own, strict=True):
                colour = style(METHODS[row["method"]].name)[1]
                axis.plot(row["distance"], place, marker, color=colour, markersize=5)
            axis.plot([], [], marker, color="#555555", label=f"{share:g} of the safe step")
        axes.describe(axis, "", "", title=case(problem).replace(", ", ",\n"), log="x")
        axis.xaxis.set_major_locator(LogLocator(numticks=3))
        axis.minorticks_off()
        texts = [METHODS[name].text * (axis is panels[0]) for name in config.methods]
        axis.set_yticks(places, texts)
        axis.set_ylim(-len(config.methods), 1)
    title = f"Relative distance to the optimum after {config.limit_rounds} rounds"
    return [axes.finish(drawn, directory / "limits.png", title, 2)]


def case(problem: str) -> str:
    """Return a problem in words: ``own Hessians, groups``."""
    return problem.partition("_")[0] + " Hessians" + ", groups" * problem.endswith("groups")


def lasso(config: Config, problem: str) -> tuple[Task, Row]:
    r"""Least squares, :math:`|A_m w - b_m|^2 / (2 n)`, with an l1 norm or a group norm.

    The clients are drawn as in ``fcojax.check``. They differ in their true weights and, in the
    problems ``own``, in the axes of their covariance.
    """
    own, start = config[problem], jnp.zeros(config.dim)
    sizes = config.num_clients, own.num_examples, config.dim
    drawn: Any = {"rng": np.random.default_rng(config.data_seed), "sizes": sizes}
    drawn |= {"num_true": config.num_true, "own_axes": problem.startswith("own")}
    clients = from_config(regression_clients, own, **drawn)
    data = factored(half_squared_error, fcojax.from_clients(clients), start)
    penalty = l1()
    if problem.endswith("groups"):
        penalty = group_l2(labels=np.arange(config.dim, dtype=np.int32) // config.group_size)
    features, targets = (np.stack([client[name] for client in clients]) for name in "xy")
    objective = functools.partial(population_loss, factored_loss)
    found = fista(objective, penalty, own.scale, start, data, tolerance=1e-13)
    optimum = np.asarray(found.params)
    errors = np.einsum("mni,i->mn", features, optimum) - targets
    gradients = np.einsum("mni,mn->mi", features, errors) / own.num_examples
    apart = gradients - gradients.mean(axis=0)
    spectrum = np.linalg.eigvalsh(np.einsum("mni,mnj->ij", features, features) / targets.size)
    facts = {
        "num_steps": own.num_steps,
        "largest_smoothness": float(data.examples.curvatures.max()),
        "smoothness": float(spectrum[-1]),
        "strong_convexity": float(spectrum[0]),
        "nonzeros": int(np.count_nonzero(optimum)),
        "gradients_apart": float(np.sqrt((apart**2).sum(axis=1).mean())),
        "residual": float(found.residual),
    }
    given = factored_loss, data, penalty, own.scale, start, fcojax.local_steps(own.num_steps)
    curvatures = facts["largest_smoothness"], facts["strong_convexity"]
    return Task(*given, _to_optimum, *curvatures, jnp.asarray(optimum)), facts


def _to_optimum(hparams: Any, model: Array, optimum: Array) -> dict[str, Array]:
    found, true = model != 0, optimum != 0
    return {
        "distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum),
        "nonzeros": jnp.sum(found),
        "support": found,
        "f1": 2 * jnp.sum(found & true) / jnp.maximum(jnp.sum(found) + jnp.sum(true), 1),
    }
