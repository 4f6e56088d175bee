"""The tasks of `evaluate.py`: what each checks before images are embedded, and its scores."""

import dataclasses
from typing import Any

import numpy as np

import pipelines
from tfdml import evaluation
from tfdml.checks import check
from tfdml.evaluation import clusters, inputs
from tfdml.evaluation.approximate import check_index
from tfdml.evaluation.faiss_index import load_faiss
from tfdml.evaluation.metrics import Metrics, named_recalls
from tfdml.evaluation.nearest_mean import unit_rows
from tfdml.evaluation.open_set import check_classes
from tfdml.evaluation.pair_scores import pair_histogram, rates_of, statistics_of, verification_of
from tfdml.evaluation.random_draws import average
from tfdml.evaluation.zero_shot import by_class_id, by_super_class, zero_shot_scores
from tfdml.runs import scoring
from tfdml.runs.scoring.audited import audit_images
from tfdml.runs.scoring.copies import scores_without_copies
from tfdml.runs.scoring.embedded import joined, levels_of
from tfdml.runs.scoring.in_collection import averaged, score_in_collection, searching
from tfdml.runs.scoring.scored_images import Images, training_split
from tfdml.runs.scoring.scored_model import untrained_scores
from tfdml.runs.task_options import RERANKING
from tfdml.serving.exported import check_similarity

NEAREST = 10  # rows that a page shows of each
COMPARED_QUERIES = 1000  # ranked exactly too, to measure what `rerank` loses


def check_model(options, model):
    """Raises an error for what the model or this machine lacks, before the images are read."""
    levels_of(options, model)
    if options.rank_by == "similarity":
        check_similarity(model.version, model.signatures)
    if options.index:
        load_faiss()


def prepare(options, model, images):
    """The options, with all `k` that there are if none was given, and the images, checked."""
    if options.pca is not None:
        training = training_split(options, model, images.dataset)
        expectation = "`pca` needs the images of the training, beside others of it that are scored"
        check(training is not None, expectation, dataset=options.dataset, split=options.split)
        most = min(levels_of(options, model)[2], len(training.labels) - 1)
        expectation = f"`pca` must be at most {most:,} here"
        check(options.pca <= most, expectation, pca=options.pca)
    if options.task == "open_set":
        check_classes(images.labels)
    if options.task == "audit":
        check(len(images.labels) > 2, "an audit needs 3 images or more", images=len(images.labels))
    if options.task in ("open_set", "audit"):
        return options, images
    what, most = "means", images.split.num_classes
    if options.task == "zero_shot":
        images = _unseen(options, model, images)
        most = len(np.unique(images.labels[images.queries]))
    elif options.gallery:
        images = searching(options, model, images)
        gallery, own, _ = images.collection
        what, most = "neighbours", gallery.most_found(own)
    else:
        expectation, count = "a class must have 2 images or more", len(images.labels)
        check(most < count, expectation, images=count, classes=most)
        if options.task == "one_per_class":
            what = "gallery"
        if options.task == "retrieval":
            what, most = "neighbours", _findable(options, model, images)
    if options.k is None:
        k = [k for k in options.neighbours if k <= most] or [1]
        return dataclasses.replace(options, k=k), images
    fits = max(options.counts) <= most
    check(fits, f"`k` must not exceed the {what}", k=options.k, **{what: most})
    return options, images


