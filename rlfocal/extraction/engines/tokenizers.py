"""Loads a model's tokenizer as transformers builds it, and compares it with the model's tokenizer.json.

transformers 5 builds a class such as LlamaTokenizerFast anew from the file's vocabulary. If the file is of
another kind, its rules are lost: spaces and newlines vanish (transformers#45488, #48206).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from rlfocal.base.errors import InputError, describe_error
from rlfocal.pool.hub import find_file, local_weights, read_config
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse

TOKENIZER_FILE, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
IDENTITY_FIELDS = {"model", "hf_repo", "revision", "trust_remote_code", "params_b"}
"""The fields of a model's entry that determine its tokenizer, or that every entry has."""
FILE_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Tokenizer classes that use all of tokenizer.json, unless the model's type is one of REBUILT_MODEL_TYPES."""
REBUILT_MODEL_TYPES = (
    "hyperclovax_vision_v2",
    "qwen2",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen4_exp",
)
"""Model types for which transformers 5.19 uses its own tokenizer class, whatever class the model's files
name."""
CHECK_TEXTS = (
    "The following are multiple choice questions (with answers) about anatomy.\n\nQ: 12 + 345 = ?\nA. 357\n"
    "B. 1,000,000.5\nAnswer: A",
    "def f(x):\n    if x  ==   0:\n\t\treturn 'a\\tb'\r\n\n\n    return {\"k\": [x**2, -1e-9]}  # don't",
    "no-break\u00a0space, thin\u2009space, em\u2003space, ideographic\u3000space,\ttab, line\u2028separator",
    "Größe, naïve café, Ελληνικά, Русский язык, עברית, العربية ١٢٣, हिन्दी ४५, ไทย, 中文字,日本の文、한국",
    "x ≤ y², ∑ᵢ αᵢ → ∞; “quotes” — and… emoji 🙂👩‍🔬, 0123456789 2024-11-28 UPPER lower CamelCase",
)
"""Texts that every tokenizer is tested on. They cover each kind of space, newline and digit, code, and many
scripts."""


class MisreadError(InputError):
    """The error of a tokenizer that reads text differently than its file says, or loses text."""


class Tokenization(NamedTuple):
    """A model's tokenizer, and the reference that it was compared with."""

    tokenizer: Any
    """The tokenizer that engines use."""
    default_tokenizer: Any
    """The tokenizer that transformers makes of the model's files. It is the same object as `tokenizer` if it
    is right."""
    reference: Any
    """The tokenizer that the `tokenizers` library makes of tokenizer.json; None for a model without that
    file."""

    @property
    def digest(self) -> str:
        """A digest of the token ids of CHECK_TEXTS. It is the tokenizer's part of a partition's identity."""
        return hashlib.sha256(json.dumps(_encode(self.tokenizer, CHECK_TEXTS)).encode()).hexdigest()[:32]

    @property
    def is_replaced(self) -> bool:
        """Whether transformers' tokenizer reads CHECK_TEXTS wrongly, so that the file's own is used."""
        return self.default_tokenizer is not self.tokenizer and self.was_wrong_on(CHECK_TEXTS)

    def was_wrong_on(self, texts: Sequence[str]) -> bool:
        """Whether transformers' tokenizer encodes the texts differently than tokenizer.json says."""
        return self.reference is not None and _encode(self.default_tokenizer, texts) != _encode_raw(
            self.reference, texts
        )

    def check(self, model: ModelSpec, texts: Sequence[str]) -> None:
        """Raises InputError if the tokenizer encodes one of the texts differently than tokenizer.json
        says."""
        if self.reference is None or _has_rules_of(self.tokenizer, self.reference):
            return
        for text in texts:
            if _encode(self.tokenizer, [text]) != _encode_raw(self.reference, [text]):
                raise _make_difference_error(model, self.tokenizer, self.reference, text)


