"""Bad sites: the run ends where it ends without their uploads, or in a sentence that names them."""

import collections
import dataclasses
import functools

import jax
import numpy as np
import pytest

from fcojax.transforms import l1
from fcojax_sites import flower, safetensors
from tests.flower import bad_peers
from tests.flower.bad_peers import ESCAPES, with_facts
from tests.flower.test_strengths import parts as path_parts
from tests.flower.three_sites import NAMES, federation_of, loss, rows_of, simulated

KEY = jax.random.key(5)
BAD = "Bern"


@functools.cache
def federation():
    """With states at the sites, compressed uploads of several arrays and a certificate."""
    return federation_of("scaffold", loss=loss, penalty=l1())


@functools.cache
def introductions():
    return flower.in_process(federation(), rows_of()).join(flower.invitation(federation(), "run"))


def new_server():
    sites = [flower.admitted(federation(), reply) for reply in introductions()]
    return flower.Server(federation(), sites, "run")


@functools.cache
def second_round():
    """The sites, the progress before the second round, its answers, and those on the model."""
    transport, server = flower.in_process(federation(), rows_of()), new_server()
    now = server.start(KEY)
    now, _ = server.step(now, transport.exchange(server.ask(now)))
    replies = transport.exchange(server.ask(now))
    return server.sites, now, replies, transport.exchange(server.ask_certificate(now))


def assert_named_once(caplog, name=BAD):
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith(f"site {name}: ") and line.isprintable() and len(line) < 400


def assert_named(error, name=f"site {BAD}"):
    text = str(error.value)
    assert name in text and text.isprintable() and len(text) < 1000, text


@pytest.mark.parametrize("kind", bad_peers.ROUND)
def test_a_bad_upload_is_a_lost_one(kind, caplog):
    sites, before, replies, _ = second_round()
    server = flower.Server(federation(), sites, "run")
    spoiled = bad_peers.ROUND[kind](replies[BAD])
    after, counts = server.step(before, replies | {BAD: spoiled})
    assert_named_once(caplog)
    server.step(before, replies | {BAD: spoiled})
    assert_named_once(caplog)
    others = {name: reply for name, reply in replies.items() if name != BAD}
    expected, wanted = server.step(before, others)
    assert counts == wanted and counts["lost"] == 1
    for part in ("server", "memory", "round", "counted"):
        found, one = getattr(after, part), getattr(expected, part)
        jax.tree.map(np.testing.assert_array_equal, found, one)


def test_an_upload_that_is_not_finite_is_that_of_a_lost_site_and_not_zeros():
    sites, before, replies, _ = second_round()
    server = flower.Server(federation(), sites, "run")
    spoiled = {BAD: with_facts(finite="False")(replies[BAD])}
    after, counts = server.step(before, replies | spoiled)
    lost, wanted = server.step(before, {name: replies[name] for name in NAMES if name != BAD})
    assert counts["dropped"] == wanted["lost"] == 1
    jax.tree.map(np.testing.assert_array_equal, after.server, lost.server)
    assert after.counted.tolist() == lost.counted.tolist()


@pytest.mark.parametrize("kind", bad_peers.CERTIFICATE)
def test_a_bad_certificate_is_a_missing_one(kind, caplog):
    sites, now, _, replies = second_round()
    server = flower.Server(federation(), sites, "run")
    found = server.certificate(now, replies)
    assert found["violation"] > 0 and not caplog.records
    assert server.certificate(now, replies | {BAD: bad_peers.CERTIFICATE[kind](replies[BAD])}) == {}
    assert_named_once(caplog)


@pytest.mark.parametrize("kind", bad_peers.NOT_FINITE)
def test_a_certificate_that_is_not_finite_is_named(kind, caplog):
    sites, now, _, replies = second_round()
    spoiled = bad_peers.NOT_FINITE[kind](replies[BAD])
    server = flower.Server(federation(), sites, "run")
    found = server.certificate(now, replies | {BAD: spoiled})
    assert not np.isfinite(found["objective"])
    assert_named_once(caplog)


def introduced_as(kind):
    spoil = (bad_peers.INTRODUCTION | bad_peers.NAMELESS)[kind]
    joined = [spoil(one) if index == 1 else one for index, one in enumerate(introductions())]
    transport = flower.Transport(lambda message: joined, lambda messages: {})
    return flower.coordinate(federation(), transport, KEY, num_rounds=1)


@pytest.mark.parametrize("kind", bad_peers.INTRODUCTION)
def test_a_bad_introduction_is_refused_by_name(kind):
    with pytest.raises(ValueError) as error:
        introduced_as(kind)
    name = "Antwerp" if kind == "the name of another" else BAD
    assert name in str(error.value)
    assert_named(error, "")


@pytest.mark.parametrize("kind", bad_peers.NAMELESS)
def test_an_introduction_without_a_name_is_refused_by_its_place(kind):
    with pytest.raises(ValueError) as error:
        introduced_as(kind)
    assert_named(error, "answer 2 of 3 to the invitation has no name, and its site is refused: ")


