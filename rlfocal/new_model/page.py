"""Writes the page of a new model, as Markdown tables: what was added, and what the model is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlfocal.base.tables import Table, escape_markdown
from rlfocal.base.wording import MISSING_CELL, cents, count_noun, decimal, duration, interval, percent
from rlfocal.extraction.running.events import Failure
from rlfocal.new_model.model_record import COPY_CONFIDENCE, ErrorCorrelation, ModelRecord, Price
from rlfocal.new_model.probe import Probe
from rlfocal.new_model.probing import SMALLEST_GAIN, Assessment


@dataclass(frozen=True)
class Newcomer:
    """A model that was added to a pool, and what it is worth."""

    model: str
    hf_repo: str
    """The model's repository on the hub. For a model that only a service runs, it is the service's name for
    the model."""
    revision: str
    """The revision of the weights; empty for a model that only a service runs."""
    pool: str
    file: Path
    """The pool's file that has the model now."""
    is_copy_of_shipped: bool
    """Whether the pool's file is the user's own copy of a pool that ships with rlfocal."""
    was_there: bool
    """Whether an earlier call added the model."""
    price: Price
    records: tuple[ModelRecord, ...]
    error_correlation: ErrorCorrelation | None
    extracted: int
    """The number of partitions that this call extracted."""
    present: int
    missing: tuple[Failure, ...]
    notes: tuple[str, ...]
    faults: tuple[str, ...]
    """Sentences on implausible first answers, despite which the model was added."""

    @property
    def copies(self) -> str | None:
        """The name of the model that this one copies, judging by its errors; None if it copies none."""
        return (
            self.error_correlation.model
            if self.error_correlation is not None and self.error_correlation.is_copy
            else None
        )

    @property
    def assessments(self) -> tuple[Assessment, ...]:
        """The assessments on those benchmarks where the model can be compared."""
        return tuple(s.assessment for s in self.records if s.assessment is not None)

    @property
    def title(self) -> str:
        return f"{self.model} in pool {self.pool}"

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on faults, missing partitions and notes, which no table of the page has."""
        faults = (f"Added although its first answers are implausible: {fault}" for fault in self.faults)
        lacking = (f"{m.benchmark}/{m.task} could not be extracted: {m.reason}" for m in self.missing[:1])
        return (*faults, *lacking, *self.notes)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The page's tables from top to bottom, without empty ones."""
        every = (
            _make_facts_table(self),
            _make_accuracy_table(self),
            _make_gain_table(self),
            _make_pools_table(self),
            _make_pairs_table(self),
            _make_tasks_table(self),
        )
        return tuple(table for table in every if table.rows)

    def to_markdown(self) -> str:
        lines = [f"# {escape_markdown(self.title)}", ""]
        lines += [line for sentence in self.sentences for line in (escape_markdown(sentence), "")]
        for table in self.tables:
            lines += [f"## {table.title}", "", *table.markdown(), "", escape_markdown(table.caption), ""]
        return "\n".join(lines)


def _make_facts_table(page: Newcomer) -> Table:
    like, price = page.error_correlation, page.price
    caption = (
        "same errors: of the documents both get wrong, the share that they get wrong in the same way, from "
        f"the lower end of its {COPY_CONFIDENCE:.1%} interval; honest pairs of the pool stay below the limit."
    )
    table = Table("model", texts=(page.model,), title="At a glance", caption=caption)
    table.add("weights", " at ".join(filter(None, (page.hf_repo, page.revision))))
    table.add("entry", f"{page.file}{', your own copy' if page.is_copy_of_shipped else ''}")
    there = f"{page.present} already there, {len(page.missing)} missing"
    table.add("extracted", f"{count_noun(page.extracted, 'partition')}, {there}")
    if like is not None:
        table.add("errs most like", f"{like.model}{', a copy or nearly one' if like.is_copy else ''}")
        share = f"{percent(like.errors.share)} % of {like.errors.both_wrong:,}"
        table.add("same errors", f"{share}, from {percent(like.low)} %; limit {percent(like.limit)} %")
    sizes = (
        MISSING_CELL if size is None else f"{size:g}" for size in (price.params_b, price.active_params_b)
    )
    table.add("parameters, active ones, billions", ", ".join(sizes))
    table.add("GPUs at once", str(price.gpus))
    table.add("cents per 1,000 queries", cents(price.price))
    rates = f"{cents(price.price_input)} and {cents(price.price_output)}"
    table.add("cents per million tokens, in and out", rates)
    table.add("cents paid for its answers", cents(price.paid))
    table.add("documents answered, seconds", f"{price.n_docs:,}, {price.seconds:,.1f}")
    return table


