"""What FedPD, FedDyn and their solvers refuse, and what they put on the wire."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_dyn, fed_pd
from fcojax.algorithms.local_solvers import exact, variance_reduced
from fcojax.engine.plan import Plan
from fcojax.problems import factored, factored_loss
from tests.support import federations

pytestmark = pytest.mark.gate

KEY = jax.random.key(0)
OPTIONS = {"num_rounds": 4, "plan": fcojax.local_steps(1)}


@functools.cache
def population():
    return fcojax.from_clients(federations.clients())


def untraceable(params, rows):
    raise AssertionError("the loss was traced")


@pytest.mark.parametrize(
    ("cohort", "hparams", "message"),
    [
        (fcojax.uniform_cohort(cohort_size=3), {}, "leave some of the 5 clients out"),
        (fcojax.coin_flips(0.9), {}, "everyone()"),
        (None, {"skip_probability": fcojax.schedule(np.ones(4))}, "skip_probability is"),
    ],
)
def test_fed_pd_is_refused_before_anything_is_traced(cohort, hparams, message):
    with pytest.raises(ValueError) as error:
        fcojax.run(
            fed_pd(untraceable),
            fed_pd.Hparams(**hparams),
            federations.start(),
            population(),
            KEY,
            Plan(OPTIONS["plan"], cohort or fcojax.everyone()),
            num_rounds=4,
        )
    assert message in str(error.value)


def two_rows_each():
    rows = factored(federations.loss, population(), federations.start()).examples
    return fcojax.from_rows(jax.tree.map(lambda leaf: jnp.repeat(leaf, 2, axis=0), rows), [2] * 5)


@pytest.mark.parametrize(
    ("loss", "make", "found"),
    [
        (federations.loss, population, "up to 7 examples of type dict"),
        (factored_loss, two_rows_each, "up to 2 examples of type Factored"),
    ],
)
@pytest.mark.parametrize("factory", [fed_pd, fed_dyn])
def test_the_exact_solver_needs_factored_clients(factory, loss, make, found):
    with pytest.raises(ValueError) as error:
        chosen = factory(loss, solver=exact())
        fcojax.run(chosen, factory.Hparams(), federations.start(), make(), KEY, **OPTIONS)
    assert found in str(error.value)


@pytest.mark.slow
def test_a_client_sends_one_model_and_a_second_only_to_report_all():
    """A model is 5 numbers of 8 bytes; FedPD's message has one byte more, whether it is new."""
    chosen = {
        "FedPD": fed_pd(federations.loss),
        "variance reduced": fed_pd(federations.loss, solver=variance_reduced(refresh_every=2)),
        **{report: fed_dyn(federations.loss, report=report) for report in ("server", "sampled")},
        "all": fed_dyn(federations.loss, report="all"),
    }
    sent = {
        name: federations.bytes_each(
            algorithm,
            algorithm.hparams_type(),
            federations.start(),
            population(),
            fcojax.local_steps(1),
        )
        for name, algorithm in chosen.items()
    }
    assert sent == {
        "FedPD": (41, 40),
        "variance reduced": (41, 40),
        "server": (40, 40),
        "sampled": (40, 40),
        "all": (40, 80),
    }
