"""Draws docs/figures/port_NAME.png: what the source of each port shows of it.

    python docs/port_figures.py [s_dane de_com_fl fed_mls averaged_descent]

The problems are small. It prints the numbers that decide the claims of
docs/ports/index.md.
"""

import functools
import importlib
import pathlib
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linprog
from scipy.stats import norm
from sklearn import cluster, datasets, linear_model

import fcojax
from fcojax.algorithms import fed_avg, scaffold
from fcojax.transforms import l1

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE / "ports"))
plt.style.use(HERE.parent / "experiments" / "report" / "house.mplstyle")


class Claim(NamedTuple):
    """A number, and its threshold."""

    name: str
    measured: float
    needed: float
    at_least: bool = False

    @property
    def holds(self):
        """Whether it is on the right side; NaN is not."""
        sign = -1 if self.at_least else 1
        return bool(sign * self.measured <= sign * self.needed)

    def __str__(self):
        """The claim in one line."""
        relation = "at least" if self.at_least else "at most"
        numbers = f"{self.measured:.3g}, {relation} {self.needed:.3g}"
        return f"{self.name}: {'yes' if self.holds else 'NO'}, {numbers}"


def port(name):
    """Return the factory of a port."""
    return getattr(importlib.import_module(name), name)


def curve(algorithm, hparams, data, work, num_rounds, value, shape, key=0):
    """Return the history of a run from zero, with a value of the model."""
    _, history = fcojax.run(
        algorithm,
        hparams,
        jnp.zeros(shape),
        data,
        jax.random.key(key),
        work,
        num_rounds=num_rounds,
        observe=lambda hparams, w, context: {"value": value(w)},
    )
    return {name: np.asarray(values) for name, values in history.items()}


def until(total, reached):
    """Return a total at the first True; infinity without one."""
    return float(total[np.argmax(reached)]) if reached.any() else np.inf


def two_panels(**options):
    """Return a figure and its two axes."""
    return plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained", **options)


def s_dane():
    """Gap over exchanges and local gradients, quadratics with near Hessians."""
    rng, num_clients, dim, rounds = np.random.default_rng(0), 10, 40, 100
    a = np.geomspace(1, 100, dim) + rng.uniform(-5, 5, (num_clients, dim))
    a = np.maximum(a, 0)
    b = rng.standard_normal((num_clients, dim))
    data = fcojax.from_rows({"a": a, "b": b}, [1] * num_clients)
    mean = a.mean(axis=0)
    best = (a * b).mean(axis=0) / mean
    smooth, convexity = float(a.max()), float(mean.min())
    similarity = np.sqrt(np.mean(np.max(np.abs(a - mean), axis=1) ** 2))

    def loss(w, rows):
        return 0.5 * jnp.sum(rows["a"] * (w - rows["b"]) ** 2, axis=-1)

    def gap(w):
        return 0.5 * jnp.sum(mean * (w - best) ** 2)

    def ran(method, work, **numbers):
        hparams = method.hparams_type(**numbers)
        return curve(method, hparams, data, work, rounds, gap, dim)

    method, found = port("s_dane")(loss), {}
    for label, mu, accuracy in (
        ("S-DANE, accuracy 1/2", convexity, 0.5),
        ("DANE, accuracy 1/2", 1e12, 0.5),  # the centre is then the mean
        ("DANE, accuracy $10^{-6}$", 1e12, 1e-6),
    ):
        found[label] = ran(
            method,
            fcojax.local_steps(1000),
            client_lr=1 / (smooth + similarity),
            prox_step=1 / similarity,
            convexity=mu,
            accuracy=accuracy,
        )
    for label, factory in {"FedAvg": fed_avg, "SCAFFOLD": scaffold}.items():
        runs = [
            ran(factory(loss), fcojax.local_steps(10), client_lr=share / smooth)
            for share in (0.1, 0.3, 1.0)
        ]
        found[label] = min(runs, key=lambda run: run["value"][-1])
        found[label]["steps"] = np.full(rounds, 10.0)
    figure, (left, right) = two_panels(sharey=True)
    exchanges, costs = [], []
    for label, history in found.items():
        steps, near = np.cumsum(history["steps"]), history["value"] <= 1e-6
        exchanges.append(until(np.arange(1, rounds + 1), near))
        costs.append(until(steps, near))
        left.plot(np.arange(1, rounds + 1), history["value"])
        right.plot(steps, history["value"], label=label)
    left.set(xlabel="exchanges", ylabel="$F - F^*$", yscale="log")
    left.set_ylim(1e-12, None)
    right.set(xlabel="local gradients of a client", xscale="log")
    right.set_xlim(1, None)  # place for the legend
    right.legend(loc="lower left")
    slower = exchanges[0] / exchanges[4]
    expected = 20 * np.log1p(-convexity / smooth)
    expected /= -np.log1p(convexity / similarity)
    return figure, [
        Claim("exchanges over DANE's", exchanges[0] / exchanges[2], 1.2),
        Claim("local gradients over DANE's", costs[0] / costs[2], 0.5),
        Claim("exchanges over SCAFFOLD's", slower, 0.5),
        Claim("off the slowest mode", abs(slower / expected - 1), 0.1),
    ]


