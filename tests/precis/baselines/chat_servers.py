"""Chat endpoints on the loopback address: `transformers serve`, and a small one whose faults are chosen by a test."""

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import patch

from conftest import free_port, wait_until


@contextmanager
def transformers_serve(model: Path, log: Path) -> Iterator[str]:
    """Serve a model by `transformers serve`; yield the address of its endpoint."""
    port = free_port()
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)

    def is_ready() -> bool:
        with suppress(urllib.error.URLError, ConnectionError):
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5))
        return False

    try:
        wait_until(is_ready, process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(60)


class ChatServer(ThreadingHTTPServer):
    """An endpoint that answers each prompt by a function, with a text or a choice; first with `faults` (`fail`)."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], str | dict]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.faults = answer, []
        self.requests, self.keys = [], []  # bodies, and headers `Authorization`
        self.released = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: object, client_address: object) -> None:
        """Report an error of a handler, but not a client that closed its connection, as cancelled requests do."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of a `ChatServer`."""

    def log_message(self, *_) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self.server.keys.append(self.headers.get("Authorization"))
        if self.server.faults and (fault := self.server.faults.pop(0)):
            self.fail(fault)
            return
        choice = self.server.answer(body["messages"][0]["content"])
        if isinstance(choice, str):
            choice = {"message": {"role": "assistant", "content": choice}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        self.send(200, {"object": "chat.completion", "choices": [choice], "usage": usage})

    def fail(self, fault: str | int | bytes | dict) -> None:
        """Send what is no answer: a status, a body that is cut or slow, or one that a test wrote."""
        if isinstance(fault, int):
            self.send(fault, {"error": {"message": f"fault {fault} for {self.headers.get('Authorization')}"}})
        elif isinstance(fault, bytes):
            self.send(200, fault)
        elif isinstance(fault, dict):
            self.send(fault.pop("status"), {"error": fault})
        elif fault == "trickle":
            self.head(200, 100_000)
            while not self.server.released.wait(0.05):
                self.wfile.write(b" ")
        else:  # cut
            self.head(200, 1000)
            self.wfile.write(b'{"choices": [')

    def send(self, status: int, body: bytes | dict) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.head(status, len(content), "gzip" if content.startswith(b"\x1f\x8b") else "identity")
        self.wfile.write(content)

    def head(self, status: int, length: int, encoding: str = "identity") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Encoding", encoding)
        self.end_headers()


@contextmanager
def chat_server(answer: Callable[[str], str | dict]) -> Iterator[ChatServer]:
    """Run a `ChatServer`; clients repeat a request that fails at once."""
    server = ChatServer(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        with patch("openai._base_client.INITIAL_RETRY_DELAY", 0.01):
            yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
