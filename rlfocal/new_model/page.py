"""The page of a new model, in Markdown and as HTML, and its first part for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlfocal.base.tables import Table, escape_markdown, render
from rlfocal.base.wording import DASH, cents, counted, decimal, percent, points
from rlfocal.extraction.running.events import Failure
from rlfocal.new_model.copies import CONFIDENCE, FEWEST_PAIRS, Likeness
from rlfocal.new_model.figures import Price, Standing, Superfluous

SHOWN_SIZES = 6
"""The sizes of the best pools that the page shows."""


@dataclass(frozen=True)
class Part:
    """A heading, sentences, and tables."""

    title: str
    sentences: tuple[str, ...]
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Newcomer:
    """A model that was added to a pool, and what it brings."""

    model: str
    hf_repo: str
    """The service's name of it, where only a service runs it."""
    revision: str
    """Empty where only a service runs it."""
    pool: str
    file: Path
    """The pool's file that has it now."""
    is_copy_of_shipped: bool
    """Whether that file is the user's own copy of a pool that ships with rlfocal."""
    was_there: bool
    """Whether an earlier call had added it."""
    price: Price
    standings: tuple[Standing, ...]
    likeness: Likeness | None
    superfluous: Superfluous | None
    extracted: int
    """Partitions extracted now."""
    present: int
    missing: tuple[Failure, ...]
    notes: tuple[str, ...]
    faults: tuple[str, ...]
    """What was implausible, if it was added anyway."""

    @property
    def copies(self) -> str | None:
        """The model it is a copy of, by its errors."""
        return self.likeness.model if self.likeness is not None and self.likeness.is_copy else None

    def to_markdown(self) -> str:
        """The page in Markdown, with its tables."""
        lines: list[str] = []
        for at, part in enumerate(parts(self)):
            lines += [f"{'#' if at == 0 else '##'} {escape_markdown(part.title)}", ""]
            lines += [line for sentence in part.sentences for line in (escape_markdown(sentence), "")]
            lines += [line for table in part.tables for line in (*table.markdown(), "")]
        return "\n".join(lines)

    def to_html(self) -> str:
        """The page as one self-contained HTML file: no network, no script, light and dark."""
        return render("rlfocal.new_model", "page.html.j2", parts=parts(self))

    def to_text(self) -> str:
        """What the page begins with, for a terminal: all that matters, without a table."""
        first = parts(self)[0]
        return "\n".join((first.title, *first.sentences))


def parts(page: Newcomer) -> tuple[Part, ...]:
    """The page from top to bottom; parts without content are left out."""
    every = (
        Part(f"{page.model} in pool {page.pool}", _summary(page)),
        Part("Accuracy", (), tuple(_accuracy(s) for s in page.standings)),
        Part(
            "How differently it fails",
            (
                "On the documents both answered. same error: of the documents both get wrong, the share that "
                "they get wrong in the same way.",
            ),
            tuple(_pairs(s) for s in page.standings if s.pairs),
        ),
        Part(
            "Best pools",
            (
                "Chosen by their plurality on train documents, evaluated on train and test documents. gain: "
                "points on test documents, with its 95 % interval.",
            ),
            tuple(_pools(s) for s in page.standings if s.pools),
        ),
        Part(
            "Best pools for the same money",
            ("The best of all pools that cost no more than a best pool without it.",),
            tuple(_money(s) for s in page.standings if s.money),
        ),
        Part(
            "RL-Focal before and after",
            ("Trained on train documents, evaluated on test documents; means over seeds.",),
            tuple(_agents(s) for s in page.standings if s.agents),
        ),
        Part("What it costs", (), (_price(page.price),)),
    )
    return tuple(part for at, part in enumerate(every) if at == 0 or part.tables)


def _summary(page: Newcomer) -> tuple[str, ...]:
    said = [_where(page)]
    if page.faults:
        said.append(f"Added although its first answers are implausible: {' '.join(page.faults)}")
    if page.likeness is not None:
        said.append(_likeness(page.model, page.likeness))
    said += [_entering(page.model, standing) for standing in page.standings if standing.pools]
    if page.superfluous is not None:
        least = page.superfluous
        said.append(
            f"If one model has to go for it: {least.model}, without which the best pools lose "
            f"{100 * least.loss:.2f} points on train documents (disagreement with {page.model}: "
            f"{least.disagreement:.3f})."
        )
    if page.missing:
        said.append(
            f"{counted(len(page.missing), 'partition')} could not be extracted, "
            f"{page.missing[0].benchmark}/{page.missing[0].task} first: {page.missing[0].reason}"
        )
    return (*said, *page.notes)


def _where(page: Newcomer) -> str:
    copied = ", your own copy of a pool that ships with rlfocal" if page.is_copy_of_shipped else ""
    done = f"{counted(page.extracted, 'partition')} extracted, {page.present} already there"
    place = f"at {page.revision}" if page.revision else "as its service runs it"
    return f"{page.hf_repo} {place}; {done}. Its entry is in {page.file}{copied}."


