"""One query to a Router as a dataset of one document, for the functions that decide on many."""

from __future__ import annotations

import numpy as np

from rlfocal.agents.shared.variant import TrainedAgents
from rlfocal.dataset import Dataset
from rlfocal.routing.outputs import Given, nothing_given


def one_document(agents: TrainedAgents, question: str, task: str, given: Given | None = None) -> Dataset:
    """The query with what was given so far, or nothing, as `decide` sees documents."""
    given = nothing_given(len(agents.models)) if given is None else given
    n, width = given.probs.shape
    return Dataset(
        benchmark=agents.benchmark, kind=agents.kind, models=agents.models, prices=np.zeros(n),
        tasks=np.array([task]), doc_ids=np.zeros(1, dtype=np.int64), probs=given.probs[None],
        logprobs=given.logprobs[None], n_choices=np.array([width]), predictions=given.slots[None],
        labels=np.array([-1]), is_train=np.zeros(1, dtype=np.bool_),
        slots=(tuple(given.answers),) * bool(given.answers),
        snapshot=agents.snapshot, questions=(question,),
    )  # fmt: skip
