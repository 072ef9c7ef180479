"""Untrained models with the sizes of the papers, and batches of random ids, for part `models`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.measuring import word_rows
from datamodules.batch import Batch, SourceTargetBatch, target_fields
from datamodules.bertsum import ExtractiveBatch
from datamodules.bertsum_abs import BertSumAbsBatch
from datamodules.communicating_agents import CommunicatingAgentsData
from datamodules.corpora.texts import Texts
from datamodules.graphsum import GraphSumBatch
from datamodules.matchsum import MatchSumBatch
from datamodules.pointer_generator import PointerGeneratorData
from datamodules.rstformer import RSTformerBatch
from datamodules.text.sentence_layout import NUM_FEATURES
from datamodules.text.vocabulary import Vocabulary
from lightning_modules import (
    BertSum,
    BertSumAbs,
    CommunicatingAgents,
    GraphSum,
    MatchSum,
    Pegasus,
    PointerGenerator,
    RSTformer,
)
from lightning_modules.communicating_agents.module import AgentEmbedding
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.extractive.sentence_network import InterSentenceOptions
from lightning_modules.graphsum.options import GraphSumEncoder
from lightning_modules.options import SentenceEncoderOptions
from lightning_modules.pegasus import EncoderDecoderOptions
from lightning_modules.rstformer.options import InjectionOptions, LEDOptions
from lightning_modules.summarizer import Summarizer


@dataclass(frozen=True)
class Entry:
    """A model of the benchmark.

    Attributes:
        build: returns the model.
        batch: returns a batch of a number of documents.
        documents: batch size of the public implementation.
        public: where that batch size is from; public implementations compute in fp32 without compilation.
        tokens: tokens of a document and its summary, for the estimate of time.
        decode: writes or scores the summaries of a batch.
    """

    build: Callable[[], Summarizer]
    batch: Callable[[int], Batch]
    documents: int
    public: str
    tokens: int
    decode: Callable[[Any, Any], object] = lambda model, batch: model.generate(batch, model.decoding)


class FixedText:
    """Tokenizer without words: special symbols, and the size of the vocabulary."""

    start, pad, stop, paragraph, sentence = 0, 1, 2, 4, 5
    opening = (0,)

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def with_text(model: Summarizer, tokenizer: Any) -> Summarizer:
    """Return a model that has its tokenizer."""
    model.set_tokenizer(tokenizer)
    return model


def names(documents: int) -> dict[str, list]:
    """Return the fields that every batch has."""
    return {"ids": [str(n) for n in range(documents)], "references": [[[]] for _ in range(documents)]}


def ids(size: int, *shape: int) -> Tensor:
    """Return random ids of tokens that are not special symbols."""
    return torch.randint(6, size, shape, generator=torch.Generator().manual_seed(1))


def sentence_fields(documents: int, vocabulary: int, length: int, sentence: int) -> dict[str, Any]:
    """Return the fields of documents that consist of sentences of equal length."""
    position = torch.arange(length)
    return names(documents) | {
        "tokens": ids(vocabulary, documents, length), "lengths": torch.full((documents,), length),
        "owner": (position // sentence).expand(documents, -1).contiguous(),
        "heads": (position % sentence == 0).expand(documents, -1).contiguous(),
    }  # fmt: skip


def targets(documents: int, vocabulary: int, length: int) -> dict[str, Tensor]:
    """Return the fields of summaries."""
    return target_fields(ids(vocabulary, documents, length).tolist(), 1)


def words_entry(model: type, data: type, tiny: bool, source: int, public: str, **options: Any) -> Entry:
    """Return a model over words: pointer-generator or agents."""
    size, source, target = (200, 20, 8) if tiny else (50_000, source, 100)
    narrow = {"embedding": AgentEmbedding(12), "hidden_size": 12} if tiny else {}
    decoding = DecodingOptions(beam_size=4, min_length=target - 1, max_length=target)
    vocabulary = Vocabulary([f"w{n}" for n in range(size - 4)])
    reader = data(Texts([]), vocab_size=size, max_source=source, max_target=target, **options)
    return Entry(
        build=lambda: with_text(model(vocab_size=size, decoding=decoding, **options, **narrow), vocabulary),
        batch=lambda documents: reader.collate(word_rows(documents, size, source, target)),
        documents=16, public=public, tokens=source + target,
    )  # fmt: skip


def bert_entries(tiny: bool) -> dict[str, Entry]:
    """Return BertSum, MatchSum and BertSumAbs over an encoder of the size of BERT-base."""
    size, length, sentence, target = (100, 20, 5, 8) if tiny else (30_522, 512, 32, 128)
    sizes = {"hidden_size": 16, "heads": 2, "layers": 1} if tiny else {"hidden_size": 768, "heads": 12, "layers": 12}
    encoder = SentenceEncoderOptions(checkpoint=None, **sizes)
    between = InterSentenceOptions(heads=2, inner_size=16) if tiny else InterSentenceOptions()
    writer = {"decoder_layers": 1, "decoder_heads": 2, "decoder_inner_size": 16} if tiny else {}
    decoding = DecodingOptions(5, target - 1, target, length_penalty="gnmt", alpha=0.95, no_repeat_ngram=3)
    count, text, candidates = length // sentence, FixedText(size), 3 if tiny else 20

    def extractive(documents: int) -> ExtractiveBatch:
        flags = torch.ones(documents, count, dtype=torch.bool)
        return ExtractiveBatch(
            **sentence_fields(documents, size, length, sentence), mask=flags, candidates=flags,
            starts=[list(range(0, length, sentence))] * documents, gains=torch.rand(documents, count),
            labels=(torch.rand(documents, count) < 0.2).float(), sentences=[["."] * count] * documents,
            shared=torch.zeros(documents, count, count, dtype=torch.bool),
            layout=torch.zeros(documents, count, NUM_FEATURES),
        )  # fmt: skip

    def matching(documents: int) -> MatchSumBatch:
        texts, width = documents * (candidates + 1), length // 4
        slots = torch.arange(documents * candidates).view(documents, candidates)
        return MatchSumBatch(
            **names(documents), documents=ids(size, documents, length), texts=ids(size, texts, width),
            document_sizes=torch.full((documents,), length), document_of=torch.arange(documents),
            text_sizes=torch.full((texts,), width), text_of=torch.arange(texts), slots=slots,
            mask=torch.ones_like(slots, dtype=torch.bool), gold=torch.arange(documents * candidates, texts),
            has_gold=torch.ones(documents, dtype=torch.bool), gains=torch.rand(documents, candidates),
            prior=torch.rand(documents, candidates), choices=[], sentences=[], proposed=[],
        )  # fmt: skip

    def abstractive(documents: int) -> BertSumAbsBatch:
        return BertSumAbsBatch(**sentence_fields(documents, size, length, sentence), **targets(documents, size, target))

    tokens = length + target
    return {
        "bertsum": Entry(
            lambda: with_text(BertSum(size, encoder, inter_sentence=between), text), extractive, 6,
            "PreSumm: 3,000 tokens per GPU", length, lambda model, batch: model.score(batch),
        ),
        "matchsum": Entry(
            lambda: with_text(MatchSum(size, encoder), text), matching, 16, "MatchSum: 16 documents of 20 candidates",
            length + candidates * length // 4, lambda model, batch: model.match(batch),
        ),
        "bertsum-abs": Entry(
            lambda: with_text(BertSumAbs(size, encoder, **writer, decoding=decoding), text), abstractive, 5,
            "PreSumm: 140 target sentences' tokens, about 5 documents", tokens,
        ),
    }  # fmt: skip


def transformer_entries(tiny: bool) -> dict[str, Entry]:
    """Return PEGASUS-large, GraphSum and RSTformer over a LED of the size of LED-large."""
    size, source, target = (100, 24, 8) if tiny else (96_103, 1024, 128)
    large = {"hidden_size": 1024, "heads": 16, "layers": 16, "inner_size": 4096}
    small = {"hidden_size": 16, "heads": 2, "layers": 1, "inner_size": 16}
    pegasus = EncoderDecoderOptions(**small if tiny else large)
    gnmt = DecodingOptions(4, target - 1, target, length_penalty="gnmt", alpha=0.8)
    graph_size, paragraphs, paragraph = (100, 3, 8) if tiny else (32_000, 24, 60)
    graph = GraphSumEncoder(hidden_size=16, heads=2, inner_size=16, token_layers=1) if tiny else GraphSumEncoder()
    layers = {"decoder_layers": 1} if tiny else {}
    led_size, long, window = (100, 64, 16) if tiny else (50_265, 8192, 1024)
    led = {"hidden_size": 48, "heads": 3, "layers": 1, "inner_size": 32} if tiny else {
        "hidden_size": 1024, "heads": 16, "layers": 12, "inner_size": 4096, "checkpoint_activations": True
    }  # fmt: skip
    led |= {"window": window, "positions": 2 * long, "target_positions": 2 * target}
    beam = DecodingOptions(4, target - 1, target)

    def pairs(documents: int) -> SourceTargetBatch:
        tokens = ids(size, documents, source)
        mask = torch.ones_like(tokens, dtype=torch.bool)
        fields = names(documents) | targets(documents, size, target)
        return SourceTargetBatch(**fields, source=tokens, source_mask=mask)

    def graphs(documents: int) -> GraphSumBatch:
        tokens = ids(graph_size, documents, paragraphs, paragraph)
        fields = targets(documents, graph_size, target)
        return GraphSumBatch(
            **names(documents), **fields, source=tokens, source_mask=torch.ones_like(tokens, dtype=torch.bool),
            graph=torch.ones(documents, paragraphs, paragraphs), target_input=fields["target"].roll(1, 1),
            places=torch.arange(paragraphs * paragraph).expand(documents, -1).contiguous(),
            lengths=torch.full((documents,), paragraphs * paragraph),
        )  # fmt: skip

    def discourse(documents: int) -> RSTformerBatch:
        tokens = ids(led_size, documents, long)
        first = torch.zeros_like(tokens)
        first[:, 0] = 1
        edus = (torch.arange(long) / 8.4).long()
        half = min(int(edus[-1]), 62)
        shape = (documents, int(edus[-1]) + 1, 2 * half + 1, 15)
        return RSTformerBatch(
            **names(documents), **targets(documents, led_size, target), source=tokens,
            source_mask=torch.ones_like(tokens), global_mask=first,
            token_edu=edus.expand(documents, -1).contiguous(), gamma=torch.rand(shape[:2]),
            ldd=torch.randint(0, 256, shape, dtype=torch.uint8),
        )  # fmt: skip

    def rstformer(**options: Any) -> Callable[[], Summarizer]:
        encoder, injection = LEDOptions(**led), InjectionOptions(**options)
        model = partial(RSTformer, led_size, encoder, injection=injection, decoding=beam)
        return lambda: with_text(model(), FixedText(led_size))

    recipe = "released RSTformer: one document per GPU"
    return {
        "pegasus": Entry(
            lambda: with_text(Pegasus(size, pegasus, decoding=gnmt), FixedText(size)), pairs, 8,
            "transformers' example: 8 documents", source + target,
        ),
        "graphsum": Entry(
            lambda: with_text(GraphSum(graph_size, graph, **layers, decoding=gnmt), FixedText(graph_size)), graphs,
            4, "released GraphSum: about 4,096 tokens", paragraphs * paragraph + target,
        ),
        "rstformer": Entry(rstformer(formula="product"), discourse, 1, recipe, long + target),
        "led": Entry(rstformer(ablation="no_discourse"), discourse, 1, recipe, long + target),
    }  # fmt: skip


def entries(tiny: bool) -> dict[str, Entry]:
    """Return all models by name, those over words first."""
    return {
        "rstformer": transformer_entries(tiny)["rstformer"],
        "pointer-generator": words_entry(
            PointerGenerator, PointerGeneratorData, tiny, 400, "released pointer-generator: 16 documents"
        ),
        "agents": words_entry(CommunicatingAgents, CommunicatingAgentsData, tiny, 800, "the paper: 16", agents=3),
        **bert_entries(tiny),
        **transformer_entries(tiny),
    }
