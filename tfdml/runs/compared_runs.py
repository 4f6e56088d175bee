"""Comparison of runs that were scored on the same images."""

import pathlib

from tfdml import evaluation
from tfdml.checks import check
from tfdml.files import check_file, identity
from tfdml.runs.scoring import score_files


def compare(options, runs):
    """Prints how the scores of runs differ from those of the first, and writes it to `out`.

    Runs are given by their folders, or by files of their scores.
    """
    files = {run: queries_of(run) for run in runs}
    several = len(files) == len(runs) == len(set(map(identity, files.values())))
    check(several, "a comparison needs runs with scores of their own", runs=runs)
    out = options.out and pathlib.Path(options.out)
    if out:
        check_file(out=out)
    scored = {run: evaluation.load_queries(file) for run, file in files.items()}
    drawn = {name: getattr(options, name) for name in ("confidence", "rounds", "seed")}
    comparison = evaluation.compare(scored, **drawn)
    print(
        f"{comparison['queries']:,} images of {comparison['classes']:,} classes:\n"
        f"{evaluation.comparison_table(comparison)}"
    )
    if out:
        score_files.write_json(out, comparison)
        print(f"Comparison: {out}")


def queries_of(run):
    """The archive of the values of each query of a run, by its folder or a file of its scores."""
    path = pathlib.Path(run)
    if not path.exists():
        raise FileNotFoundError(f"{run} does not exist")
    scores = path if path.suffix == ".json" else path / "evaluation.json"
    archive = score_files.queries_path(scores)
    if not archive.is_file():
        files = sorted(scores.parent.glob("*.json"))
        others = [str(each) for each in files if score_files.queries_path(each).is_file()]
        hint = "score the run by tfdml-evaluate, and give its folder in runs/"
        hint = f"it has those in {', '.join(others)}" if others else hint
        raise FileNotFoundError(f"{run} has no values of queries, {archive}: {hint}")
    return archive
