"""The laws catch what they are there for, and the command says so."""

import pathlib
import subprocess
import sys

import jax.numpy as jnp
import pytest

import fcojax
from fcojax import algorithms, tree
from fcojax.algorithms import takes
from fcojax.check import LAWS, facts, limit, limits, subject_of
from fcojax.check.__main__ import main, told
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
    """Client updates whose result is changed, ``(result, local) -> result``."""

    def change(plain):
        def client_update(hparams, message, client, local, key):
            result = plain.client_update(hparams, message, client, local, key)
            return result._replace(upload=function(result.upload, local))

        return {"client_update": client_update}

    return change


def with_server(factor):
    """Server steps as long as ``factor(cohort)`` says."""

    def change(plain):
        def server_update(hparams, server, mean_upload, cohort, key):
            mean_upload = tree.scale(factor(cohort), mean_upload)
            return plain.server_update(hparams, server, mean_upload, cohort, key)

        return {"server_update": server_update}

    return change


def fixed_rate(plain):
    def client_update(hparams, *rest):
        return plain.client_update(hparams._replace(client_lr=0.05), *rest)

    return {"client_update": client_update}


def widened(plain):
    return {"model": lambda hparams, server: server.astype(jnp.float64)}


def sends_the_model(plain):
    """Where a client ends, in place of how far it went."""

    def client_update(hparams, message, client, local, key):
        result = plain.client_update(hparams, message, client, local, key)
        return result._replace(upload=tree.add(result.upload, message))

    return {"client_update": client_update}


BROKEN = {
    "contract": lambda plain: {"model": lambda hparams, server: server[:2]},
    "order": with_client(lambda upload, local: upload * (1.0 + local.client.astype(float))),
    "identical clients": with_server(lambda cohort: cohort.weights.shape[0]),
    "weights": with_server(lambda cohort: 1 / cohort.weights.shape[0]),
    "absent clients": with_client(lambda upload, local: upload + jnp.sum(local.rows["c"])),
    "lost uploads": with_server(lambda cohort: jnp.mean(cohort.weights > 0)),
    "dtype": widened,
    "traces": fixed_rate,
    "rates near zero": sends_the_model,
}
QUICK = ("contract", "order", "dtype", "rates near zero")


@pytest.mark.parametrize(
    "law", [law if law in QUICK else pytest.param(law, marks=pytest.mark.slow) for law in BROKEN]
)
def test_a_law_catches_what_breaks_it(law):
    found = LAWS[law](broken(BROKEN[law]))
    assert found.holds is False and found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("law", ["contract", "sweeps"])
@pytest.mark.parametrize("name", ["fed_dyn", "mc_fed_dual_avg"])
def test_what_is_whole_passes(law, name):
    assert LAWS[law](subject_of(getattr(algorithms, name))).holds


