"""A server that speaks as much of the Hub's API as `quire pull` asks for, and can be told to misbehave."""
import hashlib
import http.server
import json
import re
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """`trouble(handler, path, file)`: may answer itself and return True. Counts what it sent."""
    daemon_threads = True

    def __init__(self, files, trouble=None, store=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.trouble, self.store, self.log, self.sent, self.seen = files, trouble, store, [], 0, {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    url = property(lambda self: f"http://127.0.0.1:{self.server_port}")

    def siblings(self):
        for name, data in self.files.items():
            one = {"rfilename": name, "size": len(data), "blobId": sha1(data)}
            if name.endswith((".safetensors", ".bin", ".gguf")):
                one["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            yield one


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def status(self, code, headers=(), body=b""):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return True

    def begin_file(self, data):
        """Head of a file or of its asked-for part; returns the bytes to send."""
        at = int((re.match(r"bytes=(\d+)-$", self.headers.get("Range", "")) or [0, 0])[1])
        self.send_response(206 if at else 200)
        if at:
            self.send_header("Content-Range", f"bytes {at}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - at))
        self.end_headers()
        return data[at:]

    def do_GET(self):
        hub = self.server
        hub.log.append((self.path, self.headers.get("Authorization"), self.headers.get("Range")))
        hub.seen[self.path] = hub.seen.get(self.path, 0) + 1
        found = re.match(r"/(?:org/name/resolve/%s|store)/(.+)$" % COMMIT, self.path)
        file = found and found[1]
        if hub.trouble and hub.trouble(self, self.path, file):
            return
        if re.match(r"/api/models/org/name/revision/(main|v1%2Fx|" + COMMIT + r")\?blobs=true$", self.path):
            self.status(200, body=json.dumps({"sha": COMMIT, "siblings": list(hub.siblings())}).encode())
        elif file in hub.files:
            if hub.store and not self.path.startswith("/store"):
                self.status(302, [("Location", f"{hub.store.url}/store/{file}")])
                return
            data = self.begin_file(hub.files[file])
            hub.sent += len(data)
            self.wfile.write(data)
        else:
            self.status(404, [("X-Error-Message", "Entry not found")])
