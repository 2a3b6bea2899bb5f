"""Pools and entries: what is read, and how a wrong file is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlfocal.base.errors import InputError
from rlfocal.pool import ModelSpec, add_to_pool, find_pool, load_entry, load_pool
from rlfocal.pool.files import load_benchmarks
from rlfocal.pool.hub import local_adapter, local_weights

POOL = """\
name: mine   # a comment worth keeping
benchmarks:
  - lab-gpqa
  - name: my-arc
    kind: choices
    tasks: {easy: arc_easy}
    include_path: tasks
models:
  - {model: a, hf_repo: org/a, params_b: 1.5}
  - {model: b, hf_repo: org/b, params_b: 7, price: 0.1}
"""


@pytest.fixture
def pool_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(POOL)
    return path


def test_a_pool_holds_named_and_inline_benchmarks(pool_file: Path) -> None:
    pool = load_pool(str(pool_file))
    assert [m.model for m in pool.models] == ["a", "b"]
    lab, arc = pool.benchmarks
    assert (lab.name, lab.kind) == ("lab-gpqa", "choices")
    assert arc.include_path == str(pool_file.parent / "tasks")


def test_a_benchmark_asks_the_models_that_it_names_and_those_that_none_does(pool_file: Path) -> None:
    text = pool_file.read_text().replace("- lab-gpqa", "- {name: lab-gpqa, models: [a]}")
    text = text.replace("    kind: choices", "    models: [a, b]\n    kind: choices")
    pool_file.write_text(text + "  - {model: c, hf_repo: org/c, params_b: 1}\n")
    pool = load_pool(str(pool_file))
    assert pool.benchmarks[0].tasks == load_benchmarks()["lab-gpqa"].tasks
    asked = {b.name: [m for m in "abcd" if b.includes_model(m)] for b in pool.benchmarks}
    assert asked == {"lab-gpqa": ["a", "c", "d"], "my-arc": ["a", "b", "c", "d"]}
    assert [b.name for b in pool.choose(["b"]).benchmarks] == ["my-arc"]
    with pytest.raises(InputError, match="asks lab-gpqa of other models than b"):
        pool.choose(["b"], ["lab-gpqa"])
    pool_file.write_text(text.replace("[a, b]", "[a, x]"))
    with pytest.raises(InputError, match="'x'"):
        load_pool(str(pool_file))


def test_choose_restricts_and_names_what_is_unknown(pool_file: Path) -> None:
    pool = load_pool(str(pool_file))
    assert [m.model for m in pool.choose(["b"]).models] == ["b"]
    asked: list[dict[str, list[str]]] = [{"benchmarks": ["my-arcc"]}, {"models": []}, {"benchmarks": []}]
    for unknown in asked:
        with pytest.raises(InputError, match="mine"):
            pool.choose(**unknown)
    assert [m.price for m in pool.models] == [None, 0.1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("price: 0.1", "prize: 0.1"), "'prize'"),
        (("params_b: 1.5", "params_b: -1"), "params_b"),
        (("model: b", "model: a"), "duplicate model 'a'"),
        (("model: b", "model: ../b"), r"models\.1\.model: a name has ASCII letters"),
        (("model: b", "model: " + "b" * 200), "96"),
        (("- lab-gpqa", "- lab-gpq"), "'lab-gpq'"),
        (("hf_repo: org/a, ", ""), "hf_repo is missing"),
        (("name: mine", "name: [mine"), "not valid YAML"),
        (("kind: choices", "kind: choice"), r"benchmarks\.1\.kind"),
    ],
)
def test_a_wrong_pool_file_is_refused_with_file_key_and_reason(
    pool_file: Path, change: tuple[str, str], message: str
) -> None:
    pool_file.write_text(POOL.replace(*change))
    with pytest.raises(InputError, match=message) as caught:
        load_pool(str(pool_file))
    assert "mine.yaml" in str(caught.value)


HERE = """\
name: here
benchmarks: [lab-gpqa]
models:
  - {model: a, hf_repo: ./weights/a, adapter: ../b, params_b: 1}
