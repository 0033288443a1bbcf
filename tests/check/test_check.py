"""The laws detect broken algorithms, and the command reports it."""

from typing import NamedTuple

import jax.numpy as jnp
import pytest

import fcojax
from fcojax import algorithms, tree
from fcojax.algorithms import takes
from fcojax.check import LAWS, facts, subject_of
from fcojax.check.__main__ import main, sentences

Rates = algorithms.fed_avg.Hparams


def broken(change):
    """Return FedAvg with some of its functions replaced by the result of ``change``."""

    @takes(Rates)
    def fed_avg(loss):
        plain = algorithms.fed_avg(loss)
        return plain._replace(**change(plain))

    return subject_of(fed_avg)


def with_client(function):
    """Return a change that replaces each upload by ``function(upload, local)``."""

    def change(plain):
        def client_update(hparams, message, client, local, key):
            result = plain.client_update(hparams, message, client, local, key)
            return result._replace(upload=function(result.upload, local))

        return {"client_update": client_update}

    return change


def fixed_rate(plain):
    def client_update(hparams, *rest):
        return plain.client_update(hparams._replace(client_lr=0.05), *rest)

    return {"client_update": client_update}


def widened(plain):
    return {"model": lambda hparams, server: server.astype(jnp.float64)}


def sends_the_model(plain):
    """Upload the last point instead of the difference."""

    def client_update(hparams, message, client, local, key):
        result = plain.client_update(hparams, message, client, local, key)
        return result._replace(upload=tree.add(result.upload, message))

    return {"client_update": client_update}


def sends_points(plain):
    """Upload the last point, of which the server subtracts the model that it had sent."""

    def server_update(hparams, server, mean_upload, fraction, key):
        moved = tree.sub(mean_upload, plain.model(hparams, server))
        return plain.server_update(hparams, server, moved, fraction, key)

    return sends_the_model(plain) | {"server_update": server_update}


BROKEN = {
    "contract": lambda plain: {"model": lambda hparams, server: server[:2]},
    "order": with_client(lambda upload, local: upload * (1.0 + local.client.astype(float))),
    "weights": with_client(lambda upload, local: upload / (1.0 + local.client.astype(float))),
    "absent clients": with_client(lambda upload, local: upload + jnp.sum(local.rows["c"])),
    "dtype": widened,
    "traces": fixed_rate,
    "rates near zero": sends_the_model,
    "differences": sends_points,
    "upload dtype": with_client(lambda upload, local: upload.astype(jnp.float32)),
}
BROKEN["identical clients"] = BROKEN["order"]
QUICK = ("contract", "order", "dtype", "rates near zero", "differences", "upload dtype")


@pytest.mark.parametrize(
    "law", [law if law in QUICK else pytest.param(law, marks=pytest.mark.slow) for law in BROKEN]
)
def test_each_law_detects_an_algorithm_that_breaks_it(law):
    found = LAWS[law](broken(BROKEN[law]))
    assert found.holds is False and found.sentence


def changed(name, change):
    """Return an algorithm of the library changed by ``change``, as in ``broken``."""
    factory = getattr(algorithms, name)

    @takes(factory.Hparams, *factory.geometry)
    def build(loss, *pieces):
        plain = factory(loss, *pieces)
        return plain._replace(**change(plain))

    return subject_of(build)


def nothing_changed(plain):
    return {}


def keeps(merge):
    """Return a change that stores ``merge(old, new)`` instead of the new state of a client."""

    def change(plain):
        def client_update(hparams, message, client, local, key):
            result = plain.client_update(hparams, message, client, local, key)
            return result._replace(state=merge(client, result.state))

        return {"client_update": client_update}

    return change


def forgets_the_fraction(plain):
    def server_update(hparams, server, mean_upload, fraction, key):
        return plain.server_update(hparams, server, mean_upload, jnp.ones_like(fraction), key)

    return {"server_update": server_update}


