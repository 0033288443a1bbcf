"""What a user changes of a figure: names, size and font."""

import struct

import pytest

from experiments.report import axes
from experiments.report.look import Look, applied, looking
from experiments.report.plots import style


def drawn():
    figure, (axis,) = axes.panels(1)
    axis.plot([0, 1], [1, 2], label="mine")
    axes.describe(axis, "round", "loss", title="one")
    return figure, axis


def texts(axis):
    (tick, *_) = axis.get_xticklabels()
    return [(text.get_fontsize(), text.get_fontfamily()[0]) for text in (axis.xaxis.label, tick)]


def test_texts_grow_in_proportion_and_have_the_family():
    figure, axis = drawn()
    assert applied(figure) == 1.0
    (label, family), (tick, _) = texts(axis)
    with looking(Look(size=(5, 2), font="serif", font_size=16.0)):
        assert applied(figure) == 2.0
    assert texts(axis) == [(2 * label, "serif"), (2 * tick, "serif")] and family != "serif"
    assert figure.get_size_inches().tolist() == [5, 2]


@pytest.mark.parametrize("finish", [axes.finish, axes.save])
def test_a_file_has_the_size_that_was_asked_for(finish, tmp_path):
    with looking(Look(size=(5, 2))):
        path = finish(drawn()[0], tmp_path / "one.png", *["title"] * (finish is axes.finish))
    size = struct.unpack(">2I", path.read_bytes()[16:24])
    assert size == (750, 300) and path.with_suffix(".pdf").exists()


def test_methods_have_the_names_of_the_user_and_keep_their_colours():
    plain = [style("fed_avg"), style("mine", ["mine"])]
    with looking(Look(labels={"fed_avg": "Ours", "mine": "Mine"})):
        named = [style("fed_avg"), style("mine", ["mine"])]
    assert [name for name, *_ in named] == ["Ours", "Mine"]
    assert [one[1:] for one in named] == [one[1:] for one in plain]
    assert [style("fed_avg"), style("mine", ["mine"])] == plain
