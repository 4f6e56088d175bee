"""Comparison of runs that were scored on the same images."""

import json
import pathlib

from tfdml import evaluation
from tfdml.checks import check
from tfdml.command_line import program_call
from tfdml.files import check_file, identity, read_text
from tfdml.runs.scoring.score_files import queries_path, write_json
from tfdml.serving.exported import find_version
from tfdml.serving.versions import name_of, versions_of


def compare(options, runs):
    """Prints how the scores of runs differ from those of the first, and writes it to `out`.

    Args:
        options: `Comparison`.
        runs: Folders of runs or models, or files of their scores.

    Raises:
        FileNotFoundError: If a run has no values of queries.
        ValueError: If two are the same, or they were scored on other images.
    """
    files = {run: queries_of(run) for run in runs}
    several = len(files) == len(runs) == len(set(map(identity, files.values())))
    check(several, "a comparison needs runs with scores of their own", runs=runs)
    out = options.out and pathlib.Path(options.out)
    if out:
        check_file(out=out)
    scored = {run: evaluation.load_queries(file) for run, file in files.items()}
    options = {name: getattr(options, name) for name in ("confidence", "rounds", "seed")}
    comparison = evaluation.compare(scored, **options)
    print(
        f"{comparison['queries']:,} images of {comparison['classes']:,} classes:\n"
        f"{evaluation.comparison_table(comparison)}"
    )
    if out:
        write_json(out, comparison)
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
            if path.suffix != ".json":
                _check_version(file, path)
            return queries_path(file)
    scores = sorted(files[-1].parent.glob("*.json"))
    others = [str(path) for path in scores if queries_path(path).is_file()]
    model = folder.parent if path.suffix == ".json" else run
    hint = f"score it first by `{program_call('evaluate')} {model}`"
    if others:
        hint = f"it has those in {', '.join(others)}"
    raise FileNotFoundError(f"{run} has no values of queries, {queries_path(files[-1])}: {hint}")


def _check_version(scores, folder):
    """Raises a FileNotFoundError for scores of another version than that of a folder."""
    version = _version_of(scores)
    if version is None:
        return
    try:
        asked = find_version(folder)
    except FileNotFoundError:  # a folder of scores alone
        _, asked = max(versions_of(version.parent).items(), default=(0, version))
    if name_of(version) != name_of(asked):  # a relative path, of the folder that it was scored from
        raise FileNotFoundError(
            f"{scores} has the scores of {version}, not of {asked}: score that first by "
            f"`{program_call('evaluate')} {asked}`"
        )


def _version_of(scores):
    """The version that a file of scores is of; None where it does not state one."""
    try:
        return pathlib.Path(json.loads(read_text(scores))["version"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
