"""A model in and out of a pool's file: the other bytes stay, and out again they are all as before."""

from __future__ import annotations

from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Double
from ruamel.yaml.scalarstring import FoldedScalarString as Folded
from ruamel.yaml.scalarstring import LiteralScalarString as Literal
from ruamel.yaml.scalarstring import SingleQuotedScalarString as Single

from rlfocal.base.errors import InputError
from rlfocal.pool import add_to_pool, find_pool, is_shipped, load_entry, load_pool, remove_from_pool
from rlfocal.pool.reading import with_entry, without_entry
from rlfocal.pool.specs import ModelSpec

POOLS = {
    "block": """\
# the pool's own words
name: mine
models:  # of 2026
  - model: a   # one
    hf_repo: org/a
    # between keys
    params_b: 1   # at the end
  # after the models
benchmarks: [lab-gpqa]
""",
    "flow": """\
name: mine
models: [{model: a, hf_repo: org/a, params_b: 1}]   # one line
benchmarks: [lab-gpqa]
""",
    "flow items, no last line break": """\
name: mine
benchmarks: [lab-gpqa]
models:
- {model: a, hf_repo: org/a,
   params_b: 1}""",
    "json": """\
{"name": "mine", "benchmarks": ["lab-gpqa"],
 "models": [{"model": "a", "hf_repo": "r", "params_b": 1}
]}
""",
    "dash alone": """\
models:
  -
    # a-b
    model: a
    hf_repo: r
    params_b: 1

# end
name: mine
benchmarks: [lab-gpqa]
""",
    "block scalar, blank line": """name: mine
models:
  - model: a
    hf_repo: org/a
    params_b: 1
    price_source: |
      a list

benchmarks: [lab-gpqa]
""",
    "nothing after the colon": """name: mine
models:
  - model: a
    hf_repo: org/a
    params_b: 1
    price:  # unknown

# after the models
benchmarks: [lab-gpqa]
""",
}
POOLS["windows"] = POOLS["block"].replace("\n", "\r\n")
POOLS["byte order mark"] = "\ufeff" + POOLS["block"]
ENTRIES = {
    "block": "# top\nmodel: c  # the new one\nhf_repo: org/c\n# in it\nparams_b: 3\n# end\n",
    "flow": "{model: c, hf_repo: r,\n params_b: 3}\n",
    "nested": "model: c\nhf_repo: r\nparams_b: 3\nengine_args:\n  vllm:\n    max_num_seqs: 4\n",
    "windows": "---\r\nmodel: c\r\nprice_source: |\r\n  a\r\n\r\n  list\r\nhf_repo: r\r\nparams_b: 3\r\n",
    "unknown price": "model: c\nhf_repo: r\nparams_b: 3\nprice:\n",
    "json": '{"model": "c", "hf_repo": "r", "params_b": 3, "family": "a | b: \\u00e9"}',
}


@pytest.mark.parametrize(
    ("pool", "entry"),
    [
        pytest.param(pool, entry, marks=[pytest.mark.slow] if "block" not in (pool, entry) else [])
        for pool in POOLS
        for entry in ENTRIES
    ],
)
def test_out_again_every_byte_is_as_before(pool: str, entry: str, tmp_path: Path) -> None:
    file, source = tmp_path / "mine.yaml", tmp_path / "entry.yaml"
    file.write_bytes(POOLS[pool].encode())
    source.write_bytes(ENTRIES[entry].encode())
    added = load_entry(source)
    first = load_pool(str(file)).models
    assert add_to_pool(str(file), added, source) == file
    assert load_pool(str(file)).models == (*first, added)
    with pytest.raises(InputError, match="already"):
        add_to_pool(str(file), added, source)
    changed = file.read_text("utf-8")
    assert all(line[line.index("#") :] in changed for line in POOLS[pool].splitlines() if "#" in line)
    assert remove_from_pool(str(file), "c") == file
    assert file.read_bytes() == POOLS[pool].encode()
    assert remove_from_pool(str(file), "c") is None
    # The models that were there before can go as well, and the new one stays.
    add_to_pool(str(file), added, source)
    remove_from_pool(str(file), "a")
    assert load_pool(str(file)).models == (added,)
    with pytest.raises(InputError, match="the only model"):
        remove_from_pool(str(file), "c")


def test_an_entrys_comments_come_along() -> None:
    changed = with_entry(POOLS["block"], ENTRIES["block"])
    assert "  - model: c  # the new one\n    hf_repo: org/c\n    # in it\n    params_b: 3\n" in changed
    assert changed.index("model: c") < changed.index("# after the models")


