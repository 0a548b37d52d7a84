"""Downloads from a local server that behaves, fails, stalls, breaks off and lies."""

import gzip
import hashlib
import os
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bayesin.data import check, fetch
from bayesin.data.download import download
from bayesin.data.sources import Download
from bayesin.errors import DataError
from bayesin.locks import held
from data_toys import cifar_contents, cifar_source, idx_contents, idx_source, squeeze, tarball, write_files

pytest.importorskip("requests")

TIMEOUT = 0.4
TRAIN = "train-images-idx3-ubyte"


class Server:
    """Serves `files` below one folder for each way of behaving: /good/NAME, /stall/NAME, …"""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.log: list[tuple[str, str | None]] = []  # (path, Range header)
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.log.append((self.path, self.headers.get("Range")))
                _, behaviour, name = self.path.split("/", 2)
                with suppress(BrokenPipeError, ConnectionResetError):  # the client had enough
                    getattr(outer, behaviour)(self, outer.files[name])

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def mirror(self, behaviour: str) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/{behaviour}/"

    def close(self):
        self.over.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    @staticmethod
    def head(request, length: int | None, status: int = 200, **headers: str):
        request.send_response(status)
        if length is not None:
            request.send_header("Content-Length", str(length))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()

    def good(self, request, content):
        self.head(request, len(content))
        request.wfile.write(content)

    def unmeasured(self, request, content):  # no Content-Length: the end of the connection is the end of the file
        self.head(request, None)
        request.wfile.write(content)

    def labelled(self, request, content):  # some servers call every .gz an encoding; the bytes must stay as they are
        self.head(request, len(content), Content_Encoding="gzip")
        request.wfile.write(content)

    def moved(self, request, content):
        name = request.path.rpartition("/")[2]
        self.head(request, 0, 302, Location=self.mirror("good") + name)

    def missing(self, request, content):
        request.send_error(404)

    def failing(self, request, content):
        request.send_error(503)

    def silent(self, request, content):
        self.over.wait(20)

    def stall(self, request, content):
        self.head(request, len(content))
        request.wfile.write(content[: len(content) // 2])
        request.wfile.flush()
        self.over.wait(20)

    def drip(self, request, content):  # never silent for long, never fast enough
        self.head(request, len(content))
        for index in range(len(content)):
            request.wfile.write(content[index : index + 1])
            request.wfile.flush()
            if self.over.wait(0.05):
                return

    def half(self, request, content):
        self.head(request, len(content))
        request.wfile.write(content[: len(content) // 2])

    def half_unmeasured(self, request, content):
        self.head(request, None)
        request.wfile.write(content[: len(content) // 2])

    def wrong(self, request, content):
        self.head(request, len(content))
        request.wfile.write(bytes(byte ^ 1 for byte in content))

    def page(self, request, content):
        self.head(request, 17)
        request.wfile.write(b"<html>log in</html"[:17])

    def endless(self, request, content):
        self.head(request, None)
        while not self.over.is_set():
            request.wfile.write(bytes(1 << 16))

    def flaky(self, request, content):  # breaks off after a third, and can go on where it stopped
        start, third = 0, len(content) // 3 + 1
        if request.headers.get("Range"):
            start = int(request.headers["Range"].removeprefix("bytes=").rstrip("-"))
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.head(request, len(content) - start, 206, Content_Range=span)
        else:
            self.head(request, len(content))
        request.wfile.write(content[start : start + third])

    def forgetful(self, request, content):  # breaks off once, and only knows how to start over
        self.head(request, len(content))
        first = sum(path == request.path for path, _ in self.log) == 1
        request.wfile.write(content[: len(content) // 2] if first else content)

    def confused(self, request, content):  # breaks off, then answers a Range with another one
        if request.headers.get("Range"):
            self.head(request, len(content), 206, Content_Range=f"bytes 0-{len(content) - 1}/{len(content)}")
            request.wfile.write(content)
        else:
            self.half(request, content)


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv("BAYESIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def toy(server):
    contents = idx_contents()
    server.files = {f"{name}.gz": squeeze(content) for name, content in contents.items()}
    return idx_source(contents)


def left_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


@pytest.mark.parametrize("behaviour", ["good", "unmeasured", "labelled", "moved", "flaky", "forgetful", "confused"])
def test_a_server_that_delivers(server, toy, tmp_path, behaviour):
    steps = []
    fetched = fetch(
        toy,
        tmp_path / "root",
        mirrors=[server.mirror(behaviour)],
        timeout=TIMEOUT * 10,
        on_progress=lambda done, total, name: steps.append((done, total, name)),
    )
    assert fetched.folder == tmp_path / "root" / "toy" / "raw"
    assert len(fetched.downloaded) == 4
    assert left_in(fetched.folder) == sorted(server.files)
    check(toy, tmp_path / "root")
    total = sum(map(len, server.files.values()))
    assert steps[-1] == (total, total, "t10k-labels-idx1-ubyte.gz")
    if behaviour == "good":
        assert [done for done, _, _ in steps] == sorted(done for done, _, _ in steps)
    if behaviour == "flaky":
        assert any(asked for _, asked in server.log)  # it went on where the connection broke


BAD = {
    "missing": "HTTP 404",
    "failing": "HTTP 503",
    "silent": "stalled: nothing came for 0.4 s",
    "stall": "stalled: nothing came for 0.4 s",
    "drip": "stalled: .* bytes in",
    "half": "(broke off in the middle of the file|sent .* of .* bytes)",
    "half_unmeasured": "sent .* of .* bytes",
    "wrong": "sent wrong bytes",
    "page": "offers 17 bytes instead of",
    "endless": "sent more than the .* bytes of the file",
}


@pytest.mark.parametrize("behaviour", BAD)
def test_a_server_that_does_not(server, toy, tmp_path, behaviour):
    before = time.monotonic()
    with pytest.raises(
        DataError, match=f"cannot download {TRAIN}.gz: http.*/{behaviour}/.*: {BAD[behaviour]}"
    ) as error:
        fetch(toy, tmp_path / "root", mirrors=[server.mirror(behaviour)], timeout=TIMEOUT)
    assert time.monotonic() - before < 15
    assert "\n" not in str(error.value)
    assert left_in(tmp_path / "root") == []


def test_the_next_mirror_is_tried_and_every_failure_is_told(server, toy, tmp_path):
    ways = ["missing", "wrong", "half", "good"]
    fetch(toy, tmp_path / "root", mirrors=[server.mirror(way) for way in ways], timeout=TIMEOUT)
    check(toy, tmp_path / "root")
    with pytest.raises(DataError) as error:
        fetch(toy, tmp_path / "other", mirrors=[server.mirror(way) for way in ways[:3]], timeout=TIMEOUT)
    for way in ways[:3]:
        assert server.mirror(way) in str(error.value)
    assert left_in(tmp_path / "other") == []


def test_nobody_listens(toy, tmp_path):
    with pytest.raises(DataError, match="connection refused"):
        fetch(toy, tmp_path / "root", mirrors=["http://127.0.0.1:9/"], timeout=TIMEOUT)
    with pytest.raises(DataError, match="cannot download"):
        fetch(toy, tmp_path / "root", mirrors=["nonsense://x"], timeout=TIMEOUT)
    with pytest.raises(DataError, match="no mirror is named"):
        fetch(toy, tmp_path / "root")
    assert left_in(tmp_path / "root") == []


def test_what_is_here_is_not_downloaded_again(server, toy, tmp_path):
    mirrors = [server.mirror("good")]
    first = fetch(toy, tmp_path / "root", mirrors=mirrors)
    asked = len(server.log)
    again = fetch(toy, tmp_path / "root", mirrors=mirrors)
    assert again.folder == first.folder and again.downloaded == () and len(server.log) == asked
    assert fetch(toy, mirrors=mirrors).folder == tmp_path / "cache" / "bayesin" / "data" / "toy" / "raw"


def test_only_what_is_damaged_is_mended_and_nothing_is_lost(server, toy, tmp_path):
    contents = idx_contents()
    folder = write_files(tmp_path / "root" / "toy", contents, zipped=False)
    (folder / TRAIN).write_bytes(b"precious")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    fetched = fetch(toy, tmp_path / "root", mirrors=[server.mirror("good")])
    assert fetched.folder == folder
    assert fetched.downloaded == (f"{TRAIN}.gz", "t10k-labels-idx1-ubyte.gz")
    assert (folder / f"{TRAIN}.bad").read_bytes() == b"precious"
    check(toy, tmp_path / "root")


def test_a_failed_mend_leaves_everything_as_it_was(server, toy, tmp_path):
    folder = write_files(tmp_path / "root" / "toy", idx_contents())
    (folder / f"{TRAIN}.gz").write_bytes(b"precious")
    before = left_in(tmp_path)
    with pytest.raises(DataError):
        fetch(toy, tmp_path / "root", mirrors=[server.mirror("wrong")])
    assert left_in(tmp_path) == before
    assert (folder / f"{TRAIN}.gz").read_bytes() == b"precious"


def test_files_of_another_data_set_with_the_same_names_stay(server, toy, tmp_path):
    """MNIST lies directly in the root, and Fashion-MNIST, whose files have the same names, is fetched there."""
    root = write_files(tmp_path / "root", idx_contents(seed=7))
    before = {path.name: path.read_bytes() for path in root.iterdir()}
    fetched = fetch(toy, root, mirrors=[server.mirror("good")])
    assert fetched.folder == root / "toy" / "raw"
    assert {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()} == before
    check(toy, root)


def test_an_interrupt_leaves_nothing(server, toy, tmp_path):
    def stop(done, total, name):
        if name.startswith("t10k"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(toy, tmp_path / "root", mirrors=[server.mirror("good")], on_progress=stop)
    assert left_in(tmp_path / "root") == []


def test_what_a_killed_process_left_is_removed_and_the_work_of_a_living_one_is_not(server, toy, tmp_path):
    left, living = tmp_path / "root" / ".tmp-1-0a-fetch", tmp_path / "root" / ".tmp-2-0b-fetch"
    for folder in (left, living):
        folder.mkdir(parents=True)
        (folder / "x.part").write_bytes(b"half")
    with held(living):
        fetch(toy, tmp_path / "root", mirrors=[server.mirror("good")])
    assert not left.exists() and living.exists()


def test_a_place_that_cannot_be_written(server, toy, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="is a file, not a folder"):
        fetch(toy, tmp_path / "file", mirrors=[server.mirror("good")])
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "toy").write_bytes(b"in the way")
    with pytest.raises(DataError, match="cannot write"):
        fetch(toy, tmp_path / "root", mirrors=[server.mirror("good")])
    assert left_in(tmp_path / "root") == ["toy"]


def test_the_archive_may_hold_other_content_than_it_should(server, tmp_path):
    """The archive's checksum agrees, its content's does not: a table of sources that contradicts itself."""
    contents = idx_contents()
    source = idx_source(contents)
    wrong = squeeze(b"something else")
    item = Download(f"{TRAIN}.gz", len(wrong), hashlib.sha256(wrong).hexdigest())
    server.files = {f"{name}.gz": squeeze(content) for name, content in contents.items()} | {item.name: wrong}
    source = source._replace(downloads=(item, *source.downloads[1:]))
    with pytest.raises(DataError, match=f"{TRAIN} arrived, but is not the published file"):
        fetch(source, tmp_path / "root", mirrors=[server.mirror("good")])
    assert left_in(tmp_path / "root") == []


def test_a_larger_file_is_resumed_byte_by_byte_right(server, tmp_path):
    content = gzip.compress(os.urandom(300_000), 0, mtime=0)
    server.files = {"big": content}
    item = Download("big", len(content), hashlib.sha256(content).hexdigest())
    (tmp_path / "in").mkdir()
    path = download(item, [server.mirror("flaky")], tmp_path / "in", 5.0, lambda _: None)
    assert path.read_bytes() == content
    assert server.log[0][1] is None and len(server.log) == 3
    assert left_in(tmp_path / "in") == ["big"]


# -- tarballs ------------------------------------------------------------------------------------------------


def tar_source(server, members, links=None):
    contents = cifar_contents()
    archive = tarball(members, links)
    server.files = {"toy-binary.tar.gz": archive}
    return cifar_source(contents, archive)


@pytest.mark.parametrize("prefix", ["", "./"])
def test_a_tarball_gives_its_files(server, tmp_path, prefix):
    members = {f"{prefix}toy-batches-bin/{name}": content for name, content in cifar_contents().items()}
    source = tar_source(server, members | {f"{prefix}toy-batches-bin/readme.html": b"<html>"})
    fetched = fetch(source, tmp_path / "root", mirrors=[server.mirror("good")])
    assert left_in(fetched.folder) == sorted(cifar_contents())
    check(source, tmp_path / "root")


def test_a_tarball_cannot_climb(server, tmp_path):
    good = {f"toy-batches-bin/{name}": content for name, content in cifar_contents().items()}
    evil = {"../../escaped": b"x", "/tmp/bayesin-escaped": b"x", "toy-batches-bin/../../escaped": b"x"}
    links = {"toy-batches-bin/link": "/etc/passwd", "toy-batches-bin/data_batch_1.bin": "/etc/passwd"}
    source = tar_source(server, evil | good, links)
    fetched = fetch(source, tmp_path / "root", mirrors=[server.mirror("good")])
    assert left_in(tmp_path / "root") == [
        "toy-batches-bin",
        *(f"toy-batches-bin/{n}" for n in sorted(cifar_contents())),
    ]
    assert not any(path.is_symlink() for path in fetched.folder.iterdir())
    assert not (tmp_path / "escaped").exists() and not os.path.exists("/tmp/bayesin-escaped")
    check(source, tmp_path / "root")


@pytest.mark.parametrize("fault", ["lacks", "length", "content", "elsewhere", "not a tarball", "cut"])
def test_a_tarball_that_is_not_right(server, tmp_path, fault):
    contents = cifar_contents()
    members = {f"toy-batches-bin/{name}": content for name, content in contents.items()}
    first = "toy-batches-bin/data_batch_1.bin"
    expected = "toy-binary.tar.gz"
    if fault == "lacks":
        del members[first]
        expected = "lacks data_batch_1.bin"
    elif fault == "length":
        members[first] = b"short"
        expected = "data_batch_1.bin has 5 bytes, not 18,438"
    elif fault == "content":
        members[first] = bytes(len(members[first]))
        expected = "data_batch_1.bin arrived, but is not the published file"
    elif fault == "elsewhere":
        members["../data_batch_1.bin"] = members.pop(first)
        expected = "lacks data_batch_1.bin"
    source = tar_source(server, members)
    if fault in ("not a tarball", "cut"):
        archive = squeeze(b"text" * 1000) if fault == "not a tarball" else server.files["toy-binary.tar.gz"][:-5000]
        server.files = {"toy-binary.tar.gz": archive}
        source = cifar_source(contents, archive)
        expected = "is not a whole tarball"
    with pytest.raises(DataError, match=expected):
        fetch(source, tmp_path / "root", mirrors=[server.mirror("good")])
    assert left_in(tmp_path / "root") == []
