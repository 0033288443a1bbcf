"""Asynchronous servers: the synchronous run at equal speeds, and FedBuff event by event."""

import heapq
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

import fcojax
from fcojax import clock, uploads
from fcojax.engine.plan import Program
from fcojax.engine.stepper import advance_compiled
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
    late = clock.asynchronous(algorithm, 3, power)  # the number of kept messages does not matter
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
    data, late = (
        quadratics(np.full(3, curvature), np.full(3, centre)),
        clock.asynchronous(FED_AVG, 2, 0.0),
    )
    w, history = ran(late, order.sampler, 12, data=data, work=fcojax.local_steps(1), eval_every=1)
    assert history["staleness"].tolist() == [0, 1] + [2] * 10
    companion = np.array([[1, 0, -rate * curvature], [1, 0, 0], [0, 1, 0]])
    roots, vectors = np.linalg.eig(companion)
    start = np.linalg.solve(vectors, np.full(3, 1.0 - centre))
    assert float(w) - centre == pytest.approx((vectors @ (roots**12 * start))[0].real, abs=1e-13)


def fed_buff(seconds, buffer, num_rounds, power, max_staleness, weighs_dual=False):
    """Return the model of FedBuff, event by event: each client keeps the model it started from."""
    rate, steps, x, version = 0.1, 2, 1.0, 0
    models, started = np.full(4, x), np.zeros(4, int)
    events = [(seconds[m], m) for m in range(4)]
    heapq.heapify(events)
    while version < num_rounds:
        arrived = [heapq.heappop(events) for _ in range(buffer)]
        now, total = max(time for time, _ in arrived), 0.0
        for _, m in arrived:
            y = models[m]
            for _ in range(steps):
                y -= rate * CURVATURES[m] * (y - CENTRES[m])
            late = version - started[m]
            total += (y - models[m]) * (1 + late) ** -power * (late <= max_staleness)
        x, version = x + total / buffer, version + 1
        for _, m in arrived:
            models[m], started[m] = x, version
            heapq.heappush(events, (now + seconds[m], m))
    return x


@pytest.mark.parametrize(
    ("buffer", "power", "most"),
    [
        (2, 0.5, None),
        pytest.param(1, 0.5, None, marks=pytest.mark.slow),
        pytest.param(3, 0.0, None, marks=pytest.mark.slow),
        pytest.param(1, 1.0, 2, marks=pytest.mark.slow),
    ],
)
def test_runs_are_those_of_fed_buff_event_by_event(buffer, power, most):
    for seed in range(1 if buffer == 2 else 3):
        seconds = clock.log_normal(4, median=1.0, spread=1.0, seed=seed)
        order = clock.arrivals(seconds, buffer=buffer, num_rounds=15)
        assert order.staleness > (most or 0)
        most_of = order.staleness if most is None else most
        w, _ = ran(clock.asynchronous(FED_AVG, most_of, power), order.sampler, 15)
        assert float(w) == pytest.approx(fed_buff(seconds, buffer, 15, power, most_of), abs=1e-12)


@pytest.mark.slow
@pytest.mark.gate
def test_late_duals_add_up_and_time_grows_with_what_has_arrived():
    """Dual averaging with weights of one: the dual is the sum of all late gradient steps."""
    order = clock.arrivals(np.array([1.0, 1.5, 2.5, 4.0]), buffer=2, num_rounds=9)
    algorithm = ALGORITHMS["fed_dual_avg"]
    late = clock.asynchronous(algorithm, order.staleness, 0.0)
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


@pytest.mark.slow
@pytest.mark.parametrize("power", [0.0, 0.5])
def test_the_limit_weighs_clients_by_arrivals_and_by_age(power):
    """Curvatures of one: the mean of the centres, by share of arrivals times mean weight.

    Known shares of arrivals correct the first; slow clients keep the lower weights of old uploads.
    """
    order = clock.arrivals(np.array([1.0, 1.1, 4.3, 4.7]), buffer=1, num_rounds=20_000)
    sums, counts, started = np.zeros(4), np.zeros(4), np.zeros(4)
    draws = jax.vmap(lambda version: order.sampler.draw(KEY, version, 4))(jnp.arange(20_000))
    for version, m in enumerate(np.asarray(draws.indices)[:, 0]):
        sums[m] += (1 + version - started[m]) ** -power
        counts[m], started[m] = counts[m] + 1, version + 1
    late = clock.asynchronous(FED_AVG, order.staleness, power)
    hparams = FED_AVG.hparams_type(client_lr=fcojax.schedule(4 / (40 + np.arange(20_000))))
    plain = fcojax.Plan(fcojax.local_steps(1), order.sampler)
    known = plain._replace(uploads=uploads.inverse_probability("known"))
    for plan, weights in ((plain, sums), (known, sums / counts)):
        data, start = quadratics(np.ones(4)), jnp.array(1.0)
        w, _ = fcojax.run(late, hparams, start, data, KEY, plan, num_rounds=20_000)
        assert float(w) == pytest.approx(np.average(CENTRES, weights=weights), abs=0.002)


