"""A case: what several libraries do with the same inputs, each in a process of its own."""

import dataclasses
import json

TFDML, KERAS, PML, OML, ST, FAISS = "tfdml", "keras", "pml", "oml", "st", "faiss"
BEST = "best"  # tfdml by the recipe that it recommends
BACKENDS = {"jax": "tfdml on JAX", "torch": "tfdml on PyTorch"}  # else on TensorFlow
OWN = (
    TFDML,
    BEST,
    KERAS,
    *BACKENDS,
)  # in this Python; the others in the peers' environment
TITLES = {
    TFDML: "tfdml",
    BEST: "tfdml, recipes/best",
    KERAS: "Keras",
    PML: "pytorch-metric-learning",
    OML: "open-metric-learning",
    ST: "sentence-transformers",
    FAISS: "faiss",
    **BACKENDS,
}


def worker(side, part):
    """The module that does a part on a side, as `worker.py` describes it."""
    return f"benchmarks.peers.workers.{side}_{part}"


@dataclasses.dataclass(frozen=True)
class Case:
    """What is measured of several sides in turns.

    Args:
        key: Its name among all results.
        sides: Name of a side -> (module that does it, settings of that side).
        settings: Settings that all sides share: `threads`, `inputs`, a file of arrays, and others.
        rounds: Turns of each side after the first; 0 for one call each.
        seconds: A side whose call takes longer is stopped; one whose rounds have taken as long has
            no further round.
        gigabytes: A side whose process holds more is stopped.
    """

    key: str
    sides: dict
    settings: dict
    rounds: int = 5
    seconds: float = 120.0
    gigabytes: float = 8.0

    def description(self):
        """All that a measurement depends on, as a file of results returns it."""
        return json.loads(json.dumps(dataclasses.asdict(self)))
