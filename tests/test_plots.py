"""Figures: what is drawn is a row of the trace, each names its device, greyscale works."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.patches import Rectangle

from course_lib import plots
from course_lib.pipeline_model import PipelineModel


def measured(device="virtual", label="virtual GPU", stages=2):
    model = PipelineModel(900, 650, stages, 12, 40, issue="after_reuse")
    return replace(model.timeline(), device=device, device_label=label)


def bars(axes):
    return [p for p in axes.patches if isinstance(p, Rectangle) and p.get_gid()]


def check_bars(axes, timeline, origin_row):
    """Every bar is a row: same kind, same place, same length."""
    origin = origin_row.start
    for bar in bars(axes):
        row = timeline.intervals[int(bar.get_gid().split(":")[1])]
        assert bar.get_x() == pytest.approx(row.start - origin)
        assert bar.get_width() == pytest.approx(row.cycles)
        assert bar.get_facecolor() == colors.to_rgba(plots.STYLES[row.kind].face)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_every_interval_drawn_is_a_row_and_every_row_is_drawn(stages):
    timeline = measured(stages=stages)
    figure = timeline.plot(tiles=12)
    axes = figure.axes[0]
    numbers = sorted(int(bar.get_gid().split(":")[1]) for bar in bars(axes))
    assert numbers == list(range(len(timeline)))
    check_bars(axes, timeline, timeline.intervals[0])


def test_a_window_shows_its_tiles_only_and_counts_from_its_first_read():
    timeline = measured()
    axes = timeline.plot(tiles=(4, 7)).axes[0]
    rows = [timeline.intervals[int(b.get_gid().split(":")[1])] for b in bars(axes)]
    assert sorted((r.tile, r.kind) for r in rows) == sorted(
        (t, k) for t in (4, 5, 6) for k in ("load", "wait", "read", "reuse")
    )
    first = next(r for r in rows if r.kind == "read" and r.tile == 4)
    check_bars(axes, timeline, first)
    assert "read of tile 4" in axes.get_xlabel()


def test_the_model_stands_below_on_the_same_axis():
    timeline, model = measured(), PipelineModel(900, 650, 2, 12, 40)
    above, below = timeline.plot(model=model, tiles=6).axes
    assert above.get_xlim() == below.get_xlim()
    check_bars(below, model.timeline(), model.timeline().intervals[0])
    assert len(bars(below)) == 24
    assert "virtual" in above.get_title(loc="left") and "model" in below.get_title(loc="left")


def test_a_window_without_tiles_is_refused():
    with pytest.raises(ValueError, match="tiles 0 to 11"):
        measured().plot(tiles=(12, 14))


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda a: a.get_gid() == "device")]


@pytest.mark.parametrize(
    ("device", "label", "words"),
    [
        ("virtual", "virtual GPU", "virtual GPU, virtual cycles"),
        ("gpu", "NVIDIA H200", "NVIDIA H200, measured"),
    ],
)
def test_every_figure_names_its_device(device, label, words):
    assert texts(measured(device, label).plot()) == [words]
    others = [
        plots.draw_ratios(
            ["a", "b"], [1, 0.5], [1, 0.4], [1, 0.6], words=["1", "0.5"], xlabel="x",
            device_words=words,
        ),
        plots.draw_curves([1, 2], {"y": [3, 4]}, xlabel="x", ylabel="y", device_words=words),
        plots.draw_lines_of_source([("1  f();", 3.0)], xlabel="cycles", device_words=words),
    ]  # fmt: skip
    assert all(texts(figure) == [words] for figure in others)


def lightness(color):
    """CIE L* of a colour, which is what is left of it in greyscale."""
    rgb = np.array(colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    y = float(linear @ [0.2126, 0.7152, 0.0722])
    return 116 * y ** (1 / 3) - 16


def test_kinds_differ_in_lightness_or_hatching():
    levels = sorted(lightness(style.face) for style in plots.STYLES.values())
    assert min(np.diff(levels)) > 12
    assert len({style.hatch for style in plots.STYLES.values()}) >= 3


def test_text_on_bars_is_readable():
    for style in plots.STYLES.values():
        assert abs(lightness(style.face) - lightness(style.text)) > 40


def test_ratio_bars_have_the_length_and_interval_of_their_numbers():
    figure = plots.draw_ratios(
        ["a", "b"], [1.0, 0.5], [1.0, 0.4], [1.0, 0.7], words=["", ""], xlabel="x",
        device_words="here",
    )  # fmt: skip
    axes = figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [1.0, 0.5]
    segments = axes.collections[0].get_segments()
    assert np.allclose(segments[1][:, 0], [0.4, 0.7])


def test_a_figure_shows_itself_in_a_notebook():
    from PIL import Image

    image = Image.open(io.BytesIO(measured().plot()._repr_png_()))
    assert image.size[0] == 1100


def test_a_stage_lane_shows_the_loads_of_every_warp_and_a_warp_lane_its_own_rows():
    one = measured()
    rows = [
        row._replace(warp=warp, start=row.start + warp, end=row.end + 9 * warp)
        for row in one.intervals
        for warp in range(3)
    ]
    timeline = replace(one, intervals=rows)
    axes = timeline.plot(tiles=12).axes[0]
    drawn = {int(bar.get_gid().split(":")[1]) for bar in bars(axes)}
    wanted = {
        number
        for number, row in enumerate(timeline.intervals)
        if row.kind == "load" or row.warp == 0
    }
    assert drawn == wanted
    check_bars(axes, timeline, timeline.intervals[0])
    both = timeline.plot(tiles=12, warps=[0, 2]).axes[0]
    names = [label.get_text() for label in both.get_yticklabels()]
    assert names == ["stage 0", "stage 1", "warp 0 of 3", "warp 2 of 3"]


def test_a_figure_is_called_after_its_kernel_and_its_legend_has_no_blank_swatch():
    figure = replace(measured(), kernel_name="ring").plot()
    assert figure.get_suptitle() == "ring"
    assert replace(measured(), kernel_name="ring").plot(title="mine").get_suptitle() == "mine"
    legend = figure.legends[0]
    assert all(patch.get_facecolor()[3] > 0 for patch in legend.get_patches())
    assert "tiles" in legend.get_title().get_text()
