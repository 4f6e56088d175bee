"""The trainings of a row: of a fold to choose settings, of all classes to score; each done once."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import shutil
import subprocess
import time

from tfdml import evaluation, losses, runs
from tfdml.checks import check
from tfdml.command_line import as_yaml
from tfdml.files import locked, naming, read_text, write_text
from tfdml.programs import evaluate, train
from tfdml.runs.folders import RUNS, SAVED_MODELS
from tfdml.runs.recipe import Recipe
from tfdml.runs.recipe_flags import recipe_parser
from tfdml.runs.run_images import load_images
from tfdml.runs.stored import Stored, write_embeddings
from tfdml.runs.table import Table
from tfdml.runs.task_options import OF_IMAGES

PROGRAM = "tfdml.experiment"
UNSEEN = ("run", "seed", *("data_dir", "weights", "mean_image"))  # by a digest; of files, the path
OBJECTIVE_SETTINGS = ("loss", "loss_options", "learning_rate")
BY_DISTANCE, BY_SIMILARITY = "distance", "similarity"
ORDER = ("trial", "fold", "seed")  # of trainings; those to score have neither of the first
COMPARED = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "map", "r_precision", "mrr")
PACKAGES = ("tensorflow", "keras")


def recipe_of(table, row, changes=()):
    """The recipe of a row with changes of its settings; exits with code 2 if it is wrong."""
    return recipe_parser(PROGRAM).recipe_of_row(table, row, changes)


def digest(*contents):
    """Eight characters that differ between contents, which JSON can hold."""
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:8]


def settings_digest(recipe):
    """That of the settings that are not at their defaults; of files, whether they are given."""
    fields = dataclasses.fields(recipe)
    of = {field.name: getattr(recipe, field.name) for field in fields}
    given = {field.name for field in fields if of[field.name] not in (field.default, {})}
    seen = {name: of[name] for name in given - set(UNSEEN)}
    return digest(seen, sorted(given & {"weights", "mean_image"}))


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table, and the folder of its trainings."""

    table: Table
    name: str

    @property
    def folder(self):
        return RUNS / self.table.name / self.name

    @functools.cached_property
    def digest(self):
        """Of all that its scores depend on: trainings of other settings are not its own."""
        search = {**(self.table.search or {}), "rows": None, "ranges": self.ranges}
        searched = [search, self.table.folds, self.table.score[:1]] if self.ranges else []
        options = self.table.evaluation_of(self.name)
        return digest(settings_digest(recipe_of(self.table, self.name)), options, searched)

    @functools.cached_property
    def ranges(self):
        return self.table.ranges(self.name)

    def lines(self):
        """Those of results.csv of all that was trained with today's settings, in order."""
        every = (json.loads(read_text(path)) for path in self.folder.glob("*.json"))
        own = [lines for lines in every if lines[0]["digest"] == self.digest]
        own.sort(key=lambda lines: [(of == "", of) for of in map(lines[0].get, ORDER)])
        return [line for lines in own for line in lines]

    def validated(self, setting, trial, fold):
        """The line of a training with a setting, whose scores are those of the held-out fold."""
        seed, folds = self.table.seeds[0], self.table.folds
        recipe = recipe_of(self.table, self.name, {**setting, "seed": seed})
        own = {"trial": trial, "fold": fold, "seed": seed, "setting": json.dumps(setting)}
        parts = (f"fold_{fold}_of_{folds}", self.digest, settings_digest(recipe), str(seed))
        path = self.folder / f"{'_'.join(parts)}.json"
        [line] = self.once(path, own, lambda: _validated(recipe, (fold, folds), self.table.score))
        return line

    def trained(self, setting, seed):
        """The lines of a training on all training classes, one for each ranking."""
        options = self.table.evaluation_of(self.name)
        recipe = recipe_of(self.table, self.name, {**setting, "seed": seed})
        name = f"{self.table.name}_{self.name}_{digest(settings_digest(recipe), options)}_{seed}"
        recipe = dataclasses.replace(recipe, run=name)
        own = {"trial": "", "fold": "", "seed": seed, "setting": json.dumps(setting)}
        path = self.folder / f"{self.digest}_{name}.json"
        return self.once(path, own, lambda: _trained(recipe, options))

    def once(self, path, own, make):
        """The lines that `make` returns, kept in a file; those of the file if it exists."""
        if not path.exists():
            import keras  # which programs that look for results do not wait for

            keras.utils.clear_session()
            began = time.perf_counter()
            scored = make()
            common = {"seconds": round(time.perf_counter() - began, 1), **_made_by()}
            keys = {"row": self.name, **own, "digest": self.digest}
            write_text(path, json.dumps([{**keys, **line, **common} for line in scored]) + "\n")
        return json.loads(read_text(path))

    @contextlib.contextmanager
    def log(self):
        """Within it, what is printed goes to a file; one process at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "log.txt"
        sentence = f"another process is working on row {self.name!r} of {self.table.name}"
        with (
            locked(self.folder, sentence),
            naming(path),
            path.open("a", encoding="utf-8") as file,
            contextlib.redirect_stdout(file),
            contextlib.redirect_stderr(file),
        ):
            yield path


def _made_by():
    """{"commit", "versions"} of what trains."""
    here = pathlib.Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"]
    commit = ""
    with contextlib.suppress(OSError):
        found = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        commit = found.stdout.strip()
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    return {"commit": commit, "versions": ", ".join(versions)}


def _validated(recipe, fold, names):
    """The line of the scores of a fold; 0 for each if the training diverges."""
    images = _images_of(_without_objective(recipe), fold)
    run = runs.prepare(recipe, images=images)
    line = {"classes": "validation", "ranked_by": BY_DISTANCE}
    try:
        run.train()
    except FloatingPointError as error:
        print(error)
        return [{**line, **dict.fromkeys(names, 0.0)}]
    embeddings = runs.embed_scored(run.trained, run.seen)
    return [{**line, **evaluation.retrieval_scores(embeddings, images.test.labels)}]


def _without_objective(recipe):
    """The settings of a recipe that its images may depend on, as JSON."""
    settings = dataclasses.asdict(recipe)
    needless = ("run", *OBJECTIVE_SETTINGS)
    return json.dumps({name: of for name, of in settings.items() if name not in needless})


@functools.lru_cache(maxsize=4)  # folds, which the trials of a row take in turns
def _images_of(settings, fold):
    recipe = Recipe(**json.loads(settings))
    images = load_images(recipe, fold)
    starts_here = recipe.tune == "head" and not recipe.init_from and images.train.inputs is None
    return runs.features_of(recipe, images) if starts_here else images


def _trained(recipe, options):
    """Lines of the scores of a run, which is begun, goes on or is complete."""
    folder = RUNS / recipe.run
    if _needs_images(recipe, options):
        scored = [_exported(recipe)]
    else:
        scored = ["--embeddings", _embedded(recipe)]
    run = json.loads(read_text(folder / "scores.json"))
    lines = []
    for ranked_by in (BY_DISTANCE, *[BY_SIMILARITY] * run["learns_similarity"]):
        out = folder / f"{ranked_by}.json"
        given = {"rank_by": ranked_by, "nmi": False, "out": str(out)}
        if ranked_by == BY_SIMILARITY:
            given |= {name: options[name] for name in options.keys() & {"k"}}
        else:
            given |= options
            weights = given.pop("level_weights", [])
            if (levels := run["levels"]) > 1:
                given["level_weights"] = weights if len(weights) == levels else [1] * levels
        evaluate.main([*map(str, scored), *_flags_of(given)])
        found = json.loads(read_text(out))
        untrained = {"untrained": run["untrained"]["recall@1"]}
        whole = found["scores"] | found.get("distances", {}) | untrained
        own = {"run": recipe.run, "classes": run["scored_classes"]}
        rows = {**found.get("levels", {}), ranked_by: whole}
        lines += [{**own, "ranked_by": by, **scores} for by, scores in rows.items()]
    return lines


def _needs_images(recipe, options):
    """Whether the scores are of images, not of a head's embeddings of features, or of these."""
    learned = losses.get(recipe.loss, **recipe.loss_options).traits.learns_similarity
    return recipe.tune not in ("head", "frozen") or learned or bool(set(options) & set(OF_IMAGES))


