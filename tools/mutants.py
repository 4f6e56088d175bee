"""Mutation testing: measures the share of mutants of the code that the tests catch.

    pip install -e ".[test,mutation]"
    pytest --testmon -n 2
    python tools/mutants.py --out mutants.json --jobs 2

cosmic-ray generates all mutants of the code in MUTATED; `--count` of them are drawn with `--seed`,
at most one for each place in a file. Each is tested in a clone of HEAD by the tests that execute
the changed function, as recorded by pytest-testmon, the fastest first, and then by the tests of
code that testmon does not see: functions that TensorFlow traces, and defaults, which run at import.
Prints a table by file and the diffs of surviving mutants; `--out` keeps the results, and another
call continues them.
"""

import argparse
import concurrent.futures
import difflib
import json
import pathlib
import queue
import random
import shutil
import subprocess
import sys
import tempfile

import cosmic_ray.plugins
import tqdm
from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.work_db import use_db

ROOT = pathlib.Path(__file__).resolve().parents[1]
MUTATED = (
    "tfdml/pairwise.py",
    "tfdml/losses/*.py",
    "tfdml/layers/*.py",
    "tfdml/evaluation/ranking.py",
    "tfdml/evaluation/tiles.py",
    "tfdml/evaluation/inputs.py",
    "tfdml/evaluation/metrics.py",
    "tfdml/evaluation/retrieval.py",
    "pipelines/samplers.py",
    "pipelines/batching.py",
    "pipelines/loading.py",
    "tfdml/serving/served_model.py",
)
# Code that testmon does not see -> the tests that run it.
UNSEEN = {
    "pipelines": ["tests/pipelines"],
    "tfdml/layers": ["tests/tfdml/losses/test_index.py"],
    "tfdml/losses": ["tests/tfdml/losses/test_index.py"],
    "tfdml/serving": ["tests/tfdml/serving"],
}
SELECTED = ["--testmon-forceselect", "--testmon-nocollect"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=120, help="mutants to draw (120)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (0)")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tested concurrently (1)")
    parser.add_argument(
        "--timeout", type=int, default=1800, help="seconds for each run of tests (1800)"
    )
    parser.add_argument("--out", type=pathlib.Path, default="mutants.json", help="results")
    options = parser.parse_args()
    if not (ROOT / ".testmondata").is_file():
        parser.error("no .testmondata: run `pytest --testmon -n 2` first")
    results = json.loads(options.out.read_text("utf-8")) if options.out.is_file() else {}
    mutants = draw(options.count, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        clones = queue.Queue()
        for job in range(options.jobs):
            clones.put(clone(pathlib.Path(folder) / str(job)))

        def tested(mutant):
            root = clones.get()
            try:
                return name_of(mutant), test(mutant, root, options.timeout)
            finally:
                clones.put(root)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            jobs = [pool.submit(tested, each) for each in mutants if name_of(each) not in results]
            try:
                for job in tqdm.tqdm(concurrent.futures.as_completed(jobs), total=len(jobs)):
                    name, result = job.result()
                    results[name] = result
                    options.out.write_text(json.dumps(results, indent=1), "utf-8")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    report({name_of(mutant): results[name_of(mutant)] for mutant in mutants})


def draw(count, seed):
    """Draws `count` places and one mutant of each."""
    paths = sorted(path for pattern in MUTATED for path in ROOT.glob(pattern))
    places = {}
    with tempfile.TemporaryDirectory() as folder, use_db(pathlib.Path(folder) / "all") as database:
        init([path.relative_to(ROOT) for path in paths], database, {})
        for item in database.work_items:
            mutant = item.mutations[0]
            place = (str(mutant.module_path), mutant.start_pos, mutant.end_pos)
            places.setdefault(place, []).append(mutant)
    chance = random.Random(seed)
    drawn = chance.sample(sorted(places), min(count, len(places)))
    operators = lambda mutant: (mutant.operator_name, mutant.occurrence)  # noqa: E731
    return [chance.choice(sorted(places[place], key=operators)) for place in drawn]


def name_of(mutant):
    line, column = mutant.start_pos
    operator = mutant.operator_name.removeprefix("core/")
    return f"{mutant.module_path}:{line}:{column} {operator} {mutant.occurrence}"


def clone(folder):
    subprocess.run(["git", "clone", "-q", "--shared", ROOT, folder], check=True)
    shutil.copy(ROOT / ".testmondata", folder)
    return folder


def test(mutant, root, timeout):
    """{"outcome": "caught", "survived" or "timeout", "by": its test, "diff": lines}."""
    path = root / mutant.module_path
    original = path.read_text("utf-8")
    operator = cosmic_ray.plugins.get_operator(mutant.operator_name)(**mutant.operator_args)
    mutated = mutate_code(original, operator, mutant.occurrence)
    difference = [*difflib.unified_diff(original.splitlines(), mutated.splitlines(), n=0)][2:]
    selections = [SELECTED]
    selections += [
        tests for part, tests in UNSEEN.items() if str(mutant.module_path).startswith(part)
    ]
    path.write_text(mutated, "utf-8")
    try:
        outcome, by = "survived", None
        for selection in selections:
            command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-n", "0", *selection]
            pipes = {"capture_output": True, "encoding": "utf-8", "errors": "replace"}
            run = subprocess.run(command, cwd=root, timeout=timeout, **pipes)
            not_imported = run.returncode == 4 and "ImportError while loading" in run.stderr
            if run.returncode not in (0, 1, 2, 5) and not not_imported:
                raise RuntimeError(f"pytest ended with {run.returncode}: {run.stderr[-300:]}")
            if run.returncode in (1, 2) or not_imported:  # 5: no test is selected
                failed = [
                    line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
                ]
                outcome, by = "caught", failed[0] if failed else run.stderr[-300:]
                break
    except subprocess.TimeoutExpired:
        outcome = "timeout"
    finally:
        path.write_text(original, "utf-8")
    return {"outcome": outcome, "by": by, "diff": difference}


def report(results):
    print("\n| file | mutants | caught |\n| --- | --- | --- |")
    files = sorted({name.split(":")[0] for name in results})
    for file in files:
        outcomes = [each["outcome"] for name, each in results.items() if name.split(":")[0] == file]
        print(f"| {file} | {len(outcomes)} | {outcomes.count('caught')} |")
    outcomes = [each["outcome"] for each in results.values()]
    caught = outcomes.count("caught")
    print(f"| all | {len(outcomes)} | {caught} ({100 * caught / len(outcomes):.1f} %) |")
    for name, each in results.items():
        if each["outcome"] != "caught":
            print(f"\n{each['outcome']}: {name}", *each["diff"], sep="\n")


if __name__ == "__main__":
    main()
