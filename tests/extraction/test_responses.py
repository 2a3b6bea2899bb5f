"""What services say beside answers: who made them, whether anew, and of how much of the prompt."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.closed_pool import write_closed_pool
from support.stub_server import chat_answer, question_of, stub_server

from rlfocal.extraction.responses import cut_prompts, is_same_model
from warehouse import open_warehouse

TOP: dict[str, float | None] = {"A": -0.1, "B": -3.0, "C": -4.0}
pytestmark = pytest.mark.usefixtures("one_process")


@pytest.mark.parametrize(
    ("asked", "answered", "same"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("gpt-4o-2024-08-06", "gpt-4o-2024-05-13", False),
        ("gpt-4o", "gpt-4o-mini-2024-07-18", False),
        ("openai/gpt-4o", "gpt-4o", True),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", True),
        ("claude-3-opus", "claude-3-haiku", False),
        ("llama3:70b", "llama3:8b", False),
        ("llama3", "llama3:latest", True),
        ("meta-llama/llama-3-8b-instruct", "meta-llama/llama-3-8b-instruct:free", True),
        ("gemini-1.5-pro", "models/gemini-1.5-pro-002", True),
    ],
)
def test_names_of_one_model(asked: str, answered: str, same: bool) -> None:
    assert is_same_model(asked, answered) is same


def sizes(n: int, shortest: int, longest: int, most: int | None = None, rate: float = 4.2) -> dict[int, Any]:
    """Prompts of random lengths, of `rate` bytes a token or so, of which `most` count."""
    drawn = random.Random(n)
    lengths = [drawn.randint(shortest, longest) for _ in range(n)]
    counts = [int(length / rate / drawn.uniform(0.9, 1.1)) for length in lengths]
    return {
        i: (length, min(count, most or count))
        for i, (length, count) in enumerate(zip(lengths, counts, strict=True))
    }


def test_prompts_that_were_read_whole_are_told_from_cut_ones() -> None:
    for n, shortest, longest in (
        (24, 40_000, 70_000),
        (500, 1_000, 4_000),
        (1000, 2_500, 3_300),
        (3, 10**4, 10**5),
    ):
        for rate in (1.5, 3.0, 4.2, 6.0):
            assert cut_prompts(sizes(n, shortest, longest, rate=rate))[0] == set()
    same = {i: (5_000 + i % 3, 1_200) for i in range(60)}  # a template with one word changed
    assert cut_prompts(same)[0] == set()
    assert cut_prompts({i: (70 + i, 1) for i in range(60)})[0] == set()  # too short to tell
    for given in (
        sizes(24, 41_000, 70_000, most=2_050),
        sizes(24, 20_000, 40_000, most=4_096),
        sizes(64, 2_000, 24_000, most=4_096),  # some of them fit
        dict.fromkeys(range(5), (60_000, 2_050)),  # all of one length
        {i: (3_000 + 40 * i, 512) for i in range(20)},
    ):
        cut, words = cut_prompts(given)
        assert cut == {i for i, (_, tokens) in given.items() if tokens == max(t for _, t in given.values())}
        assert words


def extract(cli: Cli, folder: Path, reply: Any, asked: list[str], **entry: Any) -> Any:
    with stub_server(reply) as stub:
        about = {"model": "closed", "served": "gpt-4o", "base_url": stub.url, **entry}
        pool = write_closed_pool(folder, {"one": asked}, [about])
        return cli("extract", "--pool", str(pool), "-w", str(folder / "w"))


def test_what_was_not_asked_for_is_stored_and_said(cli: Cli, tmp_path: Path) -> None:
    def reply(request: dict[str, Any], number: int) -> Any:
        i = int(question_of(request).split()[1])
        said = {"provider": "DeepInfra" if i < 4 else "Together", "system_fingerprint": f"fp_{i % 2}"}
        return chat_answer("A", top=TOP, model="gpt-4o-mini", id=f"id-{min(i, 9)}", usage=None, **said)

    done = extract(cli, tmp_path, reply, [f"q {i}" for i in range(12)], price_input=250, price_output=1000)
    assert done.code == 0
    said = [line for line in done.err.splitlines() if line.startswith("responses: ")]
    for word in (
        "'gpt-4o-mini'",
        "DeepInfra (4), Together (8)",
        "fp_0 (6), fp_1 (6)",
        "2 responses had the id",
        "12",
    ):
        assert any(word in line for line in said), word
    with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
        [(facts,)] = warehouse.rows("SELECT versions->'responses' FROM extractions")
        [(cost, read)] = warehouse.rows("SELECT max(token_cost), max(n_prompt_tokens) FROM query_costs")
    assert json.loads(facts)["providers"] == {"DeepInfra": 4, "Together": 8}
    assert (cost, read) == (None, None)  # unknown, not free


def test_a_service_that_gives_what_was_asked_for_is_not_mentioned(cli: Cli, tmp_path: Path) -> None:
    """One that gives all responses one id says nothing about draws."""
    reply = lambda request, number: chat_answer("A", top=TOP, model="gpt-4o-2024-08-06")  # noqa: E731
    done = extract(cli, tmp_path, reply, [f"q {i}" for i in range(12)], price_input=250, price_output=1000)
    assert (done.code, "responses: " in done.err) == (0, False)


def test_a_prompt_that_the_service_cut_fails_its_task_or_is_marked(cli: Cli, tmp_path: Path) -> None:
    def reply(request: dict[str, Any], number: int) -> Any:
        usage = {"prompt_tokens": min(len(question_of(request)) // 4, 512), "completion_tokens": 1}
        return chat_answer("A", top=TOP, model="gpt-4o", usage=usage)

    asked = [f"{i} " + "word " * (100 + 100 * i) for i in range(12)]
    done = extract(cli, tmp_path, reply, asked)
    assert done.code == 1
    assert "512 tokens" in " ".join(done.err.split())
    assert extract(cli, tmp_path, reply, asked, truncation="keep").code == 0
    with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
        rows = warehouse.rows("SELECT DISTINCT doc_id, truncated FROM choice_logprobs ORDER BY ALL")
    assert [truncated for _, truncated in rows] == [i >= 4 for i in range(12)]
