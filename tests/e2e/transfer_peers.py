"""What tests of prefill and decode share: how servers are started, what they are asked, and vLLM's own connectors as peers."""
import json
import subprocess
import sys

from serve_process import free_port

FLAGS = ("--device", "cpu", "--dtype", "bfloat16", "--max-model-len", "1024", "--kv-cache-memory-bytes", "64MiB", "--deterministic",
         "--cpu-threads", "1")
LIMITS = {"max_tokens": 1, "max_completion_tokens": 1, "min_tokens": 1}  # of the request that prefills, as vLLM's proxy has them


def questions():
    story = "Here is a list of sums. " + " ".join(f"{i} + {i + 1} = {2 * i + 1}." for i in range(40))
    return ["What is 12 + 7?", "Name a colour.", story + " What is 3 + 4?", story + " What is 9 + 9?"]


def losses(server):
    return server.metric("quire:kv_transfer_recomputed_total")


class VllmPeer:
    """A process of one of vLLM's connectors, which answers a line of JSON with one. It listens on `port`."""

    def __init__(self, command, shape, *more):
        shape = {"port": free_port(), **shape}
        self.port = shape["port"]
        self.process = subprocess.Popen([*command, json.dumps(shape), *map(json.dumps, more)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.answer(ready=True)

    def answer(self, ready=False):
        for line in self.process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                if ("ready" in answer) == ready:
                    return answer
        sys.exit("FAILED: vLLM's connector ended")

    def ask(self, what, **more):
        self.process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
