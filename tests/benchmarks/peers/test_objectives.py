from benchmarks.peers.objectives import OBJECTIVES
from tfdml import losses


def test_tfdml_builds_every_objective():
    for objective in OBJECTIVES.values():
        options = {"num_classes": 4} if objective.centers else {}
        loss = losses.get(objective.tfdml.name, **objective.tfdml.options, **options)
        assert bool(loss.layers) == bool(objective.centers or objective.memory)
        assert objective.differs.keys() <= objective.peers.keys() != set()
