"""Laws that every algorithm obeys, for any problem.

Clients hold quadratics and take full gradients, so that minibatches add no randomness.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import (
    ClientData,
    Plan,
    State,
    advance,
    everyone,
    from_clients,
    local_steps,
    run,
    start,
    sweep,
    uniform_cohort,
)
from fcojax.algorithms import Algorithm
from fcojax.check.population import quadratic, quadratic_clients
from fcojax.check.subject import Finding, Subject
from fcojax.engine.hparams import take
from fcojax.engine.members import draw_cohort
from fcojax.types import Array, PyTree
from fcojax.uploads.transform import Sent, UploadTransform

_WORK, _CLIENT_LR = local_steps(2), 0.05
# A rate close enough to zero also for a server that divides by the size of uploads plus 1e-8, as
# Adam does; and the largest change of a model that counts as none, see ``difference``.
_NEAR_ZERO, _UNCHANGED = 1e-12, 1e-3
_SMALL = 1e-6  # duals divide displacements by it; their rounding error is 1e-16
_ROUNDS, _EXACT = 6, 1e-9  # rounds that are recorded, and the relative error of an equality there
# A transform that keeps each client's last upload, and changes none.
_RECORDER = UploadTransform(
    "recorder",
    init=lambda payload: (payload, ()),
    send=lambda at, payload, last: Sent(payload, payload),
)
_traces: list[None] = []


def _counted(w, rows):
    """Return the quadratic loss, and count its traces."""
    _traces.append(None)
    return quadratic(w, rows)


def recorded(
    subject: Subject, data=None, cohort=None, *, num_rounds=_ROUNDS, key=0, dtype=float, shift=0
) -> State:
    """Return the states before and after each round, stacked; ``residuals`` are the last uploads.

    Args:
      subject: the algorithm.
      data: the clients; those of ``_data`` by default.
      cohort: which clients take part; everyone by default.
      num_rounds: number of rounds.
      key: the seed.
      dtype: dtype of the start point and the examples.
      shift: a number that is added to the clients' states before the first round.
    """
    # The recorder changes no upload.
    algorithm = subject.build(_counted)
    algorithm = algorithm._replace(facts=algorithm.facts._replace(codecs="any"))
    plan = Plan(_WORK, cohort or everyone(), uploads=_RECORDER)
    hparams, data = subject.hparams(client_lr=_CLIENT_LR), data or _data(dtype)

    def shifted(leaf):
        return leaf + leaf.dtype.type(shift) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    def stacked(*leaves):
        is_key = jnp.issubdtype(jnp.result_type(leaves[0]), jax.dtypes.prng_key)
        return np.stack([jax.random.key_data(leaf) if is_key else leaf for leaf in leaves])

    first = start(algorithm, hparams, _point(dtype), data, jax.random.key(key), plan)
    states = [first._replace(clients=jax.tree.map(shifted, first.clients))]
    for _ in range(num_rounds):
        states.append(advance(algorithm, hparams, states[-1], data, plan, num_rounds=1)[0])
    found = jax.tree.map(stacked, *states)
    return found._replace(residuals=found.residuals[0])


def after(subject: Subject, clients: list[dict], weights=None) -> State:
    """Return the state after two rounds."""
    states = recorded(subject, from_clients(clients, weights), num_rounds=2)
    return jax.tree.map(lambda leaf: leaf[-1], states)


def trained(algorithm: Algorithm, hparams: Any, num_rounds=2, dtype=float) -> tuple:
    """Return the model and the history of a run without transforms."""
    data, key = _data(dtype), jax.random.key(0)
    return run(algorithm, hparams, _point(dtype), data, key, _WORK, num_rounds=num_rounds)


def _point(dtype: Any = float) -> Array:
    return jnp.asarray((0.4, -0.2, 0.8, 0.4), dtype)  # it has norm 1, for the sphere


def _data(dtype: Any = float) -> ClientData:
    return from_clients(jax.tree.map(lambda leaf: np.asarray(leaf, dtype), quadratic_clients()))


def difference(found: PyTree, expected: PyTree) -> float:
    """Return the largest difference of two trees relative to each leaf's largest entry, or to 1."""
    largest = 0.0
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(leaf, float), np.asarray(other, float)
        if a.size:
            # A maximum of arrays keeps NaN.
            largest = np.maximum(largest, np.abs(a - b).max() / max(1.0, np.abs(b).max()))
    return float(largest)


