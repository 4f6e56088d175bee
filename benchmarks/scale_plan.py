"""What a collection of 100,000,000 images takes, from rates that were measured on a smaller one.

    python benchmarks/scale_plan.py --images_per_second 290 --rows_per_second 3750 --list_bytes 30

The images per second are those of one core, by `benchmarks/embedding_speed.py`; more cores are
faster only as long as the storage is. The rows per second are those of the machine that builds the
index, by `benchmarks/scale.py`, for as many cells as below.
"""

import argparse

INDEXES = {  # bytes of a vector of `dim` numbers
    "IVF65536,Flat": lambda dim: 4 * dim + 8,
    "IVF65536,SQ8": lambda dim: dim + 8,
    "OPQ64,IVF65536,PQ64": lambda dim: 64 + 8,
}
TRAINING_ROWS = 40 * 65_536
CORES = (16, 64, 256, 1024)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--shard_size", type=int, default=10_000)
    parser.add_argument("--images_per_second", type=float, required=True, help="of one core")
    parser.add_argument("--rows_per_second", type=float, required=True, help="into the index")
    parser.add_argument("--image_bytes", type=float, default=50_000, help="of an encoded image")
    parser.add_argument("--list_bytes", type=float, required=True, help="of a row of list.parquet")
    given = parser.parse_args(arguments)
    print("| cores | hours of embedding | images read, MB/s |\n| --- | --- | --- |")
    for cores in CORES:
        rate = cores * given.images_per_second
        megabytes = rate * given.image_bytes / 1e6
        print(f"| {cores:,} | {given.images / rate / 3600:,.1f} | {megabytes:,.0f} |")
    vector = 4 * given.dim + 8
    files = {
        "list.parquet": given.list_bytes,
        "shards": vector + given.list_bytes,
        **{name: of(given.dim) for name, of in INDEXES.items()},
    }
    print("\n| files | GB |\n| --- | --- |")
    for name, each in files.items():
        print(f"| {name} | {given.images * each / 1e9:,.1f} |")
    print(f"\n{-(-given.images // given.shard_size):,} shards")
    print(f"{given.images / given.rows_per_second / 3600:,.1f} hours to add all rows to the index")
    print(f"{4 * given.dim * TRAINING_ROWS / 1e9:,.2f} GB of rows to train 65,536 cells")
    print(f"{4 * given.images / 1e9:,.1f} GB for the classes of a gallery in evaluation")


if __name__ == "__main__":
    main()
