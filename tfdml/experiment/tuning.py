"""The search of a row for the setting that retrieves best among held-out classes, by Optuna."""

import importlib.util
from typing import Any

import lazy_loader
import numpy as np

from tfdml.checks import check_options, check_type
from tfdml.experiment.trainings import digest

optuna: Any = lazy_loader.load("optuna")  # an optional dependency
RANDOM_TRIALS = 4  # before the sampler models what it has seen
DIGITS = 3  # of a number that is searched


def best_setting(row):
    """The setting {name: value} of the best trial of a row; empty if it has no ranges.

    The settings of a trial follow from the table, the number of the trial and the scores of the
    trials before it, so that a search which stopped goes on as if it had not: what is done is read
    from the folder of the row, whose `search.journal` shows the trials in Optuna's dashboard. A
    trial whose mean over the folds so far is below the median of the others is not trained on.
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
    while not settings or _is_left(row.table.search, len(settings), spent):
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
    """Settings with one at an end of its range, or one of its choices; others at their first.

    Raises:
        ImportError: If there are ranges, and no Optuna.
        TypeError, ValueError: If a range is neither choices nor an interval of Optuna.
    """
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


def _is_left(search, number, spent):
    """Whether a search goes on after so many trials and seconds."""
    return number < search["trials"] if "trials" in search else spent < 60 * search["minutes"]


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
