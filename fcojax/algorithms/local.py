"""A client's handle on its own examples, and the local steps it takes with them.

Clients may differ in their number of steps, while a compiled program has one length for all: scans
have ``max_steps`` steps, of which a client takes ``taken``. A step is ``(carry, batch) -> (carry,
outputs)``; a skipped one keeps the carry and outputs zeros.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import shuffle, tree
from fcojax.algorithms.work import Work
from fcojax.arguments import validated
from fcojax.problems.losses import Loss, losses_of, require_floats
from fcojax.types import Array, Key, Params, PyTree
from fcojax.xla import rules
from fcojax.xla.loops import batch_max, num_equations, small_slice

# If a client will read all of its rows and they take at most this many bytes, copy them out before
# the first step: on a CPU a gather costs as much as the array it gathers from.
_OWN_ROWS_BYTES = 1 << 14
# Steps are grouped into at most this many blocks; indices are drawn per block, and a chunk of
# clients may stop early only between blocks.
_MAX_BLOCKS = 64
# Streams of a client's key in one round: its amount of work, draws inside a step (dropout), and
# draws of a loss evaluated on all examples outside of the steps.
AMOUNT, STEP, WHOLE = 0, 1, 2

Step = Callable[..., tuple[PyTree, PyTree]]


class Batch(NamedTuple):
    """The examples of one local step.

    Attributes:
      examples: a pytree with a leading axis, one entry per example.
      weights: 1 for a real example, 0 for padding.
      source: the key of the client in this round, from which ``key`` is derived.
      step: the index of the step, or ``None`` outside of the local steps.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import Batch
      >>> padded = Batch({"a": jnp.array([1.0, 99.0])}, weights=jnp.array([1.0, 0.0]))
    """

    examples: PyTree
    weights: Array
    source: Key | None = None
    step: Array | None = None

    is_part = False

    @property
    def key(self) -> Key:
        """PRNG key of this client, step and round, independent of which examples were drawn."""
        if self.source is None:
            raise ValueError("source is None, so this batch has no key; pass source=key and step.")
        if self.step is None:
            return jax.random.fold_in(self.source, WHOLE)
        return jax.random.fold_in(jax.random.fold_in(self.source, STEP), self.step)


class Minibatch(Batch):
    """Some of a client's examples; a ``WholeBatchLoss`` refuses them."""

    is_part = True


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["rows", "client", "offset", "num_examples", "key", "products", "whole", "round"]
    + ["drawn"],
    meta_fields=["work", "min_size", "max_size"],
)
@dataclasses.dataclass(frozen=True)
class Local:
    """A client's handle on its examples, the fourth argument of ``client_update``.

    It holds no copy: a step gathers its minibatch from the rows of all clients.

    Attributes:
      rows: the examples of all clients on this device.
      client: the index of this client in the population.
      offset: the client's first row.
      num_examples: the number of the client's rows.
      key: PRNG key of the client's minibatches in this round.
      work: how much work each client does in a round.
      min_size: number of examples of the smallest client.
      max_size: number of examples of the largest client.
      products: the ``products`` of the population, or ``None``.
      whole: the result of ``full``, if it has been computed before.
      round: the index of the round, if ``work`` depends on it.
      drawn: what ``draw`` returns for all steps, if drawn before; ``None`` for another key or work.

    Example:
      >>> def client_update(hparams, message, client, local, key):
      ...     end = local.scan(lambda w, batch: 0.9 * w, message)  # its local steps
    """

    rows: PyTree
    client: Array
    offset: Array
    num_examples: Array
    key: Key
    work: Work
    min_size: int
    max_size: int
    products: Array | None = None
    whole: Batch | None = None
    round: Array | None = None
    drawn: tuple[Array, Array | None] | None = None

    @property
    def num_steps(self) -> Array:
        """The number of steps that this client takes; ``scan`` skips any further ones."""
        work = self.work
        if work.num_epochs is None or work.batch_size is None:
            return self._count
        # Rounded up: the last, shorter batch of all epochs is a step.
        return (self._num_read + work.batch_size - 1) // work.batch_size

    @property
    def _num_read(self) -> Array:
        """The number of examples that this client reads in all its epochs."""
        counts, size = self.work.counts or (self.work.most,), self.num_examples
        if all(count.denominator == 1 for count in counts):
            return self._count * size
        parts = jnp.asarray([count.denominator for count in counts], jnp.int32)
        part = parts[self.client if self.work.counts else 0]
        # n / d epochs, rounded up. Without whole epochs of d the product could exceed int32.
        return self._count * (size // part) + (self._count * (size % part) + part - 1) // part

    @property
    def _count(self) -> Array:
        """The steps or epochs, whichever ``work`` counts; of a fraction the numerator."""
        work = self.work
        if work.by_round is not None:
            assert self.round is not None, "the engine sets it for such work"
            last = jnp.asarray(len(work.by_round) - 1, jnp.int32)
            return jnp.asarray(work.by_round, jnp.int32)[jnp.minimum(self.round, last)]
        if work.counts is not None:
            numbers = [count.numerator for count in work.counts]
            return jnp.asarray(numbers, jnp.int32)[self.client]
        if work.fewest is None:
            return jnp.asarray(work.most.numerator, jnp.int32)
        # A separate stream: the amount of work must not depend on the minibatches drawn.
        key = jax.random.fold_in(self.key, AMOUNT)
        return jax.random.randint(key, (), int(work.fewest), int(work.most) + 1, jnp.int32)

    def full(self) -> Batch:
        """All examples of this client, padded with its first one to the size of the largest client.

        Padding has weight zero, and is no other client's row, whose loss may not be finite: that
        would turn the zeros of the gradient into NaN.
        """
        if self.whole is not None:
            return self.whole
        examples, first, real = self.sliced(self.rows)
        if real is None:
            return Batch(examples, jnp.ones(self.max_size), self.key)
        examples = jax.tree.map(lambda leaf: padded(leaf, first, real), examples)
        return Batch(examples, jnp.where(real, 1.0, 0.0), self.key)

    def sliced(self, rows: PyTree) -> tuple[PyTree, Array, Array | None]:
        """Return ``max_size`` of the rows of all clients, with all of this client among them.

        Also the place of the client's first row among them, and which rows are the client's,
        ``None`` if all are.
        """
        # The slices of the last clients would run past the end: start early and mask other rows.
        start = self._start
        own = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, self.max_size), rows
        )
        first = self.offset - start
        if self.min_size == self.max_size:
            return own, first, None
        row = jnp.arange(self.max_size, dtype=jnp.int32) - first
        return own, first, (row >= 0) & (row < self.num_examples)

    @property
    def all_steps_equal(self) -> bool:
        """Whether all clients take the same number of steps, whatever their sizes are."""
        return self.work.min_steps(self.min_size) == self.work.max_steps(self.max_size)

    def scan(
        self,
        step: Callable[[PyTree, Batch], PyTree],
        carry: PyTree,
        *,
        emit: Callable[[PyTree, Batch], PyTree] | None = None,
        num_steps: Array | int | None = None,
    ) -> Any:
        """Run the local steps: fold ``step(carry, batch) -> carry`` over this round's batches.

        Args:
          step: one local step.
          carry: the value before the first step.
          emit: ``(carry, batch) -> outputs``, evaluated before every step.
          num_steps: stop after this many steps, a number that may be traced and differ between
            clients; ``work`` bounds it. By default the client takes ``self.num_steps``.

        Returns:
          The last carry. With ``emit`` also its outputs along a leading axis, whose length is the
          largest number of steps that ``work`` allows, with zeros after the client's last step.
        """
        max_steps = self.work.max_steps(self.max_size)
        taken = self.num_steps.astype(jnp.int32)
        if num_steps is not None:
            # `num_steps` can only shorten the scan, whose length is static.
            taken = jnp.minimum(taken, jnp.asarray(num_steps).astype(jnp.int32))
        if num_steps is None and self.all_steps_equal:
            taken = None  # known before tracing: no step is masked or branched around

        def step_and_emit(carry, batch):
            emitted = () if emit is None else emit(carry, batch)
            return step(carry, batch), emitted

        if self.work.batch_size is None:
            carry, emitted = _full_batches(step_and_emit, carry, self.full(), max_steps, taken)
        else:
            near = self._near(max_steps)
            if taken is None:
                carry, emitted = _all_minibatches(step_and_emit, carry, near, max_steps)
            else:
                carry, emitted = _some_minibatches(step_and_emit, carry, near, max_steps, taken)
        return carry if emit is None else (carry, emitted)

    def until(
        self,
        step: Callable[[PyTree, Batch], PyTree],
        carry: PyTree,
        done: Callable[[PyTree], Array],
        at_most: Array | int | None = None,
    ) -> tuple[PyTree, Array]:
        """Take local steps until their carry says so, as in a solve to a relative accuracy.

        The steps have the batches that ``scan`` gives them, and ``done`` is evaluated before each.
        The loop ends when the last client of a chunk is done, or after ``at_most`` steps, a number
        that may be traced and that ``work`` bounds. It has no reverse-mode derivative.

        Returns:
          The last carry, and the number of steps.
        """
        most = self.num_steps.astype(jnp.int32)
        if at_most is not None:
            most = jnp.minimum(most, jnp.asarray(at_most).astype(jnp.int32))
        full = self.full() if self.work.batch_size is None else None
        seed = None if full is not None else shuffle.seed_of(self.key)

        def unfinished(state):
            taken, carry = state
            return (taken < most) & ~done(carry)

        def one_step(state):
            taken, carry = state
            if full is not None:
                return taken + 1, step(carry, full._replace(step=taken))
            indices, weights = self.draw(taken[None], seed)
            weights = None if weights is None else weights[0]
            batch = self._gather(taken, self.offset + indices[0], weights)
            return taken + 1, step(carry, batch)

        start = jnp.zeros((), jnp.int32), carry
        taken, carry = jax.lax.while_loop(unfinished, one_step, start)
        return carry, taken

    def _near(self, num_steps: int) -> "Local":
        """Return the same client, with a copy of its own rows if that makes the gathers cheaper."""
        num_rows = jax.tree.leaves(self.rows)[0].shape[0]
        bytes_own = tree.num_bytes(self.rows) * self.max_size // num_rows
        # A copy pays only if all of its rows are read.
        reads_all = self.max_size <= num_steps * (self.work.batch_size or 0)
        small = bytes_own <= _OWN_ROWS_BYTES
        if not (small and reads_all and rules.rules().gathers_by_source):
            return self
        start = self._start  # before the offset where max_size rows would run past the end
        rows = jax.tree.map(lambda leaf: small_slice(leaf, start, self.max_size), self.rows)
        return dataclasses.replace(self, rows=rows, offset=self.offset - start)

    @property
    def _start(self) -> Array:
        """The first of ``max_size`` rows that include all rows of this client."""
        num_rows = jax.tree.leaves(self.rows)[0].shape[0]
        return jnp.minimum(self.offset, num_rows - self.max_size)

    def _gather(self, step: Array, rows: Array, weights: Array | None) -> Batch:
        weights = jnp.ones(rows.shape[0]) if weights is None else weights
        # Drawn within bounds; clamping would cost a comparison for every index.
        examples = jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), self.rows)
        return Minibatch(examples, weights, self.key, step)

    def draw(self, steps: Array, seed: shuffle.Seed | None = None) -> tuple[Array, Array | None]:
        """Draw the examples of some steps, each independently of the others, by its index.

        Returns:
          Indices that count from the client's first row, one row per step, and weights of the same
          shape, or ``None`` if all are one. Steps beyond ``num_steps``, and examples of weight
          zero, have arbitrary indices within bounds.
        """
        work, size, source = self.work, self.num_examples, seed or self.key
        shape = (steps.shape[0], work.batch_size or self.max_size)
        step = steps[:, None]
        place = jnp.arange(shape[1], dtype=jnp.int32)[None, :]
        if work.batch_size is None:
            indices = jnp.broadcast_to(jnp.minimum(place, size - 1), shape)
            real, all_real = place < size, self.min_size == self.max_size
        elif work.num_epochs is not None:
            # Batches are cut from all epochs in a row, so one may span the end of an epoch.
            position = step * shape[1] + place
            epoch = position // size
            indices = shuffle.permuted(source, size, epoch, position - epoch * size)
            real = position < self._num_read  # the last batch may be short
            all_real = self.min_size == self.max_size and (
                work.num_epochs * self.max_size % shape[1] == 0 and work.fewest is None
            )
        elif work.replace:
            return shuffle.uniform_indices(source, size, step, place), None
        else:
            indices = shuffle.permuted(source, size, step, place)
            real, all_real = place < size, self.min_size >= shape[1]
        return indices, None if all_real else jnp.where(jnp.broadcast_to(real, shape), 1.0, 0.0)


