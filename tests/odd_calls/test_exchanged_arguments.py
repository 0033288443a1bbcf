"""The examples of all docstrings with one argument exchanged: they end, or name what is wrong.

What a caller of another library passes by mistake is drawn from the lists below. An error of
Python or JAX will do if it is raised in the function that was called or in the caller's own, or if
its message says the type, the dtype, the shape or the value of what was passed; of 200 calls at
most 4 may end otherwise. A sentence of ours is one line, and no number is NaN unless it was made of
one that is not finite.
"""

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import pathlib
import signal
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from tests.odd_calls.test_annotations import PACKAGES

NUMBERS = (
    "0",
    "-1",
    "2.5",
    "True",
    "None",
    "'text'",
    "np.float32(2)",
    "np.array(3)",
    "np.array([1, 2])",
    "1j",
    "-0.0",
    "b'x'",
    "[1]",
    "3",
    "np.int8(-3)",
    "1e-7",
    "np.nan",
    "np.inf",
    "1e300",
)
OTHERS = (
    "None",
    "0",
    "'text'",
    "[]",
    "{}",
    "()",
    "lambda *a, **k: None",
    "np.ones((2, 3))",
    "object()",
    "int",
    "1.5",
    "iter([1])",
    "jnp.zeros(0)",
    "np.array(['a'])",
    "-1",
)
CHANGED = (
    "np.asarray({})[None]",
    "np.asarray({}).astype(int)",
    "[{}]",
    "({},)",
    "np.asarray({}).T",
    "np.asarray({}).astype(object)",
    "np.asarray({}, np.float16)",
    "np.asarray({})[..., :-1]",
    "np.asarray({})[:0]",
    "np.asarray({}).astype(bool)",
    "np.asarray({}).astype(complex)",
    "np.ma.masked_array({}, True)",
    "np.asarray({}).tolist()",
    "np.asarray({}).astype('>f8')",
    "str({})",
)
NOT_OURS = {"print", "bool", "float", "round", "int", "np", "jnp", "jax", "optax", "sorted", "len"}
NOT_OURS |= {"abs", "str", "list", "sum", "tempfile", "range", "zip", "type", "tuple", "rng"}
SECONDS = 300
PASSED = []  # what the exchanged arguments were
ROOT = str(pathlib.Path(fcojax.__file__).parent)
WRAPPERS = ("arguments.py", "memo.py", "floats.py", "rewriting.py")


def examples():
    """The source of the examples of every public name, and the module that they run in."""
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", dir(module)):
            thing = getattr(module, name)
            if inspect.ismodule(thing) or not getattr(thing, "__doc__", None):
                continue
            if getattr(thing, "__module__", "").startswith("fcojax"):
                parts = doctest.DocTestParser().get_examples(thing.__doc__)
                if parts and not any(part.exc_msg for part in parts):
                    source = "".join(part.source for part in parts)
                    found[f"{thing.__module__}.{name}"] = thing.__module__, source
    return found


def exchanged(source, rng):
    """The same source with one argument of one call replaced, and what was done."""
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in calls if ast.unparse(call.func).split(".")[0] not in NOT_OURS]
    places = [(call.args, i) for call in calls for i in range(len(call.args))]
    places += [(word, None) for call in calls for word in call.keywords]
    if not places:
        return None
    holder, index = places[rng.integers(len(places))]
    old = holder.value if index is None else holder[index]
    if rng.random() < 0.4 and not isinstance(old, ast.Lambda | ast.Starred):
        new = str(rng.choice(CHANGED)).replace("{}", f"({ast.unparse(old)})")
    else:
        new = str(rng.choice(NUMBERS if isinstance(old, ast.Constant) else OTHERS))
    node = ast.parse(f"passed({new})", mode="eval").body
    if index is None:
        holder.value = node
    else:
        holder[index] = node
    return ast.unparse(ast.fix_missing_locations(tree)), f"{ast.unparse(old)} -> {new}"


def values(module, source):
    """What the expressions of a source are."""
    scope = vars(importlib.import_module(module)) | {"np": np, "jnp": jnp, "fcojax": fcojax}
    scope["passed"] = lambda value: PASSED.append(value) or value
    found = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Expr):
            code = compile(ast.Expression(statement.value), "<example>", "eval")
            found.append(eval(code, scope))
        else:
            exec(compile(ast.Module([statement], []), "<example>", "exec"), scope)
    return jax.block_until_ready(found)


def has_nan(found):
    numbers = (float, complex, np.ndarray, np.generic, jax.Array)
    leaves = [leaf for leaf in jax.tree.leaves(found) if isinstance(leaf, numbers)]
    floats = [leaf for leaf in leaves if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]
    return any(np.isnan(np.asarray(leaf)).any() for leaf in floats)


def names_the_fault(error, value):
    """Whether it is clear at a glance which argument an error of Python or JAX is about."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename == "<example>" or f.filename.startswith(ROOT)
    ]
    if frames and frames[-1].filename == "<example>":  # a line or a function of the caller
        return True
    inner = [f for f in frames if pathlib.Path(f.filename).name not in (*WRAPPERS, "<example>")]
    if not inner or (inner[0].filename, inner[0].name) == (inner[-1].filename, inner[-1].name):
        return True
    text, kinds = str(error), [type(value), *map(type, jax.tree.leaves(value))]
    told = ["PRNG key", repr(value)[:40]] + [kind.__name__ for kind in kinds]
    told += ["Tracer"] if hasattr(value, "shape") else []
    told += [str(value.shape), str(value.dtype)] if hasattr(value, "dtype") else []
    told += ["of type <class", "type 'type'"] if isinstance(value, type) else []
    return any(word in text for word in told)


@contextlib.contextmanager
def no_longer_than(seconds):
    def ring(*_):
        raise TimeoutError(f"no end after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_an_example_with_another_argument_ends_or_is_refused():
    table, rng = examples(), np.random.default_rng(0)
    names, ends = sorted(table), {"ran": 0, "told": 0, "other": 0, "unnamed": 0}
    while sum(ends.values()) < 200:
        name = names[rng.integers(len(names))]
        module, source = table[name]
        drawn = exchanged(source, rng)
        if drawn is None:
            continue
        changed, what = drawn
        try:
            with no_longer_than(SECONDS), contextlib.redirect_stdout(io.StringIO()):
                found = values(module, changed)
        except TimeoutError:
            raise
        except Exception as error:
            ours = isinstance(error, ValueError | ImportError) and "; p" in str(error)
            assert not (ours and "\n" in str(error).strip()), (name, what, str(error))
            named = ours or names_the_fault(error, PASSED[-1])
            ends["told" if ours else "other" if named else "unnamed"] += 1
        else:
            odd = any(word in what for word in ("nan", "inf", "1e300"))
            assert odd or not has_nan(found) or has_nan(values(module, source)), (name, what)
            ends["ran"] += 1
    assert ends["told"] > 80 and ends["ran"] > 40 and ends["unnamed"] <= 4, ends
