"""The command line as a whole: what it says when called wrongly, and on a machine that lacks its parser."""

import io
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from rich.console import Console

from bayesin.cli.main import VERBS, load_verb, main
from bayesin.cli.output import Output
from bayesin.errors import ArtifactError


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
    assert main([verb, "--jsn"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "did you mean '--json'?" in error


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("train --epoch 5", "'train' has no flag '--epoch'; did you mean '--epochs'?"),
        ("train --epochs many", "--epochs needs INT, not 'many': Passes over the training set."),
        ("train --epochs", "--epochs needs a value"),
        ("train --model mpl", "--model cannot be 'mpl'; did you mean 'mlp'?"),
        ("train --preset papper", "did you mean 'paper'?"),
        ("train --data mnsit", "there is no data set 'mnsit' (did you mean 'mnist'?)"),
        ("train more", "'train' takes no 'more'"),
        ("data lst", "did you mean 'list'?"),
        ("data fetch mnits", "did you mean 'mnist'?"),
        ("barrier x y --noise z", "--noise needs FLOAT, not 'z'"),
        ("explain", "'explain' needs MODEL"),
        ("explain mlp --input-shape a", "--input-shape needs INT, not 'a': Shape of one example"),
        ("align runs/digit#0 runs/digit#1 --out x", "no run folder or file 'runs/digit'; did you mean 'digits'?"),
        ("report nowhere", "nowhere has no report.json"),
    ],
)
def test_misuse_is_one_line_with_the_nearest_word(line, says, capsys, tmp_path, monkeypatch):
    pytest.importorskip("tyro")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "digits").mkdir(parents=True)
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.startswith("bayesin: ") and says in error
    assert "\x1b" not in error  # no colours where there is no terminal


def test_debug_shows_the_traceback(tmp_path, monkeypatch):
    pytest.importorskip("tyro")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError):
        main(["report", "nowhere", "--debug"])


def test_a_failure_that_is_no_misuse_ends_with_1(monkeypatch, capsys):
    pytest.importorskip("tyro")

    def broken(*_):
        raise RuntimeError("the disk is on fire\nand more lines")

    monkeypatch.setattr("bayesin.cli.report.Report.run", broken)
    assert main(["report", "x"]) == 1
    assert capsys.readouterr().err == (
        "bayesin: unexpected RuntimeError: the disk is on fire (--debug shows the traceback)\n"
    )


def examples() -> dict[str, list[str]]:
    """The examples as a reader of the help sees them."""
    return {name: shlex.split(verb.example)[1:] for name, verb in VERBS.items()}


@pytest.mark.parametrize("verb", [*VERBS])
def test_the_example_in_the_help_can_be_parsed(verb, capsys):
    pytest.importorskip("tyro")
    from bayesin.cli.parsing import parse

    with pytest.raises(SystemExit):
        main([verb, "--help"])
    (shown,) = re.findall(r"^Example: (.*)$", capsys.readouterr().out, re.MULTILINE)
    program, name, *words = shlex.split(shown)
    assert (program, name) == ("bayesin", verb)
    parse(name, load_verb(name), shown, words)


@pytest.mark.parametrize("verb", [*VERBS])
def test_the_help_does_not_speak_of_none(verb, capsys):
    pytest.importorskip("tyro")
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "{None}" not in shown and "(default: None)" not in shown and "(default: False)" not in shown


@pytest.mark.slow
def test_the_examples_of_the_help_work_one_after_the_other(tmp_path, monkeypatch, capsys):
    """As they stand, but for flags that make them small."""
    pytest.importorskip("tyro")
    monkeypatch.chdir(tmp_path)
    said = examples()
    small = ["--epochs", "2", "--width", "16", "--test-samples", "4", "--limit", "100"]
    ensemble = "train --method ensemble --members 4 --width 8 --depth 1 --epochs 2 --limit 100 --out runs/ensemble"
    assert main([*said["train"], *small]) == 0
    assert main([*said["align"]]) == 0
    assert main([*said["barrier"], "--samples", "2", "--taus", "3", "--sets", "test"]) == 0
    assert main(ensemble.split()) == 0
    assert main([*said["compact"], "--draws", "4"]) == 0
    assert main(["report", "runs/barrier", "runs/one", "--out", "both.html"]) == 0
    text = capsys.readouterr()
    assert "\x1b" not in text.out + text.err
    assert (tmp_path / "runs" / "barrier" / "report.html").is_file() and (tmp_path / "both.html").is_file()


def test_completion_in_bash(capsys, tmp_path):
    pytest.importorskip("tyro")
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    asked = [["bayesin", "tr"], ["bayesin", "train", "--pres"], ["bayesin", "train", "--preset", ""]]
    asked += [["bayesin", "data", "fet"], ["bayesin", "barrier", "--no-p"], ["bayesin", "train", "--data", "fa"]]
    lines = [f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; COMPREPLY=()" for words in asked]
    program = f"source {script}\n" + "\n".join(f'{line}; _bayesin; echo "${{COMPREPLY[*]}}"' for line in lines)
    done = subprocess.run([bash, "-c", program], capture_output=True, text=True, check=True)
    expected = ["train", "--preset", "paper converged demo", "fetch", "--no-page", "fashion-mnist"]
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize(("shell", "word"), [("zsh", "bashcompinit"), ("fish", "complete -c bayesin")])
def test_completion_of_other_shells_knows_every_verb(shell, word, capsys):
    pytest.importorskip("tyro")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert word in script and all(name in script for name in VERBS)
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_bars_are_shown_in_a_terminal_alone():
    """A bar with the time left where standard error is a terminal; silent in a pipe and when quiet."""
    for terminal, quiet, expected in ((True, False, True), (False, False, False), (True, True, False)):
        out = Output(quiet=quiet)
        text = io.StringIO()
        out.errors = Console(file=text, force_terminal=terminal, width=100)
        with out.progress("measuring", 10) as bar:
            bar.update(5, "half way")
        assert ("measuring" in text.getvalue() and "left" in text.getvalue()) == expected


def test_a_narrow_terminal_cuts_the_note_and_not_the_time():
    out, text = Output(), io.StringIO()
    out.errors = Console(file=text, force_terminal=True, width=80, color_system=None)
    with out.progress("measuring", 123_456) as bar:
        bar.update(61_728, "272 steps/s, loss 15.848, accuracy 95.9%, and whatever else one may want to know")
    lines = [line for line in re.split(r"[\r\n]|\x1b\[\d*\w", text.getvalue()) if "61728/123456" in line]
    assert lines and all(re.search(r"\d:\d\d:\d\d left +(-:--:--|\d:\d\d:\d\d)", line) for line in lines)
    assert all(len(line) <= 80 and "272 steps" in line for line in lines)


def test_without_the_parser_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.delitem(sys.modules, "bayesin.cli.explain", raising=False)
    assert main(["explain", "mlp"]) == 2
    assert "pip install tyro" in capsys.readouterr().err
