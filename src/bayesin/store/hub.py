"""Posteriors on the Hugging Face hub: `push` sends a folder's posteriors and card, `pull` brings them back, checked.

The hub's own client talks to the hub (`pip install 'bayesin[hub]'`); where it is and who you are is the client's
affair: HF_ENDPOINT, HF_TOKEN, or `hf auth login`. Tokens are never part of a message of ours.

A repository may be anybody's. What is pulled is one commit: of its files only posteriors and the card are taken, none
that is larger than said, each compared with the hash that the hub lists, and every posterior read whole as any file
from a stranger is. Nothing is run, and a folder gets all of it or nothing.
"""

import hashlib
import json
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from ..data import Download, download
from ..errors import ArtifactError, BayesinError, ConfigError, DataError, HubError, first_line
from ..file_sets import check_one_making, replaced_together
from ..files import read_bytes
from .artifacts import FIRST, LARGEST_CARD, card_of, load_posterior, posterior_files
from .card import CARD

LARGEST = 16 << 30  # bytes of all files of one repository
ENTRIES = 100_000  # at the top of a repository; with more, what is ours cannot be told whole
LARGEST_PAGE = 1 << 24  # bytes of one page of the list of them
PAGES = 200
OURS = re.compile(r"posterior-(0|[1-9][0-9]{0,4})\.safetensors")
TOKEN = re.compile(r"\bhf_\w{8,}")
TIMEOUT = 60.0  # seconds without data

OnProgress = Callable[[int, int, str], None]  # bytes so far, bytes in all, the file that is coming


class Pushed(NamedTuple):
    """What a push left on the hub.

    Example:
        >>> Pushed("me/digits", "https://huggingface.co/me/digits/commit/4f1c", "4f1c", ("README.md",)).repo
        'me/digits'
    """

    repo: str
    url: str  # of the commit
    commit: str
    files: tuple[str, ...]


class Pulled(NamedTuple):
    """What a pull left in a folder.

    Example:
        >>> Pulled(Path("theirs"), "4f1c", ("posterior-0.safetensors", "README.md"), ()).files[0]
        'posterior-0.safetensors'
    """

    folder: Path
    commit: str
    files: tuple[str, ...]
    left_out: tuple[str, ...]  # what else the repository holds


def push(
    source: Path | str,
    repo: str,
    *,
    private: bool = True,
    revision: str = "main",
    message: str | None = None,
    token: str | None = None,
) -> Pushed:
    """Sends the posteriors and the card of a folder to a repository of the Hugging Face hub, as one commit.

    Posteriors that the repository holds and the folder does not are deleted in that commit, so that it never holds
    parts of two results. Whatever else is in the folder stays here; what stands in the headers of the files goes with
    them. A folder without a card is sent with one.

    Args:
        source: folder with `posterior-0.safetensors`, such as a run's or one by `save_posterior`; or one such file.
        repo: `user/name`, or a name of your own; made where it is not there.
        private: whether a new repository is private; one that is there stays as it is.
        revision: branch to commit to.
        message: of the commit.
        token: of the hub; by default the one you logged in with.

    Raises:
        ArtifactError: there is no posterior, or one is damaged; the card is a link.
        HubError: no network, no permission, or whatever else the hub says.

    Example:
        >>> push("no-folder", "me/digits")  # what is sent is looked at first
        Traceback (most recent call last):
        bayesin.errors.ArtifactError: no-folder holds no posterior-0.safetensors; give the folder of a run, ...
    """
    paths = _posteriors_of(Path(source))
    for path in paths.values():
        load_posterior(path)  # damage stays here
    card = paths[FIRST].parent / CARD if Path(source).is_dir() else None
    if card is not None and card.is_symlink():  # in a folder of a stranger's it may lead to what is private
        raise ArtifactError(f"{card} is a link; the card that is sent lies in the folder itself")
    content = read_bytes(card, LARGEST_CARD) if card is not None and card.is_file() else card_of(paths).encode()
    with _hub(repo) as client:
        api = client.HfApi(token=token)
        full = api.create_repo(repo, private=private, exist_ok=True, repo_type="model").repo_id
        if not api.revision_exists(full, revision):
            api.create_branch(full, branch=revision)
        there = _entries(api.endpoint, full, revision, client.utils.build_hf_headers(token=token))
        add = [client.CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in paths.items()]
        add.append(client.CommitOperationAdd(path_in_repo=CARD, path_or_fileobj=content))
        stale = sorted(name for name in there.keys() - set(paths) if OURS.fullmatch(name))
        gone = [client.CommitOperationDelete(path_in_repo=name) for name in stale]
        said = message or f"Upload {len(paths)} posterior{'s' if len(paths) > 1 else ''} with bayesin"
        made = api.create_commit(full, [*add, *gone], commit_message=said, revision=revision, repo_type="model")
    return Pushed(full, str(made.commit_url), str(made.oid), (*paths, CARD))


