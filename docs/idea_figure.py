"""Draws docs/figures/idea.png: why averaging models destroys their sparsity.

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021,
section 3, on a small LASSO.
"""

import pathlib

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import fcojax
from fcojax.transforms import euclidean, l1

DIM, NUM_TRUE, NUM_CLIENTS, NUM_ROUNDS = 256, 16, 16, 200
HERE = pathlib.Path(__file__).parent
# The look and the colours of all figures.
plt.style.use(HERE.parent / "experiments" / "report" / "house.mplstyle")
MODELS, DUALS, ALONE = "#D55E00", "#0072B2", "#999999"


def truths():
    """Each client's weights: ones on the common features and on its own."""
    weights = np.zeros((NUM_CLIENTS, DIM), np.float32)
    weights[:, :NUM_TRUE] = 1
    own = np.array_split(np.arange(NUM_TRUE, DIM), NUM_CLIENTS)
    for truth, features in zip(weights, own, strict=True):
        truth[features] = 1
    return weights


def loss(w, row):
    """Squared error."""
    return (row["x"] @ w - row["y"]) ** 2


def measured():
    """Densities over rounds of both methods, and of clients' last models."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NUM_CLIENTS, DIM, DIM), dtype=np.float32)
    y = np.einsum("mnd,md->mn", x, truths())
    y += 0.1 * rng.standard_normal(y.shape, dtype=np.float32)
    train = fcojax.from_clients(
        [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    )
    make, mirror = fcojax.algorithms, euclidean(l1())
    methods = {
        "models averaged": make.fed_mid(loss, mirror, server_prox=False),
        "duals averaged": make.fed_dual_avg(loss, mirror),
    }
    hparams = make.fed_mid.Hparams(
        client_lr=0.003, server_lr=1.0, penalty_scale=1.0
    )
    start, plan = jnp.zeros(DIM), fcojax.local_steps(20)
    curves, alone = {}, []
    for label, algorithm in methods.items():
        args = (hparams, start, train, jax.random.key(1), plan)
        _, history = fcojax.run(
            algorithm, *args, num_rounds=NUM_ROUNDS, observe=density
        )
        curves[label] = np.asarray(history["density"])
    # A client alone, from the model that all had before the last round.
    averaged = methods["models averaged"]
    before, _ = fcojax.run(averaged, *args, num_rounds=NUM_ROUNDS - 1)
    for client in range(NUM_CLIENTS):
        own = train.select([client])
        after, _ = fcojax.run(
            averaged,
            hparams,
            before,
            own,
            jax.random.key(2),
            plan,
            num_rounds=1,
        )
        alone.append(float(density(hparams, after, None)["density"]))
    return curves, alone


def density(hparams, model, context):
    """The share of entries that are not zero."""
    del hparams, context
    return {"density": jnp.mean(model != 0)}


def draw(curves, alone):
    """Left the densities of clients and their mean, right both methods."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(7, 2.6), layout="constrained"
    )
    mean, dual = (curve[-1] for curve in curves.values())
    left.bar(
        range(NUM_CLIENTS), alone, color=ALONE, label="each client's model"
    )
    left.bar(NUM_CLIENTS + 1, mean, color=MODELS, label="their mean")
    left.bar(NUM_CLIENTS + 3, dual, color=DUALS, label="model of the mean dual")
    left.set(
        xticks=[],
        yticks=np.linspace(0, 1, 6),
        xlabel=f"{NUM_CLIENTS} clients, and two servers",
        ylabel="share of entries that are not zero",
        title="in the last round",
        ylim=(0, 1.4),
    )
    for (label, curve), color in zip(
        curves.items(), (MODELS, DUALS), strict=True
    ):
        right.plot(
            np.arange(1, NUM_ROUNDS + 1), curve, color=color, label=label
        )
    right.axhline(
        NUM_TRUE / DIM, color="black", linestyle=":", label="in common"
    )
    right.set(
        xlabel="communication round", title="over the rounds", ylim=(0, 1.05)
    )
    for axes in (left, right):
        axes.legend()
    figure.savefig(HERE / "figures" / "idea.png")


if __name__ == "__main__":
    found = measured()
    draw(*found)
    print(
        {
            label: round(float(curve[-1]), 3)
            for label, curve in found[0].items()
        },
        found[1],
    )
