"""A federated regularisation path, beside the pooled path of scikit-learn.

    python -m benchmarks.strengths [--local_steps=1] [--repeats=5] [--quick]

Prints one JSON line. Lasso without a bias on standard normal features, 50 strengths down to a
hundredth of the first, everyone in full batches, float64; with more than one local step the method
is one that is exact with them. Both sides run in this process, alternating; medians. ``violation``
is the worst over the path of how far the optimality conditions are from holding, in units of the
first strength: scikit-learn's tolerance is chosen so that its own is no larger than ours.
"""

import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from sklearn.linear_model import lasso_path

import fcojax
from fcojax.transforms import l1

FLAGS = flags.FLAGS
_TOLERANCE, _POOLED_TOLERANCE = 4e-6, 1e-5


def compare(num_steps: int, repeats: int, quick: bool) -> dict:
    """Return the JSON line as a dict."""
    num_rows, dim, num_strengths = (256, 20, 5) if quick else (8192, 1000, 50)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, dim))
    y = x[:, : dim // 20].sum(axis=1) + rng.standard_normal(num_rows)
    data = fcojax.from_rows({"x": x, "y": y}, [num_rows // 8] * 8)
    problem, plan = fcojax.problems.least_squares(data), fcojax.local_steps(num_steps)
    more: dict = {}
    if num_steps > 1:
        rate = 0.5 * num_rows / np.linalg.norm(x.T @ x, 2) / num_steps
        more = {
            "method": lambda loss: fcojax.algorithms.composite_fl(loss, l1()),
            "hparams": fcojax.algorithms.composite_fl.Hparams(client_lr=rate),
        }

    def ours():
        return fcojax.path(
            problem, l1(), strengths=num_strengths, plan=plan, tolerance=_TOLERANCE, **more
        )

    def theirs():
        return lasso_path(x, y, eps=1e-2, n_alphas=num_strengths, tol=_POOLED_TOLERANCE)  # pyright: ignore[reportArgumentType]

    def seconds(side):
        began = time.perf_counter()
        found = side()
        jax.block_until_ready(getattr(found, "models", None))
        return time.perf_counter() - began, found

    (first, found), (_, (strengths, coefficients, _)) = seconds(ours), seconds(theirs)
    times = {side: [] for side in (ours, theirs)}
    for _ in range(repeats):
        for side in times:
            times[side].append(seconds(side)[0])
    mine, judged = (statistics.median(times[side]) for side in (ours, theirs))

    def worst(models):
        at = jax.jit(
            jax.vmap(lambda s, w: fcojax.kkt_violation(problem.loss, l1(), s, w, problem.train))
        )
        return float(jnp.max(at(jnp.asarray(strengths), jnp.asarray(models))) / strengths[0])

    return {
        "rows": num_rows,
        "features": dim,
        "strengths": num_strengths,
        "local_steps": num_steps,
        "first_s": round(first, 2),
        "path_s": round(mine, 3),
        "pooled_s": round(judged, 3),
        "spread_s": {
            name: [round(min(column), 3), round(max(column), 3)]
            for name, column in (("path", times[ours]), ("pooled", times[theirs]))
        },
        "ratio": round(mine / judged, 2),
        "rounds": int(jnp.sum(found.outcome.rounds)),
        "unsolved": int(jnp.sum(~found.outcome.solved)),
        "violation": {"path": worst(found.models), "pooled": worst(coefficients.T)},
        "largest_difference": float(np.abs(np.asarray(found.models) - coefficients.T).max()),
    }


def main(argv: list[str]) -> None:
    """Print the JSON line."""
    del argv
    jax.config.update("jax_enable_x64", True)
    print(json.dumps(compare(FLAGS.local_steps, FLAGS.repeats, FLAGS.quick)))


if __name__ == "__main__":
    flags.DEFINE_integer("local_steps", 1, "K.")
    flags.DEFINE_integer("repeats", 5, "How often each side is timed.")
    flags.DEFINE_boolean("quick", False, "Toy sizes.")
    app.run(main)