def pull(
    repo: str,
    folder: Path | str,
    *,
    revision: str = "main",
    largest: int = LARGEST,
    token: str | None = None,
    on_progress: OnProgress | None = None,
) -> Pulled:
    """Brings the posteriors and the card of a repository of the Hugging Face hub into a folder.

    Args:
        repo: `user/name`.
        folder: where to; posteriors and a card that are there are replaced, once all of the new is there.
        revision: branch, tag or commit.
        largest: bytes of all files together that are accepted.
        token: of the hub; by default the one you logged in with.
        on_progress: called with bytes so far, bytes in all and the name of the file.

    Raises:
        HubError: no network, no such repository or revision, no permission, or what came is not what was promised.
        ArtifactError: what came is no posterior, or the folder cannot be written.

    Example:
        >>> try:
        ...     pull("no name", "theirs")
        ... except BayesinError:
        ...     print("nothing was written:", not Path("theirs").exists())
        nothing was written: True
    """
    folder = Path(folder)
    with _hub(repo) as client:
        api = client.HfApi(token=token)
        commit = str(api.model_info(repo, revision=revision).sha)
        headers = client.utils.build_hf_headers(token=token)  # with the token, where there is one
        entries = _entries(api.endpoint, repo, commit, headers)
        mirror = client.hf_hub_url(repo, CARD, revision=commit, endpoint=api.endpoint).removesuffix(f"/{CARD}")
    wanted = _wanted(repo, entries, largest)
    left_out = tuple(name for name in entries if name not in wanted)
    total, done = sum(promise.size for promise in wanted.values()), 0
    stale = [path.name for path in folder.iterdir() if OURS.fullmatch(path.name)] if folder.is_dir() else []
    with replaced_together(folder, gone=[*stale, CARD]) as place:
        for name, promise in wanted.items():

            def arrived(count: int, name: str = name, before: int = done) -> None:
                if on_progress is not None:
                    on_progress(before + count, total, name)

            offer = Download(name, promise.size, promise.sha256)
            try:
                path = download(offer, [mirror], place, TIMEOUT, arrived, headers=headers)
            except DataError as error:
                raise HubError(TOKEN.sub("hf_…", str(error))) from None
            except OSError as error:
                raise ArtifactError(f"cannot write {place / name}: {error.strerror or error}") from error
            if promise.blob is not None and _blob_hash(path) != promise.blob:
                raise HubError(f"{name} of {repo} is not what the hub lists: its hash is another one")
            done += promise.size
            _check(path, repo)
    return Pulled(folder, commit, tuple(wanted), left_out)


class _Promise(NamedTuple):
    """What the hub lists of a file: its size, and the SHA-256 of a large one or the git hash of a small one."""

    size: int
    sha256: str | None
    blob: str | None


def _posteriors_of(source: Path) -> dict[str, Path]:
    """The files to send, under the names they get."""
    if source.is_file():
        return {FIRST: source}
    check_one_making(source)
    paths = {path.name: path for path in posterior_files(source)}
    if not paths:
        raise ArtifactError(f"{source} holds no {FIRST}; give the folder of a run, or one by save_posterior")
    return paths


def _wanted(repo: str, entries: dict[str, dict], largest: int) -> dict[str, _Promise]:
    """What is taken of a repository; refused before anything is downloaded where it is no posterior, or too large."""
    wanted = {}
    for name, entry in entries.items():
        if name != CARD and not OURS.fullmatch(name):
            continue
        size, large = entry.get("size"), entry.get("lfs")
        promised = large.get("oid") if isinstance(large, dict) else entry.get("oid")
        if type(size) is not int or size < 0 or not _is_hash(promised):
            raise HubError(f"the hub lists no size or no hash for {name} of {repo}")
        if size > (LARGEST_CARD if name == CARD else largest):
            raise HubError(f"{name} of {repo} has {size:,} bytes, more than is accepted (--largest)")
        wanted[name] = _Promise(size, promised, None) if isinstance(large, dict) else _Promise(size, None, promised)
    if FIRST not in wanted:
        raise HubError(f"{repo} holds no posterior: there is no {FIRST} in it")
    if (total := sum(promise.size for promise in wanted.values())) > largest:
        raise HubError(
            f"the posteriors of {repo} have {total:,} bytes, more than the {largest:,} accepted (--largest)"
        )
    return dict(sorted(wanted.items()))


