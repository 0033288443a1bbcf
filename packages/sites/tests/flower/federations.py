"""Three sites with faults, in this process."""

import dataclasses

import fcojax_sites
from fcojax_sites import flower
from tests.flower.three_sites import NAMES, rows_of


@dataclasses.dataclass
class Sites:
    """Sites in this process, of which one is down for some rounds, one late and one disconnected.

    A site that is down does not work or reply; its state is on its disk. The reply of the late site
    comes in the next round. The reply of the third is lost.
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
            _, facts = fcojax_sites.safetensors.loads(message)
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
