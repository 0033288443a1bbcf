"""Control variates: steps that follow the mean gradient of all clients, and where a prox enters."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.averages import primal
from fcojax.algorithms.base import Algorithm, Facts, Public, takes
from fcojax.algorithms.dual_averages import DualPoint, dual
from fcojax.algorithms.frame import (
    Correction,
    LocalProblem,
    ServerStep,
    count_of,
    method,
    stepping,
)
from fcojax.algorithms.local import Batch, mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalties.separable import Fraction, zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, PyTree


class Message(NamedTuple):
    """The start of the local steps, and the mean gradient that corrected steps follow."""

    point: PyTree
    direction: Params


class ControlUpdate(NamedTuple):
    """What a client sends: the change of its control, and how many steps it took.

    The offset is its mean local gradient minus its new control; ``()`` if the two are the same.
    """

    change: Params
    offset: PyTree
    num_steps: Public


def control_variate(gradient: Callable[[Params, Batch], Params] | None = None) -> Correction:
    r"""Steps follow :math:`\nabla f_i + d - c_i`, with d the direction that the server sent.

    A client stores its control :math:`c_i`, the mean gradient
    :math:`s_i = (x - x_i) / (\eta_c K) - (d - c_i)` of its last local steps, and sends the change.
    With ``gradient`` it stores its full gradient at the start instead.
    """

    def begin(hparams, message, own, local):
        def slope(hparams, gradient, x, batch, correction):
            return tree.add(gradient, correction)

        return LocalProblem(message.point, slope, (tree.sub(message.direction, own),))

    def keep(hparams, message, own, local, steps):
        num_steps = count_of(hparams, local)
        # The mean of the K corrected steps; minus the correction it is the mean local gradient.
        mean = tree.scale(-1 / (hparams.client_lr * num_steps), steps.moved)
        control, offset = tree.sub(mean, tree.sub(message.direction, own)), ()
        if gradient is not None:
            local_gradient, control = control, gradient(message.point, local.full())
            offset = tree.sub(local_gradient, control)
        return control, ControlUpdate(tree.sub(control, own), offset, Public(num_steps))

    return Correction("control", begin, keep, lambda params, memory: tree.zeros_like(params))


class Corrected(NamedTuple):
    """The server's x, the mean c of all clients' controls, and the rounding error of c so far.

    If it is fed back, also a subgradient of psi at x; else ``()``.
    """

    point: Params
    control: Params
    residue: Params
    subgradient: PyTree


def with_control(penalty: Penalty | None = None, *, feedback: bool = False) -> ServerStep:
    r"""A step along the mean gradient, beside the mean c of the controls of **all** clients.

    With :math:`t_e = \eta_s \eta_c K`, the clients' mean gradients :math:`s_i` and their controls,

    .. math:: v = x - t_e \Big(c + \sum_{i \in S} p_i (s_i - c_i)\Big), \qquad
              x \leftarrow \mathrm{prox}_{t_e \psi}(v),

    and c changes with the :math:`c_i`, for any cohort and any numbers of steps. For equal K this
    equals averaging the clients' last points, but terms that have converged cancel before they are
    rounded. As c is compensated, 80,000 rounds in float32 end as near the solution as 5,000. With
    ``feedback`` local steps also follow the subgradient :math:`(v - x) / t_e` of psi.
    """

    def init(hparams, params):
        zeros = tree.zeros_like(params)
        return Corrected(params, zeros, zeros, zeros if feedback else ())

    def message(hparams, server):
        direction = tree.add(server.control, server.subgradient) if feedback else server.control
        return Message(server.point, direction)

    def step(hparams, server, mean, fraction, key):
        size = hparams.server_lr * hparams.client_lr * mean.num_steps.value
        direction = tree.add(server.control, mean.change)
        if jax.tree.leaves(mean.offset):
            direction = tree.add(direction, mean.offset)
        target = point = tree.add_scaled(server.point, -size, direction)
        if penalty is not None:
            point = penalty.prox(target, size, hparams.penalty_scale)
        subgradient = tree.scale(1 / size, tree.sub(target, point)) if feedback else ()
        # A sum over all rounds of small changes: compensated, so rounding errors do not add up.
        control, residue = tree.add_compensated(
            server.control, server.residue, fraction, mean.change
        )
        return Corrected(point, control, residue, subgradient)

    name = "feedback" if feedback else "control" if penalty is None else "control, prox"
    return ServerStep(name, step, init, message, lambda hparams, server: server.point)


class ScaffoldHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(ScaffoldHparams, "penalty")
def scaffold(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    prox: Literal["client", "server", "feedback"] = "client",
    control: Literal["steps", "gradient"] = "steps",
) -> Algorithm:
    r"""Stochastic controlled averaging of the mean loss plus psi, with any cohort.

    From the server's x a client takes K steps with its control :math:`c_i` and the mean c of all,

    .. math:: x_i \leftarrow x_i - \eta_c (\nabla f_i(x_i) - c_i + c + s), \qquad
              v = x + \eta_s \sum_i p_i (x_i - x + \eta_c K s),

    where s is zero except for ``prox="feedback"``. The penalty may enter in three ways:

    - ``"client"``: a prox of step :math:`\eta_c` after each local step, and :math:`x = v`. Exact; K
      proxes per client, and a model that is an average, not sparse.
    - ``"server"``: only :math:`x = \mathrm{prox}_{t_e \psi}(v)` with :math:`t_e = \eta_s \eta_c K`.
      Local steps leave the solution along :math:`\nabla F \ne 0`, so the limit is off in proportion
      to :math:`\eta_c (K - 1)`.
    - ``"feedback"``: the same, and local steps follow the subgradient :math:`s = (v - x) / t_e` of
      the last prox. At the solution :math:`\nabla F + s = 0`, so the local steps vanish: exact,
      with one prox per round and a sparse model.

    A client's new ``control`` is the mean gradient of its ``"steps"`` (option II of the paper, one
    vector up), or its full ``"gradient"`` at x (option I, two vectors up and a pass over all
    examples).

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.scaffold(None, fcojax.transforms.l1(), prox="feedback").facts.parts
      ('primal', 'control', 'feedback')

    References:
      Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: stochastic controlled averaging
      for federated learning", ICML 2020, Algorithm 1, option II in a form that uploads one vector.
      The feedback of a subgradient is ours.
    """
    correction = control_variate(mean_gradient(loss) if control == "gradient" else None)
    psi, facts = penalty or zero(), Facts(exact=prox != "server")
    if prox == "client":
        return method(loss, primal(psi), correction, with_control(), facts=facts)
    server = with_control(psi, feedback=prox == "feedback")
    return method(loss, primal(), correction, server, facts=facts)


class Accelerated(NamedTuple):
    """The state of ``scaffold`` at y, the model x, and the number k of rounds since a restart."""

    round: Corrected
    model: Params
    count: Array


@takes(ScaffoldHparams, "penalty")
def fast_scaffold(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""Minimise the mean loss plus psi with ``scaffold(prox="feedback")`` and momentum; any cohort.

    With M a round of ``scaffold(prox="feedback")`` and :math:`y_0 = x_0`, one of this is

    .. math:: x_{r+1} = M(y_r), \qquad
              y_{r+1} = x_{r+1} + \frac{k}{k + 3} (x_{r+1} - x_r), \qquad k \leftarrow k + 1,

    where k starts from 0 and restarts from 0 if :math:`\langle y_r - x_{r+1}, x_{r+1} - x_r
    \rangle > 0`, that is, if the momentum points uphill.

    A fixed point of M is one of this, so it is as exact. With one full-batch step and everyone it
    is FISTA with restarts, whose rounds grow as the square root of the condition number; with exact
    gradients the same is observed for local steps and half of the clients, but not proved.

    Momentum amplifies the noise of minibatches: use ``scaffold`` with them. It also needs the step
    of a round, :math:`\eta_s \eta_c K`, to be at most about 1 / L, half of what plain rounds allow.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fast_scaffold(None, fcojax.transforms.l1()).facts.parts
      ('primal', 'control', 'feedback, momentum')

    References:
      Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse
      problems", SIAM J. Imaging Sci. 2009; O'Donoghue and Candes, "Adaptive restart for accelerated
      gradient schemes", Found. Comput. Math. 2015, section 3.2.
    """
    plain = with_control(penalty or zero(), feedback=True)

    def init(hparams, params):
        count = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        return Accelerated(plain.init(hparams, params), params, count)

    def message(hparams, server):
        return plain.message(hparams, server.round)

    def step(hparams, server, mean, fraction, key):
        after = plain.step(hparams, server.round, mean, fraction, key)
        moved = tree.sub(after.point, server.model)
        uphill = tree.vdot(tree.sub(server.round.point, after.point), moved) > 0
        count = jnp.where(uphill, 0, server.count)
        ahead = tree.add_scaled(after.point, count / (count + 3), moved)
        return Accelerated(after._replace(point=ahead), after.point, count + 1)

    name = f"{plain.name}, momentum"
    server = ServerStep(name, step, init, message, lambda hparams, server: server.model)
    return method(loss, primal(), control_variate(), server, facts=Facts(exact=True))


class CompositeFLHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


class Iterate(NamedTuple):
    """A client between two steps: the point before the prox, after it, and the steps so far."""

    ambient: Params
    point: Params
    step: Array


@takes(CompositeFLHparams, "penalty")
def composite_fl(loss: Loss, penalty: Penalty) -> Algorithm:
    r"""Minimise the mean loss plus psi, exactly, with K local proximal steps and any cohort.

    From :math:`\hat z_0 = z_0 = x` and with correction :math:`c_i` a client takes K steps

    .. math:: \hat z_{t+1} = \hat z_t - \eta_c (\nabla f_i(z_t) + c_i), \qquad
              z_{t+1} = \mathrm{prox}_{(t+1) \eta_c \psi}(\hat z_{t+1}),

    and the server averages the points *before* the prox, which keeps the model sparse:

    .. math:: x \leftarrow \mathrm{prox}_{t_e \psi}\Big(
                  x + \eta_s \sum_i p_i (\hat z_K^i - x)\Big), \qquad t_e = \eta_s \eta_c K.

    The prox of local step t has the step :math:`(t+1) \eta_c`, without :math:`\eta_s`: at the
    solution x with :math:`c_i = \nabla F(x) - \nabla f_i(x)` the points :math:`z_t` then stay at x.

    Clients store the mean gradient :math:`E_i` of their last steps, the server the mean of all, and
    :math:`c_i = \sum_j p_j E_j - E_i`. The published form sends one vector down, from which clients
    recover :math:`\sum_j p_j E_j`; nothing damps a rounding error in the mean of its :math:`c_i`,
    which grows with the rounds in float32.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.composite_fl(None, fcojax.transforms.l1()).facts.parts
      ('before prox', 'control', 'control, prox')

    References:
      Zhang, Hu and Johansson, "Composite federated learning with heterogeneous data", ICASSP 2024
      (arXiv 2309.01795), Algorithm 1.
    """

    def step(hparams, now, slope, _):
        ambient = tree.add_scaled(now.ambient, -hparams.client_lr, slope)
        count = now.step + 1
        point = penalty.prox(ambient, count * hparams.client_lr, hparams.penalty_scale)
        return Iterate(ambient, point, count)

    def enter(hparams, problem):
        none = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        return Iterate(problem.start, problem.start, none)

    geometry = stepping(
        "before prox",
        step,
        model=lambda hparams, start, now: now.point,
        enter=enter,
        leave=lambda start, end: tree.sub(end.ambient, start),
    )
    server = with_control(penalty)
    return method(loss, geometry, control_variate(), server, facts=Facts(exact=True))


