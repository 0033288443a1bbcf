"""The virtual clock: its seconds are those of a plain event loop; deadlines drop or truncate."""

import functools
import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import clock, uploads
from fcojax.engine.client_loop import _inclusion
from fcojax.engine.members import COHORT
from fcojax.extend import local_handle

SIZES = [3, 8, 5, 2, 7, 4]
DATA = fcojax.from_rows({"a": np.arange(float(sum(SIZES)))}, SIZES)
NUM_CLIENTS, NUM_ROUNDS = len(SIZES), 7
FED_AVG = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
COUNTS = [4, 2, 3, 5, 1, 2]
# Plans, and the steps of each client in each round.
PLANS = {
    "steps": (fcojax.local_steps(3), fcojax.everyone(), lambda m, r: 3),
    "counts": (
        fcojax.local_steps(COUNTS),
        fcojax.from_trace([[0, 2, 3], [1]]),
        lambda m, r: COUNTS[m],
    ),
    "epochs": (fcojax.local_epochs(2, 4), fcojax.coin_flips(0.4), lambda m, r: -(-SIZES[m] // 2)),
    "by round": (
        fcojax.local_steps(5, by_round=[1, 5, 2]),
        fcojax.held(fcojax.uniform_cohort(cohort_size=2)),
        lambda m, r: [1, 5, 2][min(r, 2)],
    ),
}


@functools.cache
def drawing(sampler):
    """Return ``key -> members of each round``."""
    rounds = jnp.arange(NUM_ROUNDS, dtype=jnp.int32)
    draw = jax.jit(jax.vmap(lambda key, r: sampler.draw(key, r, NUM_CLIENTS), (None, 0)))

    def members(key):
        drawn = draw(jax.random.fold_in(key, COHORT), rounds)
        every = np.arange(NUM_CLIENTS) + np.zeros((NUM_ROUNDS, 1), int)
        clients = every if drawn.members is None else np.asarray(drawn.members)
        return [
            row[present] for row, present in zip(clients, np.asarray(drawn.present), strict=True)
        ]

    return members


def event_loop(cohorts, num_steps, step, down, up, sent, limit=np.inf):
    """Return the seconds after each round: the server waits for the last of its clients."""
    now, ends = 0.0, []
    for index, members in enumerate(cohorts):
        events = []
        for member in members:
            finish = now + down[member] * sent[0][index]
            for _ in range(num_steps(member, index)):
                finish += step[index % len(step), member]
            heapq.heappush(events, (finish + up[member] * sent[1][index], member))
        waits_until = now + limit
        while events:
            now = min(heapq.heappop(events)[0], waits_until)
        ends.append(now)
    return ends


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "counts" else pytest.mark.slow) for n in PLANS]
)
def test_seconds_are_those_of_an_event_loop(name):
    """25 random clocks, traffics, keys and deadlines for each of four plans."""
    work, sampler, num_steps = PLANS[name]
    for setting in range(25):
        rng = np.random.default_rng(setting)
        step = rng.lognormal(0, 1, (rng.integers(1, 4), NUM_CLIENTS))
        down, up = rng.lognormal(-3, 1, (2, NUM_CLIENTS))
        key, sent = jax.random.key(setting), rng.integers(1, 50, (2, NUM_ROUNDS)).astype(float)
        cohorts = drawing(sampler)(key)
        people = np.array([len(members) for members in cohorts])
        history = {"round": np.arange(1, NUM_ROUNDS + 1), "participants": people}
        history |= {"bytes_down": sent[0] * people, "bytes_up": sent[1] * people}
        laws = clock.Clock(step, down, up)
        found = clock.seconds(laws, fcojax.Plan(work, sampler), DATA, key, history)
        assert np.allclose(found, event_loop(cohorts, num_steps, step, down, up, sent), rtol=1e-12)
        limit = float(rng.uniform(1, 10))
        late = clock.deadline(np.zeros((1, NUM_CLIENTS)), limit)
        expected = event_loop(cohorts, num_steps, step, down, up, sent, limit)
        for losses in (late, uploads.chain(late, fcojax.dropout(0.5))):
            plan = fcojax.Plan(work, sampler, losses)
            found = clock.seconds(laws, plan, DATA, key, history)
            assert np.allclose(found, expected, rtol=1e-12)


