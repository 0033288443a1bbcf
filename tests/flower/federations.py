"""Three sites with faults, and the simulation of the same faults."""

import dataclasses

import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import flower, uploads
from fcojax.transforms import euclidean, l1

NAMES = ("Antwerp", "Bern", "Cork")
SIZES = (7, 4, 9)
NUM_ROUNDS = 20


def loss(w, rows):
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def rows_of(dtype="float64"):
    """The rows of each site, by its name."""
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
        lambda: fcojax.algorithms.fed_dual_avg(loss, euclidean(l1())), {"penalty_scale": 0.1}, None,
    ),
    "composite_fl": (
        lambda: fcojax.algorithms.composite_fl(loss, l1()), {"penalty_scale": 0.1}, None,
    ),
    "scaffold": (
        lambda: fcojax.algorithms.scaffold(loss), {}, uploads.ef14(uploads.top_k(2)),
    ),
    "fed_dyn": (lambda: fcojax.algorithms.fed_dyn(loss), {}, None),
    "fed_avg": (lambda: fcojax.algorithms.fed_avg(loss), {}, uploads.ef21(uploads.top_k(2))),
    "rand_k": (
        lambda: fcojax.algorithms.fed_avg(loss), {}, uploads.compressed(uploads.rand_k(0.5)),
    ),
}  # fmt: skip


def federation_of(name, dtype="float64", **other):
    """One of the algorithms, three local steps on minibatches of two rows."""
    make, numbers, uplink = ALGORITHMS[name]
    algorithm = make()
    hparams = algorithm.hparams_type(client_lr=0.03, **numbers)
    plan = fcojax.Plan(fcojax.local_steps(3, batch_size=2), uplink=uplink)
    return flower.Federation(algorithm, plan, hparams, jnp.zeros(6, dtype), **other)


@dataclasses.dataclass(frozen=True)
class Faulty(fcojax.Sampler):
    """The cohorts of another sampler, with losses by (round, client)."""

    sampler: fcojax.Sampler
    lost: frozenset

    loses_uploads = True

    @property
    def can_be_absent(self):
        return self.sampler.can_be_absent

    def size(self, num_clients):
        return self.sampler.size(num_clients)

    def draw(self, key, round_index, num_clients, sizes=None):
        drawn = self.sampler.draw(key, round_index, num_clients, sizes)
        arrives = np.ones((NUM_ROUNDS, num_clients), bool)
        for index, client in self.lost:
            arrives[index, client] = False
        return drawn._replace(arrives=jnp.asarray(arrives)[round_index][drawn.indices])


def simulated(federation, key, lost=(), num_rounds=NUM_ROUNDS, dtype="float64"):
    """The model of ``fcojax.run`` with these losses."""
    rows = rows_of(dtype)
    data = fcojax.from_clients([rows[name] for name in NAMES], federation.weights)
    plan = federation.plan
    plan = plan._replace(cohort=Faulty(plan.cohort, frozenset(lost)))
    return fcojax.run(
        federation.algorithm, federation.hparams, federation.params, data, key, plan,
        num_rounds=num_rounds,
    )  # fmt: skip


@dataclasses.dataclass
class Sites:
    """Sites in this process, of which one is dead for a while, one late and one cut off.

    A dead site has no answer and does not work; what it kept is on its disk. The answer of a late
    one comes in the next round. The answer of the third is lost on the way.
    """

    federation: flower.Federation
    dtype: str = "float64"
    dead: frozenset = frozenset()
    late: frozenset = frozenset()
    dropped: frozenset = frozenset()

    def __post_init__(self):
        self.rows = rows_of(self.dtype)
        self.kept = dict.fromkeys(NAMES)
        self.waiting = {}
        self.seen = {name: [] for name in NAMES}

    @property
    def lost(self):
        return self.dead | self.late | self.dropped

    @property
    def transport(self):
        return flower.Transport(self.join, self.exchange)

    def at(self, name, message):
        reply, self.kept[name] = flower.answer(
            self.federation, name, self.rows[name], self.kept[name], message
        )
        self.seen[name].append(reply)
        return reply

    def join(self, message):
        return [self.at(name, message) for name in NAMES]

    def exchange(self, messages):
        replies, self.waiting = self.waiting, {}
        for name, message in messages.items():
            _, facts = fcojax.safetensors.loads(message)
            place = (int(facts["round"]), NAMES.index(name))
            if facts["kind"] != "round":
                replies[name] = self.at(name, message)
            elif place in self.dead:
                continue
            elif place in self.late:
                self.waiting[name] = self.at(name, message)
            elif place in self.dropped:
                self.at(name, message)
            else:
                replies[name] = self.at(name, message)
        return replies


FAULTS = {
    "dead": frozenset((index, 1) for index in range(6, 10)),
    "late": frozenset({(3, 0), (12, 0)}),
    "dropped": frozenset({(0, 2), (8, 2)}),
}
