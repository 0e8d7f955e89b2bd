#!/usr/bin/env python3
"""`quire render` shows the prompt that the server makes of the same request.

    tests/e2e/render_test.py build/release/app/quire
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.error

from serve_process import Server, check

QUIRE, TINY = sys.argv[1], "models/quire-tiny"
TEMPLATES = pathlib.Path("tests/data/golden/chat_templates")
TOOLS = [{"type": "function", "function": {"name": "f", "description": "does", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}]
USER = {"role": "user", "content": "Hi"}


def call(**content):
    function = {"name": "f", "arguments": '{"a": 1}'}
    return [USER, {"role": "assistant", **content, "tool_calls": [{"id": "abcdefghi", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "abcdefghi", "content": '{"r": 2}'}]


REQUESTS = {
    "plain": {"messages": [{"role": "system", "content": "S"}, USER]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
    "many kinds of parts": {"messages": [{"role": "user", "content": ["a", {"type": "input_text", "text": "b"}]},
                                         {"role": "assistant", "content": [{"type": "refusal", "refusal": "c"}, {"type": "output_text", "text": "d"}]}, USER]},
    "no parts": {"messages": [{"role": "user", "content": []}]},
    "developer": {"messages": [{"role": "developer", "content": "D"}, USER]},
    "call": {"messages": call(content=""), "tools": TOOLS},
    "call with null": {"messages": call(content=None), "tools": TOOLS},
    "call without content": {"messages": call(), "tools": TOOLS},
    "thoughts": {"messages": [USER, {"role": "assistant", "content": "x", "reasoning_content": "th"}, USER]},
    "effort": {"messages": [USER], "reasoning_effort": "high"},
    "no generation": {"messages": [USER], "add_generation_prompt": False},
    "continued": {"messages": [USER, {"role": "assistant", "content": "x"}], "continue_final_message": True, "add_generation_prompt": False},
    "names": {"messages": [USER], "chat_template_kwargs": {"enable_thinking": True}},
}


def of_server(server, body):
    try:
        return server.post("/detokenize", tokens=server.post("/tokenize", **body)["tokens"])["prompt"]
    except urllib.error.HTTPError as error:
        return "refused: " + json.loads(error.read())["error"]["message"]


def of_render(body, *flags):
    run = subprocess.run([QUIRE, "render", *flags], input=json.dumps(body), capture_output=True, text=True, timeout=60)
    return run.stdout if run.returncode == 0 else "refused: " + run.stderr.removeprefix("quire render: ").strip()


LISTS = "{% for m in messages %}<{{ m.role }}>{% for c in m.content %}[{{ c.text }}]{% endfor %}{% endfor %}"


def check_formats():
    """A template for lists alone shows all parts, and --chat-template-content-format overrides what it is found to take."""
    request = REQUESTS["parts"]
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder, "lists.jinja")
        template.write_text(LISTS)
        for given, expected in (("auto", "<user>[a][b]"), ("openai", "<user>[a][b]"), ("string", "<user>[][][]")):
            flag = ["--chat-template-content-format", given]
            got = of_render(request, "--template", template, *flag)
            check(f"{given}: {expected}", got == expected, got)
            with Server(QUIRE, TINY, "--device", "mock", "--chat-template", template, *flag) as server:
                check(f"the server's {given}", of_server(server, request) == expected, of_server(server, request))
                texts = {"max_tokens": 1, "messages": [{"role": "user", "content": request["messages"][0]["content"]}]}
                # Messages and Responses have other members around the same parts.
                wanted = len(server.post("/tokenize", **request)["tokens"])
                check(f"{given}: Messages", server.post("/v1/messages/count_tokens", **{"messages": texts["messages"], "model": "m"})["input_tokens"] == wanted, wanted)


def main():
    check_formats()
    compared = 0
    with Server(QUIRE, TINY, "--device", "mock", "--trust-request-chat-template") as server:
        for folder in sorted(file.parent for file in TEMPLATES.glob("*/template.jinja")):
            source = (folder / "template.jinja").read_text()
            if "strftime_now" in source:
                continue
            for name, request in REQUESTS.items():
                body = {**request, "chat_template": source}
                expected, got = of_server(server, body), of_render(body, "--model", TINY)
                # A tokenizer may not give back a last line end as it was.
                check(f"{folder.name}, {name}", got.rstrip("\n") == expected.rstrip("\n"), f"server {expected!r}\nrender {got!r}")
                compared += not got.startswith("refused: ")
    check(f"most are rendered: {compared}", compared > 100)
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, "model")
        shutil.copytree(TINY, model)
        shutil.copy(TEMPLATES / "qwen3_thinking" / "template.jinja", model / "chat_template.jinja")
        with Server(QUIRE, model, "--device", "mock") as server:
            for name, request in REQUESTS.items():
                check(f"a model's own, {name}", of_render(request, "--model", model).rstrip("\n") == of_server(server, request).rstrip("\n"),
                      (of_render(request, "--model", model), of_server(server, request)))
    print("passed")


if __name__ == "__main__":
    main()