def test_a_deadline_drops_the_late_and_truncation_lets_them_do_less():
    step = clock.log_normal(NUM_CLIENTS, median=1.0, spread=1.0, seed=1)
    assert np.array_equal(step, clock.log_normal(NUM_CLIENTS, median=1.0, spread=1.0, seed=1))
    laws, limit = clock.Clock(step, up=0.1), 6.0
    late = laws.client_seconds(NUM_CLIENTS, 5, bytes_up=10)[0] > limit
    assert 0 < late.sum() < NUM_CLIENTS
    counts = clock.truncated(fcojax.local_steps(5), DATA, step, limit, link=1.0).counts
    short = laws.client_seconds(NUM_CLIENTS, counts, bytes_up=10)[0]
    more = laws.client_seconds(NUM_CLIENTS, np.array(counts) + 1, bytes_up=10)[0]
    assert ((short <= limit) | (np.array(counts) == 1)).all()
    assert ((more > limit) | (np.array(counts) == 5)).all()
    deadline = clock.deadline(laws.client_seconds(NUM_CLIENTS, 5, 0, 10), limit)
    plan, key = fcojax.Plan(fcojax.local_steps(5), uploads=deadline), jax.random.key(0)
    hparams, start = FED_AVG.hparams_type(client_lr=0.1), jnp.array(0.0)
    w, history = fcojax.run(FED_AVG, hparams, start, DATA, key, plan, num_rounds=1)
    assert (history["late"].tolist(), history["lost"].tolist()) == ([late.sum()], [0])
    means = np.array([np.mean(rows) for rows in np.split(np.arange(29.0), np.cumsum(SIZES)[:-1])])
    assert float(w) == pytest.approx((1 - 0.9**5) * means[~late].mean())
    # The probability of late clients is zero.
    weighed = uploads.chain(uploads.inverse_probability("known"), deadline)
    plan = plan._replace(uploads=weighed)
    w, history = fcojax.run(FED_AVG, hparams, start, DATA, key, plan, num_rounds=1)
    assert float(w) == pytest.approx((1 - 0.9**5) * means[~late].sum() / NUM_CLIENTS)
    assert history["late"].tolist() == [late.sum()]


def test_a_client_that_ends_at_the_deadline_is_in_time():
    """Also where its steps do not add up to it exactly: 0.1 three times."""
    late = clock.deadline(np.array([3 * 0.1, 0.3 + 1e-6]), 0.3)
    assert late.facts.arrives(np.arange(2)).tolist() == [1, 0]
    assert clock.truncated(fcojax.local_steps(5), DATA, 0.1, 0.3).counts == (3,) * NUM_CLIENTS


def test_truncated_epochs_are_their_first_steps():
    """Those that end before the deadline, client by client; at least one."""
    work, step, key = fcojax.local_epochs(2, 3), 0.5 + np.arange(NUM_CLIENTS), jax.random.key(0)
    whole = clock.num_steps(work, DATA)
    assert whole.tolist() == [-(-2 * size // 3) for size in SIZES]
    short = clock.truncated(work, DATA, step, limit=4.0)
    taken = clock.num_steps(short, DATA)
    assert taken.tolist() == [2, 2, 1, 1, 1, 1] and clock.truncated(work, DATA, step, 99.0) == work

    def add(seen, batch):
        return seen + jnp.sum(batch.weights * 2.0 ** batch.examples["a"])

    @jax.jit
    def both(client, count):
        local, all_steps = (
            local_handle(DATA, each, key, jnp.int32(0), client, client) for each in (short, work)
        )
        zero = jnp.array(0.0)
        return local.scan(add, zero), all_steps.scan(add, zero, num_steps=count)

    for client, count in enumerate(taken.tolist()):
        found, expected = both(client, count)
        assert float(found) == float(expected) > 0


def test_known_probabilities_are_refused_where_lateness_and_draws_repeat():
    """Both clients are on time in every other round, in which only the second is drawn."""
    late, cycle, both = (
        np.array([[9.0, 9.0], [1.0, 1.0]]),
        fcojax.cyclic(num_groups=2),
        jnp.arange(2),
    )
    trace, lossy = fcojax.from_trace([[0], [1]]), fcojax.dropout(0.5)

    def shares(sampler, seconds, losses):
        transforms = uploads.chain(clock.deadline(seconds, 5.0), losses)
        plan = fcojax.Plan(fcojax.local_steps(1), sampler, transforms)
        return _inclusion(plan, 2, None, both).tolist()

    for sampler, losses, share in ((cycle, uploads.chain(), 0.5), (trace, lossy, 0.25)):
        with pytest.raises(ValueError, match="depend on the round"):
            shares(sampler, late, losses)
        assert shares(sampler, late[1], losses) == [share, share]
    coins = fcojax.coin_flips([0.2, 0.8])
    assert shares(coins, late, uploads.chain()) == [0.1, 0.4]
    with pytest.raises(ValueError, match="fastest client takes 9 seconds"):
        clock.deadline(late[0], 5.0)
