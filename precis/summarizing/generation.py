"""Generation in batches by a pretrained model of Hugging Face, an encoder-decoder or a decoder."""

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from datamodules.batch import pad
from datamodules.documents import UserError
from datamodules.text.hashing import file_digest
from datamodules.text.language import close_up
from lightning_modules.decoding.hugging_face import length_limits

# Parts of the names of classes that generate; an encoder would generate nonsense.
GENERATES = ("ConditionalGeneration", "CausalLM", "LMHead")
UNLIMITED = 10**9  # tokenizers without a limit have a larger `model_max_length`
DEFAULT_LENGTH = 128  # tokens of a summary, where neither the model nor the user says anything
SEPARATOR = "<doc-sep>"  # of the source documents of PRIMERA
# One output for each input, and the same one each time.
FIXED = {"do_sample": False, "num_return_sequences": 1, "return_dict_in_generate": False}
UNUSED = dict.fromkeys(("temperature", "top_p", "top_k"))  # settings of sampling
MINIMA = {"num_beams": 1, "max_length": 2, "max_new_tokens": 1, "min_length": 0, "no_repeat_ngram_size": 0}
# Two settings for one limit, of which `generate` prefers the second, whoever set it.
SAME_LIMIT = {"max_length": "max_new_tokens", "min_length": "min_new_tokens"}
OTHER_NAME = SAME_LIMIT | {second: first for first, second in SAME_LIMIT.items()}
OPTION = "--generation"  # in messages
OF_BEAMS = ("length_penalty", "early_stopping")
# The suite's names of settings (`DecodingOptions`).
ALIASES = {"beam_size": "num_beams", "no_repeat_ngram": "no_repeat_ngram_size", "alpha": "length_penalty"}


class Generated(NamedTuple):
    """A generated text."""

    text: str  # without special tokens
    tokens: int  # number of generated tokens, the end symbol included
    stopped: bool  # whether it has the maximum number of tokens, at which generation stops


