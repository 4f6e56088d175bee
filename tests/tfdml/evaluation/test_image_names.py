"""The names of images in what an evaluation leaves to look at."""

import json

import numpy as np
import pytest

from tfdml.evaluation import load_queries, save_queries, write_projector
from tfdml.evaluation.report import plots
from tfdml.evaluation.report.page import write_report

LABELS, NAMES = np.array([4, 4, 9]), ["a/1.png", "a/2 $x$.png", "b/a very long name  of a file.png"]
PICTURES = np.zeros((3, 8, 8), np.uint8)


def page_of(folder, **options):
    values = {"recall@1": [1, 1, 0]}
    named = {"title": "Three", "scores": {"recall@1": 0.5}, "per_query": values, **options}
    page = write_report(np.eye(3), LABELS, folder, picture_of=PICTURES.__getitem__, **named)
    return page.read_text()


def test_the_page_names_its_pictures_and_the_untrained_scores(tmp_path):
    names = np.array(NAMES)  # or a list
    page = page_of(tmp_path, image_names=names, untrained={"recall@1": 0.125, "other": 1})
    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["images"] == NAMES
    assert "untrained 0.1250" in page
    with pytest.raises(ValueError, match=r"`image_names` .* Received: image_names=2, rows=3"):
        page_of(tmp_path, image_names=NAMES[:2])


@pytest.mark.parametrize("class_names", [None, {4: "four"}])
def test_the_projector_names_its_rows(class_names, tmp_path):
    write_projector(tmp_path, np.eye(3), LABELS, class_names=class_names, image_names=NAMES)
    rows = (tmp_path / "metadata.tsv").read_text().splitlines()
    columns = [row.split("\t") for row in rows]
    assert columns[0] == ["label", *(["class_name"] if class_names else []), "image"]
    assert [row[-1] for row in columns[1:]] == [*NAMES[:2], "b/a very long name of a file.png"]
    with pytest.raises(ValueError, match=r"`image_names` .* Received: image_names=2, rows=3"):
        write_projector(tmp_path, np.eye(3), LABELS, image_names=NAMES[:2])


def test_the_values_of_queries_carry_their_ids(tmp_path):
    path = tmp_path / "queries.npz"
    save_queries(path, {"map": [1.0, 0.5, 0.0]}, LABELS, images={}, ids=NAMES)
    assert load_queries(path).ids.tolist() == NAMES
    assert list(load_queries(path).values) == ["map"]
    with pytest.raises(ValueError, match=r"`ids` .* Received: ids=2, labels=3"):
        save_queries(path, {"map": [1.0, 0.5, 0.0]}, LABELS, images={}, ids=NAMES[:2])
    save_queries(path, {"map": [1.0, 0.5, 0.0]}, LABELS, images={})
    assert load_queries(path).ids is None


def test_pictures_of_retrievals_bear_the_ends_of_names(tmp_path):
    path = tmp_path / "retrievals.png"
    options = {"similarity": None, "queries": [2], "names": NAMES}
    figure = plots.plot_retrievals(PICTURES, np.eye(3), LABELS, path, **options)
    assert [axes.get_title() for axes in figure.axes] == [NAMES[2][-20:], *NAMES[:2]]
