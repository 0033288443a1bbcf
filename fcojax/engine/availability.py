"""Clients that come and go by a law: cohorts from those who are there in a round.

Each sampler takes all who are there, or ``cohort_size`` of them with all subsets equally likely;
if fewer are there than that, all of them.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import shuffle
from fcojax.algorithms.base import Cohort
from fcojax.algorithms.work import checked_count
from fcojax.engine.cohort import (
    CHAINS,
    Sampler,
    checked_probability,
    first_present,
    optional_cohort_size,
    refuse_more_than,
    room_for,
)
from fcojax.types import Array, Key


class Cyclic(NamedTuple):
    """See ``cyclic``."""

    num_groups: int
    cohort_size: int | None

    def __call__(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Cohort:
        group = round_index.astype(jnp.int32) % self.num_groups
        smallest, num_larger = divmod(num_clients, self.num_groups)
        first = group * smallest + jnp.minimum(group, num_larger)
        group_size = smallest + (group < num_larger).astype(jnp.int32)
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        if self.cohort_size is not None:
            key = jax.random.fold_in(key, round_index)
            places = shuffle.permuted(key, group_size, jnp.zeros_like(places), places)
        return first_present(first + places, group_size, num_clients)

    def size(self, num_clients: int) -> int:
        if self.num_groups > num_clients:
            raise ValueError(
                f"num_groups is {self.num_groups} but the problem has {num_clients} clients; "
                f"pass at most {num_clients}."
            )
        smallest = num_clients // self.num_groups
        if self.cohort_size is None:
            return -(-num_clients // self.num_groups)
        if self.cohort_size > smallest:
            raise ValueError(
                f"cohort_size is {self.cohort_size} but the smallest of {self.num_groups} groups "
                f"has {smallest} clients; pass at most {smallest}, or None for the whole group."
            )
        return self.cohort_size

    @property
    def can_be_absent(self) -> bool:
        return self.cohort_size is None


class Markov(NamedTuple):
    """See ``markov``."""

    leave: float
    join: float
    cohort_size: int | None

    @property
    def share(self) -> float:
        """The share of time that a client is there."""
        return self.join / (self.join + self.leave)

    def __call__(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Cohort:
        num_places = self.size(num_clients)
        if self.cohort_size is None:
            everyone = jnp.arange(num_clients, dtype=jnp.int32)
            there = self.there(key, round_index, everyone)
            members = jnp.nonzero(there, size=num_places, fill_value=0)[0].astype(jnp.int32)
            return first_present(members, jnp.sum(there, dtype=jnp.int32), num_clients)
        members, count = self._first_there(key, round_index, num_clients, num_places)
        return first_present(members, count, num_clients)

    def size(self, num_clients: int) -> int:
        if self.cohort_size is None:
            return room_for(num_clients, self.share)
        refuse_more_than(num_clients, self.cohort_size)
        return self.cohort_size

    @property
    def can_be_absent(self) -> bool:
        return True

    def there(self, key: Key, round_index: Array, clients: Array) -> Array:
        r"""Which of the clients are there in a round, each without a look at any earlier round.

        In each round a client's chain *renews* itself with probability
        :math:`\beta = \min(a + b, 2 - a - b)`, for ``leave`` a and ``join`` b: it then draws its
        state from a law that does not depend on where it was. In other rounds it stays where it is
        if :math:`a + b \le 1`, and changes sides if not. These are the chain's own transition
        probabilities, split in two, so the state is a function of the last renewal, of a coin
        tossed there, and of the number of rounds since.

        Rounds are cut into periods of about :math:`1 / \beta`. The renewals of a period are laid
        out backwards from its end with geometric gaps, as those of a Bernoulli process are, each
        gap a hash of client, period and number. A walk through these finds the last renewal in
        O(1) expected steps, whatever the round and however slow the chain.
        """
        key, round_index = jax.random.fold_in(key, CHAINS), round_index.astype(jnp.int32)
        alternates = self.leave + self.join > 1
        renewal = min(self.leave + self.join, 2 - self.leave - self.join)
        # Walks grow with the period's renewals and with the number of periods without one.
        period = min(math.ceil(1 / max(renewal, 1e-6)), 1 << 20)
        log_stay = math.log1p(-renewal) if renewal < 1 else -math.inf
        renewed = (1 - self.leave) / renewal if alternates and renewal > 0 else self.share

        def gap(block, number):
            bits = shuffle.words(key, clients, block, number) >> 8
            uniform = (bits.astype(jnp.float32) + 1) * jnp.float32(2**-24)
            if renewal <= 0:
                return jnp.full(clients.shape, period, jnp.int32)
            return jnp.minimum(jnp.floor(jnp.log(uniform) / log_stay), period).astype(jnp.int32)

        def unfinished(walk):
            return ~jnp.all(walk[3])

        def step(walk):
            block, number, at, found = walk
            ahead = at - 1 - gap(block, number)
            inside = ahead >= block * period
            walked = (
                jnp.where(inside, block, block - 1),
                jnp.where(inside, number + 1, 0),
                jnp.where(inside, ahead, block * period),
            )
            here = jnp.where(inside, ahead <= round_index, block == 0)
            # Before the first round there is nothing: the chain starts there, in its own law.
            block, number, at = (
                jnp.where(found, old, new) for old, new in zip(walk[:3], walked, strict=True)
            )
            return block, number, jnp.maximum(at, 0), found | here

        block = jnp.zeros_like(clients) + round_index // period
        walk = (block, jnp.zeros_like(block), (block + 1) * period, jnp.zeros(block.shape, bool))
        last = jax.lax.while_loop(unfinished, step, walk)[2]
        word = shuffle.words(jax.random.fold_in(key, 0), clients, last)
        state = jnp.where(last == 0, shuffle.heads(word, self.share), shuffle.heads(word, renewed))
        return state ^ ((round_index - last) % 2 == 1) if alternates else state

    def _first_there(self, key, round_index, num_clients, num_places):
        """The first ``num_places`` of a random order who are there, and how many there are."""
        width = min(num_clients, math.ceil(1.25 * num_places / self.share) + 8)
        order_key = jax.random.fold_in(key, round_index)

        def unfinished(found):
            start, count, _ = found
            return (count < num_places) & (start < num_clients)

        def look(found):
            start, count, members = found
            places = start + jnp.arange(width, dtype=jnp.int32)
            asked = shuffle.permuted(order_key, num_clients, jnp.zeros_like(places), places)
            there = self.there(key, round_index, asked) & (places < num_clients)
            target = count + jnp.cumsum(there, dtype=jnp.int32) - 1
            members = members.at[jnp.where(there, target, num_places)].set(asked, mode="drop")
            return start + width, count + jnp.sum(there, dtype=jnp.int32), members

        none = jnp.zeros((), jnp.int32)
        start = (none, none, jnp.zeros(num_places, jnp.int32))
        _, count, members = jax.lax.while_loop(unfinished, look, start)
        return members, count


def cyclic(num_groups: int, cohort_size: int | None = None) -> Sampler:
    """One group of clients after the other: group r modulo ``num_groups`` in round r.

    The groups are runs of neighbours in the population's order, and their sizes differ by at most
    one. Without ``cohort_size`` there is no luck in it.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> sampler, key = fcojax.cyclic(2), jax.random.key(0)
      >>> [sampler(key, jnp.int32(r), 6).members.tolist() for r in range(3)]
      [[0, 1, 2], [3, 4, 5], [0, 1, 2]]

    References:
      Cho, Sharma, Joshi, Xu, Kale and Zhang, "On the convergence of federated averaging with
      cyclic client participation", ICML 2023.
    """
    return Cyclic(checked_count("num_groups", num_groups), optional_cohort_size(cohort_size))


def markov(leave: float, join: float, cohort_size: int | None = None) -> Sampler:
    """Every client comes and goes by a Markov chain of its own, all with the same rates.

    A client that is there is gone in the next round with probability ``leave``; one that is not is
    back with probability ``join``. The chains start in their stationary law, so in every round a
    client is there with probability ``join / (join + leave)``, for ``1 / leave`` rounds on average.

    Taking all who are there asks every client, O(M); taking ``cohort_size`` of them asks about
    ``cohort_size * (join + leave) / join``. The cohort of all has room for eight standard
    deviations more than its mean, as that of ``coin_flips``.

    Example:
      >>> import fcojax
      >>> sampler = fcojax.markov(leave=0.25, join=0.75)
      >>> sampler.share  # of the time that a client is there
      0.75

    References:
      Athreya and Ney, "A new approach to the limit theory of recurrent Markov chains", Trans. Amer.
      Math. Soc. 1978, for the renewals; Rodio, Faticanti, Marfoq, Neglia and Leonardi, "Federated
      learning under heterogeneous and correlated client availability", INFOCOM 2023.
    """
    return Markov(
        checked_probability("leave", leave),
        checked_probability("join", join),
        optional_cohort_size(cohort_size),
    )