def _make_accuracy_table(page: Newcomer) -> Table:
    columns = ("documents", "accuracy %", "± docs")
    caption = "± docs: the standard error for documents like these; a probe's interval is for these alone."
    table = Table("benchmark", *columns, texts=("rank",), title="Accuracy", caption=caption)
    for s in page.records:
        figures = f"{s.score.n:,}", percent(s.score.accuracy), percent(s.score.stderr)
        table.add(s.benchmark, *figures, f"{s.rank} of {s.n_models}")
    return table


def _make_tasks_table(page: Newcomer) -> Table:
    columns = ("documents", "accuracy %", "± docs")
    table = Table("benchmark", *columns, texts=("task",), title="Accuracy by task")
    for s in page.records:
        for of in s.tasks if len(s.tasks) > 1 else ():
            table.add(s.benchmark, f"{of.n:,}", percent(of.accuracy), percent(of.stderr), of.task)
    return table


def _make_pairs_table(page: Newcomer) -> Table:
    columns = ("correlation", "focal diversity")
    caption = "Of the failures of both, with 95 % intervals."
    table = Table("benchmark", *columns, texts=("model",), title="How differently it fails", caption=caption)
    for assessment in page.assessments:
        for pair in sorted(assessment.pairs, key=lambda pair: pair.correlation[0]):
            figures = interval(pair.correlation, decimal), interval(pair.focal_diversity, decimal)
            table.add(assessment.benchmark, *figures, pair.member)
    return table


def _make_pools_table(page: Newcomer) -> Table:
    table = Table(
        "benchmark",
        *("size", "gain"),
        texts=("the best pool", "it replaces"),
        title="Best pools",
        caption="Chosen without it by their plurality on train documents; what they gain, in points with a "
        "95 % interval, where it takes the place of the member that it replaces best.",
    )
    for assessment in page.assessments:
        for pool in assessment.pools:
            figures = str(pool.size), interval(pool.gain)
            table.add(assessment.benchmark, *figures, ", ".join(pool.models), pool.leaves)
    return table


def _make_gain_table(page: Newcomer) -> Table:
    whole = worth_table(f"What it brings to pool {page.pool}", page.assessments)
    return whole.select(None, ("of", "gain", "by task", "verdict"))  # its accuracy is known


def worth_table(title: str, assessments: Sequence[Assessment]) -> Table:
    """A table of what a model is worth to a pool, with a row for each benchmark."""
    table = Table(
        "benchmark",
        *("asked", "of", "accuracy %", "gain", "by task"),
        texts=("verdict",),
        title=title,
        caption="With 95 % intervals of what all documents would say; none where all were asked. gain: "
        "points of the log-linear team; by task: where the model answers alone the tasks on which it is "
        "ahead of all others.",
        kept=("verdict",),
    )
    for assessment in assessments:
        sizes = f"{assessment.n:,}", f"{assessment.n_docs:,}", interval(assessment.accuracy, _format_tenths)
        gains = map(interval, (assessment.gain, assessment.gain_by_task))
        table.add(assessment.benchmark, *sizes, *gains, assessment.verdict)
    return table


def probe_sentences(probe: Probe, command: str, sql: str) -> list[str]:
    """Sentences on a probe's verdict, on a copied model and on the cost. `command` is the command that adds
    the model, and `sql` the one that queries answers."""
    rest = probe.n_docs - probe.n
    if probe.verdict == "do not join":
        verdict = f"do not join: no benchmark's team gains {percent(SMALLEST_GAIN, 1)} points"
    elif probe.verdict == "join":
        verdict = f"join: `{command}` asks the other {count_noun(rest, 'document')}, and adds it"
    else:
        more = f"`{command} --probe {probe.asked_in_all + probe.more}` asks {probe.more:,} more"
        verdict = f"unclear, leaning to: {probe.leaning}; {more if probe.more else 'all documents are asked'}"
    took = f"{count_noun(probe.asked_in_all, 'document')} asked in {duration(probe.seconds)} of the engine"
    took += "" if probe.paid is None else f" for {cents(probe.paid)} ¢"
    if rest:
        took += f"; the other {rest:,} take about {duration(probe.seconds_left)} at this machine's rate"
        took += "" if probe.paid_left is None else f" and {cents(probe.paid_left)} ¢"
    lines = [verdict, took]
    if probe.error_correlation is not None and probe.error_correlation.is_copy:
        lines.insert(1, f"it is a copy of {probe.error_correlation.model}, or nearly one")
    lines.append(f"more: `{sql} \"FROM probe_estimates WHERE probe_id = '{probe.probe_id}'\"`")
    return lines + [f"{name}: no other model of the pool answered all of it" for name in probe.left_out]


def _format_tenths(share: float) -> str:
    return percent(share, 1)
