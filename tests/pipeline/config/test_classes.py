"""Which class a declaration means."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config.class_weights import weights_by_label
from tfx_estimator.pipeline.config.image_folder import find_label, in_order

pytestmark = pytest.mark.unit


def test_numbers_are_in_their_order_and_names_in_that_of_the_alphabet():
    assert in_order(["10", "2", "1", "02", "9" * 5000, "2"]) == ["1", "02", "2", "10", "9" * 5000]
    assert in_order(["10", "2", "a"]) == ["10", "2", "a"]


def test_a_class_is_meant_by_each_form_of_its_name():
    names = in_order(["cafe\u0301", "dog"])
    assert find_label("caf\u00e9", names) == find_label("cafe\u0301", names) == find_label(0, names) == 0
    assert weights_by_label({"cafe\u0301": 2.0}, names) == (2.0, 1.0)
