"""Every method on one small problem, beside a record of what an earlier tree computed.

    python -m tests.laws.method_rows [NAME ...]           # rows that begin so; all by default
    python -m tests.laws.method_rows --record FILE --commit HASH --settings full,linear,batches

It prints one line for each difference and exits with 1 if one of them is not explained. Settings:

- ``full``: everyone, five full-batch steps, and a loss whose steps a scan takes;
- ``linear``: the same with a ``LinearLoss``, if steps are then taken in coordinates of the rows;
- ``batches``: five minibatches, three of the four clients;
- ``lost``: the same, and 30 per cent of the uploads are lost.

A method that needs everyone has everyone in ``batches``, or each cohort for two rounds if that is
enough, and no row ``lost``. Without ``--settings`` others have no row ``batches``.

A digest is of the models after each of 30 rounds, those of the clients too if they have their own.
Beside it are three numbers of the models, bytes down and up, lost uploads, the bytes of the states
of the server and of a client, and of the compiled program the fusions, flops and bytes accessed;
XLA counts the body of the loop over rounds once. Digest and program depend on processor and
version of JAX. If either differs from the record's, the three numbers are compared, up to 1e-5 of
the model's norm. The rest is compared always.

The record has one line for each row, with the commit that it is from; ``before`` is an earlier
commit with the values that differed there. Its ``explained`` names the columns in which rows that
begin so may differ, and says why.
"""

import argparse
import functools
import hashlib
import json
import os
import pathlib
import platform
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fcojax
from fcojax import algorithms as a
from fcojax.algorithms import local_solvers as solvers
from fcojax.problems import LinearLoss, factored, factored_loss
from fcojax.transforms import entropy, euclidean, l1, l1_ball, named, sphere

RECORD = pathlib.Path(__file__).with_suffix(".json")
ROUNDS, STEPS, BATCH, DIM, SIZES = 30, 5, 2, 24, (6, 4, 6, 5)
ALWAYS = ("down", "up", "lost", "state")
ON_ONE_MACHINE = ("digest", "fusions", "flops", "accessed")
NUMBERS = {"client_lr": 0.05, "server_lr": 0.9, "penalty_scale": 0.02, "prox_step": 0.5}
NUMBERS |= {"prox_scale": 0.3, "relaxation": 1.5, "momentum": 0.5, "skip_probability": 0.5}
NUMBERS |= {"strong_convexity": 0.2, "weight_power": 1.0, "stage_rounds": 10.0, "radius": 0.2}
NUMBERS |= {"decay": 0.05, "adaptivity": 0.1}


class Row(NamedTuple):
    """A method, ``(loss) -> Algorithm``, and what it runs on.

    That is a ``"vector"``; one without minibatches, ``"whole"``; a model with a bias, ``"leaves"``;
    or quadratics that are ``"factored"``.
    """

    make: Callable[[Any], Any]
    on: str = "vector"


