"""GraphSum: Li, Xiao, Liu, Wu, Wang and Du, ACL 2020. Also the Hierarchical Transformer (Liu and Lapata, ACL 2019)
and the flat Transformer."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.graphsum import GraphSumBatch
from datamodules.text.subwords import Subwords, encoder_path
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.graphsum.encoder import GraphSumNetwork, Memory, Source
from lightning_modules.graphsum.graph_attention import GraphBias
from lightning_modules.graphsum.options import GraphBiasOptions, GraphSumEncoder, GraphSumOptimizer
from lightning_modules.networks.pretrained import save_pretrained
from lightning_modules.networks.text_encoder import TextEncoder, load_encoder
from lightning_modules.networks.transformer import DecoderLayer
from lightning_modules.schedules import noam_factor, rate_factor, scheduled, split_parameters
from lightning_modules.sequence_to_sequence import SequenceToSequence
from lightning_modules.summarizer import Samples, Summary, evaluating

MULTI_NEWS = DecodingOptions(
    beam_size=5, min_length=60, max_length=300, length_penalty="gnmt", alpha=0.6, no_repeat_ngram=3,
    early_stopping=False,
)  # fmt: skip


class GraphSum(SequenceToSequence):
    """Encoder-decoder over paragraphs whose attention is biased by a paragraph graph (Li et al. 2020).

    Loss terms: those of `SequenceToSequence`. The paper's baselines have an `encoder` of the kind `hierarchical` or
    `flat`. GraphSum without a graph has `graph: none` in the data, or a bias neither `in_encoder` nor `in_decoder`.

    Args:
        vocab_size: vocabulary size of source, target and output, which share their embedding.
        encoder: encoder, see `GraphSumEncoder`.
        graph_bias: bias of attention by the graph, see `GraphBiasOptions`.
        decoder_layers: number of layers of the decoder.
        dropout: dropout of embeddings, attention weights, feed-forward networks and residual branches.
        label_smoothing: epsilon of the loss.
        optimizer: options of Adam, see `GraphSumOptimizer`.
        decoding: decoding options; by default those of the paper for Multi-News.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.
    """

    batch_type = GraphSumBatch

    def __init__(
        self,
        vocab_size: int = 32_000,
        encoder: GraphSumEncoder = GraphSumEncoder(),
        graph_bias: GraphBiasOptions = GraphBiasOptions(),
        decoder_layers: int = 8,
        dropout: float = 0.1,
        label_smoothing: float = 0.1,
        optimizer: GraphSumOptimizer = GraphSumOptimizer(),
        decoding: DecodingOptions | None = MULTI_NEWS,
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding, val_summaries)
        self.set_label_smoothing(label_smoothing)
        if optimizer.encoder_warmup_steps < 1:  # `rate_factor` would read it as a fraction of all steps
            raise ValueError(f"encoder_warmup_steps is at least 1, got {optimizer.encoder_warmup_steps}")
        self.optimizer = optimizer
        self.network = GraphSumNetwork(
            vocab_size=vocab_size, encoder=encoder, graph_bias=graph_bias, decoder_layers=decoder_layers,
            dropout=dropout, pretrained=_load_pretrained(encoder),
        )  # fmt: skip
        if encoder.pretrained_embeddings:
            self._copy_pretrained_embeddings()

    def _copy_pretrained_embeddings(self) -> None:
        """Replace the first rows of the embedding by the pretrained encoder's; the data must use its tokenizer."""
        words = self.network.pretrained.model.get_input_embeddings().weight
        embedding = self.network.embedding.weight
        if words.shape[1] != embedding.shape[1] or len(words) > len(embedding):  # width; rows, one per token
            raise ValueError(
                f"pretrained_embeddings needs hidden_size {words.shape[1]}, the width of the checkpoint's word "
                f"embeddings, and a vocab_size of at least {len(words)}; got {embedding.shape[1]} and {len(embedding)}"
            )
        with torch.no_grad():
            embedding[: len(words)] = words

    def layers_to_shard(self) -> list[nn.Module]:
        """Return the encoder's layers; `encode` uses parts of decoder layers directly, so these cannot be sharded."""
        return [layer for layer in super().layers_to_shard() if not isinstance(layer, DecoderLayer)]

    def configure_optimizers(self) -> dict[str, Any]:
        """Return Adam with the Noam schedule, and other learning rates for a pretrained encoder and for `log_sigma`.

        The paper also has "different optimizers for the pretrained part and other parts" (Li et al. 2020, section 3.1),
        as have Liu and Lapata (2019). With the learning rate of the decoder, all states of a pretrained encoder become
        the same vector within some steps.
        """
        pretrained, parameters = split_parameters(self, self.network.pretrained)
        sigmas = []
        if self.optimizer.sigma_lr is not None:
            biases = [module for module in self.modules() if isinstance(module, GraphBias)]
            sigmas = [bias.log_sigma for bias in biases if bias.log_sigma.requires_grad]  # if learned
            parameters = [parameter for parameter in parameters if not any(parameter is sigma for sigma in sigmas)]
        # parameter groups, and for each group a function from step to factor of its learning rate
        groups = [{"params": parameters}]
        factors = [noam_factor(self.network.size, self.optimizer.warmup_steps)]
        if sigmas:
            groups.append({"params": sigmas, "lr": self.optimizer.sigma_lr})
            factors.append(lambda step: 1.0)  # `sigma_lr` is constant
        if pretrained:
            groups.append({"params": pretrained, "lr": self.optimizer.encoder_lr})
            warm_up = self.optimizer.encoder_warmup_steps
            factors.append(partial(rate_factor, schedule="inverse_root", steps=0, warm_up=warm_up))  # ignores `steps`
        # `fused` is faster only on a CPU: on a GPU the default also updates many tensors per kernel. In mixed precision
        # Lightning cannot clip the gradients of a fused optimizer.
        fused = self.device.type == "cpu" and "mixed" not in str(self.trainer.precision)
        optimizer = torch.optim.Adam(groups, lr=self.optimizer.lr, betas=(0.9, 0.998), eps=1e-9, fused=fused)
        return scheduled(optimizer, factors)

    def export(self, folder: Path) -> dict[str, str]:
        """Save a pretrained encoder in Hugging Face's format to `folder`/encoder, see `Summarizer.export`."""
        if self.network.pretrained is None:
            return {}
        save_pretrained(folder / "encoder", self.network.pretrained.model, self.tokenizer)
        return {"encoder.checkpoint": "encoder"}  # option of the exported config, and its value: a path in `folder`

    def source(self, batch: GraphSumBatch) -> Source:
        """Return the encoder input of a batch; a `ValueError` if its graph is not [B, L, L]."""
        size = [*batch.source.shape[:2], batch.source.shape[1]]  # [B, L, L]
        if list(batch.graph.shape) != size:
            raise ValueError(f"documents {', '.join(batch.ids)}: the graph is {list(batch.graph.shape)}, not {size}")
        graph = batch.graph.to(self.network.embedding.weight.dtype)
        return Source(batch.source, batch.source_mask, graph, places=batch.places, lengths=batch.lengths)

    @property
    def decoder(self) -> GraphSumNetwork:
        """The network, which has the methods that `SequenceToSequence` calls on a decoder."""
        return self.network

    def encode(self, batch: GraphSumBatch) -> Memory:
        """Return the keys and values that each decoder layer attends to, and their mask."""
        return self.network.encode(self.source(batch))

    def sentences(self, ids: list[int]) -> list[tuple[str, list[int]]]:
        """Return the text of each nonempty sentence of generated ids, and the positions of its tokens among the ids."""
        groups: list[list[int]] = [[]]  # positions of the tokens of each sentence
        for position, token in enumerate(ids):
            if token == self.tokenizer.sentence:  # separator, in no sentence
                groups.append([])
            else:
                groups[-1].append(position)
        texts = [self.tokenizer.decode([ids[position] for position in group]) for group in groups]
        return [(text, group) for text, group in zip(texts, groups) if text]

    def _ids_without_stop(self, samples: Samples) -> list[list[list[int]]]:
        """Return the ids of the K samples of each of B documents, without padding and end symbol."""
        documents = []
        for sampled, lengths in zip(samples.tokens.tolist(), samples.lengths.tolist()):
            unpadded = [ids[:length] for ids, length in zip(sampled, lengths)]  # of K samples
            documents.append([[token for token in ids if token != self.tokenizer.stop] for ids in unpadded])
        return documents

    def texts(self, batch: GraphSumBatch, samples: Samples) -> list[list[str]]:
        """Return the texts of the K samples of each of B documents."""
        documents = self._ids_without_stop(samples)
        return [[" ".join(text for text, _ in self.sentences(ids)) for ids in document] for document in documents]

    def source_ids(self, batch: GraphSumBatch) -> Tensor:
        """Return the ids of the concatenated paragraphs, [B, S]."""
        source = self.source(batch)
        return source.concatenate(batch.source).masked_fill(~source.concatenated_mask(), self.tokenizer.pad)

    def summarize(self, batch: GraphSumBatch) -> list[Summary]:
        """Return the best hypothesis of each document, with the attention of its sentences to paragraphs in `extra`."""
        hypotheses = self.generate(batch, self.decoding)
        best = Samples(hypotheses.tokens[:, :1], hypotheses.lengths[:, :1])  # hypotheses are sorted, the best one first
        with evaluating(self):
            attention = self.network.paragraph_attention(self.decoder_inputs(best.tokens), self.source(batch))
        attention = attention[:, 0].float().cpu()  # of the only sample, [B, T, L]
        num_paragraphs = batch.source_mask.any(-1).sum(1).tolist()  # from the mask of tokens, [B, L, n]
        summaries = []
        for b, (ids,) in enumerate(self._ids_without_stop(best)):
            sentences, paragraph_attention = [], []
            for sentence, positions in self.sentences(ids):
                sentences.append(sentence)
                mean_attention = attention[b, positions, : num_paragraphs[b]].mean(0).tolist()
                paragraph_attention.append([round(weight, 4) for weight in mean_attention])  # 4 digits in files
            extra = {"paragraph_attention": paragraph_attention}
            summaries.append(Summary(batch.ids[b], sentences, batch.references[b], extra=extra))
        return summaries


def _load_pretrained(options: GraphSumEncoder) -> TextEncoder | None:
    """Return the pretrained encoder that the options name; None for an encoder from scratch."""
    if options.checkpoint is None:
        for name in ("frozen", "pretrained_embeddings", "window"):  # options of a pretrained encoder
            if getattr(options, name):
                raise ValueError(f"{name} needs a checkpoint, the name or folder of a pretrained encoder")
        return None
    subwords = Subwords(options.checkpoint)  # the tokenizer, which knows the special ids
    settings = {"frozen": options.frozen, "window": options.window, "pad_id": subwords.pad_id}
    encoder = TextEncoder(load_encoder(encoder_path(options.checkpoint)), subwords.special, **settings)
    if getattr(encoder.model, "pooler", None) is not None:  # BERT and RoBERTa have one
        encoder.model.pooler = None  # unused: its parameters would get no gradient
    return encoder
