"""Theorems of federated composite optimisation above what runs measure, and where averaging fails.

    python -m experiments.run --config=configs/theory.py --workdir=runs/theory

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021. FedDualAvg's averaged shadow
iterate below Lemma 4.4 (from the measured discrepancy of the duals) and below Theorem 4.3 for l1
and quadratics of one Hessian; below Lemma 4.4 and Theorem 4.2 on the unit ball, where gradients
are bounded. Then the curse of primal averaging: FedMiD on the ball, whose optimum is on the
sphere, ends far inside; FedDualAvg does not. Under a minute on two cores.

The paper hides absolute constants; those used here follow from its proof.
"""

from collections.abc import Callable
from typing import NamedTuple

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
from fcojax.algorithms.fed_avg import PenalisedRates
from fcojax.theory import averages, fco
from fcojax.transforms import Mirror, euclidean, l1, l2_ball

_SETTINGS = {
    "l1": ("l1, one Hessian", "Theorem 4.3"),
    "ball": ("unit ball, own Hessians", "Theorem 4.2"),
}


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed = 0
    config.num_draws = 64  # of the noise, each with its negative

    config.l1_clients = 8
    config.l1_dim = 20
    config.l1_scale = 0.15
    config.l1_num_steps = (1, 4, 16)
    config.ball_clients = 6
    config.ball_dim = 10
    config.ball_num_steps = (1, 4, 20)

    config.rate_shares = (1.0, 0.1, 0.01)  # of 1 / (4 L)
    config.num_rounds = 100
    config.eval_every = 5
    config.seeds = 40

    config.curse_shares = (1.0, 0.02)
    config.curse_steps = 20
    config.curse_rounds = 400
    config.curse_eval_every = 5
    config.curse_seeds = (0, 1, 2, 3, 4)
    return config


def quick(config):
    """Shrinks the study to well under a minute on a laptop."""
    config.l1_num_steps = (4,)
    config.ball_num_steps = (4,)
    config.num_rounds = 40
    config.eval_every = 20
    config.seeds = 10
    config.curse_rounds = 200
    config.curse_eval_every = 50
    config.curse_seeds = (0, 1, 2)


class Task(NamedTuple):
    """A federation of noisy quadratics w'Qw/2 + (c + noise)'w with its optimum and constants.

    Attributes:
      data: one row per client and draw of its noise.
      mirror: the geometry with its penalty.
      scale: the strength of the penalty.
      start: where runs begin.
      optimum: of the mean quadratic plus the penalty.
      objective: of points with the coordinates last.
      constants: what the bounds need.
      far_apart: zeta for l1; for the ball G, the largest gradient.
      squared_dual_norm: over the last axis.
    """

    data: fcojax.ClientData
    mirror: Mirror
    scale: float
    start: np.ndarray
    optimum: np.ndarray
    objective: Callable[[np.ndarray], np.ndarray]
    constants: fco.Constants
    far_apart: float
    squared_dual_norm: Callable[[jax.Array], jax.Array]


def study(config):
    """The rows of both figures."""
    for setting in _SETTINGS:
        task = _l1_task(config) if setting == "l1" else _ball_task(config)
        for num_steps in config[f"{setting}_num_steps"]:
            yield from bounds(config, setting, task, num_steps)
    yield from curse(config, task)