def open_tokenizer(model: ModelSpec) -> Tokenization:
    """The tokenizer of a model, from its directory or from the hub. Every engine uses it.

    It is the one that transformers makes, if that reads CHECK_TEXTS as tokenizer.json does; else the file's
    own. Raises InputError, with the fix, if neither is right, or if decoding does not give a text back.
    """
    folder = local_weights(model)
    if model.gguf_file is not None:
        tokenizer = _load(model, gguf_file=model.gguf_file)
        return Tokenization(tokenizer, tokenizer, None)
    stamp = (
        None
        if folder is None
        else tuple(_read_stamp(folder / name) for name in (TOKENIZER_FILE, TOKENIZER_CONFIG))
    )
    return _open(model.model_dump_json(include=IDENTITY_FIELDS), stamp)


def tokenizer_of(model: ModelSpec) -> Any:
    """The tokenizer that engines use for a model."""
    return open_tokenizer(model).tokenizer


def check_tokenizer(model: ModelSpec, *, local_only: bool = False) -> Tokenization | None:
    """The model's tokenizer, checked; None where it certainly uses its tokenizer.json, or where a service
    tokenizes.

    With `local_only`, it is also None if no file of the tokenizer is on this machine. Raises InputError as
    `open_tokenizer` does.
    """
    if model.gguf_file is not None or model.is_closed:
        return None
    file, config = (
        find_file(model, name, local_only=local_only) for name in (TOKENIZER_FILE, TOKENIZER_CONFIG)
    )
    if file is not None and _takes_file(model, config):
        reference = _read(file)
        if (lost := _find_lost_text(reference, reference)) is not None:
            raise _make_round_trip_error(model, *lost)
        return None
    is_here = file is not None or config is not None or local_weights(model) is not None
    return open_tokenizer(model) if is_here else None


def misread_models(warehouse: Warehouse) -> Iterator[tuple[str, int, str]]:
    """Yields (model, partitions, reason) for models whose stored prompts a wrong tokenizer read. Their
    partitions are older than the checks of tokenizers. Models whose tokenizer is not on this machine are left
    out."""
    unchecked = warehouse.rows(
        "SELECT model, settings->>'hf_repo' AS repo, coalesce((settings->>'revision'), 'main') AS revision, "
        "count(*) FROM extractions WHERE backend IN ('hf', 'vllm', 'openai') AND repo IS NOT NULL "
        "AND (settings->>'tokenizer') IS NULL AND (settings->>'gguf_file') IS NULL GROUP BY ALL ORDER BY ALL"
    )
    for name, repo, revision, n in unchecked:
        try:
            model = ModelSpec(model=name, hf_repo=repo, revision=revision, params_b=1)
            checked = check_tokenizer(model, local_only=True)
        except MisreadError as error:
            yield name, n, str(error)
        except (InputError, OSError, ValueError):  # it is no longer here
            continue
        else:
            if checked is not None and checked.is_replaced:
                kind = type(checked.default_tokenizer).__name__
                yield name, n, f"transformers reads its {TOKENIZER_FILE} as a {kind}"


