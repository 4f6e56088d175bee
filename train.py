"""Trains an embedder: `python train.py --help`, or `tfdml-train` once installed.

The steps stand in order in `tfdml/programs/train.py`.
"""

from tfdml.programs.train import main

if __name__ == "__main__":
    main()
