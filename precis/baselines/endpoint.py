"""Chat models at an endpoint that speaks OpenAI's protocol: vLLM, `transformers serve`, llama.cpp, hosted services."""

import asyncio
import os
import random
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from jsonargparse import ArgumentParser, Namespace

from datamodules.documents import UserError
from datamodules.text.lines import counted, load_json

KEY_VARIABLE = "OPENAI_API_KEY"
SHORTEST_KEY = 16  # characters
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0  # seconds before an attempt is repeated
LONGEST_BODY = 16 << 20  # bytes of a response


class Reply(NamedTuple):
    """An answer of a chat model.

    Attributes:
        text: what the model wrote; possibly empty.
        finish_reason: why it ended: `stop`, `length`, `content_filter`, ...
        refusal: refusal that the server states, or None.
        prompt_tokens: number of tokens of the prompt; None if the server does not count.
        answer_tokens: number of tokens of the answer.
        attempts: number of requests.
    """

    text: str
    finish_reason: str | None
    refusal: str | None
    prompt_tokens: int | None
    answer_tokens: int | None
    attempts: int


class RequestFailed(Exception):
    """One request has no answer after all attempts; others may have."""


def add_endpoint_arguments(parser: ArgumentParser) -> None:
    """Add the options of an endpoint to a command: its address, and how it is asked."""
    parser.add_argument(
        "--base_url", type=str | None, default=None, help="address of the endpoint, such as http://localhost:8000/v1"
    )
    parser.add_argument("--max_tokens", type=int, default=512, help="maximal number of tokens of an answer")
    parser.add_argument(
        "--request", type=dict[str, Any], default={},
        help="fields of each request, such as --request.seed 1; null leaves one out",
    )  # fmt: skip
    parser.add_argument("--timeout", type=float, default=120.0, help="time limit of each request in seconds")
    parser.add_argument("--retries", type=int, default=5, help="number of retries after transient errors")
    parser.add_argument("--concurrency", type=int, default=4, help="number of concurrent requests")
    parser.add_argument("--key_variable", type=str, default=KEY_VARIABLE, help="environment variable with the API key")
    parser.add_argument(
        "--max_failures", type=int, default=10, help="number of failed requests after which the command stops"
    )


@dataclass
class Endpoint:
    """A chat model at an endpoint.

    Attributes:
        base_url: address, which mostly ends in `/v1`.
        model: name of the model there.
        request: further fields of each request, such as `temperature`; None leaves one out.
        timeout: seconds for each request.
        retries: number of repeated attempts after errors that may pass.
        concurrency: number of requests at a time.
        key_variable: environment variable with the key.
        max_failures: number of requests without an answer after which everything stops.
    """

    base_url: str
    model: str
    request: dict[str, Any] = field(default_factory=dict)
    timeout: float = 120.0
    retries: int = 5
    concurrency: int = 4
    key_variable: str = KEY_VARIABLE
    max_failures: int = 10

    def __post_init__(self) -> None:
        check_endpoint(self)

    @classmethod
    def of(cls, options: Namespace) -> Self:
        """Return the endpoint for `model` and the options of `add_endpoint_arguments`; temperature 0 by default."""
        names = ("base_url", "model", "timeout", "retries", "concurrency", "key_variable", "max_failures")
        request = {"temperature": 0, "max_tokens": options.max_tokens} | options.request
        return cls(**{name: options[name] for name in names}, request=request)

    def answer_all(self, prompts: Iterable[tuple[str, str]], done: Callable[[str, Reply], None]) -> dict[str, str]:
        """Ask for answers, several at a time.

        Args:
            prompts: (id, prompt).
            done: called with id and answer as soon as an answer is there.

        Returns:
            Reasons of the requests without an answer, by id.

        Raises:
            UserError: if there is no server, it refuses the key or the model, or too many requests fail.
        """
        try:
            with _restore_sigterm():
                return asyncio.run(self._answer_all(prompts, done))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        except asyncio.CancelledError:
            raise SystemExit(128 + signal.SIGTERM) from None

    async def _answer_all(
        self, prompts: Iterable[tuple[str, str]], done: Callable[[str, Reply], None]
    ) -> dict[str, str]:
        remaining, failures = iter(prompts), {}
        with suppress(ValueError, RuntimeError):  # in another thread than the main one
            # an exception of the usual handler would leave the requests under way with a traceback each
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)

        async def work() -> None:
            for name, prompt in remaining:  # shared by all workers
                try:
                    done(name, await self._ask(client, prompt))
                except RequestFailed as error:
                    failures[name] = str(error)
                    if len(failures) >= self.max_failures:
                        remedy = "answers so far are kept; run the command again"
                        failed = counted(len(failures), "request")
                        raise UserError(f"{failed} failed, the last: {error}; {remedy}") from None

        async with self._client() as client, asyncio.TaskGroup() as group:
            for _ in range(self.concurrency):
                group.create_task(work())
        return failures

    def _key(self) -> str:
        """Return the key, possibly empty; a line end after it, as from a file, does not belong to it."""
        return os.environ.get(self.key_variable, "").strip()

    def _client(self) -> Any:
        import openai  # an extra, and slow to import

        key = self._key() or "none"  # local servers need none
        return openai.AsyncOpenAI(
            api_key=key, base_url=self.base_url, max_retries=0, timeout=self.timeout,
            default_headers={"Accept-Encoding": "identity"},  # what is compressed has no limit
            http_client=openai.DefaultAsyncHttpxClient(event_hooks={"response": [_read_body]}),
        )  # fmt: skip

    async def _ask(self, client: Any, prompt: str) -> Reply:
        """Return the answer to a prompt; errors that may pass are followed by another attempt, after a wait."""
        for attempt in range(self.retries + 1):
            try:
                async with asyncio.timeout(self.timeout):
                    return await self._attempt(client, prompt, attempt + 1)
            except (_TransientError, TimeoutError) as error:
                in_time = isinstance(error, _TransientError)
                last = error if in_time else _TransientError(f"no answer in {self.timeout:g} seconds")
            if attempt < self.retries:
                await asyncio.sleep(last.wait or backoff(attempt))
        message = f"{last} ({self.retries + 1} attempts)"
        if last.no_server:
            raise UserError(f"{self.base_url}: {message}; start the server, or correct --base_url")
        raise RequestFailed(message)

    async def _attempt(self, client: Any, prompt: str, number: int) -> Reply:
        import openai

        messages = [{"role": "user", "content": prompt}]
        request = {name: value for name, value in self.request.items() if value is not None}
        create = client.chat.completions.with_raw_response.create
        try:
            response = await create(model=self.model, messages=messages, extra_body=request)
        except openai.APITimeoutError:
            raise TimeoutError from None
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, RequestFailed):
                raise error.__cause__ from None
            reason = self._redact(str(error.__cause__ or error))
            raise _TransientError(f"no connection ({reason})", no_server=True) from None
        except openai.APIStatusError as error:
            return self._refused(error, number)
        return read_reply(self._redact(response.http_response.text), number)

    def _refused(self, error: Any, number: int) -> Reply:
        """Return the refusal of a content filter; raise an error for any other status."""
        reason = f"status {error.status_code}: {self._redact(error.message)[:300]}"
        if error.code == "content_filter":
            return Reply("", "content_filter", reason, None, None, number)
        if error.status_code in (401, 403):
            raise UserError(f"{self.base_url}: {reason}; set the key of this server in {self.key_variable}")
        if error.status_code == 404:
            raise UserError(f"{self.base_url}, model {self.model}: {reason}; check --model and --base_url (.../v1)")
        if error.status_code in (408, 409, 429) or error.status_code >= 500:
            raise _TransientError(reason, wait=retry_after(error.response.headers.get("retry-after")))
        raise RequestFailed(reason)

    def _redact(self, text: str) -> str:
        """Return a text of the server without the key; placeholders such as EMPTY, which are words, stay."""
        key = self._key()
        return text.replace(key, "***") if len(key) >= SHORTEST_KEY else text


