"""A server that models are asked through: how requests are sent and waited for, and what responses mean.

A failure that no waiting mends ends the model's run (HopelessError). One that concerns a single document
leaves it without an answer (UnansweredError). One that may pass is sent again, for a limited time.
"""

from __future__ import annotations

import json
import math
import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from rlfocal.base.errors import InputError, RunError
from rlfocal.base.failures import describe_error
from rlfocal.extraction.engine import HopelessError, MissingAnswer, UnansweredError
from rlfocal.extraction.engines.deadlines import bound_reads, deadline, shorten_deadline
from rlfocal.pool.specs import ModelSpec

BUSY_SECONDS = 300.0
"""The seconds that a request waits for a busy server, unless an entry's engine_args set `patience`."""
UNREACHABLE_SECONDS = 60.0
"""The most seconds that a request waits for a server that cannot be reached."""
MAX_TRIES = 5
"""A request on which the server fails is sent so many times, before its document is left without an
answer."""
MAX_RESPONSE_BYTES = 64 * 2**20
"""The most bytes that are read of a response."""
MAX_RESPONSE_SECONDS = 600.0
"""The most seconds that a response may take as a whole; once its content begins, a request's patience bounds
it."""
REQUEST_TIMEOUT = httpx.Timeout(MAX_RESPONSE_SECONDS, connect=10, pool=None)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds

Given = TypeVar("Given")
Answer = TypeVar("Answer")
Bill = TypeVar("Bill")
Options = TypeVar("Options")
Content = dict[str, Any]