def contract(subject: Subject) -> Finding:
    """The five functions fit together, and the model moves."""
    point, hparams = _point(), subject.hparams(client_lr=_CLIENT_LR)
    model, history = trained(subject.build(_counted), hparams, num_rounds=3)
    if jnp.shape(model) != point.shape:
        return Finding(False, f"the model has shape {jnp.shape(model)}, the start {point.shape}")
    if int(history["dropped"].sum() + history["refused"].sum()) or not np.isfinite(model).all():
        return Finding(False, "an upload or a server step is not finite on plain quadratics")
    if not difference(model, point):
        return Finding(False, "three rounds do not change the model")
    return Finding(True, "the five functions fit together, and three rounds change the model")


def order(subject: Subject) -> Finding:
    """The order of clients does not matter, and client states move with their clients."""
    permutation = np.array([3, 0, 4, 1, 2])
    clients = quadratic_clients()
    plain = after(subject, clients)
    shuffled = after(subject, [clients[index] for index in permutation])
    moved = jax.tree.map(lambda leaf: np.asarray(leaf)[permutation], plain.clients)
    off = difference((shuffled.server, shuffled.clients), (plain.server, moved))
    sentence = "another order of the clients gives the same model and client states"
    return _equal(off, sentence, subject)


def identical(subject: Subject) -> Finding:
    """Two identical clients are equivalent to one."""
    alone, together = (after(subject, quadratic_clients()[:1] * n).server for n in (1, 2))
    off = difference(together, alone)
    return _equal(off, "two identical clients are equivalent to one", subject)


def weights(subject: Subject) -> Finding:
    """A client of weight two is equivalent to two clients of weight one."""
    first, *others = quadratic_clients()
    twice = after(subject, [first, *others], weights=[2.0] + [1.0] * len(others))
    copied = after(subject, [first, first, *others])
    off = difference(twice.server, copied.server)
    return _equal(off, "a client of weight two is equivalent to two of weight one", subject)


def absent(subject: Subject) -> Finding:
    """Absent clients keep their states, and their data do not affect the server."""
    if subject.build(None).facts.needs_everyone:
        return Finding(None, "it needs every client in every round")
    cohort, data, clients = uniform_cohort(cohort_size=2), _data(), quadratic_clients()
    first = jnp.zeros((), jnp.int32)
    drawn = draw_cohort(Plan(_WORK, cohort), data, jax.random.key(4), first)
    absentees = np.setdiff1d(np.arange(len(clients)), np.asarray(drawn.members))
    scaled = [
        jax.tree.map(lambda leaf: 7 * leaf, client) if index in absentees else client
        for index, client in enumerate(clients)
    ]
    found, changed = (
        recorded(subject, one, cohort, num_rounds=1, key=4) for one in (data, from_clients(scaled))
    )
    if difference((found.server, found.clients), (changed.server, changed.clients)):
        return Finding(False, "the data of absent clients affect the server")
    states = [leaf[:, absentees] for leaf in jax.tree.leaves(found.clients)]
    if difference([leaf[1] for leaf in states], [leaf[0] for leaf in states]):
        return Finding(False, "the states of absent clients change")
    return Finding(True, "absent clients keep their states and do not affect the server")


def dtype(subject: Subject) -> Finding:
    """Single precision stays single precision."""
    hparams = subject.hparams(client_lr=_CLIENT_LR)
    model, _ = trained(subject.build(quadratic), hparams, dtype=jnp.float32)
    is_single = model.dtype == jnp.float32 and bool(np.isfinite(model).all())
    return Finding(is_single, f"a start point in float32 gives a model in {model.dtype}")


def traces(subject: Subject) -> Finding:
    """Hyperparameters are traced: another value needs no compilation and changes the model."""
    algorithm, plain = subject.build(_counted), subject.hparams()
    varied = ("client_lr",) if "client_lr" in plain._fields else plain._fields

    def model(value):
        factor = value / getattr(plain, "client_lr", 0.01)
        hparams = plain._replace(**{name: factor * getattr(plain, name) for name in varied})
        return trained(algorithm, hparams)[0]

    first = model(0.01)
    count = len(_traces)
    others = [model(value) for value in (0.02, 0.03)]
    if len(_traces) > count:
        return Finding(False, "every value is compiled again: a number is captured in a closure")
    if not all(difference(other, first) for other in others):
        return Finding(False, f"changing {', '.join(varied)} changes nothing")
    return Finding(True, "other hyperparameters use the same compiled program")


