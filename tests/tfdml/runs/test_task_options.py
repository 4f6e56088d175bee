"""The task that the words of evaluate.py name, and what it rejects of its settings."""

import pytest
from mean_colours import rejection

from tfdml.programs import evaluate


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--task classify",
            "Unknown task 'classify'. Available: audit, compare, ncm",
        ),
        ("--shots 2", "`shots` is an option of the task ncm. Received: task='retrieval'"),
        ("--task ncm --hierarchy x", "`hierarchy` is an option of the task zero_shot"),
        ("--task ncm --report folder", "`report` is an option of the task retrieval"),
        ("--task=ncm --rerank 9", "`rerank` is an option of the task retrieval"),
        ("--renormalize_means", "is an option of the task ncm and zero_shot"),
        ("--task zero_shot --placement.ancestor x", "'ancestor'. Did you mean 'ancestors'?"),
        ("--task open_set --k 2", "`k` is not for the task open_set. Received: k=2"),
        ("--task ncm --false_alarm_rate 0", "is an option of the task open_set"),
        ("--index HNSW32 --rank_by similarity", "`index` is for `rank_by` distance"),
        ("--false_match_rate 0 --task ncm", "is an option of the task retrieval"),
        ("--cluster_by affinity_propagation --nmi=false", "is of the clusters of `nmi`"),
        ("--index_parameters nprobe=2", "`index_parameters` are those of an `index`"),
        ("--cluster_by affinity_propagation --restarts 2", "`restarts` are of k-means"),
        ("--crops 10 --mirror", "10 `crops` have the mirror images already"),
        ("--crops 5 --rank_by similarity", "is for `rank_by` distance"),
        ("--level_weights [0,0,0]", "`level_weights` must be >= 0, and not all 0. Received"),
        ("--level_weights [1,1] --rank_by similarity", "`level_weights` is for `rank_by` distance"),
        ("--whiten", "`whiten` is of the components of `pca`"),
        ("--reciprocal 9 --rank_by similarity", "`reciprocal` is for `rank_by` distance"),
        ("--reciprocal 9 --expand_queries 9", "`expand_queries` changes queries"),
        ("--expansion_alpha 2", "`expansion_alpha` is of `expand_queries`"),
        ("--reciprocal 9 --reciprocal_options.k1 2", "`reciprocal` has no option 'k1'"),
        ("--expand_queries 9 --export x", "with `expand_queries`"),
    ],
)
def test_rejects_what_does_not_go_together(words, message):
    assert message in rejection("model", *words.split())


def test_the_task_is_the_first_word_or_an_option():
    for words in (["ncm", "x"], ["x", "--task", "ncm"], ["--task=ncm", "x"]):
        assert evaluate.task_of(words) == ("ncm", ["x"])
    assert evaluate.task_of(["x", "--k", "5"]) == ("retrieval", ["x", "--k", "5"])
    assert evaluate.task_of(["compare", "a", "b"]) == ("compare", ["a", "b"])
    assert "Unknown task 'ncn'. Did you mean 'ncm'?" in rejection("ncn", "runs/x")


def test_values_are_not_taken_for_options():
    settings = evaluate.parse("ncm", ["saved_models/x", "--out", "report", "--dataset", "folder"])
    assert settings.out == "report"
