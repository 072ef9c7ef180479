"""Decoding options in the terms of Hugging Face's `generate`, and back."""

from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor

from lightning_modules.decoding.options import DecodingOptions


class ForbidTokens(LogitsProcessor):
    """Logits processor that forbids tokens [V] in any precision (Hugging Face's `bad_words_ids` needs float32)."""

    def __init__(self, forbidden: Tensor) -> None:
        self.forbidden = forbidden

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.masked_fill(self.forbidden, float("-inf"))


def generation_options(options: DecodingOptions) -> dict[str, object]:
    """Return decoding options as keyword arguments of `generate`.

    Raises:
        ValueError: if the length penalty is `gnmt`, or `prefer_finished` is set for a beam search, which Hugging Face
            does not support.
    """
    if options.length_penalty == "gnmt":
        raise ValueError("decoding.length_penalty gnmt is not available for pretrained decoders; set it to mean")
    if options.prefer_finished and options.beam_size > 1 and not options.sample:
        raise ValueError(
            "decoding.prefer_finished is not available for pretrained decoders: Hugging Face's beam search lets "
            "truncated hypotheses compete with finished ones; set it to false"
        )
    common = {"max_new_tokens": options.max_length, "min_new_tokens": options.min_length, "use_cache": True}
    common["no_repeat_ngram_size"] = options.no_repeat_ngram
    if options.sample:
        sampling = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
        return common | sampling | {"do_sample": True, "num_beams": 1}
    common |= {"num_beams": options.beam_size, "do_sample": False}
    if options.beam_size > 1:  # `generate` warns about these options in greedy search
        common["length_penalty"] = options.alpha if options.length_penalty == "mean" else 0.0
        common["early_stopping"] = options.early_stopping
    return common


def length_limits(config: GenerationConfig, first_symbols: int = 1) -> tuple[int, int | None]:
    """Return the smallest and the largest number of generated tokens; None without a maximum.

    `first_symbols` is the number of symbols before the first word, which `min_length` and `max_length` count.
    """
    minimum = config.min_new_tokens or max(0, (config.min_length or 0) - first_symbols)
    return minimum, config.max_new_tokens or (config.max_length and config.max_length - first_symbols)


def decoding_options(config: GenerationConfig, first_symbols: int = 1) -> DecodingOptions:
    """Return generation settings as decoding options, as far as these know them, for beam search.

    Arguments are those of `length_limits`.
    """
    minimum, maximum = length_limits(config, first_symbols)
    maximum = max(2, 129 - first_symbols if maximum is None else maximum)
    return DecodingOptions(
        beam_size=config.num_beams or 1,
        min_length=min(minimum, maximum - 1),
        max_length=maximum,
        alpha=1.0 if config.length_penalty is None else config.length_penalty,
        no_repeat_ngram=config.no_repeat_ngram_size or 0,
        early_stopping=config.early_stopping is True,
    )
