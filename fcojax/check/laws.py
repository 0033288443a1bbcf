"""What every algorithm has to obey, whatever it is good for.

Clients hold quadratics and take full gradients, so that nothing depends on luck.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.algorithms.work import local_steps
from fcojax.check.population import quadratic, quadratic_clients
from fcojax.check.subject import NOT_OF_CLIENTS, Finding, Subject
from fcojax.engine.cohort import Dropout, dropout, everyone, uniform_cohort
from fcojax.engine.grid import take
from fcojax.engine.luck import draw_cohort
from fcojax.engine.plan import Plan
from fcojax.engine.run import run
from fcojax.engine.state import State
from fcojax.engine.stepper import advance, start
from fcojax.engine.sweep import sweep
from fcojax.problems.clients import from_clients
from fcojax.types import PyTree

_POINT = (0.4, -0.2, 0.8, 0.4)  # of unit norm, for the sphere
_WORK, _CLIENT_LR = local_steps(2), 0.05
# Rates that are as good as zero, also after a server that divides by the size of uploads plus 1e-8,
# as Adam's does; and how far a model may still have moved, in shares of its largest entry or of 1.
_NO_STEP, _UNMOVED = 1e-12, 1e-3
_traces: list[None] = []


def _counted(w, rows):
    """The quadratics, and a count of how often they were traced."""
    _traces.append(None)
    return quadratic(w, rows)


def after(
    subject: Subject, clients: list[dict], *, cohort=None, num_rounds=2, weights=None, key=0
) -> State:
    """The state after a few rounds."""
    algorithm, hparams = subject.build(_counted), subject.hparams(client_lr=_CLIENT_LR)
    data, plan = from_clients(clients, weights), Plan(_WORK, cohort or everyone())
    point = jnp.asarray(_POINT, float)
    state = start(algorithm, hparams, point, data, jax.random.key(key), plan)
    if not num_rounds:
        return state
    return advance(algorithm, hparams, data, state, plan, num_rounds, eval_every=num_rounds)[0]


def apart(found: PyTree, expected: PyTree) -> float:
    """The largest difference between two trees, over the largest entry, or 1 if that is less."""
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))
    off = max((_apart(np.asarray(a, float), np.asarray(b, float)) for a, b in pairs), default=0.0)
    return float(off)


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    if not a.size:
        return 0.0
    return np.abs(a - b).max() / max(1.0, np.abs(b).max())


def contract(subject: Subject) -> Finding:
    """Its five functions fit together."""
    algorithm, hparams = subject.build(_counted), subject.hparams(client_lr=_CLIENT_LR)
    point, data = jnp.asarray(_POINT, float), from_clients(quadratic_clients())
    model, history = run(algorithm, hparams, point, data, jax.random.key(0), _WORK, num_rounds=3)
    if jnp.shape(model) != point.shape:
        return Finding(False, f"the model has shape {jnp.shape(model)}, the start {point.shape}")
    if int(history["dropped"].sum() + history["refused"].sum()) or not np.isfinite(model).all():
        return Finding(False, "an upload or a server step is not finite on plain quadratics")
    if not apart(model, point):
        return Finding(False, "after three rounds the model is still where it started")
    return Finding(True, "its five functions fit together, and three rounds move the model")


def order(subject: Subject) -> Finding:
    """The order of clients does not matter, and client states move with their clients."""
    places = np.array([3, 0, 4, 1, 2])
    clients = quadratic_clients()
    plain = after(subject, clients)
    shuffled = after(subject, [clients[place] for place in places])
    moved = jax.tree.map(lambda leaf: np.asarray(leaf)[places], plain.clients)
    off = apart((shuffled.server, shuffled.clients), (plain.server, moved))
    return _judged(off, "another order of the clients gives the same model and the same states")


def identical(subject: Subject) -> Finding:
    """Two clients that are alike do what one does alone."""
    alone, together = (after(subject, quadratic_clients()[:1] * n).server for n in (1, 2))
    return _judged(apart(together, alone), "two clients that are alike do what one does alone")


def weights(subject: Subject) -> Finding:
    """A client of weight two counts as two clients of weight one."""
    first, *others = quadratic_clients()
    twice = after(subject, [first, *others], weights=[2.0] + [1.0] * len(others))
    copied = after(subject, [first, first, *others])
    off = apart(twice.server, copied.server)
    return _judged(off, "a client of weight two counts as two clients of weight one")


def absent(subject: Subject) -> Finding:
    """Absent clients keep their states, and their data do not reach the server."""
    if subject.build(None).needs_everyone:
        return Finding(None, "it needs every client in every round")
    cohort, clients, first = uniform_cohort(2), quadratic_clients(), jnp.zeros((), jnp.int32)
    drawn = draw_cohort(Plan(_WORK, cohort), from_clients(clients), jax.random.key(4), first)
    away = np.setdiff1d(np.arange(len(clients)), np.asarray(drawn.members))
    elsewhere = [
        jax.tree.map(lambda leaf: 7 * leaf, client) if index in away else client
        for index, client in enumerate(clients)
    ]
    before = after(subject, clients, num_rounds=0)
    found, changed = (
        after(subject, one, cohort=cohort, num_rounds=1, key=4) for one in (clients, elsewhere)
    )
    if apart((found.server, found.clients), (changed.server, changed.clients)):
        return Finding(False, "the data of absent clients reach the server")
    kept = [jax.tree.map(lambda leaf: np.asarray(leaf)[away], s.clients) for s in (found, before)]
    if apart(*kept):
        return Finding(False, "the states of absent clients change")
    return Finding(True, "absent clients keep their states and do not reach the server")


def losses(subject: Subject) -> Finding:
    """A client whose upload is lost is as one that was absent."""
    if subject.build(None).needs_everyone:
        return Finding(None, "it needs every client in every round")
    lossy = dropout(everyone(), 0.4)
    assert isinstance(lossy, Dropout)
    states = [
        after(subject, quadratic_clients(), cohort=cohort, num_rounds=6)
        for cohort in (lossy, _Present((lossy,)))
    ]
    off = apart(*((state.server, state.clients) for state in states))
    return _judged(off, "a client whose upload is lost is as one that was absent")


class _Present(tuple):
    """Leaves those out whose uploads the sampler within loses."""

    can_be_absent = True

    def size(self, num_clients):
        return num_clients

    def __call__(self, key, round_index, num_clients, sizes=None):
        cohort = self[0](key, round_index, num_clients, sizes)
        there = jnp.where(cohort.arrives, cohort.weights, 0)
        return cohort._replace(weights=there, arrives=None)


def dtype(subject: Subject) -> Finding:
    """Single precision stays single precision."""
    narrow = functools.partial(jax.tree.map, lambda leaf: np.asarray(leaf, np.float32))
    algorithm, hparams = subject.build(quadratic), subject.hparams(client_lr=_CLIENT_LR)
    data = from_clients([narrow(client) for client in quadratic_clients()])
    point = jnp.asarray(_POINT, jnp.float32)
    model, _ = run(algorithm, hparams, point, data, jax.random.key(0), _WORK, num_rounds=2)
    fine = model.dtype == jnp.float32 and bool(np.isfinite(model).all())
    return Finding(fine, f"a model in float32 stays in {model.dtype}")


def traces(subject: Subject) -> Finding:
    """Numbers are arguments: other rates compile nothing anew, and do something."""
    algorithm, data = subject.build(_counted), from_clients(quadratic_clients())
    point, key = jnp.asarray(_POINT, float), jax.random.key(0)

    plain = subject.hparams()
    varied = ("client_lr",) if "client_lr" in plain._fields else plain._fields

    def model(value):
        factor = value / getattr(plain, "client_lr", 0.01)
        hparams = plain._replace(**{name: factor * getattr(plain, name) for name in varied})
        return run(algorithm, hparams, point, data, key, _WORK, num_rounds=2)[0]

    first = model(0.01)
    count = len(_traces)
    others = [model(value) for value in (0.02, 0.03)]
    if len(_traces) > count:
        return Finding(False, "every value is compiled anew: a number hides in a closure")
    if not all(apart(other, first) for other in others):
        return Finding(False, f"changing {', '.join(varied)} changes nothing")
    return Finding(True, "other numbers are the same compiled program")


def sweeps(subject: Subject) -> Finding:
    """A sweep over two points is two runs."""
    algorithm, data = subject.build(_counted), from_clients(quadratic_clients())
    point, key = jnp.asarray(_POINT, float), jax.random.key(0)
    both = [subject.hparams(client_lr=rate) for rate in (_CLIENT_LR, _CLIENT_LR / 2)]
    grid = jax.tree.map(lambda *values: jnp.stack([jnp.asarray(v, float) for v in values]), *both)
    options: dict[str, Any] = {"plan": _WORK, "num_rounds": 3}
    models, _ = sweep(algorithm, grid, point, data, key[None], **options)
    alone = [run(algorithm, take(grid, i), point, data, key, **options)[0] for i in range(2)]
    off = apart(models[:, 0], jnp.stack(alone))
    return _judged(off, "a sweep gives what single runs give")


def near_zero(subject: Subject) -> Finding:
    """With rates and prox steps near zero nothing happens, so uploads leave the model in place.

    So an upload has to be a difference; parts that are ``Public`` may be what they like. Rates and
    steps are known by names that end in ``_lr`` or ``_step``. Server rates are as they were: they
    would make any upload small.
    """
    plain = subject.hparams()
    rates = [
        name
        for name in plain._fields
        if name.endswith(("_lr", "_step")) and name not in NOT_OF_CLIENTS
    ]
    if not rates:
        return Finding(None, "no hyperparameter of it is a rate or a step of the clients")
    algorithm, data = subject.build(_counted), from_clients(quadratic_clients())
    hparams, point = plain._replace(**dict.fromkeys(rates, _NO_STEP)), jnp.asarray(_POINT, float)
    model, _ = run(algorithm, hparams, point, data, jax.random.key(0), _WORK, num_rounds=2)
    off = apart(model, point)
    if off <= _UNMOVED:
        return Finding(True, "with rates near zero uploads leave the model where it was")
    return Finding(
        False,
        f"with {' and '.join(rates)} near zero the model moves by {off:.2g}; upload differences, "
        "such as where a client ends minus what it was sent, and let every field that is a rate or "
        "a step, a prox step too, have a name that ends in _lr or _step",
    )


def _judged(off: float, sentence: str, tolerance: float = 1e-12) -> Finding:
    if off <= tolerance:
        return Finding(True, sentence)
    return Finding(False, f"not so, but off by {off:.2g}: {sentence}")


Law = Callable[[Subject], Finding]
LAWS: dict[str, Law] = {
    "contract": contract,
    "order": order,
    "identical clients": identical,
    "weights": weights,
    "absent clients": absent,
    "lost uploads": losses,
    "dtype": dtype,
    "traces": traces,
    "sweeps": sweeps,
    "rates near zero": near_zero,
}