def bounds(config, setting, task, num_steps):
    """The gap of the averaged shadow iterate, and the bounds above it."""
    constants = task.constants
    rates = [share * fco.largest_client_lr(constants) for share in config.rate_shares]
    chosen = averages.shadow_average(_loss, task.mirror, task.squared_dual_norm)
    _, history = fcojax.sweep(
        chosen._replace(model=_all_of_the_server),
        fcojax.product(PenalisedRates, client_lr=rates, penalty_scale=[task.scale]),
        jnp.asarray(task.start), task.data, jax.random.split(jax.random.key(0), config.seeds),
        num_rounds=config.num_rounds, eval_every=config.eval_every, observe=_shadow,
        work=fcojax.local_steps(num_steps, 1, replace=True),
    )  # fmt: skip
    gaps = task.objective(np.asarray(history["mean"])) - task.objective(task.optimum)
    discrepancies = np.asarray(history["discrepancy"]).mean(axis=1)
    theorem = fco.gap_from_heterogeneity if setting == "l1" else fco.gap_from_gradients
    for (i, look), discrepancy in np.ndenumerate(discrepancies):
        num_rounds, seen = (look + 1) * config.eval_every, gaps[i, :, look]
        shared = (constants, rates[i], num_steps, num_rounds)
        yield {
            "part": "bound",
            "setting": setting,
            "num_steps": num_steps,
            "rate_share": config.rate_shares[i],
            "round": num_rounds,
            "gap": float(seen.mean()),
            "low": float(np.quantile(seen, 0.1)),
            "high": float(np.quantile(seen, 0.9)),
            "discrepancy": float(discrepancy),
            "lemma": fco.gap_from_discrepancy(*shared, float(discrepancy)),
            "theorem": theorem(*shared, task.far_apart),
        }


def curse(config, task):
    """FedMiD and FedDualAvg on the ball, with the model of every so many rounds."""
    shares = [share * fco.largest_client_lr(task.constants) for share in config.curse_shares]
    for name in ("fed_mid", "fed_dual_avg"):
        factory = getattr(algorithms, name)
        _, history = fcojax.sweep(
            factory(_loss, task.mirror),
            fcojax.product(factory.Hparams, client_lr=shares, penalty_scale=[task.scale]),
            jnp.asarray(task.start), task.data,
            jax.vmap(jax.random.key)(jnp.asarray(config.curse_seeds)),
            num_rounds=config.curse_rounds, eval_every=config.curse_eval_every, observe=_model,
            work=fcojax.local_steps(config.curse_steps, 1, replace=True),
        )  # fmt: skip
        models = np.asarray(history["model"])
        gaps = task.objective(models) - task.objective(task.optimum)
        for (i, j, look), gap in np.ndenumerate(gaps):
            yield {
                "part": "curse",
                "algorithm": name,
                "rate_share": config.curse_shares[i],
                "seed": config.curse_seeds[j],
                "round": (look + 1) * config.curse_eval_every,
                "gap": float(gap),
                "norm": float(np.linalg.norm(models[i, j, look])),
            }


def _l1_task(config):
    """Clients of one Hessian with eigenvalues from 0.1 to 2, and Gaussian noise."""
    rng = np.random.default_rng(config.data_seed)
    num_clients, dim = config.l1_clients, config.l1_dim
    q = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    linear = 0.5 * rng.standard_normal((num_clients, dim))
    noise = _both_signs(0.2 * rng.standard_normal((num_clients, config.num_draws, dim)))
    eigenvalues, start = np.tile(np.linspace(0.1, 2, dim), (num_clients, 1)), np.ones(dim)
    hessian = (q * eigenvalues[0]) @ q.T

    def soft(v, step):
        return np.sign(v) * np.maximum(np.abs(v) - step * config.l1_scale, 0)

    def objective(w):
        return _quadratic(w, hessian, linear) + config.l1_scale * np.abs(w).sum(axis=-1)

    optimum = _minimiser(hessian, linear, soft)
    constants, zeta = fco.quadratic_constants(hessian, linear, noise, start, optimum)
    return Task(
        _population(q, eigenvalues, linear, noise), euclidean(l1()), config.l1_scale, start,
        optimum, objective, constants, zeta, fco.squared_dual_norm(hessian),
    )  # fmt: skip


