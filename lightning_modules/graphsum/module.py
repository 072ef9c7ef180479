"""GraphSum: Li, Xiao, Liu, Wu, Wang and Du, ACL 2020. Also the Hierarchical Transformer (Liu and Lapata, ACL 2019)
and the flat Transformer."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.graphsum import GraphSumBatch
from datamodules.text.subwords import Subwords, encoder_path
from lightning_modules.decoding.beam_search import State, Step
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.graphsum.encoder import Encoder, GraphSumNetwork, Memory, Source
from lightning_modules.graphsum.graph_attention import GraphBias
from lightning_modules.long_input import LongInput, check_long_input
from lightning_modules.networks.output_layer import (
    best_words,
    linear_log_prob,
    smoothed_log_probs,
    vocabulary_logits,
)
from lightning_modules.networks.pretrained import save_pretrained
from lightning_modules.networks.text_encoder import TextEncoder
from lightning_modules.networks.transformer import DecoderLayer, KeyValues, Norm
from lightning_modules.schedules import noam_factor, rate_factor, scheduled, split_parameters
from lightning_modules.sequence_to_sequence import SequenceToSequence
from lightning_modules.summarizer import Samples, Summary, evaluating

MULTI_NEWS = DecodingOptions(
    beam_size=5, min_length=60, max_length=300, length_penalty="gnmt", alpha=0.6, no_repeat_ngram=3,
    early_stopping=False,
)  # fmt: skip


class GraphSum(SequenceToSequence):
    """Encoder-decoder over paragraphs whose attention is biased by a paragraph graph (Li et al. 2020).

    Loss terms: `nll`, the mean over each summary of -log P(y_t), with weight 1 - epsilon, and `smoothing`, the mean
    over the summary and the vocabulary of -log P(v), with weight epsilon; together they are label smoothing.

    The paper's baselines: `encoder: hierarchical`, `encoder: flat`, and `graph: none` of the data (or `graph_encoder`
    and `graph_decoder` false) for GraphSum without a graph.

    Args:
        vocab_size: V, of source, target and output, which share their embedding.
        checkpoint: Hugging Face name or folder of a pretrained encoder, or `minilm`, which replaces the token layers
            and reads the concatenated paragraphs in windows. The DataModule needs the same one.
        freeze_checkpoint: do not train it.
        pretrained_embeddings: initialize the shared embedding with the word embeddings of the checkpoint (except for
            the separators, which it does not have); requires `hidden_size` to equal their width.
        encoder_window: number of tokens of a window, special tokens included; by default its number of positions (512
            for MiniLM and BERT).
        long_input: only `windows`: the pretrained encoder reads long documents in overlapping windows.
        encoder_learning_rate: its peak learning rate; by default that of the paper, 0.002 x 20,000^-0.5.
        encoder_warmup_steps: warm-up steps of its learning rate, which then decreases with step^-0.5.
        encoder: `graph`, `hierarchical` or `flat`.
        hidden_size: D.
        heads: N.
        inner_size: width inside the feed-forward networks.
        token_layers: number of layers within paragraphs (`flat`: over all tokens).
        paragraph_layers: number of layers over paragraphs.
        decoder_layers: number of layers of the decoder.
        dropout: dropout of embeddings, attention weights, feed-forward networks and residual branches.
        norm: `pre` as in the released code, `post` as in the paper.
        sigma: width of the bias by the graph, -(1 - G)^2 / (2 sigma^2).
        learn_sigma: learn sigma, one for each layer.
        sigma_learning_rate: constant learning rate of log sigma; by default that of other parameters, which is small.
        graph_encoder: whether the graph biases the encoder.
        graph_decoder: whether the graph biases the decoder.
        paragraph_positions: whether half of the position embedding encodes the position of the paragraph.
        multi_head_pooling: pool the tokens of a paragraph by attention; otherwise by their mean.
        label_smoothing: epsilon.
        learning_rate: factor of the Noam schedule of other parameters; not used if the config names an optimizer.
        warmup_steps: warm-up steps of the Noam schedule.
        decoding: decoding options; by default those of the paper for Multi-News.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.

    Raises:
        ValueError: if sizes do not match, or an option has an invalid value.
    """

    batch_type = GraphSumBatch

    def __init__(
        self,
        vocab_size: int = 32_000,
        checkpoint: str | None = None,
        freeze_checkpoint: bool = False,
        pretrained_embeddings: bool = False,
        encoder_window: int | None = None,
        long_input: LongInput = "windows",
        encoder_learning_rate: float = 1.4e-5,
        encoder_warmup_steps: int = 20_000,
        encoder: Encoder = "graph",
        hidden_size: int = 256,
        heads: int = 8,
        inner_size: int = 1024,
        token_layers: int = 6,
        paragraph_layers: int = 2,
        decoder_layers: int = 8,
        dropout: float = 0.1,
        norm: Norm = "pre",
        sigma: float = 1.0,
        learn_sigma: bool = False,
        sigma_learning_rate: float | None = None,
        graph_encoder: bool = True,
        graph_decoder: bool = True,
        paragraph_positions: bool = True,
        multi_head_pooling: bool = True,
        label_smoothing: float = 0.1,
        learning_rate: float = 2.0,
        warmup_steps: int = 8000,
        decoding: DecodingOptions | None = None,
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding or MULTI_NEWS, val_summaries)
        self.set_label_smoothing(label_smoothing)
        check_long_input("GraphSum", long_input, ["windows"], "reads documents in windows of encoder_window tokens")
        if encoder_warmup_steps < 1:
            raise ValueError(f"encoder_warmup_steps is at least 1, got {encoder_warmup_steps}")
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps
        self.encoder_window, self.sigma_learning_rate = encoder_window, sigma_learning_rate
        self.encoder_learning_rate, self.encoder_warmup_steps = encoder_learning_rate, encoder_warmup_steps
        pretrained = None
        if checkpoint is not None:
            tokens = Subwords(checkpoint)
            options = {"frozen": freeze_checkpoint, "window": encoder_window, "pad_id": tokens.pad_id}
            pretrained = TextEncoder.pretrained(encoder_path(checkpoint), tokens.special, **options)
            if getattr(pretrained.model, "pooler", None) is not None:
                pretrained.model.pooler = None  # unused, so that it would get no gradient
        self.network = GraphSumNetwork(
            vocab_size=vocab_size,
            encoder=encoder,
            size=hidden_size,
            heads=heads,
            feed_forward=inner_size,
            token_layers=token_layers,
            paragraph_layers=paragraph_layers,
            decoder_layers=decoder_layers,
            dropout=dropout,
            norm=norm,
            sigma=sigma,
            learn_sigma=learn_sigma,
            graph_encoder=graph_encoder,
            graph_decoder=graph_decoder,
            paragraph_positions=paragraph_positions,
            multi_head_pooling=multi_head_pooling,
            pretrained=pretrained,
        )
        if pretrained_embeddings:
            self._copy_embeddings()

    def _copy_embeddings(self) -> None:
        """Initialize the first rows of the embedding with the word embeddings of the pretrained encoder.

        Raises:
            ValueError: if there is no pretrained encoder, or its word embeddings do not fit.
        """
        if self.network.pretrained is None:
            raise ValueError("pretrained_embeddings needs checkpoint, the name or folder of a pretrained encoder")
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
        if self.sigma_learning_rate is not None:
            biases = [module for module in self.modules() if isinstance(module, GraphBias)]
            sigmas = [bias.log_sigma for bias in biases if bias.log_sigma.requires_grad]
            parameters = [parameter for parameter in parameters if not any(parameter is sigma for sigma in sigmas)]
        groups, factors = [{"params": parameters}], [noam_factor(self.network.size, self.warmup_steps)]
        if sigmas:
            groups.append({"params": sigmas, "lr": self.sigma_learning_rate})
            factors.append(lambda step: 1.0)
        if pretrained:
            groups.append({"params": pretrained, "lr": self.encoder_learning_rate})
            rising = {"schedule": "inverse_root", "steps": 0, "warm_up": self.encoder_warmup_steps}
            factors.append(partial(rate_factor, **rising))
        # elsewhere several tensors a kernel are the default; Lightning clips no gradients of a fused one under autocast
        fused = self.device.type == "cpu" and "mixed" not in str(self.trainer.precision)
        optimizer = torch.optim.Adam(groups, lr=self.learning_rate, betas=(0.9, 0.998), eps=1e-9, fused=fused)
        return scheduled(optimizer, factors)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self.network.pretrained is not None:
            checkpoint["encoder_window"] = self.network.pretrained.window

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore as `SequenceToSequence` does.

        Runs of versions without `encoder_window` keep their window of 256 tokens.
        """
        super().on_load_checkpoint(checkpoint)
        pretrained = self.network.pretrained
        if pretrained is not None and self.encoder_window is None:
            pretrained.window = checkpoint.get("encoder_window", min(256, pretrained.window))

    def export(self, folder: Path) -> dict[str, str]:
        """Write a pretrained encoder and its tokenizer to `folder`/encoder, as Hugging Face does."""
        if self.network.pretrained is None:
            return {}
        save_pretrained(folder / "encoder", self.network.pretrained.model, self.tokenizer)
        return {"checkpoint": "encoder"}

    # Training ----------------------------------------------------------------------------------------------------

    def source(self, batch: GraphSumBatch) -> Source:
        """Return the encoder input of a batch.

        Raises:
            ValueError: if the graph does not have the size of the paragraphs; the message has the ids of the documents.
        """
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

    def _output_layer(self) -> tuple[Tensor, Tensor]:
        """Return weight [words, D] and bias [words] of the output layer, for the tokens of the tokenizer only."""
        layer = (self.network.embedding.weight, self.network.output_bias)
        words = self.vocab_size if self.tokenizer is None else len(self.tokenizer)
        return layer if words == self.vocab_size else (layer[0][:words], layer[1][:words])

    def _features(self, batch: GraphSumBatch, inputs: Tensor, rows: Tensor) -> Tensor:
        """Return decoder features of inputs [B, K, T] at the flat positions `rows` [N], [N, D]."""
        memory = self.network.encode(self.source(batch))
        return self.network.decode(inputs, memory).flatten(0, 2)[rows]

    def loss_terms(self, batch: GraphSumBatch) -> dict[str, Tensor]:
        """Return `nll` and `smoothing`: means over the target, then over the documents."""
        rows = batch.target_rows
        features, gold = self._features(batch, batch.target_input.unsqueeze(1), rows), batch.target.flatten()[rows]
        log_probs, means = smoothed_log_probs(features, *self._output_layer(), gold)         # [N]
        terms = {"nll": -log_probs, "smoothing": -means}
        shares = 1 / batch.target_lengths.repeat_interleave(batch.target.shape[1], output_size=batch.target.numel())
        shares = shares[rows] / batch.batch_size                                             # [N]
        return {name: (term * shares).sum() for name, term in terms.items()}

    def token_log_probs(self, batch: GraphSumBatch, tokens: Tensor, rows: Tensor) -> Tensor:
        """Return log P(y_t) of tokens [B, K, T] at the flat positions `rows`, [N]."""
        features = self._features(batch, self.decoder_inputs(tokens), rows)
        return linear_log_prob(features, *self._output_layer(), tokens.flatten()[rows])

    def distribution(self, batch: GraphSumBatch, tokens: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function from flat positions [n] in tokens [B, K, T] to log P of every token there, [n, V]."""
        every = torch.arange(tokens.numel(), device=tokens.device)
        features, layer = self._features(batch, self.decoder_inputs(tokens), every), self._output_layer()
        return lambda rows: vocabulary_logits(features[rows], *layer).log_softmax(-1)

    # Generation --------------------------------------------------------------------------------------------------

    def _step(
        self, tokens: Tensor, state: State, memory: State, count: int | None
    ) -> tuple[Tensor | None, Tensor, State]:
        """Return the network as a `decoding.Step`, whose state is the keys and values of previous positions."""
        past = [KeyValues(state[f"keys{n}"], state[f"values{n}"]) for n in range(len(state) // 2)]
        features, past = self.network.step(tokens, past, Memory.of(memory))                  # [B, K, D]
        if count is None:
            return None, vocabulary_logits(features, *self._output_layer()).log_softmax(-1), as_state(past)
        return *best_words(features, *self._output_layer(), count), as_state(past)

    def begin(self, batch: GraphSumBatch) -> tuple[Step, State, State]:
        """Return the step function of decoding, its initial state, and the memory of the documents."""
        memory = self.network.encode(self.source(batch)).tensors()
        return self._step, as_state(self.network.start(batch.batch_size, batch.source.device)), memory

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


def as_state(past: list[KeyValues]) -> State:
    """Return the keys and values of each layer by name, the form in which decoding reorders them."""
    return {f"{name}{n}": x for n, layer in enumerate(past) for name, x in layer._asdict().items()}
