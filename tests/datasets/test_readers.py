"""Every reader on small files of the real format: whole, broken and of another format."""

import gzip
import struct

import h5py
import jax
import numpy as np
import pytest

import fcojax
from fcojax import datasets
from fcojax.datasets import Pooled, by_client


def refused(load, message):
    """Require that ``load`` raises an error with this message."""
    with pytest.raises(ValueError, match=message):
        load()


def test_clients_are_sorted_and_keep_the_order_of_their_rows():
    rng = np.random.default_rng(0)
    client = rng.permutation(np.repeat(["w10", "w2", "w1"], [4, 3, 5]))
    x = rng.standard_normal((12, 2)).astype(np.float32)
    data = by_client(Pooled({"x": x, "row": np.arange(12)}, client))
    assert data.ids.tolist() == ["w1", "w10", "w2"]
    assert data.sizes.tolist() == [5, 4, 3]
    rows = np.asarray(data.examples["row"])
    assert rows.tolist() == [i for name in data.ids for i in range(12) if client[i] == name]
    np.testing.assert_array_equal(data.examples["x"], x[rows])


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (None, "no client column"),
        (np.array([1, 2]), "shape .* field x has 3 rows"),
        (np.array([[1], [2], [3]]), "shape"),
        (np.array([1.0, np.nan, 2.0]), "missing id"),
    ],
)
def test_bad_client_columns_are_refused(client, message):
    refused(lambda: by_client(Pooled({"x": np.ones((3, 1))}, client)), message)


def test_npz(tmp_path):
    images = np.arange(12, dtype=np.float64).reshape(4, 3)
    labels = np.array([0, 1, 2, 1])
    hospital = np.array([2, 0, 2, 0], np.int8)
    np.savez(tmp_path / "all.npz", images=images, labels=labels, hospital=hospital)
    pooled = datasets.npz(tmp_path / "all.npz", {"x": "images", "y": "labels"}, client="hospital")
    np.testing.assert_array_equal(pooled.examples["x"], images)
    assert pooled.examples["x"].dtype == np.float32
    assert pooled.examples["y"].dtype == np.int32
    assert by_client(pooled).sizes.tolist() == [2, 2]
    assert datasets.npz(tmp_path / "all.npz", {"x": "images"}).client is None


def test_whole_numbers_beyond_int32_do_not_wrap(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.array([2**31, 1]))
    pooled = datasets.npz(tmp_path / "x.npz", {"x": "x"})
    assert pooled.examples["x"].tolist() == [2**31, 1]
    with jax.enable_x64(False):
        refused(lambda: fcojax.from_rows(pooled.examples, [2]), "out of the range of int32")


def test_libsvm_text(tmp_path):
    path = tmp_path / "a1a"
    path.write_text("-1 3:1 5:0.5\n+1 1:2 # a comment\n-1 2:-1.5\n")
    pooled = datasets.libsvm(path, num_features=6)
    expected = [[0, 0, 1, 0, 0.5, 0], [2, 0, 0, 0, 0, 0], [0, -1.5, 0, 0, 0, 0]]
    np.testing.assert_array_equal(pooled.examples["x"], np.array(expected, np.float32))
    assert pooled.examples["y"].tolist() == [0, 1, 0]
    assert pooled.client is None
    assert datasets.libsvm(path).examples["x"].shape == (3, 5)
    swapped = datasets.libsvm(path, classes=(1, -1)).examples["y"]
    assert swapped.tolist() == [1, 0, 1]


def test_libsvm_of_a_million_features_stays_sparse(tmp_path):
    path = tmp_path / "wide"
    path.write_text("-1 3:1 1000000:0.5\n" * 600 + "+1 1:2\n")
    refused(lambda: datasets.libsvm(path), "601 rows of 1000000 features, 2.2 GiB .* sparse=True")
    x = datasets.libsvm(path, sparse=True).examples["x"]
    assert x.shape == (601, 1_000_000) and x.index.shape == (601, 2)
    assert x.index[0].tolist() == [2, 999_999] and x.value[0].tolist() == [1, 0.5]
    assert x.index[600].tolist() == [0, 0] and x.value[600].tolist() == [2, 0]
    (tmp_path / "narrow").write_text("-1 3:1 5:0.5\n+1 1:2\n")
    dense, sparse = (datasets.libsvm(tmp_path / "narrow", sparse=s).examples for s in (False, True))
    np.testing.assert_array_equal(sparse["x"].to_dense(), dense["x"])
    np.testing.assert_array_equal(sparse["y"], dense["y"])


def idx_bytes(array, code):
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + shape + array.tobytes()


