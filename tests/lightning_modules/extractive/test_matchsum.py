import pytest
import torch
from model_options import build_model
from small_extractive import DOCUMENTS, SMALL, TEXT, batch_of
from torch.nn.functional import margin_ranking_loss

from datamodules.corpora import Files, Texts
from datamodules.documents import Document, UserError
from datamodules.matchsum import MatchSumData
from lightning_modules.extractive.matchsum import MatchSum, margin_loss
from lightning_modules.extractive.zero_shot import ZeroShot

DOCUMENTS = [
    *DOCUMENTS[1:3],
    Document("long", [["storm coast town " * 60, "Boats sank.", "Nobody slept."]], [["Boats sank."]]),
    Document("many", [[f"Sentence {number} of many." for number in range(8)]]),
]


def data(keep: int = 3, sizes: tuple[int, ...] = (1, 2), piece: int = 30) -> MatchSumData:
    made = MatchSumData(Texts([]), ZeroShot(), 300, None, keep=keep, sizes=list(sizes), piece=piece)
    made.tokenizer = TEXT
    made._scores = {d.id: row for d, row in zip(DOCUMENTS, made.scorer.sentence_scores(DOCUMENTS))}
    return made


def model(**arguments) -> MatchSum:
    torch.manual_seed(0)
    return build_model(MatchSum, SMALL | arguments)


def loop_over_gaps(scores: torch.Tensor, gains: torch.Tensor, margin: float) -> float:
    ranked = scores[gains.sort(descending=True, stable=True).indices]
    pairs = [(ranked[:-gap], ranked[gap:], torch.ones(len(ranked) - gap), gap) for gap in range(1, len(ranked))]
    return sum(margin_ranking_loss(*pair, margin=gap * margin).item() for *pair, gap in pairs)


@pytest.mark.parametrize("margin", [0.0, 0.01, 0.5])
def test_margin_loss_equals_a_loop_over_gaps(margin):
    torch.manual_seed(0)
    scores, gains = torch.randn(4, 6), torch.rand(4, 6)
    gains[2, :3] = 0.5  # equal ones keep their order
    sizes = [6, 3, 5, 1]
    mask = torch.arange(6) < torch.tensor(sizes)[:, None]
    expected = [loop_over_gaps(scores[b, :n], gains[b, :n], margin) for b, n in enumerate(sizes)]
    assert margin_loss(scores, gains, mask, margin).tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", ["margin", "soft_labels"])
def test_loss_terms_are_means_over_documents(loss):
    made, found = model(loss=loss), data()
    whole = made.loss_terms(batch_of(found, DOCUMENTS))
    each = [made.loss_terms(batch_of(found, [document])) for document in DOCUMENTS]
    for name in ("candidates", "gold"):
        assert whole[name].item() == pytest.approx(sum(terms[name].item() for terms in each) / len(each), abs=1e-5)
    assert each[3]["gold"] == 0  # no reference


def test_all_candidates_are_scored_as_each_would_be_alone():
    made, found = model(pooling="mean").eval(), data()
    batch = batch_of(found, DOCUMENTS)
    scores = made.match(batch)[0]
    for row, document in enumerate(DOCUMENTS):
        texts = [document.sentences, *([document.sentences[i] for i in choice] for choice in batch.choices[row])]
        vectors = []
        for text in texts:
            rows = [torch.tensor([ids]) for ids in found.rows(text)]
            pieces = [made.reader(ids, torch.ones_like(ids).bool())[0].mean(0) for ids in rows]
            vectors.append(torch.stack(pieces).mean(0))
        alone = [torch.cosine_similarity(vectors[0], other, dim=0).item() for other in vectors[1:]]
        assert scores[row, : len(alone)].tolist() == pytest.approx(alone, abs=1e-5)


def test_candidates_are_all_subsets_of_the_best_sentences_and_invalid_values_are_named(corpus_files, tmp_path):
    found = data(keep=3, sizes=(1, 2))
    assert found.choices([0.1, 0.9, 0.5, 0.7]) == [[1], [2], [3], [1, 2], [1, 3], [2, 3]]
    assert found.choices([0.5] * 4) == [[0], [1], [2], [0, 1], [0, 2], [1, 2]]  # of equals the first
    assert found.choices([0.3, 0.4]) == [[0], [1], [0, 1]]  # fewer than asked
    assert data(sizes=(2, 3)).choices([0.3]) == [[0]]  # no such size: the whole document
    assert found.choices([]) == [[]]

    class Short:
        fingerprint = "short"

        def sentence_scores(self, documents):
            return [[0.0] for _ in documents]

    made = MatchSumData(Files(**corpus_files), Short(), 300, None, cache_dir=tmp_path, sizes=[1])
    with pytest.raises(UserError, match=r"Short gave document 'doc-0' 1 scores"):
        made.prepare_data()
    for arguments in ({"keep": 0}, {"keep": 2, "sizes": (3,)}, {"sizes": (0,)}):
        with pytest.raises(ValueError, match="at least 1"):
            data(**arguments)
    with pytest.raises(ValueError, match="margin -1"):
        model(margin=-1)
    small = model()
    small.check_data(data(piece=5000))  # an encoder from scratch reads any length
    small.reader.max_tokens = 32
    small.check_data(data(piece=30))
    with pytest.raises(UserError, match=r"data.piece is 31, .* at most 32 tokens; lower it to 30"):
        small.check_data(data(piece=31))


def test_documents_of_any_kind_are_summarized():
    made = model()
    batch = batch_of(data(), DOCUMENTS)
    for summary, document in zip(made.summarize(batch), DOCUMENTS):
        assert 1 <= len(summary.positions) <= 2
        assert summary.sentences == [document.sentences[at] for at in summary.positions]
        assert len(summary.sentence_scores) == len(document.sentences)
    of_none = data()
    of_none._scores["none"] = []
    batch = batch_of(of_none, [Document("none", [])])
    assert made.summarize(batch)[0].sentences == [] and all(term == 0 for term in made.loss_terms(batch).values())
    wanting = data(sizes=(3,))
    assert [len(summary.positions) for summary in made.summarize(batch_of(wanting, DOCUMENTS))] == [1, 3, 3, 3]
    by_score = model(order="score").summarize(batch_of(wanting, DOCUMENTS))
    ranks = [wanting._scores["many"][at] for at in by_score[3].positions]
    assert ranks == sorted(ranks, reverse=True)
    single = data(sizes=(1,))
    for summary in model(proposal_weight=1e6).summarize(batch_of(single, DOCUMENTS)):  # the proposer decides
        scores = single._scores[summary.id]
        assert [scores[position] for position in summary.positions] == [pytest.approx(max(scores))]  # two may be equal
