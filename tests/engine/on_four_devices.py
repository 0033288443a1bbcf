"""A program that prints models and bytes of runs on one, two and four devices, as JSON."""

import json

import jax
import jax.numpy as jnp

import fcojax
from fcojax import privacy, robust, uploads
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


def main():
    """Return a cohort of three of five clients, some of whose uploads are lost."""
    data = fcojax.from_clients(federations.clients(), weights=(1.0, 2.0, 0.5, 3.0, 1.5))
    plain, found = federations.algorithm("fed_avg"), {}
    rates, both = plain.hparams_type(client_lr=0.02), uploads.compressed_broadcast(plain, TOP)
    cohort = fcojax.dropout(fcojax.uniform_cohort(cohort_size=3), 0.3)
    for name, parts in ROWS.items():
        chosen = both if name in BROADCAST else plain
        plan = fcojax.Plan(fcojax.local_steps(2, 2), cohort, *parts)
        for devices, chunk in ((1, None), (1, 2), (2, 1), (4, None)):
            mesh = fcojax.devices.client_mesh(devices)
            clients = data if devices == 1 else fcojax.devices.shard_clients(data, mesh)
            model, history = fcojax.run(
                chosen,
                rates,
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
