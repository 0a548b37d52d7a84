"""The command line as a whole: what it says when called wrongly, and on a machine that lacks its parser."""

import sys

import pytest

from bayesin.cli.main import VERBS, main


def test_alone_it_lists_every_verb_with_an_example(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb.example in shown and verb.summary in shown for verb in VERBS.values())


@pytest.mark.parametrize("wrong, right", [("explian", "explain"), ("barier", "barrier"), ("algin", "align")])
def test_a_wrong_verb_suggests_the_nearest(wrong, right, capsys):
    assert main([wrong]) == 2
    assert f"'{right}'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [*VERBS])
def test_every_verb_has_help_with_its_example(verb, capsys):
    pytest.importorskip("tyro")
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert "Example" in shown and "--json" in shown and "--quiet" in shown


@pytest.mark.parametrize("verb", [*VERBS])
def test_an_unknown_flag_is_misuse(verb, capsys):
    pytest.importorskip("tyro")
    with pytest.raises(SystemExit) as left:
        main([verb, "--no-such-flag"])
    assert left.value.code == 2


def test_without_the_parser_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.delitem(sys.modules, "bayesin.cli.explain", raising=False)
    assert main(["explain", "mlp"]) == 2
    assert "pip install tyro" in capsys.readouterr().err
