"""What a new user gets wrong first ends in a sentence with the way out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, attacks, clock, privacy, problems, uploads

X = np.ones((4, 2))
DATA = fcojax.from_clients([{"x": X, "y": np.ones(4)}] * 2)
FED_AVG = algorithms.fed_avg(lambda w, rows: 0.5 * (rows["x"] @ w - rows["y"]) ** 2)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: fcojax.from_clients([{"x": X, "y": X}, {"x": X}], ids=["a", "b"]),
            "client b has the fields x, but client a has x, y",
        ),
        (
            lambda: fcojax.from_clients([{"x": X, "y": np.array(list("abab"))}]),
            "the field y of client 0 is .*pass numbers, such as np.unique",
        ),
        (
            lambda: fcojax.run(
                FED_AVG, FED_AVG.hparams_type(), jnp.zeros(2), DATA, fcojax.local_steps(1)
            ),
            r"run\(\) missing 1 required positional argument: 'plan'",
        ),
        (lambda: algorithms.fed_avg.Hparams(lr=0.1), "unexpected keyword argument 'lr'"),
        (lambda: fcojax.uniform_cohort(5), r"uniform_cohort\(\) takes 0 positional arguments"),
        (
            lambda: problems.partition.dirichlet(np.linspace(0, 1, 40), 4, 0.5),
            "which is a number to predict, not a label",
        ),
    ],
)
def test_a_first_mistake_names_what_is_needed(call, said):
    with pytest.raises((TypeError, ValueError), match=said):
        call()


STEPS = fcojax.local_steps(1)
EVERYONE = fcojax.everyone()


def planned(**slots):
    hparams, key = FED_AVG.hparams_type(), jax.random.key(0)
    return fcojax.start(FED_AVG, hparams, jnp.zeros(2), DATA, key, fcojax.Plan(STEPS, **slots))


# Python itself names an argument that a plan no longer has.
OLD_CALLS = {
    "codec": (lambda: planned(codec=None), TypeError, "'codec'"),
    "correct": (lambda: planned(correct="known"), TypeError, "'correct'"),
    "*ef21": (
        lambda: fcojax.Plan(STEPS, EVERYONE, *uploads.ef21(uploads.top_k(1))),
        TypeError,
        "Plan",
    ),
    "gaussian": (
        lambda: planned(aggregator=privacy.gaussian(1.0, 2.0)),
        ValueError,
        "plan.aggregator is gaussian(1.0, 2.0); pass it as uploads=",
    ),
    "a cohort that loses": (
        lambda: planned(cohort=fcojax.dropout(0.1)),
        ValueError,
        "plan.cohort is dropout(0.1); pass it as uploads=",
    ),
    "dropout": (lambda: fcojax.dropout(EVERYONE, 0.1), TypeError, "uploads=fcojax.dropout("),
    "deadline": (
        lambda: clock.deadline(EVERYONE, np.ones(2), 5.0),
        TypeError,
        "uploads=clock.deadline(",
    ),
    "attacked": (
        lambda: attacks.attacked(FED_AVG, (0,), attacks.scaled(2.0)),
        TypeError,
        "uploads=attacks.attacked(",
    ),
    "seeing_all": (
        lambda: attacks.seeing_all(attacks.inner_product(), fcojax.Plan(STEPS)),
        ValueError,
        "aggregator is Plan(",
    ),
    "Codec": (lambda: fcojax.Codec, AttributeError, "Plan(uploads=...)"),
}


@pytest.mark.parametrize("name", OLD_CALLS)
def test_a_call_of_0_3_ends_in_a_sentence_about_the_new_one(name):
    call, kind, said = OLD_CALLS[name]
    with pytest.raises(kind) as raised:
        call()
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_an_attack_that_sees_all_needs_its_aggregator():
    with pytest.raises(ValueError, match=r"aggregator=seeing_all\(attack"):
        planned(uploads=attacks.attacked((0,), attacks.inner_product()))
