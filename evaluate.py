"""Scores an exported embedder, or a folder of one, on classes that it was not trained on.

    python evaluate.py saved_models/glyphs_lifted
    python evaluate.py runs/glyphs_lifted --report report
    python evaluate.py saved_models/glyphs_lifted --export saved_models/glyphs_int8 \
        --export_options.precision int8
    python evaluate.py saved_models/glyphs_lifted --dataset folder --data_dir photos --split all
    python evaluate.py saved_models/glyphs_pddm --rank_by similarity
    python evaluate.py saved_models/glyphs_lifted --task ncm --shots 5
    python evaluate.py --compare runs/glyphs_lifted runs/glyphs_pddm

Prints what images find among each other with 95 % intervals over classes, how well clusters are the
classes, and how far positive and negative pairs lie apart; and writes it to
runs/NAME/evaluation.json, of other images than those of the training to evaluation_DATASET.json, or
where --out says. --report makes a page to look at. --compare puts runs that were scored on the same
images side by side, and tells how surely they differ from the first.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
import pathlib
import sys
import tempfile
import warnings

import pipelines
from tfdml.checks import check, check_fits, unknown_name
from tfdml.command_line import (
    Parser,
    as_file_name,
    check_writable,
    import_tensorflow,
    one_sentence,
    write_text,
)
from tfdml.evaluation_settings import NEIGHBOURS, Comparison, Evaluation
from tfdml.files import naming
from tfdml.serving import exported

PROGRAM = "evaluate.py"
COMPARE = "--compare"
CHANGES_OF_EMBEDDINGS = ("crops", "mirror", "levels", "level_weights", "boxes")
COMPARED_QUERIES = 1000  # ranked exactly too, to tell what --rerank loses
REPORTED_NEIGHBOURS = 10  # of each image on the page, of a learned similarity
REPORTED_CANDIDATES = 100  # nearest by distance that it ranks for the page


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if COMPARE in arguments:
        compare_runs(*parse_comparison([word for word in arguments if word != COMPARE]))
        return
    settings = parse(arguments)
    with one_sentence(PROGRAM, ValueError, TypeError, OSError, ImportError):
        version = exported.find_version(pathlib.Path(settings.model))
        recipe = recipe_of(settings, version)
        settings = completed(settings, version, recipe)
        out = pathlib.Path(settings.out)
        check_outputs(settings)
        import_tensorflow()
        model = model_to_export(settings, version, recipe)
        if settings.index:
            from tfdml.evaluation.approximate import load_faiss

            load_faiss()  # says what to install before the images are read
        signatures = exported.load_signatures(version, settings.rank_by == "similarity")
        levels, dim = levels_to_score(settings, recipe, signatures["embed_images"])
        dataset = load_dataset(settings)
        split, queries = load_split(settings, version, recipe, dataset)
        known, hierarchy = None, None
        if settings.task == "zero_shot":
            known, split, hierarchy = known_and_unseen(settings, version, recipe, dataset, split)
        settings = with_neighbours(settings, split, queries)
        preprocessing = preprocessing_of(version, recipe)
        embedded = functools.partial(
            embed, settings, signatures["embed_images"], preprocessing, levels, dim
        )
        embeddings, per_query = embedded(split), {}
        if settings.task == "retrieval":
            results, per_query = score_retrieval(
                settings, signatures, embeddings, levels, split.labels, queries
            )
            embeddings = joined(settings, embeddings)
            if settings.false_match_rate is not None and has_pairs_of_both_kinds(split.labels):
                trained_on = training_split(settings, version, recipe, dataset)
                training = trained_on and (
                    joined(settings, embedded(trained_on)),
                    trained_on.labels,
                )
                results["verification"] = verify(settings, embeddings, split.labels, training)
        elif settings.task == "one_per_class":
            results = score_one_per_class(
                settings, signatures, joined(settings, embeddings), split.labels
            )
        elif settings.task == "ncm":
            results = score_few_shot(settings, joined(settings, embeddings), split.labels)
        else:
            rows = (joined(settings, each) for each in (embedded(known), embeddings))
            results = score_zero_shot(settings, *rows, known.labels, split.labels, hierarchy)
        untrained = untrained_scores(settings, version, recipe)
        if untrained:
            results["untrained"] = untrained
        if queries is not None:
            results["images"] = {"queries": int(queries.sum()), "gallery": int((~queries).sum())}
        write(settings, version, results, levels)
        if per_query:
            save_queries(settings, per_query, split, queries)
        from tfdml.evaluation.results_text import results_text  # which waits for NumPy

        print(
            f"\n{version} on {len(split.labels):,} images of {split.num_classes:,} classes "
            f"({settings.split}) of {settings.dataset}{searched(queries)}{ranking(settings)}:\n"
            f"{results_text(results)}\n"
            f"Scores: {out}"
        )
        if settings.report:
            of_run = (settings, version, recipe, signatures)
            with naming(settings.report):
                page = draw(*of_run, embeddings, split, queries, results, per_query)
            print(f"Report: {page}")
        if settings.export:
            scored = (split, queries, results)
            shape = (preprocessing, levels, dim)
            path = export_scored(settings, version, model, shape, *scored)
            print(f"Exported: {path}")


def parse(arguments):
    """The settings. Imports neither TensorFlow nor Keras."""
    parser = Parser(
        Evaluation,
        names={"datasets": ", ".join(pipelines.names())},
        prog=PROGRAM,
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"{PROGRAM} {COMPARE} --help tells how to compare runs.",
    )
    settings = parser.settings_of(parser.parse_args(arguments))
    if settings.dataset and pipelines.entry_of(settings.dataset) not in pipelines.names():
        parser.error(unknown_name("dataset", settings.dataset, pipelines.names()))
    return settings


def parse_comparison(arguments):
    """The settings of a comparison, and its runs. Imports neither TensorFlow nor Keras."""
    parser = Parser(Comparison, prog=f"{PROGRAM} {COMPARE}", description="Compares scored runs.")
    parser.add_argument(
        "runs",
        nargs="+",
        help="runs/NAME, saved_models/NAME, or files of scores, such as those in them",
    )
    given = parser.parse_args(arguments)
    return parser.settings_of(given), given.runs


def compare_runs(settings, runs):
    """Prints how the scores of runs differ from those of the first, and writes it where asked."""
    from tfdml import evaluation

    with one_sentence(PROGRAM, ValueError, TypeError, OSError):
        files = {run: queries_of(run) for run in runs}
        several = len(files) == len(runs) == len({file.resolve() for file in files.values()})
        check(several, f"`{COMPARE}` needs runs with scores of their own", runs=runs)
        if settings.out:
            check_file(pathlib.Path(settings.out))
        scored = {run: evaluation.load_queries(file) for run, file in files.items()}
        comparison = evaluation.compare(
            scored, confidence=settings.confidence, rounds=settings.rounds, seed=settings.seed
        )
        print(
            f"{comparison['queries']:,} images of {comparison['classes']:,} classes:\n"
            f"{evaluation.comparison_table(comparison)}"
        )
        if settings.out:
            out = pathlib.Path(settings.out)
            out.parent.mkdir(parents=True, exist_ok=True)
            write_text(out, json.dumps(comparison, indent=2) + "\n")
            print(f"Comparison: {out}")


def queries_of(run):
    """The archive of the values of each query of a run, given by a folder or its file of scores.

    Raises:
        FileNotFoundError: If there is none, or it is of another version than the one given.
    """
    path = pathlib.Path(run)
    if not path.exists():
        raise FileNotFoundError(f"{run} does not exist")
    folder, files = path.resolve(), [path]
    if path.suffix != ".json":
        names = [folder.name, *([folder.parent.name] if folder.name.isdigit() else [])]
        folders = [path, *(pathlib.Path("runs", name) for name in names)]
        files = [folder / "evaluation.json" for folder in folders]
    for file in files:
        if queries_path(file).is_file():
            version = version_of(file) if (folder / "saved_model.pb").is_file() else None
            if version is not None and version.resolve() != folder:
                raise FileNotFoundError(f"{file} has the scores of {version}, not of {run}")
            return queries_path(file)
    scores = sorted(files[-1].parent.glob("*.json"))
    others = [str(path) for path in scores if queries_path(path).is_file()]
    model = folder.parent if path.suffix == ".json" else run
    hint = (
        f"it has those in {', '.join(others)}"
        if others
        else f"score it first by `python {PROGRAM} {model}`"
    )
    raise FileNotFoundError(f"{run} has no values of queries, {queries_path(files[-1])}: {hint}")


def version_of(scores):
    """The version that a file of scores is of; None where it does not tell."""
    try:
        return pathlib.Path(json.loads(scores.read_text())["version"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def queries_path(scores):
    """Where the values of each query stand, beside a file of scores."""
    return scores.with_name(f"{scores.stem}_queries.npz")


def check_outputs(settings):
    """Raises an OSError for a file or folder that cannot be written."""
    check_file(pathlib.Path(settings.out))
    for folder in filter(None, (settings.report, settings.export)):
        check_writable(pathlib.Path(folder))


def check_file(out):
    """Raises an OSError for a file that cannot be written."""
    check_writable(out.parent)
    if out.is_dir():
        raise IsADirectoryError(f"`out` must be a file. {out} is a folder")


def recipe_of(settings, version):
    """The settings of the training, with the folder of its images where those are to be scored."""
    recipe, whole = exported.recipe_of(version), exported.config_of(version)
    folder = recipe.get("data_dir")
    if whole or settings.dataset or not folder or os.path.basename(folder) != folder:
        return whole or recipe
    check(
        settings.data_dir is not None,
        f"{version} states the name alone of the folder of its images, and its run is not in "
        "`runs`: give `--data_dir`",
        data_dir=None,
        name=folder,
    )
    return {**recipe, "data_dir": settings.data_dir}


def completed(settings, version, recipe):
    """The settings, those of the training where they were not given, and the file of the scores."""
    dataset, data_dir = settings.dataset, settings.data_dir
    if dataset is None:
        if not recipe:
            raise ValueError(f"{version} does not say what it was trained on: give --dataset")
        dataset, data_dir = recipe["dataset"], data_dir or recipe["data_dir"]
    settings = dataclasses.replace(settings, dataset=dataset, data_dir=data_dir)
    of_training = recipe if has_images_of(recipe, settings) else {}
    split, skip_invalid = settings.split, settings.skip_invalid
    if split is None:
        split = "validation" if of_training.get("validation_share") else "test"
    if split == "validation" and not of_training.get("validation_share"):
        raise ValueError(
            "`split` can be validation for the images of a training with --validation_share. "
            f"Received: split=validation, model={version}, dataset={dataset}, data_dir={data_dir}"
        )
    if split == "train" and not of_training:
        raise ValueError(
            "`split` can be train for the images of the training. "
            f"Received: split=train, model={version}, dataset={dataset}, data_dir={data_dir}"
        )
    if skip_invalid is None:
        skip_invalid = bool(of_training.get("skip_invalid"))
    boxes = settings.boxes or of_training.get("boxes")
    settings = dataclasses.replace(settings, split=split, skip_invalid=skip_invalid, boxes=boxes)
    folder = version.resolve()
    folder = folder.parent if folder.name.isdigit() else folder
    out = settings.out or f"runs/{folder.name}/{file_name('evaluation', settings, recipe)}.json"
    return dataclasses.replace(settings, out=out)


def file_name(stem, settings, recipe):
    """A name that tells the ranking and the images, but by distance and those of the training."""
    words = [stem] if settings.task == "retrieval" else [stem, settings.task]
    words += [f"shots_{settings.shots}"] if settings.shots else []
    words += [pathlib.Path(settings.hierarchy).stem] if settings.hierarchy else []
    words += [f"unseen_{settings.unseen_share:g}"] if settings.unseen_share else []
    words += [f"{name}_{value}" for name, value in settings.placement.items()]
    words += ["unit_means"] if settings.renormalize_means else []
    if settings.rank_by == "similarity":
        words.append(f"rerank_{settings.rerank}" if settings.rerank else "similarity")
    if not has_images_of(recipe, settings):
        words.append(as_file_name(settings.dataset))
        words += [pathlib.Path(settings.data_dir).resolve().name] if settings.data_dir else []
    if settings.boxes not in (None, recipe.get("boxes")):
        words.append(f"in_{pathlib.Path(settings.boxes).stem}")
    if settings.split != "test":
        words.append(settings.split)
    if settings.level_weights:
        words += ["weights", *(f"{weight:g}" for weight in settings.level_weights)]
    words += [f"levels_{settings.levels}"] if settings.levels else []
    words += [f"crops_{settings.crops}"] if settings.crops > 1 else []
    words += ["mirror"] if settings.mirror else []
    return "_".join(words)


def has_images_of(recipe, settings):
    """Whether the images to score are those that the recipe names."""
    folders = [
        folder and os.path.realpath(os.path.expanduser(folder))
        for folder in (recipe.get("data_dir"), settings.data_dir)
    ]
    return recipe.get("dataset") == settings.dataset and folders[0] == folders[1]


def load_dataset(settings):
    """The dataset whose images are scored."""
    return pipelines.load(
        settings.dataset,
        settings.data_dir,
        settings.skip_invalid,
        training=settings.split in ("train", "validation"),
        boxes=settings.boxes,
    )


def load_split(settings, version, recipe, dataset):
    """The images to score, and which are queries: (n,) booleans, None where all find each other.

    Warns of classes that the model was trained on, but when asked.
    """
    split, queries = dataset.scored()
    if settings.split in ("train", "validation"):
        split, share = dataset.train, recipe["validation_share"]
        if share:
            split = pipelines.hold_out_classes(split, share)[settings.split == "validation"]
    elif settings.split == "all":
        split = dataset.both()
    if settings.split != "test" or settings.task != "retrieval":
        queries = None
    same_images = recipe.get("dataset") == settings.dataset and settings.split != "train"
    of_dataset = exported.trained_classes(version) if same_images else []
    known = sorted(set(of_dataset) & set(split.names))
    if known:
        print(
            f"{PROGRAM}: warning: {len(known):,} of the {split.num_classes:,} scored classes were "
            f"trained on, such as {known[0]}",
            file=sys.stderr,
        )
    findable = pipelines.rows_to_find(split, queries)
    check(
        settings.rerank is None or settings.rerank <= findable,
        "`rerank` must not exceed the images that a query can find",
        rerank=settings.rerank,
        images=findable,
    )
    return split, queries


def training_split(settings, version, recipe, dataset):
    """The images of the training classes, to calibrate by; None where they are not at hand."""
    if not has_images_of(recipe, settings) or settings.split in ("train", "all"):
        return None
    of_training = dataclasses.replace(settings, split="train", rerank=None)
    return load_split(of_training, version, recipe, dataset)[0]


def known_and_unseen(settings, version, recipe, dataset, split):
    """The images of classes known by their means, those of the others, and the hierarchy of all."""
    import numpy as np

    from tfdml import evaluation

    if settings.unseen_share is None:
        check(
            has_images_of(recipe, settings) and settings.split in ("test", "validation"),
            "`unseen_share` must be given, but for the split test or validation of the images of "
            "the training, whose training classes are known",
            split=settings.split,
            dataset=settings.dataset,
        )
        known = training_split(settings, version, recipe, dataset)
        hierarchy = hierarchy_of(settings, pipelines.join_splits([known, split]))
    else:
        hierarchy = hierarchy_of(settings, split)
        classes = np.unique(split.labels).tolist()
        unseen = evaluation.every_nth_child(classes, hierarchy, settings.unseen_share)
        check(
            unseen,
            "`unseen_share` must hold out a class of a parent or more",
            unseen_share=settings.unseen_share,
        )
        held_out = np.isin(split.labels, unseen)
        known, split = split.subset(~held_out), split.subset(held_out)
    ids = (np.unique(images.labels) for images in (known, split))
    check(
        evaluation.have_relatives(next(ids), hierarchy, next(ids)).any(),
        "no unseen class has kin among the known ones but by a root: give `unseen_share`, such as "
        "0.2, to hold classes out of each parent",
        known=known.num_classes,
        unseen=split.num_classes,
    )
    return known, split, hierarchy


def hierarchy_of(settings, split):
    """The parents of the classes: those of the file, or the super-classes of the dataset."""
    import numpy as np

    from tfdml.evaluation import hierarchy

    if settings.hierarchy:
        names = dict(zip(np.unique(split.labels).tolist(), split.names, strict=True))
        return hierarchy.of_class_ids(hierarchy.read_hierarchy(settings.hierarchy), names)
    check(
        split.super_labels is not None,
        "`hierarchy` must be given for a dataset without super-classes",
        dataset=settings.dataset,
    )
    return hierarchy.of_super_classes(split.labels, split.super_labels)


def with_neighbours(settings, split, queries):
    """The settings with numbers of neighbours, of which there are only so many in the split."""
    what, most = "means", split.num_classes
    if settings.task == "retrieval":
        what, most = "neighbours", pipelines.rows_to_find(split, queries)
    elif settings.task == "one_per_class":
        what = "gallery"
    if settings.k is None:
        most = min(most, settings.rerank or most)
        counts = [k for k in NEIGHBOURS[settings.task] if k <= most]
        return dataclasses.replace(settings, k=counts or [1])
    largest = max(settings.k) if isinstance(settings.k, list) else settings.k
    check(largest <= most, f"`k` must not exceed the {what}", k=settings.k, **{what: most})
    return settings


def preprocessing_of(version, recipe):
    """How the images of the training were brought to their size, and the served model's are."""
    mean = version / "assets.extra" / exported.MEAN_IMAGE
    return pipelines.Preprocessing(
        warp_size=recipe.get("warp_size"),
        keep_aspect=recipe.get("keep_aspect", False),
        trim_white=recipe.get("trim_white", False),
        mean_image=pipelines.read_mean_image(mean) if recipe.get("mean_image") else None,
    )


