"""The report of a retrieval: its page, pictures to print, and the projector's files."""

import pathlib

from pipelines import records
from pipelines.loading import part_of
from tfdml import evaluation
from tfdml.evaluation.report import plots
from tfdml.evaluation.report.page import write_report
from tfdml.evaluation.report.tables import without_twins
from tfdml.runs.scoring.tasks import has_pairs_of_both_kinds
from tfdml.runs.task_options import CHANGING

NEIGHBOURS = 10  # of each image on the page, where they are not those of the scores
CANDIDATES = 100  # nearest by distance that a learned similarity ranks for the page


def draw(embedded, options, results, title, facts):
    """Writes the report to `options.report`; returns the path of the page."""
    print("Drawing the report", flush=True)
    images, model, seed = embedded.images, embedded.model, options.seed
    split, folder, ids = images.split, pathlib.Path(options.report), images.ids(options)
    data, pairs = (embedded.embeddings, split.labels), None
    if model.version and "score_pairs" in model.signatures and not options.changed(CHANGING):
        pairs = model.similarity("score_pairs")
    per_query = results.get("per_query") if images.queries is None else None
    if not per_query:
        per_query = evaluation.retrieval_scores_per_query(*data, options.k)
        facts["below the scores"] = "all images among themselves, by distance"
    most, neighbours = min(NEIGHBOURS, len(split.labels) - 1), None
    if options.rank_by == "similarity":
        candidates = min(options.rerank or CANDIDATES, len(split.labels) - 1)
        facts["neighbours"] = f"the {candidates:,} nearest by distance, by the learned similarity"
        kind = {"similarity": pairs, "candidates": candidates}
        neighbours = evaluation.reranked_neighbours(data[0], min(most, candidates), **kind)
    elif images.queries is not None:
        neighbours = evaluation.nearest_neighbours(data[0], most)

    def picture(row):
        """The image of a row, at its own size."""
        image, box = split.images[row], None if split.boxes is None else split.boxes[row]
        return part_of(split, records.read(image) if split.holds_records else image, box, 3)

    page = write_report(
        *data,
        folder,
        title=title,
        scores=without_twins(results["scores"]),
        per_query=without_twins(per_query),
        picture_of=picture,
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
        kind = {"similarity": pairs, "levels": embedded.number, "seed": seed}
        plots.plot_score_distributions(*data, path, **kind)
    kind = {"similarity": embedded.similarity(options), "names": ids, "seed": seed}
    plots.plot_retrievals(picture, *data, folder / "retrievals.png", **kind)
    names = {"class_names": split.class_names, "image_names": ids}
    evaluation.write_projector(folder / "projector", *data, **names, picture_of=picture)
    return page