@functools.cache
def rows() -> dict[str, Row]:
    """Return every method and variant, by name: the factory's name first."""
    found: dict[str, Row] = {}

    def add(name: str, *pieces: Any, on: str = "vector", **options: Any) -> None:
        factory = getattr(a, name.partition(" ")[0])
        found[name] = Row(lambda f: factory(f, *pieces, **options), on)

    psi, mirror, ball, steps = l1(), euclidean(l1()), sphere(), optax.adam(0.1, eps=1e-2)
    base, bias, kernel = functools.partial(a.scaffold, penalty=psi), named("bias"), named("kernel")
    found["partial_sharing fed_avg"] = Row(
        lambda f: a.partial_sharing(a.fed_avg, f, bias), "leaves"
    )
    found["partial_sharing scaffold"] = Row(
        lambda f: a.partial_sharing(base, f, kernel, penalty=psi), "leaves"
    )
    for name in ("fed_avg", "local_sgd", "fed_opt"):
        add(name)
    for name in ("fed_prox", "scaffold", "fed_dyn", "prox_skip", "mime", "ditto"):
        add(f"{name} smooth")
    add("fed_avg with a bias", on="leaves")
    add("fed_gd", on="whole")
    penalised = ("fed_avg_subgradient", "fed_prox", "composite_fl", "prox_skip", "mime", "ditto")
    for name in (*penalised, "fed_normal_map", "fast_scaffold"):
        add(name, psi)
    add("fed_avg_subgradient before", psi, after_gradient_step=False)
    add("prox_skip geometric", psi, steps="geometric")
    for prox in ("client", "server", "feedback"):
        add(f"scaffold {prox} steps", psi, prox=prox)
        add(f"scaffold {prox} gradient", psi, prox=prox, control="gradient")
    for report in ("sampled", "all"):
        add(f"fed_dyn {report}", psi, report=report)
    add("fed_da adagrad", psi, metric="adagrad")
    add("fed_da momentum", psi, estimate="momentum")
    add("fed_da variance_reduced", psi, metric="identity", estimate="variance_reduced")
    for name in ("fed_mid", "fed_mid_osp", "fed_dual_avg", "fed_dual_avg_osp"):
        add(name, mirror)
        add(f"{name} entropy", entropy())
    for name in ("fed_mip", "fe_dual_ex", "fed_dual_avg_tracking", "mc_fed_dual_avg"):
        add(name, mirror)
    add("fed_mid client", mirror, server_prox=False)
    add("fed_mid neither", mirror, client_prox=False, server_prox=False)
    add("fed_mip client", mirror, server_prox=False)
    add("fast_fed_dual_avg", mirror)
    add("fast_fed_dual_avg end points", mirror, end_points=True)
    add("mc_fed_dual_avg ball", mirror, penalty_factors=(4.0, 1.0), ball=l1_ball())
    add("fed_mid_opt server", mirror, server=steps)
    add("fed_mid_opt client", mirror, client=steps, client_prox=False)
    add("fed_dual_avg_opt server", mirror, server=steps)
    add("fed_dual_avg_opt client", mirror, client=steps)
    add("fed_opt adam", server=lambda h: optax.adam(h.server_lr / 20, eps=1e-2))
    heavy = {"client": lambda h: optax.sgd(h.client_lr, momentum=0.5)}
    add("fed_opt kept", **heavy, keep_client_state=True)
    own = {"hparams_type": a.fed_prox.Hparams, "proximal_term": True}
    add("fed_opt proximal", **heavy, **own)
    for maps in ("geodesic", "retraction", "projection"):
        for name in ("r_fed_avg", "r_fed_prox", "r_fed_svrg"):
            add(f"{name} {maps}", ball, maps=maps)
    add("fed_manifold both", ball)
    add("fed_manifold direction", ball, sends="direction")
    reduced = solvers.variance_reduced(refresh_every=3)
    pieces = dict.fromkeys(("fed_pd", "fed_admm", "fed_dr", "fed_dyn"), (psi,))
    for name, own in (pieces | {"fed_split": ()}).items():
        add(name, *own)
        add(f"{name} variance_reduced", *own, solver=reduced)
        add(f"{name} exact", *own, solver=solvers.exact(), on="factored")
        add(f"{name} other start", *own, solver=solvers.gd(warm_start=name == "fed_dyn"))
        add(f"{name} proxgd", solver=solvers.proxgd(psi))
    return found


def losses(w, examples):
    kernel, bias = (w["kernel"], w["bias"]) if isinstance(w, dict) else (w, jnp.float32(0))
    return (examples["x"] @ kernel + bias - examples["y"]) ** 2 / 2


@functools.cache
def population() -> fcojax.ClientData:
    """Return four clients of different sizes, with the products of their rows."""
    rng = np.random.default_rng(0)
    clients = []
    for size in SIZES:
        x = rng.standard_normal((size, DIM)) * rng.uniform(0.3, 1.2, DIM)
        y = x @ rng.standard_normal(DIM) + 0.1 * rng.standard_normal(size)
        clients.append({"x": x.astype(np.float32), "y": y.astype(np.float32)})
    gram = [client["x"] @ client["x"].T for client in clients]
    products = [np.pad(block, ((0, 0), (0, max(SIZES) - len(block)))) for block in gram]
    return fcojax.from_clients(clients).with_products(jnp.asarray(np.concatenate(products)))