def _full_batches(
    step: Step, carry: PyTree, everything: Batch, max_steps: int, taken: Array | None
) -> tuple[PyTree, PyTree]:
    """Scan over steps on the same batch, ``everything``; a ``taken`` of ``None`` means all."""

    def one_step(carry, index):
        batch = everything._replace(step=index)
        # Every client takes all steps, so no step needs a mask or a branch.
        if taken is None:
            return step(carry, batch)
        return _step_if(index < taken, lambda carry: step(carry, batch), carry)

    return _scan(one_step, carry, jnp.arange(max_steps, dtype=jnp.int32))


def _all_minibatches(
    step: Step, carry: PyTree, local: Local, max_steps: int
) -> tuple[PyTree, PyTree]:
    """Scan over minibatches, all of which the client uses."""
    steps = jnp.arange(max_steps, dtype=jnp.int32)
    # Indices of all steps are drawn at once: one shuffle costs less than one for each step.
    indices, weights = local.drawn or local.draw(steps)
    drawn = steps, local.offset + indices, weights
    return _scan(lambda carry, drawn: step(carry, local._gather(*drawn)), carry, drawn)


def _some_minibatches(
    step: Step, carry: PyTree, local: Local, max_steps: int, taken: Array
) -> tuple[PyTree, PyTree]:
    """Scan over minibatches, of which the client uses the first ``taken``.

    Once all clients of a chunk have finished, a branch common to them is skipped. A branch for each
    client would give each a copy of the rows of all clients.
    """
    # Indices are drawn block by block; the seed of all blocks is computed once.
    seed, longest = shuffle.seed_of(local.key), batch_max(taken)

    def take_if_real(carry, real, *drawn):
        moved, emitted = step(carry, local._gather(*drawn))
        nothing = tree.zeros_like(emitted)
        return tree.where(real, (moved, emitted), (carry, nothing))

    def take_if_needed(carry, drawn):
        index, *rest = drawn
        return _step_if(index < longest, take_if_real, carry, *rest)

    def take_block(carry, steps):
        indices, weights = local.draw(steps, seed)
        # XLA would repeat the division in `taken` for every entry of the carry, so compare here.
        drawn = steps, steps < taken, steps, local.offset + indices, weights
        return _scan(take_if_needed, carry, drawn)

    def take_block_if_needed(carry, steps):
        return _branch(steps[0] < longest, take_block, carry, steps)

    # Blocks have equal sizes, so the last may run past max_steps. No client takes those steps, and
    # their outputs are cut off.
    block_size = -(-max_steps // _MAX_BLOCKS)
    steps = jnp.arange(-(-max_steps // block_size) * block_size, dtype=jnp.int32)
    carry, emitted = jax.lax.scan(take_block_if_needed, carry, steps.reshape(-1, block_size))
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:max_steps], emitted)
    return carry, flat


def _scan(step: Step, carry: PyTree, each: PyTree) -> tuple[PyTree, PyTree]:
    """``jax.lax.scan`` over the steps, unrolled as far as the device prefers."""
    limit, unroll = rules.rules().unrolled_equations, 1
    if limit > 0:
        first = jax.tree.map(lambda leaf: leaf[0], each)
        # By size: ten steps of a linear model are unrolled, a network's steps stay a loop.
        unroll = max(1, limit // num_equations(step, carry, first))
    return jax.lax.scan(step, carry, each, unroll=unroll)


def _step_if(condition: Array, step: Step, carry: PyTree, *args: PyTree) -> tuple[PyTree, PyTree]:
    """``step(carry, *args)`` where the condition holds, else the carry unchanged and zeros.

    On devices where waiting for a condition is slow, the step is always computed, then masked.
    """
    if rules.rules().masks:
        moved, emitted = step(carry, *args)
        return tree.where(condition, (moved, emitted), (carry, tree.zeros_like(emitted)))
    return _branch(condition, step, carry, *args)


def _branch(condition: Array, step: Step, carry: PyTree, *args: PyTree) -> tuple[PyTree, PyTree]:
    """``_step_if`` with a branch, for steps that cost more than one."""
    step = jax.jit(step)  # traced once, for its shapes and for the branch
    emitted = jax.eval_shape(step, carry, *args)[1]

    def skip(carry, *args):
        return carry, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), emitted)

    return jax.lax.cond(condition, step, skip, carry, *args)


