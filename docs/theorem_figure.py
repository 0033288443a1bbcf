"""Draws figures/theorem_4_1.png, and prints every number of theorem_4_1.md.

Theorem 4.1 of Yuan, Zaheer and Reddi (ICML 2021) bounds the gap of FedDualAvg
and of FedMiD, in the limit of small client rates. Three instances on a ball,
without noise: two clients in one dimension, random ones in ten dimensions, and
the worst ones that gradient ascent through a run finds.
"""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import fcojax
from fcojax.theory import fco
from fcojax.transforms import euclidean, l2_ball

matplotlib.use("Agg")
jax.config.update("jax_enable_x64", True)

SMOOTHNESS, STEPS, CLIENT_LR = 2.0, 4, 1e-6
GAMMA = 1 / (4 * SMOOTHNESS)  # eta_s eta_c K, the largest of the theorem
METHODS = {
    "fed_mid": "FedMiD",
    "fed_mid_osp": "FedMiD-OSP",
    "fed_dual_avg": "FedDualAvg",
}
NONE = jax.random.key(0)  # nothing is drawn


def loss(w, rows):
    """Quadratic losses."""
    return jax.vmap(lambda q, c: 0.5 * w @ q @ w + c @ w)(rows["q"], rows["c"])


def clients(q, c):
    """One example for each client."""
    return fcojax.from_rows(
        {"q": np.asarray(q), "c": np.asarray(c)}, [1] * len(c)
    )


def models(name, data, num_rounds):
    """The models after each round, with the unit ball as constraint."""
    algorithm = getattr(fcojax.algorithms, name)(loss, euclidean(l2_ball()))
    rates = {"client_lr": CLIENT_LR, "server_lr": GAMMA / (CLIENT_LR * STEPS)}
    hparams = algorithm.hparams_type(**rates, penalty_scale=1.0)
    start, work = (
        jnp.zeros(data.examples["c"].shape[1]),
        fcojax.local_steps(STEPS),
    )
    _, history = fcojax.run(
        algorithm, hparams, start, data, NONE, work, num_rounds=num_rounds,
        observe=lambda hparams, w, context: {"w": w},
    )  # fmt: skip
    return history["w"]


def mean_loss(w, rows):
    """The objective inside the ball."""
    return jnp.mean(loss(w, rows))


def minimiser(rows):
    """The minimiser on the ball, by projected gradient steps of size 1 / L."""

    def step(_, w):
        w = w - jax.grad(mean_loss)(w, rows) / SMOOTHNESS
        return w / jnp.maximum(1, jnp.linalg.norm(w))

    return jax.lax.fori_loop(0, 20_000, step, jnp.zeros(rows["c"].shape[1]))


def gaps(name, data, num_rounds):
    """The gap of the mean model after each round, and its bound."""
    rows, w = data.examples, models(name, data, num_rounds)
    best, rounds = minimiser(rows), np.arange(1, num_rounds + 1)
    mean = jnp.cumsum(w, axis=0) / rounds[:, None]
    constants = fco.Constants(
        float(best @ best) / 2, SMOOTHNESS, 0.0, len(rows["c"])
    )
    least = mean_loss(best, rows)
    gap = jax.vmap(lambda w: mean_loss(w, rows) - least)(mean)
    return np.asarray(gap), fco.gap_of_small_steps(
        constants, GAMMA, STEPS, 1
    ) / rounds


def two_clients(outward=3.0, inward=1.0):
    """Linear losses on [-1, 1], whose mean is least at 1."""
    return clients(np.zeros((2, 1, 1)), np.array([[-outward], [inward]]))


def random_clients(num_clients=6, dim=10, seed=0):
    """Quadratics with eigenvalues from 0.1 to 2 that share a slope."""
    rng = np.random.default_rng(seed)
    bases = np.linalg.qr(rng.normal(size=(num_clients, dim, dim)))[0]
    q = np.einsum(
        "mij,mj,mkj->mik", bases, rng.uniform(0.1, 2, (num_clients, dim)), bases
    )
    own = rng.normal(size=(num_clients, dim))
    return clients(q, own - own.mean(0) + 1.3 / np.sqrt(dim))


