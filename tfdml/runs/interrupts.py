"""A stop in the middle of a run: what it says, and how to go on."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

_WATCH = """
import os, select, sys
process, seconds, sentence = sys.argv[1:]
if not select.select([0], [], [], float(seconds))[0]:
    print(sentence, file=sys.stderr)
    os.kill(int(process), 9)
"""


@contextlib.contextmanager
def resumable(go_on, images):
    """States `go_on`, how to resume, after Ctrl-C, an unreadable image, or a full disk."""
    import tensorflow as tf

    from pipelines.loading import cause_of

    with interrupts_noted() as interrupts:
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if interrupts or isinstance(error, KeyboardInterrupt):
                print(f"\nStopped. {go_on}", file=sys.stderr)
                raise SystemExit(130) from None
            if isinstance(error, tf.errors.OpError):
                cause = cause_of(error, *images.dataset.splits.values())
                if "OOM" in cause:
                    cause += ". A new run with a smaller batch or --micro_batch needs less memory"
                raise OSError(f"{cause}. {go_on}") from error
            if isinstance(error, OSError):
                raise OSError(f"{error}. {go_on}") from error
            raise


@contextlib.contextmanager
def interrupts_noted():
    """A list that holds something after Ctrl-C: TensorFlow may lose the exception, or wrap it."""
    interrupts = []
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (handled and in_main_thread()):
        yield interrupts
        return

    def note(*arguments):
        interrupts.append(arguments)
        signal.default_int_handler(*arguments)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def in_main_thread():
    """Whether this is the thread in which signals are handled, and can be given handlers."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def at_most(seconds, sentence, errors=None):
    """Kills this process with a sentence if the block takes longer.

    A process of its own counts the time: C++ code may hold the lock of the interpreter, so that
    none of its threads and signal handlers run.

    Args:
        seconds: Longest time.
        sentence: What is printed.
        errors: File that it is printed to; standard error if None.
    """
    command = [sys.executable, "-c", _WATCH, str(os.getpid()), str(seconds), sentence]
    pipes = {"stdin": subprocess.PIPE, "stderr": errors}  # the end of the input ends the watch
    with subprocess.Popen(command, start_new_session=True, **pipes):
        yield
