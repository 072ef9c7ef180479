"""Chat models of Hugging Face on this machine, with their chat template."""

from collections.abc import Callable, Iterable
from typing import Any

from datamodules.batch import groups_by_length, pools
from datamodules.documents import UserError
from precis.baselines.endpoint import Reply
from precis.summarizing.generation import Generator, context_window, load_pretrained, weights_digest
from precis.summarizing.hugging_face import encode_chat

POOL = 64  # prompts that are batched by length together


class LocalChat:
    """A chat model of Hugging Face.

    Args:
        name: name or folder.
        settings: generation settings that replace the model's, `max_new_tokens` among them.
        batch_tokens: tokens of prompts in a batch, with padding.
        dtype: data type of the weights.
        device: cpu, cuda, ... or auto.

    Raises:
        UserError: if there is no such model, or it has no chat template.
    """

    def __init__(self, name: str, settings: dict[str, Any], batch_tokens: int, dtype: str, device: str) -> None:
        model, tokenizer = load_pretrained(name, dtype, device)
        if not tokenizer.chat_template:
            raise UserError(f"{name}: its tokenizer has no chat template; give a model that is trained to chat")
        self.generator, self.batch_tokens = Generator(model, tokenizer, settings, "--request"), batch_tokens
        self.window = context_window(model, tokenizer)
        self.weights = weights_digest(name, model)

    def answer_all(self, prompts: Iterable[tuple[str, str]], done: Callable[[str, Reply], None]) -> dict[str, str]:
        """Generate answers, in batches of similar length; see `Endpoint.answer_all`.

        Raises:
            UserError: if a prompt and its answer exceed the model's window.
        """
        for pool in pools(prompts, POOL):
            rows = [self._encode(name, prompt) for name, prompt in pool]
            for group in groups_by_length([len(row) for row in rows], self.batch_tokens):
                outputs = self.generator.generate([rows[index] for index in group])
                for index, output in zip(group, outputs):
                    reason = "length" if output.stopped else "stop"
                    done(pool[index][0], Reply(output.text, reason, None, len(rows[index]), output.tokens, 1))
        return {}

    def _encode(self, name: str, prompt: str) -> list[int]:
        """Return the ids of a prompt in the chat template."""
        row, room = encode_chat(self.generator.tokenizer, prompt), self.generator.max_new_tokens
        if self.window is not None and len(row) + room > self.window:
            size = f"{len(row)} tokens of the prompt and {room} of the answer exceed the {self.window} of the model"
            raise UserError(f"document {name}: {size}; shorten documents with --max_words")
        return row
