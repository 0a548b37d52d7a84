"""A hub on 127.0.0.1 that speaks as much of the Hugging Face hub's API as `push` and `pull` need, and misbehaves."""

import base64
import hashlib
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz123456"


def blob_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """Repositories of "me", each a list of commits (name -> content) on one branch, and what was asked for.

    `fault` changes one answer: "half" ends downloads early, "other" sends other bytes, "endless" never ends one,
    "large" and "odd" list a size and a hash that are none, "pages" and "page" list without an end, "elsewhere" on
    another host, "no list" lists nothing that is one, "loop" and "file" send one elsewhere, "forbidden" refuses
    commits, "broken" refuses everything.
    """

    def __init__(self):
        self.repos: dict[str, list[dict[str, bytes]]] = {}
        self.visibility: dict[str, str] = {}
        self.stored: dict[str, bytes] = {}  # large files by their SHA-256
        self.log: list[str] = []
        self.tokens_at_storage: list[str | None] = []
        self.fault = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self):
                with suppress(ConnectionResetError):  # by a client that was killed
                    super().handle()

            def answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = self._chunks() if self.headers.get("Transfer-Encoding") else self.rfile.read(size)
                path = unquote(urlsplit(self.path).path)
                outer.log.append(f"{self.command} {path}")
                with suppress(BrokenPipeError, ConnectionResetError):
                    outer.respond(self, path, body)

            def _chunks(self) -> bytes:
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            do_GET = do_POST = do_PUT = do_HEAD = answer

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        self.port = self.http.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def send(self, request, content: bytes, status: int = 200, **headers: str):
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    def say(self, request, value, status: int = 200, **headers: str):
        self.send(request, json.dumps(value).encode(), status, Content_Type="application/json", **headers)

    def respond(self, request, path: str, body: bytes):
        known = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        if path.startswith("/storage/"):  # where large files lie, which is another host and sees no token
            self.tokens_at_storage.append(request.headers.get("Authorization"))
            return self._storage(request, path.rpartition("/")[2], body)
        if self.fault == "broken":
            return self.say(request, {"error": f"trouble with {TOKEN}"}, 501)
        if request.headers.get("Authorization") and not known:
            return self.say(
                request, {"error": "Invalid"}, 401, X_Error_Message="Invalid credentials in Authorization header"
            )
        if path == "/api/validate-yaml":
            return self._validate(request, json.loads(body)["content"])
        if path == "/api/repos/create":
            return self._create(request, json.loads(body), known)
        if "/resolve/" in path:
            repo, _, rest = path[1:].partition("/resolve/")
            return self._resolve(request, repo, *rest.split("/", 1))
        if path.endswith("/info/lfs/objects/batch"):
            return self._batch(request, json.loads(body))
        if not path.startswith("/api/models/"):
            return self.say(request, {"error": "Not found"}, 404)
        _, _, _, user, name, *rest = path.split("/")
        repo, (action, *where) = f"{user}/{name}", rest or ("revision", "main")
        if repo not in self.repos or (self.visibility[repo] == "private" and not known):
            return self.say(
                request, {"error": "Repository not found"}, 401 if not known else 404, X_Error_Code="RepoNotFound"
            )
        return getattr(self, f"_{action}")(request, repo, where[0], body)

    def _create(self, request, asked, known):
        repo = f"{asked['organization'] or 'me'}/{asked['name']}"
        if not known or not repo.startswith("me/"):
            return self.say(request, {"error": "no"}, 403 if known else 401)
        answer = {"url": f"{self.endpoint}/{repo}", "name": repo, "id": repo}
        if repo in self.repos:
            return self.say(request, answer | {"error": "You already created this model repo"}, 409)
        self.repos[repo], self.visibility[repo] = (
            [{".gitattributes": b"*.safetensors filter=lfs\n"}],
            asked["visibility"],
        )
        return self.say(request, answer)

    def _validate(self, request, content: str):
        front = yaml.safe_load(content.split("---\n")[1])
        wrong = [] if isinstance(front, dict) else [{"message": "no metadata"}]
        self.say(request, {"warnings": [{"message": "no license"}], "errors": wrong}, 400 if wrong else 200)

    def _files(self, repo: str, revision: str) -> dict[str, bytes] | None:
        commits = self.repos[repo]
        if revision == "main":
            return commits[-1]
        return commits[int(revision, 16)] if len(revision) == 40 and int(revision, 16) < len(commits) else None

    def _revision(self, request, repo, revision, body):
        if self._files(repo, revision) is None:
            return self.say(request, {"error": "Revision not found"}, 404, X_Error_Code="RevisionNotFound")
        at = len(self.repos[repo]) - 1 if revision == "main" else int(revision, 16)
        return self.say(request, {"id": repo, "sha": f"{at:040x}", "siblings": [], "private": True, "tags": []})

    def _tree(self, request, repo, revision, body):
        if self.fault in ("pages", "elsewhere"):
            host = "localhost" if self.fault == "elsewhere" else "127.0.0.1"
            following = f'<http://{host}:{self.port}{request.path}>; rel="next"'
            return self.say(request, [], Link=following)
        if self.fault == "no list":
            return self.say(request, {"path": "posterior-0.safetensors"})
        if self.fault == "page":
            request.send_response(200)
            request.end_headers()
            while True:
                request.wfile.write(b" " * (1 << 16))
        return self.say(
            request, [self._listed(name, content) for name, content in self._files(repo, revision).items()]
        )

    def _listed(self, name: str, content: bytes) -> dict:
        size = 1 << 50 if self.fault == "large" else len(content)
        entry = {"type": "file", "path": name, "size": size, "oid": blob_hash(content)}
        if name.endswith(".safetensors"):
            digest = "../../etc" if self.fault == "odd" else hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": digest, "size": size, "pointerSize": 130}
        return entry

    def _preupload(self, request, repo, revision, body):
        files = [file["path"] for file in json.loads(body)["files"]]
        modes = ["lfs" if name.endswith(".safetensors") else "regular" for name in files]
        answer = [{"path": n, "uploadMode": m, "shouldIgnore": False} for n, m in zip(files, modes, strict=True)]
        self.say(request, {"files": answer})

    def _batch(self, request, asked):
        objects = []
        for item in asked["objects"]:
            upload = {"href": f"{self.endpoint}/storage/{item['oid']}"}
            objects.append(item | {"actions": {"upload": upload}} if item["oid"] not in self.stored else item)
        self.say(request, {"transfer": "basic", "objects": objects})

    def _storage(self, request, digest: str, body: bytes):
        if request.command == "PUT":
            assert hashlib.sha256(body).hexdigest() == digest
            self.stored[digest] = body
            return self.send(request, b"")
        content = self.stored[digest]
        if self.fault == "half":
            request.send_response(200)
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content[: len(content) // 2])
            request.close_connection = True
            return None
        if self.fault == "endless":
            request.send_response(200)
            request.end_headers()
            while True:
                request.wfile.write(bytes(1 << 16))
        return self.send(request, content[::-1] if self.fault == "other" else content)

    def _commit(self, request, repo, revision, body):
        if self.fault == "forbidden":
            return self.say(request, {"error": "no"}, 403)
        files = dict(self.repos[repo][-1])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.stored[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self.repos[repo].append(files)
        oid = f"{len(self.repos[repo]) - 1:040x}"
        return self.say(request, {"commitOid": oid, "commitUrl": f"{self.endpoint}/{repo}/commit/{oid}"})

    def _resolve(self, request, repo, revision, name):
        content = self._files(repo, revision)[name]
        if not name.endswith(".safetensors"):
            return self.send(request, content[::-1] if self.fault == "other card" else content)
        if self.fault in ("loop", "file"):
            return self.send(
                request, b"", 302, Location=request.path if self.fault == "loop" else "file:///etc/passwd"
            )
        place = f"http://localhost:{self.port}/storage/{hashlib.sha256(content).hexdigest()}"
        return self.send(request, b"", 302, Location=place)
