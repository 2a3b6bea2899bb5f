"""The router: the agents' own decisions, one query at a time, and what it does when the world changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.datasets import make_dataset

import rlfocal
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.outputs import ObservedOutputs, Output
from rlfocal.data.policy import FailingModels, decide
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.training import train as train_rl_focal
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.rl_focal_sequential.training import train as train_sequential
from rlfocal.methods.trained import load_checkpoint, save_checkpoint
from rlfocal.serving import Router

CHOICES = 4


def made(n: int, accuracy: list[float], seed: int) -> Dataset:
    """n documents of four choices, answered by models that are right with these probabilities."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, CHOICES, n)
    right = draw.random((n, len(accuracy))) < np.array(accuracy)
    slips = (labels[:, None] + draw.integers(1, CHOICES, right.shape)) % CHOICES
    picked = np.where(right, labels[:, None], slips)
    scores = draw.normal(0, 0.5, (n, len(accuracy), CHOICES))
    np.put_along_axis(scores, picked[..., None], scores.max(axis=2, keepdims=True) + 1.0, 2)
    logprobs = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
    return replace(
        make_dataset(np.exp(logprobs), labels, n_train=n),
        models=tuple(f"m{at}" for at in range(len(accuracy))),
        prices=np.ones(len(accuracy)),
        logprobs=logprobs,
        questions=tuple(f"question {at} of {n}" for at in range(n)),
    )


QUICK = SequentialConfig(mean_pool=3, word_directions=0, recipes=(Ridges(100),))
SKILLS = [0.8, 0.75, 0.7, 0.6, 0.5, 0.4]


