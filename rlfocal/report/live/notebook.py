"""The notebook that `rlfocal explore` serves, for marimo; `rlfocal.report.live` does the work."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="RL-Focal warehouse")

with app.setup:
    from html import escape
    from typing import Any

    import altair as alt
    import marimo as mo

    from rlfocal.base.errors import InputError
    from rlfocal.report import live
    from rlfocal.report.figures import Figure
    from rlfocal.report.figures.style import LIGHT, in_colours


@app.function
def words(text: str, tag: str = "p") -> mo.Html:
    """Text that stays text, whatever names are in it."""
    return mo.Html(f"<{tag}>{escape(text)}</{tag}>")


@app.function
def drawn(figure: Figure | None) -> mo.Html:
    """A figure under its caption."""
    if figure is None:
        return words("Nothing to draw.")
    shown = in_colours(figure.spec, LIGHT | {"paper": "#ffffff"})
    spec = {name: part for name, part in shown.items() if name != "usermeta"}
    chart = alt.Chart.from_dict(spec)
    return mo.vstack([words(f"{figure.title} {figure.caption}"), mo.as_html(chart)])


@app.function
def table(rows: live.Rows) -> mo.Html:
    """Rows to sort, search and download."""
    return mo.ui.table(rows, selection=None, page_size=15, show_data_types=False)


@app.cell
def _() -> Any:
    get_seen, set_seen = mo.state(live.overview())
    refresh = mo.ui.refresh(options=["10s", "1m", "10m"], label="Read again every")
    return get_seen, refresh, set_seen


@app.cell
def _(get_seen: Any, refresh: Any, set_seen: Any) -> None:
    _ = refresh.value
    if (_now := live.overview()) != get_seen():
        set_seen(_now)


@app.cell
def _(get_seen: Any) -> Any:
    seen = get_seen()
    picker = mo.ui.dropdown(seen.benchmarks, value=next(iter(seen.benchmarks), None), label="Benchmark")
    return picker, seen


@app.cell
def _(picker: Any, refresh: Any, seen: Any) -> Any:
    mo.vstack(
        [
            mo.md("# What the warehouse holds"),
            words(f"{seen.name}, snapshot {seen.snapshot}"),
            mo.hstack([picker, refresh], justify="start", gap=2),
            words("" if seen.benchmarks else "Nothing yet: run rlfocal regenerate --pool lab"),
        ]
    )


@app.cell
def _(picker: Any) -> Any:
    mo.stop(picker.value is None)
    found = live.benchmark(picker.value)
    return (found,)


@app.cell
def _(found: Any) -> Any:
    mo.vstack(
        [
            mo.md("## Leaderboard"),
            words("" if found.boards else "No evaluation yet: run rlfocal evaluate"),
            *(
                mo.vstack([words(title, "h3"), *map(words, verdicts), table(rows)])
                for title, rows, verdicts in found.boards
            ),
        ]
    )


@app.cell
def _(found: Any) -> Any:
    pool = mo.ui.multiselect(found.models, value=found.models[:3], label="Models", full_width=True)
    return (pool,)


@app.cell
def _(found: Any, picker: Any, pool: Any) -> Any:
    mo.vstack(
        [
            mo.md("## Pool diversity"),
            drawn(found.pools),
            words("Any pool, on test documents:"),
            pool,
            table(live.pool_statistics(picker.value, pool.value)),
        ]
    )


@app.cell
def _(found: Any) -> Any:
    _missing = [words("Not answered in full:"), table(found.missing)] if found.missing else []
    mo.vstack([mo.md("## Models by tasks"), drawn(found.coverage), *_missing])


@app.cell
def _() -> Any:
    editor = mo.ui.code_editor("FROM accuracy ORDER BY accuracy DESC", language="sql", min_height=80)
    statement = editor.form(submit_button_label="Run")
    mo.vstack(
        [
            mo.md("## SQL"),
            words("Read-only; rlfocal sql --help lists what there is to read."),
            statement,
        ]
    )
    return (statement,)


@app.cell
def _(statement: Any) -> Any:
    mo.stop(not statement.value)
    try:
        _rows, _said = live.query(statement.value)
        _shown = mo.vstack([words(_said), table(_rows)])
    except InputError as _error:
        _shown = mo.callout(words(str(_error)), kind="danger")
    mo.output.replace(_shown)


if __name__ == "__main__":
    app.run()
