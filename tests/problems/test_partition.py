import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcojax.problems import partition
from fcojax.problems.partition import Partition

PARTITIONERS = {
    "iid": lambda labels, m, seed: partition.iid(labels.size, m, seed=seed),
    "one shard": lambda labels, m, seed: partition.label_shards(labels, m, 1, seed=seed),
    "shards": lambda labels, m, seed: partition.label_shards(labels, m, 3, seed=seed),
    "dirichlet": lambda labels, m, seed: partition.dirichlet(labels, m, 3.0, seed=seed),
}
EVEN = ("iid", "one shard")
TEN_LABELS = np.arange(200) % 10
DIGESTS = {
    "iid": "fcf480403ad6870cfe1add7e5c56bf389e99c8e2bb0d4909f864aa676eb42b2b",
    "one shard": "f7f2ab0b6775b44b3f5321eabbb5236dbc4a533b03b2c7dce19be4560a129747",
    "shards": "a434b86b77a9510de340d3192acec54611c73805fc62fa51dc351af56d604136",
    "dirichlet": "a1006e8d09c42c3e591e3cddb901b28444924f6a79f9efd8ab2af92523c22bad",
}


@st.composite
def tasks(draw):
    """Return labels with at least eight examples per client, a number of clients and a seed."""
    num_clients = draw(st.integers(1, 5))
    size = st.integers(8 * num_clients, 60)
    labels = draw(size.flatmap(lambda n: st.lists(st.integers(-2, 3), min_size=n, max_size=n)))
    return np.array(labels), num_clients, draw(st.integers(0, 2**32))


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def digest(found):
    """Return the SHA-256 of a partition without ids."""
    content = hashlib.sha256()
    for array in (found.order, found.sizes):
        content.update(array.size.to_bytes(8, "little") + array.astype("<i8").tobytes())
    content.update(b"null")
    return content.hexdigest()


def labels_of_clients(labels, found):
    return [set(labels[mine].tolist()) for mine in found.indices()]


def counts_of(labels, found):
    """Return the number of examples of each client and label."""
    counts = np.zeros((found.sizes.size, labels.max() + 1), int)
    for client, mine in enumerate(found.indices()):
        for label in labels[mine]:
            counts[client, label] += 1
    return counts


@pytest.mark.parametrize("name", PARTITIONERS)
@settings(max_examples=40, deadline=None)
@given(tasks())
def test_every_example_has_one_client_and_every_client_an_example(name, task):
    labels, num_clients, seed = task
    found = PARTITIONERS[name](labels, num_clients, seed)
    assert sorted(found.order.tolist()) == list(range(labels.size))
    assert found.sizes.shape == (num_clients,) and found.sizes.sum() == labels.size
    assert found.sizes.min() >= 1
    assert np.array_equal(np.concatenate(found.indices()), found.order)
    assert [mine.size for mine in found.indices()] == found.sizes.tolist()
    if name in EVEN:
        assert np.ptp(found.sizes) <= 1
    assert same(found, PARTITIONERS[name](labels, num_clients, seed))


def test_examples_follow_their_client():
    images = np.arange(24.0).reshape(6, 2, 2)
    found = Partition(np.array([4, 0, 5, 2, 3, 1]), np.array([1, 3, 2]))
    data = found.apply({"x": images, "y": np.arange(6)}, "examples")
    assert data.sizes.tolist() == [1, 3, 2] and data.examples["y"].tolist() == [4, 0, 5, 2, 3, 1]
    assert np.array_equal(data.examples["x"], images[found.order])
    assert data.weights.tolist() == [1.0, 3.0, 2.0]
    with pytest.raises(ValueError, match="has 6 examples but a field has shape"):
        found.apply({"x": images, "y": np.arange(5)})


@pytest.mark.parametrize("shards_per_client", [1, 2, 4])
def test_shards_that_fit_the_labels_have_one_label_each(shards_per_client):
    labels = np.arange(240) % 4  # sixty of each label, with five, ten or twenty per shard
    found = partition.label_shards(labels, 12, shards_per_client, seed=1)
    assert max(len(mine) for mine in labels_of_clients(labels, found)) <= shards_per_client
    shard = 20 // shards_per_client
    assert (counts_of(labels, found) % shard == 0).all()


def test_dirichlet_near_zero_gives_every_label_to_one_client():
    labels = np.arange(240) % 12
    for alpha in (5e-324, 1e-8):
        counts = counts_of(labels, partition.dirichlet(labels, 3, alpha))
        assert ((counts == 0) | (counts == 20)).all()


def test_dirichlet_gives_up_after_max_draws():
    with pytest.raises(ValueError) as error:
        partition.dirichlet(np.zeros(10, int), 5, 1e-8, min_size=2, max_draws=50)
    assert (
        "none of 50 draws gave each of 5 clients 2 examples; the best draw gave all at least 0"
        in (str(error.value))
    )
    few = partition.dirichlet(TEN_LABELS, 4, 0.5, min_size=1, seed=1)
    many = partition.dirichlet(TEN_LABELS, 4, 0.5, min_size=40, seed=1)
    assert few.sizes.min() < 40 <= many.sizes.min()


def test_a_seed_gives_the_same_partition_everywhere():
    """The hashes are of splits drawn earlier."""
    for name, split in PARTITIONERS.items():
        assert digest(split(TEN_LABELS, 4, 7)) == DIGESTS[name], name


FIVE = np.arange(5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: partition.iid(5, 6), "6 clients with at least 1 each need 6 examples"),
        (lambda: partition.label_shards(FIVE, 2, 3), "2 clients with at least 3 each need 6"),
        (lambda: partition.dirichlet(FIVE, 2, 0.0), "alpha is 0.0"),
        (lambda: partition.dirichlet(FIVE, 2, 1.0, min_size=3), "need 6 examples but there are 5"),
        (lambda: partition.by_column(np.ones((2, 2))), "labels have shape (2, 2)"),
        (lambda: partition.by_column([]), "labels have shape (0,)"),
        (lambda: partition.by_column(["a", None]), "all finite numbers or all strings"),
        (lambda: partition.by_column(["a", float("nan")]), "all finite numbers or all strings"),
        (lambda: partition.by_column(np.array([1, "1"], object)), "all strings"),
    ],
)
def test_impossible_partitions_are_refused_in_a_sentence(build, message):
    with pytest.raises(ValueError) as error:
        build()
    assert message in str(error.value) and "\n" not in str(error.value)
