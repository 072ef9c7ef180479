"""Beam search beside that of `transformers`, on a small random encoder-decoder.

Two options have other names or meanings there: without `early_stopping` ours ends when no open hypothesis can become
better, which is `early_stopping="never"` there (`False` is a heuristic that may end too early); `alpha` is their
`length_penalty`, the exponent of the length.
"""

from itertools import product

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from lightning_modules.decoding.beam_search import beam_search
from lightning_modules.decoding.options import DecodingOptions

PAD, START, STOP = 1, 2, 3


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(4)
    config = BartConfig(
        vocab_size=24, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64,
        pad_token_id=PAD, bos_token_id=0, eos_token_id=STOP, decoder_start_token_id=START,
        forced_eos_token_id=None, init_std=0.6,
    )  # fmt: skip
    return BartForConditionalGeneration(config).eval()


@pytest.fixture(scope="module")
def source():
    torch.manual_seed(5)
    return torch.randint(4, 24, (6, 9))


def ours(model, source, options):
    encoded = model.get_encoder()(source).last_hidden_state

    def step(tokens, state, memory, count):
        prefix = torch.cat([state["prefix"], tokens.unsqueeze(-1)], -1)             # [B, K, t]
        B, K, _ = prefix.shape
        hidden = memory["encoded"].repeat_interleave(K, 0)
        logits = model(decoder_input_ids=prefix.flatten(0, 1), encoder_outputs=(hidden,)).logits[:, -1]
        return None, logits.log_softmax(-1).view(B, K, -1), {"prefix": prefix}

    empty = torch.zeros(len(source), 0, dtype=torch.long)
    start = torch.full((len(source),), START)
    return beam_search(step, {"prefix": empty}, {"encoded": encoded}, start, STOP, options, padding=PAD)


# greedy search has neither penalty nor early stopping there
@pytest.mark.parametrize(
    ("beam_size", "alpha", "early_stopping"), [(1, 1.0, True), *product([2, 4], [0.0, 1.0, 2.0], [True, False])]
)
@pytest.mark.parametrize(("ngram", "min_length"), [(0, 0), (2, 0), (0, 4)])
def test_equals_transformers(model, source, beam_size, alpha, early_stopping, ngram, min_length):
    options = DecodingOptions(
        beam_size=beam_size, min_length=min_length, max_length=12, alpha=alpha, no_repeat_ngram=ngram,
        early_stopping=early_stopping,
    )  # fmt: skip
    result = ours(model, source, options)
    arguments = dict(num_beams=beam_size, max_new_tokens=12, min_new_tokens=min_length, no_repeat_ngram_size=ngram)
    if beam_size > 1:
        arguments |= dict(length_penalty=alpha, num_return_sequences=beam_size)
        arguments["early_stopping"] = early_stopping or "never"
    theirs = model.generate(
        source, do_sample=False, output_scores=True, return_dict_in_generate=True, use_cache=False, **arguments
    )
    sequences = theirs.sequences[:, 1:].view(len(source), beam_size, -1)            # without the start symbol
    for row in range(len(source)):
        for k in range(beam_size):
            length = int(result.lengths[row, k])
            assert result.tokens[row, k, :length].tolist() == sequences[row, k, :length].tolist()
            assert sequences[row, k, length:].eq(PAD).all()
    if beam_size > 1:
        torch.testing.assert_close(result.scores.flatten(), theirs.sequences_scores, atol=1e-4, rtol=1e-4)
