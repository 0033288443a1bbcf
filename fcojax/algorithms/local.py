"""The handle through which a client sees its own examples, and the steps it takes with them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import device, shuffle, tree
from fcojax.algorithms.work import Work
from fcojax.branches import largest_of_all
from fcojax.pieces import piece
from fcojax.problems.fields import by_field
from fcojax.problems.problem import Loss, RandomLoss, WholeBatchLoss, losses_of
from fcojax.types import Array, Key, Params, PyTree

# Where clients differ in their number of steps, the most steps of any client are cut into so many
# blocks, whose examples are drawn together. Clients side by side are through at the end of a block.
_MAX_BLOCKS = 64
# Of a client that reads as many rows as it has: if they are no more than this it brings them all
# before its first step, so that steps gather from little where a gather costs its source.
_OWN_ROWS_BYTES = 1 << 14
# Streams of a client's key in one round: how much it works, what its steps draw by themselves, and
# what a look at all examples outside of the steps does.
AMOUNT, STEP, WHOLE = 0, 1, 2


class Batch(NamedTuple):
    """The examples of one local step.

    Attributes:
      examples: a pytree with a leading axis, one entry an example.
      weights: 1 for a real example, 0 for padding.
      source: what ``key`` is made of, with ``step``.
      step: which step, or ``None`` outside of the local steps.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import Batch, mean_loss
      >>> batch = Batch({"a": jnp.array([1.0, 3.0, 99.0])}, weights=jnp.array([1.0, 1.0, 0.0]))
      >>> float(mean_loss(lambda w, rows: rows["a"] * w)(2.0, batch))
      4.0
    """

    examples: PyTree
    weights: Array
    source: Key | None = None
    step: Array | None = None

    @property
    def key(self) -> Key:
        """Randomness of this client in this step of this round, for dropout and the like.

        It has nothing to do with which examples were drawn, and costs nothing if it is not used.
        """
        if self.source is None:
            raise ValueError("this batch was made by hand, without a key; pass source and step.")
        if self.step is None:
            return jax.random.fold_in(self.source, WHOLE)
        return jax.random.fold_in(jax.random.fold_in(self.source, STEP), self.step)


class Minibatch(Batch):
    """Some of a client's examples, which a ``WholeBatchLoss`` will not take."""


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["rows", "client", "offset", "num_examples", "key"],
    meta_fields=["work", "min_size", "max_size"],
)
@dataclasses.dataclass(frozen=True)
class Local:
    """One client's view of the population, handed to ``client_update``.

    It is a handle, no copy: the step that uses a minibatch gathers it from the rows of all clients.

    Attributes:
      rows: the examples of all clients on this device.
      client: which client of the population this is.
      offset: the client's first row.
      num_examples: how many rows are the client's own.
      key: the luck of the client's minibatches in this round.
      work: how much clients work.
      min_size: examples of the smallest client.
      max_size: examples of the largest client.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> from fcojax.engine.luck import local_handle
      >>> data = fcojax.from_rows({"a": jnp.array([1.0, 2.0, 7.0])}, [2, 1])
      >>> first = jnp.int32(0)
      >>> local = local_handle(data, fcojax.local_steps(5), jax.random.key(0), first, first, first)
      >>> local.full().examples["a"].tolist(), int(local.num_steps)
      ([1.0, 2.0], 5)
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
        key = jax.random.fold_in(self.key, AMOUNT)
        return jax.random.randint(key, (), work.fewest, work.most + 1, jnp.int32)

    def full(self) -> Batch:
        """All examples of this client, padded to the largest client's number with its first one.

        Padding has weight zero, and is an example of the client's own because a loss that is not
        finite at some other row would turn the gradient's zeros into NaN.
        """
        # The last clients' slices would run past the end: start early and mask what is not theirs.
        start = self._start
        examples = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, self.max_size), self.rows
        )
        if self.min_size == self.max_size:
            return Batch(examples, jnp.ones(self.max_size), self.key)
        first = self.offset - start
        row = jnp.arange(self.max_size, dtype=jnp.int32) - first
        real = (row >= 0) & (row < self.num_examples)

        def pad(leaf):
            own = jax.lax.dynamic_index_in_dim(leaf, first, keepdims=True)
            return jnp.where(real.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, own)

        return Batch(jax.tree.map(pad, examples), _as_weights(real), self.key)

    @property
    def all_steps_equal(self) -> bool:
        """Whether all clients take the same number of steps, whatever their sizes."""
        return self.work.min_steps(self.min_size) == self.work.max_steps(self.max_size)

    def scan(
        self,
        step: Callable[[PyTree, Batch], PyTree],
        carry: PyTree,
        *,
        emit: Callable[[PyTree, Batch], PyTree] | None = None,
        num_steps: Array | int | None = None,
    ) -> Any:
        """The local steps: folds ``step(carry, batch) -> carry`` over this round's batches.

        Args:
          step: one local step.
          carry: where the client starts.
          emit: if given, ``(carry, batch) -> outputs``, asked before every step.
          num_steps: if given, the client stops after so many steps, a number that may be traced
            and differ between clients; ``work`` says how many there are at most.

        Returns:
          The last carry; with ``emit`` also its outputs, with a leading axis of as many steps as
          ``work`` allows and zeros where a client had stopped.
        """
        most = self.work.max_steps(self.max_size)
        taken = self.num_steps.astype(jnp.int32)
        if num_steps is not None:
            taken = jnp.minimum(taken, jnp.asarray(num_steps).astype(jnp.int32))
        if num_steps is None and self.all_steps_equal:
            taken = None

        def step_and_emit(carry, batch):
            emitted = () if emit is None else emit(carry, batch)
            return step(carry, batch), emitted

        if self.work.batch_size is None:
            carry, emitted = self._full_batches(step_and_emit, carry, most, taken)
        elif taken is None:
            carry, emitted = self._near(most)._all_minibatches(step_and_emit, carry, most)
        else:
            carry, emitted = self._near(most)._some_minibatches(step_and_emit, carry, most, taken)
        return carry if emit is None else (carry, emitted)

    def _full_batches(self, step, carry, most, taken):
        everything = self.full()

        def one_step(carry, index):
            batch = everything._replace(step=index)
            if taken is None:
                return step(carry, batch)
            return _step_if(index < taken, lambda carry: step(carry, batch), carry)

        return jax.lax.scan(one_step, carry, jnp.arange(most, dtype=jnp.int32))

    def _near(self, num_steps: int) -> "Local":
        """The same client, with its rows apart from those of the others if that is less to read."""
        num_rows = jax.tree.leaves(self.rows)[0].shape[0]
        bytes_own = tree.num_bytes(self.rows) * self.max_size // num_rows
        few = bytes_own <= _OWN_ROWS_BYTES and self.max_size <= num_steps * (
            self.work.batch_size or 0
        )
        if not (few and device.rules().gathers_by_source):
            return self
        start = self._start
        rows = jax.tree.map(lambda leaf: piece(leaf, start, self.max_size), self.rows)
        return dataclasses.replace(self, rows=rows, offset=self.offset - start)

    @property
    def _start(self) -> Array:
        """Where as many rows begin as the largest client has, among them all of this client's."""
        num_rows = jax.tree.leaves(self.rows)[0].shape[0]
        return jnp.minimum(self.offset, num_rows - self.max_size)

    def _batch(self, index, rows, weights):
        weights = jnp.ones(rows.shape[0]) if weights is None else weights
        examples = jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), self.rows)
        return Minibatch(examples, weights, self.key, index)

    def _all_minibatches(self, step, carry, most):
        steps = jnp.arange(most, dtype=jnp.int32)
        indices, weights = self.draw(steps)
        drawn = steps, self.offset + indices, weights
        return jax.lax.scan(lambda carry, drawn: step(carry, self._batch(*drawn)), carry, drawn)

    def _some_minibatches(self, step, carry, most, taken):
        """The first ``taken`` of at most ``most`` steps.

        Of clients side by side some are through before others. Once all are, a branch that they
        share is not taken: nothing is drawn or computed beyond the one with most steps. A branch
        of each client's own would give each a copy of everybody's rows.
        """
        longest = largest_of_all(taken)
        seed = shuffle.seed_of(self.key)

        def take_if_real(carry, real, *drawn):
            moved, emitted = step(carry, self._batch(*drawn))
            nothing = tree.zeros_like(emitted)
            return tree.where(real, (moved, emitted), (carry, nothing))

        def take_if_needed(carry, drawn):
            index, *rest = drawn
            return _step_if(
                index < longest, lambda carry, *rest: take_if_real(carry, *rest), carry, *rest
            )

        def take_block(carry, steps):
            indices, weights = self.draw(steps, seed)
            # Compared here: XLA would divide once more for every entry of the carry.
            drawn = steps, steps < taken, steps, self.offset + indices, weights
            return jax.lax.scan(take_if_needed, carry, drawn)

        def take_block_if_needed(carry, steps):
            return _branch(steps[0] < longest, take_block, carry, steps)

        a_block = -(-most // _MAX_BLOCKS)
        steps = jnp.arange(-(-most // a_block) * a_block, dtype=jnp.int32).reshape(-1, a_block)
        carry, emitted = jax.lax.scan(take_block_if_needed, carry, steps)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:most], emitted)
        return carry, flat

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


def _step_if(
    condition: Array, step: Callable, carry: PyTree, *given: PyTree
) -> tuple[PyTree, PyTree]:
    """``step(carry, *given)`` where the condition holds, else the carry as it is and zeros.

    Where the device would rather compute a step in vain than wait for a condition, it does.
    """
    if device.rules().masks:
        moved, emitted = step(carry, *given)
        return tree.where(condition, (moved, emitted), (carry, tree.zeros_like(emitted)))
    return _branch(condition, step, carry, *given)


def _branch(
    condition: Array, step: Callable, carry: PyTree, *given: PyTree
) -> tuple[PyTree, PyTree]:
    """The same as a branch on every device, for what is worth not doing."""
    step = jax.jit(step)  # traced once, for its shapes and for the branch
    emitted = jax.eval_shape(step, carry, *given)[1]

    def skip(carry, *given):
        return carry, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), emitted)

    return jax.lax.cond(condition, step, skip, carry, *given)


