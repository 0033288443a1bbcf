"""A program that prints models and bytes of runs on one to four devices, as JSON."""

import json

import jax
import jax.numpy as jnp

import fcojax
from fcojax import clock, uploads
from tests.support import federations

COHORT, LOSSES = fcojax.uniform_cohort(cohort_size=3), fcojax.dropout(0.3)


def cases(table):
    """Yield names, algorithms, plans and whether weights are equal."""
    dual = federations.algorithm("fed_dual_avg")
    for name, row in table.transforms().items():
        chosen = federations.algorithm("fed_avg") if len(name) % 2 else dual
        cohort = table.coins() if name in ("known", "estimated") else COHORT
        yield name, chosen, table.planned(row, cohort), row.equal
    data, seconds = table.population(False), table.SECONDS
    epochs = clock.truncated(fcojax.local_epochs(1.5, 2), data, seconds[0], 8.0)
    yield "truncated", dual, fcojax.Plan(epochs, COHORT, LOSSES), False
    order = clock.arrivals(seconds, buffer=2, num_rounds=6)
    late = clock.asynchronous(dual, order)
    for known in (uploads.chain(), uploads.inverse_probability("known")):
        plan = fcojax.Plan(fcojax.local_steps(2, 2), order.sampler, known)
        yield f"asynchronous, {known}", late, plan, False


def main():
    """Print the models and the bytes of all cases, by numbers of devices and chunk sizes."""
    from tests.laws import test_chain as table  # its arrays start JAX, with its devices

    found = {}
    for name, chosen, plan, equal in cases(table):
        data = table.population(equal)
        for devices, chunk in ((1, None), (1, 2), (2, 1), (3, 1), (4, None)):
            mesh = fcojax.devices.device_mesh(clients=devices)
            clients = data if devices == 1 else fcojax.devices.shard_clients(data, mesh)
            model, history = fcojax.run(
                chosen,
                chosen.hparams_type(client_lr=0.02),
                federations.start(),
                clients,
                table.KEY,
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