def _findable(options, model, images):
    """How many images a query can find, after the checks of a retrieval."""
    labels, queries = images.labels, images.queries
    expectation = "`false_match_rate` needs images of two classes, and two images of one"
    has_pairs = options.false_match_rate is None or has_pairs_of_both_kinds(labels)
    check(has_pairs, expectation, classes=images.split.num_classes)
    if options.nmi and options.cluster_by == "affinity_propagation":
        most = f"at most {clusters.MOST_ROWS:,} images; kmeans takes any number"
        fits = len(labels) <= clusters.MOST_ROWS
        check(fits, f"`cluster_by` affinity_propagation takes {most}", images=len(labels))
    if options.index:
        _, levels, dim = levels_of(options, model)
        gallery = len(labels) if queries is None else int((~queries).sum())
        check_index(options.index, options.index_parameters, options.dims or levels * dim, gallery)
    findable = pipelines.rows_to_find(images.split, queries)
    for name in ("expand_queries", "reciprocal"):
        fits = (getattr(options, name) or 0) <= findable
        options.check(fits, f"`{name}` must be at most the {findable:,} images to find")
    if options.rerank is None:
        return findable
    expectation = "`rerank` must not exceed the images that a query can find"
    check(options.rerank <= findable, expectation, rerank=options.rerank, images=findable)
    return options.rerank


def has_pairs_of_both_kinds(labels):
    return 1 < len(set(labels.tolist())) < len(labels)


def retrieval(embedded, options):
    """{"scores": {name: value}} with more beside it; "per_query" as arrays, "ranking"."""
    images, labels, rows = embedded.images, embedded.labels, embedded.embeddings
    if options.gallery:
        return score_in_collection(embedded, options)
    by_distance, has_pairs = options.rank_by == "distance", has_pairs_of_both_kinds(labels)
    results = _reranked(embedded, options) if options.rerank else _ranked(embedded, options)
    ranked = results.get("ranking")
    if by_distance and (not ranked or ranked.histogram is None) and (has_pairs or options.report):
        results["ranking"] = evaluation.rank(rows, labels, nearest=NEAREST, histogram=True)
    if options.nmi:
        print(f"Clustering by {options.cluster_by.replace('_', ' ')}", flush=True)
        kind = {"method": options.cluster_by, "seed": options.seed, "restarts": options.restarts}
        results["scores"] |= evaluation.clustering_scores(rows, labels, **kind)
    if by_distance and has_pairs:
        results["distances"] = statistics_of(results["ranking"].histogram)
    if parts := _parts(embedded, options):
        results["levels"] = {
            name: _part_scores(part, images, options) for name, part in parts.items()
        }
    if options.false_match_rate is not None:
        results["verification"] = _verified(embedded, options, results["ranking"].histogram)
    if untrained := untrained_scores(options, embedded.model, len(labels)):
        results["untrained"] = untrained
    ranked_plainly = by_distance and not options.changed(RERANKING)
    if options.report and ranked_plainly and (found := scores_without_copies(embedded, options)):
        results["without_copies"] = found
    if images.queries is not None:
        queries = int(images.queries.sum())
        results["images"] = {"queries": queries, "gallery": len(labels) - queries}
    return results


def _ranked(embedded, options):
    """The scores of `averaged`, the `Ranking`, and of an index the scores through it."""
    data, gallery = evaluation.apart(embedded.embeddings, embedded.labels, embedded.images.queries)
    labels, found = data[1], len(gallery.get("gallery_labels", ()))
    post_processed = options.expand_queries or options.reciprocal
    if post_processed:
        ranking = _post_processed(data, gallery, options)
    else:
        pairs = len(labels) * found if gallery else evaluation.scores_to_rank(len(labels))
        similarity = embedded.similarity(options, pairs)
        alone = not gallery and similarity is None
        kind = {"similarity": similarity, "nearest": NEAREST, "histogram": alone}
        ranking = evaluation.rank(*data, **gallery, **kind)
    inputs.warn_of_misses(ranking.relevant)
    per_query = Metrics.of(None, options.k, found or len(labels) - 1).values(ranking)
    results = {**averaged(per_query, labels, options.seed), "ranking": ranking}
    if options.index and not post_processed:
        kind = {"parameters": options.index_parameters, **options.given("k", "index", "seed")}
        results["approximate"] = evaluation.approximate_recall(*data, **kind, **gallery)
    return results


