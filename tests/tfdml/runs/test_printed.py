from tfdml.runs.printed import results_text, scores_table


def test_tabulates_sets_of_scores_and_nothing_else():
    table = scores_table({"queries": 9, "exact": {"recall@1": 0.5}, "lost": {"recall@1": 0.125}})
    assert [line.split() for line in table.splitlines()] == [
        ["recall@1"],
        ["exact", "0.5000"],
        ["lost", "0.1250"],
    ]


def test_prints_every_part_that_was_measured():
    scores = {"recall@1": 0.5, "precision@1": 0.5, "map": 0.25}
    recalls = {1: 0.5, 2: 0.75}
    text = results_text(
        {
            "scores": scores,
            "levels": {"level 1": {"recall@1": 0.125, "lda": 2.0}},
            "distances": {"lda": 1.5},
            "verification": {
                "false_match_rate": 0.001,
                "roc_auc": 0.875,
                "calibrated": {"threshold": 0.625},
            },
            "reranking": {"queries": 1000, "exact": {"recall@1": 0.5}, "lost": {"recall@1": 0.0}},
            "approximate": {
                "search_seconds": 0.5,
                "exact_search_seconds": 2.0,
                **dict.fromkeys(("exact", "approximate", "lost", "overlap"), recalls),
            },
        }
    )
    assert text.splitlines() == [
        "    recall@1  0.5000",
        "         map  0.2500",
        "",
        "Scores of each level or size, by distance:",
        "           recall@1",
        "level 1      0.1250",
        "",
        "Distances of all pairs, and their LDA score:",
        "lda  1.5000",
        "",
        "Verification of pairs, with a threshold for a false-match rate of 0.001:",
        "roc_auc  0.8750",
        "",
        "With the threshold of the training classes:",
        "threshold  0.6250",
        "",
        "Reranked candidates and a ranking of all images, on 1,000 queries:",
        "           recall@1",
        "exact        0.5000",
        "lost         0.0000",
        "",
        "Approximate search (0.5 s) and exact search (2 s):",
        "             recall@1  recall@2",
        "exact          0.5000    0.7500",
        "approximate    0.5000    0.7500",
        "lost           0.5000    0.7500",
        "overlap        0.5000    0.7500",
    ]


def test_intervals_stand_beside_their_scores():
    text = results_text({"scores": {"map": 0.25}, "intervals": {"map": (0.125, 0.375)}})
    assert text.splitlines() == [
        "         map  0.2500  [0.1250, 0.3750]",
        "In brackets: 95 % bootstrap intervals over classes.",
    ]
