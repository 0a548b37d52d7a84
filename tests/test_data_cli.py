"""`bayesin data`: list, fetch and check, for people and for machines."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import bayesin.data.sources as sources
from bayesin.cli.main import main
from data_toys import idx_contents, idx_source, write_files

pytest.importorskip("tyro")


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """Only the toy data set, and only where a test puts it."""
    monkeypatch.delenv("BAYESIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setitem(sources.SOURCES, "toy", idx_source(idx_contents()))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def mirror(tmp_path):
    folder = write_files(tmp_path / "served", idx_contents())

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{http.server_address[1]}/"
    http.shutdown()
    thread.join()
    http.server_close()


def test_list_shows_what_is_where(tmp_path, capsys):
    assert main(["data"]) == 0
    text = capsys.readouterr().out
    assert "not here" in text and "in scikit-learn" in text and "bayesin data fetch NAME" in text
    write_files(tmp_path / "root" / "toy", idx_contents())
    assert main(["data", "list", "toy", "--root", str(tmp_path / "root"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["datasets"][0]
    assert row["found"] and row["folder"] == str(tmp_path / "root" / "toy") and row["missing"] == []


def test_fetch_then_check_then_fetch_again(tmp_path, capsys, mirror):
    arguments = ["data", "fetch", "toy", "--root", str(tmp_path / "[root]"), "--mirror", mirror]
    assert main(arguments) == 0
    assert "4 downloaded, all compared" in capsys.readouterr().out
    assert main(["data", "check", "toy", "--root", str(tmp_path / "[root]"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["datasets"][0]["files"]) == 4
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "already here" in text and "[root]" in text


def test_a_failed_fetch_is_one_line_and_code_2(tmp_path, capsys, mirror):
    assert main(["data", "fetch", "toy", "--root", str(tmp_path / "root"), "--mirror", f"{mirror}none/"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "HTTP 404" in captured.err and captured.out == ""
    assert not (tmp_path / "root").exists()


def test_check_tells_what_is_wrong(tmp_path, capsys):
    folder = write_files(tmp_path / "root" / "toy", idx_contents(), zipped=False)
    path = folder / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["data", "check", "toy", "--root", str(tmp_path / "root")]) == 2
    assert "t10k-labels-idx1-ubyte is truncated: 19 of the 20 bytes" in capsys.readouterr().err


def test_a_user_without_a_home_is_told_to_name_a_folder(monkeypatch, capsys):
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(_):
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert main(["data", "list"]) == 0
    assert main(["data", "fetch", "toy"]) == 2
    assert "name one with --root or $BAYESIN_DATA" in capsys.readouterr().err


def test_check_of_an_npz_file(tmp_path, capsys):
    path = tmp_path / "mine.npz"
    x, y = np.zeros((4, 3)), np.array([0, 1, 0, 1])
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    assert main(["data", "check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["datasets"][0]["classes"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch"], "say which data set to fetch"),
        (["check", "minst"], "did you mean 'mnist'?"),
        (["fetch", "digits"], "nothing to fetch"),
        (["fetch", "toy", "--timeout", "-1"], "--timeout needs a positive number"),
        (["fetch", "toy", "--timeout", "nan"], "--timeout needs a positive number"),
        (["list", "nothing"], "there is no 'nothing'"),
        (["check", "toy"], "is not on this machine"),
        (["check", "toy", "--root", "/nonexistent"], "is not a folder"),
    ],
)
def test_misuse_is_one_line_and_code_2(capsys, arguments, message):
    assert main(["data", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1
