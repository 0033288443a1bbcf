"""A table of all algorithms, and the laws that each of them obeys; a new algorithm adds a row.

The laws are those of ``fcojax.check``, the public contract test.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from fcojax import algorithms
from fcojax.algorithms import Algorithm, takes
from fcojax.check import LAWS, subject_of
from fcojax.check.subject import Subject
from fcojax.transforms import euclidean, l1, named, sphere
from tests.support import federations

CLIENTS = federations.quadratic_clients()


class Row(NamedTuple):
    """The arguments of an algorithm beside its loss."""

    geometry: object = None


ROWS = {
    "fed_avg": Row(),
    "fed_avg_subgradient": Row(l1()),
    "fed_mid": Row(euclidean(l1())),
    "fed_mid_osp": Row(euclidean(l1())),
    "fed_dual_avg": Row(euclidean(l1())),
    "fed_dual_avg_osp": Row(euclidean(l1())),
    "fed_dual_avg_tracking": Row(euclidean(l1())),
    "fast_fed_dual_avg": Row(euclidean(l1())),
    "mc_fed_dual_avg": Row(euclidean(l1())),
    "fe_dual_ex": Row(euclidean(l1())),
    "fed_mip": Row(euclidean(l1())),
    "fed_gd": Row(),
    "local_sgd": Row(),
    "fed_pd": Row(l1()),
    "fed_dyn": Row(l1()),
    "fed_opt": Row(),
    "fed_prox": Row(l1()),
    "fed_manifold": Row(sphere()),
    "r_fed_avg": Row(sphere()),
    "r_fed_prox": Row(sphere()),
    "r_fed_svrg": Row(sphere()),
    "fed_da": Row(l1()),
    "fed_dr": Row(l1()),
    "fed_admm": Row(l1()),
    "fed_split": Row(),
    "composite_fl": Row(l1()),
    "scaffold": Row(l1()),
    "fast_scaffold": Row(l1()),
    "fed_normal_map": Row(l1()),
    "prox_skip": Row(l1()),
    "ditto": Row(l1()),
    "partial_sharing": Row(l1()),
    "mime": Row(l1()),
}


@takes(algorithms.scaffold.Hparams, "penalty")
def partial_sharing(loss, penalty):
    """Share the first half of a vector by an exact method; the other half stays at the clients."""

    def joined(parts):
        return jnp.concatenate([parts["common"], parts["own"]])

    shared = algorithms.partial_sharing(
        lambda loss: algorithms.scaffold(loss, penalty, prox="feedback"),
        lambda parts, rows: loss(joined(parts), rows),
        named("own"),
        penalty=penalty,
    )
    return shared._replace(
        init=lambda hparams, w: shared.init(hparams, {"common": w[:2], "own": w[2:]}),
        model=lambda hparams, server: joined(shared.model(hparams, server)),
        client_model=lambda *given: joined(shared.client_model(*given)),
    )


def factory(name):
    return partial_sharing if name == "partial_sharing" else getattr(algorithms, name)


@functools.cache
def subject(name) -> Subject:
    return subject_of(factory(name), ROWS[name].geometry)


def build(name) -> Algorithm:
    return subject(name).build(federations.quadratic)


def rates(name, value=0.05):
    return factory(name).Hparams(client_lr=value)


def point(name, dtype=float):
    return jnp.asarray((0.4, -0.2, 0.8, 0.4), dtype)  # of unit norm, for the sphere


def test_every_algorithm_is_in_the_table():
    public = {name for name, value in vars(algorithms).items() if hasattr(value, "Hparams")}
    assert public | {"partial_sharing"} == set(ROWS)


# Compiling takes a second per law and algorithm, so the default suite runs each of three laws on
# algorithms of half of the kinds, and the gate each of the others. The laws "contract" and "sweeps"
# are in tests/check and tests/engine.
QUICK = ("order", "absent clients", "traces")
SLOW = (
    "identical clients",
    "weights",
    "dtype",
    "rates near zero",
    "upload dtype",
    "kept states",
    "fraction",
)
REPRESENTATIVES = (
    "fed_avg",
    "fed_dual_avg",
    "fed_pd",
    "fed_dyn",
    "fed_opt",
    "fed_manifold",
    "r_fed_svrg",
    "scaffold",
)


def mark(law, name):
    """Return the marks that decide when a law is tested on an algorithm."""
    if name in REPRESENTATIVES:
        number = (QUICK + SLOW).index(law) + REPRESENTATIVES.index(name)
        if number % 2 == 0:
            return [] if law in QUICK else [pytest.mark.slow, pytest.mark.gate]
    return pytest.mark.slow


LAWS_AND_NAMES = [
    pytest.param(law, name, marks=mark(law, name)) for law in QUICK + SLOW for name in ROWS
]


@pytest.mark.parametrize(("law", "name"), LAWS_AND_NAMES)
def test_laws(law, name):
    found = LAWS[law](subject(name))
    assert found.holds or (found.holds is None and not applies(law, name)), found.sentence


def applies(law, name):
    """Return whether a law has to hold; other laws may not apply."""
    if law == "absent clients":
        return not build(name).facts.needs_everyone
    has_state = bool(jax.tree.leaves(build(name).init(rates(name), point(name))[1]))
    if law == "kept states":
        return has_state
    return law != "fraction" or (has_state and not build(name).facts.needs_everyone)
