"""The laws detect broken algorithms, and the command reports it."""

import pathlib
import subprocess
import sys
from typing import NamedTuple

import jax.numpy as jnp
import pytest

import fcojax
from fcojax import algorithms, tree
from fcojax.algorithms import takes
from fcojax.check import LAWS, facts, limit, limits, subject_of
from fcojax.check.__main__ import main, sentences
from fcojax.check.subject import found_factory

Rates = algorithms.fed_avg.Hparams


def broken(change):
    """FedAvg with some of its functions replaced by what ``change`` makes of them."""

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
    """Upload the last point in place of the difference."""

    def client_update(hparams, message, client, local, key):
        result = plain.client_update(hparams, message, client, local, key)
        return result._replace(upload=tree.add(result.upload, message))

    return {"client_update": client_update}


BROKEN = {
    "contract": lambda plain: {"model": lambda hparams, server: server[:2]},
    "order": with_client(lambda upload, local: upload * (1.0 + local.client.astype(float))),
    "identical clients": with_client(
        lambda upload, local: upload * (1.0 + local.client.astype(float))
    ),
    "weights": with_client(lambda upload, local: upload / (1.0 + local.client.astype(float))),
    "absent clients": with_client(lambda upload, local: upload + jnp.sum(local.rows["c"])),
    "dtype": widened,
    "traces": fixed_rate,
    "rates near zero": sends_the_model,
}
QUICK = ("contract", "order", "dtype", "rates near zero")


@pytest.mark.parametrize(
    "law", [law if law in QUICK else pytest.param(law, marks=pytest.mark.slow) for law in BROKEN]
)
def test_each_law_detects_an_algorithm_that_breaks_it(law):
    found = LAWS[law](broken(BROKEN[law]))
    assert found.holds is False and found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("law", ["contract", "sweeps"])
@pytest.mark.parametrize("name", ["fed_dyn", "mc_fed_dual_avg"])
def test_laws_hold_for_algorithms_of_the_library(law, name):
    assert LAWS[law](subject_of(getattr(algorithms, name))).holds


def test_facts():
    found = {name: facts(subject_of(getattr(algorithms, name))) for name in (
        "fed_dual_avg", "fed_mid", "fed_dyn", "fe_dual_ex", "fed_pd", "fed_avg",
    )}  # fmt: skip
    assert found["fed_dual_avg"] == ("1 d + 1", "1 d + 1", "0", 10, 1, False)
    assert found["fed_mid"] == ("1 d", "1 d + 1", "0", 10, 1, False)
    assert found["fe_dual_ex"].client_proxes == 20
    assert found["fed_dyn"][:5] == ("1 d", "1 d", "2 d", 0, 1)
    assert found["fed_pd"].needs_everyone and found["fed_avg"].client_proxes == 0
    assert sentences(found["fed_pd"])["sampling"] == "needs every client in every round"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "word", "rounds"),
    [
        ("fed_dyn", "exact", 3000),
        ("fed_dual_avg", "neighbourhood", 3000),
        ("fast_fed_dual_avg", "approaching", 3000),
        ("fed_mid", "elsewhere", 3000),
    ],
)
def test_limits(name, word, rounds):
    assert limit(subject_of(getattr(algorithms, name)), num_rounds=rounds).word == word


