"""The picture."""

import pytest
from made_up import comparison
from PIL import Image

from phyb.reproduce.tables import draw


@pytest.mark.parametrize("rough", [False, True])
def test_the_picture_names_every_row_and_says_if_it_is_rough(tmp_path, rough):
    svg, png = tmp_path / "table2.svg", tmp_path / "table2.png"
    draw(comparison(rough), [svg, png])
    text = svg.read_text()
    assert all(word in text for word in ("PhyB", "CQL", "BC", "exact optimum, 101.8", "behaviour", "the paper, mean"))
    assert ("ROUGH" in text) is rough
    with Image.open(png) as image:
        assert min(image.size) > 300


def test_rows_without_runs_can_be_drawn(tmp_path):
    draw(comparison(phyb=(), bc=(1.0,)), [tmp_path / "table2.svg"])
    assert "PhyB" in (tmp_path / "table2.svg").read_text()