def test_what_is_sent_kept_and_computed_is_read_off():
    found = {name: facts(subject_of(getattr(algorithms, name))) for name in (
        "fed_dual_avg", "fed_mid", "fed_dyn", "fe_dual_ex", "fed_pd", "fed_avg",
    )}  # fmt: skip
    assert found["fed_dual_avg"] == ("1 d + 1", "1 d + 1", "0", 10, 1, False)
    assert found["fed_mid"] == ("1 d", "1 d + 1", "0", 10, 1, False)
    assert found["fe_dual_ex"].client_proxes == 20
    assert found["fed_dyn"][:5] == ("1 d", "1 d", "2 d", 0, 1)
    assert found["fed_pd"].needs_everyone and found["fed_avg"].client_proxes == 0
    assert told(found["fed_pd"])["sampling"] == "needs every client in every round"


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
def test_limits_have_the_right_name(name, word, rounds):
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
def test_the_command_says_which_laws_hold(mine, capsys):
    assert main([f"{mine}:good", "--client_lr=0.1", "--laws"]) == 0
    told = capsys.readouterr().out
    assert f"{mine}:good at client_lr 0.1, server_lr 1" in told
    assert told.count("holds") == len(LAWS) and "FAILS" not in told
    assert "sent up           1 d numbers a client and round" in told
    assert main([f"{mine}:bad", "--laws"]) == 1
    told = capsys.readouterr().out
    assert "FAILS  contract           the model has shape (2,), the start (4,)" in told
    assert "laws do not hold." in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "python -m fcojax.check my_module:my_algorithm"),
        (["no_such_module:fed"], "cannot be imported"),
        (["mine_to_check.py:good"], "write it without .py, as mine_to_check:good."),
        (["broken_to_check:good"], "cannot be imported: '(' was never closed (broken_to_check.py"),
        (["lacking_to_check:good"], "ModuleNotFoundError in lacking_to_check.py, line 2: No modul"),
        (["no_such_module:fed"], "there is no module no_such_module; run it in the folder"),
        (["fed_avg", "--client_lr=0"], "client_lr is 0.0; it must be finite and positive"),
        (["mine_to_check:built"], "is an algorithm that has been built; name its factory"),
        (["mine_to_check:undecorated"], "is no factory with Hparams"),
        (
            ["fed_avg", "--momentum=1"],
            "there is no hyperparameter momentum; pass some of client_lr",
        ),
        (["fed_avg", "--client_lr=fast"], "--client_lr is 'fast'; pass a number."),
        (["fed_avg", "--law"], "there is no flag --law; there are --laws, --rounds=NUMBER"),
        (["fed_avg", "--rounds=7"], "--rounds is 7; pass an even number"),
        (["mine_to_check:godo"], "mine_to_check has no godo; did you mean good?"),
        (["mine_to_check"], "For one of your own write MODULE:FACTORY"),
        (["fed_avgg"], "did you mean fed_avg?"),
        (["mine_to_check:four"], "four cannot be built: TypeError in mine_to_check.py, line 29:"),
        (["mine_to_check:nothing"], "nothing returned a NoneType; return a fcojax.algorithms.Alg"),
        (["mine_to_check:needy"], "needy needs momentum, which has no default; pass --momentum="),
    ],
)
def test_what_cannot_be_checked_is_refused(mine, capsys, arguments, sentence):
    assert main(arguments) == 2
    told = capsys.readouterr().out
    assert sentence in told and (not arguments or told.count("\n") == 1)
    assert ":" not in "".join(arguments) or "write MODULE:FACTORY" not in told


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (algorithms.fed_avg(None), "was given an algorithm that has been built; pass its factory"),
        ("mine:f", "was given the name 'mine:f'; pass its factory"),
        (None, "was given a NoneType; pass its factory"),
    ],
)
def test_a_subject_is_made_of_a_factory(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        subject_of(given)


def test_a_misspelt_field_is_told_once_with_its_line(mine, capsys):
    assert main([f"{mine}:misspelt"]) == 1
    told = capsys.readouterr().out
    assert told.count("AttributeError in mine_to_check.py, line 24: ") == 1
    assert told.count("FAILS") == 1 and "the other laws cannot be asked" in told


def test_a_reader_who_has_seen_enough_ends_it_quietly():
    command = f"{sys.executable} -m fcojax.check fed_avg --laws | head -1"
    library = pathlib.Path(fcojax.__file__).parent.parent
    done = subprocess.run(
        command, shell=True, cwd=library, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("fed_avg at client_lr") and done.stderr == ""


def test_a_distance_that_no_step_changes_points_at_the_weight_of_psi():
    @takes(algorithms.fed_mid.Hparams, "mirror")
    def prox_too_strong(loss, mirror):
        plain = algorithms.fed_mid(loss, mirror)

        def client_update(hparams, *rest):
            twice = hparams._replace(penalty_scale=2 * hparams.penalty_scale)
            return plain.client_update(twice, *rest)

        return plain._replace(client_update=client_update)

    found = limits(subject_of(prox_too_strong), num_rounds=600)["limit"]
    assert found.sentence.endswith("compare the prox weight with the total step of a round")


def test_a_sum_that_forgets_the_fraction_is_told_from_a_prox_of_the_wrong_weight():
    @takes(algorithms.fed_dyn.Hparams, "penalty")
    def forgets_the_fraction(loss, penalty):
        plain = algorithms.fed_dyn(loss, penalty)

        def server_update(hparams, server, mean_upload, cohort, key):
            all_of_it = cohort._replace(fraction=jnp.ones_like(cohort.fraction))
            return plain.server_update(hparams, server, mean_upload, all_of_it, key)

        return plain._replace(server_update=server_update)

    found = limits(subject_of(forgets_the_fraction), num_rounds=600)
    assert found["limit"].holds
    for part in ("half the clients", "30 per cent lost"):
        assert found[part].sentence.endswith(
            "; with everyone the limit is right: is what the server adds up multiplied by "
            "cohort.fraction?"
        )


def test_noise_of_who_takes_part_is_no_forgotten_fraction():
    found = limits(subject_of(algorithms.fed_dual_avg), num_rounds=600)
    assert not any("cohort.fraction" in finding.sentence for finding in found.values())


def test_an_algorithm_of_the_library_is_found_by_its_name():
    assert found_factory("fed_dyn") is fcojax.algorithms.fed_dyn
