"""Made-up answers of a pool, and every statistic of it read off its definition."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import aggregate_raters, cohens_kappa, fleiss_kappa

from rlfocal.data.dataset import Kind
from rlfocal.statistics import metrics

METRICS = ["n", "size", *metrics.METRICS]
PAIR_METRICS = ("q_statistic", "correlation", "disagreement", "kappa", "double_fault", "cohens_kappa")
FEW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
"""As many examples as the profile says, of a connection that is made once."""


@dataclass(frozen=True)
class Answers:
    """Predictions (T, N) as codes, -1 for none; labels (T,); who answered (T, N)."""

    kind: Kind
    predictions: np.ndarray
    labels: np.ndarray
    answered: np.ndarray

    @property
    def correct(self) -> np.ndarray:
        return np.asarray((self.predictions == self.labels[:, None]) & (self.predictions >= 0))


@st.composite
def answers(draw: st.DrawFn, gaps: bool = True) -> Answers:
    """Few codes, so that ties, constant models, all right and all wrong are common."""
    kinds: list[Kind] = ["choices", "answers"]
    kind = draw(st.sampled_from(kinds))
    t, n = draw(st.integers(1, 14)), draw(st.integers(1, 5))
    lowest = 0 if kind == "choices" else -1
    codes = st.integers(lowest, draw(st.integers(0, 3)))
    column = st.lists(codes, min_size=t, max_size=t)
    columns = draw(st.lists(column | codes.map(lambda c: [c] * t), min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, 3), min_size=t, max_size=t) | st.just(columns[0]))
    labels = [max(label, 0) for label in labels]
    answered = np.ones((t, n), bool)
    if gaps and draw(st.booleans()):
        flat = draw(st.lists(st.booleans() | st.just(True), min_size=t * n, max_size=t * n))
        answered = np.array(flat).reshape(t, n)
    return Answers(kind, np.array(columns).T, np.array(labels), answered)


def fill(connection: duckdb.DuckDBPyConnection, data: Answers) -> list[str]:
    """Writes the answers as benchmark b with tasks of three documents; returns the model names."""
    for table in ("docs", "choice_logprobs", "answer_passes", "extractions"):
        connection.execute(f"DELETE FROM {table}")
    t, n = data.predictions.shape
    models = [f"m{i:02}" for i in range(n)]
    key = [{"benchmark": "b", "task": f"t{i // 3:02}", "doc_id": i % 3} for i in range(t)]
    is_choice = data.kind == "choices"
    docs = [
        {**key[i], "split": "test", "label": int(y) if is_choice else None, "gold": str(y)}
        for i, y in enumerate(data.labels)
    ]
    rows = []
    for i, j in np.argwhere(data.answered).tolist():
        code = int(data.predictions[i, j])
        here = {**key[i], "model": models[j]}
        if is_choice:
            # A later choice that ties must not win.
            rows += [{**here, "choice": c, "logprob": -1.0 if c >= code else -2.0} for c in (3, 2, 1, 0)]
        else:
            rows.append({**here, "pass": 0, "answer": str(code) if code >= 0 else None})
    insert(connection, "docs", docs)
    insert(connection, "choice_logprobs" if is_choice else "answer_passes", rows)
    insert(
        connection,
        "extractions",
        [{"extraction_id": m, "benchmark": "b", "task": "t00", "model": m, "n_docs": 0} for m in models],
    )
    return models


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[dict[str, object]]) -> None:
    if rows:
        connection.register("rows_", pa.Table.from_pylist(rows))
        connection.execute(f"INSERT INTO {table} BY NAME FROM rows_")
        connection.unregister("rows_")


def column(values: list[object]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def same(left: np.ndarray | float, right: np.ndarray | float) -> None:
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-9, equal_nan=True)


def ratio(a: float, b: float) -> float:
    return a / b if b else math.nan


def mean(values: list[float]) -> float:
    defined = [v for v in values if not math.isnan(v)]
    return sum(defined) / len(defined) if defined else math.nan


def one_minus_p2_over_p1(failures: list[int], size: int) -> float:
    """1 - P(2)/P(1) of the numbers of failing members, by the definition's sum over j."""
    n = len(failures)
    if not n or size < 2:
        return math.nan
    share = {j: failures.count(j) / n for j in range(size + 1)}
    p1 = sum(j / size * p for j, p in share.items())
    p2 = sum(j * (j - 1) / (size * (size - 1)) * p for j, p in share.items())
    return 1 - p2 / p1 if p1 else math.nan


def pool_oracle(data: Answers, pool: tuple[int, ...]) -> dict[str, float]:
    """Every statistic of one pool, read off its definition document by document."""
    at = data.answered[:, pool].all(axis=1)
    votes, labels = data.predictions[at][:, pool], data.labels[at]
    right = (votes == labels[:, None]) & (votes >= 0)
    n, size = right.shape
    k = (~right).sum(axis=1).tolist()
    focal = [one_minus_p2_over_p1([k[t] for t in range(n) if not right[t, f]], size) for f in range(size)]
    pairs = [pair_oracle(right[:, a], right[:, b]) for a, b in combinations(range(size), 2)]
    share = ratio(int(right.sum()), right.size)
    entropy = math.nan if math.isnan(share) else -sum(p * math.log2(p) for p in (share, 1 - share) if p)
    wins = 0
    for row, label in zip(votes.tolist(), labels.tolist(), strict=True):
        count = Counter(v for v in row if v >= 0)
        top = [v for v in count if count[v] == max(count.values())]
        if top:
            wins += (min(top) if data.kind == "choices" else next(v for v in row if v in top)) == label
    with np.errstate(all="ignore"):
        fleiss = float(fleiss_kappa(aggregate_raters(votes)[0])) if n and size > 1 else math.nan
    return {
        "n": n,
        "size": size,
        "focal_diversity": mean(focal),
        "generalized_diversity": one_minus_p2_over_p1(k, size),
        "fleiss_kappa": fleiss,
        **{name: mean([p[name] for p in pairs]) for name in PAIR_METRICS[:5]},
        "binary_entropy": entropy,
        "plurality_accuracy": ratio(wins, n),
    }


def pair_oracle(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    n11, n00 = int((a & b).sum()), int((~a & ~b).sum())
    n10, n01 = int((a & ~b).sum()), int((~a & b).sum())
    excess, n = n11 * n00 - n01 * n10, len(a)
    return {
        "q_statistic": ratio(excess, n11 * n00 + n01 * n10),
        "correlation": ratio(excess, math.sqrt((n11 + n10) * (n01 + n00) * (n11 + n01) * (n10 + n00))),
        "disagreement": ratio(n01 + n10, n),
        "kappa": ratio(2 * excess, (n11 + n10) * (n01 + n00) + (n11 + n01) * (n10 + n00)),
        "double_fault": ratio(n00, n),
    }


def cohens_oracle(a: np.ndarray, b: np.ndarray) -> float:
    table = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
    with np.errstate(all="ignore"):
        return float(cohens_kappa(np.array(table)).kappa)


def one_hot(pool: tuple[int, ...], n: int) -> np.ndarray:
    return np.isin(np.arange(n), pool)
