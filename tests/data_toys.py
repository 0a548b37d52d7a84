"""A small published data set of our own: the same formats, checks and mirrors as the real ones, a few bytes each."""

import gzip
import hashlib
import io
import struct
import tarfile
from pathlib import Path

import numpy as np

from bayesin.data.sources import Download, File, Source

CLASSES = 4


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx_contents(seed: int = 0) -> dict[str, bytes]:
    """Contents of the four files of a toy MNIST: 24 training and 12 test images of 5 × 3."""
    random = np.random.RandomState(seed)
    contents = {}
    for prefix, count in (("train", 24), ("t10k", 12)):
        images = random.randint(0, 256, (count, 5, 3)).astype(np.uint8)
        labels = (np.arange(count) % CLASSES).astype(np.uint8)
        labels = random.permutation(labels)
        contents[f"{prefix}-images-idx3-ubyte"] = idx_bytes(images)
        contents[f"{prefix}-labels-idx1-ubyte"] = idx_bytes(labels)
    return contents


def cifar_contents(seed: int = 0) -> dict[str, bytes]:
    """Contents of a toy CIFAR-10: two training batches of 6 records and a test batch."""
    random = np.random.RandomState(seed)
    contents = {}
    for name in ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"):
        records = random.randint(0, 256, (6, 3073)).astype(np.uint8)
        records[:, 0] = np.arange(6) % CLASSES
        contents[name] = records.tobytes()
    return contents


def idx_source(contents: dict[str, bytes], mirrors: tuple[str, ...] = (), name: str = "toy") -> Source:
    files = [_file(n, c) for n, c in contents.items()]
    downloads = [_download(f"{n}.gz", squeeze(c)) for n, c in contents.items()]
    folders = (f"{name}/raw", name)
    return Source(name, name.upper(), "idx", (5, 3, 1), CLASSES, tuple(files), folders, tuple(downloads), mirrors)


def cifar_source(contents: dict[str, bytes], archive: bytes, mirrors: tuple[str, ...] = ()) -> Source:
    files = tuple(_file(n, c) for n, c in contents.items())
    downloads = (_download("toy-binary.tar.gz", archive),)
    return Source("toy10", "TOY-10", "cifar", (32, 32, 3), 10, files, ("toy-batches-bin",), downloads, mirrors)


def squeeze(content: bytes) -> bytes:
    """gzip with no date in it, so that the same content gives the same archive."""
    return gzip.compress(content, mtime=0)


def tarball(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def write_files(folder: Path, contents: dict[str, bytes], *, zipped: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(squeeze(content) if zipped else content)
    return folder


def _file(name: str, content: bytes) -> File:
    return File(name, f"content of {name}", len(content), hashlib.sha256(content).hexdigest())


def _download(name: str, archive: bytes) -> Download:
    return Download(name, len(archive), hashlib.sha256(archive).hexdigest())
