from tfdml.runs.printed import results_text


def test_intervals_stand_beside_their_scores():
    text = results_text({"scores": {"map": 0.25}, "intervals": {"map": (0.125, 0.375)}})
    assert text.splitlines() == [
        "         map  0.2500  [0.1250, 0.3750]",
        "In brackets: 95 % bootstrap intervals over classes.",
    ]
