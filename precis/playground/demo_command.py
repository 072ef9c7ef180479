"""`precis demo`: trained models side by side in a browser, with Gradio."""

import os
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser
from jsonargparse.typing import PositiveInt

from datamodules.documents import UserError
from precis.config.shipped import default_model

if TYPE_CHECKING:
    from precis.playground.playground import Playground  # imports torch

_CSS = "textarea { unicode-bidi: plaintext; text-align: start }"  # paragraphs have the direction of their language
_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-src 'self' data:"


def demo(arguments: list[str]) -> None:
    """`precis demo [RUN ...]`: a page in which models summarize a text side by side.

    Without a RUN it shows models that come with the suite. A RUN is a run folder, a folder of `precis export`, or a
    summarizer or chat model of Hugging Face. The page is served on this machine alone, sends nothing anywhere, and
    works without a network. Ctrl-C ends it.
    """
    parser = ArgumentParser(prog="precis demo", description=demo.__doc__, exit_on_error=False)
    add = parser.add_argument
    add("runs", nargs="*", type=str, help="run folders, exported models, names of models of the suite or Hugging Face")
    add("--split", type=str | None, default=None, help="split of the first run's corpus to pick from; test, else val")
    add("--host", type=str, default="127.0.0.1", help="address to listen on; 0.0.0.0 for access from other machines")
    add("--port", type=int, default=7860, help="port of the page; 0 for any free one")
    add("--max_characters", type=PositiveInt, default=20_000, help="maximum length of a text")
    options = parser.parse_args(arguments)
    check_installed()
    from precis.playground.playground import Playground  # here, because it imports torch

    runs = options.runs or [default_model(), "docstring"]  # names of two shipped models
    serve(build(Playground(runs, options.split, options.max_characters)), options.host, options.port)


def check_installed() -> None:
    """Import Gradio with its telemetry off; a `UserError` if it is not installed."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # of huggingface_hub, which Gradio imports
    try:
        import gradio  # noqa: F401
    except ImportError as error:
        raise UserError(f"the playground needs Gradio ({error}); pip install 'precis-suite[demo]'") from None


def build(playground: "Playground"):
    """Return the page as Gradio's Blocks: on the left texts and options, on the right the summaries."""
    import gradio as gr

    names = list(playground.runs)
    limit = playground.max_characters
    first = next(iter(playground.documents), None)  # document with which the page opens
    first_text, first_reference = playground.pick(first)  # an example if there are no documents
    with gr.Blocks(title="Précis", analytics_enabled=False) as page:
        explanations = "copied words, selected sentences, paragraph graphs and RST trees"
        gr.Markdown(f"# Précis\nSummaries of one text by several models, with {explanations}.")
        with gr.Row():
            with gr.Column(scale=1, min_width=320):  # pixels: a narrow window has one column below the other
                document = gr.Dropdown(
                    list(playground.documents), value=first, label="Document of the corpus", elem_id="document",
                    visible=bool(playground.documents),
                )  # fmt: skip
                text = gr.Textbox(first_text, label="Text", elem_id="text", lines=10, max_lines=24, max_length=limit)
                label = "Reference (for scores; may be empty)"
                reference = gr.Textbox(first_reference, label=label, elem_id="reference", lines=2, max_length=limit)
                chosen = gr.CheckboxGroup(names, value=names, label="Runs", elem_id="runs")
                beam = gr.Slider(1, 10, value=4, step=1, label="Beam size")
                button = gr.Button("Summarize", variant="primary", elem_id="summarize")
            with gr.Column(scale=2, min_width=320):
                output = gr.HTML(elem_id="summaries", min_height=200, apply_default_css=False)
        hidden = {"api_visibility": "private"}  # not offered to programs as an API
        document.change(playground.pick, document, [text, reference], **hidden)
        inputs = [text, reference, chosen, beam]
        button.click(playground.summarize, inputs, output, concurrency_limit=1, **hidden)
        page.load(playground.summarize, inputs, output, concurrency_limit=1, **hidden)  # opens with a result
    return page


def serve(page, host: str, port: int, block: bool = True) -> str:
    """Serve Gradio's Blocks until Ctrl-C, or in the background (`block=False`); return the address. Port 0: any."""
    import gradio as gr
    from starlette.middleware import Middleware

    fonts = ["system-ui", "sans-serif"]  # of the browser: Gradio's defaults are downloaded
    theme = gr.themes.Default(font=fonts, font_mono=["ui-monospace", "monospace"])
    try:
        _, address, _ = page.launch(
            server_name=host, server_port=port or None, share=False, quiet=True, theme=theme, css=_CSS,
            prevent_thread_lock=True, footer_links=[], enable_monitoring=False, ssr_mode=False, mcp_server=False,
            app_kwargs={"middleware": [Middleware(ContentPolicy)]},  # browsers load nothing from other servers
        )  # fmt: skip
    except (OSError, OverflowError):  # OverflowError: a port above 65535; Gradio's error does not tell the cause
        raise UserError(f"port {port} on {host} cannot be used; give another --port, or 0 for a free one") from None
    if block:
        print(f"{address} (Ctrl-C ends it)", flush=True)
        page.block_thread()  # `launch` has returned, because of `prevent_thread_lock`
    return address


class ContentPolicy:
    """ASGI middleware that adds a header to responses, which tells browsers to load nothing from other servers."""

    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        async def with_policy(message) -> None:  # `send`, with the header Content-Security-Policy
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"content-security-policy", _POLICY.encode())]
            await send(message)

        await self.app(scope, receive, with_policy if scope["type"] == "http" else send)