def planned(algorithm, row: Row, setting: str) -> fcojax.Plan | None:
    """Return the plan of a setting; ``None`` if the method has no such row."""
    everyone = setting in ("full", "linear")
    whole = everyone or row.on in ("whole", "factored")
    work = fcojax.local_steps(STEPS, None if whole else BATCH)
    if everyone:
        return None if (setting, row.on) == ("linear", "factored") else fcojax.Plan(work)
    cohort = fcojax.uniform_cohort(cohort_size=3)
    if not algorithm.facts.needs_everyone:
        losing = {"uploads": fcojax.dropout(0.3)} if setting == "lost" else {}
        return fcojax.Plan(work, cohort, **losing)
    if setting == "lost":
        return None
    held = algorithm.facts.needs_everyone == "or held"
    return fcojax.Plan(work, fcojax.held(cohort, rounds=2) if held else fcojax.everyone())


def models_of(algorithm):
    """Return the observer of the model, and of those of the clients."""

    def observe(hparams, state, context):
        found = {"model": algorithm.model(hparams, state.server)}
        if own := algorithm.client_model:
            message = algorithm.broadcast(hparams, state.server)
            found["own"] = jax.vmap(lambda client: own(hparams, message, client))(state.clients)
        return found

    return fcojax.StateObserver(observe)


def program(row: Row, setting: str) -> tuple | None:
    """Return a row's program as JAX lowers it, its arguments, and the shapes of its states."""
    loss, data = LinearLoss(losses) if setting == "linear" else losses, population()
    start = jnp.asarray(np.random.default_rng(1).uniform(0.05, 0.6, DIM), jnp.float32)
    if row.on == "leaves":
        start = {"kernel": start, "bias": jnp.float32(0.1)}
    if row.on == "factored":
        loss, data = factored_loss, factored(losses, data, start)
    algorithm = row.make(loss)
    plan, observe = planned(algorithm, row, setting), models_of(algorithm)
    if plan is None:
        return None
    kind = algorithm.hparams_type
    hparams = kind(**{name: NUMBERS[name] for name in kind._fields if name in NUMBERS})
    hparams = jax.tree.map(jnp.float32, hparams)

    def run(hparams, start, data, key):
        found = fcojax.run(
            algorithm, hparams, start, data, key, plan, num_rounds=ROUNDS, observe=observe
        )
        return found[1]

    arguments = hparams, start, data, jax.random.key(3)
    return jax.jit(run).lower(*arguments), arguments, jax.eval_shape(algorithm.init, *arguments[:2])


def measured(lowered: Any, arguments: tuple, states: tuple) -> dict[str, Any]:
    """Compile and run a program."""
    compiled = lowered.compile()
    history = jax.tree.map(np.asarray, compiled(*arguments))
    models = jax.tree.leaves((history["model"], history.get("own", ())))
    assert all(np.isfinite(leaf).all() for leaf in models)
    cost = compiled.cost_analysis()
    return {
        "digest": hashlib.sha256(b"".join(leaf.tobytes() for leaf in models)).hexdigest()[:16],
        "model": [number.hex() for number in summary(models)],
        **{name: int(history[f"bytes_{name}"].sum()) for name in ("down", "up")},
        "lost": int(history["lost"].sum()),
        "state": [sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(s)) for s in states],
        "fusions": compiled.as_text().count(" fusion("),
        "flops": int(cost["flops"]),
        "accessed": int(cost["bytes accessed"]),
    }


def summary(models: list[np.ndarray]) -> list[float]:
    """Return the last model's norm, its product with a fixed vector, and that of the mean model."""
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in models], axis=1).astype(float)
    fixed = np.cos(np.arange(flat.shape[1]))
    return [float(np.linalg.norm(flat[-1])), float(flat[-1] @ fixed), float((flat @ fixed).mean())]


