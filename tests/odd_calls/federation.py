"""A small federation and calls on it, of which the tables of odd calls change one argument."""

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import algorithms


def squares(w, rows):
    return 0.5 * (w - rows["a"]) ** 2


CLIENTS = [{"a": np.array([1.0])}, {"a": np.array([3.0, 3.0])}]
DATA = fcojax.from_clients(CLIENTS)
FED_AVG = algorithms.fed_avg(squares)
RATES = algorithms.fed_avg.Hparams
KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 2)
ZERO = jnp.zeros(())
STEPS = fcojax.local_steps(1)
GRID = fcojax.grid.product(RATES, client_lr=[0.25, 0.5])


def custom(**metrics):
    """FedAvg with client metrics that are functions of the hyperparameters."""

    def client_update(hparams, message, client, local, key):
        result = FED_AVG.client_update(hparams, message, client, local, key)
        return result._replace(metrics={name: of(hparams) for name, of in metrics.items()})

    def server_update(hparams, server, mean_upload, fraction, key):
        return server + mean_upload

    return FED_AVG._replace(
        client_update=client_update, server_update=server_update, hparams_type=tuple
    )


# One round with full participation and rate 1/2 from 0 ends at 1, half the mean of 1 and 3.
STARTED = {"algorithm": FED_AVG, "hparams": RATES(0.5), "params": ZERO, "data": DATA, "key": KEY}
RUN = STARTED | {"plan": STEPS, "num_rounds": 1}


def ran(**changes):
    """Return the model of such a run."""
    return fcojax.run(**(RUN | changes))[0]


def metric(of, **changes):
    """Return the client metric ``of(hparams)`` of such a run."""
    return fcojax.run(**(RUN | {"algorithm": custom(x=of)} | changes))[1]["x"]


def observed(observe, **changes):
    """Return the observed ``w`` of such a run."""
    return fcojax.run(observe=observe, **(RUN | changes))[1]["w"]


def planned(**changes):
    """Return the model of such a run with another plan."""
    return ran(plan=fcojax.Plan(**({"work": STEPS} | changes)))


def swept(**changes):
    """Return the models of a sweep over two rates and two seeds."""
    given = {"algorithm": FED_AVG, "grid": GRID, "params": ZERO, "data": DATA, "keys": KEYS}
    return fcojax.sweep(**(given | {"plan": STEPS, "num_rounds": 1} | changes))[0]


def started(**changes):
    """Return the first state."""
    return fcojax.start(**(STARTED | {"plan": STEPS} | changes))


def advanced(**changes):
    """Return the model after one round from the first state."""
    given = {"algorithm": FED_AVG, "hparams": RATES(0.5), "data": DATA, "plan": STEPS}
    given = {"state": started(), "num_rounds": 1} | given | changes
    return fcojax.read_model(FED_AVG, RATES(0.5), fcojax.advance(**given)[0])


def solved(certificate, **changes):
    """Return the model at which a certificate holds."""
    given = STARTED | {"plan": STEPS, "certificate": certificate, "max_rounds": 100} | changes
    return fcojax.solve(**given)[0]


def in_float32(call):
    """Return the same call with float64 turned off."""

    def narrow():
        with jax.enable_x64(False):
            return call()

    return narrow


def clients(*values, **more):
    return fcojax.from_clients([{"a": value} for value in values], **more)


def rows(sizes, **more):
    return fcojax.from_rows({"a": np.array([1.0, 3.0, 3.0])}, sizes, **more)