def de_com_fl():
    """Accuracy over bytes on digits; bytes over the number of features."""
    figure, (left, right) = two_panels()
    early, late = digits(left)
    sizes = [64, 256, 1024, 4096]
    ours, plain, longer = np.transpose([features(size) for size in sizes])
    for label, needed in zip(METHODS, (ours, plain, longer), strict=True):
        right.plot(sizes, needed, marker="o", label=label)
    right.set(xlabel="features", ylabel="bytes to 1% of the loss")
    right.set(xscale="log", yscale="log")
    right.set_xticks(sizes, [str(size) for size in sizes])
    right.minorticks_off()
    rounds = early[3] / (16 * 40 + 8), early[0] / (16 * 10 + 8)
    return figure, [
        Claim("bytes at 4096 features over 64", ours[-1] / ours[0], 1.2),
        Claim("bytes at 4096 over FedAvg's", ours[-1] / plain[-1], 0.1),
        Claim("bytes to 0.85 over FedAvg's", early[0] / early[1], 0.1),
        Claim("rounds to 0.85, 40 over 10", rounds[0] / rounds[1], 0.5),
        Claim("bytes to 0.95 over FedAvg's", late[0] / late[1], 0.1),
        Claim("bytes to 0.85 over 10 steps'", early[0] / early[2], 1.0),
    ]


# Random directions, or none for FedAvg, and local steps.
METHODS = {
    "DeComFL": (10, 1),
    "FedAvg, 1 step": (0, 1),
    "FedAvg, 10 steps": (0, 10),
}


def bytes_and_values(
    methods, loss, data, num_rounds, value, shape, moments, key
):
    """Return a client's bytes, both ways, and values, for each method.

    The step is 1 / L, with DeComFL that times P / (P + r + 1), for P directions
    and effective rank r; ``moments`` are L and r.
    """
    found, (smooth, rank) = {}, moments
    for label, (num_directions, num_steps) in methods.items():
        if num_directions:
            share = num_directions / (num_directions + rank + 1)
            method = port("de_com_fl")(loss, num_directions=num_directions)
            hparams = method.hparams_type(share / smooth, smoothing=1e-4)
        else:
            method, hparams = fed_avg(loss), fed_avg.Hparams(1 / smooth)
        work = fcojax.local_steps(num_steps)
        history = curve(
            method, hparams, data, work, num_rounds, value, shape, key
        )
        both = np.cumsum(history["bytes_up"] + history["bytes_down"])
        found[label] = both / data.num_clients, history["value"]
    return found


def digits(axes):
    """Draw accuracies over bytes; return the bytes to 0.85 and to 0.95."""
    x, y = datasets.load_digits(return_X_y=True)
    x, held = x / 16, np.arange(len(y)) % 5 == 0
    parts = fcojax.problems.partition.dirichlet(y[~held], 10, 1.0, min_size=20)
    data = parts.apply({"x": x[~held], "y": y[~held]}, "examples")

    def loss(w, rows):
        logits = rows["x"] @ w
        own = jnp.take_along_axis(logits, rows["y"][:, None], axis=-1)
        return jax.nn.logsumexp(logits, axis=-1) - own[:, 0]

    def accuracy(w):
        return jnp.mean(jnp.argmax(x[held] @ w, axis=-1) == y[held])

    # At zero the Hessian is that of the features times (1 - 1/10) / 10.
    smooth = np.linalg.norm(x, 2) ** 2 / len(y) / 10
    rank = 0.9 * np.mean(np.sum(x**2, axis=1)) / smooth
    moments, shape = (smooth, rank), (64, 10)
    methods = METHODS | {"DeComFL, 40 directions": (40, 1)}
    found = bytes_and_values(
        methods, loss, data, 600, accuracy, shape, moments, key=0
    )
    for label, (total, values) in found.items():
        axes.plot(total, values, label=label)
    axes.legend()
    axes.set(xlabel="bytes of a client, both ways", ylabel="test accuracy")
    axes.set(xscale="log")
    return [
        [until(total, values >= needed) for total, values in found.values()]
        for needed in (0.85, 0.95)
    ]