async def _read_body(response: Any) -> None:
    """Read the body of a response of `httpx`.

    Raises:
        RequestFailed: if it is compressed, or has more than `LONGEST_BODY` bytes.
    """
    if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
        raise RequestFailed(f"the response is compressed ({encoding}), which was not asked for")
    parts, size = [], 0
    async for part in response.aiter_bytes():
        parts.append(part)
        if (size := size + len(part)) > LONGEST_BODY:
            raise RequestFailed(f"the response has more than {LONGEST_BODY >> 20} MiB")
    response._content = b"".join(parts)  # as `aread` stores it


class _TransientError(Exception):
    """An error after which another attempt makes sense."""

    def __init__(self, message: str, wait: float | None = None, no_server: bool = False) -> None:
        super().__init__(" ".join(message.split()))
        self.wait, self.no_server = wait, no_server


@contextmanager
def _restore_sigterm() -> Iterator[None]:
    """Restore the handler of SIGTERM, which an event loop sets to the default when it closes."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def check_endpoint(endpoint: Endpoint) -> None:
    """Check the address and the limits of an endpoint.

    Raises:
        UserError: if the address or a limit is invalid, or the client is not installed.
    """
    address = urlsplit(endpoint.base_url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise UserError(f"--base_url {endpoint.base_url}: not an address; give one such as http://localhost:8000/v1")
    if address.username or address.password or address.query:
        raise UserError(f"--base_url: an address must not contain keys; set {endpoint.key_variable} instead")
    for name, minimum in {"timeout": 0.01, "retries": 0, "concurrency": 1, "max_failures": 1}.items():
        if getattr(endpoint, name) < minimum:
            raise UserError(f"--{name} {getattr(endpoint, name)}: must be at least {minimum}")
    try:
        import openai  # noqa: F401
    except ImportError:
        raise UserError("openai is not installed: pip install 'precis-suite[chat]'") from None


def read_reply(content: str, attempts: int) -> Reply:
    """Return the answer in the body of a response.

    Raises:
        _TransientError: if there is none.
    """
    try:
        body = load_json(content)
        choice = body["choices"][0]
        message = choice["message"]
        texts = message.get("content") or "", choice.get("finish_reason"), message.get("refusal")
        if not all(text is None or isinstance(text, str) for text in texts):
            raise TypeError("the content is not text")
        # half of a surrogate pair cannot be written to a file
        text, reason, refusal = (text and text.encode("utf-8", "replace").decode() for text in texts)
        usage = body["usage"] if isinstance(body.get("usage"), dict) else {}
        counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
        tokens = (count if type(count) is int and 0 <= count < 1 << 53 else None for count in counts)
        return Reply(text, reason, refusal, *tokens, attempts)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise _TransientError(f"the body of the response is not a chat completion: {content[:80]!r}") from None


def backoff(attempt: int) -> float:
    """Return the seconds before the next attempt, doubled each time, with jitter."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * random.uniform(0.75, 1.25)


def retry_after(header: str | None) -> float | None:
    """Return the seconds that a server asks to wait, at most `LONGEST_WAIT`; None if it does not say."""
    if header is None or not re.fullmatch(r"\d+(\.\d+)?", header):
        return None
    return min(LONGEST_WAIT, float(header))
