#!/usr/bin/env python3
"""Bodies as popular programs send them: Claude Code, Codex, Open WebUI, LibreChat, Continue, the Vercel AI SDK. Each is answered, or
refused by the member's name.

    tests/e2e/agent_forms_test.py build/release/app/quire
"""
import json
import sys
import urllib.error
import urllib.request

from serve_process import Server, check

ANTHROPIC = {"X-Api-Key": "none", "anthropic-version": "2023-06-01", "X-App": "cli",
             "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14"}
CACHED = {"cache_control": {"type": "ephemeral"}}
QUESTION = "What is 12 + 7?"
COMMAND = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": False,
           "properties": {"command": {"type": "string", "maxLength": 9}}, "required": ["command"]}


def ask(server, path, body, headers=()):
    """Status and text."""
    asked = urllib.request.Request(server.base + path, json.dumps(body).encode(), {"Content-Type": "application/json", **dict(headers)})
    try:
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def answered(server, what, path, body, headers=()):
    status, text = ask(server, path, body, headers)
    check(f"{what} is answered: {status} {text[:500]}", status == 200)
    return text


def refused(server, what, name, path, body, headers=()):
    status, text = ask(server, path, body, headers)
    check(f"{what} is refused by name: {status} {text[:500]}", status == 400 and name in text)


def claude_code(server):
    tool = {"name": "Bash", "description": "Runs a command", "input_schema": COMMAND}
    body = {
        "model": "m", "max_tokens": 1100, "stream": True, "temperature": 1, "metadata": {"user_id": "user_a_account__session_b"},
        "system": [{"type": "text", "text": "You are a command line."}, {"type": "text", "text": "Where you are.", **CACHED},
                   {"type": "text", "text": "More.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nhi\n</system-reminder>"},
                                                  {"type": "text", "text": QUESTION, **CACHED}]}],
        "tools": [tool, {**tool, **CACHED, "name": "Read"}], "thinking": {"type": "enabled", "budget_tokens": 1024},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}

    def send(what, **changes):
        return answered(server, what, "/v1/messages?beta=true", {**body, **changes}, ANTHROPIC.items())

    text = send("a question")
    check("in Anthropic's events", text.startswith("event: message_start") and text.rstrip().endswith('{"type":"message_stop"}'))
    send("adaptive thinking", thinking={"type": "adaptive"}, output_config={"effort": "high"}, max_tokens=8)
    calls = [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "redacted_thinking", "data": "Eu8="}, {"type": "text", "text": "I look."},
             {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}]
    for result in ({"content": "a\nb", "is_error": False, **CACHED}, {"content": [{"type": "text", "text": "a"}]}, {}):
        turns = body["messages"] + [{"role": "assistant", "content": calls},
                                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", **result}]}]
        send(f"a conversation with {result}", messages=turns, thinking={"type": "disabled"}, max_tokens=8)
    plain = {"stream": False, "thinking": {"type": "disabled"}, "max_tokens": 60, "temperature": 0}
    for choice in ({"type": "any"}, {"type": "tool", "name": "Bash"}, {"type": "any", "disable_parallel_tool_use": True}):
        blocks = json.loads(send(f"{choice}", **plain, tool_choice=choice))["content"]
        check(f"{choice} makes calls: {blocks}", blocks[-1]["type"] == "tool_use" and blocks[-1]["name"] in ("Bash", "Read"))
    send("no tool", **plain, tool_choice={"type": "none"})
    send("a probe of the quota", stream=False, max_tokens=1, tools=[], system=[], thinking={"type": "disabled"})
    counted = {name: body[name] for name in ("model", "system", "messages", "tools", "thinking")}
    answered(server, "a count", "/v1/messages/count_tokens?beta=true", counted, ANTHROPIC.items())
    title = {"type": "json_schema", "schema": {"type": "object", "properties": {"t": {"type": "string", "maxLength": 5}}, "required": ["t"],
                                               "additionalProperties": False}}
    said = json.loads(send("a title", **plain, tools=[], output_config={"format": title}))["content"][0]["text"]
    check(f"in its form: {said}", list(json.loads(said)) == ["t"])

    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    shown = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [picture]}]}]
    for what, name, changes in (
            ("a picture", "image", {"messages": [{"role": "user", "content": [picture]}]}),
            ("a picture in a result", "image", {"messages": body["messages"] + [{"role": "assistant", "content": calls}] + shown}),
            ("a search", "web_search_20250305", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
            ("too large a budget", "thinking.budget_tokens", {"max_tokens": 1024})):
        refused(server, what, name, "/v1/messages", {**body, **changes}, ANTHROPIC.items())


# What Codex sends whatever its provider can do: its patches as a text with a grammar, tools of MCP servers in namespaces, searches and
# pictures that only OpenAI makes.
CODEX_TOOLS = [
    {"type": "custom", "name": "apply_patch", "description": "Use the `apply_patch` tool to edit files. This is a FREEFORM tool.",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin_patch hunk+ end_patch\nbegin_patch: \"*** Begin Patch\" LF\n"}},
    {"type": "namespace", "name": "mcp__disk", "description": "Tools in the mcp__disk namespace.", "tools": [
        {"type": "function", "name": "list", "description": "Lists", "strict": False, "defer_loading": True, "parameters": COMMAND}]},
    {"type": "web_search", "external_web_access": False, "search_content_types": ["text", "image"]},
    {"type": "image_generation", "output_format": "png"},
    {"type": "tool_search", "execution": "client", "description": "Searches", "parameters": COMMAND}]