def embed(settings, signature, preprocessing, levels, dim, split):
    """(n, levels * dim) embeddings of the images, in order: those of the levels to score."""
    import numpy as np
    from tqdm import tqdm

    from pipelines.images import named
    from pipelines.views import views
    from tfdml.evaluation import average_views
    from tfdml.serving.embedding import InPieces, fitting_batch_size

    image_size = tuple(signature.structured_input_signature[1]["images"].shape[1:])
    width = signature.structured_outputs["embedding"].shape[1]
    batch_size = settings.batch_size or fitting_batch_size(image_size, width)
    network = InPieces(lambda images: signature(images=images)["embedding"], batch_size)
    read_size = image_size
    if settings.crops > 1:
        read_size = preprocessing.size_of_views(image_size)
    rows = len(split.labels)
    check_fits(4 * rows * levels * dim, "the embeddings", images=rows, embedding_dim=levels * dim)
    pixels = math.prod(read_size) * min(batch_size, rows)
    check_fits(4 * pixels, "a batch of images", batch_size=batch_size, image_size=read_size)
    several = {"crops": settings.crops, "mirror": settings.mirror}

    def embeddings_of(images):
        shown = views(images, image_size, **several)
        of_views = np.stack([network(view)[:, : levels * dim] for view in shown])
        return of_views[0] if len(of_views) == 1 else average_views(of_views, levels)

    batches = pipelines.evaluation_batches(
        split, read_size, batch_size, preprocessing=preprocessing
    )
    with named(split):
        batches = tqdm(batches, desc="Embedding", delay=2, disable=None, unit="batch")
        return np.concatenate([embeddings_of(images) for images in batches])


