"""How much a client works in a round, and the handle through which it sees its own examples."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from fcojax import shuffle, tree
from fcojax.problems.problem import Loss
from fcojax.types import Array, Key, Params, PyTree

# Where clients differ in their number of steps, the most steps of any client are cut into so many
# blocks, whose examples are drawn together. Clients side by side are through at the end of a block.
_MAX_BLOCKS = 64


class Batch(NamedTuple):
    """Examples with a leading axis, and their weights: 1 for a real one, 0 for padding."""

    examples: PyTree
    weights: Array


class Work(NamedTuple):
    """What one client does in one round; made by ``local_steps`` or ``local_epochs``.

    Attributes:
      num_steps: steps, the most that any client takes, or ``None`` if epochs are counted.
      num_epochs: epochs, likewise, or ``None`` if steps are counted.
      batch_size: examples a step, or ``None`` for all.
      replace: whether a batch may hold an example twice.
      fewest: the least steps or epochs of any client, or ``None`` if all do the same.
      counts: the steps or epochs of each client, or ``None`` if they are not fixed one by one.
    """

    num_steps: int | None
    num_epochs: int | None
    batch_size: int | None
    replace: bool
    fewest: int | None = None
    counts: tuple[int, ...] | None = None

    @property
    def most(self) -> int:
        """Steps or epochs, whichever are counted, of the client that does most."""
        most = self.num_epochs if self.num_steps is None else self.num_steps
        assert most is not None
        return most

    def max_steps(self, max_size: int) -> int:
        """Steps of a client with ``max_size`` examples, the most that any client takes."""
        return self._steps(self.most, max_size)

    def min_steps(self, min_size: int) -> int:
        """Steps of a client with ``min_size`` examples, the fewest that any client takes."""
        return self._steps(self.fewest or self.most, min_size)

    def _steps(self, count: int, size: int) -> int:
        if self.num_epochs is None:
            return count
        return -(-count * size // (self.batch_size or size))


def local_steps(
    num_steps: int | Sequence[int],
    batch_size: int | None = None,
    *,
    replace: bool = False,
    fewest: int | None = None,
) -> Work:
    """Every client takes exactly ``num_steps`` steps, as in the paper.

    Each step draws ``batch_size`` examples of the client, independently of its other steps.

    Args:
      num_steps: K, the same for every client; or one number per client.
      batch_size: examples a step; ``None`` for all of them. A client with fewer uses all it has.
      replace: draw with replacement. By default the examples of one batch are distinct.
      fewest: if given, every client draws its own number of steps for each round, uniformly from
        ``fewest`` to ``num_steps``.
    """
    _refuse_count("batch_size", batch_size, optional=True)
    most, fewest, counts = _amount("num_steps", num_steps, fewest)
    return Work(most, None, batch_size, replace, fewest, counts)


def local_epochs(
    num_epochs: int | Sequence[int],
    batch_size: int | None = None,
    *,
    fewest: int | None = None,
) -> Work:
    """Every client walks ``num_epochs`` times through its examples, as in the reference code.

    The examples are reshuffled for each epoch, then cut into batches that may straddle two
    epochs; the last, short batch is kept. Client m takes ``ceil(num_epochs * n_m / batch_size)``
    steps, so clients of different sizes take different numbers of steps.

    Args:
      num_epochs: E, the same for every client; or one number per client.
      batch_size: examples a step; ``None`` for all of them.
      fewest: if given, every client draws its own number of epochs for each round, uniformly from
        ``fewest`` to ``num_epochs``.
    """
    _refuse_count("batch_size", batch_size, optional=True)
    most, fewest, counts = _amount("num_epochs", num_epochs, fewest)
    return Work(None, most, batch_size, False, fewest, counts)


def _refuse_count(name: str, value: int | None, optional: bool = False) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        alternative = " or None" if optional else ""
        raise ValueError(f"{name} is {value!r}; pass a whole number of at least 1{alternative}.")


def _amount(
    name: str, value: int | Sequence[int], fewest: int | None
) -> tuple[int, int | None, tuple[int, ...] | None]:
    """The most, the fewest and the counts of ``Work``."""
    if not isinstance(value, Sequence):
        _refuse_count(name, value)
        _refuse_count("fewest", fewest, optional=True)
        if fewest is not None and fewest > value:
            raise ValueError(f"fewest is {fewest} but {name} is {value}; pass at most {value}.")
        return value, fewest, None
    if fewest is not None or not value:
        raise ValueError(f"{name} is {value!r}, fewest {fewest}; pass one count per client alone.")
    for client, count in enumerate(value):
        _refuse_count(f"{name} of client {client}", count)
    return max(value), min(value), tuple(value)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["rows", "client", "offset", "num_examples", "key"],
    meta_fields=["work", "min_size", "max_size"],
)
@dataclasses.dataclass(frozen=True)
class Local:
    """One client's view of the population, handed to ``client_update``.

    It is a handle and not a copy: a minibatch is gathered from the rows of all clients, inside
    the step that uses it.

    Attributes:
      rows: the examples of all clients on this device.
      client: which client of the population this is.
      offset: the client's first row.
      num_examples: how many rows are the client's own.
      key: the luck of the client's minibatches in this round.
      work: how much clients work.
      min_size, max_size: examples of the smallest and the largest client.
    """

    rows: PyTree
    client: Array
    offset: Array
    num_examples: Array
    key: Key
    work: Work
    min_size: int
    max_size: int

    @property
    def num_steps(self) -> Array:
        """Steps this client takes; ``scan`` leaves the carry alone in those beyond."""
        work = self.work
        if work.num_epochs is None or work.batch_size is None:
            return self._count
        return (self._count * self.num_examples + work.batch_size - 1) // work.batch_size

    @property
    def _count(self) -> Array:
        """Steps or epochs, whichever the work is counted in, of this client in this round."""
        work = self.work
        if work.counts is not None:
            return jnp.asarray(work.counts, jnp.int32)[self.client]
        if work.fewest is None:
            return jnp.asarray(work.most, jnp.int32)
        # A stream of its own: how much a client works must not depend on what it draws.
        key = jax.random.fold_in(self.key, 0)
        return jax.random.randint(key, (), work.fewest, work.most + 1, jnp.int32)

    def full(self) -> Batch:
        """All examples of this client, padded to the largest client's number."""
        num_rows = jax.tree.leaves(self.rows)[0].shape[0]
        # The last clients' slices would run past the end: start early and mask what is not theirs.
        start = jnp.minimum(self.offset, num_rows - self.max_size)
        examples = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, self.max_size), self.rows
        )
        if self.min_size == self.max_size:
            return Batch(examples, jnp.ones(self.max_size))
        row = jnp.arange(self.max_size, dtype=jnp.int32) - (self.offset - start)
        return Batch(examples, _as_weights((row >= 0) & (row < self.num_examples)))

    def scan(self, step: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        """The local steps: folds ``step(carry, batch) -> carry`` over this round's batches."""
        num_steps = self.work.max_steps(self.max_size)
        all_take_as_many = self.work.min_steps(self.min_size) == num_steps
        if self.work.batch_size is None:
            everything = self.full()
            taken = None if all_take_as_many else self.num_steps
            return _repeat(lambda carry: step(carry, everything), carry, num_steps, taken)

        def take(carry, rows, weights):
            weights = jnp.ones(rows.shape[0]) if weights is None else weights
            examples = jax.tree.map(
                lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), self.rows
            )
            return step(carry, Batch(examples, weights))

        def take_all(carry, steps):
            indices, weights = self.draw(steps)
            drawn = self.offset + indices, weights
            return jax.lax.scan(lambda carry, drawn: (take(carry, *drawn), None), carry, drawn)[0]

        if all_take_as_many:
            return take_all(carry, jnp.arange(num_steps, dtype=jnp.int32))

        # Of clients side by side some are through before others. Once all are, a branch that they
        # share is not taken: nothing is drawn or computed beyond the one with most steps. A branch
        # of each client's own would give each a copy of everybody's rows.
        most = largest_of_all(self.num_steps)
        seed = shuffle.seed_of(self.key)

        def take_if_real(carry, real, *drawn):
            return tree.where(real, take(carry, *drawn), carry)

        def take_if_needed(carry, drawn):
            return _if(drawn[0] < most, take_if_real, carry, *drawn[1:]), None

        def take_block(carry, steps):
            indices, weights = self.draw(steps, seed)
            # Compared here: XLA would divide once more for every entry of the carry.
            real = steps < self.num_steps
            drawn = steps, real, self.offset + indices, weights
            return jax.lax.scan(take_if_needed, carry, drawn)[0]

        def take_block_if_needed(carry, steps):
            return _if(steps[0] < most, take_block, carry, steps), None

        a_block = -(-num_steps // _MAX_BLOCKS)
        steps = jnp.arange(-(-num_steps // a_block) * a_block, dtype=jnp.int32)
        return jax.lax.scan(take_block_if_needed, carry, steps.reshape(-1, a_block))[0]

    def draw(self, steps: Array, seed: shuffle.Seed | None = None) -> tuple[Array, Array | None]:
        """Which of its examples each step uses, and their weights, ``None`` if all are real.

        The indices have one row a step and count from the client's first row. Steps beyond
        ``num_steps``, and examples of weight zero, hold indices that are in bounds and no more.

        Args:
          steps: which steps; one's draw does not depend on the others.
          seed: that of the client's key, for who has it already.
        """
        work, size, luck = self.work, self.num_examples, seed or self.key
        shape = (steps.shape[0], work.batch_size or self.max_size)
        step = steps[:, None]
        place = jnp.arange(shape[1], dtype=jnp.int32)[None, :]
        if work.batch_size is None:
            indices = jnp.broadcast_to(jnp.minimum(place, size - 1), shape)
            real, all_real = place < size, self.min_size == self.max_size
        elif work.num_epochs is not None:
            position = step * shape[1] + place
            epoch = position // size
            indices = shuffle.permuted(luck, size, epoch, position - epoch * size)
            real = position < self._count * size
            all_real = self.min_size == self.max_size and (
                work.num_epochs * self.max_size % shape[1] == 0 and work.fewest is None
            )
        elif work.replace:
            return shuffle.uniform_indices(luck, size, step, place), None
        else:
            indices = shuffle.permuted(luck, size, step, place)
            real, all_real = place < size, self.min_size >= shape[1]
        return indices, None if all_real else _as_weights(jnp.broadcast_to(real, shape))


@custom_vmap
def largest_of_all(number: Array) -> Array:
    """The largest of the numbers that ``vmap`` sees, so that a branch on it stays one branch.

    A branch on a mapped number runs all branches and selects among their results.
    """
    return number


@largest_of_all.def_vmap
def _reduce(axis_size, in_batched, number):
    del axis_size, in_batched
    return largest_of_all(jnp.max(number)), False


def _if(condition: Array, step: Callable, carry: PyTree, *given: PyTree) -> PyTree:
    """``step(carry, *given)`` where the condition holds, else the carry as it is."""
    return jax.lax.cond(condition, step, lambda carry, *given: carry, carry, *given)


def _as_weights(real: Array) -> Array:
    return jnp.where(real, 1.0, 0.0)


def _repeat(
    step: Callable[[PyTree], PyTree], carry: PyTree, num_times: int, taken: Array | None = None
) -> PyTree:
    """``num_times`` steps, of which only the first ``taken`` are real, if that is given."""
    if taken is None:
        return jax.lax.scan(lambda carry, _: (step(carry), None), carry, length=num_times)[0]

    def one_step(carry, index):
        return _if(index < taken, step, carry), None

    return jax.lax.scan(one_step, carry, jnp.arange(num_times, dtype=jnp.int32))[0]


def mean_loss(loss: Loss) -> Callable[[Params, Batch], Array]:
    """The weighted mean over a batch of a per-example loss; padding can neither count nor leak."""

    def value(params, batch):
        losses = loss(params, batch.examples)
        weights = batch.weights.astype(losses.dtype)
        return jnp.sum(jnp.where(weights > 0, weights * losses, 0)) / jnp.sum(weights)

    return value


def mean_gradient(loss: Loss) -> Callable[[Params, Batch], Params]:
    """The gradient in the parameters of ``mean_loss``."""
    return jax.grad(mean_loss(loss))
