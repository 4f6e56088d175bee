"""Runs rows of a table in processes of their own."""

import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, wait

from tqdm import tqdm

from tfdml.experiment.tuning import best_setting
from tfdml.quiet import import_tensorflow

POLL = 1.0  # seconds between looks at what is done


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
    began, before = time.monotonic(), sum(map(done, rows))
    bar = tqdm(desc="Trainings", total=sum(map(trainings, rows)), initial=before, disable=None)
    estimated, failures = False, []
    with ProcessPoolExecutor(jobs, spawned, _end_with, (os.getpid(),)) as workers, bar:
        try:
            futures = {workers.submit(run_row, row) for row in rows}
            while futures:
                ended, futures = wait(futures, timeout=POLL)
                finished = sum(map(done, rows))
                bar.update(finished - bar.n)
                if not estimated and before < finished < bar.total:
                    estimated = True
                    each = (time.monotonic() - began) / (finished - before)
                    left = bar.total - finished
                    bar.write(f"About {each * left / 3600:.2g} hours for {left} more trainings")
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
    """Does what is missing of a row.

    Raises:
        RuntimeError: If it cannot be done; names the row.
    """
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
