"""The programs, which the scripts of the same names at the top run."""