"""


def test_a_wrong_entry_is_the_only_problem_that_is_named(pool_file: Path) -> None:
    pool_file.write_text(HERE.replace("params_b: 1", "params_b: large"))
    with pytest.raises(InputError) as caught:
        load_pool(str(pool_file))
    assert str(caught.value).count("(got ") == 1
    pool_file.write_text(HERE.partition("models:")[0] + "models: []")
    with pytest.raises(InputError, match="at least 1"):
        load_pool(str(pool_file))


def test_directories_are_those_beside_the_file_wherever_a_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pools").mkdir()
    pool = tmp_path / "pools" / "here.yaml"
    pool.write_text(HERE)
    read = []
    for folder in (tmp_path, pool.parent):
        monkeypatch.chdir(folder)
        read.append(load_pool(str(pool.relative_to(folder))).models[0])
    assert read[0] == read[1]
    assert read[0].hf_repo == str(pool.parent / "weights" / "a")
    assert read[0].adapter == str(tmp_path / "b")


@pytest.mark.parametrize("at", ["beside the file", "where the command runs"])
def test_what_may_be_a_hub_id_or_a_directory_must_be_written_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Else it is another model in another working directory."""
    (tmp_path / "elsewhere" / "models" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    pool = tmp_path / ("elsewhere" if at == "beside the file" else "") / "here.yaml"
    pool.write_text(HERE.replace("./weights/a", "models/a").replace(", adapter: ../b", ""))
    with pytest.raises(InputError, match=r"\./models/a"):
        load_pool(str(pool))
    monkeypatch.chdir(tmp_path)
    if at == "where the command runs":
        assert load_pool(str(pool)).models[0].hf_repo == "models/a"
    model = ModelSpec(model="m", hf_repo="elsewhere", params_b=1, adapter="elsewhere")
    assert (local_weights(model), local_adapter(model)) == (None, None)  # whatever lies here


@pytest.mark.parametrize("folder", ["./mine", ".", "'./mine'"])
def test_an_entry_of_another_folder_keeps_its_directory(pool_file: Path, tmp_path: Path, folder: str) -> None:
    (tmp_path / "entries").mkdir()
    entry = tmp_path / "entries" / "entry.yaml"
    entry.write_text(f"model: c  # ./mine\nhf_repo: {folder}\nparams_b: 3.5\n")
    added = load_entry(entry)
    assert added.hf_repo == str((tmp_path / "entries" / folder.strip("'")).resolve())
    add_to_pool(str(pool_file), added, entry)
    assert load_pool(str(pool_file)).models[-1] == added


def test_template_args_that_no_benchmark_uses_are_refused(pool_file: Path, tmp_path: Path) -> None:
    entry = tmp_path / "entry.yaml"
    entry.write_text("{model: c, hf_repo: org/c, params_b: 3, template_args: {enable_thinking: true}}\n")
    with pytest.raises(InputError, match="template_args"):
        add_to_pool(str(pool_file), load_entry(entry), entry)
    assert pool_file.read_text() == POOL
    pool_file.write_text(POOL.replace("    include_path", "    chat_template: true\n    include_path"))
    add_to_pool(str(pool_file), load_entry(entry), entry)
    assert load_pool(str(pool_file)).models[-1].template_args == {"enable_thinking": True}


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "host/v1", "https://", "https://host/v1?api-key=abc", "http://me:pass@host/v1"],
)
def test_an_address_is_a_servers_and_holds_no_key(url: str) -> None:
    entry = {"model": "m", "served": "s"}
    with pytest.raises(ValueError, match=r"address|secret") as raised:
        ModelSpec.model_validate(entry | {"base_url": url})
    assert "abc" not in str(raised.value)
    assert ModelSpec.model_validate(entry | {"base_url": "https://host/v1?api-version=2026-01-01"})


def test_a_closed_model_needs_its_service_name_and_prices_for_a_limit() -> None:
    prices = {"price_input": 1, "price_output": 2, "spending_limit": 5}
    for per_token in ({"price_input": 2.5e-6}, {"price_output": 1e-5}, {"price_output": 0.00015}):
        with pytest.raises(ValueError, match="cents per million tokens"):
            ModelSpec.model_validate({"model": "m", "served": "s", **prices, **per_token})
    ModelSpec.model_validate({"model": "m", "served": "s", "price_input": 0, "price_output": 0.5})
    closed = {"model": "m", "served": "m-2026-01-01"} | prices
    spec = ModelSpec.model_validate(closed)
    assert spec.is_closed
    assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec  # as a worker gets it
    for lacking, message in (("served", "hf_repo is missing"), ("price_output", "needs price_input and")):
        with pytest.raises(ValueError, match=message):
            ModelSpec.model_validate({name: value for name, value in closed.items() if name != lacking})


def test_adding_to_a_packaged_pool_writes_a_copy_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = find_pool("lab").read_text()
    monkeypatch.chdir(tmp_path)
    entry = tmp_path / "entry.yaml"
    entry.write_text("model: mine\nhf_repo: org/mine\nparams_b: 3\n")
    assert add_to_pool("lab", load_entry(entry), entry) == Path("pools/lab.yaml")
    assert find_pool("lab") == Path("pools/lab.yaml")
    assert [m.model for m in load_pool("lab").models][-1] == "mine"
    monkeypatch.undo()
    assert find_pool("lab").read_text() == shipped
