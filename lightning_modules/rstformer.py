"""RSTformer: Pu, Wang and Demberg, ACL 2023 (arXiv 2305.16784), a LED whose encoder attends with discourse."""


import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor
from transformers import LEDConfig, LEDForConditionalGeneration
from transformers.models.led.modeling_led import LEDEncoderBaseModelOutput

from datamodules.discourse.relations import GUM, GUM_COUNTS
from datamodules.documents import CorpusError
from datamodules.rstformer import RSTformerBatch
from datamodules.text.sentences import split_sentences
from datamodules.text.subword_text import SubwordText
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.networks.discourse_attention import Ablation, DiscourseInjection, Injection, head_relations
from lightning_modules.networks.led import AttentionPath, Discourse, DiscourseLED
from lightning_modules.summarizer import Samples, Summarizer, Summary, evaluating


class RSTformer(Summarizer):
    """A LED with labelled discourse distributions in its encoder's attention, in training and in decoding alike.

    Loss term: `nll`, the mean over each summary of -log P(y_t). The rows of the paper's ablation table are `ablation`;
    data and model are to be given the same one.

    Args:
        vocab_size: tokens; of a pretrained LED at most what it has.
        checkpoint: name or folder of a pretrained LED; its size then takes the place of the next arguments.
        hidden_size: D of a LED from scratch.
        heads: attention heads, in encoder and decoder.
        layers: encoder layers, and as many decoder layers.
        inner_size: of the feed-forward layers.
        window: tokens that a token sees, to both sides together; even.
        positions: tokens of a document, at most.
        target_positions: tokens of a summary, at most.
        dropout: of a LED from scratch, also on attention's inputs, never on its weights.
        injection: how p enters the scores, see `networks.discourse_attention`.
        ablation: see there, and `RSTformerData` for `ria` and `one_best`.
        relations: number of relations of the parser.
        relation_frequency: how often each relation occurs, where there are fewer heads than relations; by default the
            counts of GUM, whose 15 relations the suite's own parser has.
        learn_weights: learn which relations a head looks at, from the map of one relation a head on.
        checkpoint_activations: compute the encoder's and decoder's activations twice, to save memory.
        attention: `chunked`, `fused` (CUDA) or `auto`.
        learning_rate: of AdamW, where the command line names no other optimizer.
        decoding: how summaries are decoded; beam 4, 35 to 120 tokens, mean log-probability if not given.
        val_summaries: validation documents that are summarized at each validation in training; -1 for all.

    Raises:
        ValueError: if there are fewer heads than relations and no frequencies, or decoding asks for `gnmt`.
    """

    def __init__(
        self,
        vocab_size: int = 16_000,
        checkpoint: str | None = None,
        hidden_size: int = 256,
        heads: int = 4,
        layers: int = 2,
        inner_size: int = 1024,
        window: int = 256,
        positions: int = 1024,
        target_positions: int = 256,
        dropout: float = 0.1,
        injection: Injection = "log_bias",
        ablation: Ablation = "none",
        relations: int = 15,
        relation_frequency: list[float] | None = None,
        learn_weights: bool = False,
        checkpoint_activations: bool = False,
        attention: AttentionPath = "auto",
        learning_rate: float = 3e-4,
        decoding: DecodingOptions | None = None,
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding or DecodingOptions(), val_summaries)
        generation_options(self.decoding)
        self.learning_rate, self.ablation = learning_rate, ablation
        if checkpoint is not None:
            led = LEDForConditionalGeneration.from_pretrained(checkpoint)
        else:
            sizes = {"d_model": hidden_size, "encoder_ffn_dim": inner_size, "decoder_ffn_dim": inner_size}
            sizes |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
            sizes |= {"encoder_layers": layers, "decoder_layers": layers, "num_hidden_layers": layers}
            sizes |= {"max_encoder_position_embeddings": positions, "max_decoder_position_embeddings": target_positions}
            sizes |= {"attention_window": [window] * layers, "dropout": dropout, "attention_dropout": 0.0}
            config = LEDConfig(vocab_size=vocab_size, **sizes)
            led = LEDForConditionalGeneration(config)
        heads = led.config.encoder_attention_heads
        if relation_frequency is None and relations == len(GUM.coarse):
            relation_frequency = [float(GUM_COUNTS[name]) for name in GUM.coarse]
        weights = head_relations(heads, relations, relation_frequency)
        if heads < relations and ablation not in ("no_discourse", "no_labels"):
            rank_zero_info(f"{heads} heads look at relations {weights.argmax(1).tolist()} of {relations}")
        table = DiscourseInjection(weights, injection, ablation, learn_weights)
        self.network = DiscourseLED(led, None if ablation == "no_discourse" else table, attention)
        if checkpoint_activations:
            self.network.checkpoint_activations()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=self.learning_rate)

    def use_text(self, text: SubwordText) -> None:
        """Takes a tokenizer.

        Raises:
            CorpusError: if it does not fit `vocab_size` or the model's embedding, or its special symbols are others.
        """
        super().use_text(text)
        config = self.network.led.config
        if len(text) > config.vocab_size:
            raise CorpusError(f"the text has {len(text)} tokens, the pretrained model {config.vocab_size}")
        ids = (text.start, text.pad, text.stop)
        if ids != (config.bos_token_id, config.pad_token_id, config.eos_token_id):
            raise CorpusError(f"<s>, <pad> and </s> are {ids} in the text, and others in the pretrained model")

    # Training ----------------------------------------------------------------------------------------------------

    def discourse(self, batch: RSTformerBatch) -> Discourse | None:
        """The discourse of a batch, None where the model reads none.

        Raises:
            CorpusError: if the batch has none and the model reads it.
        """
        if self.ablation == "no_discourse":
            return None
        if batch.ldd is None:
            raise CorpusError("the model attends with discourse, the data has none: give both the same ablation")
        return Discourse((batch.ldd.float() / 255).square(), batch.token_edu, batch.ids)

    def encode(self, batch: RSTformerBatch) -> LEDEncoderBaseModelOutput:
        """The encoder's states of a batch, with discourse."""
        return self.network.encode(batch.source, batch.source_mask, batch.global_mask, self.discourse(batch))

    def _log_likelihood(self, batch: RSTformerBatch, inputs: Tensor, target: Tensor, real: Tensor) -> Tensor:
        """log P(y_t), 0 at padding: decoder inputs and targets [B, T] -> [B, T]."""
        states, mask = self.encode(batch), batch.source_mask
        logits = self.network.led(
            encoder_outputs=states, attention_mask=mask, decoder_input_ids=inputs, use_cache=False
        ).logits
        log_probs = logits.float().log_softmax(-1).gather(2, target.unsqueeze(-1)).squeeze(-1)
        return log_probs.masked_fill(real == 0, 0)

    def loss_terms(self, batch: RSTformerBatch) -> dict[str, Tensor]:
        """`nll`: the mean over the target, then over the documents."""
        log_probs = self._log_likelihood(batch, batch.target_input, batch.target, batch.target_mask)
        return {"nll": -(log_probs.sum(1) / batch.target_mask.sum(1)).mean()}

    # Generation --------------------------------------------------------------------------------------------------

    def generate(self, batch: RSTformerBatch, options: DecodingOptions) -> Tensor:
        """Token ids of the best hypothesis, the first </s> left out, [B, T]; padded behind the last one."""
        with evaluating(self):
            forbidden = [[word] for word in (self.text.start, self.text.pad)]
            missing = range(len(self.text), self.network.led.config.vocab_size)  # rows of the output without a token
            return self.network.led.generate(
                encoder_outputs=self.encode(batch),
                attention_mask=batch.source_mask,
                bad_words_ids=forbidden + [[word] for word in missing],
                **generation_options(options),
            )[:, 1:]

    def summarize(self, batch: RSTformerBatch) -> list[Summary]:
        """The best hypothesis of each document as sentences."""
        made = self.generate(batch, self.decoding).tolist()
        texts = [self.text.decode(ids) for ids in made]
        return [
            Summary(name, split_sentences(text), references)
            for name, text, references in zip(batch.ids, texts, batch.references)
        ]

    def sample(self, batch: RSTformerBatch, options: DecodingOptions) -> Samples:
        """One generated summary a document without gradient, [B, 1, T]."""
        tokens = self.generate(batch, options)
        ended = (tokens == self.text.stop).long().cumsum(1)
        kept = (ended - (tokens == self.text.stop).long()) == 0
        return Samples(tokens.masked_fill(~kept, self.text.pad).unsqueeze(1), kept.sum(1, keepdim=True))

    def log_probs(self, batch: RSTformerBatch, samples: Samples) -> Tensor:
        """log P of given ids in one teacher-forced pass, [B, K, T]; 0 at padding."""
        rows = []
        for target in samples.tokens.unbind(1):
            inputs = torch.cat([torch.full_like(target[:, :1], self.text.stop), target[:, :-1]], 1)
            rows.append(self._log_likelihood(batch, inputs, target, target != self.text.pad))
        return torch.stack(rows, 1)


def generation_options(options: DecodingOptions) -> dict[str, object]:
    """Hugging Face's names of decoding options.

    Raises:
        ValueError: if the length penalty is `gnmt`, which it does not know.
    """
    if options.length_penalty == "gnmt":
        raise ValueError("decoding.length_penalty gnmt is not there for pretrained decoders: take mean, with alpha")
    common = {"max_new_tokens": options.max_length, "min_new_tokens": options.min_length}
    common |= {"no_repeat_ngram_size": options.no_repeat_ngram, "use_cache": True}
    if options.sample:
        return common | {
            "do_sample": True, "num_beams": 1, "temperature": options.temperature, "top_k": options.top_k,
            "top_p": options.top_p,
        }  # fmt: skip
    penalty = options.alpha if options.length_penalty == "mean" else 0.0
    beams = {"num_beams": options.beam_size, "do_sample": False}
    # early stopping and length penalties are about beams
    return common | beams | (
        {"length_penalty": penalty, "early_stopping": options.early_stopping} if options.beam_size > 1 else {}
    )
