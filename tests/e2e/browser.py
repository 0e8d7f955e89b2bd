"""For test scripts: a headless Chromium, driven over a pipe (Chrome's DevTools protocol)."""
import base64
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time


class Browser:
    def __init__(self):
        program = shutil.which("chromium") or shutil.which("google-chrome")
        if program is None:
            print("SKIPPED: there is no Chromium (apt install chromium)")
            sys.exit(77)
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # its children outlive it a moment
        from_us, self.out = os.pipe()
        self.into, to_us = os.pipe()

        def wire():  # the protocol wants 3 and 4
            a, b = os.dup(from_us), os.dup(to_us)
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=wire, pass_fds=(3, 4, from_us, to_us))
        os.close(from_us)
        os.close(to_us)
        self.buffer, self.numbers, self.events, self.session = b"", itertools.count(1), [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        self.profile.cleanup()

    def message(self, seconds=60):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.into], [], [], seconds)
            data = os.read(self.into, 1 << 20) if ready else b""
            if not data:
                sys.exit("FAILED: the browser says nothing")
            self.buffer += data
        one, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.message()
            if reply.get("id") != number:
                self.events.append(reply)
                continue
            if "error" in reply:
                sys.exit(f"FAILED: {method}: {reply['error']}")
            return reply["result"]

    def run(self, script):
        reply = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in reply:
            sys.exit(f"FAILED: {script}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def until(self, condition, seconds=30):
        deadline = time.time() + seconds
        while not self.run(condition):
            if time.time() > deadline:
                sys.exit(f"FAILED: not within {seconds} s: {condition}\n{self.run('document.body.innerText')}\n{self.complaints()}")
            time.sleep(0.05)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, code=None, modifiers=0, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, modifiers=modifiers,
                      windowsVirtualKeyCode={"Enter": 13, "Escape": 27, "Tab": 9}.get(key, ord(key[0].upper())), **({"text": text} if text and kind == "keyDown" else {}))

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def dark(self, on):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def shot(self, file):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(file).write_bytes(base64.b64decode(data))

    def complaints(self):
        """What the page's own console and the browser's security checks had to say."""
        bad = []
        for event in self.events:
            if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                bad.append(event["params"]["entry"]["text"] + " " + event["params"]["entry"].get("url", ""))
            if event.get("method") == "Runtime.exceptionThrown":
                bad.append(str(event["params"]["exceptionDetails"]))
        self.events.clear()
        return bad
