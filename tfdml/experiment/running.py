"""Searches, trains and scores the rows of a table, in processes of their own."""

import importlib.util
import math
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, wait
from typing import Any

import lazy_loader
import numpy as np
from tqdm import tqdm

from tfdml.checks import check_options, check_type
from tfdml.experiment.trainings import digest
from tfdml.quiet import import_tensorflow

optuna: Any = lazy_loader.load("optuna")  # an optional dependency
POLL = 1.0  # seconds between looks at what is done
RANDOM_TRIALS = 4  # before the sampler models what it has seen
DIGITS = 3  # of a number that is searched


def trainings(row):
    """How many a row has, at most; of a search by minutes, a trial."""
    trials = (row.table.search or {}).get("trials", 1) if row.ranges else 0
    return trials * row.table.folds + len(row.table.seeds)


def done(row):
    """How many trainings are done."""
    lines = row.lines()
    return len({(line["trial"], line["fold"], line["seed"]) for line in lines})


def run(rows, jobs):
    """Runs the rows, so many at once; returns a sentence for each that failed."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))
    spawned = multiprocessing.get_context("spawn")
    total, before, failures = sum(map(trainings, rows)), sum(map(done, rows)), []
    bar = tqdm(desc="Trainings", total=total, initial=before, disable=None)
    with ProcessPoolExecutor(jobs, spawned, _end_with, (os.getpid(),)) as workers, bar:
        try:
            futures = {workers.submit(run_row, row) for row in rows}
            while futures:
                ended, futures = wait(futures, timeout=POLL)
                bar.update(sum(map(done, rows)) - bar.n)
                failures += [str(future.exception()) for future in ended if future.exception()]
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return failures


def _end_with(parent):
    """Ends this process soon after its parent."""

    def watch():
        while os.getppid() == parent:
            time.sleep(POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_row(row):
    """Does what is missing of a row; a RuntimeError that it cannot be done names the row."""
    with row.log() as path:
        try:
            import_tensorflow()
            setting = best_setting(row)
            for seed in row.table.seeds:
                row.trained(setting, seed)
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit):
                sys.stderr.flush()
                error = path.read_text("utf-8", errors="replace").strip().splitlines()[-1]
            raise RuntimeError(f"row {row.name!r}: {error} (see {path})") from None


def best_setting(row):
    """The setting {name: value} of the best trial of a row; empty if it has no ranges.

    The settings of a trial follow from the table, its number and the scores of those before, so
    that a search which stopped goes on as if it had not.
    """
    if not row.ranges:
        return {}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = row.folder / "search.journal"
    journal.unlink(missing_ok=True)
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name=f"{row.table.name}, {row.name}",
        direction="maximize",
    )
    distributions = {name: _distribution(of) for name, of in row.ranges.items()}
    spent, settings = 0.0, []
    trials, minutes = (row.table.search.get(name, math.inf) for name in ("trials", "minutes"))
    while not settings or (len(settings) < trials and spent < 60 * minutes):
        number, lines = len(settings), []
        seed = int(digest(row.digest, number), 16)
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
        trial = study.ask(distributions)
        values = ((name, of, trial.params[name]) for name, of in row.ranges.items())
        settings.append({name: _value(of, value) for name, of, value in values})
        for fold in range(row.table.folds):
            lines.append(row.validated(settings[-1], number, fold))
            mean = float(np.mean([line[row.table.score[0]] for line in lines]))
            trial.report(mean, fold)
            if trial.should_prune():
                break
        spent += sum(line["seconds"] for line in lines)
        if len(lines) == row.table.folds:
            study.tell(trial, mean)
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    return settings[study.best_trial.number]


def ends(ranges):
    """Settings with one at an end of its range, or one of its choices; others at their first."""
    if ranges and not importlib.util.find_spec("optuna"):
        raise ImportError('a table with `search` needs Optuna: pip install -e ".[experiments]"')
    choices = {name: _ends_of(name, of) for name, of in ranges.items()}
    firsts = {name: values[0] for name, values in choices.items()}
    yield firsts
    for name, values in choices.items():
        yield from ({**firsts, name: value} for value in values[1:])


def _ends_of(name, of):
    if isinstance(of, dict):
        check_options(f"the range of {name!r}", of, ("low", "high", "log", "step"))
        _distribution(of)
        return [of["low"], of["high"]]
    is_choice = isinstance(of, list) and of
    check_type(is_choice, "a range must be a list, or {low, high, log, step}", **{name: of})
    return of


def _distribution(of):
    if isinstance(of, list):
        return optuna.distributions.CategoricalDistribution(range(len(of)))
    whole = all(isinstance(of.get(end), int) for end in ("low", "high"))
    kind = "IntDistribution" if whole else "FloatDistribution"
    return getattr(optuna.distributions, kind)(**of)


def _value(of, found):
    if isinstance(of, list):
        return of[found]
    return float(f"{found:.{DIGITS}g}") if isinstance(found, float) else found
