"""Models as safetensors: all dtypes and structures round-trip, and other programs agree."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax_sites import safetensors

DTYPES = sorted(safetensors._CODES)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_bit_by_bit(dtype):
    numbers = np.arange(12).reshape(3, 4).astype(jnp.dtype(dtype))
    model = {"w": numbers, "empty": np.zeros((0, 2), jnp.dtype(dtype)), "one": numbers[1, 2]}
    arrays, metadata = safetensors.loads(safetensors.dumps(model, {"a": "é"}))
    assert metadata == {"a": "é"}
    for name, expected in model.items():
        assert arrays[name].dtype == expected.dtype and arrays[name].shape == expected.shape
        assert arrays[name].tobytes() == expected.tobytes()


def test_a_pytree_comes_back_in_its_form(tmp_path):
    model = {"layers": [(jnp.ones((2, 3), jnp.bfloat16), None), {"b": jnp.arange(3)}], "s": 2.0}
    path = tmp_path / "model.safetensors"
    safetensors.save(path, model)
    found = safetensors.load(path, like=jax.eval_shape(lambda: model))
    assert jax.tree.structure(found) == jax.tree.structure(model)
    jax.tree.map(np.testing.assert_array_equal, found, model)
    assert sorted(safetensors.load(path)) == ["layers.0.0", "layers.1.b", "s"]
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("like", "sentence"),
    [
        ({"a": np.zeros(3)}, r"b is float64\[2\] and not among those expected"),
        (
            {"a": np.zeros(3), "b": np.zeros(2), "c": np.zeros(2)},
            r"c is missing and not float64\[2\]",
        ),
        ({"a": np.zeros(3), "b": np.zeros(4)}, r"b is float64\[2\] and not float64\[4\]"),
        ({"a": np.zeros(3, "float32"), "b": np.zeros(2)}, r"a is float64\[3\] and not float32"),
    ],
)
def test_another_model_is_refused(tmp_path, like, sentence):
    safetensors.save(tmp_path / "model", {"a": np.zeros(3), "b": np.zeros(2)})
    with pytest.raises(ValueError, match=sentence):
        safetensors.load(tmp_path / "model", like=like)


def header(**entry):
    text = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry})
    return len(text).to_bytes(8, "little") + text.encode() + bytes(8)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8 + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"{x",
        header(dtype="P9"),
        header(shape=[3]),
        header(shape=[-2]),
        header(shape=["2"]),
        header(data_offsets=[4, 12]),
        header(data_offsets=[-8, 0]),
        header(data_offsets=[0]),
        header(more=1),
        header(shape=[2**60] * 100_000),
        (200_000).to_bytes(8, "little") + b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_damaged_files_are_refused_in_a_sentence(data):
    assert safetensors.loads(header())[0]["a"].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="are not safetensors"):
        safetensors.loads(data)


def test_the_package_of_the_format_reads_and_writes_the_same():
    judge = pytest.importorskip("safetensors.numpy", reason="the package safetensors is missing")
    model = {"w": np.arange(6.0).reshape(2, 3), "n": np.arange(3, dtype=np.int8), "e": np.zeros(0)}
    for arrays in (judge.load(safetensors.dumps(model)), safetensors.loads(judge.save(model))[0]):
        assert arrays.keys() == model.keys()
        for name, expected in model.items():
            np.testing.assert_array_equal(arrays[name], expected, strict=True)


def test_two_names_that_coincide_and_other_dtypes_are_refused():
    with pytest.raises(ValueError, match=r"two arrays have the name a\.b"):
        safetensors.dumps({"a.b": np.zeros(1), "a": {"b": np.zeros(1)}})
    with pytest.raises(ValueError, match="w has dtype complex128"):
        safetensors.dumps({"w": np.zeros(1, complex)})
