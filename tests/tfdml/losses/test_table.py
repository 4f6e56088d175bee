"""The table of losses: names of options, and published options beside the defaults."""

import pathlib
import re

import pytest

from tfdml import losses
from tfdml.losses.table import check_names_of_options


def message_of(check, *arguments, **options):
    try:
        check(*arguments, **options)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", losses.LOSSES)
def test_names_of_options_are_checked_as_the_loss_checks_them(name):
    by_source = message_of(check_names_of_options, name, {"marginn": 1})
    assert "has no option 'marginn'" in by_source
    assert by_source == message_of(losses.get, name, marginn=1)
    assert message_of(check_names_of_options, name, {}) == message_of(losses.get, name)


@pytest.mark.parametrize("preset", ["publishd", "published", 1])
def test_a_preset_is_checked_as_the_loss_checks_it(preset):
    by_source = message_of(check_names_of_options, "triplet", {"preset": preset})
    assert by_source.endswith(f"Received: preset={preset!r}, loss='triplet'")
    assert by_source == message_of(losses.get, "triplet", preset=preset)


def test_required_options_are_asked_for_one_by_one():
    assert "requires the option 'base'" in message_of(check_names_of_options, "memory", {})
    given = {"base": "contrastive"}
    assert "requires the option 'size'" in message_of(check_names_of_options, "memory", given)
    assert message_of(check_names_of_options, "memory", {**given, "size": 8}) is None


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
