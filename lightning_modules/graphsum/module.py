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
from lightning_modules.networks.text_encoder import TextEncoder
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

    Loss terms: those of `SequenceToSequence`.

    The paper's baselines: the encoder's `kind: hierarchical`, `kind: flat`, and `graph: none` of the data (or the graph
    neither `in_encoder` nor `in_decoder`) for GraphSum without a graph.

    Args:
        vocab_size: V, of source, target and output, which share their embedding.
        encoder: encoder, see `GraphSumEncoder`.
        graph_bias: bias of attention by the graph, see `GraphBiasOptions`.
        decoder_layers: number of layers of the decoder.
        dropout: dropout of embeddings, attention weights, feed-forward networks and residual branches.
        label_smoothing: epsilon.
        optimizer: options of Adam, see `GraphSumOptimizer`.
        decoding: decoding options; by default those of the paper for Multi-News.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.

    Raises:
        ValueError: if sizes do not match, or an option has an invalid value.
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
        decoding: DecodingOptions | None = None,
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding or MULTI_NEWS, val_summaries)
        self.set_label_smoothing(label_smoothing)
        if optimizer.encoder_warmup_steps < 1:
            raise ValueError(f"encoder_warmup_steps is at least 1, got {optimizer.encoder_warmup_steps}")
        self.optimizer = optimizer
        self.network = GraphSumNetwork(
            vocab_size=vocab_size, encoder=encoder, graph_bias=graph_bias, decoder_layers=decoder_layers,
            dropout=dropout, pretrained=_pretrained(encoder),
        )  # fmt: skip
        if encoder.pretrained_embeddings:
            self._copy_embeddings()

    def _copy_embeddings(self) -> None:
        """Initialize the first rows of the embedding with the word embeddings of the pretrained encoder."""
        if self.network.pretrained is None:
            raise ValueError("pretrained_embeddings needs a checkpoint, the name or folder of a pretrained encoder")
        words = self.network.pretrained.model.get_input_embeddings().weight
        embedding = self.network.embedding.weight
        if words.shape[1] != embedding.shape[1] or len(words) > len(embedding):
            raise ValueError(
                f"pretrained_embeddings needs hidden_size {words.shape[1]}, the width of the checkpoint's word "
                f"embeddings, and a vocab_size of at least {len(words)}; got {embedding.shape[1]} and {len(embedding)}"
            )
        with torch.no_grad():
            embedding[: len(words)] = words

    def layers_to_shard(self) -> list[nn.Module]:
        """Return all layers but those of the decoder, since the encoder calls their cross-attention."""
        return [layer for layer in super().layers_to_shard() if not isinstance(layer, DecoderLayer)]

    def configure_optimizers(self) -> dict[str, Any]:
        """Return Adam (0.9, 0.998) with the Noam schedule, and a separate schedule for a pretrained encoder.

        So do the paper, "different optimizers for the pretrained part and other parts" (Li et al. 2020, section 3.1),
        and Liu and Lapata (2019). With the learning rate of the decoder, all states of a pretrained encoder collapse to
        one vector within some steps.
        """
        pretrained, parameters = split_parameters(self, self.network.pretrained)
        sigmas = []
        if self.optimizer.sigma_lr is not None:
            biases = [module for module in self.modules() if isinstance(module, GraphBias)]
            sigmas = [bias.log_sigma for bias in biases if bias.log_sigma.requires_grad]
            parameters = [parameter for parameter in parameters if not any(parameter is sigma for sigma in sigmas)]
        groups, factors = [{"params": parameters}], [noam_factor(self.network.size, self.optimizer.warmup_steps)]
        if sigmas:
            groups.append({"params": sigmas, "lr": self.optimizer.sigma_lr})
            factors.append(lambda step: 1.0)
        if pretrained:
            groups.append({"params": pretrained, "lr": self.optimizer.encoder_lr})
            rising = {"schedule": "inverse_root", "steps": 0, "warm_up": self.optimizer.encoder_warmup_steps}
            factors.append(partial(rate_factor, **rising))
        # elsewhere several tensors a kernel are the default; Lightning clips no gradients of a fused one under autocast
        fused = self.device.type == "cpu" and "mixed" not in str(self.trainer.precision)
        optimizer = torch.optim.Adam(groups, lr=self.optimizer.lr, betas=(0.9, 0.998), eps=1e-9, fused=fused)
        return scheduled(optimizer, factors)

    def export(self, folder: Path) -> dict[str, str]:
        """Save a pretrained encoder in `folder`/encoder in Hugging Face's format, and return the keys that name it."""
        if self.network.pretrained is None:
            return {}
        save_pretrained(folder / "encoder", self.network.pretrained.model, self.tokenizer)
        return {"encoder.checkpoint": "encoder"}

    # Training ----------------------------------------------------------------------------------------------------

    def source(self, batch: GraphSumBatch) -> Source:
        """Return the encoder input of a batch; a `ValueError` if the graph does not have the size of its paragraphs."""
        size = [*batch.source.shape[:2], batch.source.shape[1]]
        if list(batch.graph.shape) != size:
            raise ValueError(f"documents {', '.join(batch.ids)}: the graph is {list(batch.graph.shape)}, not {size}")
        return Source(
            ids=batch.source,
            mask=batch.source_mask,
            graph=batch.graph.to(self.network.embedding.weight.dtype),
            places=batch.places,
            lengths=batch.lengths,
        )

    @property
    def decoder(self) -> GraphSumNetwork:
        """The network, which writes as well."""
        return self.network

    def encode(self, batch: GraphSumBatch) -> Memory:
        """Return the memory of the decoder, and its mask."""
        return self.network.encode(self.source(batch))

    # What was written --------------------------------------------------------------------------------------------

    def sentences(self, ids: list[int]) -> list[tuple[str, list[int]]]:
        """Return the non-empty sentences of generated ids, with the positions of their tokens."""
        groups: list[list[int]] = [[]]
        for index, token in enumerate(ids):
            if token == self.tokenizer.sentence:
                groups.append([])
            else:
                groups[-1].append(index)
        decoded = [(self.tokenizer.decode([ids[index] for index in group]), group) for group in groups]
        return [(sentence, group) for sentence, group in decoded if sentence]

    def _ids_without_stop(self, samples: Samples) -> list[list[list[int]]]:
        """Return the ids of each sample without padding and end symbol, [B][K]."""
        stop = self.tokenizer.stop
        texts = []
        for sampled, lengths in zip(samples.tokens.tolist(), samples.lengths.tolist()):
            texts.append([[token for token in ids[:length] if token != stop] for ids, length in zip(sampled, lengths)])
        return texts

    def texts(self, batch: GraphSumBatch, samples: Samples) -> list[list[str]]:
        """Return the text of each sample, [B][K]."""

        def text(ids: list[int]) -> str:
            return " ".join(sentence for sentence, _ in self.sentences(ids))

        return [[text(ids) for ids in row] for row in self._ids_without_stop(samples)]

    def source_ids(self, batch: GraphSumBatch) -> Tensor:
        """Return the ids of the concatenated paragraphs, [B, S]."""
        source = self.source(batch)
        return source.concatenate(batch.source).masked_fill(~source.row_mask(), self.tokenizer.pad)

    def paragraph_attention(self, batch: GraphSumBatch, samples: Samples) -> Tensor:
        """Return the attention of each token to each paragraph, averaged over layers and heads, [B, K, T, L]."""
        with evaluating(self):
            return self.network.paragraph_attention(self.decoder_inputs(samples.tokens), self.source(batch))

    def summarize(self, batch: GraphSumBatch) -> list[Summary]:
        """Return the best hypothesis of each document, with the attention of its sentences to paragraphs in `extra`."""
        hypotheses = self.generate(batch, self.decoding)
        best = Samples(hypotheses.tokens[:, :1], hypotheses.lengths[:, :1])
        attention = self.paragraph_attention(batch, best)[:, 0].float().cpu()                # [B, T, L]
        sizes = batch.source_mask.any(-1).sum(1).tolist()
        summaries = []
        for b, (ids,) in enumerate(self._ids_without_stop(best)):
            sentences_and_groups = self.sentences(ids)
            rows = [attention[b, group, : sizes[b]].mean(0).tolist() for _, group in sentences_and_groups]
            sentences = [sentence for sentence, _ in sentences_and_groups]
            extra = {"paragraph_attention": [[round(share, 4) for share in row] for row in rows]}
            summaries.append(Summary(batch.ids[b], sentences, batch.references[b], extra=extra))
        return summaries


def _pretrained(options: GraphSumEncoder) -> TextEncoder | None:
    """Return the pretrained encoder, None for one from scratch."""
    if options.checkpoint is None:
        return None
    tokens = Subwords(options.checkpoint)
    settings = {"frozen": options.frozen, "window": options.window, "pad_id": tokens.pad_id}
    encoder = TextEncoder.pretrained(encoder_path(options.checkpoint), tokens.special, **settings)
    if getattr(encoder.model, "pooler", None) is not None:
        encoder.model.pooler = None  # unused, so that it would get no gradient
    return encoder
