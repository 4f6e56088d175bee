"""Reports: of a retrieval its page, pictures to print, and the projector's files."""

import pathlib

from pipelines.loading import read, rows_of, with_contents
from tfdml import evaluation
from tfdml.evaluation.metrics import Metrics, without_twins
from tfdml.evaluation.report import figures
from tfdml.evaluation.report.page import write_report
from tfdml.runs.printed import page_facts, page_title
from tfdml.runs.scoring.audited import write_page
from tfdml.runs.scoring.tasks import NEAREST, has_pairs_of_both_kinds
from tfdml.runs.task_options import CHANGING


def draw(embedded, options, results):
    """Writes the report to `options.report`; returns the path of the page, or of the picture."""
    print("Drawing the report", flush=True)
    if options.task == "open_set":
        path = pathlib.Path(options.report, "reliability.png")
        return figures.plot_reliability(results["reliability"], path)
    images, model = embedded.images, embedded.model
    picture = pictures_of(images.split)
    if options.task == "audit":
        return write_page(results["found"], images, options, picture)
    facts = page_facts(options, model, images)
    split, folder, seed = images.split, pathlib.Path(options.report), {"seed": options.seed}
    data, ids = (embedded.embeddings, split.labels), images.ids(options)
    most = len(split.labels) - 1
    ranking, neighbours, pairs = results.get("ranking"), None, None
    if model.version and "score_pairs" in model.signatures and not options.changed(CHANGING):
        pairs = model.similarity("score_pairs")
    if options.rank_by == "similarity" and ranking and images.queries is None:
        neighbours = ranking.nearest
    elif options.rank_by == "similarity":
        candidates = min(options.rerank or 10 * NEAREST, most)
        facts["neighbours"] = f"the {candidates:,} nearest by distance, by the learned similarity"
        kind = {"similarity": pairs, "candidates": candidates}
        count = min(NEAREST, candidates)
        neighbours = evaluation.reranked_neighbours(data[0], count, **kind)
    if not ranking or ranking.histogram is None:
        ranking = evaluation.rank(*data, nearest=NEAREST, histogram=True)
    per_query = results.get("per_query") if images.queries is None else None
    if not per_query:
        per_query = Metrics.of(None, options.k, most).values(ranking)
        facts["below the scores"] = "all images among themselves, by distance"

    if copies := results.get("without_copies", {}):
        facts["copies"] = f"{copies['copies']:,}: pictures of another image, or of the training"
    page = write_report(
        *data,
        folder,
        title=page_title(options, model),
        scores=without_twins(results["scores"]),
        per_query=without_twins(per_query),
        picture_of=picture,
        facts=facts,
        intervals=without_twins(results.get("intervals", {})),
        class_names=split.class_names,
        image_names=ids if split.holds_paths else None,
        untrained=results.get("untrained"),
        without_copies=copies.get("scores"),
        ranking=ranking,
        neighbours=neighbours,
        **seed,
    )
    if has_pairs_of_both_kinds(split.labels):
        kind = {"similarity": pairs, "levels": embedded.number, **seed}
        figures.plot_score_distributions(*data, folder / "score_distributions.png", **kind)
    kind = {"similarity": embedded.similarity(options), "names": ids, **seed}
    figures.plot_retrievals(picture, *data, folder / "retrievals.png", **kind)
    names = {"class_names": split.class_names, "image_names": ids}
    evaluation.write_projector(folder / "projector", *data, **names, picture_of=picture)
    return page


def pictures_of(split):
    """A function from a row number to its (height, width, 3) uint8 image, at its own size."""

    def picture(row):
        rows = rows_of(split.subset([row]))
        rows = with_contents(rows) if split.holds_records else rows
        return read({name: values[0] for name, values in rows.items()}, 3)

    return picture
