"""A stop in the middle of a run: what it says, and how to go on."""

import contextlib
import signal
import sys
import threading

import tensorflow as tf

from pipelines.loading import cause_of


@contextlib.contextmanager
def resumable(go_on, splits):
    """States `go_on`, how to resume, after Ctrl-C, an unreadable image, or a full disk."""
    with _interrupts_noted() as interrupts:
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if interrupts or isinstance(error, KeyboardInterrupt):
                print(f"\nStopped. {go_on}", file=sys.stderr)
                raise SystemExit(130) from None
            if isinstance(error, tf.errors.OpError):
                cause = cause_of(error, *splits)
                if "OOM" in cause:
                    cause += ". A new run with a smaller batch or --micro_batch needs less memory"
                raise OSError(f"{cause}. {go_on}") from error
            if isinstance(error, OSError):
                raise OSError(f"{error}. {go_on}") from error
            raise


@contextlib.contextmanager
def _interrupts_noted():
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