def padded(rows: Array, first: Array, real: Array) -> Array:
    """Return the rows with each one that is not ``real`` replaced by the row at ``first``."""
    own = jax.lax.dynamic_index_in_dim(rows, first, keepdims=True)
    return jnp.where(real.reshape(-1, *(1,) * (rows.ndim - 1)), rows, own)


@validated
def mean_loss(loss: Loss) -> Callable[[Params, Batch], Array]:
    """Return ``(params, batch) -> value``, the weighted mean of a per-example loss over a batch.

    Padding has no influence, even where its loss is not finite.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import Batch, mean_loss
      >>> batch = Batch(jnp.array([1.0, 3.0, jnp.nan]), weights=jnp.array([1.0, 1.0, 0.0]))
      >>> float(mean_loss(lambda w, rows: (w - rows) ** 2)(2.0, batch))
      1.0
    """

    def value(params, batch):
        further = loss.further(batch) if hasattr(loss, "further") else ()
        losses = losses_of(loss, params, batch.examples, *further)
        # Selected by weight, since 0 * nan is nan. Gradients still multiply by zero: see `full`.
        weights = batch.weights.astype(losses.dtype)
        return jnp.sum(jnp.where(weights > 0, weights * losses, 0)) / jnp.sum(weights)

    return value


@validated
def mean_gradient(loss: Loss) -> Callable[[Params, Batch], Params]:
    """Return ``(params, batch) -> gradient`` of ``mean_loss`` in the parameters.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import Batch, mean_gradient
      >>> batch = Batch(jnp.array([1.0, 3.0, 99.0]), weights=jnp.array([1.0, 1.0, 0.0]))
      >>> float(mean_gradient(lambda w, rows: (w - rows) ** 2 / 2)(jnp.array(5.0), batch))
      3.0
    """
    ridge = getattr(loss, "ridge", 0.0)  # of a LinearLoss
    derivative = jax.grad(mean_loss(loss.function if ridge else loss))

    def gradient(params, batch):
        require_floats(params)
        if rules.rules().few_kernels:
            # Stored once: XLA would compute the model again for each example that reads it, or copy
            # all examples to avoid that.
            params = jax.lax.optimization_barrier(params)
        slope = derivative(params, batch)
        # Not by differentiation: params may be coordinates, see `linear_steps`.
        return tree.add_scaled(slope, ridge, params) if ridge else slope

    return gradient
