"""Posteriors go to a hub and come back; a hub that lies, breaks off or refuses is met with one line."""

import errno
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bayesin import Gaussian, load_posterior, save_posterior
from bayesin.errors import ArtifactError, ConfigError, HubError
from bayesin.store import pull, push

constants = pytest.importorskip("huggingface_hub.constants", reason="pip install 'bayesin[hub]'")
pytest.importorskip("tyro")

from cli_toys import call  # noqa: E402
from hub_server import TOKEN, Hub  # noqa: E402

W = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
Q = Gaussian(W, W)
ABOUT = {"model": "mlp", "data": "digits", "metrics": {"accuracy": 0.97}}


@pytest.fixture(scope="module")
def server():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def hub(server, monkeypatch):
    """A hub without repositories, as if HF_ENDPOINT and HF_TOKEN had named it when the client was imported."""
    server.repos, server.visibility, server.stored, server.log, server.fault = {}, {}, {}, [], ""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, server.endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return server


@pytest.fixture
def folder(tmp_path):
    return save_posterior(tmp_path / "mine", Q, metadata=ABOUT)


def test_what_was_pushed_comes_back_to_the_bit(hub, folder, tmp_path):
    (folder / "notes.txt").write_text("mine alone")
    sent = push(folder, "me/digits")
    assert sent.files == ("posterior-0.safetensors", "README.md") and hub.visibility["me/digits"] == "private"
    assert "notes.txt" not in hub.repos["me/digits"][-1]
    seen = []
    back = pull("me/digits", tmp_path / "back", on_progress=lambda *told: seen.append(told))
    assert back.commit == sent.commit and back.left_out == (".gitattributes",)
    assert sorted(path.name for path in back.folder.iterdir()) == ["README.md", "posterior-0.safetensors"]
    for name in sent.files:
        assert (back.folder / name).read_bytes() == (folder / name).read_bytes()
    assert load_posterior(back.folder).std["w"].tobytes() == W["w"].tobytes()
    assert seen[-1][0] == seen[-1][1]
    # The large file lies on another host, which learns nothing of who asks.
    assert hub.tokens_at_storage and set(hub.tokens_at_storage) == {None}


def test_a_second_push_leaves_nothing_of_the_first_and_a_file_gets_a_card(hub, folder, tmp_path):
    for number in (1, 2):
        save_posterior(folder / f"posterior-{number}.safetensors", Q)
    first = push(folder, "me/digits", private=False)
    alone = save_posterior(tmp_path / "q.safetensors", Gaussian(W, {"w": 2 * W["w"]}), metadata=ABOUT)
    push(alone, "digits", message="one")
    assert hub.visibility["me/digits"] == "public"
    assert set(hub.repos["me/digits"][-1]) == {".gitattributes", "README.md", "posterior-0.safetensors"}
    assert b"mlp on digits" in hub.repos["me/digits"][-1]["README.md"]
    # Pulling over an older result leaves nothing of it, and an older commit is still there.
    place = pull("me/digits", tmp_path / "back", revision=first.commit).folder
    assert len(list(place.iterdir())) == 4
    (place / "posterior-best.safetensors").write_bytes(b"of somebody else")
    assert len(list(pull("me/digits", place).folder.iterdir())) == 3
    assert load_posterior(place).std["w"][1, 2] == 10


