"""Files whole or absent, JSON that means one thing, locks that end with their process."""

import dataclasses
import errno
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from bayesin import files, locks
from bayesin.errors import ArtifactError, BayesinError, LockedError
from bayesin.file_sets import replaced_together
from bayesin.files import read_bytes, write_bytes
from bayesin.json_files import expect, json_text, parse_json, plain, read_json, write_json


def test_what_is_written_is_read_and_nothing_else_is_left(tmp_path):
    path = write_json(tmp_path / "new" / "folder" / "a.json", {"τ": [1, 0.5, None, True], "b": {}})
    assert read_json(path) == {"τ": [1, 0.5, None, True], "b": {}}
    assert [file.name for file in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_a_failed_write_leaves_the_older_file(tmp_path, monkeypatch, call):
    path = write_bytes(tmp_path / "a", b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(call, full)
    with pytest.raises(ArtifactError, match=f"cannot write {path}: No space left"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_writers_of_one_file_never_fail_each_other(tmp_path, monkeypatch):
    """Threads stand for processes: to the kernel's locks every opened file is another holder."""
    monkeypatch.setattr("os.fsync", lambda _: None)  # which would keep them apart
    path, failures = write_json(tmp_path / "a.json", {"writer": "0", "text": ""}), []

    def work(name: str) -> None:
        try:
            for _ in range(100):
                write_json(path, {"writer": name, "text": name * 5000})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        content = read_json(path)  # whole, of one writer or another
        assert set(content["text"]) <= {content["writer"]}
    assert not failures and [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_leftovers_go_with_the_next_write_and_living_ones_stay(tmp_path):
    for name in (".tmp-1-0-page.html", ".tmp-2-0-other.html", ".tmp-3-0-page.html"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / ".tmp-4-0-page.html").symlink_to(".tmp-2-0-other.html")
    with locks.held(tmp_path / ".tmp-3-0-page.html"):
        write_bytes(tmp_path / "page.html", b"whole")
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            ".tmp-2-0-other.html", ".tmp-3-0-page.html", ".tmp-4-0-page.html", "page.html"
        ]  # fmt: skip
    assert files.remove_leftovers(tmp_path) == 2
    assert files.remove_leftovers(tmp_path / "missing") == 0


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "/dev/zero", "null\0", "loop", "long" * 2000])
def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path, kind):
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(ArtifactError) as raised:
        read_bytes(path)
    assert "\0" not in str(raised.value)


@pytest.mark.parametrize("name", ["", ".", "a\0b", "x" * 300])
def test_names_that_no_file_can_have_are_refused_on_writing(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="cannot write"):
        write_bytes(name, b"")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    with pytest.raises(ArtifactError, match="has 10 bytes, more than the 5 such a file can have"):
        read_bytes(write_bytes(tmp_path / "a", b"0123456789"), 5)


@pytest.mark.parametrize(
    "text",
    ["NaN", "-Infinity", "1e999", "-1e400", '{"a": 1, "a": 2}', '"\\ud800"', "1" * 5000, "[" * 100_000, "{", "", "é",
     b"\xff", b"\0"],
)  # fmt: skip
def test_json_that_means_nothing_is_refused(text):
    with pytest.raises(BayesinError, match="what"):
        parse_json(text, "what")
    assert parse_json('["\\ud83d\\ude00", 1e308, -0.0, 12345678901234567890]', "what")[0] == "😀"


@dataclasses.dataclass
class Point:
    x: float
    label: str = "τ"


