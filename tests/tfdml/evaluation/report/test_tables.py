from tfdml.evaluation.report.tables import comparison_table, named_recalls, without_twins


def test_names_recalls_and_leaves_out_their_twins():
    assert named_recalls({1: 0.5, 10: 0.75}) == {"recall@1": 0.5, "recall@10": 0.75}
    assert without_twins({"ndcg@1": 1, "ndcg@2": 2, "recall@1": 3}) == {"ndcg@2": 2, "recall@1": 3}


def test_a_comparison_leaves_out_what_equals_recall_at_1():
    score = {"score": 0.5, "low": 0.4, "high": 0.6}
    of_run = {"recall@1": score, "precision@1": score, "ndcg@1": score, "map": score}
    comparison = {"runs": {"a": of_run, "b": of_run}, "confidence": 0.95, "left_out": []}
    lines = comparison_table(comparison).splitlines()
    assert [line for line in lines if line in of_run] == ["recall@1", "map"]
