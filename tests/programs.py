"""train.py and evaluate.py run in this process, which has TensorFlow already."""

import contextlib
import dataclasses
import io
import os


@dataclasses.dataclass(frozen=True)
class Result:
    """Exit status of a program and what it printed."""

    code: int
    out: str
    err: str

    @property
    def sentence(self):
        """The one sentence of a rejection."""
        assert self.code == 2, self.err
        assert "Traceback" not in self.err
        return self.err.strip().splitlines()[-1]


def run(main, *arguments, cwd):
    """Calls `main(arguments)` in the folder `cwd`; a `SystemExit` gives the exit status."""
    out, err, before = io.StringIO(), io.StringIO(), os.getcwd()
    code = 0
    os.chdir(cwd)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main([str(argument) for argument in arguments])
    except SystemExit as exit:
        code = exit.code or 0
    finally:
        os.chdir(before)
    return Result(code, out.getvalue(), err.getvalue())
