"""Shared by tests: datasets."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from rlfocal.data.dataset import Dataset


def make_dataset(probs: np.ndarray, labels: np.ndarray, n_train: int) -> Dataset:
    """A dataset of choices from (T, N, C) probabilities."""
    T, N, C = probs.shape
    return Dataset(
        benchmark="made",
        kind="choices",
        models=tuple(f"m{i:02}" for i in range(N)),
        prices=np.arange(1.0, N + 1),
        tasks=np.array(["t"] * T),
        doc_ids=np.arange(T),
        probs=probs,
        logprobs=np.log(probs),
        n_choices=np.full(T, C),
        predictions=probs.argmax(axis=2),
        labels=labels,
        is_train=np.arange(T) < n_train,
        slots=(),
        snapshot=0,
    )


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    T, N, C = draw(st.integers(2, 12)), draw(st.integers(1, 5)), draw(st.integers(2, 4))
    levels = st.sampled_from([1.0, 2.0, 4.0])  # few levels, so that ties are common
    weights = np.array(draw(st.lists(levels, min_size=T * N * C, max_size=T * N * C))).reshape(T, N, C)
    labels = np.array(draw(st.lists(st.integers(0, C - 1), min_size=T, max_size=T)))
    return make_dataset(weights / weights.sum(axis=2, keepdims=True), labels, n_train=max(1, T // 2))
