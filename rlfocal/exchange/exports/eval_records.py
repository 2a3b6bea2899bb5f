"""Records of Every Eval Ever: a model's aggregate, and one line per answered document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import rlfocal

SCHEMA_VERSION = "0.3.0"
_OWN_ENGINES = ("hf", "vllm")  # those that run where rlfocal does
_METRIC = {
    "metric_id": "accuracy",
    "metric_name": "Accuracy",
    "metric_kind": "accuracy",
    "metric_unit": "proportion",
    "lower_is_better": False,
    "score_type": "continuous",
    "min_score": 0.0,
    "max_score": 1.0,
}


@dataclass(frozen=True)
class Run:
    """What one model answered to one benchmark."""

    benchmark: str
    model: str
    about: Mapping[str, Any]
    """Its row of `models`."""
    scores: tuple[Mapping[str, Any], ...]
    """Each task's accuracy, n and stderr; committed_at, in seconds, and backend."""
    organization: str
    relationship: str

    @property
    def model_id(self) -> str:
        return str(self.about.get("hf_repo") or self.model)

    @property
    def developer(self) -> str:
        owner, slash, _ = self.model_id.partition("/")
        return owner if slash else str(self.about.get("family") or "unknown")

    @property
    def time(self) -> str:
        """When the last answer came, in seconds since 1970."""
        return str(max(score["committed_at"] or 0 for score in self.scores))

    @property
    def evaluation_id(self) -> str:
        return f"{self.benchmark}/{self.model_id}/{self.time}"

    def name(self, task: str) -> str:
        return f"{self.benchmark}/{task}"

    def result_id(self, task: str) -> str:
        return f"{self.name(task)}/accuracy"


def aggregate(run: Run, lines: Mapping[str, Any] | None) -> dict[str, Any]:
    """An object of eval.schema.json; `lines` describes the file of instances, None if there is none."""
    record = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": run.evaluation_id,
        "evaluation_timestamp": run.time,
        "retrieved_timestamp": run.time,
        "source_metadata": {
            "source_name": "rlfocal",
            "source_type": "evaluation_run",
            "source_organization_name": run.organization,
            "evaluator_relationship": run.relationship,
        },
        "eval_library": {"name": "rlfocal", "version": rlfocal.__version__},
        "model_info": _model(run),
        "evaluation_results": [_result(run, score) for score in run.scores],
    }
    return record if lines is None else record | {"detailed_evaluation_results": dict(lines)}


def _model(run: Run) -> dict[str, Any]:
    backends = {str(score["backend"]) for score in run.scores}
    own = backends <= set(_OWN_ENGINES)
    details = {
        "deployment_type": "self_deployed" if own else "unknown",
        "model_availability": "open_weights" if run.about.get("hf_repo") else "unknown",
    }
    for name in ("revision", "params_b", "active_params_b"):
        if run.about.get(name) is not None:
            details[name] = str(run.about[name])
    info = {
        "name": run.model,
        "id": run.model_id,
        "developer": run.developer,
        "additional_details": details,
    }
    return info | ({"inference_engine": {"name": min(backends)}} if own and len(backends) == 1 else {})


def _result(run: Run, score: Mapping[str, Any]) -> dict[str, Any]:
    uncertainty: dict[str, Any] = {"num_samples": score["n"]}
    if score["stderr"] is not None:
        uncertainty["standard_error"] = {"value": score["stderr"], "method": "analytic"}
    task = str(score["task"])
    return {
        "evaluation_result_id": run.result_id(task),
        "evaluation_name": run.name(task),
        "source_data": {"dataset_name": run.name(task), "source_type": "other"},
        "metric_config": _METRIC | {"evaluation_description": "Share of documents answered right"},
        "score_details": {"score": score["accuracy"], "uncertainty": uncertainty},
    }


def instance(run: Run, row: Mapping[str, Any]) -> dict[str, Any]:
    """An object of instance_level_eval.schema.json, for a row of exports/eval_samples.sql.

    `metadata` has what the schema has no place for: `rlfocal import every-eval-ever` gets it all back.
    """
    is_choice = row["logprobs"] is not None
    raw, extracted, method = _choice(row) if is_choice else _answer(row)
    question = row["question"] or ""
    reference = [_reference(row)]
    task = str(row["task"])
    given = {"raw": question, "reference": reference}
    if row["choices"] is not None:
        given["choices"] = row["choices"]
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": run.evaluation_id,
        "model_id": run.model_id,
        "evaluation_name": run.name(task),
        "evaluation_result_id": run.result_id(task),
        "sample_id": str(row["doc_id"]),
        "sample_hash": _hash(question, reference),
        "interaction_type": "single_turn",
        "input": given,
        "output": {"raw": raw},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": extracted,
                "extraction_method": method,
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": float(row["correct"]), "is_correct": row["correct"]},
        "metadata": _metadata(run, row),
    }


def _choice(row: Mapping[str, Any]) -> tuple[list[str], str, str]:
    """Complete outputs, what was taken from them, and how."""
    chosen = int(row["prediction"])
    text = row["choices"][chosen] if row["choices"] is not None else str(chosen)
    return [text], text, "highest_logprob"


def _answer(row: Mapping[str, Any]) -> tuple[list[str], str, str]:
    """Complete outputs, what was taken from them, and how."""
    method = "extraction" if len(row["answers"]) == 1 else "plurality_of_samples"
    return [text or "" for text in row["texts"]], row["answer"] or "", method


def _reference(row: Mapping[str, Any]) -> str:
    return str(row["label"] if row["gold"] is None else row["gold"])


def _hash(question: str, reference: list[str]) -> str:
    """The hash of input.raw + input.reference, as the schema describes sample_hash."""
    return sha256((question + "".join(reference)).encode()).hexdigest()


def _metadata(run: Run, row: Mapping[str, Any]) -> dict[str, str]:
    said = {"choice_logprobs": row["logprobs"], "answers": row["answers"]}
    found = {
        "benchmark": run.benchmark,
        **{name: row[name] for name in ("task", "doc_hash", "split", "label", "gold")},
        **{name: json.dumps(value) for name, value in said.items() if value is not None},
    }
    return {name: str(value) for name, value in found.items() if value is not None}
