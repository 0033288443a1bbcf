"""Asynchronous servers: the synchronous run at equal speeds, and FedBuff event by event."""

import heapq
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

import fcojax
from fcojax import clock, tree, uploads
from fcojax.engine.members import local_handle
from fcojax.engine.plan import Program
from fcojax.engine.run import advance_compiled
from fcojax.transforms import euclidean, l1

KEY = jax.random.key(0)
CURVATURES, CENTRES = np.array([1.0, 2.0, 0.5, 3.0]), np.array([0.0, 3.0, -2.0, 5.0])


def quadratics(curvatures=CURVATURES, centres=CENTRES):
    rows = (
        {"h": np.array([h]), "a": np.array([a])} for h, a in zip(curvatures, centres, strict=True)
    )
    return fcojax.from_clients(list(rows))


def loss(w, rows):
    return 0.5 * rows["h"] * (w - rows["a"]) ** 2


FED_AVG = fcojax.algorithms.fed_avg(loss)
ALGORITHMS = {
    "fed_avg": FED_AVG,
    "fed_dual_avg": fcojax.algorithms.fed_dual_avg(loss, euclidean(l1())),
    "scaffold": fcojax.algorithms.scaffold(loss),
}


def ran(algorithm, sampler, num_rounds, hparams=None, data=None, work=None, **options):
    hparams = hparams or algorithm.hparams_type(client_lr=0.1)
    plan = fcojax.Plan(work or fcojax.local_steps(2), sampler)
    data = quadratics() if data is None else data
    return fcojax.run(
        algorithm, hparams, jnp.array(1.0), data, KEY, plan, num_rounds=num_rounds, **options
    )


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "fed_dual_avg")) for n in ALGORITHMS]
)
def test_equal_speeds_and_a_buffer_of_all_are_the_synchronous_run(name):
    algorithm = ALGORITHMS[name]
    order = clock.arrivals(np.ones(4), buffer=4, num_rounds=6)
    assert order.seconds.tolist() == [1, 2, 3, 4, 5, 6] and order.staleness == 0
    power = 0.0 if name == "scaffold" else 0.5
    late = clock.asynchronous(algorithm, order, power)
    schedule = fcojax.schedule(0.1 / np.arange(1.0, 7))
    hparams = algorithm.hparams_type(client_lr=schedule)
    model, history = ran(late, order.sampler, 6, hparams)
    same, expected = ran(algorithm, fcojax.everyone(), 6, hparams)
    assert np.array_equal(model, same)
    assert not history.pop("staleness").any()
    assert np.allclose(history.pop("bytes_down"), expected.pop("bytes_down"))
    assert all(np.array_equal(history[key], expected[key]) for key in expected)


def test_a_constant_delay_on_a_quadratic_has_its_closed_form():
    """Three equal clients take turns: e' = e - s h e(two steps ago), a companion matrix."""
    curvature, centre, rate = 2.0, 3.0, 0.1
    order = clock.arrivals(np.ones(3), buffer=1, num_rounds=12)
    data = quadratics(np.full(3, curvature), np.full(3, centre))
    late = clock.asynchronous(FED_AVG, order, 0.0)
    w, history = ran(late, order.sampler, 12, data=data, work=fcojax.local_steps(1), eval_every=1)
    assert history["staleness"].tolist() == [0, 1] + [2] * 10
    companion = np.array([[1, 0, -rate * curvature], [1, 0, 0], [0, 1, 0]])
    roots, vectors = np.linalg.eig(companion)
    start = np.linalg.solve(vectors, np.full(3, 1.0 - centre))
    assert float(w) - centre == pytest.approx((vectors @ (roots**12 * start))[0].real, abs=1e-13)


