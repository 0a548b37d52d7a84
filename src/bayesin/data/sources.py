"""The published image data sets: their files, where they lie, and what they must contain.

A data set is known by a SHA-256 of its content, whatever its name is and wherever it lies. Published data sets and
the digits have one content, which stands here and is compared whenever they are read. Of an `.npz` file the four
arrays count, not how they are compressed. Limits and normalisation do not: they are settings, and stand beside the
content in the config of a run.

`sha256` of a `File` is that of its decompressed content, so a file that was compressed again is the same
file; `sha256` of a `Download` is that of the archive as its authors publish it. MNIST: LeCun, Cortes and
Burges. Fashion-MNIST: Xiao, Rasul and Vollgraf 2017. CIFAR: Krizhevsky 2009, the binary version.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import DataError, did_you_mean
from ..files import content_hash


class File(NamedTuple):
    """One file of a data set, known by its content."""

    name: str  # without .gz
    role: str  # what it holds, for people
    size: int  # bytes, decompressed
    sha256: str  # of the decompressed content


class Download(NamedTuple):
    """One thing that a mirror offers: a gzipped file, or a tarball of several."""

    name: str  # last part of the address
    size: int  # bytes, as it travels
    sha256: str | None  # as it travels; None: who asks for it compares it in another way


class Source(NamedTuple):
    """One data set: its files, where people keep them and where they are offered."""

    name: str
    title: str
    reader: str  # "idx" or "cifar"
    shape: tuple[int, int, int]  # of one image, height × width × channels
    classes: int
    files: tuple[File, ...]  # training images, training labels, then test; or training batches, then test
    folders: tuple[str, ...]  # below a root; the first is where `fetch` puts the files
    downloads: tuple[Download, ...]
    mirrors: tuple[str, ...]  # addresses that a download's name completes, tried in this order
    system: tuple[str, ...] = ()  # folders of system packages
    class_names: tuple[str, ...] = ()  # what labels 0, 1, … mean; empty where the number is the name

    @property
    def size(self) -> int:
        """Bytes of all files, decompressed."""
        return sum(file.size for file in self.files)


_IDX = (
    ("train-images-idx3-ubyte", "training images", 47_040_016),
    ("train-labels-idx1-ubyte", "training labels", 60_008),
    ("t10k-images-idx3-ubyte", "test images", 7_840_016),
    ("t10k-labels-idx1-ubyte", "test labels", 10_008),
)


def _idx_files(*sha256: str) -> tuple[File, ...]:
    return tuple(File(*about, digest) for about, digest in zip(_IDX, sha256, strict=True))


def _idx_downloads(*offered: tuple[int, str]) -> tuple[Download, ...]:
    return tuple(Download(f"{name}.gz", *item) for (name, *_), item in zip(_IDX, offered, strict=True))


_MNIST = Source(
    name="mnist",
    title="MNIST",
    reader="idx",
    shape=(28, 28, 1),
    classes=10,
    files=_idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    folders=("MNIST/raw", "mnist", "MNIST"),
    downloads=_idx_downloads(
        (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)

_FASHION_MNIST = Source(
    name="fashion-mnist",
    title="Fashion-MNIST",
    reader="idx",
    shape=(28, 28, 1),
    classes=10,
    files=_idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    folders=("FashionMNIST/raw", "fashion-mnist", "FashionMNIST", "fashion"),
    downloads=_idx_downloads(
        (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    mirrors=(
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",  # plain HTTP; the checksum guards it
    ),
    system=("/usr/share/datasets/fashion-mnist",),  # Debian's dataset-fashion-mnist
    class_names=(
        *("T-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
)

_CIFAR10_BATCHES = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
)
_CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10",
    reader="cifar",
    shape=(32, 32, 3),
    classes=10,
    files=(
        *(
            File(f"data_batch_{number}.bin", f"training batch {number}", 30_730_000, digest)
            for number, digest in enumerate(_CIFAR10_BATCHES, 1)
        ),
        File(
            "test_batch.bin",
            "test batch",
            30_730_000,
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
    ),
    folders=("cifar-10-batches-bin", "cifar10", "cifar-10"),
    downloads=(
        Download(
            "cifar-10-binary.tar.gz", 170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
        ),
    ),
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
    ),
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)

_CIFAR100_NAMES = """
apple, aquarium fish, baby, bear, beaver, bed, bee, beetle, bicycle, bottle, bowl, boy, bridge, bus, butterfly, camel,
can, castle, caterpillar, cattle, chair, chimpanzee, clock, cloud, cockroach, couch, crab, crocodile, cup, dinosaur,
dolphin, elephant, flatfish, forest, fox, girl, hamster, house, kangaroo, keyboard, lamp, lawn mower, leopard, lion,
lizard, lobster, man, maple tree, motorcycle, mountain, mouse, mushroom, oak tree, orange, orchid, otter, palm tree,
pear, pickup truck, pine tree, plain, plate, poppy, porcupine, possum, rabbit, raccoon, ray, road, rocket, rose, sea,
seal, shark, shrew, skunk, skyscraper, snail, snake, spider, squirrel, streetcar, sunflower, sweet pepper, table,
tank, telephone, television, tiger, tractor, train, trout, tulip, turtle, wardrobe, whale, willow tree, wolf,
woman, worm
"""

_CIFAR100 = Source(
    name="cifar100",
    title="CIFAR-100",
    reader="cifar",
    shape=(32, 32, 3),
    classes=100,
    files=(
        File(
            "train.bin",
            "training set",
            153_700_000,
            "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
        ),
        File("test.bin", "test set", 30_740_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    ),
    folders=("cifar-100-binary", "cifar100", "cifar-100"),
    downloads=(
        Download(
            "cifar-100-binary.tar.gz", 168_513_733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
        ),
    ),
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "http://www.cs.toronto.edu/~kriz/",  # behind proxies that break TLS; the checksum guards it
    ),
    class_names=tuple(name.strip() for name in _CIFAR100_NAMES.replace("\n", " ").split(",")),
)

SOURCES = {source.name: source for source in (_MNIST, _FASHION_MNIST, _CIFAR10, _CIFAR100)}
NAMES = ("digits", *SOURCES)


def source_of(name: str) -> Source:
    """Returns the data set of this name.

    Raises:
        DataError: there is no such data set; the nearest name is suggested.

    Example:
        >>> source_of("cifar10").shape
        (32, 32, 3)
    """
    if name not in SOURCES:
        known = ", ".join(NAMES)
        raise DataError(f"there is no data set '{name}' among {known}{did_you_mean(name.lower(), NAMES)}")
    return SOURCES[name]


DIGITS = "3c2b47978e1131cac713fcc07611e0aed2c927ed9029aee0c7416dd26ff6d617"


def is_data_file(name: str | Path) -> bool:
    """Whether a data set is named by a file of its own, which may change, move, and have namesakes."""
    return os.fspath(name).endswith(".npz")


def content_of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """The hash of arrays: their types, shapes and values, in their order.

    Example:
        >>> content_of_arrays([np.arange(3)]) == content_of_arrays([np.arange(3)[::-1]])
        False
    """
    parts = []
    for array in arrays:
        array = np.asarray(array, array.dtype.newbyteorder("<"))  # the order of bytes on a disk is no content
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        parts += [f"{array.dtype.str} {array.shape}".encode(), values]
    return content_hash(parts)


def published_content(name: str) -> str | None:
    """The content that a data set of this name must have; None where the name does not decide it."""
    if name == "digits":
        return DIGITS
    return content_of_source(SOURCES[name]) if name in SOURCES else None


def content_of_source(source: Source) -> str:
    """The hash of a published data set, from those of its files."""
    return content_hash(file.sha256.encode() for file in source.files)
