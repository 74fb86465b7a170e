"""Errors in Python: the message alone as text, and the hint below it wherever a traceback is shown."""

import pickle
import traceback

import pytest

import fleetlab
from fleetlab import PolicyError


def test_a_traceback_ends_with_the_hint():
    with pytest.raises(fleetlab.TraceError) as caught:
        fleetlab.Trace.load("nowhere")
    shown = traceback.format_exception_only(caught.value)
    assert shown[-1] == f"hint: {caught.value.hint}\n"
    assert "hint:" not in str(caught.value)


def test_an_error_from_another_process_has_its_hint_once():
    error = pickle.loads(pickle.dumps(PolicyError("no such order", hint="sjf")))
    assert (str(error), error.hint, error.__notes__) == ("no such order", "sjf", ["hint: sjf"])


def test_an_error_without_a_hint_has_no_note():
    assert not hasattr(PolicyError("no such order"), "__notes__")