def codex(server):
    shell = {"type": "function", "name": "shell", "description": "Runs a command", "strict": False, "parameters": COMMAND}
    body = {"model": "m", "instructions": "You are a coding agent.", "tool_choice": "auto", "parallel_tool_calls": False, "store": False,
            "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0199", "max_output_tokens": 8,
            "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "low"}, "tools": [shell],
            "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>all</permissions>"}]},
                      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]}
    text = answered(server, "a question", "/v1/responses", body)
    check("in OpenAI's events", text.startswith("event: response.created"))
    said = [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "content": None, "encrypted_content": None},
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary",
             "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
            {"type": "function_call", "id": "fc_1", "name": "shell", "arguments": "{\"command\":\"ls\"}", "call_id": "call_1", "status": "completed"}]
    for output in ("{\"output\":\"a\"}", [{"type": "input_text", "text": "a"}], ""):
        items = body["input"] + said + [{"type": "function_call_output", "call_id": "call_1", "output": output}]
        answered(server, f"a conversation with {output!r}", "/v1/responses", {**body, "input": items, "stream": False})
    forced = {**body, "stream": False, "temperature": 0, "max_output_tokens": 80, "tools": [{**shell, "strict": True}], "tool_choice": "required",
              "reasoning": None}
    items = json.loads(answered(server, "a call that must be", "/v1/responses", forced))["output"]
    check(f"it comes: {items}", items[-1]["type"] == "function_call" and list(json.loads(items[-1]["arguments"])) == ["command"])
    whole = {**body, "tools": [shell, *CODEX_TOOLS], "client_metadata": {"x-codex-installation-id": "a"}}
    answered(server, "all its tools", "/v1/responses", whole)
    said = [{"type": "custom_tool_call", "status": "completed", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch\n"},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "{\"output\":\"Success\"}"},
            {"type": "function_call", "name": "list", "namespace": "mcp__disk", "arguments": "{}", "call_id": "call_3"},
            {"type": "function_call_output", "call_id": "call_3", "output": "a"}]
    answered(server, "a conversation with them", "/v1/responses", {**whole, "input": body["input"] + said})
    patch = {**whole, "stream": False, "temperature": 0, "max_output_tokens": 80, "tool_choice": {"type": "custom", "name": "apply_patch"},
             "reasoning": None}
    items = json.loads(answered(server, "a patch that must be", "/v1/responses", patch))["output"]
    check(f"it comes as a text: {items}", items[-1]["type"] == "custom_tool_call" and isinstance(items[-1]["input"], str))
    for tool in ({"type": "local_shell"}, {"type": "file_search", "vector_store_ids": []}):
        refused(server, tool["type"], tool["type"], "/v1/responses", {**body, "tools": [shell, tool]})
    for item in ({"type": "local_shell_call", "call_id": "c"}, {"type": "item_reference", "id": "a"}):
        refused(server, item["type"], item["type"], "/v1/responses", {**body, "input": body["input"] + [item]})


def chat_pages(server):
    hello = [{"role": "user", "content": "hi"}]
    function = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}
    call = {"id": "call_1", "index": 0, "type": "function", "function": {"name": "read_file", "arguments": ""}}
    called = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": [call]}
    for what, members in {
            "Open WebUI": {"messages": hello, "stream": True, "stream_options": {"include_usage": True}, "params": {}, "features": {"web_search": False},
                           "variables": {"{{USER_NAME}}": "a"}, "session_id": "s", "chat_id": "c", "id": "i", "tool_servers": [], "tool_ids": [],
                           "background_tasks": {"title_generation": True}, "metadata": {"a": {"b": 1}}, "files": None, "options": {"num_ctx": 1}},
            "LibreChat": {"messages": [{"role": "system", "content": "You", "name": "instructions"},
                                       {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "u"}], "user": "66f", "stream": True,
                          "stream_options": {"include_usage": True}, "presence_penalty": 0, "frequency_penalty": 0, "tools": [], "stop": ["||>"]},
            "Continue": {"messages": [{"role": "system", "content": ""}, *hello], "tools": [function], "parallel_tool_calls": False,
                         "prediction": {"type": "content", "content": "a"}},
            "Cline": {"messages": hello, "stream": True, "reasoning_effort": "medium", "max_completion_tokens": 4, "max_tokens": None},
            "the AI SDK": {"messages": [{"role": "developer", "content": "You"}, *hello], "response_format": {"type": "json_object"},
                           "tools": [{"type": "function", "function": {**function["function"], "strict": True}}], "tool_choice": "auto"},
            "OpenRouter's forms": {"messages": hello, "reasoning": {"effort": "high"}, "include_reasoning": True, "provider": {"order": ["a"]},
                                   "transforms": [], "usage": {"include": True}},
            "what a caller leaves empty": {"messages": hello, "tools": None, "tool_choice": None, "functions": None, "function_call": None,
                                           "response_format": None, "stop": None, "logit_bias": None, "n": None, "seed": None},
            "a tool that returned nothing": {"messages": [*hello, called, {"role": "tool", "tool_call_id": "call_1", "name": "read_file", "content": None}]},
            "one that says nothing of it": {"messages": [*hello, called, {"role": "tool", "tool_call_id": "call_1"}]},
            "an answer of nothing": {"messages": [*hello, {"role": "assistant", "content": [], "tool_calls": []}, *hello]}}.items():
        answered(server, what, "/v1/chat/completions", {"model": "m", "max_tokens": 4, **members})
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    for what, name, content in (("a picture", "image_url", [picture]), ("a file", "file", [{"type": "file", "file": {"file_id": "a"}}]),
                                ("a question of nothing", "content", None)):
        refused(server, what, name, "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": content}]})


def main(quire, *names):
    with Server(quire, "models/quire-tiny", "--device", "cpu") as server:
        for test in (claude_code, codex, chat_pages):
            if not names or test.__name__ in names:
                test(server)
                print(test.__name__, "ok", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