def sweeps(subject: Subject) -> Finding:
    """A sweep over two points equals two runs."""
    algorithm, key = subject.build(_counted), jax.random.key(0)
    both = [subject.hparams(client_lr=rate) for rate in (_CLIENT_LR, _CLIENT_LR / 2)]
    grid = jax.tree.map(lambda *values: jnp.stack([jnp.asarray(v, float) for v in values]), *both)
    models, _ = sweep(algorithm, grid, _point(), _data(), key[None], _WORK, num_rounds=3)
    alone = [trained(algorithm, take(grid, place), num_rounds=3)[0] for place in range(2)]
    off = difference(models[:, 0], jnp.stack(alone))
    return _equal(off, "a sweep equals single runs")


def near_zero(subject: Subject) -> Finding:
    """With the clients' rates and prox steps near zero, uploads do not change the model.

    So an upload has to be a difference, except for its ``Public`` parts. Rates and steps are the
    fields of the hyperparameters that are annotated as ``fcojax.types.Positive``. ``server_lr``
    keeps its value: it would make any upload small.
    """
    plain, rates = subject.hparams(), subject.client_rates
    if not rates:
        return Finding(None, "no hyperparameter is a rate or a step of the clients")
    hparams = plain._replace(**dict.fromkeys(rates, _NEAR_ZERO))
    off = difference(trained(subject.build(_counted), hparams)[0], _point())
    if off <= _UNCHANGED:
        return Finding(True, "with rates near zero uploads do not change the model")
    return Finding(
        False,
        f"with {' and '.join(rates)} near zero the model changes by {off:.2g}; upload differences, "
        "such as the client's last point minus the model it was sent, and annotate every rate and "
        "prox step of the clients as fcojax.types.Positive",
    )


def differences(subject: Subject) -> Finding:
    """Where nobody has a reason to move, uploads are zero, except for their ``Public`` parts.

    All clients are given one minimiser, at which the run starts, no penalty, and rates near zero.
    Displacements of primal and dual points, gradients, and changes of the clients' states are zero
    there. A point is not zero, even if the server subtracts the point that it sent: compression and
    clipping would act on the point.
    """
    plain, rates = subject.hparams(client_lr=_CLIENT_LR), subject.client_rates
    if not rates:
        return Finding(None, "no hyperparameter is a rate or a step of the clients")
    still = dict.fromkeys(rates, _SMALL) | dict.fromkeys({"penalty_scale"} & {*plain._fields}, 0.0)
    clients = [{"A": rows["A"], "c": rows["A"] @ _point()} for rows in quadratic_clients()]
    subject = subject._replace(numbers=subject.numbers | still)
    sent = recorded(subject, from_clients(clients), num_rounds=1).residuals
    largest = difference([upload[1] for upload in sent], [np.zeros(u.shape[1:]) for u in sent])
    if largest <= _UNCHANGED:
        return Finding(True, "where no client has a reason to move, uploads are zero")
    return Finding(
        False,
        f"where no client has a reason to move, an upload is {largest:.2g} and not 0; upload "
        "differences, such as the client's last point minus the model it was sent, or compression "
        "and clipping act on the point",
    )


def upload_dtype(subject: Subject) -> Finding:
    """Uploads have the dtype of the model, except for their ``Public`` parts."""
    for dtype in (jnp.float32, float):
        model = jnp.result_type(dtype).name
        uploads = recorded(subject, num_rounds=0, dtype=dtype).residuals
        others = {leaf.dtype.name for leaf in uploads} - {model}
        if others:
            return Finding(
                False,
                f"the model is {model} and an upload {min(others)}; keep the model's dtype, as "
                "fcojax.tree.scale(factor, upload) does, or send a count as Public",
            )
    return Finding(True, "uploads have the dtype of the model")


def kept(subject: Subject) -> Finding:
    """The states of clients change in rounds in which they take part."""
    leaves, _ = jax.tree.flatten_with_path(recorded(subject).clients)
    if not leaves:
        return Finding(None, "clients keep no state")
    unchanged = [(path, leaf) for path, leaf in leaves if (leaf == leaf[0]).all()]
    for path, leaf in unchanged:
        # A number may be a setting, such as the rate of an optimiser.
        if leaf.ndim > 2 or len(unchanged) == len(leaves):
            return Finding(
                False,
                f"no client ever changes state{jax.tree_util.keystr(path)}: return its new value "
                "in ClientResult(state, ...)",
            )
    return Finding(True, "the states of clients change when they take part")


