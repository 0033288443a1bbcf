"""A program that prints models and bytes of runs on one to four devices, as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import clock, privacy, robust, uploads
from fcojax.engine.aggregator import MEAN
from fcojax.uploads import chain, inverse_probability
from tests.support import federations

TOP = uploads.top_k(2)
QSGD, NOISE = uploads.compressed(uploads.qsgd(3)), privacy.gaussian(0.05, noise=0.5)
ADAPTIVE = privacy.gaussian(privacy.adaptive_clip(start=0.05, noise=0.5), noise=0.5)
BANDS = privacy.gaussian(0.05, noise=0.5, bands=privacy.square_root_bands(3))
ROWS = {
    "compressed": QSGD,
    "ef21": uploads.ef21(TOP),
    "econtrol": uploads.econtrol(TOP, 0.1),
    "marina": uploads.marina(uploads.rand_k(2), 0.3),
    "ef14": uploads.ef14(uploads.drive("least error")),
    "noise": chain(QSGD, NOISE),
    "adaptive": ADAPTIVE,
    "bands": chain(BANDS, robust.norm_bound(0.3)),
    "median": uploads.ef21(TOP),
    "geometric": chain(),
    "krum": chain(),
    "centre": chain(),
}
RULES = {
    "median": robust.averaged(robust.median()),
    "geometric": robust.averaged(robust.geometric_median()),
    "krum": robust.averaged(robust.krum(0.2), before=robust.bucketing(2)),
    "centre": robust.averaged(robust.centred_clipping(0.05)),
}
BROADCASTS = dict.fromkeys(("ef21", "ef14", "noise"), uploads.ef21p(TOP))
COHORT, LOSSES = fcojax.uniform_cohort(cohort_size=3), fcojax.dropout(0.3)
WORK = fcojax.local_steps(2, 2)
# Seconds of five clients in two rounds, of which some are late in both, one or none.
SECONDS = np.array([[1.0, 2.0, 3.0, 4.0, 9.0], [2.0, 4.0, 1.0, 3.0, 9.0]])


def cases(data):
    """Yield names, algorithms and plans; most cohorts have three of five clients."""
    plain, dual = federations.algorithm("fed_avg"), federations.algorithm("fed_dual_avg")
    for name, part in ROWS.items():
        cohort = fcojax.everyone() if name == "geometric" else COHORT
        both = chain(part, LOSSES), RULES.get(name, MEAN)
        yield name, plain, fcojax.Plan(WORK, cohort, *both, BROADCASTS.get(name))
    coins = fcojax.coin_flips([0.9, 0.1, 0.5, 0.3, 0.7])
    for kind in ("known", "estimated"):
        weights = inverse_probability(kind)
        yield kind, dual, fcojax.Plan(WORK, coins, chain(QSGD, weights, LOSSES))
        late = chain(weights, clock.deadline(SECONDS, 3.5), LOSSES)
        yield f"deadline, {kind}", dual, fcojax.Plan(WORK, COHORT, late)
    epochs = clock.truncated(fcojax.local_epochs(1.5, 2), data, SECONDS[0], 8.0)
    yield "truncated", dual, fcojax.Plan(epochs, COHORT, LOSSES)
    order = clock.arrivals(SECONDS, buffer=2, num_rounds=6)
    late = clock.asynchronous(dual, order)
    yield "asynchronous", late, fcojax.Plan(WORK, order.sampler)
    known = inverse_probability("known")
    yield "asynchronous, known", late, fcojax.Plan(WORK, order.sampler, known)


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