STYLES = {"|": Literal, ">": Folded, "'": Single, '"': Double}
WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=12)


@given(st.lists(WORDS, min_size=1, max_size=4), WORDS, st.sampled_from(list(STYLES)))
def test_whatever_the_values_are(families: list[str], family: str, style: str) -> None:
    made = STYLES[style]
    models = [{"model": f"m{at}", "family": made(text)} for at, text in enumerate(families)]
    out, entry = StringIO(), StringIO()
    YAML().dump({"models": models, "name": "p"}, out)
    YAML().dump({"model": "new", "family": family}, entry)
    changed = with_entry(out.getvalue(), entry.getvalue())
    read = YAML(typ="safe").load(changed)
    before = YAML(typ="safe").load(out.getvalue())
    assert read["models"][:-1] == before["models"]
    assert read["models"][-1] == YAML(typ="safe").load(entry.getvalue())
    assert without_entry(changed, "new") == out.getvalue()


def load_entry_of(source: Path, name: str = "mine") -> ModelSpec:
    source.write_text(f"model: {name}\nhf_repo: org/mine\nparams_b: 3\n")
    return load_entry(source)


def test_a_shipped_pool_is_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = tmp_path / "entry.yaml"
    entry.write_text("model: mine\nhf_repo: org/mine\nparams_b: 3\n")
    shipped = find_pool("lab").read_bytes()
    # In a checkout, ./pools is what ships: the copy goes elsewhere, and its name finds it.
    checkout = tmp_path / "checkout"
    (checkout / "pools").mkdir(parents=True)
    (checkout / "pools" / "lab.yaml").write_bytes(shipped)
    monkeypatch.setattr("rlfocal.pool.files.find_packaged", lambda name: checkout / name)
    monkeypatch.chdir(checkout)
    assert is_shipped(find_pool("lab"))
    own = Path(".rlfocal/pools/lab.yaml")
    assert add_to_pool("lab", load_entry_of(entry), entry) == own
    assert find_pool("lab") == own
    assert add_to_pool("pools/lab.yaml", load_entry_of(entry, "more"), entry) == own  # by path, too
    assert [m.model for m in load_pool("lab").models[-2:]] == ["mine", "more"]
    assert (checkout / "pools" / "lab.yaml").read_bytes() == shipped
    remove_from_pool("lab", "mine")
    assert own.exists()
    assert remove_from_pool("lab", "more") == own
    assert not own.parent.exists()
    assert (checkout / "pools" / "lab.yaml").read_bytes() == shipped
    # A model that ships with it can be left out, in a copy.
    assert remove_from_pool("lab", "lab-phi") == own
    assert "lab-phi" not in {m.model for m in load_pool("lab").models}
    assert (checkout / "pools" / "lab.yaml").read_bytes() == shipped


def test_a_file_that_no_change_made_is_never_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own pools/lab.yaml, in version control, that equals what ships once a model is out again."""
    entry = tmp_path / "entry.yaml"
    shipped = find_pool("lab").read_bytes()
    monkeypatch.chdir(tmp_path)
    own = Path("pools/lab.yaml")
    assert add_to_pool("lab", load_entry_of(entry), entry) == own
    assert remove_from_pool("lab", "mine") == own
    assert not own.exists(), "a copy that the change made goes with its last difference"
    own.parent.mkdir()
    own.write_bytes(shipped)
    assert add_to_pool("lab", load_entry_of(entry), entry) == own
    assert remove_from_pool("lab", "mine") == own
    assert own.read_bytes() == shipped


def add(pool: str, source: Path) -> Path:
    return add_to_pool(pool, load_entry(source), source)


@pytest.mark.parametrize(
    "models",
    [
        "models:\t# only the faster parser reads a tab here\n  - {model: a, hf_repo: r, params_b: 1}\n",
        "models:\n- model: a\n  hf_repo: r\n  params_b: 1\n  price_source: |\n    and a line break",
        "models:\n  - &a {model: a, hf_repo: r, params_b: 1}\n  - {<<: *a, model: b}\n",
    ],
)
def test_what_cannot_be_edited_is_left_alone(models: str, tmp_path: Path) -> None:
    file, source = tmp_path / "mine.yaml", tmp_path / "entry.yaml"
    text = f"name: mine\nbenchmarks: [lab-gpqa]\n{models}"
    file.write_text(text)
    source.write_text("{model: c, hf_repo: r, params_b: 1}")
    change = partial(remove_from_pool, model="a") if "&a" in models else partial(add, source=source)
    with pytest.raises(InputError, match="by hand"):
        change(str(file))
    assert file.read_text() == text
    assert not list(tmp_path.glob(".mine*"))