class Own:
    def to_json(self):
        return {"own": (1, np.float32(0.5))}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(math.nan), {"x": None, "label": "τ"}),
        (Own(), {"own": [1, 0.5]}),
        ({"a": {1: Path("x/y")}, "b": (True, None)}, {"a": {"1": "x/y"}, "b": [True, None]}),
        (np.arange(4, dtype=np.int8).reshape(2, 2), [[0, 1], [2, 3]]),
        ([np.float32(0.1), np.int64(3), np.bool_(True), np.array(2.0)], [float(np.float32(0.1)), 3, True, 2.0]),
        (jnp.array([0.5, jnp.inf]), [0.5, None]),
        (jnp.zeros((), jnp.bfloat16), 0.0),
        (np.ma.masked_array([1, 2], [False, True]), [1, None]),
        ([-math.inf, -0.0, 10**40], [None, -0.0, 10**40]),
        ("half \udcff", "half ?"),
    ],
)
def test_plain_values_are_what_json_reads_back(value, expected):
    assert plain(value) == expected
    assert parse_json(json_text(value), "it") == expected


def test_plain_rounds_where_asked():
    assert plain([0.123456789, 1e-20, 123456789, np.float32(1) / 3], digits=3) == [0.123, 1e-20, 123456789, 0.333]


@pytest.mark.parametrize("value", [object(), {1: 2, "1": 3}, {None: 1}, {1.5: 1}, 1j, int, {1, 2}, 10**70, b"x"])
def test_values_that_json_cannot_hold_are_refused(tmp_path, value):
    with pytest.raises(ArtifactError):
        write_json(tmp_path / "a.json", [value])
    assert not list(tmp_path.iterdir())


def test_a_value_within_itself_is_refused():
    value: list = []
    value.append(value)
    with pytest.raises(ArtifactError, match="in itself"):
        json_text(value)


SCHEMA = {
    "format": "toy",
    "version": 1,
    "members": [{"nll": float, "name": str, "steps?": int | None}],
    "curves?": {str: [float | None]},
    "done": bool,
    "anything?": object,
}
GOOD = {"format": "toy", "version": 1, "members": [{"nll": 1, "name": "a", "steps": None}], "done": True, "more": 0}


def test_a_value_of_the_right_shape_passes():
    assert expect(GOOD, SCHEMA, "f") is GOOD
    assert expect(GOOD | {"curves": {"x": [1, None]}, "anything": []}, SCHEMA, "f")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "f: 'format' must be 'toy', not 'other'"),
        ({"version": True}, "f: 'version' must be 1, not True"),
        ({"version": 2}, "f: 'version' must be 1, not 2"),
        ({"members": {}}, "f: 'members' must be a list, not an object"),
        ({"members": [1]}, "f: 'members[0]' must be an object, not a whole number"),
        ({"members": [{"nll": True, "name": ""}]}, "f: 'members[0].nll' must be a number, not true or false"),
        ({"members": [{"nll": 1.0}]}, "f: 'members[0].name' is missing"),
        ({"members": [{"nll": 1, "name": None}]}, "f: 'members[0].name' must be text, not null"),
        ({"members": [{"nll": 1, "name": "", "steps": 1.0}]}, "must be a whole number or null, not a number"),
        ({"curves": {"x": [1, "2"]}}, "f: 'curves.x[1]' must be a number or null, not text"),
        ({"curves": {"\x1b[2J": 1}}, r"f: 'curves.\x1b[2J' must be a list"),
        ({"done": 1}, "f: 'done' must be true or false, not a whole number"),
    ],
)
def test_the_file_and_the_field_of_a_wrong_value_are_named(tmp_path, change, message):
    with pytest.raises(ArtifactError) as raised:
        expect(GOOD | change, SCHEMA, "f")
    assert message in str(raised.value)
    path = write_json(tmp_path / "f.json", GOOD | change)
    with pytest.raises(ArtifactError, match=r"f\.json: "):
        read_json(path, SCHEMA)


def test_only_one_holds_a_lock_and_it_says_who(tmp_path):
    path = tmp_path / "new" / ".lock"
    assert not locks.is_locked(path)
    with locks.locked(path):
        assert locks.is_locked(path)
        with (
            pytest.raises(LockedError, match=f"process {os.getpid()} on .* works in {path.parent}"),
            locks.locked(path),
        ):
            pass
    assert not locks.is_locked(path) and not path.exists()


HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("process 1 on there", file=file, flush=True)
    print(1, flush=True)
    time.sleep(60)
"""


def test_a_waiting_process_gets_the_lock_when_its_holder_is_killed(tmp_path):
    path = tmp_path / ".lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"1\n"
        assert locks.is_locked(path)
        threading.Timer(0.3, holder.kill).start()
        with locks.locked(path, wait=True):  # what the killed one wrote is put aside
            assert path.read_text().startswith(f"process {os.getpid()} on ")


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_locks_follow_no_link_and_open_no_pipe(tmp_path, kind):
    precious, path = tmp_path / "precious", tmp_path / ".lock"
    precious.write_bytes(b"precious")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(precious if kind == "link" else tmp_path / "elsewhere")
    assert not locks.is_locked(path)
    with pytest.raises(ArtifactError, match=r"cannot (lock|write)"), locks.locked(path):
        pass
    assert precious.read_bytes() == b"precious" and not (tmp_path / "elsewhere").exists()
    assert os.path.lexists(path)


def test_locks_write_over_nothing(tmp_path):
    """Neither a file with content nor an empty one that has another name."""
    for content in (b"precious", b""):
        precious = tmp_path / "precious"
        precious.write_bytes(content)
        os.link(precious, tmp_path / ".lock")
        with locks.locked(tmp_path / ".lock"):
            assert precious.read_bytes() == content
            assert locks.is_locked(tmp_path / ".lock")
        assert precious.read_bytes() == content


def test_where_the_file_system_has_no_locks_the_work_goes_on_and_says_so(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(locks.fcntl, "flock", unsupported)
    with pytest.warns(UserWarning, match="has no locks"), locks.locked(tmp_path / ".lock"):
        assert not locks.is_locked(tmp_path / ".lock")  # else what a killed process left would work for ever
        write_bytes(tmp_path / "x", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_lock_file_that_cannot_be_put_aside_is_told_and_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / ".lock").write_bytes(b"of a killed process")

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.unlink", refused)
    with pytest.raises(ArtifactError, match="Permission denied; remove it"), locks.locked(tmp_path / ".lock"):
        pass


def test_the_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_folder("data") == tmp_path / "bayesin" / "data"


def test_without_a_home_there_is_no_cache_folder(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(_):
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert files.cache_folder("data") is None


@pytest.mark.parametrize("how", ["link", "folder", "gone"])
def test_what_took_the_place_of_a_folder_meanwhile_is_not_written_into(tmp_path, how):
    folder, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    (other / "result").write_text("precious")
    with locks.locked(other / ".lock"):
        refused = pytest.raises(ArtifactError, match="was moved or replaced")
        with refused, locks.locked(folder / ".lock"), replaced_together(folder) as place:
            (place / "result").write_text("new")
            folder.rename(tmp_path / "moved")
            if how == "link":
                folder.symlink_to(other)
            elif how == "folder":
                other.rename(folder)
        if how == "folder":
            folder.rename(other)
        assert (other / ".lock").exists()  # another's
    assert [(path.name, path.read_text()) for path in other.iterdir()] == [("result", "precious")]


def test_two_sets_that_are_ready_at_once_take_their_places_one_after_the_other(tmp_path, monkeypatch):
    names, rename, others = ("first", "second", "third"), os.replace, []
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "out")
    (tmp_path / "out").mkdir()

    def write(content: str) -> None:
        with replaced_together(link) as place:
            for name in names:
                (place / name).write_text(content)

    def slowly(source, place):
        if not others and Path(place).name == "second":  # one set is half in its place when the other is ready
            others.append(threading.Thread(target=write, args=("other",)))
            others[0].start()
            others[0].join(0.3)
            assert others[0].is_alive()
        rename(source, place)

    monkeypatch.setattr(os, "replace", slowly)
    write("one")
    others[0].join(20)
    assert [(tmp_path / "out" / name).read_text() for name in names] == ["other"] * 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