FAULTS = {
    "half": "sent .* of .* bytes|broke off",
    "other": "sent wrong bytes",
    "endless": "sent more than",
    "large": "has 1,125,899,906,842,624 bytes, more than is accepted",
    "odd": "lists no size or no hash",
    "other card": "README.md of me/digits is not what the hub lists",
    "broken": "HTTP 501",
    "pages": "does not end; at most 100,000 on 200 pages",
    "elsewhere": "goes on at another host",
    "page": "does not end: .* bytes of one page",
    "no list": "list of files of me/digits is none",
    "loop": "Exceeded 30 redirects",
    "file": "No connection adapters",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_hub_that_misbehaves_leaves_the_folder_as_it_was(hub, folder, tmp_path, fault):
    push(folder, "me/digits")
    place, hub.fault = save_posterior(tmp_path / "place", {"w": np.ones(2)}), fault
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(HubError, match=FAULTS[fault]) as caught:
        pull("me/digits", place)
    assert "\n" not in str(caught.value) and TOKEN not in str(caught.value)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_what_is_no_posterior_is_not_put_in_its_place(hub, folder, tmp_path):
    push(folder, "me/digits")
    files = hub.repos["me/digits"][-1]
    damaged = bytearray(files["posterior-0.safetensors"])
    damaged[-1] ^= 1
    for wrong, said in ((bytes(damaged), "checksum"), (b"\x80\x04pickle", "no posterior that can be used")):
        files["posterior-0.safetensors"] = wrong
        hub.stored |= {hashlib.sha256(wrong).hexdigest(): wrong}
        with pytest.raises(HubError, match=said):
            pull("me/digits", tmp_path / "back")
    del files["posterior-0.safetensors"]
    with pytest.raises(HubError, match="holds no posterior"):
        pull("me/digits", tmp_path / "back")
    with pytest.raises(HubError, match="holds no posterior"):  # nothing but names of ours is taken
        files["posterior-0.safetensors.exe"] = files["../posterior-0.safetensors"] = b"x"
        pull("me/digits", tmp_path / "back")
    assert not (tmp_path / "back").exists() or not any((tmp_path / "back").iterdir())


def test_refusals_are_one_line_without_a_token(hub, folder, tmp_path, monkeypatch, capsys):
    push(folder, "me/digits")

    def said(*arguments: str) -> str:
        code, _, text = call(capsys, *arguments)
        assert code in (1, 2) and text.count("\n") == 1 and TOKEN not in text and "Traceback" not in text
        return text

    out = ("--out", str(tmp_path / "back"))
    assert "there is no repository me/other that you may see" in said("pull", "me/other", *out)
    assert "has no such revision" in said("pull", "me/digits", "--revision", "v9", *out)
    assert "names no repository" in said("pull", "../../x y", *out)
    assert "more than is accepted" in said("pull", "me/digits", "--largest", "1e-9", *out)
    assert "there is no folder 'nowhere'" in said("push", "nowhere", "me/digits")
    assert "holds no posterior-0.safetensors" in said("push", str(tmp_path), "me/digits")
    assert "you may not do this to you/digits" in said("push", str(folder), "you/digits")
    hub.fault = "forbidden"
    save_posterior(folder, Q, metadata=ABOUT | {"data": "other"})
    assert "no permission" in said("push", str(folder), "me/digits")
    assert "exists; choose another folder" in said("pull", "me/digits", "--out", str(folder))
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrongwrong")
    assert "log in with 'hf auth login'" in said("pull", "me/digits", *out)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "cannot reach http://127.0.0.1:9" in said("pull", "me/digits", *out)
    assert not (tmp_path / "back").exists()


def test_a_card_that_leads_out_of_the_folder_is_not_sent(hub, folder, tmp_path):
    """A stranger's folder may hold a link to what is private."""
    (tmp_path / "secret").write_text("---\nlicense: mine\n---\nprivate")
    card = folder / "README.md"
    card.unlink(missing_ok=True)
    card.symlink_to(tmp_path / "secret")
    with pytest.raises(ArtifactError, match=r"README\.md is a link"):
        push(folder, "me/digits")
    assert not hub.log


@pytest.mark.parametrize("edited", ["/api/repos/create", "/api/models/me/digits/commit/main"])
def test_what_no_hub_would_answer_is_said_as_such(hub, folder, monkeypatch, edited):
    """The client looks into answers as they come, and fails with whatever Python says."""
    plain = hub.say
    monkeypatch.setattr(
        hub,
        "say",
        lambda request, value, *rest, **more: plain(
            request, {"url": 1, "commitUrl": 1} if request.path == edited else value, *rest, **more
        ),
    )
    with pytest.raises(HubError, match="the hub's answer about me/digits is none of a hub") as caught:
        push(folder, "me/digits")
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_said_in_one_line_and_what_came_is_on_the_disk_before_it_has_its_name(
    hub, folder, tmp_path, monkeypatch
):
    push(folder, "me/digits")
    back, real, synced = tmp_path / "back", os.fsync, []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), real(file)))
        pull("me/digits", back)
    assert {"posterior-0.safetensors", "README.md"} <= {name.rpartition("/")[2] for name in synced}
    before = {path.name: path.read_bytes() for path in back.iterdir()}

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys.modules["bayesin.data.download"], "_collect", full)
    with pytest.raises(ArtifactError, match=r"/README\.md: No space left on device$") as caught:
        pull("me/digits", back)
    assert str(caught.value).startswith(f"cannot write {back}/README.md")
    assert {path.name: path.read_bytes() for path in back.iterdir()} == before


def test_damage_is_not_sent(hub, folder):
    path = folder / "posterior-0.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError):
        push(folder, "me/digits")
    assert not hub.log
    with pytest.raises(ConfigError, match="names no repository"):
        push(save_posterior(path, Q), "a b")


@pytest.mark.slow
def test_a_pull_that_was_killed_between_two_posteriors_is_given_again(hub, folder, tmp_path, monkeypatch, capsys):
    save_posterior(folder / "posterior-1.safetensors", Gaussian(W, {"w": 2 * W["w"]}), metadata=ABOUT)
    push(folder, "me/two")
    out, rename = tmp_path / "back" / "two", os.replace

    def killed(source, place):
        if os.fspath(place) == str(out / "posterior-1.safetensors"):
            raise RuntimeError
        rename(source, place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        assert call(capsys, "pull", "me/two", "--out", out)[0] == 1
    assert sorted(path.name for path in out.iterdir()) == [".unfinished", "README.md", "posterior-0.safetensors"]
    assert call(capsys, "pull", "me/two", "--out", out)[0] == 0
    assert load_posterior(out / "posterior-1.safetensors").std["w"].tobytes() == (2 * W["w"]).tobytes()
    assert not (out / ".unfinished").exists()
    code, _, said = call(capsys, "pull", "me/two", "--out", out)
    assert code == 2 and "--force" in said


def test_the_verbs_find_the_hub_by_its_environment_variables(hub, folder, tmp_path):
    environment = os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    code = "import sys; from bayesin.cli.main import main; sys.exit(sum(main(verb.split()) for verb in sys.argv[1:]))"
    verbs = [f"push {folder} me/digits --json", f"pull me/digits --out {tmp_path / 'back'} --json"]
    done = subprocess.run([sys.executable, "-c", code, *verbs], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sent, back = map(json.loads, done.stdout.replace("}\n{", "}\n\0{").split("\0"))
    assert sent["commit"] == back["commit"] and back["kind"] == "gaussian" and back["weights"] == 6
    assert TOKEN not in done.stdout + done.stderr
