from benchmarks.peers.objectives import OBJECTIVES, peer, tfdml
from tfdml import losses


def test_tfdml_builds_every_objective():
    for objective in OBJECTIVES.values():
        options = {"num_classes": 4} if objective.centers else {}
        loss = losses.get(objective.tfdml.name, **objective.tfdml.options, **options)
        assert bool(loss.layers) == bool(objective.centers or objective.memory)
        assert objective.differs.keys() <= objective.peers.keys() != set()


def test_a_call_is_written_as_its_library_writes_it():
    assert str(tfdml("sub_center_arcface", margin=0.5)) == "ArcFaceLoss(centers=3, margin=0.5)"
    mined = peer("TripletMarginLoss", ("BatchHardMiner", {}), margin=0.05)
    assert str(mined) == "TripletMarginLoss(margin=0.05) with BatchHardMiner()"
    raw = peer("NPairsLoss", distance=peer("LpDistance", p=1))
    assert str(raw) == "NPairsLoss(distance=LpDistance(p=1))"
