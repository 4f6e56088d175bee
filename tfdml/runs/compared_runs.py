"""Comparison of runs that were scored on the same images."""

import contextlib
import json
import pathlib

from tfdml import evaluation
from tfdml.checks import check
from tfdml.files import check_file, identity, read_text
from tfdml.runs.scoring import score_files
from tfdml.serving.exported import find_version
from tfdml.serving.versions import name_of, versions_of


def compare(options, runs):
    """Prints how the scores of runs differ from those of the first, and writes it to `out`.

    Runs are given by their folders, those of their models, or files of their scores.
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
    """The archive of the values of each query of a run, of the version that is given."""
    path = pathlib.Path(run)
    if not path.exists():
        raise FileNotFoundError(f"{run} does not exist")
    folder, is_file = path.resolve(), path.suffix == ".json"
    names = [folder.name, *([folder.parent.name] if folder.name.isdigit() else [])]
    folders = [path, *(pathlib.Path("runs", name) for name in names)]
    files = [path] if is_file else [folder / "evaluation.json" for folder in folders]
    archives = map(score_files.queries_path, files)
    for file, archive in zip(files, archives, strict=True):
        if archive.is_file():
            if not is_file:
                _check_version(file, path)
            return archive
    scores = sorted(files[-1].parent.glob("*.json"))
    others = [str(path) for path in scores if score_files.queries_path(path).is_file()]
    hint = f"it has those in {', '.join(others)}"
    if not others:
        hint = f"score it first by `tfdml-evaluate {folder.parent if is_file else run}`"
    archive = score_files.queries_path(files[-1])
    raise FileNotFoundError(f"{run} has no values of queries, {archive}: {hint}")


def _check_version(scores, folder):
    try:
        version = pathlib.Path(json.loads(read_text(scores))["version"])
    except (OSError, ValueError, LookupError, TypeError):
        return
    asked = max(versions_of(version.parent).items(), default=(0, version))[1]
    with contextlib.suppress(FileNotFoundError):  # of a folder of scores alone
        asked = find_version(folder)
    if name_of(version) != name_of(asked):  # a relative path, of the folder that it was scored from
        raise FileNotFoundError(
            f"{scores} has the scores of {version}, not of {asked}: score that first by "
            f"`tfdml-evaluate {asked}`"
        )
