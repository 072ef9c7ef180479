"""Our decoding options for Hugging Face's `generate`."""

from torch import Tensor
from transformers import LogitsProcessor

from lightning_modules.decoding.options import DecodingOptions


class Without(LogitsProcessor):
    """Forbids tokens, in any precision (Hugging Face's own list of bad words wants 32 bits).

    Args:
        never: True at those, [V].
    """

    def __init__(self, never: Tensor) -> None:
        self.never = never

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.masked_fill(self.never, float("-inf"))


def generation_options(options: DecodingOptions) -> dict[str, object]:
    """Hugging Face's names of decoding options.

    Raises:
        ValueError: if the length penalty is `gnmt`, or `prefer_finished` is set for a beam search: it has neither.
    """
    if options.length_penalty == "gnmt":
        raise ValueError("decoding.length_penalty gnmt is not there for pretrained decoders: take mean, with alpha")
    if options.prefer_finished and options.beam_size > 1 and not options.sample:
        raise ValueError(
            "decoding.prefer_finished is not available for pretrained decoders: Hugging Face's beam search lets "
            "hypotheses that were cut off compete; set it to false"
        )
    common = {"max_new_tokens": options.max_length, "min_new_tokens": options.min_length, "use_cache": True}
    common["no_repeat_ngram_size"] = options.no_repeat_ngram
    if options.sample:
        chosen = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
        return common | chosen | {"do_sample": True, "num_beams": 1}
    common |= {"num_beams": options.beam_size, "do_sample": False}
    if options.beam_size > 1:  # these are about beams
        common["length_penalty"] = options.alpha if options.length_penalty == "mean" else 0.0
        common["early_stopping"] = options.early_stopping
    return common
