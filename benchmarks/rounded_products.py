"""What products in TF32 or bfloat16 do to results, by rounding their operands on a CPU.

    python -m benchmarks.rounded_products [--only=W1,LASSO] [--rounds=0]

A GPU's TF32 keeps 10 bits of the mantissa of both operands of a product, a TPU's bfloat16 7, and
both add up in float32. Here the losses round both operands of their products, forwards and
backwards. A line has FedDualAvg's objective after the rounds, its relative distance from that with
all 23 bits, the entries that are not zero, and F1 of these against the planted support, if any.
"""

import argparse
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from benchmarks import workloads
from benchmarks.settings import plan
from fcojax.transforms import euclidean, l1, named, on_subtree

BITS = {"highest": 23, "TF32": 10, "bfloat16": 7}
# The LASSO is W1 at the strength of its config.
_SETTINGS = {name: workloads.WORKLOADS[name] for name in ("W1", "W2", "W3")} | {
    "LASSO": workloads.WORKLOADS["W1"]._replace(penalty_scale=0.5)
}


def rounded_product(bits: int):
    """Return ``(x, w) -> x @ w`` whose operands keep ``bits`` bits, as do those of its gradient."""
    keep = functools.partial(jax.lax.reduce_precision, exponent_bits=8, mantissa_bits=bits)

    @jax.custom_vjp
    def product(x, w):
        return keep(x) @ keep(w)

    def forward(x, w):
        return product(x, w), (x, w)

    def backward(kept, cotangent):
        x, w = map(keep, kept)
        cotangent = keep(cotangent)
        along = cotangent[:, None] if w.ndim == 1 else cotangent
        return (along @ w.reshape(w.shape[0], -1).T).reshape(x.shape), x.T @ cotangent

    product.defvjp(forward, backward)
    return product


def loss_of(model: str, bits: int):
    """Return the loss of a linear model with rounded products."""
    product = rounded_product(bits)

    def loss(params, rows):
        score = product(rows["x"], params["kernel"]) + params["bias"]
        if model == "least_squares":
            return 0.5 * (score - rows["y"]) ** 2
        if model == "logistic":
            return jnp.logaddexp(0.0, score) - rows["y"] * score
        picked = jnp.take_along_axis(score, rows["y"][:, None], 1)[:, 0]
        return jax.nn.logsumexp(score, 1) - picked

    return loss


def trained(name: str, bits: int, rounds: int) -> dict:
    """Return the row of a workload at a precision."""
    workload = _SETTINGS[name]
    x, y = workloads.draw(workload)
    data = fcojax.from_rows({"x": x, "y": y}, [workload.num_examples] * workload.num_clients)
    penalty = on_subtree(l1(), named("kernel"))
    chosen = fcojax.algorithms.fed_dual_avg(loss_of(workload.model, bits), euclidean(penalty))
    hparams = chosen.hparams_type(
        client_lr=workload.client_lr, penalty_scale=workload.penalty_scale
    )
    start = jax.tree.map(jnp.asarray, workloads.start(workload))
    rounds = rounds or workload.num_rounds
    model, _ = fcojax.run(
        chosen,
        hparams,
        start,
        data,
        jax.random.key(0),
        fcojax.Plan(*plan(workload)),
        num_rounds=rounds,
        eval_every=rounds,
    )
    exact = loss_of(workload.model, 23)
    # All in full precision, whatever the run had.
    total = sum(
        float(jax.jit(exact)(model, {"x": x[at : at + 4096], "y": y[at : at + 4096]}).sum())
        for at in range(0, len(x), 4096)
    )
    kernel = np.asarray(model["kernel"])
    row = {
        "workload": name,
        "rounds": rounds,
        "objective": total / len(x) + workload.penalty_scale * float(np.abs(kernel).sum()),
        "nonzeros": int((kernel != 0).sum()),
    }
    if workload.model != "softmax":
        true, found = np.arange(len(kernel)) < len(kernel) // 2, kernel != 0
        row["f1"] = 2 * int((true & found).sum()) / (int(true.sum()) + int(found.sum()))
    return row


def main() -> None:
    """Print a JSON line for each workload and precision."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounded_products")
    parser.add_argument("--only", default=",".join(_SETTINGS), help="workloads")
    parser.add_argument("--rounds", type=int, default=0, help="0 for those of the workload")
    options = parser.parse_args()
    for name in options.only.split(","):
        first = 0.0
        for precision, bits in BITS.items():
            row = trained(name, bits, options.rounds)
            first = first or row["objective"]
            off = row["objective"] / first - 1
            print(json.dumps({"products": precision} | row | {"off": off}), flush=True)


if __name__ == "__main__":
    main()