class Service:
    """A server's address, its key, and how long requests to it wait."""

    def __init__(self, url: str, patience: float = BUSY_SECONDS, connections: int = 32) -> None:
        given = httpx.URL(url)
        self.base = given.copy_with(query=None)
        self._patience = patience
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"},
            params=given.params,
            timeout=REQUEST_TIMEOUT,
            limits=httpx.Limits(max_connections=connections),
            follow_redirects=False,  # the prompt would go along
        )
        bound_reads(self._client)
        self._answered_at = -math.inf
        self._over = Event()

    @property
    def address(self) -> str:
        """The server's URL, without a user's name, password or key."""
        return str(self.base.copy_with(username=None, password=None)).rstrip("/")

    def models(self) -> list[Content]:
        """The models that the server lists, each with an `id`; empty where it has no list.

        Adds /v1 to an address that lacks it. Raises HopelessError where the address is no such server.
        """
        given, refused = self.base, None
        path = given.path.rstrip("/")
        for base in (given, *([] if path.endswith("/v1") else [given.copy_with(path=f"{path}/v1")])):
            self.base = base
            try:
                content = self._ask_with_retries(lambda: self._try("GET", "models"), reachable=0)
            except UnansweredError:
                continue
            except HopelessError as error:
                if isinstance(error.__cause__, PassingError):
                    raise
                refused = refused or error
                continue
            if isinstance(offered := content.get("data"), list):
                return [
                    each for each in offered if isinstance(each, dict) and isinstance(each.get("id"), str)
                ]
        self.base = given
        if refused is not None and refused.status not in (404, 405):
            raise refused
        return []

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        check: Callable[[Content, Bill], Answer],
        pay: Callable[[], AbstractContextManager[Bill]],
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends a request, and returns what `check` makes of the response. `pay` opens a bill for each try.

        Raises UnansweredError where this request has no answer, HopelessError where no other will have one.
        """

        def ask() -> Answer:
            with pay() as bill:
                return check(self._try("POST", path, json=body, headers=headers), bill)

        return self._ask_with_retries(ask, UNREACHABLE_SECONDS)

    def _ask_with_retries(self, ask: Callable[[], Answer], reachable: float) -> Answer:
        """Calls `ask` again while its failure may pass.

        `reachable`: the seconds until the server must be reachable.
        """
        begun, pause, tries = monotonic(), FIRST_PAUSE, 0
        while True:
            tries += 1
            try:
                answer = ask()
                self._answered_at = monotonic()
                return answer
            except PassingError as error:
                pause = min(2 * pause, LONGEST_PAUSE) if error.pause is None else error.pause
                patience = min(reachable, self._patience) if error.is_away else self._patience
                is_late = monotonic() + pause > begun + patience
                is_fault = error.is_fault or (error.is_slow and self._answered_at > begun)
                if is_fault and (is_late or tries >= MAX_TRIES):
                    raise UnansweredError("failed", f"{tries} times: {error}") from error
                if is_late:
                    raise HopelessError(f"{error} (asked {tries} times)") from error
                if self._over.wait(pause):
                    raise HopelessError("another request failed for good") from error

    def ask_each(self, ask: Callable[[Given], Answer], items: Iterable[Given], at_once: int) -> list[Answer]:
        """Calls `ask` for all items, in order; the first failure cancels those that wait or have not
        begun."""
        self._over.clear()
        with ThreadPoolExecutor(at_once) as threads:
            asked = [threads.submit(ask, item) for item in items]
            try:
                done, _ = wait(asked, return_when=FIRST_EXCEPTION)
                for failed in (answer for answer in asked if answer in done and answer.exception()):
                    failed.result()
                return [answer.result() for answer in asked]
            except BaseException:
                self._over.set()
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def _make_url(self, path: str) -> httpx.URL:
        return self.base.copy_with(path=f"{self.base.path.rstrip('/')}/{path}")

    def _try(self, method: str, path: str, **content: Any) -> Content:
        """The content of the response to one try of a request."""
        try:
            stream = self._client.stream(method, self._make_url(path), **content)
            with deadline(MAX_RESPONSE_SECONDS), stream as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    if not body and (chunk := chunk.lstrip()):  # blanks keep a connection open meanwhile
                        shorten_deadline(self._patience)
                    body += chunk
                    if len(body) > MAX_RESPONSE_BYTES:
                        raise UnansweredError(
                            "broken", f"an answer of more than {MAX_RESPONSE_BYTES // 2**20} MB"
                        )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if _is_certificate(error):
                raise HopelessError(
                    f"the certificate of the server at {self.address} is not trusted here "
                    f"({describe_error(error)}); set SSL_CERT_FILE to its authority's"
                ) from error
            raise PassingError(
                f"the server at {self.address} cannot be reached; check base_url, or start it if it is yours "
                "(`vllm serve MODEL`)",
                is_free=True,
                is_away=True,
            ) from error
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise HopelessError(f"base_url {self.address!r} is no server's address ({error})") from error
        except httpx.TransportError as error:
            raise PassingError(
                f"the server at {self.address} broke off ({describe_error(error)})",
                is_fault=not isinstance(error, httpx.TimeoutException),
                is_slow=isinstance(error, httpx.ReadTimeout),
            ) from error
        except httpx.DecodingError as error:
            raise UnansweredError(
                "broken", f"an answer that cannot be decoded ({describe_error(error)})"
            ) from error
        answer = good_answer(response.status_code, response.headers, bytes(body), self.address)
        return {"cached": True, **answer} if _is_cached(response.headers) else answer


@contextmanager
def bill_nothing() -> Iterator[None]:
    """Opens a bill that costs nothing."""
    yield None


def address_of(spec: ModelSpec, backend: str, example: str) -> str:
    """The URL of a model's server: the entry's `base_url`, else OPENAI_BASE_URL."""
    if url := spec.base_url or os.environ.get("OPENAI_BASE_URL"):
        return url
    raise RunError(
        f"model {spec.model!r}: the backend {backend} needs the server's address; set `base_url` in the "
        f"model's entry or OPENAI_BASE_URL, such as {example}"
    )


def options_of(spec: ModelSpec, backend: str, kind: type[Options]) -> Options:
    """The `engine_args: {backend: ...}` of an entry.

    Raises InputError for an option that the engine does not know.
    """
    try:
        return kind(**spec.engine_args.get(backend, {}))
    except TypeError as error:
        names = ", ".join(vars(kind)["__dataclass_fields__"])
        raise InputError(f"model {spec.model!r}: engine_args.{backend} knows {names} ({error})") from None


def _is_certificate(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


FINAL_STATUSES = frozenset((401, 402, 403, 404, 405, 410))
"""HTTP statuses that concern the key, the account or the address."""
BUSY_STATUSES = frozenset((408, 409, 425, 429, 503, 529))
"""HTTP statuses of a request that may be sent again."""
UNBILLED_STATUSES = frozenset((401, 402, 403, 404, 405, 409, 410, 413, 425, 429, 503, 529))
"""HTTP statuses of a request that was not worked on."""
REFUSED_FORM = re.compile(
    r"(?:un(?:supported|known|recognized|expected)|invalid|missing|extra)[ _](?:required[ _])?"
    r"(?:argument|parameter|value|field|type|input)|not (?:supported|permitted)|"
    r"context.?(?:length|window)|must be (?:at |less|between|one)",
    re.IGNORECASE,
)
"""Matches an error about the form of a request, which is refused before a model reads it."""
TIMED_OUT = re.compile(r"tim(?:ed?|e-|ing)[ -]?out", re.IGNORECASE)
MISSING_MONEY = re.compile(
    r"insufficient.{0,20}(?:quota|balance|credit|fund)|exceeded your current quota|billing|credit balance|"
    r"(?:out of|no|any) credits|payment required|hard limit|account .{0,40}(?:deactivat|suspend|terminat)",
    re.IGNORECASE,
)
PASSING_FAULT = re.compile(
    r"try again|retry (?:in|after)|per (?:second|minute|min|hour)\b|rate.?limit", re.IGNORECASE
)
MISSING_MODEL = re.compile(
    r"model[_ ](?:not[_ ]found|decommissioned)|(?:unknown|invalid|no such|unrecognized)[_ ]model|"
    r"model\b.{0,80}(?:not (?:found|exist|a valid)|does not exist|decommissioned|deprecated|no longer)",
    re.IGNORECASE,
)
CONTENT_FILTER = re.compile(
    r"content.{0,2}(?:filter|policy|management|moderation)|responsible.?ai|safety|flagged|moderation|"
    r"prohibited|data.?inspection|blocked (?:by|due)|sensitive content",
    re.IGNORECASE,
)
COMPLETE_REASONS = frozenset(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "completed"))
CUT_REASONS = frozenset(("length", "max_tokens", "max_length", "model_length"))
FILTERED_REASONS = frozenset(
    ("content_filter", "content_filtered", "safety", "recitation", "blocklist", "refusal")
)
"""Why texts end, in servers' words, where a filter stopped them: such a text is no answer."""
STATUS_ADVICE = {
    401: "; set OPENAI_API_KEY to a key that it takes",
    403: "; set OPENAI_API_KEY to a key that may do this",
    404: "; check base_url and the model's name there (with chat completions alone: --backend chat)",
    405: "; check base_url",
}


