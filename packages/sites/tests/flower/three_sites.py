"""Three small sites, six methods, and their simulation."""

import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import uploads
from fcojax.transforms import euclidean, l1
from fcojax_sites import flower

NAMES = ("Antwerp", "Bern", "Cork")
SIZES = (7, 4, 9)
NUM_ROUNDS = 20


def loss(w, rows):
    """Half the squared error of one row."""
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def rows_of(dtype="float64"):
    """Return the rows of each site by name."""
    generator = np.random.default_rng(3)
    truth = np.array([1.0, -2.0, 0.0, 0.0, 0.5, 0.0])
    found = {}
    for name, size in zip(NAMES, SIZES, strict=True):
        x = generator.normal(size=(size, truth.size)) * generator.uniform(0.5, 1.5, truth.size)
        y = x @ (truth + generator.normal(size=truth.size) / 2)
        found[name] = {"x": x.astype(dtype), "y": y.astype(dtype)}
    return found


ALGORITHMS = {
    "fed_dual_avg": (
        lambda: fcojax.algorithms.fed_dual_avg(loss, euclidean(l1())),
        {"penalty_scale": 0.1},
        uploads.chain(),
    ),
    "composite_fl": (
        lambda: fcojax.algorithms.composite_fl(loss, l1()),
        {"penalty_scale": 0.1},
        uploads.chain(),
    ),
    "scaffold": (
        lambda: fcojax.algorithms.scaffold(loss, l1(), prox="feedback"),
        {"penalty_scale": 0.1},
        uploads.ef14(uploads.top_k(2)),
    ),
    "fed_dyn": (lambda: fcojax.algorithms.fed_dyn(loss), {}, uploads.chain()),
    "fed_avg": (lambda: fcojax.algorithms.fed_avg(loss), {}, uploads.ef21(uploads.top_k(2))),
    "rand_k": (
        lambda: fcojax.algorithms.fed_avg(loss),
        {},
        uploads.compressed(uploads.rand_k(0.5)),
    ),
    "marina": (
        lambda: fcojax.algorithms.fed_avg(loss),
        {},
        uploads.marina(uploads.rand_k(2), 0.3),
    ),
}


def federation_of(name, dtype="float64", **other):
    """Return the federation of a method, three local steps on minibatches of two rows."""
    make, numbers, sent = ALGORITHMS[name]
    algorithm = make()
    hparams = algorithm.hparams_type(client_lr=0.03, **numbers)
    plan = fcojax.Plan(fcojax.local_steps(3, batch_size=2), uploads=sent)
    return flower.Federation(algorithm, plan, hparams, jnp.zeros(6, dtype), **other)


def losing(lost):
    """Return the transform that loses uploads by (round, client)."""
    arrives = np.ones((NUM_ROUNDS, len(NAMES)), bool)
    for place in lost:
        arrives[place] = False

    def send(at, payload, state):
        return uploads.Sent(payload, state, jnp.asarray(arrives)[at.round, at.client])

    return uploads.UploadTransform("losing", send=send, facts=uploads.Facts(leaves_out="lost"))


def simulated(federation, key, lost=(), num_rounds=NUM_ROUNDS, dtype="float64"):
    """Return the model and history of ``fcojax.run`` with uploads lost by (round, client)."""
    rows = rows_of(dtype)
    data = fcojax.from_clients([rows[name] for name in NAMES], federation.weights)
    plan = federation.plan
    plan = plan._replace(uploads=uploads.chain(plan.uploads, losing(lost)))
    return fcojax.run(
        federation.algorithm,
        federation.hparams,
        federation.params,
        data,
        key,
        plan,
        num_rounds=num_rounds,
    )