def _exported(recipe):
    """The versions that a run exports."""
    folder, model = RUNS / recipe.run, SAVED_MODELS / recipe.run
    if folder.is_dir() and not (model / "1").is_dir():
        train.main(["--run", recipe.run, "--resume"])
    elif not folder.is_dir():
        shutil.rmtree(model, ignore_errors=True)
        config = folder.with_suffix(".yaml")
        write_text(config, as_yaml(dataclasses.asdict(recipe)))
        train.main(["--config", str(config)])
        config.unlink()
    return model


def _embedded(recipe):
    """The file of the embeddings that a run has at its end, which is not exported."""
    path = RUNS / recipe.run / "embeddings.npz"
    with runs.prepare(recipe, resume=path.parent.is_dir(), kept=True) as run, run.resumable():
        train.report(run, train.fit(run))
        labels = run.images.test.labels
        rows = runs.embed_scored(run.trained, run.seen)
        write_embeddings(path, Stored(rows, labels, run.images.queries))
    return path


def check_scores(table, row):
    """Rejects options of `evaluate.py`, and scores, that there are not."""
    evaluate.parse("retrieval", ["model", *_flags_of(table.evaluation_of(row))])
    expectation = "the first `score` must be of queries, such as recall@1 or map@r"
    check(table.score[0] in COMPARED, expectation, score=table.score[0])


def _flags_of(options):
    words = (
        (f"--{name}", value if isinstance(value, str) else json.dumps(value))
        for name, value in options.items()
    )
    return [word for pair in words for word in pair]