def _as_weights(real: Array) -> Array:
    return jnp.where(real, 1.0, 0.0)


def mean_loss(loss: Loss) -> Callable[[Params, Batch], Array]:
    """The weighted mean over a batch of a per-example loss; padding can neither count nor leak.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import Batch, mean_loss
      >>> batch = Batch(jnp.array([1.0, 3.0, jnp.nan]), weights=jnp.array([1.0, 1.0, 0.0]))
      >>> float(mean_loss(lambda w, rows: (w - rows) ** 2)(2.0, batch))
      1.0
    """

    def value(params, batch):
        key = batch.key if isinstance(loss, RandomLoss) else None
        whole = isinstance(loss, WholeBatchLoss)
        if whole and isinstance(batch, Minibatch):
            raise ValueError(
                f"the loss needs all of a client's examples at once but was given a batch of "
                f"{batch.weights.shape[0]}; pass batch_size=None."
            )
        losses = losses_of(loss, params, batch.examples, key, batch.weights if whole else None)
        weights = batch.weights.astype(losses.dtype)
        return jnp.sum(jnp.where(weights > 0, weights * losses, 0)) / jnp.sum(weights)

    return value


def mean_gradient(loss: Loss) -> Callable[[Params, Batch], Params]:
    """The gradient in the parameters of ``mean_loss``.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import Batch, mean_gradient
      >>> batch = Batch(jnp.array([1.0, 3.0, 99.0]), weights=jnp.array([1.0, 1.0, 0.0]))
      >>> float(mean_gradient(lambda w, rows: (w - rows) ** 2 / 2)(jnp.array(5.0), batch))
      3.0
    """
    gradient = jax.grad(mean_loss(loss))

    def slope(params, batch):
        for name, leaf in by_field([params]):
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
                where = "params" if name == "examples" else f"params.{name}"
                raise ValueError(
                    f"{where} has dtype {jnp.result_type(leaf)}; pass floats, which a gradient "
                    "step can move."
                )
        return gradient(params, batch)

    return slope
