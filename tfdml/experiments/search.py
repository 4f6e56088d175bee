"""The search of a row for the setting that retrieves best among held-out classes, by Optuna."""

import numpy as np

from tfdml.checks import check, check_options, check_type
from tfdml.experiments.trainings import digest

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
except ImportError as error:
    raise ImportError(
        'a table with `search` needs Optuna: pip install -e ".[experiments]"'
    ) from error

RANDOM_TRIALS = 4  # before the sampler models what it has seen
DIGITS = 3  # of a number that is searched


def best_setting(row):
    """The setting {name: value} of the best trial of a row.

    The settings of a trial follow from the table, the number of the trial and the scores of the
    trials before it, so that a search which stopped goes on as if it had not: what is done is read
    from the folder of the row, whose `search.journal` shows the trials in Optuna's dashboard. A
    trial whose mean over the folds so far is below the median of the others is not trained on.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = row.folder / "search.journal"
    journal.unlink(missing_ok=True)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(journal))),
        study_name=f"{row.table.name}, {row.name}",
        direction="maximize",
    )
    score, spent, known, settings = row.table.score[0], 0.0, {}, []
    while not settings or _is_left(row.table.search, len(settings), spent):
        number = len(settings)
        seed = int(digest(row.digest, number), 16)
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
        trial = study.ask()
        settings.append({name: _suggested(trial, name, of) for name, of in row.ranges.items()})
        values = []
        for fold in range(row.table.folds):
            key = digest(settings[-1]), fold
            if key not in known:
                known[key] = row.validated(settings[-1], number, fold)
            spent += known[key]["seconds"]
            values.append(known[key][score])
            trial.report(float(np.mean(values)), fold)
            if trial.should_prune():
                break
        if len(values) == row.table.folds:
            study.tell(trial, float(np.mean(values)))
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    return settings[study.best_trial.number]


def ends(ranges):
    """Settings with one at an end of its range, or one of its choices; others at their first.

    Raises:
        TypeError: If a range is neither choices nor an interval.
        ValueError: If it is empty.
    """
    choices = {name: _ends_of(name, of) for name, of in ranges.items()}
    firsts = {name: values[0] for name, values in choices.items()}
    for name, values in choices.items():
        yield from ({**firsts, name: value} for value in values)


def _ends_of(name, of):
    kind = isinstance(of, list | dict)
    check_type(kind, "a range must be a list, or {low, high, log, step}", **{name: of})
    check(of, "a range must not be empty", **{name: of})
    if isinstance(of, list):
        return of
    check_options(f"the range of {name!r}", of, ("low", "high", "log", "step"))
    low, high = (of.get(end) for end in ("low", "high"))
    are_numbers = all(isinstance(end, int | float) for end in (low, high))
    check(are_numbers and low < high, "`low` must be < `high`", **{name: of})
    check(low > 0 or not of.get("log"), "`low` must be > 0 on a logarithmic scale", **{name: of})
    return [low, high]


def _is_left(search, number, spent):
    """Whether a search goes on after so many trials and seconds."""
    return number < search["trials"] if "trials" in search else spent < 60 * search["minutes"]


def _suggested(trial, name, of):
    if isinstance(of, list):
        return of[trial.suggest_categorical(name, [*range(len(of))])]
    log, step = of.get("log", False), of.get("step")
    if all(isinstance(of[end], int) for end in ("low", "high")):
        return trial.suggest_int(name, of["low"], of["high"], step=step or 1, log=log)
    value = trial.suggest_float(name, of["low"], of["high"], step=step, log=log)
    return float(f"{value:.{DIGITS}g}")
