"""FedPD and FedDyn: when they are one method, and what skipping and sampling cost.

    python -m experiments.run --config=configs/fedpd_feddyn.py --workdir=runs/fedpd_feddyn

Eight heterogeneous, strongly convex quadratics. The gap between the two methods over the rounds
for starts that match (a drift that is the mean of the duals, as in Zhang and Hong's note of 2021
on the two) and that do not; FedPD's error floor over the probability of skipping an exchange; the
rounds that FedDyn needs over the share of clients that take part. Errors are relative to the size
of the minimiser. About a minute on two cores.

The note asks for equal gradients of all clients at the start and gives them the other sign; any
duals will do, if the drift is their mean, and gradients enter with a minus.
"""

import functools
import itertools

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
from fcojax.algorithms import fed_dyn, fed_pd
from fcojax.algorithms.fed_dyn import with_duals
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.engine.grid import take
from fcojax.engine.round import Plan
from fcojax.engine.run import block, start
from fcojax.problems import factored, factored_loss

_METHODS = {"fed_pd": fed_pd, "fed_dyn": fed_dyn}
_SOLVERS = {"exact": exact(), "gd": gd(), "gd from the center": gd(warm_start=False)}
_MATCHING = ("zero duals", "duals minus gradients", "duals plus gradients", "arbitrary duals")
_OFFSET, _OTHER_START = "drift not the mean dual", "another start of the local steps"


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed = 0
    config.num_clients = 8
    config.dim = 20
    config.curvatures = (0.4, 1.6)
    config.num_steps = 3  # of the solver that takes gradient steps
    config.solvers = ("exact", "gd")
    config.prox_step = 0.5
    config.num_rounds = 300
    config.cohort_size = 4  # for the bias under sampling
    config.cohort_rounds = 3000
    config.seeds = (0, 1, 2, 3, 4)
    config.skip_prox_steps = (0.5, 0.05, 0.005)
    config.skip_probabilities = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
    config.skip_rounds = 12_000
    config.cohort_sizes = (1, 2, 3, 4, 6, 8)
    config.cohort_prox_steps = (1.0, 0.2, 0.05)
    config.tolerance = 1e-6
    config.tolerance_rounds = 3000
    return config


def quick(config):
    """Shrinks the study to well under a minute on a laptop."""
    config.dim = 6
    config.solvers = ("gd",)
    config.seeds = (0, 1, 2)
    config.skip_prox_steps = (0.5, 0.05)
    config.skip_probabilities = (0.0, 0.25, 0.5)
    config.skip_rounds = 3000
    config.cohort_sizes = (2, 8)
    config.cohort_prox_steps = (1.0, 0.2)
    config.tolerance_rounds = 1500


def study(config):
    """The rows of all figures."""
    task = Quadratics(config)
    for part in (gaps, biases, floors, participation):
        yield from part(config, task)


class Quadratics:
    """The clients' losses x'A x/2 - c'x: for the engine, and for numpy."""

    def __init__(self, config):
        rng = np.random.default_rng(config.data_seed)
        shape, (low, high) = (config.num_clients, config.dim), config.curvatures
        q = np.linalg.qr(rng.standard_normal((*shape, config.dim)))[0]
        self.hessians = np.einsum("mij,mj,mkj->mik", q, rng.uniform(low, high, shape), q)
        self.slopes = rng.standard_normal(shape)
        self.smoothness = float(np.linalg.eigvalsh(self.hessians)[:, -1].max())
        self.prox_step = config.prox_step
        self.first = rng.standard_normal(config.dim)
        self.arbitrary_duals = rng.standard_normal(shape)
        self.mean_hessian = self.hessians.mean(axis=0)
        self.optimum = np.linalg.solve(self.mean_hessian, self.slopes.mean(axis=0))
        rows = zip(self.hessians, self.slopes, strict=True)
        data = fcojax.from_clients([{"A": a[None], "c": c[None]} for a, c in rows])
        self.data = factored(_quadratic, data, jnp.zeros(config.dim))

    def zero_of(self, offset):
        """Where the mean gradient is the given one: the optimum for none."""
        return self.optimum + np.linalg.solve(self.mean_hessian, offset)

    def error(self, points, target=None):
        """Distances of points to the optimum, or to a target, relative to the optimum's size."""
        target = self.optimum if target is None else target
        return np.linalg.norm(points - target, axis=-1) / np.linalg.norm(self.optimum)

    def hparams(self, name, prox_steps):
        """Points at whose rates gradient steps on the augmented Lagrangian are safe."""
        rates = [1 / (self.smoothness + 1 / eta) for eta in prox_steps]
        return fcojax.zipped(_METHODS[name].Hparams, client_lr=rates, prox_step=prox_steps)

    def models(self, name, solver, plan, num_looks, rounds_between, duals, drift=None):
        """The model at every look, from a drift that is the mean of the duals unless given."""
        algorithm, rates = _build(name, solver), take(self.hparams(name, [self.prox_step]), 0)
        state = start(algorithm, rates, jnp.asarray(self.first), self.data)
        if name == "fed_pd":
            state = state._replace(clients=state.clients._replace(dual=jnp.asarray(duals)))
        else:
            state = with_duals(state, jnp.asarray(duals), self.data.weights)
        if drift is not None:
            state = state._replace(server=state.server._replace(drift=jnp.asarray(drift)))
        looks = _models(algorithm, plan, num_looks, rounds_between, rates, self.data, state)
        return np.asarray(looks)


