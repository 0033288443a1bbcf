"""All algorithms for a penalty on one heterogeneous lasso, with tuned proximal gradient among them.

    python -m experiments.run --config=configs/compare.py --workdir=runs/compare

Two tables. Limits: the distance to the optimum at the end, with the step 1 / (K L) and with half of
it, which tells exact methods from those with a bias in proportion to the step and from those that
solve another problem. Tuned: rounds and floats to a relative distance of 1e-6, each method at the
point of its grid that needs the fewest rounds (the least distance at the end, where none gets
there). Gradients are exact. The two problems differ in how alike the clients' Hessians are.
Under five minutes on two cores.

ProxGD is centralised; one round is one step, and it sends what a server would send that sums up
the clients' gradients. It is FedMiD-OSP with one local step. FedPD with a server prox is FedADMM.
Methods with a bias are best at the smallest step of any grid, and never get there.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

import fcojax
from experiments.report import axes
from experiments.report.claims import Claim
from experiments.report.plots import style
from experiments.report.rows import column, select
from experiments.study import Study
from fcojax import algorithms
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.engine.grid import num_points, take
from fcojax.engine.reference import fista
from fcojax.engine.round import Plan, message_bytes
from fcojax.problems import factored, factored_loss, population_loss
from fcojax.transforms import euclidean, l1

_PENALTY = l1()
_OBJECTIVE = functools.partial(population_loss, factored_loss)
_TITLES = {"own": "own Hessians", "shared": "shared, ill-conditioned Hessians"}


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed = 0
    config.num_clients, config.dim = 8, 20
    config.problems = ("own", "shared")  # Hessians
    config.own = ConfigDict()
    config.own.num_examples, config.own.spectrum, config.own.num_rounds = 40, (0.05, 8.0), 200
    config.own.spread, config.own.scale, config.own.num_steps = 0.6, 0.8, 10
    config.shared = ConfigDict()
    config.shared.num_examples, config.shared.spectrum = 400, (0.04, 16.0)
    config.shared.num_rounds = 1500
    config.shared.spread, config.shared.scale, config.shared.num_steps = 0.5, 0.5, 30
    config.num_true = 7
    config.methods = tuple(_METHODS)
    config.seeds = (0, 1, 2)  # for methods with luck
    config.limit_rounds, config.limit_prox_step, config.tolerance = 6000, 1.0, 1e-6
    config.step_factors = tuple(2.0 ** (k / 2) for k in range(-2, 11))  # of 1 / (K L)
    config.server_lr = (1.0, 2.0)
    config.prox_factors = tuple(2.0 ** (k / 2) for k in range(-2, 15))  # of 1 / L
    return config


def quick(config):
    """Shrinks the study to well under a minute on a laptop."""
    config.problems = ("own",)
    config.methods = ("prox_gd", "fed_mid", "fed_dual_avg", "fed_pd")
    config.limit_rounds = 2000
    config.step_factors = tuple(2.0**k for k in range(5))
    config.server_lr = (1.0,)
    config.prox_factors = (4.0, 8.0, 16.0)


class Method(NamedTuple):
    """A row of the tables.

    Attributes:
      text: its name there.
      key: whose colour and hyperparameters it has.
      line: of the curve.
      build: the algorithm, given the loss and the penalty.
      one_step: whether K is 1.
      half: whether half of the clients take part.
      skip_probability: of FedPD.
    """

    text: str
    key: str
    line: str
    build: Callable[[Any, Any], Any]
    one_step: bool = False
    half: bool = False
    skip_probability: float = 0.0

    @property
    def splits(self):
        """Whether the prox step is what is tuned, and not the rates."""
        return self.key in ("fed_pd", "fed_dyn")


def _mirrored(name, **options):
    factory = getattr(algorithms, name)
    return lambda loss, penalty: factory(loss, euclidean(penalty), **options)


_pd_exactly = functools.partial(algorithms.fed_pd, solver=exact())
_pd = functools.partial(algorithms.fed_pd, solver=gd())
_dyn = functools.partial(algorithms.fed_dyn, solver=gd())
_subgradient, _client_prox = algorithms.fed_avg_subgradient, _mirrored("fed_mid", server_prox=False)
_METHODS = {
    "prox_gd": Method("ProxGD, centralised", "prox_gd", "-", _mirrored("fed_mid_osp"), True),
    "subgradient": Method("FedAvg, subgradient", "fed_avg_subgradient", "-", _subgradient),
    "fed_mid": Method("FedMiD as printed", "fed_mid", "-", _mirrored("fed_mid")),
    "fed_mid_client": Method("FedMiD, client prox only", "fed_mid", ":", _client_prox),
    "fed_mid_osp": Method("FedMiD-OSP", "fed_mid_osp", "-", _mirrored("fed_mid_osp")),
    "fed_dual_avg": Method("FedDualAvg", "fed_dual_avg", "-", _mirrored("fed_dual_avg")),
    "osp": Method("FedDualAvg-OSP", "fed_dual_avg_osp", "-", _mirrored("fed_dual_avg_osp")),
    "fed_pd": Method("FedPD, exact solves", "fed_pd", "-", _pd_exactly),
    "fed_pd_gd": Method("FedPD, K steps", "fed_pd", "--", _pd),
    "skipping": Method(
        "FedPD, exact, skips half", "fed_pd", ":", _pd_exactly, skip_probability=0.5
    ),
    "fed_dyn": Method("FedDyn, K steps", "fed_dyn", "--", _dyn),
    "fed_dyn_half": Method("FedDyn, half the clients", "fed_dyn", ":", _dyn, half=True),
}


class Task(NamedTuple):
    """Clients with their optimum, and the largest curvature of any, which step sizes go by."""

    data: fcojax.ClientData
    scale: float
    num_steps: int
    smoothness: float
    optimum: np.ndarray


def study(config):
    """The rows of both tables, problem by problem."""
    for problem in config.problems:
        task, facts = lasso(config, problem)
        yield {"part": "problem", "problem": problem} | facts
        for name in config.methods:
            for row in limits(config, task, name):
                yield {"part": "limit", "problem": problem, "method": name} | row
            for row in tuned(config, task, name, config[problem].num_rounds):
                yield {"problem": problem, "method": name} | row


def lasso(config, problem):
    r"""Least squares, :math:`|A_m w - b_m|^2 / (2 n)`, with an l1 norm.

    Features have covariances with a geometric spectrum and axes of each client's own or of all;
    targets follow a sparse truth plus a dense one of each client's own.
    """
    own, rng, dim = config[problem], np.random.default_rng(config.data_seed), config.dim
    sizes = (config.num_clients, own.num_examples, dim)
    num_axes = config.num_clients if problem == "own" else 1
    q = np.linalg.qr(rng.standard_normal((num_axes, dim, dim)))[0]
    deviations = np.sqrt(np.geomspace(own.spectrum[0], own.spectrum[1], dim))
    features = rng.standard_normal(sizes) @ (q * deviations).swapaxes(1, 2)
    truth = np.where(np.arange(dim) < config.num_true, rng.choice([-2.0, 2.0], dim), 0.0)
    truths = truth + own.spread * rng.standard_normal((config.num_clients, dim))
    targets = np.einsum("mni,mi->mn", features, truths) + 0.1 * rng.standard_normal(sizes[:2])
    clients = [{"x": x, "y": y} for x, y in zip(features, targets, strict=True)]
    data = factored(_squares, fcojax.from_clients(clients), jnp.zeros(dim))
    found = fista(_OBJECTIVE, _PENALTY, own.scale, jnp.zeros(dim), data, tolerance=1e-13)
    optimum = np.asarray(found.params)
    errors = np.einsum("mni,i->mn", features, optimum) - targets
    gradients = np.einsum("mni,mn->mi", features, errors) / own.num_examples
    apart = gradients - gradients.mean(axis=0)
    mean_hessian = np.einsum("mni,mnj->ij", features, features) / np.prod(sizes[:2])
    largest = float(data.examples.curvatures.max())
    facts = {
        "num_steps": own.num_steps,
        "largest_smoothness": largest,
        "smoothness": float(np.linalg.eigvalsh(mean_hessian)[-1]),
        "strong_convexity": float(np.linalg.eigvalsh(mean_hessian)[0]),
        "nonzeros": int(np.count_nonzero(optimum)),
        "gradients_apart": float(np.sqrt((apart**2).sum(axis=1).mean())),
        "residual": float(found.residual),
    }
    return Task(data, own.scale, own.num_steps, largest, optimum), facts


def limits(config, task, name):
    """Where a method ends with the safe step, and with half of it."""
    step = config.limit_prox_step * task.smoothness if _METHODS[name].splits else 1.0
    for share in (1.0, 0.5):
        grid = points(config, task, name, [share * step])
        history, _ = run(config, task, name, grid, config.limit_rounds, config.limit_rounds // 10)
        yield {
            "step_share": share,
            "distance": float(history["distance"][0, :, -1].mean()),
            "nonzeros": float(history["nonzeros"][0, :, -1].mean()),
        }


def tuned(config, task, name, num_rounds):
    """Every point of the grid, and the curves of the best one."""
    factors = config.prox_factors if _METHODS[name].splits else config.step_factors
    grid = points(config, task, name, factors)
    history, floats = run(config, task, name, grid, num_rounds, 1)
    within = history["distance"] <= config.tolerance
    there, first = within.any(axis=-1), within.argmax(axis=-1)
    rounds = np.where(there, first + 1, np.inf).mean(axis=-1)
    sent = np.take_along_axis(floats, first[..., None], axis=-1)[..., 0]
    sent = np.where(there, sent, np.inf).mean(axis=-1)
    lasts = history["distance"][..., -1].mean(axis=-1)
    best = np.lexsort([lasts, rounds])[0]  # what is not a number comes last
    for i in range(num_points(grid)):
        row = {"part": "point", "rounds": float(rounds[i]), "floats": float(sent[i])}
        row |= {"last_distance": float(lasts[i]), "best": bool(i == best)}
        rates = {field: float(x) for field, x in take(grid, i)._asdict().items()}
        yield row | rates
    for j, distances in enumerate(history["distance"][best]):
        for r, distance in enumerate(distances):
            yield {
                "part": "curve",
                "seed": config.seeds[j],
                "round": r + 1,
                "distance": float(distance),
                "floats": float(floats[best, j, r]),
            }


def points(config, task, name, factors):
    """Steps as multiples of what is safe; server rates too, where there are any."""
    method = _METHODS[name]
    if not method.splits:
        steps = 1 if method.one_step else task.num_steps
        rates = [factor / (steps * task.smoothness) for factor in factors]
        return fcojax.product(
            algorithms.fed_mid.Hparams, client_lr=rates, penalty_scale=[task.scale],
            server_lr=config.server_lr if len(factors) > 1 else [1.0],
        )  # fmt: skip
    fields = {"prox_step": [factor / task.smoothness for factor in factors]}
    fields["client_lr"] = [1 / (task.smoothness + 1 / eta) for eta in fields["prox_step"]]
    fields["penalty_scale"] = [task.scale] * len(factors)
    if method.key == "fed_pd":
        fields["skip_probability"] = [method.skip_probability] * len(factors)
    return fcojax.zipped(getattr(algorithms, method.key).Hparams, **fields)


def run(config, task, name, grid, num_rounds, eval_every):
    """What is seen over the rounds, and how many floats were sent up to then, both ways."""
    method, algorithm, start = _METHODS[name], _build(name), jnp.zeros(config.dim)
    lucky = method.half or method.skip_probability > 0
    keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds if lucky else config.seeds[:1]))
    work = fcojax.local_steps(1 if method.one_step else task.num_steps)
    cohort = fcojax.uniform_cohort(config.num_clients // 2) if method.half else fcojax.everyone()
    _, history = fcojax.sweep(
        algorithm, grid, start, task.data, keys, num_rounds=num_rounds, eval_every=eval_every,
        work=work, cohort=cohort, observe=_look, context=jnp.asarray(task.optimum),
    )  # fmt: skip
    history = jax.tree.map(np.asarray, history)
    both_ways = sum(message_bytes(algorithm, Plan(work, cohort), take(grid, 0), start, task.data))
    # In a round that FedPD skips nothing is sent.
    senders = history["participants"] * history.get("synced", 1.0)
    return history, np.cumsum(senders, axis=-1) * both_ways / start.itemsize


def summarise(config, rows):
    """Both tables."""
    tables = {}
    for problem in config.problems:
        own = select(rows, problem=problem)
        [facts] = select(own, part="problem")
        tables[problem] = {"problem": facts, "methods": {}}
        for name in config.methods:
            seen = select(own, method=name)
            far, near = select(seen, part="limit")
            [best] = select(seen, part="point", best=True)
            tables[problem]["methods"][_METHODS[name].text] = {
                "limit": far["distance"],
                "limit at half the step": near["distance"],
                "nonzeros": far["nonzeros"],
            } | {key: value for key, value in best.items() if key not in _PLACE}
    return tables


_PLACE = ("part", "problem", "method", "best")
_EXACT = ("prox_gd", "fed_pd", "fed_pd_gd", "fed_dyn", "fed_dyn_half")
_CENTRAL = {"prox_gd", "fed_mid", "fed_dual_avg", "fed_pd"}
_NEAR = ("subgradient", "fed_mid_client", "fed_mid_osp", "fed_dual_avg")


def claims(config, rows, summary):
    """What is known of these methods; nothing, if the config names too few of them."""
    if "own" not in config.problems or _CENTRAL - set(config.methods):
        return []
    own = summary["own"]["methods"]

    def entries(names):
        return [own[_METHODS[name].text] for name in names if name in config.methods]

    def rounds(problem):
        found = {name: e["rounds"] or math.inf for name, e in summary[problem]["methods"].items()}
        return found.pop(_METHODS["prox_gd"].text), min(found.values())

    ratios = [entry["limit"] / entry["limit at half the step"] for entry in entries(_NEAR)]
    [printed], [dual] = entries(("fed_mid",)), entries(("fed_dual_avg",))
    unhelped = printed["limit"] / printed["limit at half the step"]
    central, best = rounds("own")
    found = [
        Claim(
            "ProxGD, FedPD and FedDyn are exact, sampled too (largest relative distance)",
            max(entry["limit"] for entry in entries(_EXACT)), 1e-10, False,
        ),
        Claim("FedMiD as printed solves another problem (distance)", printed["limit"], 0.1),
        Claim("and half the step does not help it (ratio)", unhelped, 1.2, False),
        Claim("the others with local steps are off by O(step) (least ratio)", min(ratios), 1.6),
        Claim("and by no more than that (largest ratio)", max(ratios), 2.4, False),
        Claim(
            "FedDualAvg's support has the right size, but for one (difference)",
            abs(dual["nonzeros"] - summary["own"]["problem"]["nonzeros"]), 1, False,
        ),
        Claim("own Hessians: nothing needs fewer rounds than ProxGD (ratio)", best / central, 1),
    ]  # fmt: skip
    if "shared" in config.problems:
        central, best = rounds("shared")
        found.append(Claim("shared Hessians: local steps save rounds (ratio)", central / best, 2.0))
    return found + [
        Claim("FedPD that skips stalls (distance)", entry["limit"], 1e-2)
        for entry in entries(("skipping",))
    ]


def draw(config, rows, summary, directory):
    """Two figures: limits, and the tuned curves."""
    return [
        _draw_limits(config, rows, directory / "limits.png"),
        _draw_curves(config, rows, directory / "curves.png"),
    ]


def _draw_limits(config, rows, path):
    figure, panels = axes.panels(len(config.problems), height=2.9)
    for axis, problem in zip(panels, config.problems, strict=True):
        for share, marker in ((1.0, "o"), (0.5, "<")):
            seen = select(rows, part="limit", problem=problem, step_share=share)
            for place, row in enumerate(seen):
                colour = style(_METHODS[row["method"]].key)[1]
                axis.plot(row["distance"], -place, marker, color=colour, markersize=5)
            axis.plot([], [], marker, color="#555555", label=f"{share:g} of the safe step")
        texts = [_METHODS[name].text for name in config.methods]
        shown = texts if problem == config.problems[0] else [""] * len(texts)
        axes.describe(axis, "relative distance to the optimum", "", title=_TITLES[problem], log="x")
        axis.set_yticks(-np.arange(len(texts)), shown, fontsize=7.5)
    return axes.finish(figure, path, f"Limits after {config.limit_rounds} rounds", 2)


def _draw_curves(config, rows, path):
    figure, panels = axes.panels(2, len(config.problems), height=2.6)
    for line, problem in enumerate(config.problems):
        both = tuple(zip(panels[2 * line : 2 * line + 2], ("round", "floats"), strict=True))
        for name in config.methods:
            method, seen = _METHODS[name], select(rows, part="curve", problem=problem, method=name)
            seeds = [select(seen, seed=seed) for seed in sorted({row["seed"] for row in seen})]
            distances = np.array([column(one, "distance") for one in seeds])
            for axis, across in both:
                x = np.mean([column(one, across) for one in seeds], axis=0)
                axes.band(
                    axis, x, np.maximum(distances, 1e-12), method.line,
                    color=style(method.key)[1], label=method.text,
                )  # fmt: skip
        for axis, across in both:
            axis.axhline(config.tolerance, color="#555555", linestyle=":", linewidth=0.8)
            text = {"round": "communication round", "floats": "floats sent, both ways"}[across]
            axes.describe(axis, text, "relative distance", title=_TITLES[problem], log="xy")
            axis.set_ylim(1e-9, 30)
    title = f"At each method's best rates (range of {len(config.seeds)} seeds)"
    return axes.finish(figure, path, title, 3)


@functools.cache
def _build(name):
    """Cached, because a rebuilt algorithm is compiled anew."""
    return _METHODS[name].build(factored_loss, _PENALTY)


def _squares(w, rows):
    return (rows["x"] @ w - rows["y"]) ** 2 / 2


def _look(hparams, model, optimum):
    return {
        "distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum),
        "nonzeros": jnp.sum(model != 0),
    }


EXPERIMENT = Study(
    "All algorithms on one heterogeneous lasso", study, summarise, claims, draw, x64=True
)
