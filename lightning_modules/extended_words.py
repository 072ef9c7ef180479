"""Words of the extended vocabulary, for models that copy: decoder inputs, search and sampling, and text of ids.

Ids below V are vocabulary words, V + k is the k-th word of a document that the vocabulary lacks.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from datamodules.text.words import sentences_of
from lightning_modules.decoding.beam_search import Hypotheses, State, Step, beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.decoding.sampling import rescore, sample
from lightning_modules.networks.extended_output import every_word, sampling_memory
from lightning_modules.networks.output_layer import VocabularySlices
from lightning_modules.summarizer import Samples


def shifted(target: Tensor, vocab_size: int) -> Tensor:
    """Decoder inputs of targets: the start symbol in front, UNK for words outside the vocabulary, [..., T]."""
    inputs = torch.cat([torch.full_like(target[..., :1], START), target[..., :-1]], -1)
    return inputs.masked_fill(inputs >= vocab_size, UNK)


def real_rows(target: Tensor) -> Tensor:
    """Flat positions of the tokens that are not padding, [N]."""
    return (target != PAD).flatten().nonzero().squeeze(1)


def decoding_layer(output: nn.Linear, words: int) -> VocabularySlices:
    """Return an output layer as beam search reads it, a copy of the present weights.

    Make it anew for each batch: weights change between batches in ways that cannot be noticed (`.data.copy_` leaves a
    tensor's version as it is), and a copy costs as much as two of a search's 35 to 120 steps (V = 50,000, one CPU
    core).

    Args:
        output: the output layer, V rows.
        words: number of rows that have a word; those after them are left out.
    """
    return VocabularySlices.of(output.weight[:words], output.bias[:words])


def forbidden_words(options: DecodingOptions) -> tuple[int, ...]:
    """Special symbols that are never generated."""
    return (PAD, START) if options.allow_unknown else (PAD, UNK, START)


def write(
    step: Step,
    state: State,
    memory: State,
    options: DecodingOptions,
    generator: torch.Generator | None = None,
) -> Hypotheses:
    """Beam search or sampling from the start to the end symbol; tokens are extended ids.

    Args:
        state: before the first step, each tensor [B, ...].
        memory: of the documents, with their extended ids as `source`.
    """
    forbidden = forbidden_words(options)
    first = torch.full_like(memory["source"][:, 0], START)
    if options.sample:
        return sample(step, state, memory, first, STOP, options, forbidden, PAD, generator)
    return beam_search(step, state, memory, first, STOP, options, forbidden, PAD)


def drawn_log_probs(
    output: nn.Linear,
    words: int,
    features: Tensor,
    attention: Tensor,
    gate: Tensor | None,
    source: Tensor,
    samples: Samples,
    options: DecodingOptions,
) -> Tensor:
    """Return the log-probabilities of samples under the distribution that `write` draws them from.

    Args:
        output: the output layer, V rows.
        words: how many of its rows have a word.
        features: what it reads at each position, [B, K, T, H].
        attention: from where words are copied, [B, K, T, S].
        gate: logit of the probability to generate, [B, K, T]; None for a model that does not copy.
        source: extended ids of the documents, [B, S].
        samples: extended ids.
        options: those that the samples were drawn with.

    Returns:
        [B, K, T]; 0 behind the samples' lengths.
    """
    positions = samples.tokens[0].numel()  # of a document, K T
    extra = sampling_memory(source, output.out_features)["extra"]

    def distribution(rows: Tensor) -> Tensor:
        at_rows = [None if x is None else x.flatten(0, 2)[rows].unsqueeze(1) for x in (features, attention, gate)]
        memory = {"source": source[rows // positions], "extra": extra}
        return every_word(output, words, *at_rows, memory).squeeze(1)                # [n, V + OOV]

    return rescore(distribution, samples.tokens, samples.lengths, STOP, options, forbidden_words(options))


def words_of(text: Vocabulary, ids: Iterable[int], added: Sequence[str], vocab_size: int) -> list[str]:
    """Words of extended ids of a document, special symbols but the unknown word left out."""
    return text.decode([token for token in ids if token not in (PAD, START, STOP)], added, vocab_size)


def as_sentences(text: Vocabulary, words: list[str]) -> list[str]:
    """Words as sentences that can be read."""
    return [text.detokenize(sentence) for sentence in sentences_of(words)]


def texts_of(text: Vocabulary, samples: Samples, added: Sequence[Sequence[str]], vocab_size: int) -> list[list[str]]:
    """Text of samples [B, K, T], K a document; what stands behind their lengths is left out."""
    return [
        [" ".join(as_sentences(text, words_of(text, ids[:n], own, vocab_size))) for ids, n in zip(rows, lengths)]
        for rows, lengths, own in zip(samples.tokens.tolist(), samples.lengths.tolist(), added)
    ]