def by_events(
    algorithm, hparams, data, seconds, buffer, num_rounds, power=0.0, most=99, refused=()
):
    """Return the model event by event: each client keeps the message that it was sent last."""
    server, first = algorithm.init(hparams, jnp.array(1.0))
    clients = [first] * data.num_clients
    messages, started = [algorithm.broadcast(hparams, server) for _ in clients], [0] * len(clients)

    @jax.jit
    def updated(message, own, index, place):
        local = local_handle(data, fcojax.local_steps(2), KEY, index, place, place)
        return algorithm.client_update(hparams, message, own, local, KEY)

    events, now = [(each, m) for m, each in enumerate(seconds)], 0.0
    heapq.heapify(events)
    for index in range(num_rounds):
        arrived = []
        while len(arrived) < buffer:
            time, m = heapq.heappop(events)
            if index - started[m] <= most:
                arrived.append((time, m))
                continue
            messages[m], started[m] = algorithm.broadcast(hparams, server), index
            heapq.heappush(events, (time + seconds[m], m))
        now, given = max(now, *(time for time, _ in arrived)), []
        for _, m in arrived:
            result = updated(messages[m], clients[m], jnp.int32(index), jnp.int32(m))
            clients[m] = result.state
            given.append(tree.scale((1.0 + index - started[m]) ** -power, result.upload))
        if index not in refused:
            mean = jax.tree.map(lambda *each: sum(each) / buffer, *given)
            share = jnp.array(buffer / len(clients))
            server = algorithm.server_update(hparams, server, mean, share, KEY)
        for _, m in arrived:
            messages[m], started[m] = algorithm.broadcast(hparams, server), index + 1
            heapq.heappush(events, (now + seconds[m], m))
    return algorithm.model(hparams, server)


@pytest.mark.parametrize(("buffer", "power", "most"), [(2, 0.5, None), (1, 1.0, 2)])
def test_runs_are_those_of_fed_buff_event_by_event(buffer, power, most):
    for seed in range(1 if buffer == 2 else 3):
        seconds = clock.log_normal(4, median=1.0, spread=1.0, seed=seed)
        order = clock.arrivals(seconds, buffer=buffer, num_rounds=15, max_staleness=most)
        assert order.staleness > 0 if most is None else order.left_out.any()
        w, _ = ran(clock.asynchronous(FED_AVG, order, power), order.sampler, 15)
        hparams, most_of = FED_AVG.hparams_type(client_lr=0.1), 99 if most is None else most
        expected = by_events(FED_AVG, hparams, quadratics(), seconds, buffer, 15, power, most_of)
        assert float(w) == pytest.approx(float(expected), abs=1e-12)


def test_an_upload_that_is_too_late_triggers_no_step():
    """As a zero, it would divide zero by zero in a server that divides by what has arrived."""
    algorithm, seconds = fcojax.algorithms.fed_da(loss, l1()), np.array([1.0, 1.1, 1.2, 7.0])
    order = clock.arrivals(seconds, buffer=1, num_rounds=20, max_staleness=3)
    assert order.left_out.sum() > 0
    hparams = algorithm.hparams_type(client_lr=0.1)
    late = clock.asynchronous(algorithm, order, 0.0)
    w, history = ran(late, order.sampler, 20, hparams, eval_every=1)
    assert not history["refused"].any() and history["participants"].tolist() == [1] * 20
    expected = by_events(algorithm, hparams, quadratics(), seconds, 1, 20, most=3)
    assert float(w) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.slow
@pytest.mark.gate
def test_late_duals_add_up_and_time_grows_with_what_has_arrived():
    """Dual averaging with weights of one: the dual is the sum of all late gradient steps."""
    order = clock.arrivals(np.array([1.0, 1.5, 2.5, 4.0]), buffer=2, num_rounds=9)
    algorithm = ALGORITHMS["fed_dual_avg"]
    late = clock.asynchronous(algorithm, order, 0.0)
    hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.3)
    data, plan = quadratics(), fcojax.Plan(fcojax.local_steps(1), order.sampler)
    state = fcojax.start(late, hparams, jnp.array(1.0), data, KEY, plan)
    duals, started = [float(state.server.server.dual)], np.zeros(4, int)
    for version in range(9):
        draw = order.sampler.draw(KEY, jnp.int32(version), 4)
        steps = []
        for m in np.asarray(draw.members):
            elapsed = 0.1 * started[m]
            dual = duals[started[m]]
            primal = np.sign(dual) * max(abs(dual) - 0.3 * elapsed, 0)
            steps.append(-0.1 * CURVATURES[m] * (primal - CENTRES[m]))
            started[m] = version + 1
        duals.append(duals[-1] + float(np.mean(steps)))
        state, _ = fcojax.advance(late, hparams, state, data, plan, num_rounds=1)
    assert float(state.server.server.dual) == pytest.approx(duals[-1], abs=1e-13)
    assert float(state.server.server.elapsed) == pytest.approx(0.9)


