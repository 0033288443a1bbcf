"""A program that prints models and bytes of runs on one to four devices, as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import clock, privacy, robust, uploads
from fcojax.extend import Uploads
from tests.support import federations

TOP = uploads.top_k(2)
ROWS = {
    "compressed": Uploads(uploads.compressed(uploads.qsgd(3))),
    "ef21": uploads.ef21(TOP),
    "econtrol": uploads.econtrol(TOP, 0.1),
    "marina": uploads.marina(uploads.rand_k(2), 0.3),
    "ef14": Uploads(uploads.ef14(uploads.drive("least error"))),
    "noise": Uploads(None, privacy.gaussian(0.05, noise=0.5)),
    "adaptive": Uploads(
        None, privacy.gaussian(privacy.adaptive_clip(start=0.05, noise=0.5), noise=0.5)
    ),
    "bands": Uploads(None, privacy.gaussian(0.05, noise=0.5, bands=privacy.square_root_bands(3))),
    "median": Uploads(None, robust.averaged(robust.median())),
    "geometric": Uploads(None, robust.averaged(robust.geometric_median())),
    "krum": Uploads(None, robust.averaged(robust.krum(0.2), before=robust.bucketing(2))),
    "centre": Uploads(
        None, robust.averaged(robust.centred_clipping(0.05), before=robust.bucketing(2))
    ),
}
BROADCAST = {"ef21", "ef14", "noise"}  # with compressed broadcasts


COHORT = fcojax.dropout(fcojax.uniform_cohort(cohort_size=3), 0.3)
WORK = fcojax.local_steps(2, 2)
# Seconds of five clients in two rounds, of which some are late in both, one or none.
SECONDS = np.array([[1.0, 2.0, 3.0, 4.0, 9.0], [2.0, 4.0, 1.0, 3.0, 9.0]])


def cases(data):
    """Yield names, algorithms and plans; cohorts have at most three of five clients."""
    plain, dual = federations.algorithm("fed_avg"), federations.algorithm("fed_dual_avg")
    both = uploads.compressed_broadcast(plain, TOP)
    for name, parts in ROWS.items():
        yield name, both if name in BROADCAST else plain, fcojax.Plan(WORK, COHORT, *parts)
    coins = fcojax.dropout(fcojax.coin_flips([0.9, 0.1, 0.5, 0.3, 0.7]), 0.3)
    for correct in ("known", "estimated"):
        yield correct, dual, fcojax.Plan(WORK, coins, correct=correct)
        late = clock.deadline(COHORT, SECONDS, 3.5)
        yield f"deadline, {correct}", dual, fcojax.Plan(WORK, late, correct=correct)
    epochs = fcojax.local_epochs(1.5, 2)
    yield "truncated", dual, fcojax.Plan(clock.truncated(epochs, data, SECONDS[0], 8.0), COHORT)
    order = clock.arrivals(SECONDS, buffer=2, num_rounds=6)
    late = clock.asynchronous(dual, order.staleness)
    yield "asynchronous", late, fcojax.Plan(WORK, order.sampler)
    yield "asynchronous, known", late, fcojax.Plan(WORK, order.sampler, correct="known")


def main():
    """Print the models and the bytes of all cases, by numbers of devices and chunk sizes."""
    data = fcojax.from_clients(federations.clients(), weights=(1.0, 2.0, 0.5, 3.0, 1.5))
    found = {}
    for name, chosen, plan in cases(data):
        for devices, chunk in ((1, None), (1, 2), (2, 1), (3, 1), (4, None)):
            mesh = fcojax.devices.client_mesh(devices)
            clients = data if devices == 1 else fcojax.devices.shard_clients(data, mesh)
            model, history = fcojax.run(
                chosen,
                chosen.hparams_type(client_lr=0.02),
                federations.start(),
                clients,
                jax.random.key(3),
                plan._replace(client_chunk_size=chunk),
                num_rounds=6,
                eval_every=6,
            )
            sent = [float(history[key][0]) for key in ("bytes_up", "bytes_down")]
            vector = jnp.append(model["kernel"], model["bias"]).tolist()
            found.setdefault(name, []).append((vector, sent))
    print(json.dumps(found))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_enable_x64", True)
    main()