def _ball_task(config):
    """Clients whose Hessians share their axes only, with bounded noise, on the unit ball."""
    rng = np.random.default_rng(config.data_seed + 1)
    num_clients, dim = config.ball_clients, config.ball_dim
    q = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    eigenvalues = rng.uniform(0.1, 2, (num_clients, dim))
    linear = rng.standard_normal((num_clients, dim))
    noise = _both_signs(rng.uniform(-0.5, 0.5, (num_clients, config.num_draws, dim)))
    hessian = (q * eigenvalues.mean(axis=0)) @ q.T

    def to_ball(v, step):
        return v / max(np.linalg.norm(v), 1)

    def objective(w):
        return _quadratic(w, hessian, linear)

    optimum, curvatures = _minimiser(hessian, linear, to_ball), eigenvalues.max(axis=1)
    steepest = (curvatures + np.linalg.norm(linear, axis=1)).max() + 0.5 * dim**0.5
    constants = fco.Constants(
        distance=float(0.5 * np.sum(optimum**2)),
        smoothness=float(curvatures.max()),
        variance=float((noise**2).sum(axis=-1).mean(axis=1).max()),
        num_clients=num_clients,
    )
    return Task(
        _population(q, eigenvalues, linear, noise), euclidean(l2_ball()), 1.0, np.zeros(dim),
        optimum, objective, constants, float(steepest), _squared_norm,
    )  # fmt: skip


def _population(q, eigenvalues, linear, noise):
    """One row per draw, each with its own linear term, so that a batch of one is a noisy slope."""
    clients = zip(eigenvalues, linear[:, None] + noise, strict=True)
    return fcojax.from_clients(
        [
            {
                "axes": np.broadcast_to(q.T, (len(rows), *q.shape)),
                "curvature": np.broadcast_to(values, (len(rows), len(values))),
                "linear": rows,
            }
            for values, rows in clients
        ]
    )


def _minimiser(hessian, linear, prox):
    """By proximal gradient steps, far beyond convergence."""
    step, w = 1 / np.linalg.eigvalsh(hessian)[-1], np.zeros(len(hessian))
    for _ in range(20_000):
        w = prox(w - step * (hessian @ w + linear.mean(axis=0)), step)
    return w


def summarise(config, rows):
    """The gap and its bounds at the last look, and where the two averages end."""
    ends = select(rows, part="bound", round=config.num_rounds)
    last = select(rows, part="curse", round=config.curse_rounds)
    return {
        "bounds at the end": ends,
        "on the ball at the end": {
            f"{style(name)[0]}, {share:g} of the largest rate": {
                measure: float(
                    column(select(last, algorithm=name, rate_share=share), measure).mean()
                )
                for measure in ("gap", "norm")
            }
            for name in ("fed_mid", "fed_dual_avg")
            for share in config.curse_shares
        },
    }


def claims(config, rows, summary):
    """The theorems, and the curse."""
    found = []
    for setting, (_, theorem) in _SETTINGS.items():
        seen = select(rows, part="bound", setting=setting)
        gap, lemma, bound = (column(seen, name) for name in ("gap", "lemma", "theorem"))
        local = column(seen, "num_steps") > 1  # one step leaves no discrepancy to bound
        found += [
            Claim(f"{setting}: Lemma 4.4 is above the gap (ratio)", float((lemma / gap).min()), 1),
            Claim(f"{setting}: {theorem} is above it (ratio)", float((bound / gap).min()), 1),
            Claim(
                f"{setting}: and above the lemma if K > 1 (ratio)",
                float((bound / lemma)[local].min()),
                1,
            ),
        ]
    ends = list(summary["on the ball at the end"].values())
    (mid, mid_slow), (dual, dual_slow) = ends[:2], ends[-2:]
    return [
        *found,
        Claim("averaging models on the ball is stuck above the optimum (gap)", mid["gap"], 0.1),
        Claim("and far inside, while the optimum has norm 1 (norm)", mid["norm"], 0.8, False),
        Claim("averaging duals is not stuck (gap)", dual["gap"], 1e-3, False),
        Claim("and ends on the sphere (norm)", dual["norm"], 0.999),
        Claim(
            "with a fiftieth of the rate models are still further off than duals (ratio of gaps)",
            mid_slow["gap"] / dual_slow["gap"], 10,
        ),
    ]  # fmt: skip