def _post_processed(data, gallery, options):
    """The `Ranking` of expanded queries, or by mutual neighbours."""
    (rows, labels), others = data, gallery.get("gallery_embeddings")
    found_labels, kind = gallery.get("gallery_labels"), dict[str, Any](nearest=NEAREST)
    if options.reciprocal:
        given = {"k1": options.reciprocal, **options.reciprocal_options}
        distances = evaluation.k_reciprocal_distances(rows, others, **given)
        return evaluation.rank_by(distances, labels, found_labels, **kind)
    given = {"alpha": options.expansion_alpha, "gallery_embeddings": others}
    expanded = evaluation.expand_queries(rows, options.expand_queries, **given)
    if others is None:
        others, found_labels, kind["own"] = rows, labels, np.arange(len(rows))
    return evaluation.rank(expanded, labels, unit_rows(others), found_labels, **kind)


def _reranked(embedded, options):
    """Recalls; "reranking" compares those of a sample of queries with a full ranking."""
    data, gallery = evaluation.apart(embedded.embeddings, embedded.labels, embedded.images.queries)
    count, candidates = len(data[1]), options.rerank
    queries = min(COMPARED_QUERIES, count)
    findable = len(gallery["gallery_labels"]) if gallery else count - 1
    kind = {"k": options.k, "candidates": candidates, **gallery}
    similarity = embedded.model.similarity("score_pairs", count * candidates)
    recalls = evaluation.recall_after_reranking(*data, similarity=similarity, **kind)
    similarity = embedded.model.similarity("score_pairs", queries * (findable + candidates))
    kind |= {"queries": queries, "seed": options.seed, "similarity": similarity}
    exact, reranked = evaluation.exact_and_reranked_recall(*data, **kind)
    lost = {k: exact[k] - reranked[k] for k in exact}
    compared = {"exact": exact, "reranked": reranked, "lost": lost}
    compared = {name: named_recalls(recalls) for name, recalls in compared.items()}
    return {"scores": named_recalls(recalls), "reranking": {"queries": queries, **compared}}


def _parts(embedded, options):
    """{name: embeddings} of each level of several, or of each size that was trained."""
    recipe = embedded.model.recipe
    if embedded.number > 1:
        levels = evaluation.split_levels(embedded.levels, embedded.number)
        return {f"level {number}": level for number, level in enumerate(levels, start=1)}
    if recipe.get("loss") != "matryoshka" or {options.dims, options.pca} != {None}:
        return {}
    return {
        f"first {size}": evaluation.first_dims(embedded.levels, size)
        for size in sorted(recipe.get("loss_options", {}).get("dims") or ())
        if size <= embedded.levels.shape[1]  # of an export of the first numbers
    }


def _part_scores(embeddings, images, options):
    """{name: value} of embeddings ranked by distance."""
    data, gallery = evaluation.apart(embeddings, images.labels, images.queries)
    ranking = evaluation.rank(*data, **gallery, nearest=0, histogram=not gallery)
    metrics = Metrics.of(("recall", "map@r"), options.k, len(images.labels))
    found = {name: float(values.mean()) for name, values in metrics.values(ranking).items()}
    if not has_pairs_of_both_kinds(images.labels):
        return found
    return found | statistics_of(ranking.histogram or pair_histogram(embeddings, images.labels))


def _verified(embedded, options, histogram):
    """Verification by a threshold on the distance; "calibrated" by the training classes."""
    rate, model = options.false_match_rate, embedded.model
    found = verification_of(histogram, [rate])
    results = {
        "false_match_rate": rate,
        **{name: found[name] for name in ("auc", "equal_error_rate")},
        "true_match_rate": found["true_match_rates"][rate],
        "threshold": found["thresholds"][rate],
    }
    training = training_split(options, model, embedded.images.dataset)
    if training is None or not has_pairs_of_both_kinds(training.labels):
        cause = "the training classes are not at hand, or fewer than two have two images"
        print(f"No threshold is calibrated: {cause}")
        return results
    rows = joined(options, model, training, scoring.embed(options, model, training)).embeddings
    if embedded.projection:
        rows = evaluation.project(rows, *embedded.projection)
    threshold = evaluation.calibrate_threshold(rows, training.labels, false_match_rate=rate)
    rates = rates_of(histogram, threshold)
    return {**results, "calibrated": {"threshold": threshold, **rates}}