def _likeness(model: str, found: Likeness) -> str:
    errors = found.errors
    share = (
        f"{percent(errors.share)} % of the {errors.both_wrong:,} documents both get wrong, they get wrong in "
        f"the same way ({CONFIDENCE:.1%} interval from {percent(found.low)} %)"
    )
    limit = f"{percent(found.limit)} %"
    usual = (
        f"two honest models stay below {limit}"
        if found.n_pairs < FEWEST_PAIRS
        else f"by the pool's {found.n_pairs:,} other pairs, two honest models stay below {limit}"
    )
    if found.is_copy:
        return f"{model} is a copy of {found.model}, or nearly one: {share}; {usual}."
    return f"{model} is not found to copy a model. It errs most like {found.model}: {share}; {usual}."


def _entering(model: str, standing: Standing) -> str:
    shown = [best for best in standing.pools[:SHOWN_SIZES] if best.without is not None]
    entered = [str(best.size) for best in shown if best.gains]
    perhaps = [str(best.size) for best in shown if best.enters and not best.gains]
    where = f"{standing.benchmark}: {model} is {standing.rank} of {standing.n_models} models"
    ways = [f"enters the best pool of {', '.join(entered)}"] if entered else []
    if perhaps:
        ways.append(
            f"may enter the best pool of {', '.join(perhaps)} (it does on train documents, but the interval "
            "of its gain on test documents includes 0, or there are none)"
        )
    return f"{where}, and {' and '.join(ways) or 'enters no best pool'}."


def _accuracy(standing: Standing) -> Table:
    table = Table("benchmark", "documents", "accuracy %", "± docs", "rank")
    of_tasks = standing.tasks if len(standing.tasks) > 1 else ()
    rank = f"{standing.rank} of {standing.n_models}"
    every = [(standing.benchmark, standing.score, rank), *((f"  {s.task}", s, "") for s in of_tasks)]
    for name, score, place in every:
        spread = DASH if score.stderr is None else f"±{percent(score.stderr)}"
        table.add(name, f"{score.n:,}", percent(score.accuracy), spread, place)
    return table


def _pairs(standing: Standing) -> Table:
    columns = ("disagreement", "q", "double fault", "focal diversity", "same error")
    table = Table(standing.benchmark, *columns)
    for of in standing.pairs:
        numbers = (of.disagreement, of.q_statistic, of.double_fault, of.focal_diversity, of.same_error)
        table.add(of.model, *map(decimal, numbers))
    return table


def _pools(standing: Standing) -> Table:
    table = Table(standing.benchmark, "train %", "test %", "gain", texts=("the best pool",))
    for best in standing.pools[:SHOWN_SIZES]:
        gain = f"{points(of.mean)} ({points(of.low)} to {points(of.high)})" if (of := best.gain) else ""
        for which, pool, above in (("without", best.without, ""), ("with", best.with_it, gain)):
            if pool is not None:
                row = (percent(pool.train), percent(pool.test), above, ", ".join(pool.models))
                table.add(f"{best.size} {which} it", *row)
    return table


def _money(standing: Standing) -> Table:
    table = Table(standing.benchmark, "train %", "test %", texts=("the best pool",))
    for one in standing.money[:SHOWN_SIZES]:
        for which, pool in (("without it", one.without), ("with any", one.any_model)):
            row = (percent(pool.train), percent(pool.test), ", ".join(pool.models))
            table.add(f"{cents(one.cents)} ¢ {which}", *row)
    return table


def _agents(standing: Standing) -> Table:
    table = Table(standing.benchmark, "accuracy %", "models asked", "¢/1,000", "seeds", "documents")
    for of in sorted(standing.agents, key=lambda agents: (agents.method, agents.has_it)):
        figures = (percent(of.accuracy), decimal(of.mean_pool_size, 2), cents(of.cost), str(of.seeds))
        table.add(f"{of.method} {'with' if of.has_it else 'without'} it", *figures, f"{of.n:,}")
    return table


def _price(price: Price) -> Table:
    active = price.active_params_b
    table = Table("", "figure")
    table.add("parameters, billions", DASH if price.params_b is None else f"{price.params_b:g}")
    table.add("of these used per token", DASH if active is None else f"{active:g}")
    table.add("GPUs at once", str(price.gpus))
    table.add("cents per 1,000 queries", cents(price.price))
    table.add(
        "cents per million tokens, in and out", f"{cents(price.price_input)} and {cents(price.price_output)}"
    )
    if price.paid is not None:
        table.add("cents paid for its answers", cents(price.paid))
    table.add("documents answered", f"{price.n_docs:,}")
    table.add("seconds its engine took", f"{price.seconds:,.1f}")
    return table
