"""FedGD and Local SGD: where local steps lead, and what a convergence theorem promises.

    python -m experiments.run --config=configs/fed_gd.py --workdir=runs/fed_gd

Least squares on four clients: the distance of FedGD's limit to the least-squares solution over the
local steps E and over two kinds of heterogeneity, and its closed form against simulated rounds.
Then Local SGD with decreasing steps on ridge and logistic regression, below the bound of Theorem 1
of Li, Huang, Yang, Wang and Zhang, "On the convergence of FedAvg on non-iid data", ICLR 2020.
Under a minute on two cores.

Steps are counted from t = 0, with which the theorem holds for gamma + T in place of gamma + T - 1;
its moments are the largest that the runs have met.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

import fcojax
from experiments.report import axes
from experiments.report.claims import Claim
from experiments.report.rows import column, select
from experiments.study import Study
from fcojax.algorithms import fed_gd, local_sgd
from fcojax.theory import least_squares, linear_models, local_points
from fcojax.theory import local_sgd as theorem


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed = 0
    config.sizes = (12, 20, 9, 15)
    config.dim = 6
    config.step_shares = (0.5, 1.5)  # of 1 / L
    config.many_steps = (1, 2, 3, 5, 10, 20, 50, 100, 300, 1000, 10_000_000)
    config.simulated_steps = (1, 2, 5, 20, 100)
    config.num_rounds = 100
    config.instances = (0, 1, 2, 3, 4)
    config.distances = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
    config.spreads = (0.0, 0.03, 0.1, 0.3, 1.0)
    config.heterogeneity_steps = 10
    config.sgd_problems = ("ridge", "logistic")
    config.sgd_num_steps = (1, 5, 20)
    config.sgd_total_steps = 4000
    config.sgd_seeds = 50
    config.sgd_looks = 60
    return config


def quick(config):
    """Shrinks the study to well under a minute on a laptop."""
    config.simulated_steps = (5,)
    config.num_rounds = 20
    config.instances = (0, 1, 2)
    config.sgd_num_steps = (5,)
    config.sgd_total_steps = 400
    config.sgd_seeds = 8
    config.sgd_looks = 20


def study(config):
    """The rows of all three figures."""
    yield from limits(config)
    yield from heterogeneity(config)
    yield from simulated(config)
    for name in config.sgd_problems:
        for num_steps in config.sgd_num_steps:
            yield from below_the_bound(config, name, num_steps)


def clients_of(config):
    """Features, targets and factored quadratics; every client has its own truth and scale."""
    rng = np.random.default_rng(config.data_seed)
    features = [
        rng.standard_normal((m, config.dim)) * (1 + 0.5 * k) for k, m in enumerate(config.sizes)
    ]
    targets = [
        a @ rng.standard_normal(config.dim) + 0.1 * rng.standard_normal(len(a)) for a in features
    ]
    return features, targets, least_squares.least_squares_clients(features, targets, reading="sum")


def limits(config):
    """How far from the least-squares solution FedGD ends, for every step size and E."""
    *_, clients = clients_of(config)
    pooled = least_squares.minimiser(clients)
    far = least_squares.many_steps_limit(clients)
    for share in config.step_shares:
        for num_steps in config.many_steps:
            exact = least_squares.round_map(clients, share / clients.smoothness, num_steps)
            yield {
                "part": "limit",
                "step_share": share,
                "num_steps": num_steps,
                "distance": _norm(exact.fixed_point - pooled),
                "from_many_steps": _norm(exact.fixed_point - far),
                "many_steps_distance": _norm(far - pooled),
            }


def heterogeneity(config):
    """The same distance over how far minimisers are apart, and over how different Hessians are."""
    knobs = [("minimisers", distance, 1.0) for distance in config.distances]
    knobs += [("hessians", 1.0, spread) for spread in config.spreads]
    for instance in config.instances:
        rng = np.random.default_rng([config.data_seed, instance])
        num_clients, dim = len(config.sizes), config.dim
        axis_sets = np.linalg.qr(rng.standard_normal((num_clients, dim, dim)))[0]
        own = np.einsum(
            "kij,kj,klj->kil", axis_sets, rng.uniform(0.2, 2, (num_clients, dim)), axis_sets
        )
        common, away = rng.standard_normal(dim), rng.standard_normal((num_clients, dim))
        for knob, distance, spread in knobs:
            hessians = own.mean(axis=0) + spread * (own - own.mean(axis=0))
            minimisers = common + distance * away
            slopes = np.einsum("kij,kj->ki", hessians, minimisers)
            clients = least_squares.quadratic_clients(hessians, slopes)
            step_size = config.step_shares[0] / clients.smoothness
            pooled = least_squares.minimiser(clients)
            exact = least_squares.round_map(clients, step_size, config.heterogeneity_steps)
            yield {
                "part": "heterogeneity",
                "knob": knob,
                "value": distance if knob == "minimisers" else spread,
                "seed": instance,
                "distance": _norm(exact.fixed_point - pooled),
            }


def simulated(config):
    """Rounds of the engine beside the closed form."""
    features, targets, clients = clients_of(config)
    pooled, origin = least_squares.minimiser(clients), np.zeros(config.dim)
    # The engine takes the mean over a client's examples, and here the loss is their sum.
    features, targets = ([len(x) ** 0.5 * x for x in xs] for xs in (features, targets))
    data = _population(features, targets, 0.0)
    rates = [share / clients.smoothness for share in config.step_shares]
    algorithm, grid = fed_gd(_squared), fcojax.product(fed_gd.Hparams, client_lr=rates)
    for num_steps in config.simulated_steps:
        _, history = fcojax.sweep(
            algorithm, grid, jnp.zeros(config.dim), data, jax.random.key(0)[None],
            num_rounds=config.num_rounds, work=fcojax.local_steps(num_steps), observe=_model,
        )  # fmt: skip
        for share, rate, models in zip(
            config.step_shares, rates, np.asarray(history["model"][:, 0]), strict=True
        ):
            exact = least_squares.round_map(clients, rate, num_steps)
            for r, model in enumerate(models, start=1):
                yield {
                    "part": "rounds",
                    "step_share": share,
                    "num_steps": num_steps,
                    "round": r,
                    "difference": float(np.abs(model - exact.after(origin, r)).max()),
                    "distance": _norm(model - pooled),
                }


def below_the_bound(config, name, num_steps):
    """The gap of Local SGD after every so many local steps, and the bound of the theorem."""
    model, constants = regression(name, config.data_seed)
    hparams = theorem.schedule(constants, num_steps)
    data = _population(model.features, model.targets, model.ridge, model.weights)
    keys = jax.vmap(jax.random.key)(jnp.arange(config.sgd_seeds))
    num_rounds = config.sgd_total_steps // num_steps

    @jax.jit
    def one_seed(key):
        return local_points(
            local_sgd(_LOSSES[name]), hparams, jnp.zeros(model.dim), data, key,
            num_rounds=num_rounds, work=fcojax.local_steps(num_steps, 1, replace=True),
            read=_params,
        )  # fmt: skip

    points = np.asarray(jax.vmap(one_seed)(keys))
    points = points.reshape(len(keys), -1, *points.shape[-2:])
    bound = theorem.a_posteriori(model, constants, points, num_steps)
    means = np.einsum("k,...ki->...i", model.weights, points)
    gaps = model.objective(means) - constants.minimum
    gamma, limit = theorem.offset(constants, num_steps), theorem.noise_limit(model, constants)
    last = points.shape[1] - 1
    for t in np.unique(np.geomspace(1, last, config.sgd_looks).astype(int)).tolist():
        yield {
            "part": "bound",
            "problem": name,
            "num_steps": num_steps,
            "step": t,
            "gap": float(gaps[:, t].mean()),
            "low": float(np.quantile(gaps[:, t], 0.1)),
            "high": float(np.quantile(gaps[:, t], 0.9)),
            "standard_error": float(gaps[:, t].std(ddof=1) / len(keys) ** 0.5),
            "bound": float(bound.gap(t)),
            "limit": limit / (gamma + t),
        }


@functools.cache
def regression(name, seed):
    """Ridge or logistic regression on heterogeneous clients, with its constants."""
    rng = np.random.default_rng(seed)
    sizes, dim = ((12, 20, 9, 15), 5) if name == "ridge" else ((10, 14, 8, 12, 20), 4)
    features = [rng.standard_normal((m, dim)) for m in sizes]
    if name == "logistic":
        longest = max(np.linalg.norm(a, axis=1).max() for a in features)
        features = [a / longest for a in features]
    truths = [rng.standard_normal(dim) for _ in sizes]
    targets = [
        a @ x + 0.1 * rng.standard_normal(len(a)) for a, x in zip(features, truths, strict=True)
    ]
    if name == "ridge":
        model = linear_models.ridge_regression(features, targets, ridge=0.5)
    else:
        signs = [np.where(b > 0, 1.0, -1.0) for b in targets]
        model = linear_models.logistic_regression(features, signs, ridge=0.1)
    return model, model.constants()


def summarise(config, rows):
    """Distances by E, the worst differences, and gap and bound at the end."""
    rounds = select(rows, part="rounds")
    last = max(row["step"] for row in select(rows, part="bound"))
    return {
        "distance of the limit": {
            f"s L = {share:g}": {
                row["num_steps"]: row["distance"]
                for row in select(rows, part="limit", step_share=share)
            }
            for share in config.step_shares
        },
        "largest difference of closed form and simulation": {
            num_steps: float(column(select(rounds, num_steps=num_steps), "difference").max())
            for num_steps in config.simulated_steps
        },
        "Local SGD at the last look": select(rows, part="bound", step=last),
    }


def claims(config, rows, summary):
    """What the closed form and the theorem say."""
    limit, bound = select(rows, part="limit"), select(rows, part="bound")
    knobs = select(rows, part="heterogeneity")
    growth = [
        np.diff(column(select(limit, step_share=share), "distance")[:-1]).min()
        for share in config.step_shares
    ]
    few, many = (select(limit, num_steps=config.many_steps[i]) for i in (0, -1))
    apart = select(knobs, knob="minimisers", seed=config.instances[0])[1:]
    slopes = column(apart, "distance") / column(apart, "value")
    late = [row for row in bound if row["step"] > config.sgd_total_steps / 2]
    difference = _largest(select(rows, part="rounds"), "difference")
    tightest = np.min(column(bound, "bound") / column(bound, "gap"))
    cost = np.max(column(late, "gap") / column(late, "limit"))
    return [
        Claim("the closed form gives the rounds of FedGD (difference)", difference, 1e-10, False),
        Claim("E = 1: FedGD ends at the pooled solution", _largest(few, "distance"), 1e-12, False),
        Claim("E > 1: it does not, the farther the larger E (increase)", float(min(growth)), 1e-4),
        Claim(
            "ten million local steps lead to the mean of the clients' own minimisers (distance)",
            _largest(many, "from_many_steps"), 1e-12, False,
        ),
        Claim(
            "clients that share a minimiser, or a Hessian, are led to the pooled solution",
            _largest(select(knobs, value=0.0), "distance"), 1e-12, False,
        ),
        Claim(
            "the distance is proportional to the spread of the minimisers (relative error)",
            float(slopes.max() / slopes.min() - 1), 1e-10, False,
        ),
        Claim("Theorem 1 is above the mean gap of Local SGD (ratio)", float(tightest), 1.0),
        Claim(
            "whatever E, late gaps are what gradient noise alone costs (largest ratio)",
            float(cost), 1.5, False,
        ),
    ]  # fmt: skip


def draw(config, rows, summary, directory):
    """Three figures: limits, rounds and the bound."""
    return [
        _draw_limits(config, rows, directory / "limits.png"),
        _draw_rounds(config, rows, directory / "rounds.png"),
        _draw_bound(config, rows, directory / "bound.png"),
    ]


def _draw_limits(config, rows, path):
    figure, (over_steps, over_minimisers, over_hessians) = axes.panels(3)
    colours = axes.shades(len(config.step_shares))
    for share, colour in zip(config.step_shares, colours, strict=True):
        seen = select(rows, part="limit", step_share=share)[:-1]
        over_steps.plot(
            column(seen, "num_steps"), column(seen, "distance"), "o-", color=colour, markersize=3,
            label=f"limit of FedGD, $s = {share:g}/L$",
        )  # fmt: skip
    far = select(rows, part="limit")[0]["many_steps_distance"]
    over_steps.axhline(far, color="#555555", linestyle=":", label="mean of the local minimisers")
    vertical = r"distance $|x_{FGD} - x_{LS}|$"
    axes.describe(over_steps, "local steps $E$", vertical, log="x")
    for axis, knob, text in (
        (over_minimisers, "minimisers", "spread of the minimisers"),
        (over_hessians, "hessians", "spread of the Hessians"),
    ):
        own = [select(rows, part="heterogeneity", knob=knob, seed=i)[1:] for i in config.instances]
        axes.band(
            axis, column(own[0], "value"), np.array([column(one, "distance") for one in own]), "o-",
            color="#0072B2", markersize=3,
            label=f"$E = {config.heterogeneity_steps}$, mean and range of {len(own)} instances",
        )  # fmt: skip
        axes.describe(axis, f"{text} (0 at 0)", vertical, log="xy")
    return axes.finish(figure, path, "Where FedGD ends, against the least-squares solution", 2)


def _draw_rounds(config, rows, path):
    share = config.step_shares[0]
    figure, (distance, difference) = axes.panels(2)
    for num_steps, colour in zip(
        config.simulated_steps, axes.shades(len(config.simulated_steps)), strict=True
    ):
        seen = select(rows, part="rounds", step_share=share, num_steps=num_steps)
        rounds = column(seen, "round")
        distance.plot(rounds, column(seen, "distance"), color=colour, label=f"$E = {num_steps}$")
        # A difference of exactly zero has no place on a logarithmic axis.
        floor = np.maximum(column(seen, "difference"), 1e-17)
        difference.plot(rounds, floor, color=colour, linewidth=1)
    difference.axhline(1e-10, color="#D55E00", linestyle="--", label="tolerance")
    axes.describe(distance, "communication round", "$|x_t - x_{LS}|$", log="y")
    axes.describe(
        difference, "communication round", "largest difference to the closed form", log="y"
    )
    return axes.finish(figure, path, f"Rounds of FedGD at $s = {share:g}/L$", 6)


def _draw_bound(config, rows, path):
    figure, panels = axes.panels(len(config.sgd_problems), height=3.0)
    colours = axes.shades(len(config.sgd_num_steps))
    for axis, name in zip(panels, config.sgd_problems, strict=True):
        for num_steps, colour in zip(config.sgd_num_steps, colours, strict=True):
            seen = select(rows, part="bound", problem=name, num_steps=num_steps)
            steps = column(seen, "step")
            axis.plot(
                steps, column(seen, "gap"), color=colour, label=f"mean gap, $E = {num_steps}$"
            )
            axis.fill_between(
                steps, column(seen, "low"), column(seen, "high"), color=colour, alpha=0.15,
                linewidth=0,
            )  # fmt: skip
            axis.plot(
                steps, column(seen, "bound"), "--", color=colour, label=f"bound, $E = {num_steps}$"
            )
        axis.plot(
            steps, column(seen, "limit"), ":", color="#D55E00", label="exact limit of the gap"
        )
        axes.describe(axis, "local steps $T$", "$f(x_T) - f^*$", title=name, log="xy")
    title = f"Local SGD below Theorem 1 (mean and 10 to 90 per cent of {config.sgd_seeds} seeds)"
    return axes.finish(figure, path, title, 4)


def _population(features, targets, ridge, weights=None):
    pairs = zip(features, targets, strict=True)
    clients = [{"a": a, "b": b, "ridge": np.full(len(b), ridge)} for a, b in pairs]
    return fcojax.from_clients(clients, weights)


def _squared(x, rows):
    return (rows["a"] @ x - rows["b"]) ** 2 / 2 + rows["ridge"] / 2 * jnp.sum(x**2)


def _logistic(x, rows):
    return jax.nn.softplus(-rows["b"] * (rows["a"] @ x)) + rows["ridge"] / 2 * jnp.sum(x**2)


_LOSSES = {"ridge": _squared, "logistic": _logistic}


def _model(hparams, params, context):
    return {"model": params}


def _params(carry):
    return carry.params


def _largest(rows, name):
    return float(column(rows, name).max())


def _norm(x):
    return float(np.linalg.norm(x))


EXPERIMENT = Study(
    "FedGD and Local SGD on heterogeneous clients", study, summarise, claims, draw, x64=True
)