def levels_to_score(settings, recipe, signature):
    """How many embeddings of each image, of those side by side, are scored, and their width."""
    width, weights = signature.structured_outputs["embedding"].shape[1], settings.level_weights
    levels = len(weights or [1])
    if "embedding_dim" in recipe:
        levels = width // (recipe["embedding_dim"] or width)
    dim, most = width // levels, levels
    levels = settings.levels or levels
    check(
        levels <= most, "`levels` must not exceed those of the model", levels=levels, of_model=most
    )
    check(
        weights is None or (len(weights) == levels > 1 and width % levels == 0),
        "`level_weights` must have one number for each level of a model with several",
        level_weights=weights,
        levels=levels,
    )
    return levels, dim


def joined(settings, embeddings):
    """The embeddings of all levels, weighed if that is asked for."""
    from tfdml.evaluation import weigh_levels

    weights = settings.level_weights
    return embeddings if weights is None else weigh_levels(embeddings, weights)


def score_retrieval(settings, signatures, embeddings, levels, labels, queries):
    """{"scores": {name: value}} with more beside it, and the values of each query."""
    from tfdml import evaluation

    of_levels = score_levels(settings, embeddings, levels, labels, queries)
    embeddings = joined(settings, embeddings)
    results, per_query = score(settings, signatures, embeddings, labels, queries)
    results["scores"].update(score_clusters(settings, embeddings, labels))
    if settings.rank_by == "distance" and has_pairs_of_both_kinds(labels):
        results["distances"] = evaluation.distance_statistics(embeddings, labels)
    return {**results, **of_levels}, per_query


