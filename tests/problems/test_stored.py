"""Populations in folders: saved, memory-mapped, and refused if damaged."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import from_rows
from fcojax.problems import memory


def population():
    rng = np.random.default_rng(0)
    examples = {
        "x": rng.standard_normal((20, 3)),
        "pair": (rng.integers(9, size=20, dtype=np.int8), [jnp.arange(20, dtype=jnp.bfloat16)]),
    }
    return from_rows(examples, [9, 1, 10], 0.5, ids=["c", "a", "b"])


@pytest.fixture
def folder(tmp_path):
    fcojax.save_clients(population(), tmp_path / "deep" / "clients")
    return tmp_path / "deep" / "clients"


def mapped(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


@pytest.mark.parametrize("verify", [False, True])
def test_open_clients_returns_what_was_saved(folder, verify):
    saved, opened = population(), fcojax.open_clients(folder, verify=verify)
    assert jax.tree.structure(saved.examples) == jax.tree.structure(opened.examples)
    pairs = zip(jax.tree.leaves(saved.examples), jax.tree.leaves(opened.examples), strict=True)
    for mine, found in pairs:
        assert mapped(found) and found.dtype == mine.dtype
        assert np.array_equal(mine, found)
    assert opened.ids.tolist() == ["a", "b", "c"]
    for name in ("num_clients", "min_size", "max_size", "size_bounds"):
        assert getattr(opened, name) == getattr(saved, name)
    assert np.array_equal(opened.weights, saved.weights)
    assert np.array_equal(opened.offsets, saved.offsets)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["clients"]


def test_a_selection_of_a_stored_population_is_a_population(folder):
    opened = fcojax.open_clients(folder)
    rows, sizes = opened.rows_of([2, 0])
    assert sizes.tolist() == [9, 1]
    start = opened.offsets.tolist()
    assert np.array_equal(
        rows["x"], np.concatenate([opened.examples["x"][start[2] :], opened.examples["x"][:1]])
    )
    some = opened.select([2, 0])
    assert some.ids.tolist() == ["a", "c"] and some.sizes.tolist() == [1, 9]
    with pytest.raises(ValueError, match=r"members are \[0, 3\]; pass whole numbers from 0 to 2"):
        opened.rows_of([0, 3])


def test_a_run_on_a_folder_is_the_run_in_memory(folder):
    def loss(w, rows):
        return (rows["x"] @ w) ** 2

    algorithm = fcojax.algorithms.fed_avg(loss)
    hparams = fcojax.algorithms.fed_avg.Hparams(client_lr=0.1)
    opened = fcojax.open_clients(folder)
    given = jax.random.key(0), fcojax.local_steps(2, 3)
    models = [
        fcojax.run(algorithm, hparams, jnp.ones(3), data, *given, num_rounds=2)[0]
        for data in (population(), opened, opened.to_device())
    ]
    assert np.array_equal(models[0], models[1]) and np.array_equal(models[0], models[2])


def test_to_device_reads_the_files(folder):
    opened = fcojax.open_clients(folder)
    loaded, expected = opened.to_device(), population()
    for path in folder.glob("examples.*"):
        path.write_bytes(bytes(path.stat().st_size))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(opened.examples))
    jax.tree.map(np.testing.assert_array_equal, loaded.examples, expected.examples)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip_bit(path):
    """Change one bit in the last byte."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def other_type(path):
    array = np.load(path)
    np.save(path, array.astype(array.dtype.newbyteorder()))


def edit(path):
    manifest = json.loads(path.read_text())
    manifest["files"]["offsets"]["shape"] = [5]
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("file", "harm", "message"),
    [
        ("examples.0.npy", cut, "examples.0.npy has 147 bytes and does not hold the 148"),
        ("examples.1.npy", pathlib.Path.unlink, "examples.1.npy has 0 bytes"),
        ("examples.2.npy", other_type, "examples.2.npy has .* bytes and does not hold"),
        ("offsets.npy", flip_bit, "offsets.npy has .* bytes and does not hold"),
        ("ids.npy", flip_bit, "ids.npy has .* bytes and does not hold"),
        ("clients.json", cut, "is not a manifest that this version wrote"),
        ("clients.json", edit, "is not a manifest that this version wrote"),
        ("clients.json", lambda path: path.write_text("[1]"), "is not a manifest"),
    ],
)
def test_folders_that_are_not_as_saved_are_refused(folder, file, harm, message):
    harm(folder / file)
    with pytest.raises(ValueError, match=message):
        fcojax.open_clients(folder)


def test_a_changed_example_is_found_by_verifying(folder):
    flip_bit(folder / "examples.0.npy")
    fcojax.open_clients(folder)
    with pytest.raises(ValueError, match="examples.0.npy"):
        fcojax.open_clients(folder, verify=True)


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="no space"):
        fcojax.save_clients(population(), tmp_path / "clients")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(folder):
    with pytest.raises(ValueError, match="exists already"):
        fcojax.save_clients(population(), folder)
    fcojax.open_clients(folder, verify=True)


def test_a_wider_file_is_converted_a_few_rows_at_a_time(folder, monkeypatch):
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 48)  # two rows
    found = fcojax.open_clients(folder).examples["x"]
    with jax.enable_x64(False):
        rows = memory.padded_rows(found[2:], 1, 6, 7)
    expected = np.asarray(found)[[3, 4, 5, 6, 7, 7, 7]]
    np.testing.assert_array_equal(rows, expected.astype(np.float32), strict=True)
