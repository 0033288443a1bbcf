"""Losses as users write them, in the library and in a loop by hand.

    python -m benchmarks.users_losses [--only=gru] [--repeats=7] [--quick]

One JSON line for each loss: milliseconds a round of ``fcojax.run``, and of the loop that one writes
in plain JAX for ten clients of equal size: a jitted scan over rounds and steps with the clients
under ``vmap``, on the same minibatches. ``turns`` is the same loop with the clients one after the
other. One device, all ways in turn, seconds of the processor; medians, the median ratios to both
loops, and the largest difference of the models, relative to the largest weight.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import fcojax
from benchmarks.alternating import alternate
from benchmarks.cases import attempt
from benchmarks.replay import draws
from fcojax import networks
from fcojax.networks import recurrent
from fcojax.networks.modules import Module
from fcojax.problems.losses import RandomLoss

_CLIENTS, _EXAMPLES, _ROUNDS = 10, 60, 2
_LR = 0.05


class Case(NamedTuple):
    """A loss with the rows that it reads.

    Attributes:
      loss: ``(params, rows) -> one number per example``; also of a key, if it ``draws``.
      params: the start.
      x: features of all examples.
      optimiser: of the clients.
      draws: whether the loss draws; then the two sides do, each its own numbers.
      batch_size: examples of a minibatch.
    """

    loss: Callable
    params: Any
    x: np.ndarray
    optimiser: optax.GradientTransformation | None = None
    draws: bool = False
    batch_size: int = 20


def _of_module(model: Module, x: np.ndarray, outputs: tuple[int, ...], **more: Any) -> Case:
    """The mean square of a module's outputs, which have this shape for one example."""
    functions = networks.functions_of(model, jax.eval_shape(lambda x: x[:1], x), (1, *outputs))

    def loss(params, rows):
        outputs = functions.apply(params, rows["x"], None).astype(jnp.float32)
        return jnp.mean(outputs**2, axis=tuple(range(1, outputs.ndim)))

    return Case(loss, jax.jit(functions.init)(jax.random.key(0)), x, **more)


