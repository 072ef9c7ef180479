import pytest
import torch
from torch import nn
from torch.testing import assert_close

from lightning_modules.networks.discourse_charts import ChartReader, cut, document_band, document_tree
from lightning_modules.networks.ldd import LabelClasses, band_of
from lightning_modules.networks.span_scorer import DiscourseScorer, Layout

CLASSES = LabelClasses.of(["NS", "SN", "NN"], [0, 1, 0], 2)


def layout_of(size: int) -> Layout:
    place = torch.arange(size).unsqueeze(0)
    return Layout(place // 2, place // 5, torch.full_like(place, 4), torch.tensor([size]))


def reader_with(members: int, **options) -> ChartReader:
    torch.manual_seed(0)
    scorers = nn.ModuleList(DiscourseScorer(6, 8, classes=3, fit_size=2) for _ in range(members)).eval()
    for scorer in scorers:
        for head in (scorer.span_score, scorer.class_score):
            nn.init.normal_(head[-1].weight, std=2.0)  # scores that differ
    return ChartReader(scorers, CLASSES, **options)


@pytest.mark.parametrize("size, cap", [(5, 10), (10, 10), (11, 10), (64, 10), (1000, 7), (9, 2)])
def test_chunks_cover_a_text_in_order_and_keep_to_the_cap(size, cap):
    place = torch.arange(size)
    chunks = cut(place // 2, place // 5, size, cap)
    assert [at for start, end in chunks for at in range(start, end)] == list(range(size))
    assert all(0 < end - start <= cap for start, end in chunks) and (len(chunks) == 1) == (size <= cap)


def test_chunks_begin_where_paragraphs_or_sentences_do():
    place = torch.arange(60)
    assert {start for start, _ in cut(place // 4, place // 12, 60, 30)} <= set(range(0, 60, 12))
    assert {start for start, _ in cut(place // 4, place * 0, 60, 30)} <= set(range(0, 60, 4))


def test_a_mixture_is_the_mean_of_its_members():
    reader, layout, vectors = reader_with(2), layout_of(9), torch.randn(1, 9, 6)
    whole = [(0, 9)]
    (mixture,) = reader.read(vectors, layout, [whole])
    alone = [ChartReader([scorer], CLASSES).read(vectors, layout, [whole])[0] for scorer in reader.scorers]
    for rows in ("side", "nucleus"):
        found, *parts = (document_band(charts, CLASSES, 8, rows) for charts in (mixture, *alone))
        if rows == "side":
            assert_close(found, sum(parts) / 2, atol=1e-6, rtol=0)
        assert found.min() >= 0 and found.max() <= 1


def test_chunked_reading_sums_to_a_distribution_over_nested_trees():
    """Pairs within a chunk have their chunk's distribution, pairs across that of the chart over chunks."""
    reader, layout, vectors = reader_with(1), layout_of(12), torch.randn(1, 12, 6)
    chunks = [(0, 4), (4, 9), (9, 12)]
    (charts,) = reader.read(vectors, layout, [chunks])
    band = document_band(charts, CLASSES, 11, "side")
    for number, (start, end) in enumerate(chunks):
        single = document_band([charts[number]], CLASSES, end - start, "side")
        for a in range(start, end):
            for b in range(start, end):
                assert_close(band[a, 11 + b - a], single[a - start, end - start + b - a])
    over = document_band([charts[-1]], CLASSES, 2, "side")
    for a in range(12):
        for b in range(12):
            units = [next(n for n, (start, end) in enumerate(chunks) if start <= x < end) for x in (a, b)]
            if units[0] != units[1]:
                assert_close(band[a, 11 + b - a], over[units[0], 2 + units[1] - units[0]])
    tree = document_tree(charts, CLASSES)
    assert len(tree) == 11
    spans = {(start, end) for start, _, end in tree[:, :3].tolist()}
    assert {(0, 11), (0, 3), (4, 8), (9, 11)} <= spans


def test_batches_of_different_sizes_say_what_each_alone_says():
    reader = reader_with(1)
    vectors = torch.randn(3, 8, 6)
    place = torch.arange(8).expand(3, -1)
    together = Layout(place // 2, place // 5, torch.full_like(place, 4), torch.tensor([8, 1, 5]))
    found = reader.read(vectors, together, [[(0, 8)], [(0, 1)], [(0, 5)]])
    for row, size in enumerate((8, 1, 5)):
        (alone,) = reader.read(vectors[row : row + 1, :size], layout_of(size), [[(0, size)]])
        one, other = (document_band(charts, CLASSES, 7, "side") for charts in (found[row], alone))
        assert_close(one, other, atol=1e-5, rtol=0)
        assert document_tree(found[row], CLASSES).equal(document_tree(alone, CLASSES))


def test_cky_takes_one_scorer():
    assert reader_with(1, decoding="cky").read(torch.randn(1, 5, 6), layout_of(5), [[(0, 5)]])
    with pytest.raises(ValueError, match="cky needs one scorer, there are 2"):
        reader_with(2, decoding="cky")
    with pytest.raises(ValueError, match="'best' is neither"):
        reader_with(1, decoding="best")


def test_band_of_a_whole_text_is_its_dense_distribution():
    reader, layout = reader_with(1), layout_of(6)
    (charts,) = reader.read(torch.randn(1, 6, 6), layout, [[(0, 6)]])
    wide = document_band(charts, CLASSES, 5, "side")
    dense = torch.stack([wide[a, 5 - a : 11 - a] for a in range(6)])
    assert_close(document_band(charts, CLASSES, 2, "side"), band_of(dense, 2))