def one_per_class(embedded, options):
    kind = {"similarity": embedded.similarity(options), **options.given("k", "draws", "seed")}
    found = evaluation.one_per_class_scores(embedded.embeddings, embedded.labels, **kind)
    return _means_and_deviations(found, options)


def nearest_class_mean(embedded, options):
    kind = options.given("shots", "k", "draws", "seed", "renormalize_means")
    found = evaluation.few_shot_accuracies(embedded.embeddings, embedded.labels, **kind)
    return _means_and_deviations(
        {f"top{k}": average(values) for k, values in found.items()}, options
    )


def _means_and_deviations(found, options):
    """{"scores": {name: mean}, "deviations": {name: the same of several draws}}."""
    scores, deviations = ({name: pair[i] for name, pair in found.items()} for i in (0, 1))
    return {"scores": scores, "deviations": deviations if options.draws > 1 else {}}


def zero_shot(embedded, options):
    """{"scores": {name: value}}, and the same for the other ways to count classes."""
    rows, labels, unseen = embedded.embeddings, embedded.labels, embedded.images.queries
    kind = {"k": options.k, "renormalize_means": options.renormalize_means, **options.placement}
    known, unseen = ((rows[chosen], labels[chosen]) for chosen in (~unseen, unseen))
    return zero_shot_scores(*known, embedded.images.hierarchy, *unseen, **kind)


def _unseen(options, model, images):
    """The images of known classes and of unseen ones, with their hierarchy, checked."""
    split, share = images.split, options.unseen_share
    if share is None:
        known = training_split(options, model, images.dataset)
        expectation = (
            "`unseen_share` must be given, except for the split test or validation of the "
            "images of the training, whose training classes are known"
        )
        options.check(known is not None, expectation, "split", "dataset")
        unseen_ids, split = split.classes, pipelines.join_splits([known, split])
    if options.hierarchy:
        parents = evaluation.read_hierarchy(options.hierarchy)
        parents = by_class_id(parents, Images(split).class_names)
    else:
        expectation = "`hierarchy` must be given for a dataset without super-classes"
        options.check(split.super_labels is not None, expectation, "dataset")
        parents = by_super_class(split.labels, split.super_labels)
    if share is not None:
        unseen_ids = evaluation.every_nth_child(split.classes.tolist(), parents, share)
        options.check(unseen_ids, "`unseen_share` must hold out a class of a parent or more")
    known_ids = np.setdiff1d(split.classes, unseen_ids)
    related = evaluation.have_relatives(known_ids, parents, unseen_ids)
    expectation = (
        "no unseen class shares a non-root ancestor with a known class: give `unseen_share`, "
        "such as 0.2, to hold classes out of each parent"
    )
    check(related.any(), expectation, known=len(known_ids), unseen=len(unseen_ids))
    no_means = np.zeros((len(known_ids), 1))  # to reject a placement before the embedding
    evaluation.zero_shot_means(no_means, known_ids, parents, unseen_ids, **options.placement)
    return Images(split, np.isin(split.labels, unseen_ids), images.dataset, hierarchy=parents)


def open_set(embedded, options):
    """As `open_set_evaluation`."""
    kind = options.given("draws", "seed", "false_alarm_rate")
    return evaluation.open_set_evaluation(embedded.embeddings, embedded.labels, **kind)


TASKS = {
    "retrieval": retrieval,
    "one_per_class": one_per_class,
    "ncm": nearest_class_mean,
    "zero_shot": zero_shot,
    "open_set": open_set,
    "audit": audit_images,
}
