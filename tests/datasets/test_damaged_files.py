"""Randomly damaged files: a reader returns data, or an error that names the file."""

import gzip
import os
import pathlib
import struct

import jax
import numpy as np
import pytest

import fcojax
from fcojax import datasets

X, Y = np.arange(36.0).reshape(12, 3), np.arange(12) % 2


def write_idx(folder):
    written = np.stack([[1, 2, 3], *[range(3)] * 7], axis=1)
    for name, kind, array in (
        ("train-images-idx3-ubyte", 0x803, np.zeros((3, 28, 28), np.uint8)),
        ("train-labels-idx1-ubyte", 0x801, np.array([1, 2, 3], np.uint8)),
        ("qmnist-train-labels-idx2-int", 0xC02, written.astype(">i4")),
    ):
        shape = b"".join(struct.pack(">I", size) for size in array.shape)
        (folder / name).write_bytes(struct.pack(">I", kind) + shape + array.tobytes())


def read_clients(folder):
    data = fcojax.open_clients(folder, verify=True)
    return data.rows_of(np.arange(data.num_clients)), data.weights


def lines(*given):
    return "".join(f"{line}\n" for line in given)


# For each format, functions that write a file to a folder and read it.
READERS = {
    "npz": (
        lambda folder: np.savez(folder / "a.npz", x=X, y=Y, who=np.arange(12) % 3),
        lambda folder: datasets.npz(folder / "a.npz", {"x": "x", "y": "y"}, client="who"),
    ),
    "ratings": (
        lambda folder: np.savez(folder / "r.npz", user=Y, item=np.arange(12), rating=X[:, 0]),
        lambda folder: datasets.ratings(folder / "r.npz"),
    ),
    "mnist": (write_idx, lambda folder: datasets.mnist(folder)),
    "libsvm": (
        lambda folder: (folder / "d.svm").write_text(lines("+1 1:0.5 3:2", "-1 2:1", "+1 3:4")),
        lambda folder: datasets.libsvm(folder / "d.svm"),
    ),
    "clients": (
        lambda folder: fcojax.save_clients(
            fcojax.from_rows({"x": X}, [3, 4, 5]), folder / "people"
        ),
        lambda folder: read_clients(folder / "people"),
    ),
    "rows": (
        lambda folder: (folder / "rows.jsonl").write_text(lines('{"a": 1}', '{"a": 2}')),
        fcojax.rows.load,
    ),
}


def flipped(content, rng):
    changed = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
    return bytes(changed)


def with_a_hole(content, rng):
    begin = rng.integers(len(content))
    return content[:begin] + content[begin + rng.integers(1, 40) :]


def with_noise(content, rng):
    place = rng.integers(len(content))
    return content[:place] + rng.bytes(rng.integers(1, 30)) + content[place:]


DAMAGE = [
    flipped,
    flipped,
    with_a_hole,
    with_noise,
    lambda content, rng: content[: rng.integers(len(content))],
    lambda content, rng: b"",
    lambda content, rng: bytes(len(content)),
    lambda content, rng: content + content,
    lambda content, rng: gzip.compress(content),
    lambda content, rng: content.decode("latin1").encode("utf-16"),
    lambda content, rng: b"[1, {}]\nnull\n",
    lambda content, rng: b"[" * 100_000 + b"\n",
]


def damaged_array(path, rng):
    """Change one array of an npz file: its dtype, its length, its shape, or all of it."""
    with np.load(path) as file:
        arrays = dict(file)
    name = str(rng.choice(list(arrays)))
    array = arrays.pop(name)
    changes = [
        lambda: None,
        lambda: array[:-1],
        lambda: array[None],
        lambda: array.ravel()[0],
        lambda: array.astype(str),
        lambda: array.astype(object),
        lambda: array[:0],
        lambda: np.where(np.ones(array.shape), np.nan, 0),
    ]
    changed = changes[rng.integers(len(changes))]() if array.ndim and array.size else None
    np.savez(path, **arrays, **({} if changed is None else {name: changed}))


def damage(folder, rng):
    """Damage one file of a folder, or replace it by a folder, a loop of links or nothing."""
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    kind = rng.random()
    if kind > 0.9:
        path.unlink()
        [path.mkdir, lambda: path.symlink_to(path), lambda: None][rng.integers(3)]()
    elif path.suffix == ".npz" and kind > 0.4:
        damaged_array(path, rng)
    else:
        content = path.read_bytes()
        path.write_bytes(DAMAGE[rng.integers(len(DAMAGE))](content, rng))


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_named(name, tmp_path):
    write, read = READERS[name]
    rng, refused = np.random.default_rng(list(name.encode())), 0
    for number in range(40):
        folder = pathlib.Path(tmp_path / f"{number}")
        folder.mkdir()
        write(folder)
        read(folder)
        damage(folder, rng)
        try:
            jax.block_until_ready(read(folder))
        except (ValueError, OSError) as error:
            message, refused = str(error), refused + 1
            assert os.fspath(tmp_path) in message and "\n" not in message, message
            assert len(message) < 600, message
            assert type(error) in (ValueError, FileNotFoundError, OSError), repr(error)
    assert refused > 10