@dataclasses.dataclass
class Spoiled:
    """Three sites in this process, of which one spoils its answers.

    Attributes:
      spoil: ``(facts of the message, answer) -> what is sent``; ``None`` for no answer at all.
    """

    federation: flower.Federation
    spoil: object

    def __post_init__(self):
        self.inner = flower.in_process(self.federation, rows_of())

    @property
    def transport(self):
        return flower.Transport(self.inner.join, self.exchange)

    def exchange(self, messages):
        replies = self.inner.exchange(messages)
        if BAD in messages:
            facts = safetensors.loads(messages[BAD])[1]
            replies[BAD] = self.spoil(facts, replies[BAD])
            if replies[BAD] is None:
                del replies[BAD]
        return replies


def test_a_run_with_bad_uploads_is_that_in_which_they_are_lost(caplog):
    """Eighteen kinds, one in each but every sixth round, in which the site goes on."""
    kinds = list(bad_peers.ROUND.values())[:: len(bad_peers.ROUND) // 18]

    def spoil(facts, reply):
        index = int(facts["round"])
        if facts["kind"] == "round" and index % 6 != 5:
            return kinds[index](reply) or b""
        return reply

    sites = Spoiled(federation(), spoil)
    model, history = flower.coordinate(
        federation(), sites.transport, KEY, num_rounds=18, eval_every=18
    )
    lost = {(index, NAMES.index(BAD)) for index in range(18) if index % 6 != 5}
    expected, wanted = simulated(federation(), KEY, lost, num_rounds=18)
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
    assert [row["lost"] for row in history] == wanted["lost"].tolist()
    assert "violation" in history[-1]
    assert_named_once(caplog)


@pytest.mark.parametrize("name", ["fed_avg", "scaffold"])
def test_a_finite_upload_that_the_step_cannot_take_is_named_and_changes_nothing(name, caplog):
    """As if no site had answered: nothing of it is in the server's sums or in sites' states."""

    def spoil(facts, reply):
        return bad_peers.poisoned(1.7e308)(reply) if facts["round"] == "1" else reply

    federation = federation_of(name)
    hparams = federation.hparams._replace(client_lr=0.003, server_lr=10.0)
    federation = dataclasses.replace(federation, hparams=hparams)
    sites = Spoiled(federation, spoil)
    with pytest.warns(UserWarning, match="only 3 of 4 rounds .* 1 steps were not finite"):
        model, history = flower.coordinate(federation, sites.transport, KEY, num_rounds=4)
    assert [row["refused"] for row in history] == [0, 1, 0, 0]
    assert [row["dropped"] for row in history] == [0] * 4
    assert_named_once(caplog)
    lost = {(1, client) for client in range(len(NAMES))}
    expected, _ = simulated(federation, KEY, lost, num_rounds=4)
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
    assert np.abs(model).max() > 0.01


def test_a_run_goes_on_from_its_folder_with_a_bad_site(tmp_path):
    def spoil(facts, reply):
        return b"" if facts["kind"] == "round" and facts["round"] in "13" else reply

    def run(transport, **given):
        return flower.coordinate(federation(), transport, KEY, **given)

    whole, _ = run(Spoiled(federation(), spoil).transport, num_rounds=5)
    sites = Spoiled(federation(), spoil).transport
    run(sites, num_rounds=2, checkpoints=tmp_path)
    more = {"num_examples": "5", "program": f"tpu {'0' * 64}"}
    for kind, change in (("Bonn", {"site": "Bonn"}), ("Bern", more)):
        joined = [
            with_facts(**change)(reply) if index == 1 else reply
            for index, reply in enumerate(introductions())
        ]
        transport = flower.Transport(lambda message, joined=joined: joined, lambda messages: {})
        with pytest.raises(ValueError, match=f"has another run: rows of {kind}"):
            run(transport, num_rounds=5, checkpoints=tmp_path)
    model, history = run(sites, num_rounds=5, checkpoints=tmp_path)
    np.testing.assert_array_equal(model, whole)
    assert [row["lost"] for row in history] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("kind", ["round", "certificate"])
def test_a_site_that_says_that_it_cannot_go_on_ends_no_run(kind, caplog):
    def spoil(facts, reply):
        return with_facts(refused=ESCAPES * 100)(reply) if facts["kind"] == kind else reply

    sites = Spoiled(federation(), spoil)
    model, history = flower.coordinate(federation(), sites.transport, KEY, num_rounds=2)
    lost = {(index, NAMES.index(BAD)) for index in range(2)} if kind == "round" else set()
    expected, _ = simulated(federation(), KEY, lost, num_rounds=2)
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
    assert ("violation" in history[-1]) == (kind == "round")
    assert_named_once(caplog)


def test_a_run_that_no_site_can_continue_ends_with_what_one_of_them_said():
    def refused(messages):
        replies = sites.exchange(messages)
        return {name: with_facts(refused=ESCAPES * 100)(one) for name, one in replies.items()}

    sites = flower.in_process(federation(), rows_of())
    with pytest.raises(ValueError, match="no site can go on. Site Antwerp: ") as error:
        flower.coordinate(
            federation(), flower.Transport(sites.join, refused), KEY, num_rounds=2, eval_every=5
        )
    assert_named(error, "Antwerp")


def test_a_run_in_which_no_upload_counts_warns():
    sites = flower.in_process(federation(), rows_of())

    def exchange(messages):
        return {
            name: bad_peers.NOT_FINITE["NaN"](reply)
            for name, reply in sites.exchange(messages).items()
        }

    transport = flower.Transport(sites.join, exchange)
    with pytest.warns(UserWarning, match="none of 2 rounds have changed the model: 6 uploads were"):
        model, _ = flower.coordinate(federation(), transport, KEY, num_rounds=2, eval_every=5)
    assert not model.any()


def test_weights_by_name_are_those_in_order_and_admit_no_other_site():
    rows = rows_of()
    weights = {"Cork": 3.0, "Antwerp": 1.0, "Bern": 2.0}
    models = [
        flower.coordinate(
            dataclasses.replace(federation(), weights=given),
            flower.in_process(federation(), rows),
            KEY,
            num_rounds=2,
            eval_every=5,
        )[0]
        for given in (weights, [1.0, 2.0, 3.0])
    ]
    np.testing.assert_array_equal(*models)
    for given, sentence in (
        ({"Antwerp": 1.0, "Cork": 1.0}, "site Bern has no weight and is refused"),
        (weights | {"Delft": 1.0}, "site Delft has a weight and has not answered"),
    ):
        other = dataclasses.replace(federation(), weights=given)
        with pytest.raises(ValueError, match=sentence):
            flower.coordinate(other, flower.in_process(federation(), rows), KEY, num_rounds=1)


def always(kind, change):
    return lambda facts, reply, count: change(reply) if facts["kind"] == kind else reply


def first(number, kind, change):
    """Spoil the first answers of a kind."""
    return lambda facts, reply, count: (
        change(reply) if facts["kind"] == kind and count[kind] <= number else reply
    )


def after(number, kind, change):
    """Spoil the answers of a kind after these."""
    return lambda facts, reply, count: (
        change(reply) if facts["kind"] == kind and count[kind] > number else reply
    )


NAN, SILENT, DEEP = bad_peers.NOT_FINITE["NaN"], lambda reply: None, bad_peers.ROUND["deep JSON"]
REFUSAL = with_facts(refused=ESCAPES)
PATHS = {
    "no upload": (always("round", SILENT), "site Bern has not sent an upload in 10 rounds; start"),
    "bad uploads": (always("round", DEEP), "site Bern has not sent an upload in 10 rounds; start"),
    "no upload later": (after(5, "round", SILENT), "site Bern has not sent an upload in 10 rounds"),
    "uploads of NaN": (always("round", NAN), "site Bern has not sent an upload in 10 rounds"),
    "no gradient": (always("certificate", SILENT), "site Bern has not sent its gradient in 3 exch"),
    "bad gradients": (always("certificate", DEEP), "site Bern has not sent its gradient in 3 exch"),
    "no gradient later": (after(3, "certificate", SILENT), "site Bern has not sent its gradient"),
    "gradients of NaN": (always("certificate", NAN), "site Bern is not finite at the start of the"),
    "a refused round": (after(3, "round", REFUSAL), r"in 10 rounds; .* Site Bern: .*: it \\x1b"),
    "a refused gradient": (
        after(3, "certificate", REFUSAL),
        r"in 3 exchanges; .* Site Bern: .*: it \\x1b",
    ),
    "bad gradients at first": (first(2, "certificate", DEEP), None),
    "bad uploads at first": (first(3, "round", DEEP), None),
    "gradients of NaN later": (after(4, "certificate", NAN), None),
}


@pytest.mark.parametrize("kind", PATHS)
def test_a_path_with_a_bad_site_ends(kind, caplog):
    federation, _ = path_parts("fed_mid_osp")
    spoil, sentence = PATHS[kind]
    count = collections.Counter()

    def counted(facts, reply):
        count[facts["kind"]] += 1
        return spoil(facts, reply, count)

    sites = Spoiled(federation, counted)
    limits = {"strengths": 2, "least": 0.3, "tolerance": 1e-2, "eval_every": 20, "max_rounds": 100}
    if sentence is not None:
        with pytest.raises(ValueError, match=sentence) as error:
            flower.path(federation, sites.transport, KEY, **limits)
        assert_named(error)
        assert sum(count.values()) < 40
        return
    path = flower.path(federation, sites.transport, KEY, **limits)
    assert_named_once(caplog)
    if kind == "gradients of NaN later":
        assert path.outcome.diverged.any()
        return
    expected = flower.path(federation, flower.in_process(federation, rows_of()), KEY, **limits)
    assert path.outcome.solved.all()
    np.testing.assert_allclose(path.models, expected.models, atol=0.02)