def score_levels(settings, embeddings, levels, labels, queries):
    """{"levels": {level: {name: value}}}, each of several ranked alone, by distance."""
    from tfdml import evaluation

    if levels == 1:
        return {}
    scores = {}
    for number, of_level in enumerate(evaluation.split_levels(embeddings, levels), start=1):
        data, gallery = evaluation.apart(of_level, labels, queries)
        found = evaluation.retrieval_scores(
            *data, settings.k, metrics=("recall", "map@r"), **gallery
        )
        if has_pairs_of_both_kinds(labels):
            found.update(evaluation.distance_statistics(of_level, labels))
        scores[f"level {number}"] = found
    return {"levels": scores}


def score(settings, signatures, embeddings, labels, queries):
    """What queries find: {"scores": {name: value}} with more beside it, and the values of each.

    "intervals" at 95 % over classes, and "macro", the means over classes. With --rerank recalls
    alone, "reranking" that tells what it loses, and no values of each query.
    """
    from tfdml import evaluation
    from tfdml.evaluation.results_text import named_recalls

    data, gallery = evaluation.apart(embeddings, labels, queries)
    if settings.rerank:
        asked = len(data[1]) * settings.rerank
        recalls = evaluation.recall_after_reranking(
            *data,
            settings.k,
            similarity=similarity_of(signatures["score_pairs"], asked),
            candidates=settings.rerank,
            **gallery,
        )
        lost = compare_rankings(settings, signatures["score_pairs"], *data, gallery)
        return {"scores": named_recalls(recalls), "reranking": lost}, {}
    similarity = None
    if settings.rank_by == "similarity":
        pairs = evaluation.scores_to_rank(len(labels))
        if queries is not None:
            pairs = len(data[1]) * len(gallery["gallery_labels"])
        similarity = similarity_of(signatures["score_matrix"], pairs)
    per_query = evaluation.retrieval_scores_per_query(
        *data, settings.k, similarity=similarity, **gallery
    )
    results = {
        "scores": {name: float(values.mean()) for name, values in per_query.items()},
        "macro": {
            name: evaluation.macro_average(values, data[1]) for name, values in per_query.items()
        },
    }
    if len(set(data[1].tolist())) > 1:
        results["intervals"] = evaluation.bootstrap_intervals(
            per_query, data[1], seed=settings.seed
        )
    if settings.index:
        results["approximate"] = evaluation.approximate_recall(
            *data,
            settings.k,
            index=settings.index,
            parameters=settings.index_parameters,
            seed=settings.seed,
            **gallery,
        )
    return results, per_query