def features(dim):
    """Return the bytes to 1% of the first loss, means of five keys."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((160, 4096)) / np.arange(1, 4097)
    y, x = x[:, :4].sum(axis=1), x[:, :dim]
    data = fcojax.from_rows({"x": x, "y": y}, [20] * 8)

    def loss(w, rows):
        return 0.5 * (rows["x"] @ w - rows["y"]) ** 2

    def share(w):
        return jnp.mean((x @ w - y) ** 2) / np.mean(y**2)

    smooth = np.linalg.norm(x, 2) ** 2 / len(y)
    rank = np.mean(np.sum(x**2, axis=1)) / smooth
    needed = []
    for seed in range(5):
        found = bytes_and_values(
            METHODS, loss, data, 100, share, dim, (smooth, rank), dim + seed
        )
        needed.append(
            [until(total, left <= 0.01) for total, left in found.values()]
        )
    return np.mean(needed, axis=0)


def fed_mls():
    """A support vector machine: gap over exchanges and local subgradients."""
    num_rounds, strength = 300, 0.01
    x, y = datasets.load_breast_cancer(return_X_y=True)
    x, y = x[:, :10], 2.0 * y - 1
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    owner = cluster.KMeans(10, random_state=0).fit(x).labels_
    rows = y[:, None] * np.column_stack([x, np.ones(len(y))])
    data = fcojax.problems.partition.by_column(owner).apply(rows, "examples")
    # w = p - q and the hinge losses s: p, q, s >= 0 and s >= 1 - rows @ w.
    num_rows, dim = rows.shape
    best = linprog(
        np.repeat([strength, 1 / num_rows], [2 * dim, num_rows]),
        -np.column_stack([rows, -rows, np.eye(num_rows)]),
        np.full(num_rows, -1.0),
    ).fun

    def loss(w, rows):
        hinge = jnp.maximum(0, 1 - rows @ w)
        return hinge + strength * jnp.sum(jnp.abs(w))

    def gap(w):
        return jnp.mean(loss(w, rows)) / best - 1

    times = np.arange(1, num_rounds + 1)
    work = fcojax.local_steps(num_rounds, by_round=times.tolist())
    figure, panels = two_panels(sharey=True)
    settings = {
        "FedAvg": (fed_avg(loss), (0.01, 0.1, 1.0), r"$\eta_0 = {:g}$"),
        "FedMLS": (port("fed_mls")(loss), (0.1, 1.0, 10.0), r"$\eta = {:g}$"),
    }
    found = []
    for axes, title in zip(panels, settings, strict=True):
        method, rates, label = settings[title]
        for place, rate in enumerate(rates):
            falling = fcojax.schedule(rate / np.sqrt(times))
            hparams = method.hparams_type(
                client_lr=falling if title == "FedAvg" else rate
            )
            history = curve(method, hparams, data, work, num_rounds, gap, dim)
            found.append(history["value"])
            line = {"color": f"C{place}"}
            axes.plot(times, found[-1], label=label.format(rate), **line)
            axes.plot(np.cumsum(times), found[-1], ":", **line)
        axes.set(title=title, xscale="log", yscale="log")
        axes.set(xlabel="exchanges (lines), local subgradients (dots)")
        axes.legend()
    panels[0].set(ylabel="$F / F^* - 1$")
    theirs, ours = (min(r, key=lambda g: g[-1]) for r in (found[:3], found[3:]))
    return figure, [
        Claim("gap in round 300 over 75", ours[299] / ours[74], 1.25 / 4),
        Claim("gap over FedAvg's", ours[299] / theirs[299], 0.5),
    ]


def averaged_descent():
    """Support over local sweeps; false positives over the number of sites."""
    figure, (left, right) = two_panels()
    f1, active = supports(left)
    rise, fall = f1[:, 2] - f1[:, 0], active[:, 0] - active[:, 2]
    denser = active[:, 2].mean() / active[:, 3].mean()
    off = false_positives(right)
    return figure, [
        Claim("rise of F1", rise.mean() / error(rise), 2, at_least=True),
        Claim("fall of nonzeros", fall.mean() / error(fall), 2, at_least=True),
        Claim("nonzeros over the pooled lasso's", denser, 1.5, at_least=True),
        Claim("off the closed form", off, 3),
    ]


def error(values):
    """Return the standard error of the mean."""
    return np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


def squared(w, rows):
    """Half the squared error."""
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


@functools.cache
def descent():
    """Return one algorithm, so that all problems share compiled programs."""
    return port("averaged_descent")(squared, l1())


def descended(x, y, sizes, strength, num_sweeps, num_rounds):
    """Return the model of averaged descent from zero."""
    model, _ = fcojax.run(
        descent(),
        descent().hparams_type(penalty_scale=strength),
        jnp.zeros(x.shape[1]),
        fcojax.from_rows({"x": x, "y": y}, sizes, "examples"),
        jax.random.key(0),
        fcojax.local_steps(num_sweeps),
        num_rounds=num_rounds,
        eval_every=num_rounds,
    )
    return np.asarray(model)


def supports(axes):
    """Draw F1 and nonzeros; return both, [problem, sweeps or pooled]."""
    dim, num_true, sizes = 120, 10, (80, 48, 32)
    cuts, weights = np.cumsum(sizes)[:-1], np.array(sizes) / sum(sizes)
    sweeps, f1, active = (1, 5, 20), [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = np.zeros(dim)
        places = rng.choice(dim, num_true, replace=False)
        signs = rng.choice([-1, 1], num_true)
        truth[places] = signs * rng.uniform(0.4, 1.2, num_true)
        x = rng.standard_normal((sum(sizes), dim))
        signal = x @ truth
        y = signal + signal.std() * rng.standard_normal(len(x))
        held = rng.standard_normal((200, dim))  # for the choice of a strength
        target = held @ truth + signal.std() * rng.standard_normal(200)
        chosen = [
            choice(*site, held, target)
            for site in zip(np.split(x, cuts), np.split(y, cuts), strict=True)
        ]
        strength = float(weights @ chosen)
        models = [descended(x, y, sizes, strength, e, 30) for e in sweeps]
        models.append(descended(x, y, [len(y)], strength, 20, 30))
        chosen = np.array(models) != 0
        both = (chosen & (truth != 0)).sum(axis=1)
        f1.append(2 * both / (chosen.sum(axis=1) + num_true))
        active.append(chosen.sum(axis=1))
    f1, active = np.array(f1), np.array(active)
    for values, color, label in (
        (f1, "C0", "F1"),
        (active / dim, "C1", "share of nonzeros"),
    ):
        mean, bars = values.mean(axis=0), error(values)[:3]
        line = {"marker": "o", "color": color, "label": label}
        axes.errorbar(sweeps, mean[:3], bars, **line)
        axes.axhline(mean[3], color=color, linestyle=":")
    axes.set(xlabel="local sweeps (dots: the pooled lasso)", ylim=(0, 1))
    axes.set(xscale="log")
    axes.set_xticks(sweeps, [str(count) for count in sweeps])
    axes.minorticks_off()
    axes.legend()
    return f1, active


def choice(x, y, held, target):
    """Return the strength of the site's lasso with the least squared error."""
    strengths = np.abs(x.T @ y).max() / len(y) * np.geomspace(1, 1e-3, 30)
    _, models, _ = linear_model.lasso_path(
        x, y, alphas=strengths, max_iter=20_000
    )
    errors = np.mean((held @ models - target[:, None]) ** 2, axis=0)
    return strengths[np.argmin(errors)]