class FedNormalMapHparams(NamedTuple):
    r"""``client_lr`` is eta_c, ``server_lr`` is eta_s, ``prox_step`` is gamma.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_step: Positive = 0.1
    penalty_scale: NonNegative = 0.1


@takes(FedNormalMapHparams, "penalty")
def fed_normal_map(loss: Loss, penalty: Penalty) -> Algorithm:
    r"""Minimise the mean loss plus psi by steps before the prox; exact, with any cohort.

    The normal map of client i at z has a zero, on average over the clients, exactly where
    :math:`w = \mathrm{prox}_{\gamma \psi}(z)` is a solution:

    .. math:: N_i(z) = \nabla f_i(w) + (z - w) / \gamma, \qquad
              w = \mathrm{prox}_{\gamma \psi}(z).

    Clients take K steps :math:`y \leftarrow y - \eta_c (N_i(y) + c - c_i)` from z, where
    :math:`c_i` is the mean normal map of their last local steps and c the mean of all :math:`c_i`;
    the server takes :math:`z + \eta_s \sum_i p_i (y_i - z)`, and the model is
    :math:`\mathrm{prox}_{\gamma \psi}(z)`. With one local step and :math:`\eta_s \eta_c = \gamma`
    this is proximal gradient descent.

    For a weakly convex psi, :math:`\gamma` below one over its modulus keeps w unique. Safe steps
    have :math:`\eta_c K \le 1 / L` and :math:`\eta_c \le \gamma`.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_normal_map(None, fcojax.transforms.l1()).facts.parts
      ('normal map', 'control', 'control')

    References:
      Huang and Pu, arXiv 2602.03357, 2026, of which only the abstract was available: the normal map
      is theirs, the correction of the local steps is ours.
    """

    def prox(hparams, z):
        return penalty.prox(z, hparams.prox_step, hparams.penalty_scale)

    def step(hparams, y, slope, w):
        slope = tree.add_scaled(slope, 1 / hparams.prox_step, tree.sub(y, w))
        return tree.add_scaled(y, -hparams.client_lr, slope)

    geometry = stepping("normal map", step, model=lambda hparams, start, y: prox(hparams, y))
    server = with_control()._replace(model=lambda hparams, server: prox(hparams, server.point))
    return method(loss, geometry, control_variate(), server, facts=Facts(exact=True))


class FedDualAvgTrackingHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi.

    ``memory`` is rho, the share of the earlier subgradients of psi that a round keeps.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1
    memory: Fraction = 0.9


class Sums(NamedTuple):
    """The server's sums: z and T, and the mean control c of all clients."""

    point: DualPoint
    control: Params


