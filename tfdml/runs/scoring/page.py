"""The report of a retrieval: its page, pictures to print, and the projector's files."""

import pathlib

import tfdml
from tfdml.runs.scoring.images import has_pairs_of_both_kinds, ids_of
from tfdml.runs.scoring.model import similarity_of
from tfdml.runs.scoring.settings import OF_EMBEDDINGS

NEIGHBOURS = 10  # of each image on the page, where they are not those of the scores
CANDIDATES = 100  # nearest by distance that a learned similarity ranks for the page


def draw(settings, model, images, results):
    """Writes the report to `settings.report`; returns the path of the page."""
    from tfdml.evaluation.report import plots
    from tfdml.evaluation.report.page import write_report
    from tfdml.evaluation.report.tables import without_twins

    print("Drawing the report", flush=True)
    split, seed, folder = images.split, settings.seed, pathlib.Path(settings.report)
    data = results["embeddings"], split.labels
    ids, picture_of = ids_of(settings, split), pictures_of(split)
    pairs = None
    if "score_pairs" in model.signatures and not settings.changes_embeddings:
        pairs = similarity_of(model.signatures["score_pairs"])
    facts = facts_of(settings, model, images)
    per_query = results.get("per_query") if images.queries is None else None
    if not per_query:
        per_query = tfdml.evaluation.retrieval_scores_per_query(*data, settings.k)
        facts["below the scores"] = "all images among themselves, by distance"
    page = write_report(
        *data,
        folder,
        title=f"{model.name} on {data_of(settings)} ({settings.split})",
        scores=without_twins(results["scores"]),
        per_query=without_twins(per_query),
        picture_of=picture_of,
        facts=facts,
        intervals=without_twins(results.get("intervals", {})),
        class_names=split.class_names,
        image_names=ids if split.holds_paths else None,
        untrained=results.get("untrained"),
        neighbours=_neighbours(settings, images, data[0], pairs),
        seed=seed,
    )
    if has_pairs_of_both_kinds(split.labels):
        path = folder / "score_distributions.png"
        options = {"similarity": pairs, "levels": model.levels, "seed": seed}
        plots.plot_score_distributions(*data, path, **options)
    options = {"similarity": model.similarity(settings), "names": ids, "seed": seed}
    plots.plot_retrievals(picture_of, *data, folder / "retrievals.png", **options)
    names = {"class_names": split.class_names, "image_names": ids}
    tfdml.evaluation.write_projector(folder / "projector", *data, **names, picture_of=picture_of)
    return page


def data_of(settings):
    """The name of the dataset, and of a user's own images that of their folder or file."""
    own = settings.dataset in ("folder", "csv", "cache") and settings.data_dir
    return f"{settings.dataset} {pathlib.Path(own).resolve().name}" if own else settings.dataset


def _neighbours(settings, images, embeddings, similarity):
    """The rows nearest to each, where they are not those that were scored; else None."""
    most = min(NEIGHBOURS, len(embeddings) - 1)
    if settings.rank_by == "similarity":
        candidates = _candidates(settings, images)
        options = {"similarity": similarity, "candidates": candidates}
        return tfdml.evaluation.reranked_neighbours(embeddings, min(most, candidates), **options)
    return None if images.queries is None else tfdml.evaluation.nearest_neighbours(embeddings, most)


def _candidates(settings, images):
    return min(settings.rerank or CANDIDATES, len(images.split.labels) - 1)


def facts_of(settings, model, images):
    """{word: text}, how the scores came about, for the page."""
    split, by_similarity = images.split, settings.rank_by == "similarity"
    facts = {
        "model": model.version,
        "images": f"{len(split.labels):,} of {split.num_classes:,} classes, {settings.split} of "
        f"{data_of(settings)}",
        "ranked by": "the learned similarity" if by_similarity else "distance",
    }
    changed = settings.changed(("boxes", *OF_EMBEDDINGS))
    facts |= {name.replace("_", " "): getattr(settings, name) for name in changed}
    recipe = ("loss", "backbone", "embedding_dim", "steps", "seed")
    facts |= {name.replace("_", " "): model.recipe[name] for name in recipe if name in model.recipe}
    if by_similarity:
        candidates = _candidates(settings, images)
        facts["neighbours"] = f"the {candidates:,} nearest by distance, by the learned similarity"
    if images.queries is not None:
        facts["searched"] = searched(images.queries).removeprefix(",\n")
    return facts


def searched(queries):
    """How many queries search how many images, in words; empty where all find each other."""
    if queries is None:
        return ""
    return f",\n{queries.sum():,} queries in a gallery of {(~queries).sum():,}"


def pictures_of(split):
    """A function from a row to its image, at its own size."""
    from pipelines.loading import read, rows_of, with_contents

    def picture(row):
        rows = rows_of(split.subset([row]))
        rows = with_contents(rows) if split.holds_records else rows
        return read({name: values[0] for name, values in rows.items()}, 3)

    return picture
