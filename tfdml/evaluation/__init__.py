"""Scores of embeddings: NumPy arrays in, Python floats out; TensorFlow is not needed."""

from tfdml.evaluation.approximate import approximate_recall
from tfdml.evaluation.clustering import cluster, clustering_f1, clustering_scores, nmi
from tfdml.evaluation.comparison import (
    ScoredQueries,
    compare,
    load_queries,
    save_queries,
)
from tfdml.evaluation.density import class_density
from tfdml.evaluation.hierarchy import every_nth_child, read_hierarchy
from tfdml.evaluation.levels import average_views, split_levels, weigh_levels
from tfdml.evaluation.pairs import distance_statistics
from tfdml.evaluation.ranking.by_similarity import scores_to_rank
from tfdml.evaluation.ranking.neighbours import nearest_neighbours
from tfdml.evaluation.ranking.search import apart
from tfdml.evaluation.report.projector import write_projector
from tfdml.evaluation.report.tables import comparison_table
from tfdml.evaluation.reranking import (
    exact_and_reranked_recall,
    recall_after_reranking,
    reranked_neighbours,
)
from tfdml.evaluation.retrieval import (
    map_at_r,
    mean_average_precision,
    mean_reciprocal_rank,
    ndcg_at_k,
    precision_at_k,
    r_precision,
    recall_at_k,
    retrieval_scores,
    retrieval_scores_per_query,
)
from tfdml.evaluation.statistics import (
    bootstrap_intervals,
    class_averages,
    macro_average,
    paired_bootstrap,
)
from tfdml.evaluation.transfer import (
    class_means,
    few_shot_accuracies,
    nearest_class_mean,
    nearest_class_mean_per_query,
    one_per_class_scores,
)
from tfdml.evaluation.verification import (
    calibrate_threshold,
    rates_at_threshold,
    verification_curve,
    verification_scores,
)
from tfdml.evaluation.zero_shot import (
    have_relatives,
    zero_shot_accuracy,
    zero_shot_means,
    zero_shot_per_query,
)

__all__ = [
    "ScoredQueries",
    "apart",
    "approximate_recall",
    "average_views",
    "bootstrap_intervals",
    "calibrate_threshold",
    "class_averages",
    "class_density",
    "class_means",
    "cluster",
    "clustering_f1",
    "clustering_scores",
    "compare",
    "comparison_table",
    "distance_statistics",
    "every_nth_child",
    "exact_and_reranked_recall",
    "few_shot_accuracies",
    "have_relatives",
    "load_queries",
    "macro_average",
    "map_at_r",
    "mean_average_precision",
    "mean_reciprocal_rank",
    "ndcg_at_k",
    "nearest_class_mean",
    "nearest_class_mean_per_query",
    "nearest_neighbours",
    "nmi",
    "one_per_class_scores",
    "paired_bootstrap",
    "precision_at_k",
    "r_precision",
    "rates_at_threshold",
    "read_hierarchy",
    "recall_after_reranking",
    "recall_at_k",
    "reranked_neighbours",
    "retrieval_scores",
    "retrieval_scores_per_query",
    "save_queries",
    "scores_to_rank",
    "split_levels",
    "verification_curve",
    "verification_scores",
    "weigh_levels",
    "write_projector",
    "zero_shot_accuracy",
    "zero_shot_means",
    "zero_shot_per_query",
]
