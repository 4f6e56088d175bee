"""Retrieval: what images find among each other, or queries in a gallery."""

import dataclasses
import pathlib
import warnings
from typing import Any, ClassVar

import pipelines
import tfdml
from tfdml.checks import check, check_one_of, check_positive, check_share
from tfdml.files import as_file_name
from tfdml.runs.scoring.collection import STORED, averaged, queries_of, score_in_collection
from tfdml.runs.scoring.images import has_pairs_of_both_kinds, training_split
from tfdml.runs.scoring.model import similarity_of, untrained_scores
from tfdml.runs.scoring.settings import OF_EMBEDDINGS, Scoring
from tfdml.serving.options import ExportOptions, export_options

COMPARED_QUERIES = 1000  # ranked exactly too, to measure what `rerank` loses


@dataclasses.dataclass(frozen=True)
class Retrieval(Scoring):
    """What each image finds among the others, or queries in the gallery of a dataset with one.

    Args:
        rank_by: `distance`, the default without `rerank`: the Euclidean distance of the embeddings,
            as the model gives them or as `level_weights` makes them; its mean, variance and LDA
            score over all pairs are printed too. Or `similarity`: the score that the model learned,
            of every pair of images, for a loss that learns one, such as `--loss pddm`.
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
        gallery: Folder that `python -m tfdml.scale embed` wrote with this model, to search in, of
            any size; its labels are compared with the names of the classes. An image that is in it
            too, as the same file, does not find itself. Without clusters and statistics of pairs.
        index: Also search by an index of faiss, such as `HNSW32` or `IVF64,Flat`, and measure the
            recall that it loses (`pip install -e ".[search]"`). With `gallery`, `stored`: search by
            the index of that folder instead, and measure its loss on at most 1,000 of the images.
        index_parameters: Of the index, such as `nprobe=16` or `efSearch=64`.
        report: Folder for a page to look at, `index.html`: the scores, a map, what queries find,
            which classes are confused. Also for pictures to print, `score_distributions.png` and
            `retrievals.png`, and for TensorBoard's projector, `projector/`.
        export: Folder of a new model. The scored model, whose run must be beside it in `runs/`, is
            also written there, as the next version, with `export_options`, `export_classes` and
            `export_gallery`. If its weights are rounded, its metadata state their Recall@1 beside
            that of the scored model. For `rank_by` distance.
        export_options: Options of the export, such as `--export_options.precision int8`; the
            docstring of `tfdml.serving.ExportOptions` lists them. Options not given are those of
            the scored model, except `precision`, which is then float32.
        export_classes: Give the exported model a signature `classify`, which finds the nearest
            means of the scored classes; of a dataset with a gallery, those of its images.
        export_gallery: Give it a signature `neighbours`, which finds the nearest of the scored
            images, 100,000 at most; of a dataset with a gallery, of its images.
    """

    task: ClassVar[str] = "retrieval"
    neighbours: ClassVar[tuple] = (1, 2, 4, 8)
    paths: ClassVar[tuple] = (*Scoring.paths, "gallery", "report", "export")
    naming: ClassVar[tuple] = ("cluster_by", "restarts", "seed")
    options_of: ClassVar = {"export_options": ExportOptions}

    rank_by: str | None = None
    rerank: int | None = None
    nmi: bool = True
    cluster_by: str = "kmeans"
    restarts: int = 1
    false_match_rate: float | None = None
    gallery: str | None = None
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
        by_distance = self.rank_by == "distance"
        if self.rerank is not None:
            expectation = "`rerank` orders images by the learned similarity: leave out `rank_by`"
            self.check(not by_distance, expectation, "rank_by")
            self.check(self.rerank >= max(self.counts), "`rerank` must be >= `k`")
        self._check_clusters()
        self._check_export()
        self._check_gallery()
        check_share(**self.given("false_match_rate"))
        if not by_distance:
            names = ("index", "false_match_rate")
            self.check_default(names, "`{name}` is for `rank_by` distance")
        self.check(self.index != "", "`index` must be a name of faiss, such as HNSW32")
        if self.index is None:
            self.check_default(("index_parameters",), "`index_parameters` are those of an `index`")

    def _check_clusters(self):
        check_positive(restarts=self.restarts)
        check_one_of(("kmeans", "affinity_propagation"), cluster_by=self.cluster_by)
        restarts = self.restarts == 1 or self.cluster_by == "kmeans"
        self.check(restarts, "`restarts` are of k-means", "cluster_by")
        clusters = self.nmi or not self.changed(("cluster_by", "restarts"))
        self.check(clusters, "`cluster_by` and `restarts` are of the clusters of `nmi`")

    def _check_export(self):
        if self.export is None:
            names = ("export_options", "export_classes", "export_gallery")
            self.check_default(names, "`{name}` is an option of `export`")
            return
        served = "`export` is of a model that is scored as it is served, with `{name}` {default}"
        of_distance = served.format(name="rank_by", default="distance")
        self.check(self.rank_by == "distance", of_distance)
        self.check_default(OF_EMBEDDINGS, served)
        export_options(self.export_options)  # raises for wrong ones

    def _check_gallery(self):
        if self.gallery is None:
            stored = self.index != STORED
            self.check(stored, "`index` can be stored for a `gallery`")
            return
        served = "embeddings of a `gallery` are those of the model as it is served, by distance"
        expected = f"{served}: leave out `{{name}}`"
        self.check_default(("rerank", *OF_EMBEDDINGS), expected)
        self.check(self.rank_by == "distance", expected.format(name="rank_by"))
        names = ("cluster_by", "restarts", "false_match_rate", "report", "export")
        self.check_default(names, "`{name}` does not go with a `gallery`")
        self.check(self.index in (None, STORED), "the `index` of a `gallery` is `stored` with it")

    @property
    def words(self):
        if self.gallery:
            place = as_file_name(pathlib.Path(self.gallery).resolve().name)
            parameters = [as_file_name(self.index_parameters)] if self.index_parameters else []
            return [f"in_{place}", *([STORED, *parameters] if self.index else [])]
        if self.rank_by == "distance":
            return []
        return [f"rerank_{self.rerank}" if self.rerank else "similarity"]

    @property
    def ranking(self):
        if self.gallery:
            return f",\nin the gallery {self.gallery}" + ", through its index" * bool(self.index)
        if self.rerank:
            return f",\nthe {self.rerank:,} nearest of each ranked by the learned similarity"
        return ",\nranked by the learned similarity" * (self.rank_by == "similarity")

    def prepare(self, model, images):
        if self.gallery:
            return queries_of(self, model, images)
        images = super().prepare(model, images)
        has_pairs = self.false_match_rate is None or has_pairs_of_both_kinds(images.split.labels)
        expectation = "`false_match_rate` needs images of two classes, and two images of one"
        check(has_pairs, expectation, classes=images.split.num_classes)
        labels, queries = images.split.labels, images.queries
        gallery = len(labels) if queries is None else int((~queries).sum())
        if self.nmi and self.cluster_by == "affinity_propagation":
            from tfdml.evaluation.clustering import MOST_ROWS

            count = len(labels)
            most = f"takes at most {MOST_ROWS:,} images; kmeans takes any number"
            check(count <= MOST_ROWS, f"`cluster_by` affinity_propagation {most}", images=count)
        if self.index:
            from tfdml.evaluation.approximate import check_index

            dim = self.dims or model.levels * model.dim
            check_index(self.index, self.index_parameters, dim, gallery)
        if self.export_gallery:
            from tfdml.serving.nearest import check_rows

            check_rows(gallery)
        return images

    def most_neighbours(self, images):
        if self.gallery:
            return "neighbours", images.gallery.most_found(images.own)
        findable = pipelines.rows_to_find(images.split, images.queries)
        if self.rerank is None:
            return "neighbours", findable
        expectation = "`rerank` must not exceed the images that a query can find"
        check(self.rerank <= findable, expectation, rerank=self.rerank, images=findable)
        return "neighbours", self.rerank

    def score(self, model, images):
        """{"scores": {name: value}} with more beside it; "per_query" and "embeddings" as arrays."""
        if self.gallery:
            return score_in_collection(self, model, images)
        labels, of_levels = images.split.labels, model.embed(self, images.split)
        embeddings, has_pairs = model.joined(self, of_levels), has_pairs_of_both_kinds(labels)
        data, gallery = tfdml.evaluation.apart(embeddings, labels, images.queries)
        if self.rerank:
            results = self._reranked(model.signatures["score_pairs"], data, gallery)
        else:
            results = self._ranked(model, data, gallery)
        if self.nmi:
            print(f"Clustering by {self.cluster_by.replace('_', ' ')}", flush=True)
            options = {"method": self.cluster_by, "seed": self.seed, "restarts": self.restarts}
            clusters = tfdml.evaluation.clustering_scores(embeddings, labels, **options)
            results["scores"].update(clusters)
        if self.rank_by == "distance" and has_pairs:
            results["distances"] = tfdml.evaluation.distance_statistics(embeddings, labels)
        if parts := self._parts(model, of_levels):
            results["levels"] = {name: self._of(part, images) for name, part in parts.items()}
        if self.false_match_rate is not None:
            results["verification"] = self._verified(model, images, embeddings)
        if untrained := untrained_scores(self, model, len(labels)):
            results["untrained"] = untrained
        if images.queries is not None:
            queries = int(images.queries.sum())
            results["images"] = {"queries": queries, "gallery": len(labels) - queries}
        return {**results, "embeddings": embeddings}

    def _ranked(self, model, data, gallery):
        """The scores of `averaged`, and of an index those through it."""
        labels = data[1]
        pairs = tfdml.evaluation.scores_to_rank(len(labels))
        if gallery:
            pairs = len(labels) * len(gallery["gallery_labels"])
        options = {"k": self.k, "similarity": model.similarity(self, pairs), **gallery}
        per_query = tfdml.evaluation.retrieval_scores_per_query(*data, **options)
        results = averaged(per_query, labels, self.seed)
        if self.index:
            options = {"index": self.index, "parameters": self.index_parameters, "seed": self.seed}
            recalls = tfdml.evaluation.approximate_recall(*data, k=self.k, **options, **gallery)
            results["approximate"] = recalls
        return results

    def _reranked(self, signature, data, gallery):
        """Recalls; "reranking" compares those of a sample of queries with a full ranking."""
        from tfdml.evaluation.report.tables import named_recalls

        count, candidates = len(data[1]), self.rerank or 0
        queries = min(COMPARED_QUERIES, count)
        findable = len(gallery["gallery_labels"]) if gallery else count - 1
        options = {"k": self.k, "candidates": candidates, **gallery}
        recalls = tfdml.evaluation.recall_after_reranking(
            *data, similarity=similarity_of(signature, count * candidates), **options
        )
        similarity = similarity_of(signature, queries * (findable + candidates))
        with warnings.catch_warnings():
            # Of queries without a relevant row it was warned before.
            warnings.simplefilter("ignore", UserWarning)
            exact, reranked = tfdml.evaluation.exact_and_reranked_recall(
                *data, similarity=similarity, queries=queries, seed=self.seed, **options
            )
        lost = {k: exact[k] - reranked[k] for k in exact}
        compared = {"exact": exact, "reranked": reranked, "lost": lost}
        reranking = {name: named_recalls(of_sample) for name, of_sample in compared.items()}
        return {"scores": named_recalls(recalls), "reranking": {"queries": queries, **reranking}}

    def _parts(self, model, embeddings):
        """{name: embeddings} of each level of several, or of each size that was trained."""
        if model.levels > 1:
            levels = tfdml.evaluation.split_levels(embeddings, model.levels)
            return {f"level {number}": level for number, level in enumerate(levels, start=1)}
        if model.recipe.get("loss") != "matryoshka" or self.dims is not None:
            return {}
        return {
            f"first {size}": tfdml.evaluation.first_dims(embeddings, size)
            for size in sorted(model.recipe.get("loss_options", {}).get("dims") or ())
            if size <= embeddings.shape[1]  # of an export of the first numbers
        }

    def _of(self, embeddings, images):
        """{name: value} of embeddings ranked by distance."""
        labels = images.split.labels
        data, gallery = tfdml.evaluation.apart(embeddings, labels, images.queries)
        options = {"k": self.k, "metrics": ("recall", "map@r"), **gallery}
        found = tfdml.evaluation.retrieval_scores(*data, **options)
        if has_pairs_of_both_kinds(labels):
            found.update(tfdml.evaluation.distance_statistics(embeddings, labels))
        return found

    def _verified(self, model, images, embeddings):
        """Verification by a threshold on the distance; "calibrated" by the training classes."""
        rate, labels = self.false_match_rate, images.split.labels
        found = tfdml.evaluation.verification_scores(embeddings, labels, false_match_rates=rate)
        results = {"false_match_rate": rate}
        results |= {name: found[name] for name in ("auc", "equal_error_rate")}
        results["true_match_rate"] = found["true_match_rates"][rate]
        results["threshold"] = found["thresholds"][rate]
        training = training_split(self, model, images.dataset)
        if training is None or not has_pairs_of_both_kinds(training.labels):
            cause = "the training classes are not at hand, or fewer than two have two images"
            print(f"No threshold is calibrated: {cause}")
            return results
        trained = model.embed_joined(self, training), training.labels
        threshold = tfdml.evaluation.calibrate_threshold(*trained, false_match_rate=rate)
        rates = tfdml.evaluation.rates_at_threshold(embeddings, labels, threshold)
        return {**results, "calibrated": {"threshold": threshold, **rates}}
