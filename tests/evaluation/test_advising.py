"""Advice on a pool against teams tried one by one, and the command on a small import."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from support.cli import Cli, Result
from support.datasets import make_logits

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.evaluation import advising, leaderboard
from rlfocal.evaluation.advising import Teams, advise_add, advise_budgets, advise_drop, advise_swap

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
    budget = Budget.of("all" if text == "inf" else text)
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
        advise_budgets(Teams(unpriced, DATA.models), [Budget.of("1c")])


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
            assert found[model].verdict == "the same team"
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


def test_one_model_in_anothers_place() -> None:
    strong, copy = DATA.models[4], DATA.models[0]
    data = replace(
        DATA,
        **{
            name: np.concatenate([getattr(DATA, name)[:, 4:], getattr(DATA, name)[:, 1:]], axis=1)
            for name in ("probs", "logprobs", "predictions")
        },
    )
    same = advise_swap(data, data.models, strong, copy)
    assert (same.flipped, same.shift, same.change.mean) == (0, 0.0, 0.0)
    assert same.verdict.startswith(f"{strong} may become {copy}: the best team is 0.0 points")
    worse = advise_swap(DATA, DATA.models, strong, copy)
    assert worse.flipped == (DATA.predictions[:, 0] != DATA.predictions[:, 4]).sum()
    assert worse.change.mean == pytest.approx(DATA.correct[:, 0].mean() - DATA.correct[:, 4].mean())
    assert worse.shift is not None
    assert worse.shift > 0.5
    assert worse.before.models == tuple(DATA.models[i] for i in best(DATA, {1, 2, 3, 4}))
    assert worse.after.models == tuple(DATA.models[i] for i in best(DATA, {0, 1, 2, 3}))
    assert worse.verdict.startswith(f"{strong} should not become {copy}: the best team is ")


@pytest.mark.usefixtures("toy")
def test_the_command(cli: Cli, monkeypatch: pytest.MonkeyPatch, toy: Result) -> None:
    assert toy.code == 0
    monkeypatch.setenv("COLUMNS", "80")
    asked = cli("advise", "-b", "toy", "--drop", "--budget", "1,all", "--swap", "weak=strong")
    assert asked.code == 0, asked.err
    assert max(map(len, asked.out.splitlines())) <= 80
    assert "RL-Focal within a budget: `rlfocal evaluate -b toy --budgets B,...`" in asked.out
    assert "of 50 flip, log-probs of choices move by" in " ".join(asked.out.split())
    found = json.loads(cli("advise", "-b", "toy", "--json").out)
    assert [one["about"] for one in found["budgets"]] == ["1", "2", "3", "4", "inf"]
    added = json.loads(cli("advise", "-b", "toy", "--add", "--models", "weak", "--json").out)
    assert {one["about"] for one in added["add"]} == {"strong", "other"}
    assert cli("evaluate", "-b", "toy", "--methods", "best_plurality:2", "--budgets", "1").code == 0
    quick = "best_plurality:2"  # in the place of one of RL-Focal's methods, which train for seconds
    for module in (advising, leaderboard):
        monkeypatch.setattr(module, "is_ours", lambda method: method == quick)
    monkeypatch.setattr(leaderboard, "RL_FOCAL", (quick,))
    measured = json.loads(cli("advise", "-b", "toy", "--budget", "1,2,3", "--json").out)["rl_focal"]
    assert {(one["budget"], one["mean_pool_size"]) for one in measured} == {("2", 2.0), ("3", 2.0)}
    for wrong, message in (
        (("--add",), "--add needs --models"),
        (("--swap", "weak"), "--swap 'weak' is not A=B"),
        (("--swap", "weak=weak"), "name two models"),
        (("--swap", "weak=strog"), "did you mean 'strong'"),
        (("--budget", "lots"), "'lots' is not a budget"),
    ):
        refused = cli("advise", "-b", "toy", *wrong)
        assert refused.code == 2
        assert message in refused.err
