import numpy as np

from tfdml.runs.scoring import output


def test_numbers_that_json_has_not_are_null():
    content = {"lda": np.inf, "all": [1.0, -np.inf, {"of": float("nan")}], 2: "text", "no": None}
    assert output.finite(content) == {
        "lda": None,
        "all": [1.0, None, {"of": None}],
        "2": "text",
        "no": None,
    }