def gaps(config, task):
    """Largest difference of a coordinate of the two models after every round, start by start."""
    plan = Plan(fcojax.local_steps(config.num_steps), fcojax.everyone())
    minus, nothing = task.slopes - task.hessians @ task.first, np.zeros(config.dim)
    given = dict(zip(_MATCHING, (0 * minus, minus, -minus, task.arbitrary_duals), strict=True))
    cases = [(_OTHER_START, "gd", "gd from the center", minus, None)]
    for solver in config.solvers:
        cases += [(name, solver, solver, duals, None) for name, duals in given.items()]
        cases += [(_OFFSET, solver, solver, task.arbitrary_duals, nothing)]
    for name, own, other, duals, drift in cases:
        pd = task.models("fed_pd", own, plan, config.num_rounds, 1, duals)
        dyn = task.models("fed_dyn", other, plan, config.num_rounds, 1, duals, drift)
        target = task.zero_of(nothing if drift is None else drift - duals.mean(axis=0))
        for r in range(config.num_rounds):
            yield {
                "part": "gap",
                "start": name,
                "solver": own,
                "matching": name in _MATCHING,
                "round": r + 1,
                "gap": float(np.abs(pd[r] - dyn[r]).max()),
                "fed_pd": float(task.error(pd[r])),
                "fed_dyn": float(task.error(dyn[r])),
                "from_predicted": float(task.error(dyn[r], target)),
            }


def biases(config, task):
    """Where FedDyn ends with cohorts and a drift that is not the mean of the duals."""
    duals = task.arbitrary_duals
    plan = Plan(fcojax.local_steps(config.num_steps), fcojax.uniform_cohort(config.cohort_size))
    [end] = task.models("fed_dyn", "gd", plan, 1, config.cohort_rounds, duals, 0 * duals[0])
    yield {
        "part": "bias",
        "clients": config.cohort_size,
        "fed_dyn": float(task.error(end)),
        "from_predicted": float(task.error(end, task.zero_of(-duals.mean(axis=0)))),
    }


def floors(config, task):
    """FedPD's error over the second half of its rounds, for every probability of skipping."""
    every_round = np.ones(config.skip_rounds)
    schedules = {p: p * every_round for p in config.skip_probabilities}
    schedules["falling"] = 1 - np.cumsum(every_round) / config.skip_rounds
    points = list(itertools.product(config.skip_prox_steps, schedules))
    rates = fed_pd.Hparams(
        client_lr=np.zeros(len(points)),  # exact solves take no steps
        prox_step=np.array([eta for eta, _ in points]),
        skip_probability=np.array([schedules[name] for _, name in points]),
        penalty_scale=np.zeros(len(points)),
    )
    keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds))
    errors = _errors(_build("fed_pd", "exact"), config.skip_rounds, rates, task.data, keys,
                     jnp.asarray(task.first), jnp.asarray(task.optimum))  # fmt: skip
    for (prox_step, name), curves in zip(points, np.asarray(errors), strict=True):
        for seed, curve in zip(config.seeds, curves, strict=True):
            yield {
                "part": "floor",
                "prox_step": prox_step,
                "skip_probability": name,
                "seed": seed,
                "error": float(curve[-1] if name == "falling" else curve[100:].mean()),
            }