MINE = """
from typing import NamedTuple

import fcojax
from fcojax.algorithms import takes

Rates = fcojax.algorithms.fed_avg.Hparams


@takes(Rates)
def good(loss):
    return fcojax.algorithms.fed_avg(loss)


@takes(Rates)
def bad(loss):
    plain = fcojax.algorithms.fed_avg(loss)
    return plain._replace(model=lambda hparams, server: server[:2])


@takes(Rates)
def misspelt(loss):
    plain = fcojax.algorithms.fed_avg(loss)
    return plain._replace(model=lambda hparams, server: hparams.mu * server)


@takes(Rates)
def four(loss):
    return fcojax.algorithms.Algorithm(*fcojax.algorithms.fed_avg(loss)[:4])


@takes(Rates)
def nothing(loss):
    fcojax.algorithms.fed_avg(loss)


class Needy(NamedTuple):
    client_lr: float
    momentum: float


@takes(Needy)
def needy(loss):
    return fcojax.algorithms.fed_avg(loss)


built = good(None)


def undecorated(loss):
    return good(loss)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_to_check.py").write_text(MINE)
    (tmp_path / "broken_to_check.py").write_text("good = (")
    (tmp_path / "lacking_to_check.py").write_text("\nimport no_such_library")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "mine_to_check"


@pytest.mark.slow
def test_the_command_reports_which_laws_hold(mine, capsys):
    assert main([f"{mine}:good", "--client_lr=0.1", "--laws"]) == 0
    printed = capsys.readouterr().out
    assert f"{mine}:good at client_lr 0.1, server_lr 1" in printed
    assert printed.count("holds") == len(LAWS) and "FAILS" not in printed
    assert "sent up           1 d numbers a client and round" in printed
    assert main([f"{mine}:bad", "--laws"]) == 1
    printed = capsys.readouterr().out
    assert "FAILS  contract           the model has shape (2,), the start (4,)" in printed
    assert "laws do not hold." in printed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "fcojax check my_module:my_algorithm"),
        (["mine_to_check.py:good"], "it is a file; pass its module, mine_to_check."),
        (["broken_to_check:good"], "cannot be imported: '(' was never closed (broken_to_check.py"),
        (["lacking_to_check:good"], "ModuleNotFoundError in lacking_to_check.py, line 2: No modul"),
        (["no_such_module:fed"], "there is no module no_such_module; run it in the folder"),
        (["fed_avg", "--client_lr=0"], "client_lr is 0.0; pass a finite number above 0"),
        (["mine_to_check:built"], "built is Algorithm("),
        (["mine_to_check:undecorated"], "undecorated is <function undecorated"),
        (["fed_avg", "--momentum=1"], "there is no flag --momentum; pass some of --client_lr"),
        (["fed_avg", "--client_lr=fast"], "flag --client_lr=fast: could not convert"),
        (["fed_avg", "--rounds=7"], "--rounds is 7; pass an even number"),
        (["mine_to_check:godo"], "mine_to_check has no godo; did you mean good?"),
        (["mine_to_check"], "For one of your own pass MODULE:FACTORY"),
        (["fed_avgg"], "did you mean fed_avg?"),
        (["mine_to_check:four"], "four cannot be built: TypeError in mine_to_check.py, line 29:"),
        (["mine_to_check:nothing"], "nothing returned a NoneType; return a fcojax.algorithms.Alg"),
        (["mine_to_check:needy"], "needy needs momentum, which has no default; pass --momentum="),
    ],
)
def test_arguments_that_cannot_be_checked_are_refused(mine, capsys, arguments, sentence):
    assert main(arguments) == 2
    printed = capsys.readouterr().out
    assert sentence in printed and (not arguments or printed.count("\n") == 1)
    assert ":" not in "".join(arguments) or "pass MODULE:FACTORY" not in printed


@pytest.mark.parametrize("given", [algorithms.fed_avg(None), "mine:f", None])
def test_subjects_of_anything_but_a_factory_are_refused(given):
    with pytest.raises(ValueError, match="factory is"):
        subject_of(given)


class Unannotated(NamedTuple):
    client_lr: float = 0.01
    server_lr: float = 1.0


def test_client_rates_are_the_fields_annotated_positive_and_client_lr():
    def rates(hparams_type):
        return subject_of(takes(hparams_type)(lambda loss: algorithms.fed_avg(loss))).client_rates

    extended = fcojax.extended(algorithms.fed_dyn.Hparams, "Extended", momentum=0.9)
    assert rates(algorithms.fed_dyn.Hparams) == rates(extended) == ["client_lr", "prox_step"]
    assert rates(Unannotated) == ["client_lr"] and rates(algorithms.fed_fw.Hparams) == []


def test_a_misspelt_field_is_reported_once_with_its_line(mine, capsys):
    assert main([f"{mine}:misspelt"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("AttributeError in mine_to_check.py, line 24: ") == 1
    assert printed.count("FAILS") == 1 and "the other laws cannot be checked" in printed


@pytest.mark.slow
def test_a_closed_pipe_ends_the_command_without_an_error():
    command = f"{sys.executable} -m fcojax.check fed_avg --laws | head -1"
    library = pathlib.Path(fcojax.__file__).parent.parent
    done = subprocess.run(
        command, shell=True, cwd=library, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("fed_avg at client_lr") and done.stderr == ""


@pytest.mark.slow
def test_a_limit_independent_of_the_step_hints_at_the_weight_of_psi():
    @takes(algorithms.fed_mid.Hparams, "mirror")
    def prox_too_strong(loss, mirror):
        plain = algorithms.fed_mid(loss, mirror)

        def client_update(hparams, *rest):
            twice = hparams._replace(penalty_scale=2 * hparams.penalty_scale)
            return plain.client_update(twice, *rest)

        return plain._replace(client_update=client_update)

    found = limits(subject_of(prox_too_strong), num_rounds=600)["limit"]
    assert found.sentence.endswith("compare the prox weight with the total step of a round")


def test_a_sum_without_the_fraction_is_distinguished_from_a_wrong_prox_weight():
    @takes(algorithms.fed_dyn.Hparams, "penalty")
    def forgets_the_fraction(loss, penalty):
        plain = algorithms.fed_dyn(loss, penalty)

        def server_update(hparams, server, mean_upload, fraction, key):
            return plain.server_update(hparams, server, mean_upload, jnp.ones_like(fraction), key)

        return plain._replace(server_update=server_update)

    found = limits(subject_of(forgets_the_fraction), num_rounds=600)
    assert found["limit"].holds
    for part in ("half the clients", "30 per cent lost"):
        assert found[part].sentence.endswith(
            "; with everyone the limit is right: are sums on the server multiplied by fraction?"
        )


@pytest.mark.slow
def test_sampling_noise_is_not_taken_for_a_forgotten_fraction():
    found = limits(subject_of(algorithms.fed_dual_avg), num_rounds=600)
    assert not any("fraction" in finding.sentence for finding in found.values())


def test_an_algorithm_of_the_library_is_found_by_name():
    assert found_factory("fed_dyn") is fcojax.algorithms.fed_dyn
