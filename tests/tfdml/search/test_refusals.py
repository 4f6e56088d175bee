from tfdml.search.refusals import RefusedError


def test_is_a_sentence_with_a_status():
    assert str(RefusedError("It must hold.")) == "It must hold."
    assert RefusedError("It must hold.").status == 400
    assert RefusedError("Gone.", status=410).status == 410
    assert isinstance(RefusedError("It must hold."), ValueError)
