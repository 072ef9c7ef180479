"""MatchSum: Zhong et al., Extractive Summarization as Text Matching, ACL 2020 (arXiv 2004.08795)."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.documents import UserError
from datamodules.matchsum import MatchSumBatch
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.encoder_summarizer import EncoderSummarizer
from lightning_modules.extractive.names import Pooling
from lightning_modules.extractive.scoring import Pooler, pool_texts
from lightning_modules.extractive.summary import ExtractiveSummary
from lightning_modules.networks.output_layer import upcast_half
from lightning_modules.networks.passages import sections
from lightning_modules.options import EncoderAdamWOptions, EncoderOptions
from lightning_modules.summarizer import evaluating

Loss = Literal["margin", "soft_labels"]
_CHUNK = 4096  # maximum number of tokens, padding included, that the encoder reads together


class MatchSum(EncoderSummarizer):
    """MatchSum: select the candidate summary c that is most similar to the document D by s_c = cos(v(D), v(c)).

    An extractive model proposes the candidates; one encoder computes all vectors v. The loss terms, averaged over
    documents, are for candidates sorted by their mean ROUGE-1, -2 and -L F against the reference, best first:

    - `candidates`, with `loss: margin` (the paper's): sum over rank gaps i >= 1 of the mean over ranks j of
      max(0, s_{j+i} - s_j + i margin);
    - `candidates`, with `loss: soft_labels`: cross-entropy of softmax(s / scale) with softmax(ROUGE / temperature);
    - `gold`: the mean over candidates of max(0, s_c - s_reference), 0 without a reference.

    Args:
        vocab_size: size of the vocabulary; with a pretrained encoder at least that of its tokenizer.
        encoder: encoder, see `EncoderOptions`.
        pooling: pooling of tokens to a vector: `cls` (the paper's), `mean`, `max` or `self_attention`.
        dropout: dropout of hidden states.
        loss: see above.
        margin: margin between candidates of consecutive ranks.
        temperature: temperature of ROUGE in `soft_labels`.
        scale: temperature of cosines in `soft_labels`.
        proposal_weight: weight of a candidate's mean sentence score by that model, added to its cosine; 0 in the paper.
        order: order of the sentences in a summary: as in the `document`, or by `score` of that model.
        optimizer: options of AdamW; the paper has the schedule `inverse_root`.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.
    """

    batch_type = MatchSumBatch
    validation_names = ("candidates", "gold")

    def __init__(
        self,
        vocab_size: int = 30_522,
        encoder: EncoderOptions = EncoderOptions(),
        pooling: Pooling = "cls",
        dropout: float = 0.1,
        loss: Loss = "margin",
        margin: float = 0.01,
        temperature: float = 0.1,
        scale: float = 0.1,
        proposal_weight: float = 0.0,
        order: Literal["document", "score"] = "document",
        optimizer: EncoderAdamWOptions = EncoderAdamWOptions(),
        val_summaries: int = -1,
    ) -> None:
        super().__init__(vocab_size, DecodingOptions(), val_summaries)  # nothing is decoded
        if margin < 0 or temperature <= 0 or scale <= 0:
            raise ValueError(f"model.margin {margin}: at least 0; temperature {temperature}, scale {scale}: above 0")
        self.loss = loss
        self.margin = margin
        self.temperature = temperature
        self.scale = scale
        self.proposal_weight = proposal_weight
        self.order = order
        self.reader = self.make_reader(encoder, dropout, optimizer, segments=1)  # texts are one segment
        self.pooler = Pooler(pooling, self.reader.size)

    def check_data(self, data: Any) -> None:
        """Check that a DataModule makes this model's batches, and that the encoder can read pieces of its texts."""
        super().check_data(data)
        limit = self.reader.max_tokens
        piece = getattr(data, "piece", 0)  # 0 for a DataModule without pieces
        if limit is not None and piece + 2 > limit:
            raise UserError(
                f"data.piece is {piece}, but with a start and an end symbol the encoder reads at most {limit} tokens; "
                f"lower it to {limit - 2}"
            )

    def vectors(self, rows: Tensor, sizes: Tensor, text: Tensor, count: int) -> Tensor:
        """Return a vector of each of `count` texts, [count, H], the mean over its rows; N rows of token ids are [N, T].

        A long text has several rows. `sizes`: tokens of each row, on the CPU; `text`: index of each row's text, [N].
        """
        # `encode_passages` reads rows of similar length together, which saves padding, as candidates differ in length
        passages = sections(sizes.tolist(), starts=[[0]] * len(rows))  # each row is one passage
        states = self.reader.encode_passages(rows, passages, chunk=_CHUNK)                   # [N, T, H]
        mask = (torch.arange(rows.shape[1]) < sizes[:, None]).to(rows.device, non_blocking=True)  # [N, T]
        pooled = pool_texts(self.pooler, states, mask)                                       # [N, H]
        sums = pooled.new_zeros(count, pooled.shape[1]).index_add(0, text, pooled)           # [count, H]
        row_counts = pooled.new_zeros(count).index_add(0, text, pooled.new_ones(len(text)))
        return sums / row_counts.clamp_min(1).unsqueeze(1)

    def match(self, batch: MatchSumBatch) -> tuple[Tensor, Tensor]:
        """Return cosine similarities to the document: of the candidates [B, C] and of the reference [B]."""
        documents = self.vectors(batch.documents, batch.document_sizes, batch.document_of, batch.batch_size)
        # texts are candidates and references; their number is not known, but at most the number of their rows
        texts = self.vectors(batch.texts, batch.text_sizes, batch.text_of, count=len(batch.texts))
        documents = F.normalize(upcast_half(documents), dim=-1)                              # [B, H]
        texts = F.normalize(upcast_half(texts), dim=-1)
        candidates = (texts[batch.slots] * documents.unsqueeze(1)).sum(-1)  # `slots`, `gold`: indices of texts; [B, C]
        return candidates, (texts[batch.gold] * documents).sum(-1)

    def loss_terms(self, batch: MatchSumBatch) -> dict[str, Tensor]:
        """Return the losses `candidates` and `gold` of the class, means over documents with up to C candidates."""
        scores, gold = self.match(batch)  # similarities of candidates and of the reference, [B, C] and [B]
        gains = batch.gains.to(scores)  # mean ROUGE F of the candidates, [B, C]
        has_reference = batch.mask & batch.has_gold.unsqueeze(1)  # candidates of documents with a reference, [B, C]
        if self.loss == "margin":
            ranking = margin_loss(scores, gains, batch.mask, self.margin)
        else:
            # -1e4 rather than -inf, which would make the loss of a document without candidates NaN
            target = (gains / self.temperature).masked_fill(~batch.mask, -1e4).softmax(1)
            log_probs = (scores / self.scale).masked_fill(~batch.mask, -1e4).log_softmax(1)
            ranking = -(target * log_probs).masked_fill(~batch.mask, 0).sum(1)
        excess = (scores - gold.unsqueeze(1)).clamp_min(0).masked_fill(~has_reference, 0)
        gold_term = excess.sum(1) / has_reference.sum(1).clamp_min(1)                        # [B]
        return {"candidates": ranking.mean(), "gold": gold_term.mean()}

    def summarize(self, batch: MatchSumBatch) -> list[ExtractiveSummary]:
        """Return the best candidate of each document; a sentence has the score of the best candidate with it, or 0."""
        with evaluating(self):
            scores = self.match(batch)[0]                                                    # [B, C]
            scores = scores + self.proposal_weight * batch.prior.to(scores)  # `prior`: mean score by proposing model
            best = scores.masked_fill(~batch.mask, float("-inf")).argmax(1).tolist()
        summaries = []
        for number, (best_candidate, candidate_scores) in enumerate(zip(best, scores.tolist())):
            # candidates as indices of sentences, the sentences, and their scores by the model that proposed candidates
            candidates, sentences, proposed = batch.choices[number], batch.sentences[number], batch.proposed[number]
            chosen = candidates[best_candidate]
            if self.order == "score":
                chosen = sorted(chosen, key=lambda index: (-proposed[index], index))  # highest first
            sentence_scores = [0.0] * len(sentences)
            for score, candidate in sorted(zip(candidate_scores, candidates)):  # not padding; better ones overwrite
                for index in candidate:
                    sentence_scores[index] = score
            name, references = batch.ids[number], batch.references[number]
            summaries.append(ExtractiveSummary.of(name, references, sentences, chosen, sentence_scores))
        return summaries


def margin_loss(scores: Tensor, gains: Tensor, mask: Tensor, margin: float) -> Tensor:
    """Return the sum over rank gaps i >= 1 of the mean over ranks j of max(0, s_{j+i} - s_j + i margin), [B].

    Candidates are ranked by descending gain (their ROUGE); ties keep their order. Fewer than two give 0. Scores s,
    gains and the mask, which is True at candidates, are [B, C].
    """
    order = gains.masked_fill(~mask, float("-inf")).argsort(dim=1, descending=True, stable=True)  # [B, C]
    ranked, is_candidate = scores.gather(1, order), mask.gather(1, order)                    # [B, C]
    positions = torch.arange(scores.shape[1], device=scores.device)
    gap = positions.unsqueeze(0) - positions.unsqueeze(1)                                    # i at [j, j + i], [C, C]
    pairs = is_candidate.unsqueeze(1) & is_candidate.unsqueeze(2) & (gap > 0)                # [B, C, C]
    excess = (ranked.unsqueeze(1) - ranked.unsqueeze(2) + margin * gap).clamp_min(0)  # s_{j+i} - s_j + i margin
    count = (mask.sum(1)[:, None, None] - gap).clamp_min(1)                                  # number of j with this gap
    return (excess / count).masked_fill(~pairs, 0).sum((1, 2))
