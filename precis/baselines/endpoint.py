"""Chat models at an endpoint that speaks OpenAI's protocol: vLLM, `transformers serve`, llama.cpp, hosted services."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt, PositiveFloat, PositiveInt

from datamodules.corpora.parallel import progress_bar
from datamodules.documents import UserError
from datamodules.text.lines import counted, load_json
from precis.baselines.answers_file import Answers

SHORTEST_KEY = 16  # characters of a real API key, at least
LONGEST_BODY = 16 << 20  # maximum bytes of a response: 16 MiB
LARGEST_COUNT = 1 << 53  # of tokens: up to here, JSON readers that use doubles represent each integer exactly
SLOW_REMEDY = "a slow server needs a longer timeout or a lower concurrency"


class Reply(NamedTuple):
    """An answer of a chat model."""

    text: str  # what the model wrote; possibly empty
    finish_reason: str | None  # why it ended: `stop`, `length`, `content_filter` or another
    refusal: str | None  # refusal that the server states, or None
    prompt_tokens: int | None  # number of tokens of the prompt; None if the server does not count
    answer_tokens: int | None  # number of tokens of the answer
    attempts: int  # number of requests


class RequestFailed(Exception):
    """One request has no answer after all attempts; others may have."""


class BadReply(Exception):
    """The body of a response is not an answer."""


def add_endpoint_arguments(parser: ArgumentParser) -> None:
    """Add the options of an endpoint to a command: its address, and how it is asked."""
    add = parser.add_argument
    add("--base_url", type=str | None, default=None, help="address of the endpoint, such as http://localhost:8000/v1")
    add("--max_tokens", type=PositiveInt, default=512, help="maximum number of tokens of an answer")
    add("--request", type=dict[str, Any], default={}, help="more request fields, as --request.seed 1; null omits one")
    add("--timeout", type=PositiveFloat, default=120.0, help="time limit of each request in seconds")
    add("--retries", type=NonNegativeInt, default=5, help="number of retries after transient errors")
    add("--concurrency", type=PositiveInt, default=4, help="number of concurrent requests")
    add("--key_variable", type=str, default="OPENAI_API_KEY", help="environment variable with the API key")
    add("--max_failures", type=PositiveInt, default=10, help="number of failed requests after which the command stops")


class Endpoint:
    """A chat model by options of `add_endpoint_arguments`; a `UserError` for an invalid address, or without openai."""

    def __init__(self, options: Namespace) -> None:
        self.options = options
        self.base_url = options.base_url
        self.request = {"temperature": 0, "max_tokens": options.max_tokens} | options.request  # 0: no random sampling
        self.has_warned = False  # whether `_warn_slow` has told the user that requests are repeated
        self.key = os.environ.get(self.options.key_variable, "").strip()  # a key from a file may end in a line break
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise UserError(f"--base_url {self.base_url}: not an address; give one such as http://localhost:8000/v1")
        if address.username or address.password or address.query:
            raise UserError(f"--base_url: an address must not contain keys; set {self.options.key_variable} instead")
        try:
            import openai  # noqa: F401  # an extra, and slow to import
        except ImportError:
            raise UserError("openai is not installed: pip install 'precis-suite[chat]'") from None

    def request_missing(self, prompts: Iterable[tuple[str, str]], answers: Answers, total: int) -> dict[str, str]:
        """Request the answers to prompts (id, text) that `answers` lacks, and add them; return failures by id."""
        with progress_bar() as progress:  # total: number of prompts
            task = progress.add_task("answers", total=total, completed=len(answers.by_id))

            def done(prompt_id: str, reply: Reply) -> None:
                answers.add([{"id": prompt_id, **reply._asdict(), "server": self.base_url}])
                progress.advance(task)

            return self.answer_all((prompt for prompt in prompts if prompt[0] not in answers.by_id), done)

    def answer_all(self, prompts: Iterable[tuple[str, str]], done: Callable[[str, Reply], None]) -> dict[str, str]:
        """Ask for answers to prompts (id, text), several at a time, and call `done(id, reply)` as each reply arrives.

        Returns reasons of failed requests by id. A `UserError` if there is no server, it refuses all, or too many fail.
        """
        handler = signal.getsignal(signal.SIGTERM)  # restored below, as the event loop leaves the default one behind
        try:
            return asyncio.run(self._answer_all(prompts, done))
        except ExceptionGroup as group:  # from the workers: the first error cancels the other workers
            raise group.exceptions[0] from None
        except asyncio.CancelledError:  # by the handler of SIGTERM that `_answer_all` sets
            raise SystemExit(128 + signal.SIGTERM) from None
        finally:  # the handler is None if it was not set from Python
            if handler is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)

    async def _answer_all(
        self, prompts: Iterable[tuple[str, str]], done: Callable[[str, Reply], None]
    ) -> dict[str, str]:
        """Run `answer_all` in an event loop, with `concurrency` workers that share the prompts; SIGTERM cancels it."""
        remaining, failures = iter(prompts), {}  # prompts that no worker has taken; reasons by id
        with suppress(ValueError, RuntimeError):  # raised outside of the main thread, which alone handles signals
            # replaces the handler of `run_command`, whose exit would make each open request print a traceback
            if task := asyncio.current_task():
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

        async def work() -> None:  # one of the workers
            for prompt_id, prompt in remaining:
                try:
                    done(prompt_id, await self._ask(client, prompt))
                except RequestFailed as error:
                    failures[prompt_id] = str(error)
                    if len(failures) >= self.options.max_failures:
                        remedy = "answers so far are kept: correct this, and run the command again"
                        failed = counted(len(failures), "request")
                        raise UserError(f"{failed} failed, the last: {error}; {remedy}") from None

        async with self._client() as client, asyncio.TaskGroup() as group:
            for _ in range(self.options.concurrency):
                group.create_task(work())
        return failures

    def _client(self) -> Any:
        """Return a client that repeats failed requests after a wait, which grows or is set by the server."""
        import openai

        return openai.AsyncOpenAI(
            api_key=self.key or "none",  # local servers need none
            base_url=self.base_url,
            max_retries=self.options.retries,
            timeout=self.options.timeout,
            default_headers={"Accept-Encoding": "identity"},  # a compressed body may unpack to any size
            http_client=openai.DefaultAsyncHttpxClient(event_hooks={"response": [self._read_body]}),  # limits the size
        )

    async def _read_body(self, response: Any) -> None:
        """Read a response (a hook of httpx) with limits on size and time; the client retries after a `ReadError`."""
        import httpx

        if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
            raise RequestFailed(f"the response is compressed ({encoding}), which was not asked for")
        body = bytearray()
        try:
            async with asyncio.timeout(self.options.timeout):
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > LONGEST_BODY:
                        raise RequestFailed(f"the response has more than {LONGEST_BODY >> 20} MiB")
            response._content = bytes(body)  # where `response.aread`, which has no limit, stores it
            if response.is_success:
                _read_reply(response.text, attempts=1)  # raises `BadReply` where the client can repeat the request
        except TimeoutError:
            raise httpx.ReadError(f"no answer in {self.options.timeout:g} seconds") from None
        except BadReply as error:
            raise httpx.ReadError(str(error)) from None

    async def _ask(self, client: Any, prompt: str) -> Reply:
        """Return the reply, also a content filter's refusal; else `RequestFailed`, or `UserError` if all would fail."""
        import openai

        messages = [{"role": "user", "content": prompt}]
        request = {name: value for name, value in self.request.items() if value is not None}  # null leaves a field out
        attempts = f"({counted(self.options.retries + 1, 'attempt')})"  # for messages
        slow_warning = asyncio.get_running_loop().call_later(self.options.timeout, self._warn_slow)  # canceled below
        try:
            create = client.chat.completions.with_raw_response.create  # the raw response counts retries
            response = await create(model=self.options.model, messages=messages, extra_body=request)
            return _read_reply(self._redact(response.http_response.text), response.retries_taken + 1)
        except openai.APITimeoutError:
            raise RequestFailed(f"no answer in {self.options.timeout:g} seconds {attempts}; {SLOW_REMEDY}") from None
        except openai.APIConnectionError as error:
            reason = self._redact(" ".join(str(error.__cause__ or error).split()))
            if type(error.__cause__).__name__ != "ConnectError":  # by name: of httpx or httpx2
                raise RequestFailed(f"{reason} {attempts}") from None
            remedy = "start the server, or correct --base_url"
            raise UserError(f"{self.base_url}: no connection ({reason}) {attempts}; {remedy}") from None
        except openai.APIStatusError as error:
            message = error.message.removeprefix(f"Error code: {error.status_code} - ")
            reason = f"status {error.status_code}: {self._redact(message)[:300]}"  # some servers return a whole page
            if error.code == "content_filter":
                return Reply("", "content_filter", refusal=reason, prompt_tokens=None, answer_tokens=None, attempts=1)
            if error.status_code in (401, 403):
                remedy = f"set the key of this server in {self.options.key_variable}"
                raise UserError(f"{self.base_url}: {reason}; {remedy}") from None
            if error.status_code == 404:
                remedy = "check --model and --base_url (.../v1)"
                raise UserError(f"{self.base_url}, model {self.options.model}: {reason}; {remedy}") from None
            if "context" in message.lower():  # as llama.cpp, vLLM and OpenAI call it
                reason += "; give the server a longer context, or shorter documents (--max_words of a chat baseline)"
            raise RequestFailed(reason) from None
        finally:
            slow_warning.cancel()

    def _warn_slow(self) -> None:
        """Warn once that requests are repeated, which takes long if a server also finishes those that were given up."""
        if self.options.retries and not self.has_warned:
            self.has_warned = True
            problem = f"no answer in {self.options.timeout:g} seconds, retrying"
            print(f"{self.base_url}: {problem}; {SLOW_REMEDY}", file=sys.stderr)

    def _redact(self, text: str) -> str:
        """Replace the API key, which servers repeat in errors, in a text; short placeholders such as EMPTY stay."""
        return text.replace(self.key, "***") if len(self.key) >= SHORTEST_KEY else text


def _read_reply(text: str, attempts: int) -> Reply:
    """Parse the body of a response that came after `attempts` requests; `BadReply` if it is not a chat completion."""
    try:
        body = load_json(text)
        choice = body["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""  # null if the model refuses, for example
        fields = (content, choice.get("finish_reason"), message.get("refusal"))
        if not all(field is None or isinstance(field, str) for field in fields):
            raise TypeError("the content is not text")
        # half of a surrogate pair, which UTF-8 cannot encode, becomes "?"; None stays None
        content, reason, refusal = (field and field.encode("utf-8", "replace").decode() for field in fields)
        usage = body["usage"] if isinstance(body.get("usage"), dict) else {}  # some servers do not count
        counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
        tokens = (count if type(count) is int and 0 <= count < LARGEST_COUNT else None for count in counts)  # no bool
        return Reply(content, reason, refusal, *tokens, attempts)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise BadReply(f"the body of the response is not a chat completion: {text[:80]!r}") from None