Model = TypeVar("Model", bound=BaseModel)


class PassingError(Exception):
    """One try failed in a way that may pass."""

    def __init__(
        self,
        words: str,
        *,
        pause: float | None = None,
        is_free: bool = False,
        is_fault: bool = False,
        is_slow: bool = False,
        is_away: bool = False,
    ) -> None:
        super().__init__(words)
        self.pause = pause
        """The seconds after which the server wants to be asked again."""
        self.is_free = is_free
        """Whether the try cost nothing."""
        self.is_fault = is_fault
        """Whether the failure may concern this request alone."""
        self.is_slow = is_slow
        """Whether the try took too long.

        It then concerns this request alone, if others were answered meanwhile.
        """
        self.is_away = is_away
        """Whether the server could not be reached."""


class _Complaint(NamedTuple):
    words: str
    codes: str
    """The error's code and type, as far as the server gives them."""
    status: int
    """The HTTP status of the error, or the status that the error names if the server sent it with 200."""


def good_answer(status: int, headers: Mapping[str, str], content: bytes, address: str) -> dict[str, Any]:
    """The JSON object of a good response. Raises the error that any other response means."""
    if 300 <= status < 400:
        raise HopelessError(
            f"the server at {address} sends requests on to {headers.get('location', 'nowhere')!r:.200}; if "
            "that is meant, set it as `base_url`"
        )
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        parsed = None
    if (complaint := _read_complaint(parsed, status)) is not None:
        _raise(complaint, address, _pause(headers), f" with status {status}" if status >= 300 else "")
    if isinstance(parsed, dict):
        return parsed
    if "html" in headers.get("content-type", "") or content.lstrip()[:1] == b"<":
        raise HopelessError(
            f"what answers at {address} is no OpenAI-compatible server but a web page: check base_url, which "
            "often ends in /v1"
        )
    raise UnansweredError("broken", f"an answer that is no JSON object: {content[:80]!r}")


