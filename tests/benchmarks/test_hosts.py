"""The model of a round's seconds on several hosts, in the cases that are known."""

import pytest

from benchmarks.hosts import PLANS, plan, seconds_of_a_round

ROUND = {"per_client": 0.1, "latency": 1e-4, "bytes_per_second": 1e9}


def test_one_host_sends_nothing_and_many_send_each_byte_twice_and_wait_for_each_message():
    assert seconds_of_a_round(10, 1e9, 1, **ROUND) == pytest.approx(1.0)
    two = 5 * 0.1 + 2 * 7e-4 + 1.0  # half of the bytes, there and back
    assert seconds_of_a_round(10, 1e9, 2, **ROUND) == pytest.approx(two)
    many = 0.1 + 2 * 10 * 7e-4 + 2 * 0.999
    assert seconds_of_a_round(10, 1e9, 1000, **ROUND) == pytest.approx(many)


def test_the_plan_has_a_line_for_each_model_and_link(capsys):
    plan()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(PLANS)
    assert "EMNIST CNN, 10 Gb/s Ethernet: 1: 19 h, 2: 9.3 h, 8: 2.4 h, 32: 0.77 h" in lines
