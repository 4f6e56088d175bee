"""A table is searched, trained, scored and compared, and goes on after a stop."""

import csv

import numpy as np
import pytest
from full_disk import files_of_at_most
from small_runs import few_digits

import pipelines
from tfdml.evaluation.comparison import save_queries
from tfdml.experiment import trainings
from tfdml.runs.features import Features
from tfdml.runs.recipe import Recipe
from tfdml.runs.run_images import load_images

LABELS = np.repeat(np.arange(20), 5)


class Killed(BaseException):
    """A stop that nothing in the program handles."""


class Trainings:
    """In place of trainings: scores that follow from the settings, and a stop after a number."""

    def __init__(self, monkeypatch):
        self.made, self.last = 0, None
        monkeypatch.setattr(trainings, "_validated", self.validated)
        monkeypatch.setattr(trainings, "_trained", self.trained)

    def score(self, recipe, fold=0):
        if self.made == self.last:
            raise Killed
        self.made += 1
        margin = recipe.loss_options.get("margin", 0.3)
        return 0.8 - 0.1 * abs(np.log10(recipe.learning_rate) + 3) - abs(margin - 0.2) - 0.01 * fold

    def validated(self, recipe, fold, names):
        line = {"classes": "validation", "ranked_by": "distance"}
        return [{**line, **dict.fromkeys(names, self.score(recipe, fold[0]))}]

    def trained(self, recipe, options):
        score, folder = self.score(recipe), trainings.RUNS / recipe.run
        folder.mkdir(exist_ok=True)
        hits = np.random.default_rng(recipe.seed).random(len(LABELS)) < score
        values = {"recall@1": hits, "map@r": hits}
        save_queries(folder / "distance_queries.npz", values, LABELS, images={})
        scores = {name: float(np.mean(each)) for name, each in values.items()}
        line = {"run": recipe.run, "classes": "test", "ranked_by": "distance", "untrained": 0.2}
        return [{**line, **scores}]


@pytest.fixture
def made(monkeypatch):
    return Trainings(monkeypatch)


def lines_of(folder):
    """Lines of results.csv without their times and commits."""
    with (folder / "runs" / "some_digits" / "results.csv").open(newline="") as file:
        return [line | {"seconds": None, "commit": None} for line in csv.DictReader(file)]


def test_a_table_is_made_once_wherever_it_stops(run, made, table, tmp_path):
    first = run()
    assert first.code == 0, first.err
    lines, count = lines_of(table.parent), made.made
    final = [line for line in lines if line["classes"] == "test"]
    assert [(line["row"], line["seed"]) for line in final] == [
        (row, seed) for row in ("triplet", "contrastive") for seed in "01"
    ]
    assert len(lines) == count
    best = max(lines, key=lambda line: float(line["recall@1"]) * (line["fold"] == "0"))
    chosen = {line["setting"] for line in final if line["row"] == best["row"]}
    assert chosen == {best["setting"]}
    assert "2 rows × 2 seeds, after 3 trials of 2 folds each: 16 trainings, 0" in first.out
    assert "| `contrastive` | learning_rate" in first.out
    again = run()
    assert (again.code, made.made, lines_of(table.parent)) == (0, count, lines)

    other, made.made = tmp_path / "other", 0
    other.mkdir()
    for made.last in (3, count - 1):
        with pytest.raises(Killed):
            run(cwd=other)
    made.last = None
    assert run(cwd=other).code == 0
    assert made.made == count  # none is repeated
    assert lines_of(other) == lines


def test_results_of_changed_settings_are_not_mixed(run, made, table):
    few = "--row", "triplet", "--set", "search.trials=1"
    assert run(*few).code == 0
    before = lines_of(table.parent)
    changed = run(*few, "classes_per_batch=3")
    assert changed.code == 0
    assert "0 of them done" in changed.out
    after = lines_of(table.parent)
    assert not {line["digest"] for line in before} & {line["digest"] for line in after}
    count = made.made
    assert run(*few).code == 0
    assert made.made == count
    assert lines_of(table.parent) == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("loss: contrastive", "los: contrastive", "some_digits, row contrastive: "),
        ("loss: contrastive", "loss: contrastiv", "Did you mean 'contrastive'?"),
        ("loss_options.margin", "loss_options.magrin", "loss 'triplet' has no option 'magrin'"),
        ("[0.1, 0.2, 0.4]", "[0.1, -0.2]", "loss_options.margin -0.2: `margin`"),
        ("[0.1, 0.2, 0.4]", "0.1", "a range must be a list"),
        ("seeds:", "evaluate: {nim: true}\nseeds:", "Did you mean --nmi?"),
        ("seeds:", "score: [recal@1]\nseeds:", "the first `score` must be of queries"),
        ("low: 1.0e-4", "low: -1.0", "low=-1.0"),
        ("low: 1.0e-4", "low: 1.0", "low=1.0, high=0.01"),
        ("low: 1.0e-4", "lo: 1.0", "the range of 'learning_rate' has no option 'lo'"),
    ],
)
def test_wrong_rows_and_ranges_are_rejected_before_a_training(old, new, message, run, made, table):
    table.write_text(table.read_text().replace(old, new))
    assert message in run().sentence
    assert made.made == 0
    assert not (table.parent / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row", "triplets"], "Unknown row 'triplets'. Did you mean 'triplet'?"),
        (["--jobs", "0"], "--jobs must be >= 1. Received: 0"),
        (["--set", "steps"], "a change must be name=value. Received: change='steps'"),
        (["--set", "stpes=3"], "Did you mean --steps?"),
    ],
)
def test_wrong_arguments_are_rejected(arguments, message, run):
    assert message in run(*arguments).sentence