class Generator:
    """A pretrained model, an encoder-decoder or a decoder, with its tokenizer and generation settings.

    The settings replace those of the model's card (its generation config); a `UserError` if one is refused.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: Mapping[str, Any]) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.is_decoder_only = not model.config.is_encoder_decoder
        self.card = model.generation_config
        ends = self.card.eos_token_id  # an id, a list of ids, or None
        self.ends = {ends} if isinstance(ends, int) else set(ends or ())  # ids of the end symbols
        candidates = (tokenizer.pad_token_id, self.card.pad_token_id, *self.ends, 0)  # any id serves: it is masked
        self.padding = next(token for token in candidates if token is not None)  # GPT-2, for example, has no padding
        self.separator = tokenizer.get_added_vocab().get(SEPARATOR)  # id; None except in PRIMERA
        self.change(settings)
        self.card = model.generation_config  # later calls of `change` start from these settings

    def change(self, settings: Mapping[str, Any]) -> None:
        """Replace settings of the constructor, and undo those of earlier calls; a `UserError` if one is refused."""
        settings = {ALIASES.get(name, name): value for name, value in settings.items()}
        if self.is_decoder_only:  # takes `max_length` as `max_new_tokens`: a decoder's would count the prompt, too
            settings = {SAME_LIMIT.get(name, name): value for name, value in settings.items()}
        self.model.generation_config = change_settings(self.card, settings)

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest number of generated tokens."""
        minimum, maximum = length_limits(self.model.generation_config)
        assert maximum is not None, "every card has a maximum, see `HuggingFaceSummarizer`"
        return minimum, maximum

    @property
    def max_new_tokens(self) -> int:
        """Largest number of generated tokens."""
        return self.limits[1]

    @torch.inference_mode()
    def generate(self, prompts: Sequence[list[int]]) -> list[Generated]:
        """Return the outputs, of at most T tokens, for a batch of B tokenized texts, lists of at most S ids."""
        source, mask = self._collate(prompts)                                                # [B, S] both
        inputs = {"input_ids": source, "attention_mask": mask}
        if self.model.config.model_type == "led":
            # Tokens with global attention: in LED (Beltagy et al. 2020) the first, in PRIMERA also all separators.
            attention = torch.zeros_like(source) if self.separator is None else (source == self.separator).long()
            inputs["global_attention_mask"] = attention.index_fill(1, source.new_tensor([0]), 1)  # column 0 to 1
        output = self.model.generate(**inputs, pad_token_id=self.padding)                    # [B, S + T] or [B, 1 + T]
        start = source.shape[1] if self.is_decoder_only else 1  # after the prompt, or after the start symbol
        return [self._read(tokens) for tokens in output[:, start:].tolist()]

    def _collate(self, prompts: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """Return padded ids and mask; padding is at the left for a decoder, which continues its prompt, else right."""
        sequences = [ids[::-1] for ids in prompts] if self.is_decoder_only else list(prompts)  # `pad` pads the end
        source = pad(sequences, self.padding)                                                # [B, S]
        mask = pad([[1] * len(ids) for ids in sequences], 0)                                 # [B, S]
        if self.is_decoder_only:
            source, mask = source.flip(1), mask.flip(1)  # in reading order again, so that the padding is at the left
        return source.to(self.model.device), mask.to(self.model.device)

    def _read(self, tokens: list[int]) -> Generated:
        """Return the output in T generated tokens, without the padding after its end symbol."""
        count = next((number for number, token in enumerate(tokens, 1) if token in self.ends), len(tokens))
        text = close_up(self.tokenizer.decode(tokens[:count], skip_special_tokens=True).strip())
        return Generated(text, count, count >= self.max_new_tokens)  # the last: whether it has the maximum length


def change_settings(config: GenerationConfig, settings: Mapping[str, Any]) -> GenerationConfig:
    """Return a copy of a generation config with `settings` replaced, without sampling; a `UserError` if one is refused.

    Settings of the config that would override the new ones are removed: `generate` prefers `max_new_tokens` to
    `max_length`, and a minimum above the maximum would keep a summary from ending.
    """
    _check(settings)
    changed = GenerationConfig.from_dict(config.to_dict())
    for names in SAME_LIMIT.items():  # the two settings of one limit
        if any(name in settings for name in names):
            changed.update(**dict.fromkeys(names))  # sets both to None
    if settings.get("num_beams") == 1:
        changed.update(**dict.fromkeys(OF_BEAMS))  # to None: transformers refuses settings of beams for a single one
    try:
        # UNUSED: temperature etc. are None unless set; FIXED: never sample. `update` checks the values.
        changed.update(**UNUSED | settings | FIXED)
    except (ValueError, TypeError) as error:
        raise UserError(f"{OPTION}: {' '.join(str(error).split())}; change the setting") from None
    _solve_conflict(changed, settings)  # between minimum and maximum length
    return changed


def _check(settings: Mapping[str, Any]) -> None:
    """Raise a `UserError` for an unknown setting, a value out of range, or sampling (another value than in `FIXED`)."""
    names = vars(GenerationConfig())
    for name, value in settings.items():
        if name.startswith("_") or name not in names:
            similar = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {similar[0]}?" if similar else "see GenerationConfig of transformers"
            raise UserError(f"{OPTION}.{name}: there is no such setting of generation; {hint}")
        if value != FIXED.get(name, value):  # such as do_sample=True: a baseline must give the same summary each time
            raise UserError(f"{OPTION}.{name} {value}: a baseline has one summary that is not drawn at random")
        if name in MINIMA and (not isinstance(value, int) or value < MINIMA[name]):
            raise UserError(f"{OPTION}.{name} {value}: give a whole number, at least {MINIMA[name]}")


def _solve_conflict(config: GenerationConfig, settings: Mapping[str, Any]) -> None:
    """If minimum and maximum length conflict, change the one not in `settings`; a `UserError` if both are in it."""
    sets_maximum, sets_minimum = (bool(settings.keys() & set(pair)) for pair in SAME_LIMIT.items())  # pairs: max, min
    minimum, maximum = length_limits(config)  # in generated tokens; a maximum of None is no limit
    if maximum is None or minimum < maximum:  # if they are equal, the end symbol has no position
        return
    if sets_minimum and sets_maximum and minimum > maximum:
        remedy = "lower the minimum, or raise the maximum"
        raise UserError(f"{OPTION}: summaries of at least {minimum} and at most {maximum} tokens; {remedy}")
    if sets_maximum and not sets_minimum:
        config.update(min_length=None, min_new_tokens=None)
    elif sets_minimum and not sets_maximum:
        config.update(max_length=None, max_new_tokens=minimum + DEFAULT_LENGTH)  # the card's maximum is too low


def load_pretrained(name: str, dtype: str, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model that generates, and its tokenizer, from a folder or the hub; the device `auto` prefers a GPU.

    `dtype` is a torch type by name, such as bfloat16. A `UserError` if there is no such model, or it generates no text.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    disable_progress_bar()  # from now on, hides the bar of loading weights, but not of downloads
    try:
        config = AutoConfig.from_pretrained(name)
        architectures = " ".join(config.architectures or [GENERATES[0]])  # if none is recorded, the check passes
        if not any(part in architectures for part in GENERATES):
            remedy = "give a summarizer, such as BART, T5 or PEGASUS, or a chat model"
            raise UserError(f"{name}: {architectures} generates no text; {remedy}")
        model_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        model = model_class.from_pretrained(name, dtype=getattr(torch, dtype))
        return model.to(device), AutoTokenizer.from_pretrained(name)
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        remedy = "check the name, or give the folder of a model"
        raise UserError(f"{name}: cannot be loaded ({' '.join(str(error).split())[:300]}); {remedy}") from None


def weights_digest(name: str, model: PreTrainedModel) -> str | None:
    """Return an identifier of a model's weights: its commit on the hub (None if unknown), or a digest of its folder."""
    folder = Path(name)
    if not folder.is_dir():
        return getattr(model.config, "_commit_hash", None)
    digest = hashlib.sha256()  # of weights, config and tokenizer, not of other files
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin", ".json", ".model")):
        digest.update(f"{path.name} {file_digest(path)}".encode())
    return digest.hexdigest()[:16]  # 64 bits distinguish models reliably


def positions(model: PreTrainedModel, part: Literal["encoder", "decoder"]) -> int | None:
    """Return the number of positions of a model's encoder or decoder; None for no limit, such as in T5."""
    configs = [model.config, getattr(model.config, part, None)]  # some models have a config for each part
    names = (f"max_{part}_position_embeddings", "max_position_embeddings")  # of LED, and of most models
    limits = [getattr(config, name, None) for config in configs for name in names]
    return min(filter(None, limits), default=None)
