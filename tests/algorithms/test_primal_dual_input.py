"""Arguments that FedPD, FedDyn and their solvers refuse, and the bytes that they send."""

import functools

import pytest

import fcojax
from fcojax.algorithms import fed_dyn, fed_pd
from fcojax.algorithms.local_solvers import variance_reduced
from tests.support import federations

pytestmark = pytest.mark.gate


@functools.cache
def population():
    return fcojax.from_clients(federations.clients())


@pytest.mark.slow
def test_a_client_sends_one_model_and_a_second_only_to_report_all():
    """A model is 5 numbers of 8 bytes; FedPD's message has one more byte for whether it is new."""
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
