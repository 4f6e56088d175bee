"""Retrieval: what images find among each other, or queries in a gallery."""

import dataclasses
import warnings
from typing import Any, ClassVar

import pipelines
from tfdml.checks import check, check_one_of, check_positive, check_share
from tfdml.runs.scoring.images import has_pairs_of_both_kinds, training_split
from tfdml.runs.scoring.model import similarity_of, untrained_scores
from tfdml.runs.scoring.settings import Scoring

COMPARED_QUERIES = 1000  # ranked exactly too, to measure what `rerank` loses


@dataclasses.dataclass(frozen=True)
class Retrieval(Scoring):
    """What each image finds among the others, or queries in the gallery of a dataset with one.

    Args:
        rank_by: `distance`, the default without `rerank`, which is Euclidean, between embeddings as
            the model gives them or as `level_weights` makes them, with mean, variance and LDA score
            of it over all pairs; or `similarity`: the score that the model learned, of every pair
            of images. It needs a loss that learns a similarity, such as `--loss pddm`.
        rerank: Rank by the learned similarity only this many images per query, the nearest by
            distance, as for large galleries. Also measures the recall that this loses, on at most
            1,000 queries.
        nmi: Also cluster, and compare the clusters with the classes by NMI, AMI and the F1 of
            pairs.
        cluster_by: `kmeans`; or `affinity_propagation`, of at most 10,000 images.
        restarts: Number of k-means restarts; the best is kept.
        false_match_rate: Also score verification, whether a distance threshold decides that two
            images are of one class: ROC AUC, equal error rate, and the true match rate at this
            false match rate, such as 0.001. Where the model was trained on the same images, also
            the rates of the threshold that the training classes give. For `rank_by` distance.
        index: Also search by an index of faiss, such as `HNSW32` or `IVF64,Flat`, and measure the
            recall that it loses (`pip install -e ".[search]"`).
        index_parameters: Of the index, such as `nprobe=16` or `efSearch=64`.
        report: Folder for a page to look at, `index.html`: the scores, a map, what queries find,
            which classes are confused. Also for pictures to print, `score_distributions.png` and
            `retrievals.png`, and for TensorBoard's projector, `projector/`.
        export: Folder of a new model: the one that is scored, of a run that is beside it, is also
            written as its next version, with `export_options`, `export_classes` and
            `export_gallery`; with the Recall@1 of rounded weights beside that of the scored model.
            For `rank_by` distance.
        export_options: Options of the export, such as `--export_options.precision int8`; the
            docstring of `tfdml.serving.ExportOptions` lists them. Those of the scored model, but
            for the precision, where not given.
        export_classes: Give the exported model a signature `classify`, which finds the nearest
            means of the scored classes; of a dataset with a gallery, those of its images.
        export_gallery: Give it a signature `neighbours`, which finds the nearest of the scored
            images, 100,000 at most; of a dataset with a gallery, of its images.
    """

    task: ClassVar[str] = "retrieval"
    neighbours: ClassVar[tuple] = (1, 2, 4, 8)

    rank_by: str | None = None
    rerank: int | None = None
    nmi: bool = True
    cluster_by: str = "kmeans"
    restarts: int = 1
    false_match_rate: float | None = None
    index: str | None = None
    index_parameters: str | None = None
    report: str | None = None
    export: str | None = None
    export_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    export_classes: bool = False
    export_gallery: bool = False

    def __post_init__(self):
        if self.rank_by is None:
            ranking = "distance" if self.rerank is None else "similarity"
            object.__setattr__(self, "rank_by", ranking)
        super().__post_init__()
        if self.rerank is not None:
            check(
                self.rank_by == "similarity",
                "`rerank` orders images by the learned similarity: leave out `rank_by`",
                rank_by=self.rank_by,
                rerank=self.rerank,
            )
            check(
                self.rerank >= max(self.counts),
                "`rerank` must be >= `k`",
                rerank=self.rerank,
                k=self.k,
            )
        self._check_clusters()
        self._check_export()
        if self.false_match_rate is not None:
            check_share(false_match_rate=self.false_match_rate)
        for name in ("index", "false_match_rate"):
            value = getattr(self, name)
            check(
                value is None or self.rank_by == "distance",
                f"`{name}` is for `rank_by` distance",
                rank_by=self.rank_by,
                **{name: value},
            )
        check(self.index != "", "`index` must be a name of faiss, such as HNSW32", index="")
        check(
            self.index is not None or self.index_parameters is None,
            "`index_parameters` are those of an `index`",
            index_parameters=self.index_parameters,
        )

    def _check_clusters(self):
        check_positive(restarts=self.restarts)
        check_one_of(("kmeans", "affinity_propagation"), cluster_by=self.cluster_by)
        check(
            self.cluster_by == "kmeans" or self.restarts == 1,
            "`restarts` are of k-means",
            cluster_by=self.cluster_by,
            restarts=self.restarts,
        )
        check(
            self.nmi or (self.cluster_by == "kmeans" and self.restarts == 1),
            "`cluster_by` and `restarts` are of the clusters of `nmi`",
            nmi=self.nmi,
            cluster_by=self.cluster_by,
            restarts=self.restarts,
        )

    def _check_export(self):
        for name in ("export_options", "export_classes", "export_gallery"):
            value = getattr(self, name)
            check(
                self.export is not None or not value,
                f"`{name}` is an option of `export`",
                export=self.export,
                **{name: value},
            )
        changes = {
            "rank_by": "distance",
            "crops": 1,
            "mirror": False,
            "levels": None,
            "level_weights": None,
        }
        for name, usual in changes.items():
            value = getattr(self, name)
            check(
                self.export is None or value == usual,
                f"`export` is of a model that is scored as it is served, with `{name}` {usual}",
                export=self.export,
                **{name: value},
            )

    @property
    def words(self):
        if self.rank_by == "distance":
            return []
        return [f"rerank_{self.rerank}" if self.rerank else "similarity"]

    @property
    def ranking(self):
        if self.rerank:
            return f",\nthe {self.rerank:,} nearest of each ranked by the learned similarity"
        return ",\nranked by the learned similarity" * (self.rank_by == "similarity")

    def most_neighbours(self, split, queries):
        findable = pipelines.rows_to_find(split, queries)
        check(
            self.rerank is None or self.rerank <= findable,
            "`rerank` must not exceed the images that a query can find",
            rerank=self.rerank,
            images=findable,
        )
        if self.k is None and self.rerank:
            findable = min(findable, self.rerank)
        return "neighbours", findable

    def score(self, model, images):
        """{"scores": {name: value}} with more beside it; "per_query" and "embeddings" as arrays."""
        from tfdml import evaluation

        labels, of_levels = images.split.labels, model.embed(self, images.split)
        embeddings = model.joined(self, of_levels)
        results = self._ranked(model, images, embeddings)
        results["scores"].update(self._clustered(embeddings, labels))
        if self.rank_by == "distance" and has_pairs_of_both_kinds(labels):
            results["distances"] = evaluation.distance_statistics(embeddings, labels)
        if model.levels > 1:
            results["levels"] = self._levels_alone(model, images, of_levels)
        if self.false_match_rate is not None and has_pairs_of_both_kinds(labels):
            results["verification"] = self._verified(model, images, embeddings)
        untrained = untrained_scores(self, model)
        if untrained:
            results["untrained"] = untrained
        if images.queries is not None:
            queries = int(images.queries.sum())
            results["images"] = {"queries": queries, "gallery": len(labels) - queries}
        return {**results, "embeddings": embeddings}

    def _ranked(self, model, images, embeddings):
        """Scores, "intervals" at 95 % over classes, and "macro", the means over classes.

        With `rerank` recalls alone and "reranking", what it loses.
        """
        from tfdml import evaluation
        from tfdml.evaluation.report.tables import named_recalls

        data, gallery = evaluation.apart(embeddings, images.split.labels, images.queries)
        if self.rerank:
            signature = model.signatures["score_pairs"]
            recalls = evaluation.recall_after_reranking(
                *data,
                self.k,
                similarity=similarity_of(signature, len(data[1]) * self.rerank),
                candidates=self.rerank,
                **gallery,
            )
            lost = self._lost_by_reranking(signature, *data, gallery)
            return {"scores": named_recalls(recalls), "reranking": lost}
        similarity = None
        if self.rank_by == "similarity":
            pairs = evaluation.scores_to_rank(len(images.split.labels))
            if images.queries is not None:
                pairs = len(data[1]) * len(gallery["gallery_labels"])
            similarity = similarity_of(model.signatures["score_matrix"], pairs)
        per_query = evaluation.retrieval_scores_per_query(
            *data, self.k, similarity=similarity, **gallery
        )
        results = {
            "scores": {name: float(values.mean()) for name, values in per_query.items()},
            "macro": {
                name: evaluation.macro_average(values, data[1])
                for name, values in per_query.items()
            },
            "per_query": per_query,
        }
        if len(set(data[1].tolist())) > 1:
            results["intervals"] = evaluation.bootstrap_intervals(
                per_query, data[1], seed=self.seed
            )
        if self.index:
            results["approximate"] = evaluation.approximate_recall(
                *data,
                self.k,
                index=self.index,
                parameters=self.index_parameters,
                seed=self.seed,
                **gallery,
            )
        return results

    def _lost_by_reranking(self, signature, embeddings, labels, gallery):
        """Recalls of a sample of queries by the learned similarity to all images, and reranked."""
        from tfdml import evaluation
        from tfdml.evaluation.report.tables import named_recalls

        queries = min(COMPARED_QUERIES, len(labels))
        findable = len(gallery["gallery_labels"]) if gallery else len(labels) - 1
        with warnings.catch_warnings():
            # Of queries without a relevant row it was warned before.
            warnings.simplefilter("ignore", UserWarning)
            exact, reranked = evaluation.exact_and_reranked_recall(
                embeddings,
                labels,
                k=self.k,
                similarity=similarity_of(signature, queries * (findable + self.rerank)),
                candidates=self.rerank,
                queries=queries,
                seed=self.seed,
                **gallery,
            )
        lost = {k: exact[k] - reranked[k] for k in exact}
        recalls = {"exact": exact, "reranked": reranked, "lost": lost}
        return {"queries": queries, **{name: named_recalls(recalls[name]) for name in recalls}}

    def _clustered(self, embeddings, labels):
        """{name: value} of clusters against the classes, if `nmi` asks for them."""
        from tfdml import evaluation

        if not self.nmi:
            return {}
        print(f"Clustering by {self.cluster_by.replace('_', ' ')}", flush=True)
        options = {"seed": self.seed, "restarts": self.restarts}
        return evaluation.clustering_scores(embeddings, labels, method=self.cluster_by, **options)

    def _levels_alone(self, model, images, embeddings):
        """{level: {name: value}}, each level ranked alone, by distance."""
        from tfdml import evaluation

        labels, scores = images.split.labels, {}
        levels = evaluation.split_levels(embeddings, model.levels)
        for number, of_level in enumerate(levels, start=1):
            data, gallery = evaluation.apart(of_level, labels, images.queries)
            found = evaluation.retrieval_scores(
                *data, self.k, metrics=("recall", "map@r"), **gallery
            )
            if has_pairs_of_both_kinds(labels):
                found.update(evaluation.distance_statistics(of_level, labels))
            scores[f"level {number}"] = found
        return scores

    def _verified(self, model, images, embeddings):
        """Verification by a threshold on the distance; "calibrated" by the training classes."""
        from tfdml import evaluation

        rate, labels = self.false_match_rate, images.split.labels
        found = evaluation.verification_scores(embeddings, labels, false_match_rates=rate)
        results = {
            "false_match_rate": rate,
            "auc": found["auc"],
            "equal_error_rate": found["equal_error_rate"],
            "true_match_rate": found["true_match_rates"][rate],
            "threshold": found["thresholds"][rate],
        }
        training = training_split(self, model, images.dataset)
        if training is None or not has_pairs_of_both_kinds(training.labels):
            print("No threshold is calibrated: the training classes are not at hand")
        else:
            trained = model.joined(self, model.embed(self, training))
            threshold = evaluation.calibrate_threshold(
                trained, training.labels, false_match_rate=rate
            )
            rates = evaluation.rates_at_threshold(embeddings, labels, threshold)
            results["calibrated"] = {"threshold": threshold, **rates}
        return results
