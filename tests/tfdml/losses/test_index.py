"""The losses by name: what is read of them without Keras, and published options.

`python tests/tfdml/losses/test_index.py` writes `index.json` anew, after a loss or an option came.
"""

import json
import pathlib
import re

import keras
import pytest

import tfdml
from tfdml import losses
from tfdml.losses import registry
from tfdml.losses.index import check_loss

LEARNED_DENSITY = {"learns_similarity": True, "num_classes": 3}
INDEX = pathlib.Path(tfdml.__file__).parent / "losses" / "index.json"


def registered():
    """What the classes state, as JSON of a line for each name."""
    for name in losses.__all__:
        getattr(losses, name)  # imports its module
    kinds = []
    for kind, entries in registry.ENTRIES.items():
        lines = []
        for name, (loss, implied, published) in sorted(entries.items()):
            entry = {"class": loss.__name__, "implied": implied, "published": published}
            entry["options"] = registry.options_of(loss)
            lines.append(f"{json.dumps(name)}: {json.dumps(entry, default=dict)}")
        kinds.append(f"{json.dumps(kind)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{" + ",\n".join(kinds) + "}\n"


def test_the_index_is_what_the_classes_state():
    """Also holds every default: a changed one shows as a changed line of `index.json`."""
    assert json.loads(INDEX.read_text("utf-8")) == json.loads(registered())


def test_a_class_of_ones_own_registers_its_name(monkeypatch):
    monkeypatch.setitem(registry.ENTRIES["loss"], "mine", None)  # forgotten after the test
    known = keras.saving.get_custom_objects()
    monkeypatch.setitem(known, "tfdml>MyLoss", None)

    @losses.register("mine", {"margin": 0.5}, published={"margin": 0.25})
    class MyLoss(losses.TripletLoss):
        pass

    assert type(losses.get("mine")) is MyLoss
    assert losses.get("mine").margin == 0.5
    assert losses.get("mine", preset="published").margin == 0.25
    assert losses.get({"name": "mine", "margin": 2.0}).margin == 2.0
    restored = keras.losses.deserialize(keras.losses.serialize(losses.get("mine")))
    assert type(restored) is MyLoss


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("memory", {"base": "supcon", "size": 8}, {"compares_batches": True}),
        ("matryoshka", {"base": "supcon", "dims": [2]}, {"takes_label_sets": True}),
        ("regularized", {"base": "supcon", "regularizer": "gor"}, {}),
        ("regularized", {"base": "hdc", "regularizer": "gor"}, {"levels": 3}),
        ("density", {"base": "pddm", "num_classes": 3}, LEARNED_DENSITY),
        ("quadruplet", {}, {}),
    ],
)
def test_wrappers_have_the_traits_of_their_parts(name, options, expected):
    assert losses.get(name, **options).traits == losses.Traits(**expected)


def message_of(check, *arguments, **options):
    try:
        check(*arguments, **options)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", losses.LOSSES)
def test_names_of_options_are_checked_as_the_loss_checks_them(name):
    by_index = message_of(check_loss, name, {"marginn": 1})
    assert "has no option 'marginn'" in by_index
    assert by_index == message_of(losses.get, name, marginn=1)
    assert message_of(check_loss, name, {}) == message_of(losses.get, name)


@pytest.mark.parametrize("preset", ["publishd", "published", 1])
def test_a_preset_is_checked_as_the_loss_checks_it(preset):
    by_index = message_of(check_loss, "triplet", {"preset": preset})
    assert by_index.endswith(f"Received: preset={preset!r}, loss='triplet'")
    assert by_index == message_of(losses.get, "triplet", preset=preset)


@pytest.mark.parametrize("name", losses.PUBLISHED)
def test_the_published_options_are_not_the_defaults(name):
    default, published = (
        losses.get(name, **preset).get_config() for preset in ({}, {"preset": "published"})
    )
    options = {k: v for k, v in losses.PUBLISHED[name].items() if not isinstance(v, dict)}
    assert options.items() <= published.items()
    assert not options.items() & default.items()


def test_another_base_takes_the_place_of_the_published_one():
    base = {"name": "npair", "pairs": "disjoint"}
    loss = losses.get("density", preset="published", base=base)
    assert (loss.base.name, loss.base.pairs, loss.weight) == ("npair", "disjoint", 10.0)


def test_a_similarity_keeps_its_published_options_whatever_its_name():
    similarity = {"name": "s", "units": 4}
    layer = losses.get("lmdm", similarity=similarity).similarity_layer
    assert (layer.name, layer.units, layer.use_position) == ("s", 4, False)
    published = losses.get("pddm", preset="published", similarity=similarity).similarity_layer
    assert (published.difference_bias, published.dropout) == (0.0, 0.5)


def test_the_page_of_objectives_lists_the_losses_with_published_options():
    page = (pathlib.Path(__file__).parents[3] / "docs" / "objectives.md").read_text()
    listed = page.partition("the paper's options of\nthese losses:")[2].partition(";")[0]
    assert sorted(re.findall("`(.*?)`", listed)) == sorted(losses.PUBLISHED)


if __name__ == "__main__":
    INDEX.write_text(registered(), encoding="utf-8")