def load_tokenizer(source: str, **options: Any) -> Any:
    """The tokenizer of a folder or hub id. Raises InputError, with its files' names, if they cannot be
    parsed."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source, **options)
    except OSError:
        raise  # it says itself what is missing
    except Exception as error:
        raise _make_unreadable_error(source, error) from error


@lru_cache(maxsize=1)
def _open(identity: str, stamp: object) -> Tokenization:
    """Opens and caches a tokenizer. `identity` is the entry's fields as JSON. `stamp` changes with the files
    of a local directory."""
    model = ModelSpec.model_validate_json(identity)
    built = _load(model)
    file = find_file(model, TOKENIZER_FILE)
    reference = None if file is None else _add_special_tokens(built, _read(file))
    if reference is None or _has_rules_of(built, reference):
        return _check_round_trip(model, Tokenization(built, built, reference))
    own = None if _is_custom(built) else _load_own(model)
    is_right = _encode(built, CHECK_TEXTS) == _encode_raw(reference, CHECK_TEXTS)
    if own is None or _encode(own, CHECK_TEXTS) != _encode_raw(reference, CHECK_TEXTS):
        if not is_right:
            raise _make_difference_error(model, built, reference, *CHECK_TEXTS)
        own = None
    if is_right and (own is None or _encode(built, [""], special=True) != _encode(own, [""], special=True)):
        return _check_round_trip(model, Tokenization(built, built, reference))
    return _check_round_trip(model, Tokenization(own, built, reference))


def _check_round_trip(model: ModelSpec, tokenization: Tokenization) -> Tokenization:
    """The same `tokenization`. Raises InputError if decoding changes an encoded text that the tokenizer's
    rules leave as it is."""
    reference = tokenization.reference or getattr(tokenization.tokenizer, "backend_tokenizer", None)
    if reference is not None and (lost := _find_lost_text(tokenization.tokenizer, reference)) is not None:
        raise _make_round_trip_error(model, *lost)
    return tokenization


def _load(model: ModelSpec, **options: Any) -> Any:
    folder = local_weights(model)
    if folder is None:
        options["revision"] = model.revision
    source = model.hf_repo if folder is None else str(folder)
    return load_tokenizer(source, trust_remote_code=model.trust_remote_code, **options)


def _load_own(model: ModelSpec) -> Any:
    """The tokenizer of tokenizer.json, with the special tokens and chat template of the config, but no rules
    of a class."""
    from transformers import PreTrainedTokenizerFast

    folder = local_weights(model)
    options = {"revision": model.revision} if folder is None else {}
    own = PreTrainedTokenizerFast.from_pretrained(model.hf_repo if folder is None else str(folder), **options)
    # transformers ignores this where there is a tokenizer.json, which may leave it to the class.
    stated = _read_config(find_file(model, TOKENIZER_CONFIG))
    if stated.get("add_bos_token") and not _encode(own, [""], special=True)[0]:
        own.add_bos_token = True
    return own


def _read(file: Path) -> Any:
    """The tokenizer that the `tokenizers` library makes of the file, without truncation and padding."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library's errors have no type of their own
        raise _make_unreadable_error(str(file.parent), error) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _takes_file(model: ModelSpec, config: Path | None) -> bool:
    """Whether transformers would use all of tokenizer.json. This reads only the model's config files, because
    importing transformers takes seconds."""
    stated = _read_config(config)
    is_rebuilt = read_config(model).get("model_type") in REBUILT_MODEL_TYPES
    return stated.get("tokenizer_class") in FILE_CLASSES and "auto_map" not in stated and not is_rebuilt


def _read_config(config: Path | None) -> dict[str, Any]:
    try:
        stated: dict[str, Any] = {} if config is None else json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _make_unreadable_error(str(config), error) from error
    return stated


def _add_special_tokens(built: Any, reference: Any) -> Any:
    """The reference with the special tokens that only the tokenizer `built` has."""
    known = reference.get_added_tokens_decoder()
    added = sorted(getattr(built, "added_tokens_decoder", {}).items())
    for token_id, token in added:
        if token_id not in known:
            (reference.add_special_tokens if token.special else reference.add_tokens)([token])
    return reference


def _has_rules_of(tokenizer: Any, reference: Any) -> bool:
    """Whether a tokenizer has the reference's vocabulary and rules, so that it gives the same tokens."""
    backend = None if _is_custom(tokenizer) else getattr(tokenizer, "backend_tokenizer", None)
    return backend is not None and _read_rules(backend) == _read_rules(reference)


def _read_rules(tokenizer: Any) -> dict[str, Any]:
    stated = json.loads(tokenizer.to_str())
    return {
        name: stated[name] for name in ("added_tokens", "normalizer", "pre_tokenizer", "decoder", "model")
    }


def _is_custom(tokenizer: Any) -> bool:
    """Whether the tokenizer's class is code from the model's repository."""
    return not type(tokenizer).__module__.startswith("transformers.")