def score_clusters(settings, embeddings, labels):
    """{name: value} of clusters against the classes, if they are asked for."""
    from tfdml import evaluation

    if not settings.nmi:
        return {}
    print(f"Clustering by {settings.cluster_by.replace('_', ' ')}", flush=True)
    options = {"seed": settings.seed, "restarts": settings.restarts}
    return evaluation.clustering_scores(embeddings, labels, method=settings.cluster_by, **options)


def verify(settings, embeddings, labels, training):
    """How well thresholds on the distance tell pairs of one class, by name.

    With "calibrated", where `training`, the embeddings and labels of the training classes, are at
    hand: the threshold that they give, and its rates on the scored ones.
    """
    from tfdml import evaluation

    rate = settings.false_match_rate
    found = evaluation.verification_scores(embeddings, labels, false_match_rates=rate)
    results = {
        "false_match_rate": rate,
        "auc": found["auc"],
        "equal_error_rate": found["equal_error_rate"],
        "true_match_rate": found["true_match_rates"][rate],
        "threshold": found["thresholds"][rate],
    }
    if training is None or not has_pairs_of_both_kinds(training[1]):
        print("No threshold is calibrated: the training classes are not at hand")
    else:
        threshold = evaluation.calibrate_threshold(*training, false_match_rate=rate)
        rates = evaluation.rates_at_threshold(embeddings, labels, threshold)
        results["calibrated"] = {"threshold": threshold, **rates}
    return results


