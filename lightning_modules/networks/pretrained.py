"""A pretrained encoder-decoder of Hugging Face's, with what `EncoderDecoder` offers."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

State = dict[str, Tensor]


class PretrainedEncoderDecoder(nn.Module):
    """PEGASUS, BART, T5 or another sequence-to-sequence model, decoded by the suite's own search.

    Its parameters keep their names in `model`: released checkpoints load unchanged, and `model.save_pretrained` writes
    what was trained here.

    Args:
        model: with an encoder, a decoder and an output layer.

    Raises:
        ValueError: if it has no encoder, or does not say what decoding starts with.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        config = model.config
        if not config.is_encoder_decoder or config.decoder_start_token_id is None:
            raise ValueError(f"{config.model_type} is no encoder-decoder with a decoder_start_token_id")
        self.model = model

    @property
    def start(self) -> int:
        """The token that decoding starts with."""
        return self.model.config.decoder_start_token_id

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """States of documents, [B, S] and a mask [B, S] -> [B, S, D].

        Raises:
            ValueError: if a document is longer than the model's positions.
        """
        # T5 has relative positions and no such limit
        most = getattr(self.model.config, "max_position_embeddings", None)
        if most is not None and source.shape[1] > most:
            raise ValueError(f"a document of {source.shape[1]} tokens, {most} positions in the model: lower max_source")
        return self.model.get_encoder()(input_ids=source, attention_mask=mask.long()).last_hidden_state

    def _run(self, states: Tensor, mask: Tensor, inputs: Tensor, past: EncoderDecoderCache | None, keep: bool):
        return self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states), attention_mask=mask.long(),
            decoder_input_ids=inputs, past_key_values=past, use_cache=keep,
        )  # fmt: skip

    def log_prob(
        self, states: Tensor, mask: Tensor, inputs: Tensor, target: Tensor, rows: Tensor, words: int
    ) -> Tensor:
        """log P of targets, teacher-forced; see `EncoderDecoder.log_prob`."""
        logits = self._run(states, mask, inputs, None, False).logits.flatten(0, 1)[rows, :words]
        return logits.float().log_softmax(-1).gather(1, target.flatten()[rows].unsqueeze(1)).squeeze(1)

    def distribution(self, states: Tensor, mask: Tensor, inputs: Tensor, words: int) -> Callable[[Tensor], Tensor]:
        """log P of every token at given positions; see `EncoderDecoder.distribution`."""
        logits = self._run(states, mask, inputs, None, False).logits.flatten(0, 1)[:, :words]
        return lambda rows: logits[rows].float().log_softmax(-1)

    # One position after another ----------------------------------------------------------------------------------

    def begin(self, states: Tensor, mask: Tensor) -> tuple[State, State]:
        """What decoding starts with, see `EncoderDecoder.begin`."""
        first = torch.full_like(mask[:, :1], self.start, dtype=torch.long)
        filled = self._run(states, mask, first, None, True).past_key_values  # for the documents' keys and values
        state: State = {}
        memory: State = {"mask": mask}
        for number, layer in enumerate(filled.cross_attention_cache.layers):
            memory |= {f"keys{number}": layer.keys, f"values{number}": layer.values}
            state |= {f"keys{number}": layer.keys[:, :, :0], f"values{number}": layer.values[:, :, :0]}
        return state, memory

    def stepper(self, words: int):
        """One step of decoding, see `decoding.Step`."""

        def step(tokens: Tensor, state: State, memory: State, count: int | None):
            logits, state = self.step(tokens, state, memory)
            return None, logits[..., :words].float().log_softmax(-1), state

        return step

    def step(self, tokens: Tensor, state: State, memory: State) -> tuple[Tensor, State]:
        """One more position of K hypotheses of each document: [B, K] -> logits [B, K, V], and the longer past."""
        B, K = tokens.shape

        def spread(tensor: Tensor) -> Tensor:
            return tensor.unsqueeze(1).expand(B, K, *tensor.shape[1:]).flatten(0, 1)

        layers = range(len(state) // 2)
        own, cross = DynamicCache(), DynamicCache()
        for number in layers:
            cross.update(spread(memory[f"keys{number}"]), spread(memory[f"values{number}"]), number)
            if state["keys0"].shape[-2]:
                own.update(state[f"keys{number}"].flatten(0, 1), state[f"values{number}"].flatten(0, 1), number)
        mask = spread(memory["mask"])
        # the documents' states are in their keys and values already: only the shape is looked at
        shape = memory["keys0"].new_zeros(1, 1, 1).expand(B * K, mask.shape[1], self.model.config.hidden_size)
        done = self._run(shape, mask, tokens.flatten().unsqueeze(1), EncoderDecoderCache(own, cross), True)
        after: State = {}
        for number in layers:
            layer = done.past_key_values.self_attention_cache.layers[number]
            after |= {f"keys{number}": layer.keys.unflatten(0, (B, K))}
            after |= {f"values{number}": layer.values.unflatten(0, (B, K))}
        return done.logits.view(B, K, -1), after
