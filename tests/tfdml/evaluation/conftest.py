import pytest

from tfdml.evaluation import retrieval, tiles


@pytest.fixture(params=["as is", "small"])
def sizes(request, monkeypatch):
    """Also blocks, chunks and tiles so small that each of them is filled several times."""
    if request.param == "small":
        monkeypatch.setattr(retrieval, "_MOST_PAIRS", 50)
        monkeypatch.setattr(tiles, "_CHUNK_ROWS", 5)
        monkeypatch.setattr(tiles, "_BLOCK_ROWS", 11)
        for kind in (tiles.DistanceTiles, tiles.SimilarityTiles):
            monkeypatch.setattr(kind, "size", 13)
    return request.param