def score_one_per_class(settings, signatures, embeddings, labels):
    """{"scores": {name: value}, "deviations": {name: value}} over draws of the gallery."""
    from tfdml import evaluation

    similarity = None
    if settings.rank_by == "similarity":
        similarity = similarity_of(signatures["score_matrix"])
    found = evaluation.one_per_class_scores(
        embeddings,
        labels,
        settings.k,
        draws=settings.draws,
        seed=settings.seed,
        similarity=similarity,
    )
    return {
        "scores": {name: mean for name, (mean, _) in found.items()},
        "deviations": {
            name: deviation for name, (_, deviation) in found.items() if settings.draws > 1
        },
    }


def score_few_shot(settings, embeddings, labels):
    """{"scores": {name: value}, "deviations": {name: value}} over draws of images for the means."""
    from tfdml.evaluation.transfer_scores import few_shot_scores

    return few_shot_scores(
        embeddings,
        labels,
        shots=settings.shots,
        k=settings.k,
        draws=settings.draws,
        seed=settings.seed,
        renormalize_means=settings.renormalize_means,
    )


def score_zero_shot(settings, of_known, embeddings, known_labels, labels, hierarchy):
    """{"scores": {name: value}}, with every way to count classes of one mean beside it."""
    from tfdml.evaluation.transfer_scores import zero_shot_scores

    return zero_shot_scores(
        *(of_known, known_labels, hierarchy, embeddings, labels),
        k=settings.k,
        renormalize_means=settings.renormalize_means,
        **settings.placement,
    )


def has_pairs_of_both_kinds(labels):
    return 1 < len(set(labels.tolist())) < len(labels)


def compare_rankings(settings, signature, embeddings, labels, gallery):
    """Recalls of a sample of queries by the learned similarity to all images, and reranked."""
    from tfdml import evaluation
    from tfdml.evaluation.results_text import named_recalls

    queries = min(COMPARED_QUERIES, len(labels))
    findable = len(gallery["gallery_labels"]) if gallery else len(labels) - 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of queries without a mate: said before
        exact, reranked = evaluation.exact_and_reranked_recall(
            embeddings,
            labels,
            k=settings.k,
            similarity=similarity_of(signature, queries * (findable + settings.rerank)),
            candidates=settings.rerank,
            queries=queries,
            seed=settings.seed,
            **gallery,
        )
    lost = {k: exact[k] - reranked[k] for k in exact}
    recalls = {"exact": exact, "reranked": reranked, "lost": lost}
    return {"queries": queries, **{name: named_recalls(recalls[name]) for name in recalls}}


def similarity_of(signature, pairs=None):
    """The learned similarity of rows of arrays; with a bar if told how many pairs there will be."""
    from tqdm import tqdm

    from tfdml.serving.exported import similarity_of

    bar = tqdm(
        desc="Scoring", total=pairs, delay=2, unit="pair", unit_scale=True, disable=pairs is None
    )
    return similarity_of(signature, bar)


def untrained_scores(settings, version, recipe):
    """{name: value} before the training, where the same is scored now; {} if not."""
    from tfdml.serving.metadata import read_metadata

    of_training = read_metadata(version).get("scores") or {}
    is_same = (
        has_images_of(recipe, settings)
        and settings.task == "retrieval"
        and settings.rank_by == "distance"
        and settings.split == of_training.get("scored_classes")
        and settings.boxes == recipe.get("boxes")
        and settings.skip_invalid == bool(recipe.get("skip_invalid"))
        and not changes_embeddings(settings)
    )
    return of_training.get("untrained", {}) if is_same and "trained" in of_training else {}


