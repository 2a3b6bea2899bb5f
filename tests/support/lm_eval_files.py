"""Sample rows as lm-eval logs them, and logs that it wrote itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

DATE = "2026-01-02T03-04-05.678901"


def choice_row(number: int, **more: Any) -> Row:
    choices = more.pop("choices", ["no", "yes, really", "ça"])
    preamble = more.pop("preamble", "A preamble.")
    logprobs = more.pop("logprobs", [-1.5, -float(number % 2), -0.25])
    return {
        "doc_id": number,
        "doc": {"question": f"question {number}"},
        "target": str(number % 3),
        "arguments": {
            f"gen_args_{i}": {"arg_0": f"{preamble}\n\nquestion {number}", "arg_1": f" {choice}"}
            for i, choice in enumerate(choices)
        },
        "resps": [[[str(x), str(x == max(logprobs))]] for x in logprobs],
        "filter": "none",
        "doc_hash": f"hash {number}",
        **more,
    }


def answer_row(doc_id: int, *texts: str, target: str = "so\n#### 1,234", **more: Any) -> Row:
    return {
        "doc_id": doc_id,
        "doc": {"question": f"question {doc_id}"},
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": f"question {doc_id}", "arg_1": {"until": ["\n"]}}},
        "resps": [list(texts)],
        "filter": "strict",
        "doc_hash": f"hash {doc_id}",
        "exact_match": 0.0,
        **more,
    }


def log_with_lm_eval(
    out: Path, tasks: Path, names: Sequence[str], model: str, say: Callable[[Row], str]
) -> tuple[dict[str, list[Row]], dict[str, Row]]:
    """Logs of lm-eval's own evaluator and tracker; samples, before they became text, and aggregates by task.

    The model says what `say` makes of a document; its scores of choices are made of their texts.
    """
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class CannedModel(LM):  # type: ignore[misc]
        def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
            return [say(request.doc) for request in requests]

        def loglikelihood(
            self, requests: Sequence[Any], disable_tqdm: bool = False
        ) -> list[tuple[float, bool]]:
            places = (sum(map(ord, "".join((model, *request.args)))) * 37 % 101 for request in requests)
            return [(-place / 9, place < 30) for place in places]

        def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
            raise NotImplementedError

    logging.getLogger("lm_eval").setLevel("ERROR")
    tracker = EvaluationTracker(output_path=str(out))
    results: Row = lm_eval.simple_evaluate(
        model=CannedModel(),
        model_args=f"pretrained={model}",
        tasks=list(names),
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
        evaluation_tracker=tracker,
    )
    samples = results.pop("samples")
    raw = {name: [dict(row) for row in samples[name]] for name in names}
    tracker.save_results_aggregated(results, samples)
    for name in names:
        tracker.save_results_samples(name, samples[name])
    return raw, results["results"]
