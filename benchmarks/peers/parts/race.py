"""The race: each side's best objective, in the same time and in the same steps, on all cores.

In the same time tfdml also runs by the recipe that it recommends.
"""

import dataclasses
import os
import pathlib

from benchmarks.peers import racers
from benchmarks.peers.case import BEST, PML, TFDML, Case, worker
from benchmarks.peers.prepared import initial_weights, pretrained_weights, race_images
from benchmarks.peers.race_page import races_page
from benchmarks.peers.racers import OTHER_OPTIONS, OTHER_RATE, RACERS, RACES, TRIALS
from tfdml.checks import check
from tfdml.runs.table import read_table

PART = "race"
SIDES = (TFDML, PML)
RECIPES = pathlib.Path(__file__).resolve().parents[3] / "recipes" / "best" / "recommended.yaml"
BEYOND = 1800.0  # seconds of a call beside its budget: to trace, to embed and to score
SLOW = 60.0  # seconds of a step, beyond which a run of a number of steps is stopped


def cases(arguments, results):
    chosen = [name for name in RACERS if name in (arguments.objectives or RACERS)]
    expectation = f"`objectives` must have one or more of the race: {', '.join(RACERS)}"
    check(
        chosen, f"{expectation}; or leave the race out with --only", objectives=arguments.objectives
    )
    races = {name: with_budgets(RACES[name], arguments) for name in arguments.races}
    settings = {name: common_of(race, arguments) for name, race in races.items()}
    for name, race in races.items():
        yield start_of(name, settings[name], arguments.folder)
        trials = {
            objective: [*trials_of(objective, name, race, settings[name], arguments.folder)]
            for objective in RACERS
        }
        wanted = [trial for objective in chosen for trial in trials[objective]]
        yield from wanted
        if all(map(results.has, wanted)):  # else the best are not known
            known = [trial for each in trials.values() for trial in each if results.has(trial)]
            yield from runs_of(name, race, settings[name], known, results, arguments.folder)


def with_budgets(race, arguments):
    """The race with the budgets of the command line, where there are some."""
    given = {name: getattr(arguments, name) for name in ("seconds", "trial_seconds", "steps")}
    return dataclasses.replace(race, **{name: n for name, n in given.items() if n})


def common_of(race, arguments):
    """The settings of both sides and of all runs."""
    folder, data = arguments.folder, arguments.data_dir
    names = ("network", "pixels", "channels", "augmentation", "head_multiplier")
    return {
        **{name: getattr(race, name) for name in names},
        "threads": os.cpu_count(),
        "inputs": race_images(folder, race, data),
        "pretrained": pretrained_weights(folder, data) if race.pretrained else None,
        "classes_per_batch": racers.CLASSES_PER_BATCH,
        "images_per_class": racers.IMAGES_PER_CLASS,
        "ks": racers.KS,
    }


def seeded(seed, common, folder):
    """A seed, and the weights that it starts with."""
    shape = (common["pixels"], common["pixels"], common["channels"])
    start = {"seed": seed, "pretrained": common["pretrained"]}
    return {"seed": seed, "weights": initial_weights(folder, common["network"], shape, **start)}


def start_of(name, common, folder):
    """Compares the untrained networks and the augmentation of both sides."""
    settings = {**common, **seeded(0, common, folder), "validation_share": 0}
    sides = {side: (worker(side, "start"), {}) for side in SIDES}
    return Case(f"{PART}/{name}/start", sides, settings, rounds=0, seconds=BEYOND)


def trials_of(objective, name, race, common, folder):
    """The search of an objective, on training classes held out."""
    held_out = {"validation_share": racers.VALIDATION_SHARE}
    common = {**common, **held_out, **seeded(0, common, folder)}
    budget = {"seconds": race.trial_seconds}
    for trial in TRIALS:
        for side in SIDES:
            key = f"{PART}/{name}/search/{objective}/{trial}/{side}"
            yield run_of(key, side, (objective, trial), budget, race, common)


def runs_of(name, race, common, trials, results, folder):
    """Runs of the best trial of each side, which alternate."""
    best = {side: best_of(trials, results, side) for side in SIDES}
    for budget in ({"seconds": race.seconds}, {"steps": race.steps}):
        for seed in racers.SEEDS:
            settings = {**common, **seeded(seed, common, folder), "validation_share": 0}
            for side in (side for side in SIDES if best[side]):
                [(unit, size)] = budget.items()
                key = f"{PART}/{name}/{size:g} {unit}/{seed}/{side}"
                yield run_of(key, side, best[side], budget, race, settings)
            if "seconds" in budget and RECIPES.exists():
                key = f"{PART}/{name}/{race.seconds:g} seconds/{seed}/{BEST}"
                yield run_of_recipe(key, budget, race, settings)


def best_of(trials, results, side):
    """Objective and trial with the largest Recall@1 of a side; None if all were stopped."""
    scores = {}
    for case in trials:
        outputs = results.records[case.key]["sides"].get(side, {}).get("outputs")
        if outputs:
            _, own = case.sides[side]
            scores[own["objective"], own["trial"]] = outputs["recall@1"]
    return max(scores, key=scores.__getitem__, default=None)


def run_of(key, side, chosen, budget, race, common):
    """A run of one side, with an objective as a trial has it."""
    objective, trial = chosen
    racer = RACERS[objective][side]
    others = trial == OTHER_OPTIONS
    own = {
        **dataclasses.asdict(racer.other if others else racer.built),
        "objective": objective,
        "trial": trial,
        "proxies": racer.proxies,
        "proxy_factor": racer.proxy_factor if others else 1.0,
        "unit": not (others and racer.raw),
        "rate": race.rate * (race.factor if trial == OTHER_RATE else 1.0),
    }
    seconds = BEYOND + (budget.get("seconds") or SLOW * budget["steps"])
    sides = {side: (worker(side, PART), own)}
    return Case(key, sides, {**common, "budget": budget}, rounds=0, seconds=seconds)


def run_of_recipe(key, budget, race, common):
    """A run of tfdml by a recipe, which sets all but the images, the network and its start."""
    recipe = read_table(RECIPES).settings_of(race.recipe)
    own = {"objective": recipe["loss"], "trial": f"recipes/best/{RECIPES.name} {race.recipe}"}
    own |= {"recipe": {name: value for name, value in recipe.items() if name != "run"}}
    sides = {BEST: (worker(TFDML, PART), own)}
    settings = {**common, "budget": budget}
    return Case(key, sides, settings, rounds=0, seconds=BEYOND + budget["seconds"])


def page(records):
    return races_page(records, SIDES)