def write(settings, version, results, levels):
    """Writes the scores and how they came about as JSON; numbers without a limit as null."""
    told = {**dataclasses.asdict(settings), "scored_levels": levels}
    del told["levels"]  # the name of the scores of each level alone
    content = finite({"version": str(version), **told, **results})
    out = pathlib.Path(settings.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    queries_path(out).unlink(missing_ok=True)
    write_text(out, json.dumps(content, indent=2, allow_nan=False) + "\n")


def finite(content):
    """The content without numbers that JSON has not, such as the LDA score of two constants."""
    if isinstance(content, dict):
        return {str(name): finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def save_queries(settings, per_query, split, queries):
    """Writes the values of each query beside the scores, for --compare."""
    import numpy as np

    from tfdml import evaluation

    labels, ids = split.labels, ids_of(settings, split)
    content = "\0".join(ids) if split.holds_paths else split.images
    if queries is not None:
        labels, ids = labels[queries], np.asarray(ids)[queries]
    images = {
        "dataset": settings.dataset,
        "split": settings.split,
        "classes": hashlib.sha256("\0".join(split.names).encode()).hexdigest(),
        "content": hashlib.sha256(
            content.encode() if split.holds_paths else np.ascontiguousarray(content)
        ).hexdigest(),
    }
    evaluation.save_queries(
        queries_path(pathlib.Path(settings.out)), per_query, labels, images=images, ids=ids
    )


def searched(queries):
    """How many queries search how many images, in words; nothing where all find each other."""
    if queries is None:
        return ""
    return f",\n{queries.sum():,} queries in a gallery of {(~queries).sum():,}"


def ranking(settings):
    """How images were ranked or classified, in words; nothing for retrieval by distance."""
    draws = f"{settings.draws} draw" + "s" * (settings.draws > 1)
    if settings.task == "ncm":
        shots = "half" if settings.shots is None else f"{settings.shots:,} at most"
        return f",\nthe nearest mean of {shots} of the images of each class, {draws}"
    if settings.task == "zero_shot":
        return ",\nthe nearest mean of the kin of each class"
    words = ""
    if settings.task == "one_per_class":
        words = f",\namong one image of each class, {draws}"
    if settings.rerank:
        return f",\nthe {settings.rerank:,} nearest of each ranked by the learned similarity"
    return (
        f"{words},\nranked by the learned similarity" * (settings.rank_by == "similarity") or words
    )


def draw(settings, version, recipe, signatures, embeddings, split, queries, results, per_query):
    """Writes the page, the pictures and the projector's files; returns the path of the page."""
    from tfdml import evaluation
    from tfdml.evaluation import report
    from tfdml.evaluation.page import write_report
    from tfdml.evaluation.results_text import without_twins

    print("Drawing the report", flush=True)
    folder = pathlib.Path(settings.report)
    data, seed, picture_of = (embeddings, split.labels), settings.seed, pictures_of(split)
    pairs, matrix, neighbours = None, None, None
    if "score_pairs" in signatures and not changes_embeddings(settings):
        pairs = similarity_of(signatures["score_pairs"])
    facts, ids = facts_of(settings, version, recipe, split), ids_of(settings, split)
    if settings.rank_by == "similarity":
        matrix = similarity_of(signatures["score_matrix"])
        most = len(split.labels) - 1
        candidates = min(settings.rerank or REPORTED_CANDIDATES, most)
        neighbours = evaluation.reranked_neighbours(
            embeddings, min(REPORTED_NEIGHBOURS, most), similarity=pairs, candidates=candidates
        )
        facts["neighbours"] = f"the {candidates:,} nearest by distance, by the learned similarity"
    if queries is not None:
        per_query = {}
        facts["searched"] = searched(queries).removeprefix(",\n")
        if neighbours is None:
            most = min(REPORTED_NEIGHBOURS, len(split.labels) - 1)
            neighbours = evaluation.nearest_neighbours(embeddings, most)
    if not per_query:
        per_query = evaluation.retrieval_scores_per_query(*data, settings.k)
        facts["below the scores"] = "all images among themselves, by distance"
    page = write_report(
        *data,
        folder,
        title=f"{version.resolve().parent.name} on {settings.dataset} ({settings.split})",
        scores=without_twins(results["scores"]),
        per_query=without_twins(per_query),
        picture_of=picture_of,
        facts=facts,
        intervals=without_twins(results.get("intervals", {})),
        class_names=split.class_names,
        image_names=ids if split.holds_paths else None,
        untrained=results.get("untrained"),
        neighbours=neighbours,
        seed=seed,
    )
    if has_pairs_of_both_kinds(split.labels):
        path = folder / "score_distributions.png"
        report.plot_score_distributions(*data, path, similarity=pairs, seed=seed)
    path = folder / "retrievals.png"
    report.plot_retrievals(picture_of, *data, path, similarity=matrix, names=ids, seed=seed)
    evaluation.write_projector(
        folder / "projector",
        *data,
        class_names=split.class_names,
        image_names=ids,
        picture_of=picture_of,
    )
    return page


def model_to_export(settings, version, recipe):
    """The model of the run that exported a version, and how it is to be exported; None if not."""
    if not settings.export:
        return None
    from tfdml.serving import export
    from tfdml.serving.metadata import read_metadata
    from tfdml.serving.options import export_options, options_kept

    before = read_metadata(version)
    options = export_options({**options_kept(before), **settings.export_options})
    export.check_same_run(pathlib.Path(settings.export), version)
    if not before or "run" not in recipe:
        raise ValueError(
            f"`export` takes the model of a run: {version} does not say by which it was exported"
        )
    folder = version.resolve().parents[2]  # of saved_models/NAME/1
    model = export.load_run(folder / "runs" / recipe["run"])
    return export.serve_run(model, version, before["levels"], options)


def export_scored(settings, version, served, shape, split, queries, results):
    """Writes the model that was scored, as it is to be exported; returns the path of the version.

    Its embeddings are those of a first copy: what rounded weights lose is measured on what is
    served, and goes into the metadata.
    """
    import numpy as np

    from tfdml import evaluation
    from tfdml.serving import Gallery, class_means, export
    from tfdml.serving.metadata import read_metadata
    from tfdml.serving.options import TOP
    from tfdml.serving.versions import megabytes

    precision, before = served.options.precision, read_metadata(version)["precision"]
    with tempfile.TemporaryDirectory() as folder:
        copy = served.write(pathlib.Path(folder) / "1")
        signature = exported.load_signatures(copy)["embed_images"]
        embeddings = embed(settings, signature, *shape, split)
        size = megabytes(copy)
    data, gallery = evaluation.apart(embeddings, split.labels, queries)
    recall = evaluation.recall_at_k(*data, k=1, **gallery)[1]
    scores = {
        before: {"recall@1": results["scores"].get("recall@1"), "megabytes": megabytes(version)},
        precision: {"recall@1": recall, "megabytes": size},
    }
    shown = np.ones(len(split.labels), bool) if queries is None else ~queries
    found, rows = split.subset(shown), embeddings[shown]
    if settings.export_classes:
        served.add_classes(class_means(rows, found.labels, found.names), top=TOP)
    if settings.export_gallery:
        names = dict(zip(np.unique(found.labels).tolist(), found.names, strict=True))
        classes = [names[label] for label in found.labels.tolist()]
        ids = ids_of(settings, split)
        gallery = Gallery([ids[row] for row in np.flatnonzero(shown)], rows, classes)
        served.add_gallery(gallery, top=TOP)
    known = {"precision_scores": scores} if precision != before else {}
    path = export.write_next(served, pathlib.Path(settings.export), version, **known)
    for name, of_precision in scores.items():
        recall = of_precision["recall@1"]
        print(f"{name:>7}: recall@1 {recall:.4f}, {of_precision['megabytes']:.1f} MB")
    return path


def ids_of(settings, split):
    """A text for each image: its path in the folder of the dataset, or its number."""
    if not split.holds_paths:
        return [str(row) for row in range(len(split.labels))]
    folder = os.path.expanduser(settings.data_dir)
    return [os.path.relpath(path, folder) for path in split.images]


def changes_embeddings(settings):
    """Whether the embeddings are others than those that a similarity learned."""
    views = settings.crops > 1 or settings.mirror
    return bool(settings.level_weights or settings.levels or views)


def facts_of(settings, version, recipe, split):
    """{word: text}, how the scores came about, for the page."""
    facts = {
        "model": str(version),
        "images": f"{len(split.labels):,} of {split.num_classes:,} classes, {settings.split} of "
        f"{settings.dataset}",
        "ranked by": "the learned similarity" if settings.rank_by == "similarity" else "distance",
    }
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name in CHANGES_OF_EMBEDDINGS and value != field.default:
            facts[field.name.replace("_", " ")] = str(value)
    for name in ("loss", "backbone", "embedding_dim", "steps", "seed"):
        if name in recipe:
            facts[name.replace("_", " ")] = str(recipe[name])
    return facts


def pictures_of(split):
    """What reads the image of a row, at its own size."""
    from pipelines import records
    from pipelines.batches import part_of

    def picture(row):
        image, box = split.images[row], None if split.boxes is None else split.boxes[row]
        return part_of(split, records.read(image) if split.holds_records else image, box, 3)

    return picture


if __name__ == "__main__":
    main()
