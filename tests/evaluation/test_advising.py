"""Advice on a pool against teams tried one by one, and the command on a small import."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from support.cli import Cli
from support.datasets import make_logits

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.evaluation.advising import (
    Room,
    Teams,
    advise_add,
    advise_budgets,
    advise_drop,
    gain_of_like_pools,
    measured_gains,
    room,
)

DATA = make_logits(3, T=400, N=5)


def right(data: Dataset, team: tuple[int, ...]) -> np.ndarray:
    """Soft vote by hand; the documents have no ties."""
    return np.asarray(data.probs[:, team].mean(axis=1).argmax(axis=1) == data.labels)


def best(
    data: Dataset, models: set[int], most: float = np.inf, prices: np.ndarray | None = None
) -> tuple[int, ...]:
    """The team of these models that is best on train, and no dearer than `most`."""
    teams = [t for size in range(1, len(models) + 1) for t in combinations(sorted(models), size)]
    paid = np.ones(5) if prices is None else prices
    return max((t for t in teams if paid[list(t)].sum() <= most), key=lambda t: right(data.train, t).mean())


@pytest.mark.parametrize("text", ["1", "1.5", "2", "inf", "3c", "6.5c"])
def test_the_best_team_within_a_budget(text: str) -> None:
    budget = Budget.parse("all" if text == "inf" else text)
    [advice] = advise_budgets(Teams(DATA, DATA.models), [budget])
    team = best(DATA, set(range(5)), budget.amount, DATA.prices if budget.unit == "cents" else None)
    assert advice.about == text
    assert advice.team.models == tuple(DATA.models[i] for i in team)
    hits, alone = right(DATA.test, team), right(DATA.test, best(DATA, set(range(5)), 1))
    assert advice.team.test == pytest.approx(hits.mean())
    assert advice.team.stderr == pytest.approx(np.sqrt(hits.mean() * (1 - hits.mean()) / 200))
    assert advice.team.cost == DATA.prices[list(team)].sum()
    if advice.difference is None:
        assert len(team) == 1
    else:
        assert advice.difference.mean == pytest.approx(hits.mean() - alone.mean())


def test_a_budget_below_every_known_price_is_refused() -> None:
    unpriced = replace(DATA, prices=np.array([np.nan, 2, 3, 4, 5]))
    with pytest.raises(InputError, match="--budget 1c: no model of made is that cheap, by known prices"):
        advise_budgets(Teams(unpriced, DATA.models), [Budget.parse("1c")])


def test_what_is_lost_without_each_model() -> None:
    every = best(DATA, set(range(5)))
    found = {advice.about: advice for advice in advise_drop(Teams(DATA, DATA.models))}
    assert set(found) == set(DATA.models)
    for at, model in enumerate(DATA.models):
        team = best(DATA, set(range(5)) - {at})
        assert found[model].team.models == tuple(DATA.models[i] for i in team)
        if at in every:
            lost = right(DATA.test, team).mean() - right(DATA.test, every).mean()
            assert found[model].difference.mean == pytest.approx(lost)  # type: ignore[union-attr]
        else:
            assert found[model].difference is None
    gains = [a.difference.mean if a.difference else 0.0 for a in found.values()]
    assert gains == sorted(gains, reverse=True)


def test_what_each_other_model_would_add() -> None:
    weak = DATA.models[:2]
    found = {advice.about: advice for advice in advise_add(Teams(DATA, weak))}
    assert set(found) == set(DATA.models[2:])
    for at in (2, 3, 4):
        team = best(DATA, {0, 1, at})
        assert found[DATA.models[at]].team.models == tuple(DATA.models[i] for i in team)
    assert next(iter(found)) == max(found, key=lambda name: found[name].team.test)


def test_what_like_pools_gained_is_looked_up_by_labels_then_by_ceiling() -> None:
    correct = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=np.bool_)
    assert room(correct) == (0.25, 0.25)
    every = measured_gains()
    for one in every:
        inside = (one.low_ceiling + one.high_ceiling) / 2
        assert gain_of_like_pools(Room(inside, 0.0), one.labels) == one
        assert f"from {one.labels:,} labels" in one.sentence(Room(inside, 0.0), 77)
        assert one.gain[1] <= one.gain[0] <= one.gain[2]
    most = max(every)
    assert gain_of_like_pools(Room(0.99, 0.0), 10**6) == most
    assert gain_of_like_pools(Room(0.0, 0.0), 1) == min(every)


@pytest.mark.usefixtures("toy")
def test_the_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = cli("advise", "-b", "toy", "--drop", "--budget", "1,all")
    assert asked.code == 0, asked.err
    assert max(map(len, asked.out.splitlines())) <= 80
    assert re.search(r"without weak +\d", asked.out)
    found = json.loads(cli("advise", "-b", "toy", "--json").out)
    assert found["like_pools"]["sentence"] in " ".join(asked.out.split())
    assert [one["about"] for one in found["budgets"]] == ["1", "2", "3", "4", "inf"]
    added = json.loads(cli("advise", "-b", "toy", "--add", "--models", "weak", "--json").out)
    assert {one["about"] for one in added["add"]} == {"strong", "other"}
    for wrong, message in ((("--add",), "--models"), (("--models", "weak,strog"), "did you mean 'strong'")):
        refused = cli("advise", "-b", "toy", *wrong)
        assert refused.code == 2
        assert message in refused.err
