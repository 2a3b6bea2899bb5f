"""Probes of the embedded models: what is asked, said, kept, and left as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from support.cli import Cli

from rlfocal.base.errors import InputError
from rlfocal.new_model import probe_newcomer
from rlfocal.new_model.asking_again import ask_again
from rlfocal.pool import find_pool
from warehouse import open_warehouse

pytestmark = pytest.mark.slow
BENCHMARKS = ["lab-mmlu", "lab-gpqa", "lab-gsm8k"]
NEW = "lab-mixtral"


@pytest.fixture
def place(lab_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pool without one of its models, that model's entry, and a warehouse without its answers."""
    from warehouse.corrections import remove_model

    shutil.copytree(lab_warehouse, tmp_path / ".rlfocal" / "warehouse")
    pool = yaml.safe_load(find_pool("lab").read_text())
    [entry] = [model for model in pool["models"] if model["model"] == NEW]
    pool |= {"benchmarks": BENCHMARKS, "models": [m for m in pool["models"] if m != entry]}
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump(pool))
    (tmp_path / "entry.yaml").write_text(yaml.safe_dump(entry))
    monkeypatch.chdir(tmp_path)
    with open_warehouse() as opened:
        remove_model(opened, NEW)
    return tmp_path


def test_a_probe_asks_what_it_says_and_the_extraction_only_the_rest(place: Path, cli: Cli) -> None:
    before = (place / "pool.yaml").read_bytes()
    with open_warehouse() as opened:
        models = opened.rows("SELECT * FROM accuracy ORDER BY ALL")
    ended = cli("add-model", "pool.yaml", "entry.yaml", "--probe", "150", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert [one["n"] for one in found["assessments"]] == [50, 50, 50]
    assert found["asked"] == 150
    assert (place / "pool.yaml").read_bytes() == before
    with open_warehouse() as opened:
        assert opened.rows("SELECT * FROM accuracy ORDER BY ALL") == models
        asked = opened.rows("SELECT count(*), count(DISTINCT (benchmark, task, doc_id)) FROM probe_answers")
        assert asked == [(150, 150)]
        stored = opened.rows("SELECT benchmark, n, accuracy, verdict FROM probes ORDER BY benchmark")
        chances = opened.rows("SELECT benchmark, sum(1 / probability) FROM probe_answers GROUP BY ALL")
        docs = dict(opened.rows("SELECT benchmark, count(*) FROM docs GROUP BY ALL"))
    expected = [(o["benchmark"], 50, o["accuracy"][0], o["verdict"]) for o in found["assessments"]]
    assert stored == sorted(expected)
    assert dict(chances) == pytest.approx({name: docs[name] for name in BENCHMARKS})

    with open_warehouse() as opened:  # as if a slow machine had asked them
        opened.connection.execute("UPDATE probe_answers SET seconds = 1e6")
    more = cli("add-model", "pool.yaml", "entry.yaml", "--probe", "210", "--json")
    probed = json.loads(more.out)
    assert probed["asked"] == 60  # the others are known
    with open_warehouse() as opened:
        rates = dict(
            opened.rows("SELECT benchmark, avg(seconds) FROM probe_answers WHERE seconds < 1e6 GROUP BY ALL")
        )
    left = {one["benchmark"]: one["n_docs"] - one["n"] for one in probed["assessments"]}
    assert probed["seconds_left"] == pytest.approx(sum(rates[name] * n for name, n in left.items()))
    assert cli("add-model", "pool.yaml", "entry.yaml").code == 0
    with open_warehouse() as opened:
        [(n, accuracy)] = opened.rows(
            "SELECT n, accuracy FROM benchmark_accuracy WHERE (benchmark, model) = ('lab-mmlu', ?)", [NEW]
        )
        kept = opened.rows(
            "SELECT count(*), count(*) FILTER (abs(a.said.logprob - c.logprob) > 0) FROM "
            "(SELECT *, unnest(choices) AS said FROM probe_answers WHERE benchmark = 'lab-mmlu') AS a "
            "JOIN choice_logprobs AS c ON (c.model, c.benchmark, c.task, c.doc_id, c.choice) = "
            "(a.model, a.benchmark, a.task, a.doc_id, a.said.choice)"
        )
        agree = opened.rows(
            "SELECT count(*) FROM probe_predictions AS p JOIN outcomes AS o "
            "USING (model, benchmark, task, doc_id) WHERE p.correct <> o.correct"
        )
    assert n == docs["lab-mmlu"]
    assert kept[0][0] >= 4 * 70
    assert kept[0][1] == 0  # they were taken over, to the bit
    assert agree == [(0,)]
    with open_warehouse() as opened:
        kinds = opened.rows("SELECT sum(1 / probability) FROM probe_answers GROUP BY benchmark ORDER BY ALL")
    assert [total for (total,) in kinds] == pytest.approx(sorted(docs[name] for name in BENCHMARKS))
    low, high = json.loads(more.out)["assessments"][0]["accuracy"][1:]
    assert low - 0.1 < accuracy < high + 0.1


def test_a_corrected_label_asks_hardly_anything_anew(place: Path, cli: Cli) -> None:
    first = probe_newcomer("pool.yaml", place / "entry.yaml", n=180)
    assert first.asked == 180
    with open_warehouse() as opened:
        label = "(label + 1) % 4 AS label FROM docs WHERE benchmark = 'lab-mmlu' AND doc_id = 0"
        query = f"SELECT benchmark, task, doc_id, {label}"
        opened.connection.execute(f"COPY ({query}) TO '{place / 'right.csv'}' (HEADER)")
    assert cli("correct-labels", "right.csv").code == 0
    again = probe_newcomer("pool.yaml", place / "entry.yaml", n=180)
    assert again.probe_id == first.probe_id
    assert again.asked < 60
    assert {one.benchmark for one in again.assessments} == set(BENCHMARKS)


def test_it_stops_as_soon_as_the_verdict_is_clear(place: Path, cli: Cli) -> None:
    entry = yaml.safe_load((place / "entry.yaml").read_text())
    entry |= {"model": "copy", "hf_repo": "rlfocal-lab/lab-phi"}
    (place / "copy.yaml").write_text(yaml.safe_dump(entry))
    shares: list[float] = []
    found = probe_newcomer(
        "pool.yaml", place / "copy.yaml", on_progress=lambda _, share: shares.append(share)
    )
    assert found.error_correlation is not None
    assert found.error_correlation.is_copy
    assert found.error_correlation.model == "lab-phi"
    assert found.leaning == "do not join"
    assert found.n <= 600
    assert shares == sorted(shares)
    again = probe_newcomer("pool.yaml", place / "copy.yaml")
    assert again.asked == 0
    assert again.assessments == found.assessments
    ended = cli("add-model", "pool.yaml", "copy.yaml", "--probe")
    assert "a copy of lab-phi" in ended.out
    assert "do not join" in ended.out


def test_what_cannot_be_asked_is_refused(place: Path, cli: Cli) -> None:
    for words, reason in (
        (["--probe", "0"], "--probe '0'"),
        (["--probe", "50"], "at least 72"),
        (["--probe", "--limit", "5"], "--limit"),
        (["--probe=some"], "'some'"),
    ):
        ended = cli("add-model", "pool.yaml", "entry.yaml", *words)
        assert ended.code == 2
        assert reason in ended.err
    with pytest.raises(InputError, match="rlfocal extract"):  # there is nothing to compare with
        probe_newcomer("pool.yaml", place / "entry.yaml", warehouse=place / "empty")
    for model in (NEW, "nobody"):
        with pytest.raises(InputError, match=f"no answers of|{model}"):
            ask_again("lab-mmlu", model, pool="lab")
    with open_warehouse() as opened:
        assert opened.rows("SELECT count(*) FROM probe_answers") == [(0,)]


def test_a_member_is_as_before_until_its_weights_are_others(place: Path, cli: Cli) -> None:
    for benchmark in ("lab-mmlu", "lab-gsm8k"):
        same = ask_again(benchmark, "lab-phi", pool="pool.yaml")
        assert same.changed is None
        assert same.n == 64
        assert same.flipped == 0
    text = (place / "pool.yaml").read_text()
    (place / "other.yaml").write_text(text.replace("rlfocal-lab/lab-phi\n", "rlfocal-lab/lab-llama\n"))
    swapped = {name: ask_again(name, "lab-phi", pool="other.yaml") for name in ("lab-mmlu", "lab-gsm8k")}
    assert swapped["lab-mmlu"].changed == "log-probs"
    assert swapped["lab-gsm8k"].changed == "answers"
    assert all(one.n < 64 for one in swapped.values())
    assert all(one.flipped for one in swapped.values())
    ended = cli("probe", "-b", "lab-mmlu", "--model", "lab-phi", "-p", "other.yaml")
    assert ended.code == 1
    assert "changed: log-probs" in ended.out
    with open_warehouse() as opened:
        numbers = opened.rows("SELECT count(DISTINCT probe_id) FROM probe_estimates WHERE metric = 'change'")
        assert numbers == [(5,)]
        assert opened.rows("SELECT count(*) FROM accuracy WHERE model = 'lab-phi'") == [(17,)]