@pytest.mark.parametrize(
    ("name", "merge", "part"),
    [
        ("scaffold", lambda old, new: old, "state:"),
        pytest.param(
            "fed_dyn",
            lambda old, new: new._replace(dual=old.dual),
            "state.dual:",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_control_that_clients_never_keep_is_detected(name, merge, part):
    found = LAWS["kept states"](changed(name, keeps(merge)))
    assert found.holds is False and part in found.sentence


@pytest.mark.parametrize("name", ["scaffold", pytest.param("prox_skip", marks=pytest.mark.slow)])
def test_a_sum_without_the_fraction_is_detected(name):
    law = LAWS["fraction"]
    assert law(changed(name, nothing_changed)).holds
    assert law(changed(name, forgets_the_fraction)).holds is False


def test_facts_are_read_off_the_algorithm():
    found = {
        name: facts(subject_of(getattr(algorithms, name)))
        for name in (
            "fed_dual_avg",
            "fed_mid",
            "fed_dyn",
            "fe_dual_ex",
            "fed_pd",
            "fed_avg",
            "ditto",
        )
    }
    assert found["fed_dual_avg"] == ("1 d + 1", "1 d + 1", "0", 10, 1, False)
    assert found["fed_mid"] == ("1 d", "1 d + 1", "0", 10, 1, False)
    assert found["ditto"] == ("2 d", "1 d + 1", "2 d", 10, 1, False)
    assert found["fe_dual_ex"].client_proxes == 20
    assert found["fed_dyn"][:5] == ("1 d", "1 d", "2 d", 0, 1)
    assert found["fed_pd"].needs_everyone and found["fed_avg"].client_proxes == 0
    assert sentences(found["fed_pd"])["sampling"] == "needs every client in every round"


MINE = """
import fcojax
from fcojax.algorithms import takes

Rates = fcojax.algorithms.fed_avg.Hparams


@takes(Rates)
def good(loss):
    return fcojax.algorithms.fed_avg(loss)


@takes(Rates)
def misspelt(loss):
    plain = fcojax.algorithms.fed_avg(loss)
    return plain._replace(model=lambda hparams, server: hparams.mu * server)


@takes(Rates)
def four(loss):
    return fcojax.algorithms.Algorithm(*fcojax.algorithms.fed_avg(loss)[:4])
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_to_check.py").write_text(MINE)
    (tmp_path / "broken_to_check.py").write_text("good = (")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "mine_to_check"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["broken_to_check:good"], "cannot be imported: '(' was never closed (broken_to_check.py"),
        (["fed_avg", "--client_lr=0"], "client_lr is 0.0; pass a finite number above 0"),
        (["fed_avg", "--rounds=7"], "--rounds is 7; pass an even number"),
        (["mine_to_check:godo"], "mine_to_check has no godo; did you mean good?"),
        (["mine_to_check:four"], "four cannot be built: TypeError in mine_to_check.py, line 21:"),
    ],
)
def test_arguments_that_cannot_be_checked_are_refused(mine, capsys, arguments, sentence):
    assert main(arguments) == 2
    out, printed = capsys.readouterr()
    assert sentence in printed and printed.count("\n") == 1 and not out
    assert ":" not in "".join(arguments) or "pass MODULE:FACTORY" not in printed


class Unannotated(NamedTuple):
    client_lr: float = 0.01
    server_lr: float = 1.0


class WithoutRate(NamedTuple):
    penalty_scale: float = 1.0


def test_client_rates_are_the_fields_annotated_positive_and_client_lr():
    def rates(hparams_type):
        return subject_of(takes(hparams_type)(lambda loss: algorithms.fed_avg(loss))).client_rates

    extended = fcojax.extended(algorithms.fed_dyn.Hparams, "Extended", momentum=0.9)
    assert rates(algorithms.fed_dyn.Hparams) == rates(extended) == ["client_lr", "prox_step"]
    assert rates(Unannotated) == ["client_lr"] and rates(WithoutRate) == []


def test_a_misspelt_field_is_reported_once_with_its_line(mine, capsys):
    assert main([f"{mine}:misspelt"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("AttributeError in mine_to_check.py, line 16: ") == 1
    assert printed.count("FAILS") == 1 and "the other laws cannot be checked" in printed
