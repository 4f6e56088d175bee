"""`python -m tfdml.export`, by its earlier name."""

from tfdml.export import main

if __name__ == "__main__":
    main()
