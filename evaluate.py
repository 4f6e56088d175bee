"""Scores an embedder: `python evaluate.py --help`, or `tfdml-evaluate` once installed.

The tasks stand in order in `tfdml/programs/evaluate.py`.
"""

from tfdml.programs.evaluate import main

if __name__ == "__main__":
    main()
