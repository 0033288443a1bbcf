"""PRNG streams of a run: one for each purpose, round and client.

Keys are folded by purpose, then by round, then by client, so a client's draws do not depend on the
other members of the cohort, on chunks or on devices.
"""

import zlib

import jax
import jax.numpy as jnp

from fcojax.engine.participation.base import Draw, Sampler
from fcojax.engine.plan import Plan
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, PyTree

# The first number folded into the key, so that no two streams coincide.
COHORT, CLIENT, BATCHES, SERVER, ENCODE, AGGREGATE, DOWN, SHARED = range(8)


def purpose_key(key: Key, purpose: int, index: Array) -> Key:
    """Return the key of one purpose in one round."""
    return jax.random.fold_in(jax.random.fold_in(key, purpose), index)


def folded_by(key: Key, hparams: PyTree) -> Key:
    """Return a key that differs between hyperparameters, their schedules and their types.

    Two releases with the same noise would reveal their difference without noise.
    """
    leaves, structure = jax.tree.flatten(hparams)
    key = jax.random.fold_in(key, zlib.crc32(f"{type(hparams).__name__} {structure}".encode()))
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    wide = [leaf if leaf.dtype.itemsize >= 4 else leaf.astype(jnp.float32) for leaf in arrays]
    words = [jax.lax.bitcast_convert_type(leaf, jnp.uint32).ravel() for leaf in wide]

    def fold(key, word):
        return jax.random.fold_in(key, word), None

    return jax.lax.scan(fold, key, jnp.concatenate(words))[0] if words else key


def draw_cohort(plan: Plan, data: ClientData, key: Key, index: Array) -> Draw:
    """Return the cohort of round ``index``, the same on every device of a mesh.

    The sampler's key is the same in all rounds, so that a sampler can have memory.
    """
    key, index = jax.random.fold_in(key, COHORT), jnp.asarray(index, jnp.int32)
    drawn = plan.cohort.draw(key, index, data.num_clients, sizes_of_all(data))
    _require_places(plan.cohort, drawn, plan.cohort.size(data.num_clients))
    return drawn


def sizes_of_all(data: ClientData) -> Array:
    """Return the number of examples of each client of the population, also inside a mesh."""
    sizes = jnp.diff(data.offsets) if data.held is None else data.held.sizes
    if data.mesh is None:
        return sizes
    # XLA removes this from the compiled program, unless the sampler uses sizes.
    return jax.lax.all_gather(sizes, "clients", tiled=True)[: data.num_clients]


def _require_places(sampler: Sampler, drawn: Draw, num_places: int) -> None:
    """Raise ``ValueError`` unless a draw has as many places as its sampler's ``size``."""
    shapes = {name: jnp.shape(part) for name, part in drawn._asdict().items() if part is not None}
    if set(shapes.values()) != {(num_places,)}:
        raise ValueError(
            f"{sampler} drew parts of shapes {shapes} where its size is {num_places}; return "
            f"arrays of shape ({num_places},)."
        )
    if drawn.members is not None and drawn.members.dtype != jnp.int32:
        raise ValueError(
            f"{sampler} drew members of dtype {drawn.members.dtype}; return client indices as "
            "int32."
        )
