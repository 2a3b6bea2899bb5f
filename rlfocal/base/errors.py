"""The errors that all packages raise, which the warehouse, the lowest layer, defines; and messages for errors
of other libraries: one plain sentence without secrets."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Any

from warehouse.errors import InputError as InputError
from warehouse.errors import RunError as RunError
from warehouse.errors import unknown_name as unknown_name

MAX_MESSAGE_CHARACTERS = 300  # characters of a message
MAX_WORD_CHARACTERS = 80  # of a name or a path in a message that is too long otherwise
ELLIPSIS = " ... "
# Errors of a path that somebody gave, and not of the disk.
PATH_ERRORS = frozenset(
    {
        *(errno.EEXIST, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY),
        *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS),
    }
)
FULL_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SECRETS = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "OPENAI_API_KEY", "VLLM_API_KEY"),
    *("PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_KEY", "PGPASSWORD"),
)
MIN_SECRET_CHARACTERS = 4  # a shorter value is no secret, and blanking it would tear words apart
DUCKDB_ERRORS = ("IOException", "InvalidInputException", "HTTPException", "SerializationException")
DAMAGED_FILE_ADVICE = (
    "; the file is damaged or missing: `rlfocal doctor` names all such files, `doctor --repair` drops them"
)
TOKEN = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,})")
LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
QUERY_KEY = re.compile(
    r"([?&](?:[\w-]*[-_])?(?:key|apikey|token|secret|password|signature|sig|auth|code)=)[^&#\s]+",
    re.IGNORECASE,
)
SECRET_KEY = re.compile(r"(^|_)(token|api_key|apikey|secret|password)$", re.IGNORECASE)


def describe_error(error: BaseException) -> str:
    """An error's message in one line of at most MAX_MESSAGE_CHARACTERS characters, without secrets.

    >>> describe_error(ValueError("no such\\n  file"))
    'ValueError: no such file'
    """
    if isinstance(error, InputError | RunError):
        message = str(error)
    elif type(error).__name__ == "OutOfMemoryException":
        from warehouse.limits import explain_memory

        message = explain_memory(error) or ""
    else:
        kind, text = type(error).__name__, " ".join(str(error).split())
        message = f"{kind}: {text}" if text else kind
        message += damage(error)
    return shorten(escape_controls(without_secrets(message)))


def damage(error: BaseException) -> str:
    """Advice on a damaged Parquet file, if DuckDB's `error` names one; else empty."""
    if type(error).__name__ not in DUCKDB_ERRORS or ".parquet" not in str(error):
        return ""
    from warehouse.connecting import is_refusal

    return "" if is_refusal(error) else DAMAGED_FILE_ADVICE


def escape_controls(text: str) -> str:
    """`text` with what cannot be printed (newlines, other controls, half surrogate pairs) escaped.

    >>> escape_controls("a\\nb")
    'a\\\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, longest: int = MAX_MESSAGE_CHARACTERS) -> str:
    """`text` of at most `longest` characters; the middle of its longest words is cut out first.

    >>> shorten("no file " + 200 * "x" + "; give another", 104)
    'no file xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ... xxxxxxxxxxxxxxxxxxxxxxxxx; give another'
    """
    for word in sorted(re.findall(rf"\S{{{MAX_WORD_CHARACTERS + 1},}}", text), key=len, reverse=True):
        excess = len(text) - longest
        if excess > 0:
            text = text.replace(word, _cut_middle(word, max(MAX_WORD_CHARACTERS, len(word) - excess)))
    return _cut_middle(text, longest)


def explain_failure(error: BaseException) -> InputError | RunError | None:
    """The error to raise in place of one for a wrong path, a missing folder, a full disk or a damaged file.
    None for any other error."""
    if advice := damage(error):
        return RunError(f"{' '.join(str(error).split())}{advice}")
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if error.errno in FULL_DISK_ERRNOS:
        place = "" if error.filename is None else f"{os.fspath(error.filename)!r}: "
        return RunError(f"{place}{error.strerror}; free some space or raise the limit, and run it again")
    if error.filename is None:
        gone = "the folder that you are in no longer exists; cd into another"
        return InputError(gone) if isinstance(error, FileNotFoundError) else None
    if error.errno not in PATH_ERRORS:
        return None
    return InputError(f"{os.fspath(error.filename)!r}: {error.strerror}; give another path")


def without_secrets(text: str) -> str:
    """`text` with *** in place of secrets: the environment's tokens, what looks like one, a URL's login and
    keys.

    >>> without_secrets("GET https://me:pass@host/v1?api-version=2026-01-01&api-key=abc")
    'GET https://***@host/v1?api-version=2026-01-01&api-key=***'
    """
    for name in SECRETS:
        secret = os.environ.get(name, "").strip()
        if len(secret) >= MIN_SECRET_CHARACTERS:
            text = text.replace(secret, "***")
    return QUERY_KEY.sub(r"\1***", LOGIN.sub("***", TOKEN.sub("***", text)))


def place_of_secret(value: Any, key: str = "") -> str | None:
    """The place of a secret in a value read from YAML, as dotted keys; None if there is none."""
    if isinstance(value, Mapping):
        items = [(f"{key}.{name}".lstrip("."), name, inner) for name, inner in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{key}.{i}".lstrip("."), "", inner) for i, inner in enumerate(value)]
    else:
        return key if isinstance(value, str) and without_secrets(value) != value else None
    for place, name, inner in items:
        if SECRET_KEY.search(str(name)) and isinstance(inner, str) and inner:
            return place
        if inner_place := place_of_secret(inner, place):
            return inner_place
    return None


def _cut_middle(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    kept = longest - len(ELLIPSIS)
    return text[: -(-2 * kept // 3)] + ELLIPSIS + text[len(text) - kept // 3 :]