def fraction(subject: Subject) -> Finding:
    """A sum over all clients on the server stays right if some of them are absent.

    Such a sum is recognised in a run with full participation. A part of the upload is a combination
    of changes of the client's state, the same for all clients and rounds, and a part of the
    server's state changes by a multiple of the mean of that part. In a run with some of the clients
    it has to change by the same multiple of the mean over **all** clients, where absent ones count
    as zero.
    """
    if subject.build(None).facts.needs_everyone:
        return Finding(None, "it needs every client in every round")
    full, some = recorded(subject), recorded(subject, cohort=uniform_cohort(cohort_size=2))
    found = {_stays_right(upload[1:], full, some) for upload in full.residuals} - {None}
    # The states of clients may be records that do not affect the server.
    states = (recorded(subject, num_rounds=1, shift=shift).server for shift in (0, 1))
    if not found or not difference(*states):
        return Finding(None, "the server keeps no sum over the clients")
    if False in found:
        return Finding(
            False,
            "with two of five clients a sum over all clients on the server is wrong: add fraction "
            "times the mean upload to it",
        )
    return Finding(True, "a sum over all clients on the server is right with two of five")


def _stays_right(sent: np.ndarray, full: State, some: State) -> bool | None:
    """Whether the server's sum of the uploads is right; ``None`` if there is no such sum.

    Args:
      sent: a part of the uploads with full participation, [rounds, clients, ...].
      full: the states with full participation.
      some: the states with some of the clients.
    """
    changes, changes_of_some = (_changes(run.clients, sent.shape[1:]) for run in (full, some))
    if not len(changes):
        return None
    factors = np.linalg.lstsq(changes.reshape(len(changes), -1).T, sent.ravel())[0]
    if not _is_same(np.tensordot(factors, changes, 1), sent):
        return None
    mean, mean_of_some = (
        np.tensordot(factors, each, 1).mean(axis=1) for each in (changes, changes_of_some)
    )
    right = []
    moves = (_changes(run.server, sent.shape[2:]) for run in (full, some))
    for moved, moved_by_some in zip(*moves, strict=True):
        multiple = np.vdot(mean, moved) / max(np.vdot(mean, mean), np.finfo(float).tiny)
        if _is_same(multiple * mean, moved):
            right.append(_is_same(multiple * mean_of_some, moved_by_some))
    return any(right) if right else None


def _changes(states: PyTree, shape: tuple[int, ...]) -> np.ndarray:
    """Return the changes in each round of the leaves of this shape, [leaves, rounds, *shape]."""
    leaves = [leaf for leaf in jax.tree.leaves(states) if leaf.shape[1:] == shape]
    return np.array([np.diff(leaf, axis=0) for leaf in leaves]).reshape(-1, _ROUNDS, *shape)


def _is_same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two arrays agree to rounding, and are not zero."""
    size = np.abs(expected).max(initial=0)
    return bool(size > 0 and np.abs(found - expected).max() <= _EXACT * size)


def _equal(off: float, sentence: str, exchanged: Subject | None = None) -> Finding:
    """Clients that are exchanged have no effect, unless each of them uploads a row of its own."""
    if off <= 1e-12:
        return Finding(True, sentence)
    if exchanged is not None:
        uploads = [upload[1] for upload in recorded(exchanged, num_rounds=1).residuals]
        sent = np.concatenate([upload.reshape(len(upload), -1) != 0 for upload in uploads], axis=1)
        if sent.any(axis=1).all() and (sent.sum(axis=0) <= 1).all():
            sentence = "the server tells clients apart: each of them sends a row of its own"
            return Finding(None, sentence)
    return Finding(False, f"violated by {off:.2g}: {sentence}")


LAWS: dict[str, Callable[[Subject], Finding]] = {
    "contract": contract,
    "order": order,
    "identical clients": identical,
    "weights": weights,
    "absent clients": absent,
    "dtype": dtype,
    "traces": traces,
    "sweeps": sweeps,
    "rates near zero": near_zero,
    "differences": differences,
    "upload dtype": upload_dtype,
    "kept states": kept,
    "fraction": fraction,
}
