"""What is refused before anything is traced, for run and sweep alike."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

import fcojax
from fcojax.engine.check import check_hparams, check_run
from fcojax.engine.grid import product
from fcojax.engine.plan import Plan
from fcojax.problems import from_clients
from fcojax.types import Scalar
from tests import federations


class Numbers(NamedTuple):
    """One field of each kind, by its name."""

    client_lr: Scalar = 0.1
    prox_step: Scalar = 1.0
    penalty_scale: Scalar = 0.0
    skip_probability: Scalar = 0.0


def refuses_to_be_traced(*args):
    raise AssertionError("something was traced")


def needing_everyone():
    chosen = federations.algorithm("fed_avg")
    return chosen._replace(client_update=refuses_to_be_traced, needs_everyone=True)


@pytest.mark.parametrize(
    ("cohort", "called"),
    [
        (fcojax.uniform_cohort(4), "UniformCohort(cohort_size=4)"),
        (fcojax.coin_flips(1.0), "CoinFlips(probability=1.0)"),
    ],
)
@pytest.mark.parametrize("through_sweep", [False, True])
def test_an_algorithm_that_needs_everyone_is_not_given_less(cohort, called, through_sweep):
    data = from_clients(federations.clients())
    options = {"num_rounds": 2, "plan": Plan(fcojax.local_steps(1), cohort)}
    kind = fcojax.algorithms.fed_avg.Hparams
    with pytest.raises(ValueError) as error:
        if through_sweep:
            keys = jax.random.split(jax.random.key(0), 2)
            fcojax.sweep(
                needing_everyone(), product(kind), federations.start(), data, keys, **options
            )
        else:
            fcojax.run(
                needing_everyone(), kind(), federations.start(), data, jax.random.key(0), **options
            )
    message = str(error.value)
    assert f"the cohort is {called}, which can leave some of the 5 clients out" in message
    assert message.endswith("every one of them in every round; pass everyone().")
    assert "\n" not in message


def test_a_cohort_of_all_in_another_order_is_everyone():
    """The mean does not mind the order, so neither does the check."""
    data, rates = from_clients(federations.clients()), federations.hparams("fed_avg")
    for size, chosen in ((5, needing_everyone()), (4, federations.algorithm("fed_avg"))):
        plan = Plan(fcojax.local_steps(1), fcojax.uniform_cohort(size))
        check_run(chosen, plan, rates, data, jax.random.key(0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prox_step": 0.0}, "prox_step is 0.0; it must be finite and positive"),
        ({"skip_probability": 1.0}, "skip_probability is 1.0; it must be at least 0 and below 1"),
        ({"skip_probability": -0.1}, "skip_probability is -0.1; it must be finite and zero or"),
        (
            {"skip_probability": fcojax.schedule([0.5, 1.5])},
            "skip_probability is [0.5, 1.5]; it must be",
        ),
        ({"skip_probability": float("nan")}, "skip_probability is nan"),
    ],
)
def test_a_name_tells_the_range_of_its_number(changes, message):
    check_hparams(Numbers())
    with pytest.raises(ValueError) as error:
        check_hparams(Numbers(**changes))
    assert message in str(error.value)


def test_a_sweep_looks_at_every_point_of_its_grid():
    data = from_clients(federations.clients())
    grid = fcojax.algorithms.fed_avg.Hparams(jnp.array([0.1, -0.1]), jnp.ones(2))
    with pytest.raises(ValueError, match=r"client_lr is \[0.1, -0.1\]"):
        fcojax.sweep(
            federations.algorithm("fed_avg"), grid, federations.start(), data,
            jax.random.split(jax.random.key(0), 2), num_rounds=2, plan=fcojax.local_steps(1),
        )  # fmt: skip
