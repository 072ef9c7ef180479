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
from lightning_modules.decoding.hugging_face import length_limits

# What the name of a class that generates has in it; an encoder would generate nonsense.
GENERATES = ("ConditionalGeneration", "CausalLM", "LMHead")
UNLIMITED = 10**9  # what tokenizers without a limit give as theirs is larger
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
    """An output."""

    text: str  # without special tokens
    tokens: int  # number of generated tokens, the end symbol included
    stopped: bool  # whether it ended because of its maximal length


class Generator:
    """A pretrained model, an encoder-decoder or a decoder, with its tokenizer and generation settings.

    The settings replace those of the model's card, and count as its own; a `UserError` if one is unknown or refused.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: Mapping[str, Any]) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.is_decoder_only = not model.config.is_encoder_decoder
        self.card = model.generation_config
        ends = self.card.eos_token_id
        self.ends = {ends} if isinstance(ends, int) else set(ends or ())
        padding = (tokenizer.pad_token_id, self.card.pad_token_id, *self.ends, 0)
        self.padding = next(token for token in padding if token is not None)
        self.separator = tokenizer.get_added_vocab().get(SEPARATOR)
        self.change(settings)
        self.card = model.generation_config

    def change(self, settings: Mapping[str, Any]) -> None:
        """Generate with the settings of the model's card, but these; errors as in the constructor."""
        settings = {ALIASES.get(name, name): value for name, value in settings.items()}
        if self.is_decoder_only:  # whose `max_length` would count the prompt, too
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
        """Return the outputs of a batch of tokenized texts, B lists of ids."""
        source, mask = self._collate(prompts)                                                # [B, S] both
        inputs = {"input_ids": source, "attention_mask": mask}
        if self.model.config.model_type == "led":
            # the authors of LED let the first token attend to all others, those of PRIMERA each separator
            attention = torch.zeros_like(source) if self.separator is None else (source == self.separator).long()
            inputs["global_attention_mask"] = attention.index_fill(1, source.new_tensor([0]), 1)
        output = self.model.generate(**inputs, pad_token_id=self.padding)                    # [B, S + T] or [B, 1 + T]
        start = source.shape[1] if self.is_decoder_only else 1
        return [self._read(row) for row in output[:, start:].tolist()]

    def _collate(self, prompts: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """Return ids and mask, padded before a prompt that a decoder continues, and after a source otherwise."""
        rows = [row[::-1] for row in prompts] if self.is_decoder_only else list(prompts)
        source = pad(rows, self.padding)                                                     # [B, S]
        mask = pad([[1] * len(row) for row in rows], 0)                                      # [B, S]
        if self.is_decoder_only:
            source, mask = source.flip(1), mask.flip(1)
        return source.to(self.model.device), mask.to(self.model.device)

    def _read(self, tokens: list[int]) -> Generated:
        """Return an output of T tokens, those after its end symbol left out."""
        count = next((number for number, token in enumerate(tokens, 1) if token in self.ends), len(tokens))
        text = self.tokenizer.decode(tokens[:count], skip_special_tokens=True).strip()
        return Generated(text, count, count >= self.max_new_tokens)


def change_settings(config: GenerationConfig, settings: Mapping[str, Any]) -> GenerationConfig:
    """Return generation settings with some of them replaced, without sampling; a `UserError` if one is refused.

    What the config says about the same thing in other words is left out, so that the new settings hold: of two limits
    of the length `generate` prefers that of new tokens, and a minimum above the maximum keeps a summary from ending.
    """
    _check(settings)
    changed = GenerationConfig.from_dict(config.to_dict())
    for names in SAME_LIMIT.items():
        if any(name in settings for name in names):
            changed.update(**dict.fromkeys(names))
    if settings.get("num_beams") == 1:
        changed.update(**dict.fromkeys(OF_BEAMS))
    try:
        changed.update(**UNUSED | settings | FIXED)
        _solve_conflict(changed, settings)
        changed.validate()
    except UserError:
        raise
    except (ValueError, TypeError) as error:
        raise UserError(f"{OPTION}: {' '.join(str(error).split())}; change the setting") from None
    return changed


def _check(settings: Mapping[str, Any]) -> None:
    """Check names and values of generation settings."""
    names = vars(GenerationConfig())
    for name, value in settings.items():
        if name.startswith("_") or name not in names:
            similar = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {similar[0]}?" if similar else "see GenerationConfig of transformers"
            raise UserError(f"{OPTION}.{name}: there is no such setting of generation; {hint}")
        if value != FIXED.get(name, value):
            raise UserError(f"{OPTION}.{name} {value}: a baseline has one summary that is not drawn at random")
        if name in MINIMA and (not isinstance(value, int) or value < MINIMA[name]):
            raise UserError(f"{OPTION}.{name} {value}: give a whole number, at least {MINIMA[name]}")


def _solve_conflict(config: GenerationConfig, settings: Mapping[str, Any]) -> None:
    """Let a limit of the length that was set win against the opposite limit of the model's card."""
    sets_maximum, sets_minimum = (any(name in settings for name in pair) for pair in SAME_LIMIT.items())
    minimum, maximum = length_limits(config)
    if maximum is None or minimum < maximum:  # there is room for the end symbol
        return
    if sets_minimum and sets_maximum and minimum > maximum:
        remedy = "lower the minimum, or raise the maximum"
        raise UserError(f"{OPTION}: summaries of at least {minimum} and at most {maximum} tokens; {remedy}")
    if sets_maximum and not sets_minimum:
        config.update(min_length=None, min_new_tokens=None)
    elif sets_minimum and not sets_maximum:
        config.update(max_length=None, max_new_tokens=minimum + DEFAULT_LENGTH)


def load_pretrained(name: str, dtype: str, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model that generates, and its tokenizer, from a folder or the hub; the device `auto` prefers a GPU.

    Raises:
        UserError: if there is no such model, or it generates no text.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if not Path(name).is_dir() and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
        raise UserError(f"{name}: no such folder; give the folder of a model, or its name on the hub")
    disable_progress_bar()  # hides the bar of loading weights, not that of downloads
    try:
        config = AutoConfig.from_pretrained(name)
        architectures = " ".join(config.architectures or [GENERATES[0]])
        if not any(kind in architectures for kind in GENERATES):
            remedy = "give a summarizer, such as BART, T5 or PEGASUS, or a chat model"
            raise UserError(f"{name}: {architectures} generates no text; {remedy}")
        kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        model = kind.from_pretrained(name, dtype=getattr(torch, dtype))
        return model.to(device), AutoTokenizer.from_pretrained(name)
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        remedy = "check the name, or give the folder of a model"
        raise UserError(f"{name}: cannot be loaded ({' '.join(str(error).split())[:300]}); {remedy}") from None


def weights_digest(name: str, model: PreTrainedModel) -> str | None:
    """Return what identifies a model's weights: the commit on the hub, or a digest of a folder's files."""
    folder = Path(name)
    if not folder.is_dir():
        return getattr(model.config, "_commit_hash", None)
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin", ".json", ".model")):
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}".encode())
    return digest.hexdigest()[:16]


def context_window(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the maximal number of input tokens that model and tokenizer state; None if they state none."""
    limits = [limit for limit in (positions(model, "encoder"), tokenizer.model_max_length) if limit]
    return min((limit for limit in limits if limit < UNLIMITED), default=None)


def positions(model: PreTrainedModel, part: Literal["encoder", "decoder"]) -> int | None:
    """Return the number of positions of a model's encoder or decoder; None without a limit, as of T5."""
    configs = [model.config, getattr(model.config, part, None)]
    names = (f"max_{part}_position_embeddings", "max_position_embeddings")
    stated = [getattr(config, name, None) for config in configs for name in names]
    return min(filter(None, stated), default=None)