def _encode(tokenizer: Any, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
    return [list(ids) for ids in tokenizer(list(texts), add_special_tokens=special)["input_ids"]]


def _encode_raw(reference: Any, texts: Iterable[str]) -> list[list[int]]:
    return [each.ids for each in reference.encode_batch(list(texts), add_special_tokens=False)]


def _find_lost_text(tokenizer: Any, reference: Any) -> tuple[str, str] | None:
    """The first of CHECK_TEXTS that encoding and decoding changes, and its changed form; None if there is
    none. A text that the reference's own rules change on purpose does not count."""
    for text in CHECK_TEXTS:
        if tokenizer is reference:
            back = reference.decode(
                reference.encode(text, add_special_tokens=False).ids, skip_special_tokens=False
            )
        else:
            [ids] = _encode(tokenizer, [text])
            options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
            back = tokenizer.decode(ids, **options)
        if back != text and not _is_lossy(reference, text):
            return text, str(back)
    return None


def _is_lossy(reference: Any, text: str) -> bool:
    """Whether a tokenizer's own rules drop or change parts of a text: case, spaces, unknown letters."""
    read = text if reference.normalizer is None else reference.normalizer.normalize_str(text)
    if read.replace("\u2581", " ").lstrip() != text:
        return True
    if reference.pre_tokenizer is not None:
        spans = [span for _, span in reference.pre_tokenizer.pre_tokenize_str(text)]
        if {place for start, end in spans for place in range(start, end)} != set(range(len(text))):
            return True
    model = json.loads(reference.to_str())["model"]
    unknown = {model.get("unk_id"), reference.token_to_id(model.get("unk_token") or "")} - {None}
    read_as = [reference.encode(letter, add_special_tokens=False).ids for letter in sorted(set(text))]
    return any(not ids or not unknown.isdisjoint(ids) for ids in read_as)


def _make_difference_error(model: ModelSpec, tokenizer: Any, reference: Any, *texts: str) -> MisreadError:
    """The error, with its fix, of a model whose tokenizer and tokenizer.json differ on one of the texts."""
    found = (_show_first_difference(tokenizer, reference, text) for text in texts)
    mine, its = next(each for each in found if each[0] != each[1])
    return MisreadError(
        f"model {model.model!r}: the class {type(tokenizer).__name__} of its {TOKENIZER_CONFIG} reads {mine} "
        f"where its {TOKENIZER_FILE} has {its}; copy the model to a directory, and there set "
        "tokenizer_class to PreTrainedTokenizerFast if the file is right, or delete the file if the class is"
    )


def _show_first_difference(tokenizer: Any, reference: Any, text: str) -> tuple[str, str]:
    """The first few tokens of both tokenizers from where they begin to differ, as texts."""
    [mine], [its] = _encode(tokenizer, [text]), _encode_raw(reference, [text])
    pairs = zip(mine, its, strict=False)
    start = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(mine), len(its)))
    names = [tokenizer.convert_ids_to_tokens(i) for i in mine[start : start + 3]]
    return str(names), str([reference.id_to_token(i) for i in its[start : start + 3]])


def _make_round_trip_error(model: ModelSpec, text: str, back: str) -> MisreadError:
    start = next((i for i, (a, b) in enumerate(zip(text, back, strict=False)) if a != b), len(back))
    return MisreadError(
        f"model {model.model!r}: its tokenizer makes {text[start : start + 20]!r} to "
        f"{back[start : start + 20]!r} when it encodes and decodes; save the tokenizer that the model was "
        f"trained with beside its weights ({TOKENIZER_FILE} and {TOKENIZER_CONFIG})"
    )


def _make_unreadable_error(source: str, error: Exception) -> InputError:
    return InputError(
        f"the tokenizer of {source} cannot be read: {describe_error(error)}; download its tokenizer.json and "
        "tokenizer_config.json again, or save them with the model's own tokenizer"
    )


def _read_stamp(file: Path) -> tuple[int, int] | None:
    if not file.exists():
        return None
    about = file.stat()
    return about.st_mtime_ns, about.st_size
