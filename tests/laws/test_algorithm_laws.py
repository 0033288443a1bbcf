"""A table of all algorithms, and the laws that each of them obeys; a new algorithm adds a row.

The laws are those of ``fcojax.check``, the public contract test.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.algorithms import Algorithm, takes
from fcojax.check import LAWS, subject_of
from fcojax.check.subject import Subject
from fcojax.transforms import euclidean, flat, l1, named, sphere
from fcojax.transforms.manifolds.manifold import Manifold
from tests.support import federations

CLIENTS = federations.quadratic_clients()


class Row(NamedTuple):
    """The arguments of an algorithm beside its loss.

    Attributes:
      descends: whether one step with everyone and no penalty is gradient descent.
    """

    geometry: object = None
    descends: bool = True


ROWS = {
    "fed_avg": Row(),
    "fed_avg_subgradient": Row(l1()),
    "fed_mid": Row(euclidean(l1())),
    "fed_mid_osp": Row(euclidean(l1())),
    "fed_dual_avg": Row(euclidean(l1())),
    "fed_dual_avg_osp": Row(euclidean(l1())),
    "fed_dual_avg_tracking": Row(euclidean(l1())),
    # These weight their steps, or extrapolate by one step.
    "fast_fed_dual_avg": Row(euclidean(l1()), descends=False),
    "mc_fed_dual_avg": Row(euclidean(l1()), descends=False),
    "fe_dual_ex": Row(euclidean(l1()), descends=False),
    "fed_mip": Row(euclidean(l1()), descends=False),
    "fed_gd": Row(),
    "local_sgd": Row(),
    # These minimise an augmented Lagrangian instead of a step; other tests have their limits.
    "fed_pd": Row(l1(), descends=False),
    "fed_dyn": Row(l1(), descends=False),
    "fed_opt": Row(),
    "fed_prox": Row(l1()),
    "fed_manifold": Row(sphere()),
    "r_fed_avg": Row(sphere()),
    "r_fed_prox": Row(sphere()),
    "r_fed_svrg": Row(sphere()),
    "fed_da": Row(l1(), descends=False),
    "fed_dr": Row(l1(), descends=False),
    "fed_admm": Row(l1(), descends=False),
    "fed_split": Row(descends=False),
    "composite_fl": Row(l1()),
    "scaffold": Row(l1()),
    "fast_scaffold": Row(l1(), descends=False),  # momentum
    "fed_normal_map": Row(l1()),
    "prox_skip": Row(l1()),
    "ditto": Row(l1()),
    "partial_sharing": Row(l1(), descends=False),  # clients first step on their own part
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


# Compiling takes a second per law and algorithm, so the default suite runs three laws on one
# algorithm of each kind. The laws "contract" and "sweeps" are in tests/check and tests/engine.
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


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].descends])
def test_one_step_without_penalty_or_constraint_is_gradient_descent(name):
    """K = 1, psi = 0, full batches and participation: every algorithm gives w - eta grad F(w)."""
    given = ROWS[name].geometry
    geometry = () if given is None else (flat() if isinstance(given, Manifold) else given,)
    hparams = rates(name)
    if "penalty_scale" in hparams._fields:
        hparams = hparams._replace(penalty_scale=0.0)
    exchanges = 2 if name in ("r_fed_svrg", "mime") else 1
    found, _ = fcojax.run(
        factory(name)(federations.quadratic, *geometry),
        hparams,
        point(name),
        fcojax.from_clients(CLIENTS),
        jax.random.key(0),
        num_rounds=3 * exchanges,
        plan=fcojax.local_steps(1),
    )
    expected = np.array(point(name))
    slope = jax.grad(lambda w, client: jnp.mean(federations.quadratic(w, client)))
    for _ in range(3):
        expected -= 0.05 * np.mean([slope(expected, client) for client in CLIENTS], axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
