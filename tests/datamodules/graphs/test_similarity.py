"""Graphs by similarity and by topic."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import TfidfVectorizer

from datamodules.documents import Document, UserError
from datamodules.graphs import Identity, ParagraphRule, PermutedSimilarity, Similarity, Topic, make_graph
from datamodules.text.content_words import STOP_WORDS, content_stems, words
from tests.datamodules.graphs.made_up import THEMES, assert_is_graph, cluster, paragraphs


@pytest.mark.parametrize("seed", range(5))
def test_equals_scikit_learn_and_may_be_scaled_or_permuted(seed):
    found = paragraphs(*cluster(seed).parts)
    plain, scaled = Similarity()(found), make_graph("scaled_similarity")(found)
    table = TfidfVectorizer(analyzer=content_stems).fit_transform([" ".join(text) for text in found.texts])
    np.testing.assert_allclose(plain, (table @ table.T).toarray(), atol=1e-6)
    # the largest weight is scaled to 1
    np.fill_diagonal(plain, 0)
    expected = plain / plain.max()
    np.fill_diagonal(expected, 1)
    np.testing.assert_allclose(scaled, expected, atol=1e-6)
    assert_is_graph(scaled, len(found), True)
    assert Similarity().settings() == {} != Similarity(scaled=True).settings()  # caches of before stay valid
    # controls have nothing, or the same values elsewhere
    assert Identity()(found).tolist() == np.eye(len(found)).tolist()
    permuted = PermutedSimilarity()(found)
    assert_is_graph(permuted, len(found), True)
    assert sorted(scaled.ravel().tolist()) == sorted(permuted.ravel().tolist())
    assert not np.array_equal(scaled, permuted) and np.array_equal(permuted, PermutedSimilarity()(found))


vocabulary = st.sampled_from(["otter", "Herons", "river", "the", "and", "42", "naïve", "—", "x"])
clusters = st.lists(st.lists(st.lists(vocabulary, max_size=8).map(" ".join), max_size=3), min_size=1, max_size=6)


@given(clusters, st.randoms())
def test_any_cluster_in_any_order(parts, random):
    found = paragraphs(*parts)
    weights = Similarity()(found)
    assert_is_graph(weights, len(found), symmetric=True)
    order = list(range(len(found)))
    random.shuffle(order)
    again = Similarity()(paragraphs(*(found.texts[place] for place in order)))
    np.testing.assert_allclose(again, weights[np.ix_(order, order)], atol=1e-6)


def test_content_words():
    assert words("Don’t say “naïve” in Łódź, 3.5 times.") == ["don't", "say", "naïve", "in", "łódź", "3", "5", "times"]
    assert content_stems("He did n't see Brisbet's 2 otters; a b c.") == ["see", "brisbet", "2", "otter"]
    assert {"the", "don't", "n't"} <= STOP_WORDS and content_stems("") == []
    weights = Similarity()(paragraphs("The otters were swimming.", "It is an otter that swims!", "The heron, though."))
    np.testing.assert_allclose(weights, [[1, 1, 0], [1, 1, 0], [0, 0, 1]], atol=1e-6)


RULE = ParagraphRule(sentences=2)


@pytest.fixture(scope="module")
def graph():
    made = Topic(topics=3, passes=20)
    made.fit(RULE(cluster(seed, (4, 4, 4))) for seed in range(60))
    return made


def test_weights_are_cosines_of_mixtures_which_paragraphs_about_one_theme_share(graph):
    documents = paragraphs(*cluster(100).parts)
    p = graph.mixtures(documents)
    lengths = np.sqrt((p**2).sum(1))
    np.testing.assert_allclose(graph(documents), p @ p.T / np.outer(lengths, lengths), atol=1e-5)
    river, market, sky = map(" ".join, THEMES.values())
    documents = paragraphs(river, market, river, sky, "Unheard-of syllables.")
    weights = graph(documents)
    assert_is_graph(weights, 5, symmetric=True)
    assert weights[0, 2] > 0.99 and max(weights[0, 1], weights[0, 3], weights[1, 3]) < 0.3
    mixtures = graph.mixtures(documents)
    np.testing.assert_allclose(mixtures.sum(1), 1)
    np.testing.assert_allclose(mixtures[4], 1 / 3)  # no term is known


def test_learned_topics_are_reproducible_and_infer_like_the_model_that_learned_them(graph, monkeypatch):
    """Mixtures come from the stored float32 weights alone."""
    models = []
    fit = LatentDirichletAllocation.fit
    monkeypatch.setattr(LatentDirichletAllocation, "fit", lambda self, table: models.append(fit(self, table)) or self)
    made = Topic(topics=3, passes=20)
    made.fit(RULE(cluster(seed, (4, 4, 4))) for seed in range(60))
    cases = paragraphs(*cluster(5).parts)
    counts = made._counts([content_stems(" ".join(text)) for text in cases.texts])
    np.testing.assert_allclose(graph.mixtures(cases), models[0].transform(counts), atol=1e-5)
    assert made.state() == graph.state()


def test_learned_topics_are_stored(graph):
    documents, stored = paragraphs(*cluster(100).parts), json.loads(json.dumps(graph.state()))
    again = Topic(topics=3, passes=20)
    assert again.state() == {} and again.digest() != graph.digest()
    again.load_state(stored)
    assert again.digest() == graph.digest() and (again(documents) == graph(documents)).all()
    assert (pickle.loads(pickle.dumps(graph))(documents) == graph(documents)).all()
    for state, number in ((stored, "3"), ({}, "no")):
        with pytest.raises(UserError, match=f"has {number} topics, not 5"):
            Topic(topics=5).load_state(state)
    with pytest.raises(UserError, match="document 'x': there are no topics yet; call fit or load_state first"):
        Topic()(documents)
    with pytest.raises(ValueError, match="must be at least 1"):
        Topic(topics=0)


def test_terms_of_equal_frequency_have_the_same_order_in_every_process():
    """That in which they occur, and not that of a set, which differs between processes."""
    words = "otter heron lynx river market sky stone bridge"
    graph = Topic(topics=2, max_terms=4)
    graph.fit(ParagraphRule()(Document(str(i), [[words if i < 3 else f"own{i}"]])) for i in range(8))
    assert graph.state()["terms"] == words.split()[:4]