class ServerState(NamedTuple):
    """The sums with which the next round starts, their rounding errors so far, and the model."""

    sums: Sums
    residue: Sums
    params: Params


@takes(FedDualAvgTrackingHparams, "mirror")
def fed_dual_avg_tracking(loss: Loss, mirror: Mirror) -> Algorithm:
    r"""FedDualAvg whose clients follow the mean gradient of all clients; any cohort.

    Client m keeps its control :math:`c_m`, the mean gradient of its last local steps, and the
    server keeps the mean c of all controls. A round is

    .. math::
       w^m_k &= P_{T_r + \eta_c k}(z^m_k), \qquad
       z^m_{k+1} = z^m_k - \eta_c (\nabla f(w^m_k; \xi^m_k) + c - c_m), \quad z^m_0 = z_r \\
       z &= z_r - t \Big(c + \sum_m p_m (q_m - c_m)\Big), \qquad
       T = T_r + t, \qquad t = \eta_s \eta_c \sum_m p_m K_m \\
       w_{r+1} &= P_T(z), \qquad T_{r+1} = \rho T, \qquad
       z_{r+1} = \nabla h(w_{r+1}) + \rho (z - \nabla h(w_{r+1}))

    with :math:`q_m` the mean of the gradients of client m, its new control. The model is
    :math:`w_r`.

    The fixed points are the minimisers of F + psi, for any number of local steps: if each
    :math:`c_m` is the gradient at a minimiser w, then all steps follow
    :math:`\nabla F(w) = -s` with s a subgradient of psi, and :math:`P_{T + a}(z + a s) = P_T(z)`,
    so the model does not move inside the round either.

    The vector :math:`s = (z - \nabla h(w_{r+1})) / T` is a subgradient of psi at the model.
    Shrinking T and :math:`T s` by rho, the ``memory``, leaves s and the model as they are:

    - 0 forgets s, which is ``composite_fl`` in the geometry of ``mirror``. Noisy gradients then
      decide anew in each round which entries are zero.
    - 1 is dual averaging. T grows without bound, so P shrinks steps along a curved level set of psi
      by 1 / T, convergence is sublinear, and the model's rounding error is that of z.
    - In between T stays below :math:`t / (1 - \rho)`: convergence is linear for every psi, without
      drift in float32, and zeros are decided by a mean of about :math:`1 / (1 - \rho)` rounds.

    With one full-batch step, all clients and memory 1 it is ``fed_dual_avg``, and without a penalty
    and with the Euclidean mirror it is ``scaffold``, both up to rounding.

    Example:
      >>> import fcojax
      >>> from fcojax.transforms import euclidean, l1
      >>> fcojax.algorithms.fed_dual_avg_tracking(None, euclidean(l1())).facts.parts
      ('dual, prox', 'control', 'control sums, prox')

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, which names control
      variates as future work; Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD:
      stochastic controlled averaging for federated learning", ICML 2020. Their combination is ours.
    """
    geometry = dual(mirror)

    def primal(hparams, point):
        return mirror.to_primal(point.dual, point.elapsed, hparams.penalty_scale)

    def init(hparams, params):
        point = geometry.start(hparams, params)
        sums = Sums(point, tree.zeros_like(point.dual))
        return ServerState(sums, tree.zeros_like(sums), params)

    def message(hparams, server):
        return Message(server.sums.point, server.sums.control)

    def step(hparams, server, mean: ControlUpdate, fraction, key):
        size = hparams.server_lr * hparams.client_lr * mean.num_steps.value
        # Each client counts by its mean gradient, even if clients take different numbers of steps.
        direction = tree.add(server.sums.control, mean.change)
        change = Sums(
            DualPoint(tree.scale(-size, direction), size), tree.scale(fraction, mean.change)
        )
        sums, residue = tree.add_compensated(server.sums, server.residue, 1, change)
        params = primal(hparams, sums.point)
        # grad h(w) belongs to T = 0. With memory 1 nothing is subtracted, not even rounding.
        excess = sums.point._replace(dual=tree.sub(sums.point.dual, mirror.to_dual(params)))
        point, error = tree.add_compensated(sums.point, residue.point, hparams.memory - 1, excess)
        return ServerState(sums._replace(point=point), residue._replace(point=error), params)

    return method(
        loss,
        geometry._replace(start=lambda hparams, params: params),
        control_variate(),
        ServerStep("control sums, prox", step, init, message, lambda hparams, now: now.params),
        facts=Facts(exact=True),
    )