def _is_hash(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", text) is not None


def _blob_hash(path: Path) -> str:
    """What git calls a file: the SHA-1 of its length and its content."""
    content = read_bytes(path)
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _check(path: Path, repo: str) -> None:
    try:
        if path.name == CARD:
            read_bytes(path, LARGEST_CARD).decode()
        else:
            load_posterior(path)
    except UnicodeDecodeError:
        raise HubError(f"{CARD} of {repo} is no text") from None
    except BayesinError as error:
        raise HubError(f"{path.name} of {repo} is no posterior that can be used: {error}") from None


def _entries(endpoint: str, repo: str, revision: str, headers: dict[str, str]) -> dict[str, dict]:
    """The files at the top of a repository, which is where a posterior's lie, by name.

    The client follows a list for as long as it goes on; here its pages and what they hold are bounded.
    """
    host, address = urlsplit(endpoint)[:2], f"{endpoint}/api/models/{repo}/tree/{quote(revision, safe='')}"
    found: dict[str, dict] = {}
    for _ in range(PAGES):
        page, following = _page(repo, address, headers)
        for entry in page:
            if entry.get("type") == "file" and isinstance(entry.get("path"), str):
                found[entry["path"]] = entry
        if following is None:
            return found
        address = urljoin(address, following)
        if urlsplit(address)[:2] != host:
            raise HubError(f"the list of files of {repo} goes on at another host, which must not see your token")
        if len(found) > ENTRIES:
            break
    raise HubError(f"the list of files of {repo} does not end; at most {ENTRIES:,} on {PAGES:,} pages are looked at")


def _page(repo: str, address: str, headers: dict[str, str]) -> tuple[list[dict], str | None]:
    """The entries of one page, and where the next one is."""
    import requests

    content, until = bytearray(), time.monotonic() + TIMEOUT
    with requests.get(address, headers=headers, timeout=TIMEOUT, stream=True) as answer:
        if answer.status_code != 200:
            raise HubError(f"the hub refused the list of files of {repo} with HTTP {answer.status_code}")
        for block in answer.iter_content(1 << 16):
            content += block
            if len(content) > LARGEST_PAGE or time.monotonic() > until:
                raise HubError(f"the list of files of {repo} does not end: {len(content):,} bytes of one page came")
        following = answer.links.get("next", {}).get("url")
    try:
        page = json.loads(content)
    except (ValueError, RecursionError):
        page = None
    if not isinstance(page, list) or not all(isinstance(entry, dict) for entry in page):
        raise HubError(f"the hub's list of files of {repo} is none")
    return page, following


@contextmanager
def _hub(repo: str) -> Iterator[Any]:
    """The client, silent; whatever it raises becomes one line that says what to do."""
    try:
        import huggingface_hub as client  # pyright: ignore[reportMissingImports]
        from huggingface_hub import constants, errors, utils  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise HubError("the hub needs its client: pip install 'bayesin[hub]'") from None
    silent = utils.are_progress_bars_disabled()
    utils.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield client
    except BayesinError:
        raise
    except errors.HFValidationError:
        raise ConfigError(f"{repo!r:.120} names no repository; names look like user/name") from None
    except errors.OfflineModeIsEnabled:
        raise HubError("the hub's client is offline (HF_HUB_OFFLINE is set)") from None
    except errors.GatedRepoError:
        raise HubError(f"{repo} is gated: ask for access on its page, and log in with 'hf auth login'") from None
    except errors.RevisionNotFoundError:
        raise HubError(f"{repo} has no such revision") from None
    except errors.RepositoryNotFoundError:
        raise HubError(
            f"there is no repository {repo} that you may see; if it is private, log in with 'hf auth login'"
        ) from None
    except errors.HfHubHTTPError as error:
        raise HubError(_refusal(repo, error)) from None
    except (TypeError, AttributeError, LookupError, AssertionError) as error:  # which the client does not look at
        said = f"{type(error).__name__}: {TOKEN.sub('hf_…', first_line(error))}"
        raise HubError(f"the hub's answer about {repo} is none of a hub ({said})") from None
    except Exception as error:
        place = constants.ENDPOINT
        raise HubError(f"cannot reach {place} for {repo}: {TOKEN.sub('hf_…', first_line(error))}") from None
    finally:
        if not silent:
            utils.enable_progress_bars()


def _refusal(repo: str, error: Any) -> str:
    status = getattr(error.response, "status_code", None)
    if status == 401:
        return f"the hub does not know who you are, or your token has expired: log in with 'hf auth login' ({repo})"
    if status == 403:
        return f"you may not do this to {repo}: your token has no permission for it"
    reason = getattr(error, "server_message", None) or first_line(error)
    return f"the hub refused {repo} with HTTP {status}: {TOKEN.sub('hf_…', first_line(Exception(reason)))}"