@pytest.mark.slow
def test_an_exact_method_stays_exact_with_late_clients():
    order = clock.arrivals(np.array([1.0, 1.5, 2.5, 4.0]), buffer=2, num_rounds=2000)
    algorithm = ALGORITHMS["scaffold"]
    late = clock.asynchronous(algorithm, order.staleness, 0.0)
    hparams = algorithm.hparams_type(client_lr=0.05)
    w, _ = ran(late, order.sampler, 2000, hparams)
    optimum = np.sum(CURVATURES * CENTRES) / CURVATURES.sum()
    assert float(w) == pytest.approx(optimum, abs=1e-10)


def test_kept_messages_are_read_and_written_by_rows():
    """In the lowered program nothing else has their shape: no copy, no check, no selection."""
    late = clock.asynchronous(FED_AVG, 37)
    plan, data = fcojax.Plan(fcojax.local_steps(2), fcojax.everyone()), quadratics()
    hparams = FED_AVG.hparams_type(client_lr=0.1)
    state = fcojax.start(late, hparams, jnp.array(1.0), data, KEY, plan)
    text = advance_compiled.lower(Program(late, plan), hparams, data, state, None).as_text()
    found = (
        re.search(r'= "?stablehlo.(\w+)', line)
        for line in text.splitlines()
        if "tensor<37x" in line
    )
    touching = {operation.group(1) for operation in found if operation}
    assert touching == {"gather", "dynamic_slice", "dynamic_update_slice", "while"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_sweeps_and_stops_do_not_change_an_asynchronous_run(name, tmp_path):
    """The second half starts from a state on disk, as after a kill; equal bit for bit."""
    order = clock.arrivals(np.array([1.0, 1.5, 2.5, 4.0]), buffer=2, num_rounds=9)
    algorithm = ALGORITHMS[name]
    late = clock.asynchronous(algorithm, order.staleness, 0.0 if name == "scaffold" else 0.5)
    hparams = algorithm.hparams_type(client_lr=0.1)
    alone, _ = ran(late, order.sampler, 9, hparams)
    plan, data = fcojax.Plan(fcojax.local_steps(2), order.sampler), quadratics()
    grid = fcojax.grid.product(algorithm.hparams_type, client_lr=[0.1, 0.2])
    models, _ = fcojax.sweep(late, grid, jnp.array(1.0), data, KEY[None], plan, num_rounds=9)
    assert float(models[0, 0]) == pytest.approx(float(alone), abs=1e-14)
    first = fcojax.start(late, hparams, jnp.array(1.0), data, KEY, plan)
    half, _ = fcojax.advance(late, hparams, first, data, plan, num_rounds=4)
    ocp.save(tmp_path / "state", half)
    restored = ocp.load(tmp_path / "state", first)
    end, _ = fcojax.advance(late, hparams, restored, data, plan, num_rounds=5)
    assert np.array_equal(fcojax.read_model(late, hparams, end), alone)


def test_what_an_asynchronous_server_cannot_do_is_refused():
    with pytest.raises(ValueError, match="does not wait"):
        clock.asynchronous(fcojax.algorithms.mime(loss), 2)
    scaffold = clock.asynchronous(ALGORITHMS["scaffold"], 2)
    late, hparams, data = clock.asynchronous(FED_AVG, 2), FED_AVG.hparams_type(), quadratics()
    plan = fcojax.Plan(fcojax.local_steps(1), broadcast=uploads.ef21p(uploads.top_k(1)))
    with pytest.raises(ValueError, match="without receiving it"):
        fcojax.start(late, hparams, jnp.zeros(1), data, KEY, plan)
    with pytest.raises(ValueError, match="power=0"):
        scaffold.init(ALGORITHMS["scaffold"].hparams_type(), jnp.zeros(2))
    with pytest.raises(ValueError, match="buffer is 3"):
        clock.arrivals(np.ones(2), buffer=3, num_rounds=1)
