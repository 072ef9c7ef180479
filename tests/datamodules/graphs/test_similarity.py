
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from datamodules.graphs import Identity, PermutedSimilarity, Similarity, make_graph
from datamodules.text.content_words import STOP_WORDS, content_stems, words
from tests.datamodules.graphs.made_up import assert_is_graph, cluster, paragraphs


@pytest.mark.parametrize("seed", range(5))
def test_equals_scikit_learn(seed):
    found = paragraphs(*cluster(seed).parts)
    weights = Similarity()(found)
    table = TfidfVectorizer(analyzer=content_stems).fit_transform([" ".join(text) for text in found.texts])
    np.testing.assert_allclose(weights, (table @ table.T).toarray(), atol=1e-6)


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


@pytest.mark.parametrize("seed", range(3))
def test_scaled_weights_have_a_largest_one_of_1(seed):
    found = paragraphs(*cluster(seed).parts)
    plain, scaled = Similarity()(found), make_graph("scaled_similarity")(found)
    np.fill_diagonal(plain, 0)
    expected = plain / plain.max()
    np.fill_diagonal(expected, 1)
    np.testing.assert_allclose(scaled, expected, atol=1e-6)
    assert_is_graph(scaled, len(found), True)
    assert Similarity().settings() == {} != Similarity(scaled=True).settings()  # caches of before stay valid


def test_controls_have_nothing_or_the_same_values_elsewhere():
    found = paragraphs(*cluster(1).parts)
    assert Identity()(found).tolist() == np.eye(len(found)).tolist()
    plain, permuted = Similarity(scaled=True)(found), PermutedSimilarity()(found)
    assert_is_graph(permuted, len(found), True)
    assert sorted(plain.ravel().tolist()) == sorted(permuted.ravel().tolist())
    assert not np.array_equal(plain, permuted) and np.array_equal(permuted, PermutedSimilarity()(found))
