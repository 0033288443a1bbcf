"""Transforms and chains that would run and be wrong are refused, in a sentence that names them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, attacks, clock, privacy, robust, tree, uploads
from fcojax.transforms import flat, named
from fcojax.uploads import Facts, Opened, Sent, UploadTransform, chain
from tests.support import federations

TOP, RAND = uploads.top_k(1), uploads.rand_k(2)


@functools.cache
def data():
    return fcojax.from_clients(federations.clients())


def started(transform=None, name="fed_avg", more=(), **options):
    """Start a run, and trace its first round."""
    factory = getattr(algorithms, name)
    chosen = factory(*more) if name == "partial_sharing" else factory(federations.loss, *more)
    plan = fcojax.Plan(fcojax.local_steps(2, 2), uploads=transform or chain(), **options)
    hparams, key = chosen.hparams_type(), jax.random.key(2)
    state = fcojax.start(chosen, hparams, federations.start(), data(), key, plan)
    fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=1)


def given(**functions):
    return lambda: started(UploadTransform("mine", **functions))


def changed(receive, init=lambda payload: ((), jnp.zeros(()))):
    return given(init=init, receive=receive)


def ended(finish):
    return lambda: started(aggregator=fcojax.Aggregator(finish=finish))


def sums(leaves):
    return [jnp.sum(leaf) for leaf in leaves]


# What a transform or an aggregator returns has the form of what it was given: a payload of another
# shape would broadcast in the mean.
FORMS = {
    "decode, shape": (given(decode=lambda at, wire, s: [x[None] for x in wire]), "decode"),
    "decode, dtype": (given(decode=lambda at, wire, s: jax.tree.map(jnp.int32, wire)), "decode"),
    "decode, length": (given(decode=lambda at, wire, s: wire[:-1]), "decode"),
    "send, state": (given(send=lambda at, payload, s: Sent(payload, jnp.zeros(2))), "send"),
    "send, shape": (given(send=lambda at, payload, s: Sent([x[None] for x in payload])), "chain"),
    "a size of the upload's numbers": (
        given(
            send=lambda at, payload, s: Sent(payload, num_bytes=jnp.sum(payload[1] != 0)),
            decode=lambda at, wire, s: wire,
        ),
        "num_bytes",
    ),
    "a weight without a name": (
        given(send=lambda at, payload, s: Sent(payload, weight=jnp.ones(()))),
        "leaves_out",
    ),
    "one leaf more": (given(open=lambda at, payload, *s: Opened([*payload, 1.0])), "chain"),
    "a sum": (
        given(receive=lambda at, found, w, s: (found._replace(mean=sums(found.mean)), s)),
        "chain",
    ),
    "memory, shape": (changed(lambda at, found, w, s: (found, s[None])), "receive"),
    "memory of None": (changed(lambda at, found, w, s: (found, None)), "receive"),
    "finish, mean": (ended(lambda h, total, w, memory, key: (sums(total), memory)), "finish mean"),
    "finish, memory": (
        ended(lambda h, total, w, memory, key: (total, jnp.zeros(3))),
        "finish memory",
    ),
}

PLAIN, NOISE = uploads.compressed(TOP), privacy.gaussian(1.0, noise=1.0)
KNOWN, GRID = uploads.inverse_probability("known"), uploads.modular_sum(0.1, 8)
BOUND, EF21 = fcojax.norm_bound(1.0), uploads.ef21(TOP)
LONGER = UploadTransform("longer", open=lambda at, payload, *s: Opened(tree.scale(9, payload)))
HEAVIER = UploadTransform("heavier", open=lambda at, payload, *s: Opened(payload, 9.0))
COUNTS = "participants", "dropped", "refused"


def together(*transforms):
    return lambda: started(chain(*transforms))


def compared(transform):
    return lambda: started(transform, aggregator=robust.median())


def with_ef14(name, *more):
    return lambda: started(uploads.ef14(TOP), name, more)


def sent_to_all(compressor):
    return lambda: started(broadcast=uploads.ef21p(compressor))


CHAINS = {
    "two compressors": (together(PLAIN, uploads.ef14(TOP)), "compressed ef14"),
    "two noises": (
        together(NOISE, privacy.gaussian(2.0, 1.0)),
        "gaussian(1.0 gaussian(2.0",
    ),
    # Compression grows norms.
    "compression of a clipped upload": (together(NOISE, PLAIN), "gaussian compressed"),
    "memory with noise": (together(EF21, NOISE), "ef21 noise"),
    "1/q with memory": (together(KNOWN, EF21), "inverse_probability ef21"),
    "1/q with noise": (together(KNOWN, NOISE), "inverse_probability gaussian"),
    "a longer upload": (together(LONGER, NOISE), "longer gaussian"),
    "a heavier client": (together(NOISE, HEAVIER), "heavier noise"),
    "a bound of integers": (together(GRID, BOUND), "modular_sum norm_bound"),
    "integers of a bound": (together(BOUND, GRID), "modular_sum norm_bound"),
    "integers compared": (compared(GRID), "modular_sum aggregator"),
    "noise compared": (compared(NOISE), "gaussian aggregator"),
    "1/q compared": (compared(KNOWN), "inverse_probability aggregator"),
    # Uploads of these change their meaning between rounds.
    "ef14 of mime": (with_ef14("mime"), "another meaning"),
    "ef14 of r_fed_svrg": (with_ef14("r_fed_svrg", flat()), "another meaning"),
    "ef14 of fed_pd": (with_ef14("fed_pd"), "another meaning"),
    **{
        f"a count named {name}": (
            together(UploadTransform("mine", facts=Facts(leaves_out=name))),
            f"leaves_out='{name}'",
        )
        for name in COUNTS
    },
    # Indices beyond the table would read the last client's seconds.
    "a deadline of others": (
        together(clock.deadline(np.arange(3.0), 3.0)),
        "deadline(3.0) made for 3 clients",
    ),
    "parts that are known": (
        lambda: started(
            name="partial_sharing",
            more=(algorithms.fed_avg, federations.loss, named("bias")),
            broadcast=uploads.ef21p(TOP),
        ),
        "without receiving it",
    ),
    "a broadcast that is not contractive": (sent_to_all(RAND), "pass contractive(rand_k(2))"),
    "more entries than there are": (together(uploads.compressed(uploads.top_k(9))), "k is 9"),
}


def composed(first, second):
    one = uploads.compressed(uploads.compose(first, second))
    return lambda: started(one)


def rounded(dtype):
    return lambda: GRID.send(uploads.At(None, 0, key=jax.random.key(0)), [jnp.zeros(3, dtype)], ())


FACTORIES = {
    "ef21": (lambda: uploads.ef21(RAND), "pass contractive(rand_k(2))"),
    "ef14": (lambda: uploads.ef14(uploads.drive()), "states no contraction"),
    "diana": (lambda: uploads.diana(TOP), "top_k(1) biased"),
    "marina": (lambda: uploads.marina(TOP), "top_k(1) biased"),
    "contractive": (lambda: uploads.contractive(uploads.drive()), "drive contraction"),
    "compose": (composed(uploads.sign(), uploads.half()), "first sign() top_k"),
    "ef14 of integers": (lambda: uploads.ef14(TOP).init([jnp.arange(3)]), "int64 no residual"),
    "a sum of float16": (rounded("float16"), "float16 not exact"),
    "a sum of integers": (rounded(int), "int64 not exact"),
    "noise without a norm": (lambda: privacy.gaussian(np.inf, noise=1.0), "infinite"),
    "a norm of zero": (lambda: privacy.gaussian(0.0), "clip"),
    "noise below zero": (lambda: privacy.gaussian(1.0, noise=-1.0), "noise"),
    "a share without noise": (
        lambda: privacy.gaussian(privacy.adaptive_clip(start=1.0, noise=0.5), noise=1.0),
        "adaptive_clip",
    ),
    "bands of an adaptive norm": (
        lambda: privacy.gaussian(privacy.adaptive_clip(start=1.0), 0.0, bands=(1.0, 0.5)),
        "a fixed norm",
    ),
    "bands of NaN": (lambda: privacy.gaussian(1.0, 1.0, bands=(1.0, np.nan)), "bands"),
    "bands from zero": (lambda: privacy.gaussian(1.0, 1.0, bands=(0.0, 1.0)), "bands"),
    "no bands": (lambda: privacy.gaussian(1.0, 1.0, bands=()), "bands"),
    "an attack that sees nothing": (lambda: attacks.seeing_all(attacks.scaled(2.0)), "attack"),
    "half of the clients": (lambda: robust.krum(0.5), "share"),
}


@pytest.mark.parametrize("case", [*FORMS, *CHAINS, *FACTORIES])
def test_what_would_run_and_be_wrong_is_refused(case):
    call, words = (FORMS | CHAINS | FACTORIES)[case]
    with pytest.raises(ValueError) as error:
        call()
    found = [words] if "pass" in words or "another" in words else words.split()
    assert all(word in str(error.value) for word in found), str(error.value)
