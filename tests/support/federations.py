"""Small federations and the six algorithms on them, shared by the tests."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from benchmarks.replay import draws
from fcojax import algorithms
from fcojax.check.population import quadratic as quadratic
from fcojax.check.population import quadratic_clients as quadratic_clients
from fcojax.engine.members import ENCODE, purpose_key
from fcojax.engine.plan import Plan
from fcojax.engine.state import State
from fcojax.transforms import euclidean, l1, named, on_subtree
from fcojax.uploads import transform

DIM = 4
RAGGED = (5, 2, 7, 3, 6)
EQUAL = (6, 6, 6, 6, 6)
NAMES = (
    "fed_avg",
    "fed_avg_subgradient",
    "fed_mid",
    "fed_mid_osp",
    "fed_dual_avg",
    "fed_dual_avg_osp",
)


@functools.cache
def clients(sizes=RAGGED, seed=0):
    """Heterogeneous least squares: every client has its own truth and its own covariance."""
    rng = np.random.default_rng(seed)
    result = []
    for n in sizes:
        x = rng.standard_normal((n, DIM)) * rng.uniform(0.5, 1.5, DIM)
        y = x @ rng.standard_normal(DIM) + rng.standard_normal() + 0.1 * rng.standard_normal(n)
        result.append({"x": x, "y": y})
    return result


def loss(params, rows):
    return (rows["x"] @ params["kernel"] + params["bias"] - rows["y"]) ** 2


def client_means(clients):
    """(A_m, c_m) of every client's mean quadratic, stacked."""
    return tuple(np.stack([client[name].mean(axis=0) for client in clients]) for name in "Ac")


@functools.cache
def algorithm(name, penalty=None, *, loss=loss, mirror=None, **options):
    """Return the named algorithm; it is cached, because a new one would be compiled again."""
    penalty = penalty or kernel_l1()
    factory = getattr(algorithms, name)
    if name == "fed_avg":
        return factory(loss)
    if name == "fed_avg_subgradient":
        return factory(loss, penalty, **options)
    return factory(loss, mirror or euclidean(penalty), **options)


@functools.cache
def revealing(chosen):
    """Return the same algorithm, whose model is the whole server state."""
    return chosen._replace(model=lambda hparams, server: server)


def servers(chosen, rates, params, data, key, **options):
    """Return the server's state at every evaluation, with evaluations as the leading axis."""
    options = {"observe": whole_server} | planned(options)
    _, history = fcojax.run(revealing(chosen), rates, params, data, key, **options)
    return jax.tree.map(np.asarray, history["server"])


def whole_server(hparams, server, context):
    """An ``observe`` for ``revealing``."""
    return {"server": server}


@functools.cache
def kernel_l1():
    return on_subtree(l1(), named("kernel"))


def hparams(name, client_lr=0.05, server_lr=1.0, penalty_scale=0.1):
    kind = getattr(algorithms, name).Hparams
    values = {"client_lr": client_lr, "server_lr": server_lr, "penalty_scale": penalty_scale}
    return kind(**{field: values[field] for field in kind._fields})


def start(seed=7):
    rng = np.random.default_rng(seed)
    return {"kernel": jnp.asarray(rng.standard_normal(DIM)), "bias": jnp.asarray(0.3)}


def whole_model(hparams, params, context):
    """An ``observe`` that returns the model, (kernel, bias) in one vector."""
    return {"model": as_vector(params)}


def as_vector(params):
    return jnp.append(params["kernel"], params["bias"])


def planned(options):
    """Return the options, with those of a plan combined into one."""
    names = {"work", "cohort", "uploads", "client_chunk_size"} & set(options)
    rest = {name: value for name, value in options.items() if name not in names}
    return rest | {"plan": Plan(**{name: options[name] for name in names})} if names else rest


def models(chosen, rates, data, key, **options):
    """Return the model after every round, one row per round."""
    options = {"num_rounds": 20, "observe": whole_model} | planned(options)
    return np.asarray(fcojax.run(chosen, rates, start(), data, key, **options)[1]["model"])


def block(algorithm, plan, num_rounds, hparams, data, state):
    """Return the state after ``num_rounds``, and the metrics of all rounds."""
    state, history = fcojax.advance(
        algorithm, hparams, state, data, plan, num_rounds=num_rounds, eval_every=num_rounds
    )
    return state, {name: values[0] for name, values in history.items() if name != "round"}


def bytes_each(algorithm, hparams, params, data, work):
    """Return the bytes that a client receives and sends in the first round."""
    state = fcojax.start(algorithm, hparams, params, data, jax.random.key(0), work)
    _, found = block(algorithm, work, 1, hparams, data, state)
    return tuple(int(found[name]) // data.num_clients for name in ("bytes_down", "bytes_up"))


def after_one_round(chosen, work, rates, data, server):
    """Return the server after round 0 of all clients from ``server``, without client states."""
    state = State(server, (), (), jnp.zeros((), jnp.int32), jax.random.key(0))
    return block(chosen, work, 1, rates, data, state)[0].server


def arrives(losses, key, index, client):
    """Return whether these losses let the upload of a client arrive in a round."""
    own = jax.random.fold_in(purpose_key(key, ENCODE, index), client)
    states, _ = losses.first_states([])
    _, kept = transform.send(losses, transform.At((), index, client, own), [], states)
    return jnp.all(jnp.asarray([True, *kept.values()]))


def replay(data, key, num_rounds, work, cohort, losses=transform.NOTHING):
    """Return the cohorts and minibatches of a run, in the form of the oracles' arguments.

    A lost upload has weight 0.
    """
    plan = Plan(work, cohort)

    def one_round(index):
        members, weights, *batches = draws(plan, data, key, index)
        kept = jax.vmap(functools.partial(arrives, losses, key, index))(members)
        return members, jnp.where(kept, weights, 0), *batches

    drawn = jax.jit(jax.vmap(one_round))(jnp.arange(num_rounds, dtype=jnp.int32))
    members, weights, indices, batch_weights = map(np.asarray, drawn)
    return [
        [
            (m, w, list(zip(i, b, strict=True)))
            for m, w, i, b in zip(members[r], weights[r], indices[r], batch_weights[r], strict=True)
        ]
        for r in range(num_rounds)
    ]