def test_a_full_disk_is_named_before_a_training(run, made):
    with files_of_at_most(10):
        assert "File too large" in run().sentence
    assert made.made == 0


def test_a_row_that_fails_does_not_stop_the_others(run, made, monkeypatch, table):
    def fail(recipe, fold, names):
        if recipe.loss == "triplet":
            raise OSError(28, "No space left on device")
        return made.validated(recipe, fold, names)

    monkeypatch.setattr(trainings, "_validated", fail)
    few = "--set", "search.trials=1"
    assert "row 'triplet': [Errno 28] No space left on device" in run(*few).sentence
    assert {line["row"] for line in lines_of(table.parent)} == {"contrastive"}
    monkeypatch.setattr(trainings, "_validated", made.validated)
    assert run(*few).code == 0
    assert {line["row"] for line in lines_of(table.parent)} == {"contrastive", "triplet"}


def test_folds_are_of_disjoint_classes_and_leave_the_test_alone(monkeypatch):
    monkeypatch.setattr(pipelines.Dataset, "scored", lambda _: pytest.fail("looked at the test"))
    known = pipelines.load("digits").train.classes.tolist()
    validated = []
    for fold in range(2):
        images = load_images(Recipe(dataset="digits"), (fold, 2))
        held_out = set(images.test.labels.tolist())
        assert set(images.train.names) == {str(label) for label in set(known) - held_out}
        validated += sorted(held_out)
    assert validated == known


@pytest.mark.slow  # the tests above go the same way, without training
def test_test_classes_are_not_looked_at_before_the_last_phase(run, monkeypatch, table):
    seen, scored = [], pipelines.Dataset.scored
    monkeypatch.setattr(
        pipelines.Dataset, "scored", lambda dataset: seen.append("test") or scored(dataset)
    )
    validated = trainings._validated
    monkeypatch.setattr(
        trainings, "_validated", lambda *given: seen.append("search") or validated(*given)
    )
    result = run("--row", "triplet", "--set", "search.trials=2", "seeds=[0]")
    assert result.code == 0, result.err
    assert seen[:4] == ["search"] * 4
    assert set(seen[4:]) == {"test"}
    [line] = [line for line in lines_of(table.parent) if line["classes"] == "test"]
    assert float(line["recall@1"]) > 0


HEADS = """
settings: {dataset: digits, tune: head, embedding_dim: 8, classes_per_batch: 2, steps: 2}
rows:
  frozen: {tune: frozen, embedding_dim: null, steps: 0, classes_per_batch: null}
  npair: {loss: npair}
search:
  trials: 1
  ranges: {learning_rate: [0.001]}
  rows: {frozen: null}
folds: 2
seeds: [0]
"""


def test_heads_are_scored_beside_frozen_features_by_one_embedding(run, monkeypatch, table):
    table.write_text(HEADS)
    embedded, embed = [], Features._embed

    def counted(features, split, *view):
        embedded.append(len(split.labels))
        return embed(features, split, *view)

    monkeypatch.setattr(Features, "_embed", counted)
    with few_digits():
        result = run()
        images = pipelines.load("digits")
    assert result.code == 0, result.err
    assert sum(embedded) == len(images.train.labels) + len(images.test.labels)
    assert not any((table.parent / "saved_models").iterdir())
    lines = lines_of(table.parent)
    assert [line["row"] for line in lines] == ["frozen", "npair", "npair", "npair"]
    frozen, trained = (line for line in lines if line["classes"] == "test")
    assert (frozen["difference"], trained["setting"]) == ("", '{"learning_rate": 0.001}')
    gain = float(trained["recall@1"]) - float(frozen["recall@1"])
    assert float(trained["difference"]) == pytest.approx(gain, abs=1e-5)
