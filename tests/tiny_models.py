"""Tiny random models of Hugging Face with a tokenizer that is trained on a few words."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BertModel, BertTokenizerFast, PreTrainedModel, PreTrainedTokenizerFast

FAMILIES = ("bart", "t5", "pegasus", "led")
SPECIAL = ["<pad>", "</s>", "<unk>", "<s>"]
SMALL = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SMALL |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "init_std": 0.9}
IDS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 3}
# each of BART and LED starts its decoder with the end symbol
START_WITH_END = {"decoder_start_token_id": 1, "forced_eos_token_id": 1}
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} : {{ message['content'] }} </s> {% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)


def write_bert(folder: Path, words: Iterable[str], kind=BertModel, model_max_length=None, seed=0, **changes) -> str:
    """Write a random BERT of one layer, unless `changes` of its config say otherwise, and its tokenizer to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    limit = {"model_max_length": model_max_length} if model_max_length else {}
    BertTokenizerFast(str(folder / "vocab.txt"), **limit).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(seed)
    kind(transformers.BertConfig(**{"vocab_size": len(vocabulary)} | sizes | changes)).save_pretrained(folder)
    return str(folder)


def write_classifier(folder: Path, words: Iterable[str], labels: Iterable[str], model_max_length=32) -> str:
    """Write a random classifier of text pairs, the same for all names of classes, with its tokenizer to a folder."""
    names = dict(enumerate(labels))
    classes = {"id2label": names, "label2id": {label: index for index, label in names.items()}}
    sizes = {"max_position_embeddings": 32, "initializer_range": 1.0}
    return write_bert(folder, words, transformers.BertForSequenceClassification, model_max_length, **classes, **sizes)


def make_tokenizer(texts: list[str], max_length: int) -> PreTrainedTokenizerFast:
    """Return a word-level tokenizer that ends each text with `</s>`."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = dict(zip(("pad_token", "eos_token", "unk_token", "bos_token"), SPECIAL))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_length, **names)


def random_summarizer(kind: str, vocab_size: int, window: int = 40, layers: int = 1) -> PreTrainedModel:
    sizes = {"vocab_size": vocab_size, **IDS}
    shared = SMALL | sizes | {"encoder_layers": layers, "decoder_layers": layers}
    t5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": layers, "num_heads": 2, "initializer_factor": 9.0}
    task = {"summarization": {"prefix": "summarize: ", "num_beams": 3, "max_length": 12}}
    lengths = {"max_encoder_position_embeddings": window, "max_decoder_position_embeddings": 32}
    config = {
        "bart": shared | START_WITH_END | {"max_position_embeddings": window},
        "pegasus": shared | {"decoder_start_token_id": 0, "max_position_embeddings": window},
        "led": shared | START_WITH_END | lengths | {"attention_window": 8},
        "t5": sizes | t5 | {"decoder_start_token_id": 0, "task_specific_params": task},
    }[kind]
    torch.manual_seed(0)
    return transformers.AutoModelForSeq2SeqLM.from_config(transformers.AutoConfig.for_model(kind, **config))


def save(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, generation: dict) -> Path:
    model.generation_config.update(**generation)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_summarizer(kind: str, folder: Path, texts: list[str], window: int = 40, **generation) -> Path:
    tokenizer = make_tokenizer(texts, window)
    return save(folder, random_summarizer(kind, len(tokenizer), window), tokenizer, generation)


def make_summarizers(folder: Path, texts: list[str], settings: Callable[[str], dict], window=40) -> dict[str, Path]:
    """Write an encoder-decoder of each family, with the generation settings that a function returns for it."""
    return {kind: make_summarizer(kind, folder / kind, texts, window, **settings(kind)) for kind in FAMILIES}


def make_chat_model(folder: Path, texts: list[str], window=256, template=CHAT_TEMPLATE, **generation) -> Path:
    """Write a random decoder, by default with a chat template, to a folder."""
    tokenizer = make_tokenizer(texts, window)
    tokenizer.chat_template = template
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=window, initializer_range=0.9, **IDS,
    )  # fmt: skip
    return save(folder, transformers.LlamaForCausalLM(config), tokenizer, generation)