@pytest.fixture(scope="module")
def sequential(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("router") / "sequential.safetensors"
    save_checkpoint(train_sequential(made(400, SKILLS, 0), QUICK, [0])[0], path)
    return path


@pytest.fixture(scope="module")
def rl_focal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("router") / "rl_focal.safetensors"
    config = RLFocalConfig(
        window=100, size_penalty=3.0, mean_pool=2.0, decider_episodes=3, fusion_episodes=3, joint_episodes=3
    )
    save_checkpoint(train_rl_focal(made(400, SKILLS, 0), config, [0])[0], path)
    return path


def asked(router: Router, data: Dataset, row: int, down: Sequence[str] = ()) -> dict[str, Output]:
    """All that the router wants to know about a document."""
    outputs: dict[str, Output] = {}
    context = {"question": data.questions[row], "task": str(data.tasks[row])}
    while models := router.choose(context, outputs):
        assert not set(models) & set(outputs)
        outputs |= {model: data.logprobs[row, data.models.index(model)].tolist() for model in models}
        outputs |= {model: None for model in models if model in down}
    return outputs


@pytest.mark.parametrize("method", ["sequential", "rl_focal"])
def test_one_query_at_a_time_is_what_the_agents_decide(method: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(method)
    router = rlfocal.Router.load(path, online=False)
    test = made(60, SKILLS, 1)
    decided = decide(load_checkpoint(path), test)
    for row in range(len(test)):
        outputs = asked(router, test, row)
        assert sorted(outputs) == [m for m, on in zip(test.models, decided.pools[row], strict=True) if on]
        assert router.fuse(outputs) == decided.predictions[row]
        router.learn(int(test.labels[row]))


@pytest.mark.parametrize("method", ["sequential", "rl_focal"])
def test_models_that_are_down_are_replaced_and_named(method: str, request: pytest.FixtureRequest) -> None:
    router = Router.load(request.getfixturevalue(method), online=False)
    first = router.choose("q")
    stand_ins = router.choose("q", dict.fromkeys(first))
    assert stand_ins
    assert not set(stand_ins) & set(first)
    assert all(any(model in note for note in router.notes) for model in first)
    answer = router.fuse(dict.fromkeys(first) | {m: [0.0, 0.0, 5.0, 0.0] for m in stand_ins})
    assert answer == 2
    assert router.fuse(dict.fromkeys(first)) is None


@pytest.mark.parametrize("method", [pytest.param("sequential", marks=pytest.mark.slow), "rl_focal"])
def test_whichever_model_is_down_another_stands_in(method: str, request: pytest.FixtureRequest) -> None:
    path, data = request.getfixturevalue(method), made(30, SKILLS, 1)
    for down in data.models:
        whole, rest = Router.load(path, online=False), Router.load(path, online=False)
        for row in range(len(data)):
            team, outputs = asked(whole, data, row), dict[str, Output]()
            while models := rest.choose(data.questions[row], outputs):
                outputs |= {m: data.logprobs[row, data.models.index(m)].tolist() for m in models}
                if down in models:
                    outputs[down] = None
                    stand_ins = rest.choose(data.questions[row], outputs)
                    assert stand_ins or set(outputs) == set(data.models)
            assert bool(rest.notes) == (down in outputs)
            assert rest.fuse(outputs) in range(CHOICES)
            if down not in outputs:
                assert outputs.keys() == team.keys()
                assert rest.fuse(outputs) == whole.fuse(team)
            elif method == "rl_focal":
                assert len(outputs) == min(len(team) + 1, len(SKILLS))


@pytest.mark.parametrize("method", ["sequential", "rl_focal"])
@pytest.mark.parametrize(
    "down",
    [
        ["m0"],
        pytest.param(["m1", "m2"], marks=pytest.mark.slow),
        pytest.param(["m2", "m3"], marks=pytest.mark.slow),
        ["m0", "m1", "m2", "m3", "m5"],
    ],
)
def test_models_known_to_be_down_are_those_that_a_replay_takes_for_down(
    method: str, down: list[str], request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(method)
    test = made(60, SKILLS, 1)
    mask = np.array([model in down for model in test.models])
    decided = decide(load_checkpoint(path), test, FailingModels(mask, int((~mask).argmax())))
    for router in (Router.load(path, online=False, down=down), Router.load(path, online=False)):
        for row in range(len(test)):
            outputs = asked(router, test, row, down)
            heard = [name for name, output in outputs.items() if output is not None]
            assert sorted(heard) == [m for m, on in zip(test.models, decided.pools[row], strict=True) if on]
            assert router.fuse(outputs) == decided.predictions[row]


def test_down_must_be_some_of_the_models(sequential: Path) -> None:
    with pytest.raises(InputError, match=r"unknown model 'm9' in the policy's pool \(down\)"):
        Router.load(sequential, down=["m9"])
    with pytest.raises(InputError, match="down: no model of 6 is left to answer"):
        Router.load(sequential, down=[f"m{at}" for at in range(6)])


@pytest.mark.parametrize("method", ["sequential", "rl_focal"])
def test_a_query_of_which_all_models_are_down_teaches_nothing(
    method: str, request: pytest.FixtureRequest
) -> None:
    router, outputs = Router.load(request.getfixturevalue(method)), dict[str, Output]()
    while models := router.choose("q", outputs):
        outputs |= dict.fromkeys(models)
    assert set(outputs) == set(router.models)
    assert router.fuse(outputs) is None
    before = router._tracker.accuracy
    router.learn(3)
    assert (router._tracker.accuracy == before).all()


def test_arrays_are_outputs_and_a_new_question_is_a_new_query(sequential: Path) -> None:
    data = made(40, SKILLS, 1)
    once, again = Router.load(sequential, online=False), Router.load(sequential, online=False)
    for row, other in zip(range(20), range(20, 40), strict=True):
        outputs = asked(once, data, row)
        arrays: dict[str, Output] = {m: data.logprobs[row, data.models.index(m)] for m in outputs}
        again.choose(data.questions[other])
        about = {"question": data.questions[row], "task": str(data.tasks[row])}
        assert again.choose(about, arrays) == []  # what was cached, say
        assert again.fuse(arrays) == once.fuse(outputs)


def test_the_router_learns_from_labels(sequential: Path) -> None:
    turned = made(400, SKILLS[::-1], 3)
    late: dict[bool, float] = {}
    for online in (True, False):
        router, hits = Router.load(sequential, online=online), []
        for row in range(len(turned)):
            hits.append(router.fuse(asked(router, turned, row)) == turned.labels[row])
            router.learn(int(turned.labels[row]))
        late[online] = float(np.mean(hits[150:]))
    assert late[True] > late[False] + 0.1


def test_bad_input_is_named(sequential: Path, tmp_path: Path) -> None:
    router = Router.load(sequential)
    for outputs, words in (
        ({"m9": [0.0] * 4}, "m9"),
        ({"m0": [0.0, float("nan"), 0.0, 0.0]}, "finite"),
        ({"m0": "A"}, "one log-prob per choice"),
        ({"m0": [0.0] * 4, "m1": [0.0] * 3}, "3 log-probs"),
    ):
        with pytest.raises(InputError, match=words):
            router.fuse(outputs)
    for output in (0.5, 7, {0: -0.1}, [[0.0] * 4], np.zeros((2, 4)), ["a", "b"]):
        with pytest.raises(InputError, match="one log-prob per choice"):
            router.fuse({"m0": output})  # type: ignore[dict-item]
    for context, words in ((None, "the question"), ({"text": "q"}, "'text'"), ({"question": 3}, "a text")):
        with pytest.raises(InputError, match=words):
            router.choose(context)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="call fuse first"):
        Router.load(sequential).learn(0)
    router.fuse({"m0": [1.0, 0.0, 0.0, 0.0]})
    for label in (4, -1, True, 1.0, "0", None):
        with pytest.raises(InputError, match="not the index of a choice, 0 to 3"):
            router.learn(label)  # type: ignore[arg-type]
    router.learn(3)
    with pytest.raises(InputError, match="call fuse first"):  # a label counts once
        router.learn(3)
    with pytest.raises(InputError, match=r"none\.safetensors: the file cannot be read"):
        Router.load(tmp_path / "none.safetensors")


def test_of_more_choices_than_in_train_agents_answer_any_or_refuse(sequential: Path, rl_focal: Path) -> None:
    few, many = ([*[0.0] * (n - 1), 5.0] for n in (CHOICES - 1, CHOICES + 1))
    for checkpoint in (sequential, rl_focal):
        router = Router.load(checkpoint, online=False)
        assert router.fuse(dict.fromkeys(router.models, few)) == CHOICES - 2
    assert router.fuse(dict.fromkeys(router.models, many)) == CHOICES
    router = Router.load(sequential, online=False)
    with pytest.raises(InputError, match="5 choices, but these agents can answer at most 4"):
        router.fuse(dict.fromkeys(router.models, many))


def test_answers_are_text() -> None:
    draw = np.random.default_rng(0)
    n, skills = 200, [0.95, 0.6, 0.55]
    right = draw.random((n, 3)) < np.array(skills)
    probs = np.stack([right, ~right], axis=2).astype(np.float64)
    data = replace(
        made(n, skills, 0), kind="answers", probs=probs, logprobs=np.empty((0, 3, 2)),
        predictions=np.where(right, 0, 1), labels=np.zeros(n, np.int64), n_choices=np.full(n, 2),
        slots=tuple(("42", "7") for _ in range(n)),
    )  # fmt: skip
    router = Router(train_sequential(data, QUICK, [0])[0], online=False)
    assert router.choose("how many?") == ["m0"]
    assert router.fuse({"m0": "42", "m1": ["7", "42", None], "m2": None}) == "42"
    router.learn("42")
    assert router.fuse({"m0": " $1,042 ", "m1": "1042"}) == "1042"
    router.learn(1042)
    for label in (None, True, " ", ["42"]):
        router.fuse({"m0": "42"})
        with pytest.raises(InputError, match="not an answer"):
            router.learn(label)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="an answer or a list of answers"):
        router.fuse({"m0": 42})  # type: ignore[dict-item]


def test_equal_answers_are_one_slot_laid_out_as_in_a_dataset() -> None:
    said: dict[str, Output] = {"b": "7", "a": ["1,042", "7", "$1042", None], "c": np.array(["7.0", "8"])}
    given, _ = ObservedOutputs(["a", "b", "c"], "answers").update(said)
    assert given.answers == ["7", "1042", "8"]
    assert given.probs.tolist() == [[0.25, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]]
    assert given.slots.tolist() == [1, 0, 0]  # c gave 7 first


@pytest.mark.parametrize("scale", [1, 100])
def test_probabilities_are_no_log_probs(sequential: Path, scale: float) -> None:
    router = Router.load(sequential)
    [first, *_] = router.choose("Which gas?")
    router.fuse({first: [scale * p for p in (0.1, 0.7, 0.1, 0.1)]})
    assert router.notes == [f"the output of {first} adds up as probabilities do; give their logarithms"]
    router.choose("Which gas?")
    router.fuse({first: [-2.3, -0.4, -2.3, -2.3]})
    assert router.notes == []