def end_of(finish_reason: str | None) -> str:
    """How a text ended: "stop" or "length"; as the server says where that makes it no answer.

    >>> end_of("eos_token"), end_of("max_tokens"), end_of("abort")
    ('stop', 'length', 'abort')
    """
    reason = str(finish_reason).lower()
    return "stop" if reason in COMPLETE_REASONS else "length" if reason in CUT_REASONS else reason


def why_unanswered(finish_reason: str | None) -> MissingAnswer | None:
    """The reason why a text that ended like this is no answer; None if it is one."""
    if (ended := end_of(finish_reason)) in ("stop", "length"):
        return None
    kind = "filtered" if ended in FILTERED_REASONS else "cut off"
    return MissingAnswer(kind, f"the answer ended with finish_reason {finish_reason!r}")


def read(model: type[Model], content: Any) -> Model:
    """A response's content as a `model`. Raises UnansweredError with the first error that it has."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        given = "" if first["type"] == "missing" else f", not {first['input']!r:.60}"
        raise UnansweredError("broken", f"{place}: {first['msg']}{given}") from None


def _raise(complaint: _Complaint, address: str, pause: float | None, how: str) -> None:
    status, text = complaint.status, f"{complaint.codes} {complaint.words}"
    words = f"the server at {address} answered{how}: {complaint.words}"
    passes = pause is not None or PASSING_FAULT.search(complaint.words)
    is_filtered, is_form = CONTENT_FILTER.search(text), status in (400, 422) and REFUSED_FORM.search(text)
    may_be_billed = is_filtered or TIMED_OUT.search(text) or not (status in UNBILLED_STATUSES or is_form)
    is_free = bool(how) and not may_be_billed
    is_about_money = MISSING_MONEY.search(text) and ("insufficient" in complaint.codes or not passes)
    if status in (200, 400, 403, 422, 451) and is_filtered:
        raise UnansweredError("filtered", complaint.words)
    if status in FINAL_STATUSES or is_about_money or (status < 500 and MISSING_MODEL.search(text)):
        raise HopelessError(words + STATUS_ADVICE.get(status, ""), status)
    if status in BUSY_STATUSES:
        raise PassingError(words, pause=pause, is_free=is_free)
    if status >= 500:
        raise PassingError(words, pause=pause, is_fault=True)
    kind = "failed" if status == 200 else "refused"
    raise UnansweredError(kind, f"answered{how}: {complaint.words}", is_free=is_free)


def _read_complaint(content: Any, status: int) -> _Complaint | None:
    """The error in a server's response; None for a good response."""
    if isinstance(content, list) and content and isinstance(content[0], dict):  # Google's
        content = content[0] if "error" in content[0] else content
    error: Any = None
    if isinstance(content, dict):
        error = content.get("error") or (content if content.get("object") == "error" else None)
        error = error or (status >= 300 and (content.get("detail") or content.get("message")))
    if not error:
        return None if status < 300 else _Complaint(str(content or "nothing that can be read"), "", status)
    if not isinstance(error, dict):
        return _Complaint(str(error), "", status)
    words = error.get("message") or error.get("detail") or json.dumps(error)
    codes = " ".join(str(error[name]) for name in ("code", "type", "status") if error.get(name))
    code = error.get("code")
    if status < 300 and isinstance(code, int) and 400 <= code < 600:
        status = code
    return _Complaint(str(words), codes, status)


def _is_cached(headers: Mapping[str, str]) -> bool:
    """Whether a header such as `x-cache: HIT` says that a cache gave the response."""
    caches = (value for name, value in headers.items() if "cache" in name.lower() and "prompt" not in name)
    return any(value.lower().startswith("hit") for value in caches)


def _pause(headers: Mapping[str, str]) -> float | None:
    for name, seconds in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            asked = float(headers[name]) * seconds
        except (KeyError, ValueError):
            continue
        if 0 <= asked < 10**9:
            return asked
    return None
