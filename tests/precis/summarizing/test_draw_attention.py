import torch

from lightning_modules.rstformer.attention_maps import EduAttention
from precis.summarizing.draw_attention import cut_off, layer_figure


def maps(edus: int) -> EduAttention:
    values = torch.rand(1, 2, edus, edus, generator=torch.Generator().manual_seed(0))
    return EduAttention(values, values.flip(2))


def test_ticks_are_whole_numbers_of_edus():
    for edus in (2, 3, 40):
        figure = layer_figure(maps(edus), 0, ["Joint", "Cause, " * 20])
        figure.canvas.draw()
        for axes in figure.axes[:6]:
            for axis in (axes.xaxis, axes.yaxis):
                shown = [label.get_text() for label in axis.get_ticklabels() if label.get_text()]
                assert all(float(text.replace("−", "-")).is_integer() for text in shown), shown


def test_omissions_in_drawings_are_reported():
    title = layer_figure(maps(9), 0, most=4).get_suptitle()
    assert title == "layer 1: attention between the first 4 of 9 EDUs"
    note = cut_off(size=500, num_read=300, num_drawn=200)
    assert "reads the first 300 of 500 EDUs" in note and "show the first 200 of these 300 EDUs" in note
    assert "first" not in cut_off(size=9, num_read=9, num_drawn=9)