def participation(config, task):
    """The first round after which FedDyn's model is within the tolerance, by cohort size."""
    algorithm, grid = _build("fed_dyn", "gd"), task.hparams("fed_dyn", config.cohort_prox_steps)
    for size in config.cohort_sizes:
        _, history = fcojax.sweep(
            algorithm, grid, jnp.asarray(task.first), task.data,
            jax.vmap(jax.random.key)(jnp.asarray(config.seeds)),
            num_rounds=config.tolerance_rounds, work=fcojax.local_steps(config.num_steps),
            cohort=fcojax.uniform_cohort(size), observe=_error, context=jnp.asarray(task.optimum),
        )  # fmt: skip
        within = np.asarray(history["error"]) <= config.tolerance
        for i, j in np.ndindex(within.shape[:2]):
            yield {
                "part": "participation",
                "prox_step": config.cohort_prox_steps[i],
                "seed": config.seeds[j],
                "rate": size / config.num_clients,
                "rounds": int(within[i, j].argmax()) + 1 if within[i, j].any() else None,
            }


def summarise(config, rows):
    """Largest gaps by start, the bias, the floors, and the rounds by share of clients."""
    pairs = select(rows, part="gap")
    names = dict.fromkeys((row["start"], row["solver"]) for row in pairs)
    probabilities = (*config.skip_probabilities, "falling")
    return {
        "largest gap of a coordinate": {
            f"{start}, {solver}": float(
                column(select(pairs, start=start, solver=solver), "gap").max()
            )
            for start, solver in names
        },
        "a drift that does not match, at the end": [
            *select(pairs, start=_OFFSET, round=config.num_rounds),
            *select(rows, part="bias"),
        ],
        "floor of the error": {
            f"eta {eta:g}": {p: float(_floor(rows, eta, p).mean()) for p in probabilities}
            for eta in config.skip_prox_steps
        },
        "rounds to the tolerance, by clients a round": {
            f"eta {eta:g}": {
                size: float(_rounds(config, rows, eta, size).mean()) for size in config.cohort_sizes
            }
            for eta in config.cohort_prox_steps
        },
    }


def _floor(rows, eta, probability):
    own = select(rows, part="floor", prox_step=eta, skip_probability=probability)
    return column(own, "error")


def _rounds(config, rows, prox_step, size):
    rate = size / config.num_clients
    return column(select(rows, part="participation", prox_step=prox_step, rate=rate), "rounds")


def claims(config, rows, summary):
    """What the note says, and what the methods promise."""
    pairs, bias = select(rows, part="gap"), summary["a drift that does not match, at the end"]
    other = column(select(pairs, start=_OTHER_START), "gap")
    skips = [p for p in config.skip_probabilities if p > 0]
    middle = len(skips) // 2
    means = {eta: [_floor(rows, eta, p).mean() for p in skips] for eta in config.skip_prox_steps}
    growth = min(np.divide(at[1:], at[:-1]).min() for at in means.values())
    largest, smaller = (means[eta][middle] for eta in config.skip_prox_steps[-2:])
    falls = max(_floor(rows, eta, "falling").mean() / means[eta][middle] for eta in means)
    rounds = column(select(rows, part="participation"), "rounds")
    return [
        Claim(
            "matching starts: the models of FedPD and FedDyn coincide (largest gap)",
            float(column(select(pairs, matching=True), "gap").max()), 1e-12, False,
        ),
        Claim(
            "a drift that is not the mean of the duals is a bias for ever (relative error)",
            float(column(bias, "fed_dyn").min()), 0.1,
        ),
        Claim(
            "and it is the one predicted, with everyone and with a cohort (relative distance)",
            float(column(bias, "from_predicted").max()), 1e-10, False,
        ),
        Claim("local steps from another start take another path (gap)", float(other.max()), 1e-3),
        Claim("to the same limit (gap at the end)", float(other[-1]), 1e-10, False),
        Claim(
            "without skipping FedPD ends at the optimum (relative error)",
            float(max(_floor(rows, eta, 0.0).max() for eta in means)), 1e-10, False,
        ),
        Claim("the floor grows with the probability of skipping (ratio)", float(growth), 1.05),
        Claim("a tenth of the prox step has a lower floor (ratio)", float(largest / smaller), 3.0),
        Claim("skipping less and less removes the floor (ratio)", float(falls), 0.05, False),
        Claim(
            "FedDyn reaches the tolerance with any share of the clients (share of runs)",
            float(np.isfinite(rounds).mean()), 1.0,
        ),
    ]  # fmt: skip