def environment() -> dict[str, str]:
    """Return what digests and programs depend on."""
    path, cpu = pathlib.Path("/proc/cpuinfo"), platform.processor()
    if path.exists():
        kinds = r"^(?:model name|cpu family|model|stepping)\s*: (.*)$"
        cpu = " ".join(dict.fromkeys(re.findall(kinds, path.read_text(), re.MULTILINE)))
    return {"jax": jax.__version__, "cpu": cpu}


def differences(found: dict, kept: dict, *, one_machine: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield column, recorded value and found value, where they differ."""
    for column in ALWAYS + (ON_ONE_MACHINE if one_machine else ()):
        if column in kept and found[column] != kept[column]:
            yield column, kept[column], found[column]
    old, new = ([float.fromhex(number) for number in row["model"]] for row in (kept, found))
    distance = max(abs(x - y) for x, y in zip(old, new, strict=True)) / abs(old[0])
    if not distance <= 1e-5:
        yield "model", 0.0, distance


def written(record: dict[str, Any]) -> str:
    """Return the record as JSON with one line for each row."""
    parts = [f'"environment": {json.dumps(record["environment"])}']
    for part in ("explained", "rows"):
        lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(record[part].items())]
        parts.append(f'"{part}": {{' + "".join(f"\n{line}," for line in lines)[:-1] + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def is_named(key: str, names: list[str]) -> bool:
    """Return whether a row has one of these names, or begins with it; true without names."""
    starts = tuple(name + end for name in names for end in " ,")
    return not names or key in names or key.startswith(starts)


def chosen(names: list[str], settings: list[str]) -> Iterator[tuple[str, Row, str]]:
    """Yield key, row and setting of the rows of these names, or of all."""
    for name, row in rows().items():
        last = "batches" if row.make(losses).facts.needs_everyone else "lost"
        for setting in settings or ("full", "linear", last):
            if is_named(key := f"{name}, {setting}", names):
                yield key, row, setting


def results(names: list[str], settings: list[str]) -> Iterator[tuple[str, dict]]:
    """Yield the measured rows of these names, or of all."""
    for key, row, setting in chosen(names, settings):
        found = program(row, setting)
        if found and setting == "linear" and (plain := program(row, "full")):
            found = None if found[0].as_text() == plain[0].as_text() else found
        if found:
            yield key, measured(*found)
        jax.clear_caches()


def compared(record: dict, names: list[str], settings: list[str]) -> int:
    """Print all differences from the record, and return how many nothing explains."""
    one_machine = record["environment"] == environment() and not os.environ.get("XLA_FLAGS")
    unexplained = 0
    left = {key for key, _, _ in chosen(names, settings) if key in record["rows"]}
    print(f"{len(left)} rows of the record")
    for key, found in results(names, settings):
        kept = record["rows"].get(key, {"commit": "no commit"} | found | {"up": None})
        left.discard(key)
        for column, old, new in differences(found, kept, one_machine=one_machine):
            entries = [e for start, e in record["explained"].items() if is_named(key, [start])]
            reasons = [entry["why"] for entry in entries if column in entry["columns"]]
            unexplained += not reasons
            text = f"{column} {old} at {kept['commit']}, {new} now"
            print(f"{key}: {text}; {reasons[0] if reasons else 'not explained'}", flush=True)
    for key in sorted(left):
        print(f"{key}: no such row now")
    where = "bits and programs" if one_machine else "models up to 1e-5: compiled otherwise"
    print(f"{where}: {unexplained + len(left)} differences that nothing explains")
    return unexplained + len(left)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--settings", type=lambda text: text.split(","), default=[])
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    if not options.record:
        return int(compared(json.loads(RECORD.read_text()), options.names, options.settings) > 0)
    record = {"environment": environment(), "explained": {}, "rows": {}}
    if options.record.exists():
        record |= json.loads(options.record.read_text())
    if record["environment"] != environment():
        parser.error("the record is of another machine or version of JAX")
    for name, found in results(options.names, options.settings):
        if kept := record["rows"].get(name):
            changed = {at: old for at, old, _ in differences(found, kept, one_machine=True)}
            found["before"] = {"commit": kept["commit"]} | changed
        record["rows"][name] = {"commit": options.commit} | found
        options.record.write_text(written(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