def draw(config, rows, summary, directory):
    """Two figures: the bounds, and the curse."""
    return [
        _draw_bounds(config, rows, directory / "bounds.png"),
        _draw_curse(config, rows, directory / "curse.png"),
    ]


def _draw_bounds(config, rows, path):
    num_columns = max(len(config[f"{setting}_num_steps"]) for setting in _SETTINGS)
    figure, panels = axes.panels(num_columns, len(_SETTINGS), height=2.5)
    colours = axes.shades(len(config.rate_shares))
    for line, (setting, (text, _)) in enumerate(_SETTINGS.items()):
        for place in range(num_columns):
            axis = panels[line * num_columns + place]
            if place >= len(config[f"{setting}_num_steps"]):
                axis.set_visible(False)
                continue
            num_steps = config[f"{setting}_num_steps"][place]
            for share, colour in zip(config.rate_shares, colours, strict=True):
                seen = select(
                    rows, part="bound", setting=setting, num_steps=num_steps, rate_share=share
                )
                rounds, rate = column(seen, "round"), rf"$\eta_c = {share:g}/(4L)$"
                axis.plot(rounds, column(seen, "gap"), color=colour, label=f"gap, {rate}")
                axis.fill_between(
                    rounds, column(seen, "low"), column(seen, "high"), color=colour, alpha=0.2,
                    linewidth=0,
                )  # fmt: skip
                for name, dashes, label in (
                    ("lemma", "--", f"Lemma 4.4, {rate}"),
                    ("theorem", ":", f"Theorem 4.2 or 4.3, {rate}"),
                ):
                    axis.plot(rounds, column(seen, name), dashes, color=colour, label=label)
            axes.describe(
                axis, "communication round", r"$\Phi(\hat w) - \Phi^*$" if place == 0 else "",
                title=f"{text}, K = {num_steps}", log="y",
            )  # fmt: skip
    seeds = f"mean and 10 to 90 per cent of {config.seeds} seeds"
    return axes.finish(figure, path, f"FedDualAvg below its bounds ({seeds})", 3)


def _draw_curse(config, rows, path):
    figure, (gap, norm) = axes.panels(2, height=2.8)
    for algorithm in ("fed_mid", "fed_dual_avg"):
        name, colour, _ = style(algorithm)
        for share, line in zip(config.curse_shares, ("-", "--"), strict=True):
            for axis, measure in ((gap, "gap"), (norm, "norm")):
                seen = [
                    select(rows, part="curse", algorithm=algorithm, rate_share=share, seed=seed)
                    for seed in config.curse_seeds
                ]
                lines = np.array([column(one, measure) for one in seen])
                label = rf"{name}, $\eta_c = {share:g}/(4L)$"
                axes.band(axis, column(seen[0], "round"), lines, line, color=colour, label=label)
    norm.axhline(1, color="#555555", linestyle=":", label="the optimum's norm")
    axes.describe(gap, "communication round", "$F(w_r) - F^*$", log="y")
    axes.describe(norm, "communication round", "norm of the model")
    seeds = f"mean and range of {len(config.curse_seeds)} seeds"
    return axes.finish(figure, path, f"The curse of primal averaging on the ball ({seeds})", 2)


def _loss(w, rows):
    rotated = jnp.einsum("nij,j->ni", rows["axes"], w)
    return 0.5 * jnp.sum(rows["curvature"] * rotated**2, axis=1) + rows["linear"] @ w


def _quadratic(w, hessian, linear):
    return 0.5 * np.einsum("...i,ij,...j->...", w, hessian, w) + w @ linear.mean(axis=0)


def _both_signs(draws):
    return np.concatenate([draws, -draws], axis=1)


def _squared_norm(z):
    return jnp.sum(z * z, axis=-1)


def _all_of_the_server(hparams, server):
    return server


def _shadow(hparams, server, context):
    return {"mean": server.mean, "discrepancy": server.discrepancy}


def _model(hparams, params, context):
    return {"model": params}


EXPERIMENT = Study(
    title="Federated composite optimisation: bounds, and the curse of primal averaging",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    x64=True,
)