def _normal(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((_CLIENTS * _EXAMPLES, *shape), dtype=np.float32)


def _tokens(length: int, below: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, below, (_CLIENTS * _EXAMPLES, length), dtype=np.int32)


class _Attention(nnx.Module):
    def __init__(self, units, rngs):
        self.attention = nnx.MultiHeadAttention(4, units, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(units, rngs=rngs)

    def __call__(self, x):
        return x + self.attention(self.norm(x))


class _Embedding(nnx.Module):
    def __init__(self, below, units, rngs):
        self.embedding = nnx.Embed(below, units, rngs=rngs)
        self.dense = nnx.Linear(units, 10, rngs=rngs)

    def __call__(self, tokens):
        return self.dense(self.embedding(tokens).mean(axis=1))


class _Dense(nnx.Module):
    def __init__(self, units, dtype, rngs):
        self.dense_1 = nnx.Linear(units, units, dtype=dtype, rngs=rngs)
        self.dense_2 = nnx.Linear(units, units, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        return self.dense_2(nnx.relu(self.dense_1(x)))


def _scan_over_time(units: int, time: int, **more: Any) -> Case:
    """A leaky recurrent layer by ``jax.lax.scan``."""
    rng = np.random.default_rng(1)
    params = {
        name: (0.5 / np.sqrt(units) * rng.standard_normal((units, units))).astype(np.float32)
        for name in ("w", "u")
    }

    def loss(params, rows):
        def step(h, x):
            return jnp.tanh(x @ params["w"] + h @ params["u"]), None

        x = jnp.moveaxis(rows["x"], 1, 0)
        return jnp.mean(jax.lax.scan(step, jnp.zeros_like(x[0]), x)[0] ** 2, axis=1)

    return Case(loss, params, _normal(time, units), **more)


def _vmap_inside(units: int) -> Case:
    """A loss of one example, mapped over a batch by the user."""
    rng = np.random.default_rng(1)
    params = {"w": rng.standard_normal((units, units)).astype(np.float32) / units}

    def of_one(params, x):
        return jnp.mean(jax.nn.softmax(params["w"] @ jnp.tanh(params["w"] @ x)) * x)

    return Case(
        lambda params, rows: jax.vmap(of_one, (None, 0))(params, rows["x"]), params, _normal(units)
    )


def _dropout(base: Case) -> Case:
    def loss(params, rows, key):
        keep = jax.random.bernoulli(key, 0.5, rows["x"].shape)
        return base.loss(params, {"x": jnp.where(keep, 2 * rows["x"], 0)})

    return base._replace(loss=loss, draws=True)


def cases(quick: bool) -> dict[str, Callable[[], Case]]:
    """Return functions that build each case."""
    units, time = (4, 3) if quick else (64, 40)
    wide_units, short, few = (8, 2, 20) if quick else (256, 20, 4)
    sequences, wide = _normal(time, units), _normal(4 * units)
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=1e-4))

    def over_time(build: Callable) -> Callable[[], Case]:
        return lambda: _of_module(build, sequences, (time, units))

    def of_few(build: Callable) -> Callable[[], Case]:
        """Wide layers and small minibatches, where a step's outer products are most of the work."""
        x = _normal(short, wide_units)
        return lambda: _of_module(build, x, (short, wide_units), batch_size=few)

    def dense(dtype: Any = None, **more: Any) -> Callable[[], Case]:
        return lambda: _of_module(
            lambda rngs: _Dense(4 * units, dtype, rngs), wide, (4 * units,), **more
        )

    return {
        "nnx.RNN of GRUCell": over_time(
            lambda rngs: nnx.RNN(nnx.GRUCell(units, units, rngs=rngs), rngs=rngs)
        ),
        "nnx.RNN of LSTMCell": over_time(
            lambda rngs: nnx.RNN(nnx.LSTMCell(units, units, rngs=rngs), rngs=rngs)
        ),
        "nn.RNN of GRUCell": over_time(nn.RNN(nn.GRUCell(units))),
        "nn.RNN of LSTMCell": over_time(nn.RNN(nn.LSTMCell(units))),
        "char_gru's layer": over_time(lambda rngs: recurrent.GRU(units, units, None, rngs)),
        "lax.scan over time": lambda: _scan_over_time(units, time),
        "nnx.RNN of GRUCell, wide": of_few(
            lambda rngs: nnx.RNN(nnx.GRUCell(wide_units, wide_units, rngs=rngs), rngs=rngs)
        ),
        "char_gru's layer, wide": of_few(
            lambda rngs: recurrent.GRU(wide_units, wide_units, None, rngs)
        ),
        "lax.scan over time, wide": lambda: _scan_over_time(wide_units, short, batch_size=few),
        "attention": over_time(lambda rngs: _Attention(units, rngs)),
        "embedding": lambda: _of_module(
            lambda rngs: _Embedding(40 * units, units, rngs), _tokens(time, 40 * units), (10,)
        ),
        "optax chain": dense(optimiser=chain),
        "vmap inside": lambda: _vmap_inside(4 * units),
        "bfloat16": dense(jnp.bfloat16),
        "dropout": lambda: _dropout(dense()()),
    }


def by_hand(case: Case, members: Any, indices: Any, key: Any) -> Callable:
    """``(over) -> jitted program``: clients mapped by ``over``, minibatches given."""
    optimiser = case.optimiser or optax.sgd(_LR)
    data = jnp.asarray(case.x).reshape(_CLIENTS, _EXAMPLES, *case.x.shape[1:])

    def mean_loss(params, rows, key):
        return jnp.mean(case.loss(params, rows, *([key] if case.draws else [])))

    def client(params, member, picks, key):
        def step(carry, pick):
            w, state, key = carry
            key, own = jax.random.split(key) if case.draws else (key, key)
            slope = jax.grad(mean_loss)(w, {"x": data[member, pick]}, own)
            change, state = optimiser.update(slope, state, w)
            return (optax.apply_updates(w, change), state, key), None

        return jax.lax.scan(step, (params, optimiser.init(params), key), picks)[0][0]

    def program(over):
        def one_round(params, drawn):
            members, picks, key = drawn
            ends = over(client, params, members, picks, jax.random.split(key, _CLIENTS))
            return jax.tree.map(lambda leaf: leaf.mean(axis=0), ends), None

        keys = jax.random.split(key, _ROUNDS)
        return jax.jit(lambda w: jax.lax.scan(one_round, w, (members, indices, keys))[0])

    return program


def _side_by_side(client, params, *mapped):
    return jax.vmap(client, (None, 0, 0, 0))(params, *mapped)


def _in_turn(client, params, *mapped):
    return jax.lax.map(lambda own: client(params, *own), mapped)


def measure(case: Case, repeats: int) -> dict:
    """Return the row of a case."""
    key, plan = jax.random.key(0), fcojax.Plan(fcojax.local_epochs(1, case.batch_size))
    data = fcojax.from_rows({"x": case.x}, [_EXAMPLES] * _CLIENTS).to_device()
    loss = RandomLoss(case.loss) if case.draws else case.loss
    if case.optimiser is None:
        algorithm = fcojax.algorithms.fed_avg(loss)
        hparams = algorithm.hparams_type(client_lr=_LR)
    else:
        algorithm = fcojax.algorithms.fed_opt(loss, client=case.optimiser)
        hparams = algorithm.hparams_type(server_lr=1.0)
    drawn = [draws(plan, data, key, jnp.int32(index)) for index in range(_ROUNDS)]
    members, indices = (jnp.stack([each[place] for each in drawn]) for place in (0, 2))
    params = jax.tree.map(jnp.asarray, case.params)
    program = by_hand(case, members, indices, key)
    mapped, turns = program(_side_by_side), program(_in_turn)
    ways = {
        "library": lambda: fcojax.run(
            algorithm, hparams, params, data, key, plan, num_rounds=_ROUNDS
        )[0],
        "by_hand": lambda: mapped(params),
        "turns": lambda: turns(params),
    }
    ours, theirs = (jax.tree.leaves(ways[name]()) for name in ("library", "by_hand"))
    largest = max(float(jnp.abs(leaf).max()) for leaf in theirs)
    distance = max(float(jnp.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
    seconds = alternate(ways, repeats, time.process_time)
    row: dict[str, Any] = {
        f"{name}_cpu_ms": round(1e3 * statistics.median(times) / _ROUNDS, 3)
        for name, times in seconds.items()
    }
    for other in ("by_hand", "turns"):
        pairs = zip(seconds["library"], seconds[other], strict=True)
        row[f"ratio_to_{other}"] = round(statistics.median(a / b for a, b in pairs), 2)
    return row | {"difference": distance / largest, "draws": case.draws}


def main() -> None:
    """Print a line for each loss."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.users_losses")
    parser.add_argument("--only", default="", help="losses whose name holds this")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="toy sizes")
    options = parser.parse_args()
    for name, build in cases(options.quick).items():
        if options.only in name:
            row = attempt(name, lambda build=build: measure(build(), options.repeats))
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
