"""Scoring by requests against a model that is a formula, behind a prefix cache that hides what it holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfocal.extraction.engine import SamplingSettings
from rlfocal.extraction.engines.requests import Abilities, Reading, Request, TokenScore, score
from rlfocal.extraction.engines.tokens import ContextWindow, EncodedDocument, Tokens
from rlfocal.extraction.engines.vllm import read_output

VOCABULARY = 5
ABLE = Abilities(next_tokens=True, shares_prefixes=True)
words = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6).map(tuple)


def logprob(prefix: Tokens, token: int) -> TokenScore:
    """Each prefix has a distribution of its own."""
    weights = [1 + hash((prefix, t)) % 97 for t in range(VOCABULARY)]
    return TokenScore(math.log(weights[token] / sum(weights)), weights[token] == max(weights))


class Entry(NamedTuple):
    """vLLM's `Logprob`."""

    logprob: float
    rank: int


@dataclass
class CachedModel:
    """Keeps every full block it has read; what it finds there it does not score, as vLLM does."""

    block: int
    cache: set[Tokens] = field(default_factory=set)
    read: int = 0
    asked: int = 0
    rows: int = 0
    """Of logits, each as long as the vocabulary."""

    def __call__(self, requests: Sequence[Request]) -> list[Reading]:
        return [self.one(request) for request in requests]

    def one(self, request: Request) -> Reading:
        prompt = request.prompt
        cached = 0
        while (
            request.reuse
            and cached + self.block < len(prompt)
            and prompt[: cached + self.block] in self.cache
        ):
            cached += self.block
        self.cache |= {prompt[:end] for end in range(self.block, len(prompt) + 1, self.block)}
        self.read += len(prompt) - cached
        self.asked += 1
        self.rows += 1 if request.targets else len(request.continuation) or len(prompt) - cached
        if request.targets:
            return [logprob(prompt, token) for token in request.targets]
        if request.continuation:
            return [
                logprob(prompt + request.continuation[:i], token)
                for i, token in enumerate(request.continuation)
            ]
        return [
            logprob(prompt[:i], prompt[i]) if i > cached else None for i in range(request.start, len(prompt))
        ]


@given(
    st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=4).map(tuple)), min_size=1, max_size=5),
    st.integers(1, 4),
    st.builds(Abilities, st.booleans(), st.booleans(), st.integers(0, 4)),
    st.integers(7, 20),
)
def test_every_token_has_its_score_whatever_the_cache_hides(
    pairs: list[tuple[Tokens, tuple[Tokens, ...]]], block: int, able: Abilities, reads: int
) -> None:
    encoded = [EncodedDocument(*pair) for pair in pairs]
    window = ContextWindow(reads, reads, "keep")
    found = score(encoded, window, CachedModel(block), able)
    for (context, tails), scores in zip(pairs, found, strict=True):
        for tail, scored in zip(tails, scores, strict=True):
            whole = (context + tail)[-reads:]
            start = len(whole) - len(tail)
            expected = [logprob(whole[:i], whole[i]) for i in range(start, len(whole))]
            assert scored.token_ids == tail
            assert scored.token_logprobs == tuple(e.logprob for e in expected)
            assert scored.is_greedy == all(e.is_greedy for e in expected)
            assert scored.n_prompt_tokens == len(context)
            assert scored.truncated == (len(context) + len(tail) > reads)


@pytest.mark.parametrize(("tails", "requests"), [(((1,), (2,), (3,)), 1), (((1, 1), (2,), (3, 1)), 3)])
def test_single_tokens_take_one_request_a_question(tails: tuple[Tokens, ...], requests: int) -> None:
    model = CachedModel(block=4)
    encoded = [EncodedDocument((0, 1, 2, 3, 0, 1), tails)]
    list(score(encoded, ContextWindow(64, 64, "keep"), model, ABLE))
    assert model.asked == requests


@pytest.mark.parametrize(
    ("able", "rows"),
    [
        (Abilities(), 23 + 6 + 5),
        (ABLE, 1 + 7 + 6),
        (ABLE._replace(max_forced_tokens=2), 1 + 7 + 2),
        (ABLE._replace(max_forced_tokens=3), 1 + 3 + 2),
    ],
)
def test_contexts_are_read_without_their_tokens_log_probs(able: Abilities, rows: int) -> None:
    """A context of 20 tokens, of which 16 stay in the cache, and choices of 3, 2 and 1 tokens, by hand.

    Next tokens of the context take one row together. A choice that is read takes one for each of its tokens
    and those of the context that are not in the cache, one that is decoded one for each of its own.
    """
    model = CachedModel(block=8)
    encoded = [EncodedDocument(tuple(i % VOCABULARY for i in range(20)), ((1, 2, 3), (2, 1), (4,)))]
    list(score(encoded, ContextWindow(64, 64, "keep"), model, able))
    assert model.rows == rows


def test_a_preamble_is_read_once() -> None:
    preamble = tuple(i % VOCABULARY for i in range(64))
    pairs = [EncodedDocument((*preamble, i, i), ((1, 2), (2, 1), (3, 3), (4, 0))) for i in range(5)]
    model = CachedModel(block=4)
    list(score(pairs, ContextWindow(99, 99, "keep"), model, ABLE))
    unique = len({(*p.context, *t)[: i + 1] for p in pairs for t in p.continuations for i in range(68)})
    assert model.read <= 2 * unique


def test_no_two_passes_of_whatever_documents_and_seeds_share_a_seed() -> None:
    """An engine that takes one seed a document gives pass p the p-th after it."""
    sampled = [SamplingSettings(10, 0.6, 0.95, 8, (), seed) for seed in range(20)]
    drawn = [s.seed_of(doc_id) + p for s in sampled for doc_id in range(200) for p in range(s.passes)]
    assert len(set(drawn)) == len(drawn)
    assert max(drawn) < 2**63
    assert [sampled[0].seed_of(doc_id) for doc_id in range(3)] == [0, 10, 20]


@pytest.mark.parametrize("leaves_out", [False, True])
def test_what_vllm_returns_for_a_prompt_of_which_it_has_a_part_in_its_cache(leaves_out: bool) -> None:
    """Prompt 5 6 7 8 9, of which 3 tokens are cached: what follows token 3, and it alone, is known."""
    stale, known = {6: None, 7: None}, [{9: Entry(-2.0, 1)}]
    rows: list[Any] = [None, *known] if leaves_out else [None, stale, stale, {8: Entry(-9.0, 1)}, *known]
    output = SimpleNamespace(num_cached_tokens=3, prompt_logprobs=rows, outputs=[])
    reading = read_output(Request((5, 6, 7, 8, 9), 2), output)
    assert reading == [None, None, TokenScore(-2.0, True)]


def test_a_continuation_that_vllm_did_not_follow_is_unknown() -> None:
    def output(*said: int) -> SimpleNamespace:
        logprobs = [{token: Entry(-float(i), i + 1)} for i, token in enumerate(said)]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=list(said), logprobs=logprobs)])

    request = Request((5, 6), 2, continuation=(7, 8))
    assert read_output(request, output(7, 8)) == [TokenScore(-0.0, True), TokenScore(-1.0, False)]
    assert read_output(request, output(7, 9)) == [None, None]
    assert read_output(request, output(7)) == [None, None]
