"""Rounds of FedDA and of FedDualAvg on a lasso whose columns' scales differ.

    python -m benchmarks.unlike_scales [--span=1e4] [--rounds=4000] [--quick]

Prints one JSON line: for each method the rounds to an F1 of 0.95 of the support, evaluated every
ten, at the best of nine rates; ``null`` if none gets there. Forty columns, ten of them used, with
deviations from ``span**-0.5`` to ``span**0.5``; four sites of 100 rows, five full local steps, the
penalty ``weighted_l1`` of the deviations. The claim that was made before the first run: with
Adagrad's metric FedDA needs at most a tenth of the rounds of FedDualAvg at a span of 1e4.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import fcojax
from fcojax.algorithms import fed_da, fed_dual_avg
from fcojax.transforms import euclidean, weighted_l1

FLAGS = flags.FLAGS
_DIM, _NUM_TRUE, _EVERY = 40, 10, 10


def population(span: float) -> tuple[fcojax.problems.ClientData, np.ndarray, np.ndarray]:
    """Return the sites, the columns' deviations, and which columns are used.

    In units of one deviation each weight that is used is 1 or -1.
    """
    rng = np.random.default_rng(0)
    scales = rng.permutation(np.geomspace(span**-0.5, span**0.5, _DIM))
    truth = np.zeros(_DIM)
    truth[rng.permutation(_DIM)[:_NUM_TRUE]] = rng.choice([-1.0, 1.0], _NUM_TRUE)
    z = rng.normal(size=(400, _DIM))
    y = z @ truth + 0.5 * rng.normal(size=400)
    return fcojax.from_rows({"x": z * scales, "y": y}, [100] * 4), scales, truth != 0


def rounds_to_support(algorithm, rates, data, support, num_rounds: int) -> int | None:
    """Return the rounds to an F1 of 0.95 at the best of the rates."""

    def f1(hparams, model, context):
        found = model != 0
        hits = jnp.sum(found & support)
        return {"f1": 2 * hits / jnp.maximum(jnp.sum(found) + jnp.sum(support), 1)}

    grid = fcojax.grid.product(algorithm.hparams_type, client_lr=rates, penalty_scale=[0.1])
    keys = jax.random.split(jax.random.key(0), 1)
    _, history = fcojax.sweep(
        algorithm,
        grid,
        jnp.zeros(_DIM),
        data,
        keys,
        fcojax.local_steps(5),
        num_rounds=num_rounds,
        eval_every=_EVERY,
        observe=f1,
    )
    reached = np.any(np.asarray(history["f1"])[:, 0] >= 0.95, axis=0)
    return _EVERY * (1 + int(np.argmax(reached))) if reached.any() else None


def compare(span: float, num_rounds: int) -> dict:
    """Return the JSON line as a dict."""
    data, scales, support = population(span)
    penalty = weighted_l1(scales)

    def loss(w, rows):
        return 0.5 * (rows["x"] @ w - rows["y"]) ** 2

    sides = {
        "fed_da, adagrad": (fed_da(loss, penalty, metric="adagrad"), np.logspace(-4, 4, 9)),
        "fed_da, adam": (fed_da(loss, penalty, metric="adam"), np.logspace(-4, 4, 9)),
        "fed_dual_avg": (fed_dual_avg(loss, euclidean(penalty)), np.logspace(-8, 0, 9)),
    }
    rounds = {
        name: rounds_to_support(algorithm, rates, data, support, num_rounds)
        for name, (algorithm, rates) in sides.items()
    }
    return {"span": span, "of_rounds": num_rounds, "rounds": rounds}


def main(argv):
    """Print the line."""
    del argv
    jax.config.update("jax_enable_x64", True)
    num_rounds = 40 if FLAGS.quick else FLAGS.rounds
    print(json.dumps(compare(FLAGS.span, num_rounds)), flush=True)


if __name__ == "__main__":
    flags.DEFINE_float("span", 1e4, "largest deviation of a column over the smallest.")
    flags.DEFINE_integer("rounds", 4000, "rounds of each method.")
    flags.DEFINE_bool("quick", False, "few rounds.")
    app.run(main)
