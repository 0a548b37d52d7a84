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
from bayesin.cli.parsing import parse
from bayesin.errors import ArtifactError
from bayesin.lab import machine

pytest.importorskip("tyro")


def test_alone_it_lists_every_verb_with_an_example(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb.example in shown and verb.summary in shown for verb in VERBS.values())


@pytest.mark.parametrize("verb", [*VERBS])
def test_the_help_of_every_verb(verb, capsys):
    """It has the common flags, does not speak of None, and its example can be parsed."""
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert all(flag in shown for flag in ("--json", "--quiet", "--debug"))
    text = " ".join(shown.split())
    assert not any(noise in text for noise in ("None}", "(default: None)", "(default: False)", "(default: )"))
    (example,) = re.findall(r"^Example: (.*)$", shown, re.MULTILINE)
    program, name, *words = shlex.split(example)
    assert (program, name) == ("bayesin", verb)
    parse(name, load_verb(name), example, words)


@pytest.mark.parametrize("verb", [verb for verb, about in VERBS.items() if about.compiles])
def test_compiled_programs_are_kept_for_the_next_start(verb, monkeypatch, capsys):
    def refuse():
        raise ArtifactError("the cache was asked for")

    monkeypatch.setattr(machine, "use_compilation_cache", refuse)
    assert main(shlex.split(VERBS[verb].example)[1:]) == ArtifactError.exit_code
    assert "the cache was asked for" in capsys.readouterr().err


WRONG = [  # words, and what the one line must name
    *[(f"{verb} --jsn", "did you mean '--json'?") for verb in VERBS],
    *[(f"{verb} a b c d", "takes no") for verb in ("align", "barrier")],
    *[(f"{verb} more", "takes no 'more'") for verb in ("demo", "doctor", "train")],
    ("explian", "'explain'"),
    ("barier x y", "'barrier'"),
    ("demo --key x", "--key needs a whole number, not 'x'"),
    ("demo --key=x", "--key needs a whole number, not 'x'"),
    ("demo --out", "--out needs a value"),
    ("doctor --json=yes", "'doctor --json=yes' cannot be understood"),
    ("data lst", "did you mean 'list'?"),
    ("data fetch mnits", "did you mean 'mnist'?"),
    ("data fetch", "which data set"),
    ("data fetch mnist --timeout 0", "--timeout"),
    ("explain", "needs MODEL"),
    ("explain mlp --input-shape 8 a", "--input-shape needs a whole number, not 'a'"),
    ("explain mlp --norm frm", "did you mean 'frn'?"),
    ("explain mlpp", "did you mean 'mlp'?"),
    ("train --epoch 5", "did you mean '--epochs'?"),
    ("train --epochs many", "--epochs needs a whole number, not 'many'"),
    ("train --epochs", "--epochs needs a value"),
    ("train --epochs --quiet", "--epochs needs a value"),
    ("train --learning_rate fast", "--learning-rate needs a number, not 'fast'"),
    ("train --model mpl", "did you mean 'mlp'?"),
    ("train --optimiser adamm", "did you mean 'adam'?"),
    ("train --adapt maybe", "known are True, False"),
    ("train --data mnsit", "'mnist'"),
    ("align runs/digit#0 runs/digit#1 --out x", "did you mean 'digits'?"),
    ("align", "TARGET SOURCE"),
    ("barrier x y --noise z", "--noise needs a number, not 'z'"),
    ("barrier x y --sets tst", "did you mean 'test'?"),
    ("barrier x y --align --cost activation", "did you mean 'activations'?"),
    ("barrier x y --rescale", "add --align"),
    ("merge", "FIRST SECOND"),
    ("compact", "SAMPLES"),
    ("compact x --out y --family diagonl", "did you mean 'diagonal'?"),
    ("reproduce", "--list"),
    ("reproduce nothing-like-it", "--list"),
    ("reproduce kl --minutes inf", "--minutes"),
    ("reproduce kl --workers -1", "--workers"),
    ("reproduce kl --address auto", "--engine ray"),
    ("status nowhere", "nowhere"),
    ("report", "which run"),
    ("report nowhere", "report.json"),
    ("report a b", "--out"),
    ("report a --out page.txt", ".html"),
    ("completion tcsh", "did you mean 'zsh'?"),
]


@pytest.mark.parametrize(("line", "says"), WRONG, ids=[line for line, _ in WRONG])
def test_misuse_is_one_line_and_exit_code_2(line, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "digits").mkdir(parents=True)
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and said.err.startswith("bayesin: ") and says in said.err
    assert "\x1b" not in said.err  # no colours where there is no terminal
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "digits"]


def test_what_comes_from_files_cannot_drive_the_terminal(capsys):
    out, name = Output(), "name\x1b[2J\r\n[red]\u202e"
    out.line(name)
    out.warn(name)
    out.fail(name)
    out.table(name, ["column"], [[name]])
    said = capsys.readouterr()
    text = said.out + said.err
    assert not any(character in text for character in "\x1b\r\u202e")
    assert text.count(r"name\x1b[2J\r\n[red]") == 5  # nothing is taken for markup either


def test_debug_shows_the_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError):
        main(["report", "nowhere", "--debug"])


def test_a_failure_that_is_no_misuse_ends_with_1(monkeypatch, capsys):

    def broken(*_):
        raise RuntimeError("the disk is on fire\nand more lines")

    monkeypatch.setattr("bayesin.cli.report.Report.run", broken)
    assert main(["report", "x"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "RuntimeError: the disk is on fire" in error and "--debug" in error


@pytest.mark.slow
def test_the_examples_of_the_help_work_one_after_the_other(tmp_path, monkeypatch, capsys):
    """As they stand, but for flags that make them small."""
    monkeypatch.chdir(tmp_path)
    said = {name: shlex.split(verb.example)[1:] for name, verb in VERBS.items()}
    small = ["--epochs", "2", "--width", "16", "--test-samples", "4", "--limit", "100"]
    ensemble = "train --method ensemble --members 4 --width 8 --depth 1 --epochs 2 --limit 100 --out runs/ensemble"
    assert main([*said["train"], *small]) == 0
    assert main([*said["align"]]) == 0
    assert main([*said["barrier"], "--samples", "2", "--taus", "3", "--sets", "test"]) == 0
    assert main([*said["merge"], "--samples", "2"]) == 0
    assert main(ensemble.split()) == 0
    assert main([*said["compact"], "--draws", "4"]) == 0
    assert main(["report", "runs/barrier", "runs/one", "--out", "both.html"]) == 0
    text = capsys.readouterr()
    assert "\x1b" not in text.out + text.err
    assert (tmp_path / "runs" / "barrier" / "report.html").is_file() and (tmp_path / "both.html").is_file()


def test_completion_in_bash(capsys, tmp_path):
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
    expected = ["try train", "--preset", "paper converged accurate demo", "fetch", "--no-page", "fashion-mnist"]
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize(("shell", "word"), [("zsh", "bashcompinit"), ("fish", "complete -c bayesin")])
def test_completion_of_other_shells_knows_every_verb(shell, word, capsys):
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


def test_a_bar_that_no_terminal_shows_says_a_line_a_minute(capsys, monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr("bayesin.cli.output.time.monotonic", lambda: now[0])
    with Output().progress("chains", 8) as bar:
        for done in range(8):
            bar.update(done, f"iteration {done}")
            now[0] += 25
    said = [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["chains: 3 of 8 iteration 3", "chains: 6 of 8 iteration 6"]
    with Output(quiet=True).progress("chains", None) as bar:
        now[0] += 1_000
        bar.update(1)
    assert capsys.readouterr().err == ""
