"""A federation of sites equals the simulation: the same model, with faults and restarts."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

import fcojax
import fcojax_sites
from fcojax import attacks, clock, privacy, robust, uploads
from fcojax.transforms import euclidean, group_l2, l1
from fcojax_sites import flower, safetensors
from tests.flower.federations import FAULTS, Sites
from tests.flower.three_sites import (
    ALGORITHMS,
    NAMES,
    NUM_ROUNDS,
    federation_of,
    loss,
    rows_of,
    simulated,
)

pytestmark = pytest.mark.gate

KEY = jax.random.key(5)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "accuracy"), [("float64", 1e-12), ("float32", 1e-6)])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_model_is_that_of_the_simulation(name, dtype, accuracy):
    federation = federation_of(name, dtype)
    sites = Sites(federation, dtype, **FAULTS)
    model, history = flower.coordinate(federation, sites.transport, KEY, num_rounds=NUM_ROUNDS)
    expected, of_simulation = simulated(federation, KEY, sites.lost, dtype=dtype)
    np.testing.assert_allclose(model, expected, rtol=0, atol=accuracy)
    assert model.dtype == expected.dtype == dtype and np.abs(model).max() > 0.1
    for count in ("participants", "lost", "dropped", "refused"):
        assert [row[count] for row in history] == of_simulation[count].tolist()


@pytest.mark.slow
def test_cohorts_weights_and_schedules_are_those_of_the_simulation():
    federation = federation_of("fed_dyn", weights="examples")
    plan = federation.plan._replace(cohort=fcojax.uniform_cohort(cohort_size=2))
    schedule = fcojax.schedule(np.linspace(0.05, 0.01, NUM_ROUNDS))
    hparams = federation.hparams._replace(client_lr=schedule)
    federation = dataclasses.replace(federation, plan=plan, hparams=hparams)
    sites = Sites(federation, **FAULTS)
    model, history = flower.coordinate(federation, sites.transport, KEY, num_rounds=NUM_ROUNDS)
    expected, of_simulation = simulated(federation, KEY, sites.lost)
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
    assert [row["lost"] for row in history] == of_simulation["lost"].tolist()
    assert {row["participants"] for row in history} == {2.0}


@pytest.mark.slow
def test_an_upload_that_is_not_finite_is_dropped_and_a_long_one_left_out():
    federation = federation_of("scaffold")
    bounded = uploads.chain(federation.plan.uploads, fcojax.norm_bound(10.0))
    plan = federation.plan._replace(uploads=bounded)
    federation = dataclasses.replace(federation, plan=plan)
    sites = Sites(federation)
    sites.rows["Cork"]["y"] = np.full(9, 1e300)  # its steps overflow
    model, history = flower.coordinate(federation, sites.transport, KEY, num_rounds=NUM_ROUNDS)
    data = fcojax.from_clients([sites.rows[name] for name in NAMES])
    expected, of_simulation = fcojax.run(
        federation.algorithm,
        federation.hparams,
        federation.params,
        data,
        KEY,
        plan,
        num_rounds=NUM_ROUNDS,
    )
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
    for count in ("dropped", "left_out"):
        assert [row[count] for row in history] == of_simulation[count].tolist()
    assert sum(row["dropped"] + row["left_out"] for row in history) >= NUM_ROUNDS


@pytest.mark.slow
def test_a_server_that_was_killed_goes_on_from_its_last_round(tmp_path):
    federation = federation_of("scaffold")
    sites = Sites(federation, **FAULTS)

    class Killed(Exception):
        pass

    def killed(messages):
        replies = sites.exchange(messages)
        if safetensors.loads(messages["Cork"])[1]["round"] == "9":
            raise Killed  # the sites have replied, and no reply is kept
        return replies

    given = {"num_rounds": NUM_ROUNDS, "checkpoints": tmp_path / "run"}
    with pytest.raises(Killed):
        flower.coordinate(federation, flower.Transport(sites.join, killed), KEY, **given)
    model, history = flower.coordinate(
        federation, sites.transport, KEY, run="another name", **given
    )
    np.testing.assert_allclose(model, simulated(federation, KEY, sites.lost)[0], rtol=0, atol=1e-12)
    assert [row["round"] for row in history] == list(range(10, NUM_ROUNDS + 1))
    alone = flower.in_process(federation, {"Bern": rows_of()["Bern"]})
    stronger = dataclasses.replace(
        federation, hparams=federation.hparams._replace(penalty_scale=jnp.array(0.2))
    )
    for other, transport, key, change in (
        (federation, alone, KEY, "rows of Antwerp is '7' there and 'absent' now"),
        (stronger, sites.transport, KEY, r"penalty_scale is '.*0\.1' there and '.*0\.2' now"),
        (federation, sites.transport, jax.random.key(0), "key is"),
    ):
        with pytest.raises(ValueError, match=f"has another run: .*{change}.*; continue that one"):
            flower.coordinate(other, transport, key, **given)


@pytest.mark.slow
def test_a_server_with_an_older_folder_goes_on_if_sites_have_no_state(tmp_path):
    for name in ("fed_dual_avg", "scaffold"):
        federation, folder = federation_of(name), tmp_path / name
        sites = flower.in_process(federation, rows_of())
        given = {"key": KEY, "checkpoints": folder}
        flower.coordinate(federation, sites, num_rounds=2, **given)
        shutil.copytree(folder, tmp_path / "older" / name)
        flower.coordinate(federation, sites, num_rounds=5, **given)
        given["checkpoints"] = tmp_path / "older" / name
        if name == "scaffold":
            said = "no site can go on. Site Antwerp: .* has not kept its state after round 2; resto"
            with pytest.raises(ValueError, match=said):
                flower.coordinate(federation, sites, num_rounds=5, **given)
        else:
            model, history = flower.coordinate(federation, sites, num_rounds=5, **given)
            expected, _ = simulated(federation, KEY, num_rounds=5)
            np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
            assert [row["round"] for row in history] == [3, 4, 5]


def test_a_checkpoint_is_written_again_if_orbax_gives_up(tmp_path, monkeypatch):
    federation, tries = federation_of("fed_dual_avg"), []
    save = ocp.save

    def impatient(*args, **kwargs):
        tries.append(args)
        save(*args, **kwargs)
        if len(tries) == 1:
            raise TimeoutError

    monkeypatch.setattr(ocp, "save", impatient)
    sites = flower.in_process(federation, rows_of())
    for num_rounds, more in ((1, 1), (2, 1)):
        _, history = flower.coordinate(
            federation, sites, KEY, num_rounds=num_rounds, checkpoints=tmp_path
        )
        assert len(history) == more
    assert len(tries) == 3


def test_only_the_owner_can_read_a_checkpoint_which_has_the_key(tmp_path):
    federation = federation_of("fed_dyn")
    sites = flower.in_process(federation, rows_of())
    flower.coordinate(federation, sites, KEY, num_rounds=1, checkpoints=tmp_path)
    (saved,) = tmp_path.glob("round_*")
    assert not [path for path in (saved, *saved.rglob("*")) if path.stat().st_mode & 0o077]


def test_two_servers_do_not_write_to_one_folder(tmp_path):
    federation = federation_of("fed_dyn")
    given = {"num_rounds": 1, "checkpoints": tmp_path}

    def again(row):
        with pytest.raises(ValueError, match="another run is writing to .*; end it, or pass"):
            flower.coordinate(federation, flower.in_process(federation, rows_of()), KEY, **given)

    sites = flower.in_process(federation, rows_of())
    flower.coordinate(federation, sites, KEY, progress=again, **given)


def assert_lost_and_named_once(history, model, federation, lost, caplog, said):
    expected, wanted = simulated(federation, KEY, lost, num_rounds=len(history))
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
    assert [row["lost"] for row in history] == wanted["lost"].tolist()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"site Bern: its answer does not count: it {said}")


def test_a_site_whose_rows_have_changed_is_lost_and_named_once(caplog):
    federation = federation_of("fed_dyn")
    sites = Sites(federation)

    def grow(row):
        sites.rows["Bern"] = {name: np.concatenate([x, x]) for name, x in rows_of()["Bern"].items()}

    model, history = flower.coordinate(
        federation, sites.transport, KEY, num_rounds=3, progress=grow
    )
    said = "has 8 rows and had 4 when the run began; restore them, or begin a new run."
    assert_lost_and_named_once(history, model, federation, {(1, 1), (2, 1)}, caplog, said)


def test_a_site_that_has_lost_its_state_is_lost_and_named_once(caplog):
    federation = federation_of("scaffold")
    sites = Sites(federation)

    def forget(row):
        if row["round"] == 4:
            sites.kept["Bern"] = None

    model, history = flower.coordinate(
        federation, sites.transport, KEY, num_rounds=6, progress=forget
    )
    said = "has not kept its state after round 4; restore it, or begin a new run."
    assert_lost_and_named_once(history, model, federation, {(4, 1), (5, 1)}, caplog, said)


@pytest.mark.slow
def test_the_certificate_stops_the_run_where_it_holds():
    other = {"loss": loss, "penalty": l1()}
    federation = federation_of("composite_fl", **other)
    hparams = federation.hparams._replace(client_lr=jnp.array(0.2))
    federation = dataclasses.replace(federation, plan=fcojax.local_steps(1), hparams=hparams)
    transport = flower.in_process(federation, rows_of())
    model, history = flower.coordinate(
        federation, transport, KEY, num_rounds=1000, eval_every=5, tolerance=0.3
    )
    data = fcojax.from_clients([rows_of()[name] for name in NAMES])
    violation = fcojax.kkt_violation(loss, l1(), 0.1, model, data)
    assert history[-1]["violation"] == pytest.approx(float(violation), abs=1e-12)
    assert history[-1]["violation"] <= 0.3 and 5 < len(history) < 1000 and len(history) % 5 == 0
    assert all(row["violation"] > 0.3 for row in history[:-1] if "violation" in row)
    with pytest.raises(ValueError, match="tolerance needs a certificate"):
        flower.coordinate(federation_of("fed_avg"), transport, KEY, num_rounds=1, tolerance=0.1)


def other_loss(w, rows):
    return jnp.abs(rows["x"] @ w - rows["y"])


other_loss.__qualname__ = "loss"


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        (
            lambda: fcojax.algorithms.fed_mid(loss, euclidean(l1())),
            r"federation: method is .*fed_mid.* there and .*fed_dual_avg",
        ),
        (
            lambda: fcojax.algorithms.fed_dual_avg(loss, euclidean(group_l2(axis=0))),
            r"federation: algorithm.* is .*group_l2.* there and .*l1.* at the server",
        ),
        (
            lambda: fcojax.algorithms.fed_dual_avg(other_loss, euclidean(l1())),
            "another program of the same name",
        ),
    ],
    ids=["algorithm", "penalty", "loss"],
)
def test_a_wrong_peer_is_refused_in_a_sentence(algorithm, sentence):
    federation = federation_of("fed_dual_avg")
    made = algorithm()
    hparams = made.hparams_type(*federation.hparams)
    wrong = dataclasses.replace(federation, algorithm=made, hparams=hparams)
    transport = flower.in_process(wrong, rows_of())
    with pytest.raises(ValueError, match=f"site Antwerp runs.*{sentence}"):
        flower.coordinate(federation, transport, KEY, num_rounds=1)


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize(
    "cohort", [fcojax.everyone(), fcojax.coin_flips(0.5)], ids=["all", "flips"]
)
@pytest.mark.parametrize("name", ["fed_avg", "fed_dual_avg"])
@pytest.mark.filterwarnings("ignore:delta is")
def test_a_private_run_over_sites_is_the_simulation_with_its_noise_and_epsilon(name, cohort):
    """Also with lost uploads and, with coin flips, in rounds without any site."""
    federation = federation_of(name, weights={"Antwerp": 2.0, "Bern": 1.0, "Cork": 3.0})
    plan = fcojax.Plan(federation.plan.work, cohort, uploads=privacy.gaussian(0.5, noise=3.0))
    epsilon = 1.001 * privacy.epsilon(plan, 3, 6, 1e-2)
    num_rounds = privacy.rounds_within(epsilon, 1e-2, plan, 3)
    federation = dataclasses.replace(federation, plan=plan)
    lost = frozenset({(1, 0), (2, 2)})
    sites = Sites(federation, dropped=lost)
    model, history = flower.coordinate(federation, sites.transport, KEY, num_rounds=num_rounds)
    assert len(history) == 6
    unlimited = dataclasses.replace(federation, plan=plan, weights=[2.0, 1.0, 3.0])
    expected, _ = simulated(unlimited, KEY, lost, num_rounds=6)
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)


def test_noise_that_would_guarantee_nothing_over_sites_is_refused_in_a_sentence():
    federation = federation_of("fed_avg")
    private = fcojax.Plan(fcojax.local_steps(2), uploads=privacy.gaussian(1.0, noise=1.0))
    epochs = private._replace(work=fcojax.local_epochs(1, batch_size=2))
    for weights, plan, sentence in (
        ("examples", private, "sites state their own numbers of rows; pass weights="),
        (None, epochs, "sites of different sizes take different numbers of steps"),
    ):
        wrong = dataclasses.replace(federation, plan=plan, weights=weights)
        with pytest.raises(ValueError, match=sentence):
            flower.coordinate(wrong, flower.in_process(wrong, rows_of()), KEY, num_rounds=1)


def test_work_by_the_round_is_refused_where_it_is_written():
    with pytest.raises(ValueError, match="without by_round"):
        dataclasses.replace(federation_of("scaffold"), plan=fcojax.local_steps(2, by_round=[1, 2]))


def counting(open_):
    """A transform whose client counts its uploads, with what the server does about it."""

    def init(payload):
        return jnp.zeros((), int), ()

    def send(at, payload, count):
        return uploads.Sent(payload, count + 1)

    facts = uploads.Facts(leaves_out="left_out")
    return uploads.UploadTransform("counting", init, send, open=open_, facts=facts)


MEDIAN = robust.median()


@pytest.mark.parametrize(
    ("algorithm", "changes", "sentence"),
    [
        ("fed_avg", {"aggregator": MEDIAN}, "pass the plain mean with error feedback"),
        ("fed_avg", {"uploads": uploads.inverse_probability("known")}, "weights 1/q are for sim"),
        ("fed_avg", {"uploads": uploads.inverse_probability("estimated")}, "no copy of it"),
        (
            "fed_avg",
            {"uploads": counting(lambda at, sent, count, _: uploads.Opened(sent, count < 3))},
            "no copy of it",
        ),
        ("fed_avg", {"broadcast": uploads.ef21p(uploads.top_k(2))}, "messages .* are sent whole"),
        ("composite_fl", {"uploads": uploads.ef21(uploads.top_k(2))}, "depends on fraction"),
        (
            "fed_pd",
            {"uploads": uploads.ef14(uploads.top_k(2))},
            "another meaning in this algorithm",
        ),
    ],
    ids=[
        "a rule and ef21",
        "known 1/q",
        "estimated 1/q",
        "a count",
        "a broadcast",
        "fraction",
        "fed_pd and ef14",
    ],
)
def test_a_plan_that_a_server_of_sites_cannot_run_is_refused_before_any_round(
    algorithm, changes, sentence
):
    """``ef21`` is in the plan of ``fed_avg``, and its estimates are at the sites."""
    federation = federation_of("fed_avg" if algorithm == "fed_pd" else algorithm)
    if algorithm == "fed_pd":
        made = fcojax.algorithms.fed_pd(loss)
        federation = dataclasses.replace(federation, algorithm=made, hparams=made.hparams_type())
    federation = dataclasses.replace(federation, plan=federation.plan._replace(**changes))
    sites = Sites(federation)
    with pytest.raises(ValueError, match=sentence):
        flower.coordinate(federation, sites.transport, KEY, num_rounds=1)
    assert all(len(seen) == 1 for seen in sites.seen.values())  # the introduction


QSGD = uploads.compressed(uploads.qsgd(7))
LATE = clock.deadline(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]), 1.5)
CHAINS = {
    "compressed": QSGD,
    "ef14": uploads.ef14(uploads.top_k(2)),
    "ef21": uploads.ef21(uploads.top_k(2)),
    "gaussian": privacy.gaussian(0.1, noise=0.5),
    "dropout": fcojax.dropout(0.3),
    "norm_bound": fcojax.norm_bound(0.8),
    "a secure sum": uploads.modular_sum(1e-6, bits=24),
    "several": uploads.chain(
        attacks.attacked((1,), attacks.scaled(-2.0)),
        QSGD,
        privacy.gaussian(0.1, noise=0.5),
        fcojax.norm_bound(0.8),
        LATE,
        fcojax.dropout(0.2),
    ),
    "memory and losses": uploads.chain(
        uploads.ef21(uploads.top_k(2)), fcojax.norm_bound(0.8), LATE, fcojax.dropout(0.2)
    ),
}


FLIP = attacks.inner_product(2.0)
CHAINS["a rule under attack"] = uploads.chain(attacks.attacked((1,), FLIP), QSGD)


@pytest.mark.parametrize("name", CHAINS)
def test_two_sites_run_a_chain_with_the_bits_of_the_simulation(name):
    """Of equal sizes and weights: then padding and the order of a sum change no bit."""
    rows = {site: {k: x[:4] for k, x in rows_of()[site].items()} for site in NAMES[:2]}
    federation = federation_of("fed_avg", weights=dict.fromkeys(rows, 1.0))
    plan = federation.plan._replace(uploads=CHAINS[name], client_chunk_size=1)
    if name == "a rule under attack":
        plan = plan._replace(aggregator=attacks.seeing_all(FLIP, MEDIAN))
    federation = dataclasses.replace(federation, plan=plan)
    transport = flower.in_process(federation, rows)
    model, history = flower.coordinate(federation, transport, KEY, num_rounds=8)
    given = federation.hparams, federation.params, fcojax.from_clients(list(rows.values()))
    expected, of_simulation = fcojax.run(federation.algorithm, *given, KEY, plan, num_rounds=8)
    np.testing.assert_array_equal(model, expected)
    assert np.abs(model).max() > 0.1
    for measure in of_simulation.keys() - {"round", "bytes_up", "bytes_down"}:
        found = [row[measure] for row in history]
        np.testing.assert_array_equal(found, of_simulation[measure], err_msg=measure)


def test_an_upload_whose_opening_is_not_finite_is_dropped_and_a_metric_of_nobody_is_nan():
    """As in a simulation, whose clients are opened where they work."""

    def overflows(at, payload, state, server):
        wide = jnp.where((at.client == 1) | (at.round == 1), jnp.inf, 1.0)
        return uploads.Opened([wide * leaf for leaf in payload], metrics={"one": jnp.ones(())})

    federation = federation_of("fed_avg")
    plan = federation.plan._replace(uploads=uploads.UploadTransform("overflows", open=overflows))
    federation = dataclasses.replace(federation, plan=plan)
    sites = Sites(federation, dropped=frozenset({(0, 1)}))
    with pytest.warns(UserWarning, match="only 2 of 3 rounds have changed the model"):
        model, history = flower.coordinate(federation, sites.transport, KEY, num_rounds=3)
    with pytest.warns(UserWarning, match="became non-finite"):
        expected, of_simulation = simulated(federation, KEY, num_rounds=3)
        jax.block_until_ready(of_simulation)
        simulated(federation, KEY, num_rounds=1)  # the next call warns of the run before
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
    assert [row["dropped"] for row in history] == [0, 3, 1]
    assert [row["lost"] for row in history] == [1, 0, 0]
    assert of_simulation["dropped"].tolist() == [1, 3, 1]
    np.testing.assert_array_equal([row["one"] for row in history], [1, np.nan, 1])
    np.testing.assert_array_equal(of_simulation["one"], [1, np.nan, 1])


def test_a_run_whose_sites_are_all_late_warns():
    federation = federation_of("fed_avg")
    late = clock.deadline(np.array([[9.0], [1.0]]) * np.ones(3), 5.0)
    federation = dataclasses.replace(federation, plan=federation.plan._replace(uploads=late))
    sites = Sites(federation)
    with pytest.warns(UserWarning, match="none of 1 rounds .*: 0 uploads were lost, 3 late, 0 not"):
        flower.coordinate(federation, sites.transport, KEY, num_rounds=1)


@pytest.mark.parametrize("package", [fcojax, fcojax_sites], ids=lambda package: package.__name__)
def test_a_peer_of_another_version_is_refused_in_a_sentence(monkeypatch, package):
    federation, old = federation_of("fed_dual_avg"), federation_of("fed_dual_avg")
    name = package.__name__.replace("_", "-")
    with monkeypatch.context() as patch:
        patch.setattr(package, "__version__", "0.1")
        assert old.description[name] == "0.1"
    with pytest.raises(ValueError, match=rf"site Antwerp .*: {name} is '0.1' there and '0.4"):
        flower.coordinate(federation, flower.in_process(old, rows_of()), KEY, num_rounds=1)
    # Sites that were replaced during the run refuse to work.
    sites = Sites(federation)

    def exchange(row):
        sites.federation = old

    said = "no site can go on. Site Antwerp: .*: it runs another federation than the server"
    with pytest.raises(ValueError, match=said):
        flower.coordinate(federation, sites.transport, KEY, num_rounds=3, progress=exchange)


@pytest.mark.parametrize("name", ["scaffold", "rand_k"])
def test_rows_and_states_do_not_travel(name):
    federation = federation_of(name)
    sites = Sites(federation)
    flower.coordinate(federation, sites.transport, KEY, num_rounds=4)
    for site in NAMES:
        kept, _ = safetensors.loads(sites.kept[site])
        residuals = [array for place, array in kept.items() if "residuals" in place]
        assert len(residuals) == (2 if name == "scaffold" else 0)
        secret = [*sites.rows[site].values(), *residuals]
        numbers = {number.tobytes() for array in secret for number in array.ravel() if number}
        for reply in sites.seen[site]:
            arrays, _ = safetensors.loads(reply)
            assert not [array for array in arrays if array.startswith(("states", "residuals"))]
            body = reply[8 + int.from_bytes(reply[:8], "little") :]
            sent = {body[place : place + 8] for place in range(0, len(body), 8)}
            assert not sent & numbers


def test_the_key_of_the_run_does_not_travel_and_encodings_are_short():
    federation = federation_of("rand_k")
    sites, messages = Sites(federation), []

    def exchange(given):
        messages.extend(given.values())
        return sites.exchange(given)

    flower.coordinate(federation, flower.Transport(sites.join, exchange), KEY, num_rounds=2)
    secret = np.asarray(jax.random.key_data(KEY)).tobytes()
    assert len(messages) == 6 and not [message for message in messages if secret in message]
    arrays, _ = safetensors.loads(sites.seen["Bern"][-1])
    # Three of six numbers, whose places both sides draw, and whether they are finite.
    assert sorted(array.nbytes for array in arrays.values()) == [1, 24]


def test_messages_that_are_damaged_are_refused():
    federation = federation_of("fed_dual_avg")
    transport = flower.in_process(federation, rows_of())
    joined = [
        flower.admitted(federation, reply)
        for reply in transport.join(flower.invitation(federation, "run"))
    ]
    server = flower.Server(federation, joined, "run")
    message = server.ask(server.start(KEY))["Bern"]
    for damaged in (b"", message[:20], message[:-3], b"PK" + message):
        with pytest.raises(ValueError, match="are not safetensors"):
            flower.answer(federation, "Bern", rows_of()["Bern"], None, damaged)
