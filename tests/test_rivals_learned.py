"""Routers that learn from questions: EAGLE by hand, and streams whose questions tell who knows."""

from __future__ import annotations

import pytest
from worded_data import accuracy, knowers, topical

from rlfocal.methods.eagle import elo


def test_ratings_move_as_elo_says() -> None:
    first = elo([1500.0, 1500.0], [[1.0, 0.0]], 32.0)
    assert first == [1516.0, 1484.0]
    # Both right is a draw, which costs the one that was expected to win.
    expected = 1 / (1 + 10 ** ((1484 - 1516) / 400))
    second = elo([1500.0, 1500.0], [[1.0, 0.0], [1.0, 1.0]], 32.0)
    assert second == pytest.approx([1516 + 32 * (0.5 - expected), 1484 - 32 * (0.5 - expected)])


def test_three_models_play_every_two_in_turn() -> None:
    a, b, c = 1500.0, 1500.0, 1500.0
    for one, two, score in (("a", "b", 1.0), ("a", "c", 1.0), ("b", "c", 0.5)):
        now = {"a": a, "b": b, "c": c}
        moved = 32 * (score - 1 / (1 + 10 ** ((now[two] - now[one]) / 400)))
        now[one], now[two] = now[one] + moved, now[two] - moved
        a, b, c = now["a"], now["b"], now["c"]
    assert elo([1500.0] * 3, [[1.0, 0.0, 0.0]], 32.0) == pytest.approx([a, b, c])
    assert a > b
    assert sum((a, b, c)) == pytest.approx(4500)


def test_it_asks_whom_similar_questions_speak_for() -> None:
    data = topical()
    assert accuracy("eagle", data) > knowers(data) - 0.05
    assert accuracy("eagle", data, global_share=1.0) < knowers(data) - 0.1


@pytest.mark.parametrize(("name", "n_models"), [("mf", 3), ("irt", 3), ("routellm_mf", 2)])
def test_learned_routers_ask_who_knows_the_topic(name: str, n_models: int) -> None:
    data = topical(n_models=n_models)
    assert accuracy(name, data) > knowers(data) - 0.05
