"""What the tests of the driver share."""

from tests.helpers.fake_assistant import fake

__all__ = ["fake"]
