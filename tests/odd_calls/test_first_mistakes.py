"""What a new user gets wrong first ends in a sentence with the way out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, attacks, problems

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


def planned(**slots):
    hparams, key = FED_AVG.hparams_type(), jax.random.key(0)
    return fcojax.start(FED_AVG, hparams, jnp.zeros(2), DATA, key, fcojax.Plan(STEPS, **slots))


def test_an_attack_that_sees_all_needs_its_aggregator():
    with pytest.raises(ValueError, match=r"aggregator=attacks.seeing_all\(attack\)"):
        planned(uploads=attacks.attacked((0,), attacks.inner_product()))
