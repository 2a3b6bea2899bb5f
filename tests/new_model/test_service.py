"""add-model with an entry that only a service runs, one that gives no log-probs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.chat_service import PROMPT_TOKENS, SERVED, chat_service
from support.cli import Cli
from support.closed_pool import write_closed_pool
from support.tiny_models import tiny_model, tiny_tokenizer

from rlfocal.pool import load_pool
from warehouse import open_warehouse

pytestmark = pytest.mark.slow
DOCUMENTS, ANSWERED = 28, 24  # by who is there, so that a newcomer answers as many
PRICES = {"price_input": 1000, "price_output": 2000}  # cents per million tokens
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}Answer:{% endif %}"
)


def answer(message: str) -> str:
    """The right letter, A, but for every fourth question."""
    return "A" if int(message.split()[0]) % 4 else "B"


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A pool of one open model, and a benchmark of letters asked as a chat."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tiny_model("llama", len(tokenizer), context=256).save_pretrained(tmp_path / "open")
    tokenizer.save_pretrained(tmp_path / "open")
    questions = {"sums": [f"{i} plus {i}" for i in range(DOCUMENTS)]}
    models = [{"model": "open", "hf_repo": str(tmp_path / "open"), "params_b": 0.001}]
    return write_closed_pool(tmp_path, questions, models)


def write_entry(folder: Path, url: str, **settings: Any) -> str:
    entry = {"model": "closed", "base_url": url, **PRICES, **settings}
    (folder / "entry.yaml").write_text(yaml.safe_dump(entry))
    return str(folder / "entry.yaml")


def test_a_model_without_log_probs_joins_a_pool_and_its_page_says_so(
    pool: Path, tmp_path: Path, cli: Cli
) -> None:
    assert cli("extract", "--pool", str(pool), "--limit", str(ANSWERED)).code == 0
    with chat_service(answer) as service:
        entry = write_entry(tmp_path, service.url, served=SERVED)
        ended = cli("add-model", str(pool), entry)
        trial = sum(1 for _ in service.answered) - ANSWERED
    assert ended.code == 0, ended.err
    assert trial == 20  # in a warehouse of its own
    assert load_pool(str(pool)).models[-1].served == SERVED
    page = (tmp_path / ".rlfocal" / "closed.md").read_text("utf-8")
    said = " ".join(page.replace("|", " ").split())
    assert "closed gives no log-probs" in said
    assert re.search(r"letters 24 75\.00 ", said)
    paid = sum(
        PROMPT_TOKENS * PRICES["price_input"] + texts * PRICES["price_output"]
        for texts in service.answered[trial:]
    )
    assert re.search(rf"cents paid for its answers {paid / 1e6:.2f}", said)
    with open_warehouse(tmp_path / ".rlfocal" / "warehouse", read_only=True) as opened:
        rows = opened.rows("SELECT evidence, paid FROM extractions WHERE model = 'closed'")
    assert rows == [("samples", pytest.approx(paid / 1e6))]
