#!/usr/bin/env python3
"""Every form of tool calls through a whole server: the shipped model, drawn wildly under --tool-call-parser NAME, makes the calls that
tool_choice demands with arguments that fit, and a stream of the same seed adds up to the whole answer.

    tests/e2e/tool_dialects_test.py build/release/app/quire [NAME…]
"""
import concurrent.futures
import json
import sys

from serve_process import Server

CHAT = "/v1/chat/completions"
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
# Thoughts that go with the calls; the others have none of their own.
THOUGHTS = {"gpt_oss": "harmony", "seed_oss": "seed", "cohere_command": "cohere", "granite": "granite", "hunyuan_a13b": "hunyuan_a13b",
            "mistral_v11": "mistral", "deepseek_v3": "think", "deepseek_v31": "think", "deepseek_v32": "think", "glm45": "think",
            "glm47": "think", "hermes": "think", "kimi_k2": "think", "minimax_m2": "think", "olmo3": "think", "qwen3_coder": "think"}
NAMES = sorted(THOUGHTS) + ["granite-20b-fc", "internlm2", "jamba", "lfm2", "llama3_json", "llama4_pythonic", "mistral_v3", "nemotron_json",
                            "phi4_mini", "pythonic", "xlam"]
UNITS, MOST = ["celsius", "kelvin \"K\""], 14


def tool(name, properties, strict):
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:2], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "strict": strict, "parameters": parameters}}


def tools(strict):
    return [tool("get_weather", {"city": {"type": "string", "maxLength": 9}, "days": {"type": "integer", "minimum": 1, "maximum": MOST},
                                 "metric": {"type": "boolean"}}, strict),
            tool("get_time", {"unit": {"enum": UNITS}, "zones": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2}}, strict)]


class Check:
    def __init__(self, name):
        self.name, self.calls = name, 0

    def __call__(self, what, holds):
        if not holds:
            sys.exit(f"FAILED: {self.name}: {what}")

    def fits(self, call):
        name, text = call["function"]["name"], call["function"]["arguments"]
        arguments = json.loads(text)
        if name == "get_weather":
            right = (set(arguments) - {"metric"} == {"city", "days"} and isinstance(arguments["city"], str) and len(arguments["city"]) <= 9
                     and type(arguments["days"]) is int and 1 <= arguments["days"] <= MOST and type(arguments.get("metric", True)) is bool)
        else:
            right = (name == "get_time" and set(arguments) == {"unit", "zones"} and arguments["unit"] in UNITS
                     and isinstance(arguments["zones"], list) and len(arguments["zones"]) <= 2 and set(arguments["zones"]) <= {1, 2})
        self(f"arguments that fit: {call}", right)
        self.calls += 1


def joined(text):
    """What the events of a stream add up to."""
    message, reason = {"content": "", "reasoning": "", "tool_calls": {}}, None
    for event in (json.loads(e[6:]) for e in text.split("\n\n") if e.startswith("data: {")):
        for choice in event["choices"]:
            delta, reason = choice["delta"], choice["finish_reason"] or reason
            message["content"] += delta.get("content") or ""
            message["reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls") or []:
                known = message["tool_calls"].setdefault(call["index"], {"name": "", "arguments": ""})
                for key in known:
                    known[key] += call["function"].get(key) or ""
    return message["content"], message["reasoning"], [(c["name"], c["arguments"]) for c in message["tool_calls"].values()], reason


def told(choice):
    message = choice["message"]
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]
    return message["content"] or "", message.get("reasoning") or "", calls, choice["finish_reason"]


def ask(server, check, strict, **more):
    body = dict(messages=ASK, tools=tools(strict), temperature=2.0, top_k=0, top_p=1.0, max_tokens=250) | more
    choice = server.post(CHAT, **body)["choices"][0]
    streamed = joined(server.ask(CHAT, {"model": "m", "stream": True} | body))
    check(f"a stream adds up to the whole: {streamed} {told(choice)}", streamed == told(choice))
    made = choice["message"].get("tool_calls") or []
    ends = "stop" if isinstance(body.get("tool_choice"), dict) or not made else "tool_calls"  # as vLLM and OpenAI say it
    check(f"calls end as such: {choice}", choice["finish_reason"] in ("length", ends))
    return choice, made


def whole(choice, made):
    return made[:-1] if choice["finish_reason"] == "length" else made


def constrained(server, check, think):
    for seed in range(3):
        choice, made = ask(server, check, False, tool_choice="required", seed=seed, **think)
        check(f"required: {choice}", made or choice["finish_reason"] == "length")
        for call in whole(choice, made):
            check.fits(call)
        choice, made = ask(server, check, False, tool_choice={"type": "function", "function": {"name": "get_time"}}, seed=seed,
                           parallel_tool_calls=False, **think)
        check(f"one call of the named function: {choice}", choice["finish_reason"] == "length" or
              [c["function"]["name"] for c in made] == ["get_time"])
        for call in whole(choice, made):
            check.fits(call)
        choice, made = ask(server, check, True, parallel_tool_calls=False, seed=seed, **think)
        check(f"at most one of its own accord: {choice}", len(made) <= 1)
        for call in whole(choice, made):
            check.fits(call)
        choice, made = ask(server, check, True, tool_choice="none", seed=seed, max_tokens=40)
        check(f"none: {choice}", not made)


def one(quire, name):
    check = Check(name)
    thoughts = THOUGHTS.get(name, "none")
    with Server(quire, "models/quire-tiny", "--tool-call-parser", name, "--reasoning-parser", thoughts) as server:
        think = {"thinking_budget": 5} if thoughts != "none" else {}
        constrained(server, check, think)
        if think:
            reply = server.post(CHAT, messages=ASK, temperature=2.0, max_tokens=60, seed=1, chat_template_kwargs={"enable_thinking": True},
                                thinking_budget=3)
            spent = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
            check(f"a budget of 3 tokens: {reply}", spent <= 3 + 24)
    check("some calls came to their end", check.calls > 0)
    return f"{name}: {check.calls} calls"


def main():
    names = sys.argv[2:] or NAMES
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for line in pool.map(lambda name: one(sys.argv[1], name), names):
            print(line, flush=True)


if __name__ == "__main__":
    main()
