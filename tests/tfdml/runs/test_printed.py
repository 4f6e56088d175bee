from tfdml.runs.printed import results_text, scores_table


def test_tabulates_sets_of_scores_and_nothing_else():
    table = scores_table({"queries": 9, "exact": {"recall@1": 0.5}, "lost": {"recall@1": 0.125}})
    assert [line.split() for line in table.splitlines()] == [
        ["recall@1"],
        ["exact", "0.5000"],
        ["lost", "0.1250"],
    ]


def test_intervals_stand_beside_their_scores():
    text = results_text({"scores": {"map": 0.25}, "intervals": {"map": (0.125, 0.375)}})
    assert text.splitlines() == [
        "         map  0.2500  [0.1250, 0.3750]",
        "In brackets: 95 % bootstrap intervals over classes.",
    ]
