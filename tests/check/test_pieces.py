"""Laws of pieces hold for those of the library, and detect broken ones."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import transforms
from fcojax.check import piece_laws
from fcojax.check.__main__ import main


@dataclasses.dataclass(frozen=True)
class Doubled(fcojax.Sampler):
    def draw(self, key, round_index, num_clients, sizes=None):
        return fcojax.Draw(jnp.zeros(2, jnp.int32), jnp.ones(2, bool))

    def size(self, num_clients):
        return 2


class Sometimes(Doubled):
    def draw(self, key, round_index, num_clients, sizes=None):
        present = jnp.array([True, False]) | (round_index % 2 == 0)
        return fcojax.Draw(jnp.arange(2, dtype=jnp.int32), present)


class Halves(Doubled):
    """The even clients and the odd ones in turn: of eleven six and then five."""

    def draw(self, key, round_index, num_clients, sizes=None):
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        members = 2 * places + round_index % 2
        return fcojax.Draw(members, present=members < num_clients)

    def size(self, num_clients):
        return (num_clients + 1) // 2


SOUND = {
    "l1": transforms.l1(),
    "box": transforms.box(-1.0, 1.0),
    "entropy": transforms.entropy(),
    "sphere": transforms.sphere(),
    "cyclic": fcojax.cyclic(num_groups=3),
    "coins": fcojax.coin_flips(0.3),
}
L1, ENTROPY, SPHERE = (SOUND[name] for name in ("l1", "entropy", "sphere"))
BROKEN = {
    "prox": L1._replace(prox=lambda v, step, scale: L1.prox(v, step, 2 * scale)),
    "scale_max": L1._replace(scale_max=lambda gradient: 2 * L1.scale_max(gradient)),
    "nonexpansive": L1._replace(prox=lambda v, step, scale: 2 * v),
    "gradient": ENTROPY._replace(potential=lambda x: 2 * ENTROPY.potential(x)),
    "projection": SPHERE._replace(retract=lambda x, u: x + u),
    "tangent": SPHERE._replace(to_tangent=lambda x, v: v - x),
    "cohort": Doubled(),
    "mean size": Sometimes(),
}


@pytest.mark.parametrize("name", SOUND)
def test_laws_hold_for_pieces_of_the_library(name):
    like = np.zeros((4, 2)) if name == "sphere" else None
    found = piece_laws(SOUND[name], like)
    assert not [finding for finding in found.values() if finding.holds is False]
    assert any(finding.holds for finding in found.values())


@pytest.mark.parametrize("law", [*BROKEN])
def test_each_law_detects_a_piece_that_breaks_it(law):
    finding = piece_laws(BROKEN[law])[law]
    assert finding.holds is False and finding.sentence


def test_a_law_that_fails_says_what_to_do():
    assert "Define mean_size(num_clients)" in piece_laws(Halves())["mean size"].sentence
    assert "Penalty(convex=False)" in piece_laws(BROKEN["nonexpansive"])["nonexpansive"].sentence
    of_five = L1._replace(value=lambda x, scale: scale * jnp.sum(jnp.ones(5) * jnp.abs(x)))
    assert "as in --shape=4,3" in piece_laws(of_five)["prox"].sentence


PIECES = """
from fcojax.transforms import Penalty, l1

named = l1()
wrong = named._replace(prox=lambda v, step, scale: v)


def made():
    return l1()
"""


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("named", 0, "holds  prox"),
        ("made", 0, "holds  scale_max"),
        ("wrong", 1, "FAILS  prox               violated by"),
    ],
)
def test_the_command_checks_pieces(name, code, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "pieces_to_check.py").write_text(PIECES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main([f"pieces_to_check:{name}", "--shape=3,2"]) == code
    assert said in capsys.readouterr().out
    assert main([f"pieces_to_check:{name}", "--shape=3,x"]) == 2
