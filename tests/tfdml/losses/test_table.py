"""The names of options, read from the source of a loss and from its class."""

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


def test_required_options_are_asked_for_one_by_one():
    assert "requires the option 'base'" in message_of(check_names_of_options, "memory", {})
    given = {"base": "contrastive"}
    assert "requires the option 'size'" in message_of(check_names_of_options, "memory", given)
    assert message_of(check_names_of_options, "memory", {**given, "size": 8}) is None