def worst_clients(largest, num_rounds, num_clients=6, dim=10, num_ascents=200):
    """Clients of a large gap, with diagonal Hessians and bounded slopes."""
    data = clients(
        np.zeros((num_clients, dim, dim)), np.zeros((num_clients, dim))
    )

    def rows_of(free):
        c = (
            largest
            * free["c"]
            / jnp.sqrt(1 + jnp.sum(free["c"] ** 2, axis=1, keepdims=True))
        )
        return {
            "q": jax.vmap(jnp.diag)(SMOOTHNESS * jax.nn.sigmoid(free["q"])),
            "c": c,
        }

    @jax.jit
    def ascend(free, state):
        def gap(free):
            rows = rows_of(free)
            w = jnp.mean(
                models(
                    "fed_mid",
                    dataclasses.replace(data, examples=rows),
                    num_rounds,
                ),
                0,
            )
            return mean_loss(w, rows) - mean_loss(
                jax.lax.stop_gradient(minimiser(rows)), rows
            )

        slope = jax.tree.map(jnp.negative, jax.grad(gap)(free))
        change, state = optimiser.update(slope, state)
        return optax.apply_updates(free, change), state

    optimiser, given = optax.adam(0.1), np.random.default_rng(1)
    free = {
        "q": np.zeros((num_clients, dim)),
        "c": given.normal(size=(num_clients, dim)),
    }
    state = optimiser.init(free)
    for _ in range(num_ascents):
        free, state = ascend(free, state)
    rows = jax.device_get(rows_of(free))
    return clients(rows["q"], rows["c"])


def draw(path):
    """Draw the gaps of the first two instances."""
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, 2, figsize=(8, 3), sharey=True, layout="constrained"
    )
    titles = {
        "two clients on an interval": two_clients(),
        "six on a ball": random_clients(),
    }
    for axis, (title, data) in zip(panels, titles.items(), strict=True):
        for name, label in METHODS.items():
            gap, bound = gaps(name, data, 10_000)
            rounds = np.arange(1, len(gap) + 1)
            osp = name == "fed_mid_osp"  # it lies on FedDualAvg
            axis.loglog(
                rounds,
                gap,
                "--" if osp else "-",
                label=label,
                zorder=3 if osp else 2,
            )
        axis.loglog(rounds, bound, ":", color="#333333", label="Theorem 4.1")
        axis.set(title=title, xlabel="round", ylim=(1e-5, 10))
    panels[0].set_ylabel("gap of the mean model")
    panels[1].legend()
    figure.savefig(path, dpi=150)


def main():
    """Print the numbers and draw the figure."""
    print("two clients: gap, bound over gap")
    for rounds in (100, 1_000, 10_000):
        for name, label in METHODS.items():
            gap, bound = (
                values[-1] for values in gaps(name, two_clients(), rounds)
            )
            print(f"  R = {rounds}: {label} {gap:.4g}, {bound / gap:.3g}")
    print(
        "last four models of FedMiD:",
        np.round(models("fed_mid", two_clients(), 100)[-4:, 0], 6),
    )
    for number in (6, 24, 48):
        print(
            f"{number} random clients: bound over gap, R = 100, 1,000, 10,000"
        )
        for name, label in METHODS.items():
            gap, bound = gaps(name, random_clients(number), 10_000)
            print(
                f"  {label}:",
                *(f"{bound[r] / gap[r]:.3g}" for r in (99, 999, 9_999)),
            )
    for largest in (1.0, 2.0, 4.0):
        data = worst_clients(largest, 100)
        ratios = {}
        for name, label in METHODS.items():
            gap, bound = gaps(name, data, 100)
            ratios[label] = f"{bound[-1] / gap[-1]:.3g}"
        print(
            f"worst clients with |c| <= {largest:g}, R = 100: bound over gap",
            ratios,
        )
    draw(pathlib.Path(__file__).parent / "figures" / "theorem_4_1.png")


if __name__ == "__main__":
    main()