def test_kept_messages_are_read_and_written_by_rows():
    """In the lowered program nothing else has their shape: no copy, no check, no selection."""
    order = clock.arrivals(np.array([1.0, 1.0, 1.0, 12.5]), buffer=1, num_rounds=40)
    assert order.staleness == 36
    late = clock.asynchronous(FED_AVG, order)
    plan, data = fcojax.Plan(fcojax.local_steps(2), fcojax.everyone()), quadratics()
    hparams = FED_AVG.hparams_type(client_lr=0.1)
    state = fcojax.start(late, hparams, jnp.array(1.0), data, KEY, plan)
    text = advance_compiled.lower(Program(late, plan), hparams, data, state, None).as_text()
    found = (
        re.search(r'= "?stablehlo.(\w+)', line)
        for line in text.splitlines()
        if "tensor<36x" in line
    )
    touching = {operation.group(1) for operation in found if operation}
    assert touching == {"gather", "dynamic_update_slice", "while"}


def test_what_an_asynchronous_server_cannot_do_is_refused():
    order = clock.arrivals(np.array([1.0, 2.0]), buffer=1, num_rounds=3)
    with pytest.raises(ValueError, match="does not wait"):
        clock.asynchronous(fcojax.algorithms.mime(loss), order)
    with pytest.raises(ValueError, match=r"order is 2; pass .*clock.arrivals"):
        clock.asynchronous(FED_AVG, 2)  # pyright: ignore[reportArgumentType]
    scaffold = clock.asynchronous(ALGORITHMS["scaffold"], order)
    late, hparams, data = clock.asynchronous(FED_AVG, order), FED_AVG.hparams_type(), quadratics()
    plan = fcojax.Plan(fcojax.local_steps(1), broadcast=uploads.ef21p(uploads.top_k(1)))
    with pytest.raises(ValueError, match="without receiving it"):
        fcojax.start(late, hparams, jnp.zeros(1), data, KEY, plan)
    with pytest.raises(ValueError, match="power=0"):
        scaffold.init(ALGORITHMS["scaffold"].hparams_type(), jnp.zeros(2))
    with pytest.raises(ValueError, match="buffer is 3"):
        clock.arrivals(np.ones(2), buffer=3, num_rounds=1)


def test_a_stop_does_not_change_an_asynchronous_run(tmp_path):
    """The second half starts from a state on disk, as after a kill; equal bit for bit."""
    order = clock.arrivals(np.array([1.0, 1.5, 2.5, 4.0]), buffer=2, num_rounds=9)
    late = clock.asynchronous(ALGORITHMS["fed_dual_avg"], order, 0.5)
    hparams, data = late.hparams_type(client_lr=0.1), quadratics()
    plan = fcojax.Plan(fcojax.local_steps(2), order.sampler)
    first = fcojax.start(late, hparams, jnp.array(1.0), data, KEY, plan)
    half, _ = fcojax.advance(late, hparams, first, data, plan, num_rounds=4)
    ocp.save(tmp_path / "state", half)
    restored = ocp.load(tmp_path / "state", first)
    end, _ = fcojax.advance(late, hparams, restored, data, plan, num_rounds=5)
    alone, _ = ran(late, order.sampler, 9, hparams)
    assert np.array_equal(fcojax.read_model(late, hparams, end), alone)
