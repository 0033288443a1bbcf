"""What uplinks cost: rounds of W1 with each, relative to rounds without, in processor seconds.

    python -m benchmarks.uplinks [--algorithm=fed_dual_avg] [--repeats=11]

Prints one JSON line for each uplink, with the quartiles of the ratios in alternating runs, and how
many times fewer bytes an upload has: of the encoded arrays, and as the history counts them with
what is public beside them. Then one that compresses both ways, noise, and robust means.
"""

import functools
import json
import time
from collections.abc import Callable

import jax
import numpy as np
from absl import app, flags

import fcojax
from benchmarks import settings
from benchmarks.alternating import alternate
from benchmarks.workloads import WORKLOADS, draw
from fcojax import privacy, robust, tree, uploads

FLAGS = flags.FLAGS
_TOP = uploads.ef21(uploads.top_k(0.01))
_UPLINKS = {
    "ef21(top_k(0.01))": _TOP,
    "compressed(drive())": uploads.compressed(uploads.drive()),
    "ef21(drive('least error'))": uploads.ef21(uploads.drive("least error")),
    "compressed(eden(2))": uploads.compressed(uploads.eden(2)),
    "ef21(eden(2, 'least error'))": uploads.ef21(uploads.eden(2, "least error")),
    "gaussian(0.3, noise=1.0)": privacy.gaussian(0.3, noise=1.0),
    "gaussian after modular_sum": privacy.gaussian(
        0.3, noise=1.0, uplink=uploads.modular_sum(1e-4, 24)
    ),
    "median": robust.averaged(robust.median()),
    "gaussian, four bands": privacy.gaussian(0.3, noise=1.0, bands=privacy.square_root_bands(4)),
    "geometric_median": robust.averaged(robust.geometric_median()),
    "geometric_median, kept uploads": robust.averaged(robust.geometric_median(), keep_uploads=True),
    "centred_clipping(1.0, 3)": robust.averaged(robust.centred_clipping(1.0, 3)),
    "centred_clipping(1.0, 3), kept uploads": robust.averaged(
        robust.centred_clipping(1.0, 3), keep_uploads=True
    ),
}
_ROUNDS = 100


def main(_):
    """Time all of them, one call of each after the other."""
    workload = WORKLOADS[FLAGS.workload]
    chosen, hparams, params, data = settings.setting(workload, FLAGS.algorithm, *draw(workload))
    plan = fcojax.Plan(*settings.plan(workload))
    plans = {"whole": plan}
    plans |= {name: plan._replace(uplink=uplink) for name, uplink in _UPLINKS.items()}
    plans["ef21(top_k(0.01)) both ways"] = plan._replace(uplink=_TOP, downlink=_TOP)
    data = fcojax.devices.spread(chosen, hparams, params, data, plan=plan)

    def run(plan):
        return fcojax.run(
            chosen,
            hparams,
            params,
            data,
            jax.random.key(0),
            plan,
            num_rounds=_ROUNDS,
            eval_every=_ROUNDS,
        )

    sent = {name: float(run(plan)[1]["bytes_up"][0]) for name, plan in plans.items()}
    ways: dict[str, Callable[[], object]]
    ways = {name: functools.partial(run, plan) for name, plan in plans.items()}
    times = alternate(ways, FLAGS.repeats, time.process_time)
    payload = jax.tree.leaves(params)
    for name, plan in plans.items():
        ratios = np.divide(times[name], times["whole"])
        found = {
            "uplink": name,
            "ms_per_round": round(1e3 * float(np.median(times[name])) / _ROUNDS, 3),
            "ratio": [round(q, 3) for q in np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()],
            "fewer_counted": round(sent["whole"] / sent[name], 1),
        }
        if plan.uplink is not None:
            residual = plan.uplink.init(tree.zeros_like(payload))
            encoded, _ = plan.uplink.encode(hparams, payload, residual, jax.random.key(0))
            parts = (encoded.sent, encoded.whole) if hasattr(encoded, "sent") else encoded
            arrays = sum(leaf.nbytes for leaf in jax.tree.leaves(parts))
            found["fewer_encoded"] = round(tree.num_bytes(payload) / arrays, 1)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    flags.DEFINE_enum("workload", "W1", ["W1", "toy"], "Which workload.")
    flags.DEFINE_string("algorithm", "fed_dual_avg", "Which algorithm.")
    flags.DEFINE_integer("repeats", 11, "Alternating runs of each.")
    app.run(main)