@pytest.fixture
def mnist_files(tmp_path):
    """Write seven digits by three writers, with half of the files compressed."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(7, 28, 28), dtype=np.uint8)
    labels = np.array([5, 0, 4, 1, 9, 2, 1], np.uint8)
    writers = np.array([103, 7, 7, 2000, 103, 7, 2000])
    table = np.zeros((9, 8), ">i4")  # two more digits, as in QMNIST's test set
    table[:7, 0], table[:7, 2] = labels, writers
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx_bytes(images, 8))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(labels, 8)))
    (tmp_path / "qmnist-test-labels-idx2-int.gz").write_bytes(gzip.compress(idx_bytes(table, 12)))
    return tmp_path, images, labels, writers


def test_mnist_by_writer(mnist_files):
    folder, images, labels, writers = mnist_files
    pooled = datasets.mnist(folder, "test")
    np.testing.assert_allclose(pooled.examples["x"], images.reshape(7, 784) / 255, rtol=1e-6)
    assert pooled.examples["x"].dtype == np.float32
    assert pooled.examples["y"].tolist() == labels.tolist()
    assert pooled.client.tolist() == writers.tolist()
    data = by_client(pooled)
    assert data.ids.tolist() == [7, 103, 2000]
    assert data.examples["y"].tolist() == [0, 4, 2, 5, 9, 1, 1]
    assert datasets.mnist(folder, "test", writers=False).client is None


def test_mnist_in_one_file_is_the_same(mnist_files, tmp_path):
    folder, images, labels, writers = mnist_files
    (tmp_path / "packed").mkdir()
    path = tmp_path / "packed" / "mnist_test.npz"
    np.savez(path, images=images, labels=labels, writer=writers)
    packed, loose = datasets.mnist(path.parent, "test"), datasets.mnist(folder, "test")
    np.testing.assert_array_equal(packed.client, loose.client)
    for field in "xy":
        np.testing.assert_array_equal(packed.examples[field], loose.examples[field])
        assert packed.examples[field].dtype == loose.examples[field].dtype
    np.savez(path, images=images, labels=labels + 10, writer=writers)
    refused(lambda: datasets.mnist(path.parent, "test"), "not one of 10 classes")


@pytest.fixture
def emnist_file(tmp_path):
    """Three writers in the layout of TensorFlow Federated."""
    rng = np.random.default_rng(0)
    path = tmp_path / "fed_emnist_digitsonly_train.h5"
    with h5py.File(path, "w") as file:
        for writer, count in (("f0100_02", 2), ("f0000_14", 3), ("f0007_11", 1)):
            group = file.create_group(f"examples/{writer}")
            group["pixels"] = rng.random((count, 28, 28), dtype=np.float32)
            group["label"] = np.arange(count, dtype=np.int32)
    return path


def test_emnist_by_writer(emnist_file):
    data = by_client(datasets.emnist(emnist_file))
    assert data.ids.tolist() == ["f0000_14", "f0007_11", "f0100_02"]
    assert data.sizes.tolist() == [3, 1, 2]
    assert data.examples["y"].tolist() == [0, 1, 2, 0, 0, 1]
    with h5py.File(emnist_file) as file:
        first = 1 - file["examples/f0000_14/pixels"][0].reshape(-1)
    np.testing.assert_array_equal(data.examples["x"][0], first)


def test_a_share_of_the_writers(emnist_file):
    train = datasets.emnist(emnist_file, share=0.6)
    assert sorted(set(train.client.tolist())) == ["f0000_14", "f0007_11"]
    same = datasets.emnist(emnist_file, client_ids=["f0000_14", "f0007_11"])
    np.testing.assert_array_equal(train.examples["x"], same.examples["x"])


def test_ratings(tmp_path):
    user, item = np.array([10, 3, 10, 7]), np.array([200, 200, 100, 300])
    rating = np.array([4.0, 1.5, 3.0, 5.0])
    np.savez(tmp_path / "r.npz", user=user, joke=item, rating=rating)
    read = datasets.ratings(tmp_path / "r.npz", names=("user", "joke", "rating"))
    assert read.shape == (3, 3)
    assert (read.users.tolist(), read.items.tolist()) == ([3, 7, 10], [100, 200, 300])
    matrix = np.zeros((3, 3))
    examples = read.pooled.examples
    matrix[examples["row"], examples["column"]] = examples["value"]
    assert matrix.tolist() == [[0, 1.5, 0], [0, 0, 5], [3, 4, 0]]
    assert by_client(read.pooled).ids.tolist() == [3, 7, 10]


def test_values_that_no_population_can_have_are_refused(emnist_file, tmp_path):
    path = tmp_path / "data"
    refused(lambda: datasets.emnist(emnist_file, num_classes=2), "label 2 in row 2")
    refused(lambda: datasets.emnist(emnist_file, client_ids=["nobody"]), "nobody")
    emnist_file.write_bytes(emnist_file.read_bytes()[:-1000])
    refused(lambda: datasets.emnist(emnist_file), "cut short")
    path.write_text("1 3:1\n2 4:1\n")
    refused(lambda: datasets.libsvm(path, classes=(0, 1)), "label 2 in row 1")
    np.savez(tmp_path / "r.npz", user=[1, 1], item=[2, 2], rating=[3.0, 4.0])
    refused(lambda: datasets.ratings(tmp_path / "r.npz"), "more than once")
