"""A newcomer's page in Markdown, as HTML and for a terminal, all from the same parts."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from io import StringIO

from jinja2 import Environment, StrictUndefined
from rich.console import Console
from rich.text import Text

from rlfocal.base.terminal import Listing
from rlfocal.base.wording import counted
from rlfocal.evaluation.leaderboard import cents, percent, points
from rlfocal.new_model.copies import CONFIDENCE, FEWEST_PAIRS, Likeness
from rlfocal.new_model.figures import Figures, Price, Score, Standing
from rlfocal.new_model.pools import BestPools, Pool

SHOWN_SIZES = 6
"""The sizes of the best pools that the page shows."""
NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """A name, numbers, then words."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_texts: int = 0
    """Columns of words at the end."""


@dataclass(frozen=True)
class Part:
    """A heading, sentences, and tables."""

    title: str
    sentences: tuple[str, ...]
    tables: tuple[Table, ...] = ()


def parts(page: Figures) -> tuple[Part, ...]:
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


def markdown(page: Figures) -> str:
    """Each part with a heading, paragraphs and tables."""
    lines: list[str] = []
    for at, part in enumerate(parts(page)):
        lines += [f"{'#' if at == 0 else '##'} {_escaped(part.title)}", ""]
        lines += [line for sentence in part.sentences for line in (_escaped(sentence), "")]
        for table in part.tables:
            n_numbers = len(table.header) - 1 - table.n_texts
            lines += [_row(table.header), _row(["---"] + ["---:"] * n_numbers + ["---"] * table.n_texts)]
            lines += [*map(_row, table.rows), ""]
    return "\n".join(lines)


def html(page: Figures) -> str:
    """One file: no network, no script, light and dark."""
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    source = resources.files("rlfocal.new_model") / "page.html.j2"
    return environment.from_string(source.read_text(encoding="utf-8")).render(parts=parts(page))


def text(page: Figures, width: int) -> str:
    """For a terminal of so many columns."""
    out = StringIO()
    console = Console(file=out, width=width)
    for part in parts(page):
        console.print(Text(part.title), style="bold")
        for sentence in part.sentences:
            console.print(Text(sentence))
        for table in part.tables:
            first, *rest = table.header
            cut = len(rest) - table.n_texts
            listing = Listing(first, *rest[:cut], texts=rest[cut:])
            for row in table.rows:
                listing.add(*row)
            console.print(listing)
            console.print()
        if not part.tables:
            console.print()
    return out.getvalue()


def _summary(page: Figures) -> tuple[str, ...]:
    said = [_where(page)]
    if page.faults:
        said.append(f"Added although its first answers are implausible: {' '.join(page.faults)}")
    if page.stopped is not None:
        said.append(
            f"Stopped early: {page.stopped}. `rlfocal remove-model {page.pool} {page.model}` takes it out "
            f"again, `rlfocal extract --pool {page.pool} --models {page.model}` extracts the rest."
        )
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


def _where(page: Figures) -> str:
    copied = ", your own copy of a pool that ships with rlfocal" if page.is_copy_of_shipped else ""
    done = f"{counted(page.extracted, 'partition')} extracted, {page.present} already there"
    return f"{page.hf_repo} at {page.revision}; {done}. Its entry is in {page.file}{copied}."


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
    rows = [_score(standing.benchmark, standing.score, f"{standing.rank} of {standing.n_models}")]
    if len(standing.tasks) > 1:
        rows += [_score(f"  {score.task}", score, "") for score in standing.tasks]
    return Table(("benchmark", "documents", "accuracy %", "± docs", "rank"), tuple(rows))


def _score(name: str, score: Score, rank: str) -> tuple[str, ...]:
    spread = NOTHING if score.stderr is None else f"±{percent(score.stderr)}"
    return name, f"{score.n:,}", percent(score.accuracy), spread, rank


def _pairs(standing: Standing) -> Table:
    header = ("disagreement", "q", "double fault", "focal diversity", "same error")
    rows = tuple(
        (
            pair.model,
            *map(
                _number,
                (
                    pair.disagreement,
                    pair.q_statistic,
                    pair.double_fault,
                    pair.focal_diversity,
                    pair.same_error,
                ),
            ),
        )
        for pair in standing.pairs
    )
    return Table((standing.benchmark, *header), rows)


def _pools(standing: Standing) -> Table:
    header = ("train %", "test %", "gain", "the best pool")
    rows: list[tuple[str, ...]] = []
    for best in standing.pools[:SHOWN_SIZES]:
        if best.without is not None:
            rows.append((f"{best.size} without it", *_pool(best.without)))
        rows.append((f"{best.size} with it", *_pool(best.with_it, best)))
    return Table((standing.benchmark, *header), tuple(rows), n_texts=1)


def _money(standing: Standing) -> Table:
    header = ("train %", "test %", "the best pool")
    rows: list[tuple[str, ...]] = []
    for one in standing.money[:SHOWN_SIZES]:
        for which, pool in (("without it", one.without), ("with any", one.any_model)):
            train, test, _, names = _pool(pool)
            rows.append((f"{cents(one.cents)} ¢ {which}", train, test, names))
    return Table((standing.benchmark, *header), tuple(rows), n_texts=1)


def _pool(pool: Pool, best: BestPools | None = None) -> tuple[str, ...]:
    test = NOTHING if pool.test is None else percent(pool.test)
    gain = ""
    if best is not None and best.gain is not None:
        gain = f"{points(best.gain.mean)} ({points(best.gain.low)} to {points(best.gain.high)})"
    return percent(pool.train), test, gain, ", ".join(pool.models)


def _agents(standing: Standing) -> Table:
    header = ("accuracy %", "models asked", "¢/1,000", "seeds", "documents")
    ordered = sorted(standing.agents, key=lambda agents: (agents.method, agents.has_it))
    rows = tuple(
        (
            f"{agents.method} {'with' if agents.has_it else 'without'} it",
            percent(agents.accuracy),
            f"{agents.mean_pool_size:.2f}",
            cents(agents.cost),
            str(agents.seeds),
            f"{agents.n:,}",
        )
        for agents in ordered
    )
    return Table((standing.benchmark, *header), rows)


def _price(price: Price) -> Table:
    per_token = (price.price_input, price.price_output)
    rows = (
        ("parameters, billions", f"{price.params_b:g}"),
        (
            "of these used per token",
            NOTHING if price.active_params_b is None else f"{price.active_params_b:g}",
        ),
        ("GPUs at once", str(price.gpus)),
        ("cents per 1,000 queries", cents(price.price)),
        ("cents per million tokens, in and out", " and ".join(map(cents, per_token))),
        ("documents answered", f"{price.n_docs:,}"),
        ("seconds its engine took", f"{price.seconds:,.1f}"),
    )
    return Table(("", "figure"), rows)


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(words: str) -> str:
    """A name may hold what Markdown would read as its own; code in backticks stays."""
    for sign in ("\\", "|", "<", "*", "_"):
        words = words if "`" in words and sign in "*_<" else words.replace(sign, f"\\{sign}")
    return words
