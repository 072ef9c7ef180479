"""Generation settings of Hugging Face's models as decoding options."""

from transformers import GenerationConfig

from lightning_modules.decoding.options import DecodingOptions


def length_limits(config: GenerationConfig, first_symbols: int = 1) -> tuple[int, int | None]:
    """Return the minimum and maximum number of generated tokens, the maximum None if the config has no limit.

    `min_length` and `max_length` of the config count the `first_symbols`, which the decoder reads before it generates;
    `min_new_tokens` and `max_new_tokens`, which have precedence, do not.
    """
    minimum = config.min_new_tokens or max(0, (config.min_length or 0) - first_symbols)
    maximum = config.max_length - first_symbols if config.max_length else None
    return minimum, config.max_new_tokens or maximum


def decoding_options(config: GenerationConfig, first_symbols: int = 1) -> DecodingOptions:
    """Return as `DecodingOptions` those settings of the config that they cover; arguments as of `length_limits`."""
    minimum, maximum = length_limits(config, first_symbols)
    maximum = max(2, 129 - first_symbols if maximum is None else maximum)  # no limit: 129 with first symbols
    return DecodingOptions(
        beam_size=config.num_beams or 1, min_length=min(minimum, maximum - 1), max_length=maximum,
        alpha=1.0 if config.length_penalty is None else config.length_penalty,
        no_repeat_ngram=config.no_repeat_ngram_size or 0, early_stopping=config.early_stopping is True,  # not "never"
    )  # fmt: skip
