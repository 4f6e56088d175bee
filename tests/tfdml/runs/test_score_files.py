import pathlib
import types

import numpy as np

from tfdml.runs import score_files
from tfdml.runs.task_options import NearestClassMean, Retrieval


def test_numbers_that_json_has_not_are_null():
    content = {"lda": np.inf, "all": [1.0, -np.inf, {"of": float("nan")}], 2: "text", "no": None}
    assert score_files.finite(content) == {
        "lda": None,
        "all": [1.0, None, {"of": None}],
        "2": "text",
        "no": None,
    }


def test_options_that_change_the_scores_name_the_file():
    model = types.SimpleNamespace(name="x", recipe={}, was_trained_on=lambda _: True)

    def name_of(task, **options):
        return score_files.path_of(task(model="x", split="test", **options), model).name

    assert name_of(Retrieval) == "evaluation.json"
    assert name_of(Retrieval, restarts=5, seed=1) == "evaluation_restarts_5_seed_1.json"
    stored = {"gallery": "large", "index": "stored", "index_parameters": "nprobe=4", "k": 1}
    assert name_of(Retrieval, **stored) == "evaluation_in_large_stored_nprobe_4.json"
    long = {"dataset": "folder", "boxes": "b" * 240 + ".csv", "gallery": "é" * 120}
    names = {name_of(Retrieval, **long), name_of(Retrieval, **long, index="stored")}
    assert len(names) == 2
    for name in names:
        assert name.startswith("evaluation_in_é")
        queries = score_files.queries_path(pathlib.Path(name)).name
        assert queries.endswith("_queries.npz")
        assert max(len(each.encode()) for each in (name, queries)) <= 255
    assert name_of(NearestClassMean, draws=3) == "evaluation_ncm_draws_3.json"
    model.recipe = {"boxes": "annotated"}
    data = {"dataset": "tfds:caltech/birds", "data_dir": "photos", "boxes": "annotated"}
    assert name_of(Retrieval, **data) == "evaluation.json"
    model.was_trained_on = lambda _: False
    assert name_of(Retrieval, **data) == "evaluation_tfds_caltech_birds_photos_in_annotated.json"
