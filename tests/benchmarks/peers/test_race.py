import pathlib
import types

import pytest

from benchmarks.peers.measurements import Results
from benchmarks.peers.parts import race
from benchmarks.peers.prepared import WEIGHTS, check_data
from benchmarks.peers.racers import RACERS, RACES, SEEDS, TRIALS
from tfdml import losses


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Those of a race on Omniglot of two objectives, whose files exist."""
    monkeypatch.setattr(race, "race_images", lambda *_: "images.npz")
    monkeypatch.setattr(race, "RECIPES", tmp_path / "none")
    monkeypatch.setattr(race, "initial_weights", lambda *_, seed, **__: f"weights_{seed}.npz")
    return types.SimpleNamespace(
        races=["omniglot"],
        objectives=["circle", "CosFace"],
        folder=tmp_path,
        data_dir=tmp_path,
        seconds=10.0,
        trial_seconds=None,
        steps=None,
    )


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results.json")


def run(results, cases, score):
    """Notes scores of cases: `score` of objective, trial and side is Recall@1 or why it stopped."""
    for case in list(cases):
        sides = {}
        for side, (_, own) in case.sides.items():
            scored = score(own.get("objective"), own.get("trial"), side)
            outputs = {f"recall@{k}": scored for k in (1, 2, 4, 8)} | {"steps": 1234.0}
            sides[side] = {"stopped": scored} if isinstance(scored, str) else {"outputs": outputs}
        described = {"case": case.description(), "computer": "", "load": 0.0, "sides": sides}
        results.add(case, {**described, "differences": {}})


def by_side(objective, trial, side):
    if (objective, side) == ("CosFace", "pml"):
        return "> 8 GB"
    best = {"tfdml": ("circle", "other rate"), "pml": ("circle", "as it is")}
    return 0.5 if (objective, trial) == best.get(side) else 0.25


def test_every_objective_of_both_sides_has_the_same_trials_in_turns(arguments, results):
    start, *trials = race.cases(arguments, results)
    assert start.key == "race/omniglot/start"
    assert [case.key.split("/")[-1] for case in trials] == 6 * ["tfdml", "pml"]
    assert len(trials) == 2 * len(TRIALS) * 2
    for case in trials:
        [(module, own)] = case.sides.values()
        assert module.endswith(f"{case.key.split('/')[-1]}_race")
        assert case.settings["budget"] == {"seconds": RACES["omniglot"].trial_seconds}
        assert case.settings["validation_share"] == 0.2
        assert own["rate"] == (2e-3 if own["trial"] == "other rate" else 1e-3)


def test_the_best_of_each_side_runs_in_the_same_time_and_in_the_same_steps(arguments, results):
    run(results, race.cases(arguments, results), by_side)
    runs = [case for case in race.cases(arguments, results) if not results.has(case)]
    assert [case.key.split("/")[2:] for case in runs] == [
        [budget, str(seed), side]
        for budget in ("10 seconds", "600 steps")
        for seed in SEEDS
        for side in ("tfdml", "pml")
    ]
    for case in runs:
        [(side, (_, own))] = case.sides.items()
        assert own["objective"] == "circle"
        assert own["trial"] == {"tfdml": "other rate", "pml": "as it is"}[side]
        assert case.settings["validation_share"] == 0
        assert case.settings["weights"] == f"weights_{case.settings['seed']}.npz"
    run(results, runs, by_side)
    assert all(map(results.has, race.cases(arguments, results)))


def test_the_recipe_runs_beside_the_best_in_the_same_time(
    arguments, results, tmp_path, monkeypatch
):
    monkeypatch.setattr(race, "RECIPES", tmp_path / "recommended.yaml")
    table = "settings: {classes_per_batch: 32}\nrows: {omniglot: {loss: ntxent}}\n"
    (tmp_path / "recommended.yaml").write_text(table)
    for _ in range(2):
        run(results, list(race.cases(arguments, results)), by_side)
    keys = [case.key for case in race.cases(arguments, results) if "best" in case.sides]
    assert keys == [f"race/omniglot/10 seconds/{seed}/best" for seed in SEEDS]
    [(module, own)] = race.Case(**results.records[keys[0]]["case"]).sides.values()
    assert module.endswith("tfdml_race")
    assert own["recipe"] == {"loss": "ntxent", "classes_per_batch": 32}


def test_tfdml_builds_the_objectives_of_every_trial():
    for sides in RACERS.values():
        racer, options = sides["tfdml"], {"num_classes": 4} if sides["pml"].proxies else {}
        for built in (racer.built, racer.other):
            losses.get(built.name, **built.options, **options)
        assert racer.built != racer.other


def test_data_that_is_missing_is_named_before_the_race(tmp_path):
    (tmp_path / "tfds").mkdir()
    check_data([RACES["omniglot"]], tmp_path)
    with pytest.raises(ValueError, match="Received: missing=") as error:
        check_data(RACES.values(), tmp_path)
    assert "cub200" in str(error.value)
    assert pathlib.Path(WEIGHTS).name in str(error.value)
    with pytest.raises(ValueError, match="--data_dir"):
        check_data([RACES["omniglot"]], None)
