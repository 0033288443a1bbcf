"""Samplers of populations whose clients are available only in some rounds.

Each sampler takes all available clients, or ``cohort_size`` of them uniformly at random; if fewer
than that are available, all of them.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

from fcojax import shuffle
from fcojax.arguments import at_most, validated
from fcojax.engine.participation.base import Draw, EqualSampler, Sampler
from fcojax.engine.participation.samplers import (
    CHAINS,
    first_present,
    places_for,
    require_at_most,
)
from fcojax.types import Array, Count, Key, Share


@dataclasses.dataclass(frozen=True)
class Cyclic(Sampler):
    """See ``cyclic``."""

    num_groups: int
    cohort_size: int | None

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        group = round_index.astype(jnp.int32) % self.num_groups
        # The first `num_larger` groups have one client more.
        smallest, num_larger = divmod(num_clients, self.num_groups)
        first = group * smallest + jnp.minimum(group, num_larger)
        group_size = smallest + (group < num_larger).astype(jnp.int32)
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        if self.cohort_size is not None:
            key = jax.random.fold_in(key, round_index)
            # Group sizes are traced, as the group depends on the round; `permuted` allows that.
            places = shuffle.permuted(key, group_size, jnp.zeros_like(places), places)
        return first_present(first + places, group_size)

    def size(self, num_clients: int) -> int:
        clients = f" but the problem has {num_clients} clients"
        # More groups than clients would leave rounds without anybody.
        at_most("num_groups", self.num_groups, num_clients, clients)
        smallest = num_clients // self.num_groups
        if self.cohort_size is None:
            return -(-num_clients // self.num_groups)
        clients = f" but the smallest of {self.num_groups} groups has {smallest} clients"
        whole = ", or None for the whole group"
        return at_most("cohort_size", self.cohort_size, smallest, clients, whole)

    def mean_size(self, num_clients: int) -> float:
        # Where groups differ by one client, the places of the smaller ones are not all filled.
        return self.cohort_size or num_clients / self.num_groups

    def inclusion(
        self, clients: Array, num_clients: int, sizes: Array | None = None
    ) -> Array | float:
        if self.cohort_size is None:
            return 1 / self.num_groups
        smallest, num_larger = divmod(num_clients, self.num_groups)
        group_size = jnp.where(clients < num_larger * (smallest + 1), smallest + 1, smallest)
        return self.cohort_size / (self.num_groups * group_size)

    @property
    def can_be_absent(self) -> bool:
        return self.cohort_size is None


@dataclasses.dataclass(frozen=True)
class Markov(EqualSampler):
    """See ``markov``."""

    leave: float
    join: float
    cohort_size: int | None

    @property
    def share(self) -> float:
        """The fraction of rounds in which a client is available."""
        return self.join / (self.join + self.leave)

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        num_places = self.size(num_clients)
        if self.cohort_size is None:
            clients = jnp.arange(num_clients, dtype=jnp.int32)
            available = self.available(key, round_index, clients)
            members = jnp.nonzero(available, size=num_places, fill_value=0)[0].astype(jnp.int32)
            return first_present(members, jnp.sum(available, dtype=jnp.int32))
        members, count = self._first_available(key, round_index, num_clients, num_places)
        return first_present(members, count)

    def size(self, num_clients: int) -> int:
        if self.cohort_size is None:
            return places_for(num_clients, self.share)
        require_at_most(num_clients, self.cohort_size)
        return self.cohort_size

    def mean_size(self, num_clients: int) -> float:
        if self.cohort_size is None or not 0 < self.share < 1:
            return (self.cohort_size or num_clients) * self.share
        # Fewer than cohort_size may be available, each with the same probability.
        ratio = math.log(self.share) - math.log1p(-self.share)
        log_probability, missing = num_clients * math.log1p(-self.share), 0.0
        for available in range(self.cohort_size):
            missing += (self.cohort_size - available) * math.exp(log_probability)
            odds = (num_clients - available) / (available + 1)
            log_probability += math.log(odds) + ratio
        return self.cohort_size - missing

    def available(self, key: Key, round_index: Array, clients: Array) -> Array:
        r"""Return which clients are available in a round, without computing earlier rounds.

        In each round a client's chain *renews* itself with probability
        :math:`\beta = \min(a + b, 2 - a - b)`, for ``leave`` a and ``join`` b: it then draws its
        state independently of the past. In other rounds it keeps its state if
        :math:`a + b \le 1`, and changes it if not. These are the chain's own transition
        probabilities, split in two, so the state is a function of the last renewal, of a coin
        tossed there, and of the number of rounds since.

        Rounds are cut into periods of about :math:`1 / \beta`. The renewals of a period are laid
        out backwards from its end with geometric gaps, as in a Bernoulli process, each gap
        a hash of client, period and number. Following the gaps finds the last renewal in O(1)
        expected steps, for every round and every rate.
        """
        key, round_index = jax.random.fold_in(key, CHAINS), round_index.astype(jnp.int32)
        # If the rates add up to more than 1, a client's state tends to alternate.
        alternates = self.leave + self.join > 1
        renewal = min(self.leave + self.join, 2 - self.leave - self.join)
        # The loop grows with the period's renewals and with the number of periods without one.
        period = min(math.ceil(1 / max(renewal, 1e-6)), 1 << 20)
        log_stay = math.log1p(-renewal) if renewal < 1 else -math.inf
        renewed = (1 - self.leave) / renewal if alternates and renewal > 0 else self.share

        def gap(block, number):
            # 24 bits plus 1 is in (0, 1] after scaling: float32 holds it exactly, and its logarithm
            # is finite.
            bits = shuffle.words(key, clients, block, number) >> 8
            uniform = (bits.astype(jnp.float32) + 1) * jnp.float32(2**-24)
            # With both rates 1 the chain is deterministic after its start, and never renews.
            if renewal <= 0:
                return jnp.full(clients.shape, period, jnp.int32)
            return jnp.minimum(jnp.floor(jnp.log(uniform) / log_stay), period).astype(jnp.int32)

        def unfinished(state):
            return ~jnp.all(state[3])

        def step(state):
            block, number, at, found = state
            earlier = at - 1 - gap(block, number)
            # If the gap reaches beyond this period, continue from the end of the period before.
            inside = earlier >= block * period
            candidate = (
                jnp.where(inside, block, block - 1),
                jnp.where(inside, number + 1, 0),
                jnp.where(inside, earlier, block * period),
            )
            here = jnp.where(inside, earlier <= round_index, block == 0)
            # The chain starts in its stationary law before the first round.
            block, number, at = (
                jnp.where(found, old, new) for old, new in zip(state[:3], candidate, strict=True)
            )
            return block, number, jnp.maximum(at, 0), found | here

        block = jnp.zeros_like(clients) + round_index // period
        first = (block, jnp.zeros_like(block), (block + 1) * period, jnp.zeros(block.shape, bool))
        last = jax.lax.while_loop(unfinished, step, first)[2]
        word = shuffle.words(jax.random.fold_in(key, 0), clients, last)
        state = jnp.where(last == 0, shuffle.heads(word, self.share), shuffle.heads(word, renewed))
        return state ^ ((round_index - last) % 2 == 1) if alternates else state

    def _first_available(self, key, round_index, num_clients, num_places):
        """Return the first available clients of a random order, and their number."""
        # Enough candidates for a full cohort on average, and a quarter more: usually one pass
        # suffices.
        width = min(num_clients, math.ceil(1.25 * num_places / self.share) + 8)
        order_key = jax.random.fold_in(key, round_index)

        def unfinished(found):
            start, count, _ = found
            return (count < num_places) & (start < num_clients)

        def examine(found):
            start, count, members = found
            places = start + jnp.arange(width, dtype=jnp.int32)
            # Candidates come in random order, so the first available ones are a uniform draw from
            # all available clients; the others need not be computed.
            clients = shuffle.permuted(order_key, num_clients, jnp.zeros_like(places), places)
            available = self.available(key, round_index, clients) & (places < num_clients)
            target = count + jnp.cumsum(available, dtype=jnp.int32) - 1
            target = jnp.where(available, target, num_places)
            # Unavailable clients, and those beyond the cohort, are written past the end and
            # dropped.
            members = members.at[target].set(clients, mode="drop")
            return start + width, count + jnp.sum(available, dtype=jnp.int32), members

        none = jnp.zeros((), jnp.int32)
        start = (none, none, jnp.zeros(num_places, jnp.int32))
        _, count, members = jax.lax.while_loop(unfinished, examine, start)
        return members, count


@validated
def cyclic(*, num_groups: Count, cohort_size: Count | None = None) -> Sampler:
    """Groups of clients that are available in turn: group r modulo ``num_groups`` in round r.

    Groups are contiguous in the order of the population, and their sizes differ by at most one.
    Without ``cohort_size`` the cohorts are deterministic.

    Args:
      num_groups: number of groups.
      cohort_size: number of clients of the group that take part; ``None`` for all of them.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> sampler, key = fcojax.cyclic(num_groups=2), jax.random.key(0)
      >>> [sampler.draw(key, jnp.int32(r), 6).members.tolist() for r in range(3)]
      [[0, 1, 2], [3, 4, 5], [0, 1, 2]]

    References:
      Cho, Sharma, Joshi, Xu, Kale and Zhang, "On the convergence of federated averaging with
      cyclic client participation", ICML 2023.
    """
    return Cyclic(num_groups, cohort_size)


@validated
def markov(*, leave: Share, join: Share, cohort_size: Count | None = None) -> Sampler:
    """Availability by a two-state Markov chain for each client, all with the same rates.

    The chains start in their stationary law, so in every round a client is available with
    probability ``join / (join + leave)``, for ``1 / leave`` rounds on average.

    Taking all available clients costs O(M) for a population of M; taking ``cohort_size`` of them
    about ``cohort_size * (join + leave) / join``. Without ``cohort_size`` a cohort has places for
    the mean plus eight standard deviations, as in ``coin_flips``.

    Args:
      leave: probability that an available client is unavailable in the next round.
      join: probability that an unavailable client is available in the next round.
      cohort_size: number of available clients that take part; ``None`` for all of them.

    Example:
      >>> import fcojax
      >>> fcojax.markov(leave=0.25, join=0.75).share  # of rounds in which a client is available
      0.75

    References:
      Athreya and Ney, "A new approach to the limit theory of recurrent Markov chains", Trans. Amer.
      Math. Soc. 1978, for the renewals; Rodio, Faticanti, Marfoq, Neglia and Leonardi, "Federated
      learning under heterogeneous and correlated client availability", INFOCOM 2023.
    """
    return Markov(float(leave), float(join), cohort_size)