def draw(config, rows, summary, directory):
    """Two figures: the pair, and what skipping and sampling cost."""
    return [
        _draw_pair(config, rows, directory / "pair.png"),
        _draw_costs(config, rows, directory / "costs.png"),
    ]


def _draw_pair(config, rows, path):
    figure, (gap, error) = axes.panels(2, height=2.8)
    for name, colour in zip(_MATCHING, axes.shades(len(_MATCHING)), strict=True):
        seen = select(rows, part="gap", start=name, solver="gd")
        gap.plot(
            column(seen, "round"), column(seen, "gap"), color=colour, linewidth=1,
            label=f"matching: {name}",
        )  # fmt: skip
    for name, colour in ((_OFFSET, "#D55E00"), (_OTHER_START, "#E69F00")):
        seen = select(rows, part="gap", start=name, solver="gd")
        gap.plot(column(seen, "round"), column(seen, "gap"), "--", color=colour, label=name)
    gap.axhline(1e-12, color="#555555", linestyle=":", label="tolerance")
    axes.describe(gap, "communication round", "largest gap of the two models", log="y")
    seen = select(rows, part="gap", start=_OFFSET, solver="gd")
    for measure in ("fed_pd", "fed_dyn"):
        name, colour, line = style(measure)
        error.plot(
            column(seen, "round"), column(seen, measure), line, color=colour, linewidth=1.6,
            label=f"{name}, {_OFFSET}" if measure == "fed_dyn" else name,
        )  # fmt: skip
    error.plot(
        column(seen, "round"), column(seen, "from_predicted"), ":", color="#000000",
        label="FedDyn's distance to its predicted limit",
    )  # fmt: skip
    axes.describe(error, "communication round", "relative error of the model", log="y")
    return axes.finish(figure, path, "FedPD and FedDyn from matching and other starts", 2)


def _draw_costs(config, rows, path):
    figure, (floor, rounds) = axes.panels(2, height=3.0)
    skips, etas = [p for p in config.skip_probabilities if p > 0], config.skip_prox_steps
    for eta, colour in zip(etas, axes.shades(len(etas)), strict=True):
        lines = np.array([_floor(rows, eta, p) for p in skips]).T
        label = rf"FedPD, $\eta = {eta:g}$"
        axes.band(floor, skips, lines, "o-", color=colour, markersize=3, label=label)
    axes.describe(floor, "probability of skipping an exchange", "floor of the error", log="y")
    rates = [size / config.num_clients for size in config.cohort_sizes]
    etas = config.cohort_prox_steps
    for eta, colour in zip(etas, axes.shades(len(etas)), strict=True):
        lines = np.array([_rounds(config, rows, eta, size) for size in config.cohort_sizes]).T
        label = rf"FedDyn, $\eta = {eta:g}$"
        axes.band(rounds, rates, lines, "s--", color=colour, markersize=3, label=label)
    axes.describe(
        rounds, "share of clients a round", f"rounds to an error of {config.tolerance:g}", log="y"
    )
    seeds = f"mean and range of {len(config.seeds)} seeds"
    return axes.finish(figure, path, f"What skipping and sampling cost ({seeds})", 3)


@functools.cache
def _build(name, solver):
    """Cached, because a rebuilt algorithm is compiled anew."""
    return _METHODS[name](factored_loss, solver=_SOLVERS[solver])


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _models(algorithm, plan, num_looks, rounds_between, hparams, data, state):
    """The server's model at every look, from a given state."""

    def one_look(state, _):
        key = jax.random.key(0)
        state, _ = block(algorithm, plan, rounds_between, hparams, data, state, key)
        return state, algorithm.model(hparams, state.server)

    return jax.lax.scan(one_look, state, length=num_looks)[1]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _errors(algorithm, num_rounds, rates, data, keys, first, optimum):
    """The error at two hundred looks, with axes [points, seeds, looks]."""

    def one(hparams, key):
        return fcojax.run(
            algorithm, hparams, first, data, key, num_rounds=num_rounds,
            eval_every=num_rounds // 200, work=fcojax.local_steps(1), observe=_error,
            context=optimum,
        )[1]["error"]  # fmt: skip

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(rates, keys)


def _error(hparams, model, optimum):
    return {"error": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum)}


def _quadratic(x, rows):
    return 0.5 * jnp.einsum("i,nij,j->n", x, rows["A"], x) - rows["c"] @ x


EXPERIMENT = Study("FedPD and FedDyn: one method or two", study, summarise, claims, draw, x64=True)
