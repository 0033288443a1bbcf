"""Draws docs/figures/port_r_fed_ags.png: means when clients seldom take part.

Ten clients with three points each, of which client i takes part with a
probability of 0.05 to 0.95; five local steps, which fall like 1 / t, and
five seeds. It prints the numbers that decide the claims of docs/ports/index.md.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import uploads
from fcojax.algorithms import r_fed_avg
from fcojax.theory.manifold import stationarity
from fcojax.transforms import spd
from port_figures import HERE, Claim, plt, port

NUM_CLIENTS, NUM_STEPS, NUM_ROUNDS, EVERY = 10, 5, 1000, 20
OFTEN = (np.arange(NUM_CLIENTS) + 0.5) / NUM_CLIENTS
LABELS = {
    None: "RFedAvg",
    "known": "RFedAGS, $q_i$ known",
    "estimated": "RFedAGS, $q_i$ estimated",
}


def measured(manifold, start):
    """Gradient norms over rounds, and that at the limit of RFedAvg."""

    def loss(x, points):
        def half_square(a):
            tangent = manifold.log(a, x)
            return 0.5 * jnp.vdot(tangent, manifold.metric(a, tangent))

        return jax.vmap(half_square)(points)

    def slope(x):
        return stationarity(loss, manifold, data, x, 1e-3)

    keys = jax.random.split(jax.random.key(0), (NUM_CLIENTS, 3))
    points = jax.vmap(jax.vmap(lambda k: manifold.random_point(start, k)))(keys)
    data = fcojax.from_clients(list(points))
    work, curves = fcojax.local_steps(NUM_STEPS), {}
    averaging = r_fed_avg(loss, manifold)
    streams = port("r_fed_ags")(loss, manifold)
    rate = fcojax.schedule(1 / (NUM_STEPS * (10 + np.arange(NUM_ROUNDS))))
    for kind in LABELS:
        algorithm = streams if kind else averaging
        weights = uploads.inverse_probability(kind) if kind else uploads.chain()
        cohort = fcojax.coin_flips(OFTEN)
        _, history = fcojax.sweep(
            algorithm,
            fcojax.grid.product(algorithm.hparams_type, client_lr=[rate]),
            start,
            data,
            jax.random.split(jax.random.key(1), 5),
            fcojax.Plan(work, cohort, weights),
            num_rounds=NUM_ROUNDS,
            eval_every=EVERY,
            observe=lambda hparams, x, context: {"slope": slope(x)},
        )
        curves[kind] = np.mean(history["slope"], axis=(0, 1))
    biased = fcojax.from_clients(list(points), weights=shares())
    end, _ = fcojax.run(
        averaging,
        averaging.hparams_type(client_lr=0.5),
        start,
        biased,
        jax.random.key(0),
        fcojax.local_steps(1),
        num_rounds=60,
        eval_every=60,
    )
    return curves, float(slope(end))


def shares():
    """Each client's expected share of the mean over a cohort."""
    total = np.zeros(NUM_CLIENTS)
    for present in itertools.product((False, True), repeat=NUM_CLIENTS):
        if any(present):
            chance = np.prod(np.where(present, OFTEN, 1 - OFTEN))
            total += chance * np.array(present) / sum(present)
    return total


def draw(found):
    """Draw gradient norms over rounds."""
    figure, axes = plt.subplots(layout="constrained")
    curves, biased = found
    rounds = np.arange(EVERY, NUM_ROUNDS + 1, EVERY)
    for kind, curve in curves.items():
        axes.plot(rounds, curve, label=LABELS[kind])
    axes.axhline(biased, color="black", ls=":", label="limit of RFedAvg")
    axes.set(xlabel="communication round")
    axes.set(ylabel="norm of the gradient at the model")
    axes.set(xscale="log", yscale="log")
    axes.legend()
    figure.savefig(HERE / "figures" / "port_r_fed_ags.png")


def claims(curves, biased):
    """Return the claims, from rounds 100 and 1000."""
    plain, known, estimated = (curve[-1] for curve in curves.values())
    earlier = {name: curve[99 // EVERY] for name, curve in curves.items()}
    itself = "over its own of round 100"
    return [
        Claim("known frequencies over RFedAvg", known / plain, 0.3),
        Claim("estimated over RFedAvg", estimated / plain, 0.3),
        Claim("estimated over known", estimated / known, 1.5),
        Claim(f"known, {itself}", known / earlier["known"], 0.5),
        Claim(f"estimated, {itself}", estimated / earlier["estimated"], 0.5),
        Claim("RFedAvg, off its limit", abs(plain / biased - 1), 0.2),
    ]


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    found = measured(spd(), jnp.eye(3))
    draw(found)
    print(*claims(*found), sep="\n")