def false_positives(axes):
    """Draw the share of nonzeros without a signal, on orthogonal designs."""
    rng, dim, total, strength = np.random.default_rng(0), 12, 240, 0.15
    counts, shares = np.array([1, 2, 3, 6]), []
    for rows in total // counts:
        parts = [
            np.linalg.qr(rng.standard_normal((rows, dim)))[0] * np.sqrt(rows)
            for _ in range(total // rows)
        ]
        x, sizes = np.concatenate(parts), [rows] * len(parts)
        draws = rng.standard_normal((100, total))
        models = [descended(x, y, sizes, strength, 1, 1) for y in draws]
        shares.append(np.mean(np.array(models) != 0, axis=1))
    tail = 2 * norm.sf(strength * np.sqrt(total / counts))
    expected = 1 - (1 - tail) ** counts
    means, bars = np.mean(shares, axis=1), error(np.transpose(shares))
    axes.errorbar(counts, means, bars, fmt="o", label="averaged descent")
    axes.plot(counts, expected, color="black", linewidth=1, label="closed form")
    axes.axhline(expected[0], color="C1", linestyle=":", label="pooled lasso")
    axes.set(xlabel="sites with 240 rows in all", ylim=(0, 1))
    axes.set(ylabel="share of false positives")
    axes.legend()
    return np.max(np.abs(means - expected) / bars)


FIGURES = {
    figure.__name__: figure
    for figure in (s_dane, de_com_fl, fed_mls, averaged_descent)
}

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for name in sys.argv[1:] or FIGURES:
        figure, claims = FIGURES[name]()
        figure.savefig(HERE / "figures" / f"port_{name}.png")
        print(name, *claims, sep="\n  ")
