"""What a Kubernetes node makes of `$`, by Kubernetes' own examples."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.expansion import expanded, quoted, variables_of, words_of

pytestmark = pytest.mark.unit

KNOWN = {"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}


# Source: third_party/forked/golang/expansion/expand_test.go.
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("$(VAR_A)-$(VAR_B)-$(VAR_C)", "A-B-C"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("f--$(VAR_EMPTY)--b", "f----b"),
        ("foo-$(VAR_UNKNOWN)-bar", "foo-$(VAR_UNKNOWN)-bar"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$$$(BIG_MONEY)", "$$$(BIG_MONEY)"),
        ("foo$$bar", "foo$bar"),
        ("foo\\$(VAR_A)bar", "foo\\Abar"),
        ("foo$(VAR_Awhoops!", "foo$(VAR_Awhoops!"),
        ("foo$$(VAR_A__", "foo$(VAR_A__"),
        ("foo$", "foo$"),
        ("$VAR_A", "$VAR_A"),
        ("foo-$()-bar", "foo-$()-bar"),
        ("{}$(VAR_A)\n$\n$(VAR_B)", "{}A\n$\nB"),
    ],
)
def test_as_kubernetes_does(text, wanted):
    assert expanded(text, KNOWN) == wanted
    assert expanded(quoted(text), KNOWN) == text
    assert expanded(quoted(wanted), {}) == wanted


def test_a_variable_knows_those_before_it():
    listed = [("ONE", "1"), ("TWO", "$(ONE)$(THREE)$(NODE)"), ("THREE", "3")]
    container = {
        "command": ["$(TWO)"],
        "args": ["$(THREE)", "$$(ONE)"],
        "env": [{"name": name, "value": value} for name, value in listed]
        + [{"name": "POD", "valueFrom": {}}, {"name": "EMPTY"}],
    }
    variables = variables_of(container, {"NODE": "n"})
    assert variables == {"ONE": "1", "TWO": "1$(THREE)n", "THREE": "3", "EMPTY": ""}
    assert words_of(container, variables) == ["1$(THREE)n", "3", "$(ONE)"]
