#!/usr/bin/env python3
"""Structured output and constrained calls through a whole server with the shipped model, drawn wildly: what is demanded is what comes.

    tests/e2e/structured_outputs_test.py build/release/app/quire
"""
import concurrent.futures
import json
import re
import subprocess
import sys
import tempfile
import urllib.error

from serve_process import Server, check

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["city", "days", "unit"], "properties": {
    "city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
    "unit": {"enum": ["C", "F"]}, "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}}}
WILD = dict(temperature=2.0, top_k=0, top_p=1.0, max_tokens=400)
THINK = dict(thinking_budget=9)  # a wild model may begin to think, and would not end
TIGHT = {"disable_any_whitespace": True}


def tool(name, strict=False, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "strict": strict, "parameters": parameters}}


TOOLS = [tool("get_weather", city={"type": "string", "maxLength": 9}, days={"type": "integer", "minimum": 1, "maximum": 9}),
         tool("get_time", strict=True, zone={"enum": ["UTC", "CET"]})]


def chat(server, **body):
    return server.post(CHAT, messages=ASK, **WILD | THINK | body)["choices"][0]


def fits(value):
    return (isinstance(value["city"], str) and len(value["city"]) <= 12 and type(value["days"]) is int and 1 <= value["days"] <= 14
            and value["unit"] in ("C", "F") and set(value) <= set(SCHEMA["properties"])
            and all(type(tag) is bool for tag in value.get("tags", [])) and len(value.get("tags", [])) <= 3)


def stream(server, path, **body):
    events = server.ask(path, {"model": "m", "stream": True, **WILD, **THINK, **body}).split("\n\n")
    return [json.loads(event[6:]) for event in events if event.startswith("data: {")]


def schemas(server):
    wanted = {"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": SCHEMA}}
    for seed in range(20):
        choice = chat(server, structured_outputs={"json": SCHEMA, **TIGHT}, seed=seed)
        check(f"a value of the schema: {choice}", choice["finish_reason"] == "stop" and fits(json.loads(choice["message"]["content"])))
    choice = chat(server, response_format=wanted, temperature=0)
    check(f"response_format: {choice}", fits(json.loads(choice["message"]["content"])))
    text = server.post(TEXT, prompt="A value: ", structured_outputs={"json": json.dumps(SCHEMA), **TIGHT}, **WILD)["choices"][0]["text"]
    check(f"a completion, the schema as text: {text}", fits(json.loads(text)))
    several = server.post(CHAT, messages=ASK, n=4, seed=3, logprobs=True, structured_outputs={"json": SCHEMA, **TIGHT}, **WILD, **THINK)["choices"]
    values = [json.loads(c["message"]["content"]) for c in several]
    check(f"each of n: {values}", len(values) == 4 and all(map(fits, values)) and len({json.dumps(v) for v in values}) > 1)
    check("with log-probabilities", all(c["logprobs"]["content"] for c in several))
    again = server.post(CHAT, messages=ASK, n=4, seed=3, structured_outputs={"json": SCHEMA, **TIGHT}, **WILD, **THINK)["choices"]
    check("the same again with the same seed", [c["message"]["content"] for c in again] == [c["message"]["content"] for c in several])
    pieces = stream(server, CHAT, messages=ASK, structured_outputs={"json": SCHEMA, **TIGHT}, seed=5)
    whole = "".join(c["choices"][0]["delta"].get("content") or "" for c in pieces if c["choices"])
    check(f"streamed: {whole}", fits(json.loads(whole)))
    cut = chat(server, structured_outputs={"json": SCHEMA, **TIGHT}, max_tokens=3)
    check(f"cut at the limit: {cut}", cut["finish_reason"] == "length" and '{"city":"'.startswith(cut["message"]["content"][:9]))
    patient = chat(server, structured_outputs={"choice": ["yes", "no"]}, min_tokens=50)
    check(f"min_tokens yields to the end: {patient}", patient["message"]["content"] in ("yes", "no"))
    # Greedy: wild thoughts have words such as "times", at which it would stop as well.
    check("a stop string", chat(server, structured_outputs={"choice": ["yes"]}, stop=["es"], temperature=0)["message"]["content"] == "y")


def other_kinds(server):
    for body, pattern in (({"structured_outputs": {"regex": "[a-c]{4}-\\d\\d"}}, "[a-c]{4}-\\d\\d"),
                          ({"structured_outputs": {"choice": ["red", "green\n", "é"]}}, "red|green\n|é"),
                          ({"structured_outputs": {"grammar": 'root ::= "<" root ">" | "x" [0-9]'}}, "<*x[0-9]>*"),
                          ({"guided_regex": "[xy]{3}"}, "[xy]{3}"),
                          ({"guided_choice": ["one", "two"]}, "one|two"),
                          ({"guided_grammar": 'root ::= ("a" | "b"){5}'}, "[ab]{5}"),
                          ({"structured_outputs": {"structural_tag": {"format": {"type": "tag", "begin": "<n>", "end": "</n>",
                            "content": {"type": "regex", "pattern": "\\d{2}"}}}}}, "<n>\\d\\d</n>")):
        for path, ask in ((CHAT, {"messages": ASK}), (TEXT, {"prompt": "x"})):
            choice = server.post(path, **ask, **WILD, **(THINK if path == CHAT else {}), **body)["choices"][0]
            content = choice["text"] if path == TEXT else choice["message"]["content"]
            if choice["finish_reason"] == "stop":
                check(f"{body} gave {content!r}", re.fullmatch(pattern, content))
    check("a guided schema", fits(json.loads(chat(server, guided_json=SCHEMA, temperature=0)["message"]["content"])))
    value = chat(server, response_format={"type": "json_object"}, temperature=0)
    if value["finish_reason"] == "stop":
        check("any object", isinstance(json.loads(value["message"]["content"]), dict))
    spaced = chat(server, structured_outputs={"json": {"enum": [[1, 2]]}, "whitespace_pattern": " "})["message"]["content"]
    check(f"white space as the pattern says: {spaced!r}", spaced == "[ 1 , 2 ]")


def thoughts(server):
    think = dict(chat_template_kwargs={"enable_thinking": True}, structured_outputs={"json": SCHEMA, **TIGHT})
    choice = server.post(CHAT, messages=ASK, **think, temperature=0, max_tokens=600)["choices"][0]
    check(f"a thought, then the value: {choice}", choice["finish_reason"] == "length" or
          choice["message"]["reasoning"] and fits(json.loads(choice["message"]["content"])))
    for budget in (0, 1, 7):
        for more in (think, think | {"structured_outputs": {"regex": "[0-9]{3}"}}, {"chat_template_kwargs": {"enable_thinking": True}}):
            reply = server.post(CHAT, messages=ASK, **WILD, **more, thinking_budget=budget)
            spent = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
            check(f"budget {budget}: {reply}", spent <= budget + 6 and reply["choices"][0]["finish_reason"] in ("stop", "length"))
            if more is think:
                check("the value follows", fits(json.loads(reply["choices"][0]["message"]["content"])))


def calls(server):
    for seed in range(12):
        choice = chat(server, tools=TOOLS, tool_choice="required", seed=seed)
        made = choice["message"]["tool_calls"]
        check(f"required: {choice}", made and (choice["finish_reason"] == "tool_calls" or choice["finish_reason"] == "length"))
        for call in made[:-1] if choice["finish_reason"] == "length" else made:
            arguments = json.loads(call["function"]["arguments"])
            right = arguments["zone"] in ("UTC", "CET") if call["function"]["name"] == "get_time" else len(arguments["city"]) <= 9
            check(f"arguments that fit: {call}", right)
        named = chat(server, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_time"}}, seed=seed,
                     parallel_tool_calls=False)
        check(f"named: {named}", [c["function"]["name"] for c in named["message"]["tool_calls"]] == ["get_time"])
        check("and only what fits", json.loads(named["message"]["tool_calls"][0]["function"]["arguments"])["zone"] in ("UTC", "CET"))
    free = chat(server, tools=TOOLS, temperature=0)
    check(f"auto: {free}", free["finish_reason"] == "tool_calls" and free["message"]["tool_calls"][0]["function"]["name"] == "get_weather")
    pieces = stream(server, CHAT, messages=ASK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=1)
    deltas = [d for p in pieces if p["choices"] for d in p["choices"][0]["delta"].get("tool_calls") or []]
    check(f"streamed: {deltas}", deltas[0]["function"]["name"] in ("get_weather", "get_time")
          and json.loads("".join(d["function"]["arguments"] for d in deltas)))


def lenient(server):
    """Functions that are not strict can be called, whatever their schemas ask for."""
    odd = [tool("odd", a={"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 1, "maxItems": 2, "uniqueItems": True, "frob": 1},
                b={"type": "string", "format": "phone", "maxLength": 3})]
    for seed in range(3):
        made = chat(server, tools=odd, tool_choice="required", seed=seed, parallel_tool_calls=False)["message"]["tool_calls"]
        values = json.loads(made[0]["function"]["arguments"])
        check(f"as far as it can be held: {values}", set(values["a"]) <= {"x", "y"} and 1 <= len(values["a"]) <= 2 and len(values.get("b", "")) <= 3)


def no_thought(server):
    """Where thinking is off, by the template's default or by word, the answer begins at once."""
    for more in ({}, {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
        for question in ("hello", "Give JSON.", "Pick one", "What is the weather in Paris?"):
            reply = server.post(CHAT, messages=[{"role": "user", "content": question}], temperature=0, max_tokens=60, **more,
                                response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}})
            message = reply["choices"][0]["message"]
            check(f"{question} {more}: {message}", not message.get("reasoning") and message["content"].startswith("{"))


def bad_words(server):
    plain = chat(server, temperature=0, max_tokens=40)["message"]["content"]
    word = max(re.findall(r"[A-Za-z]{4,}", plain), key=len)
    other = chat(server, temperature=0, max_tokens=40, bad_words=[word])["message"]["content"]
    check(f"without {word!r}: {other!r}", word not in other and other != plain)


def refusals(server):
    def refused(param, path=CHAT, **body):
        ask = {"messages": ASK} if path == CHAT else {"prompt": "x"}
        try:
            server.post(path, **ask, **body)
        except urllib.error.HTTPError as error:
            said = json.loads(error.read())["error"]
            check(f"{body} is refused at {param}: {said}", error.code == 400 and said["param"] == param)
        else:
            check(f"{body} is refused", False)

    def schema(s):
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": s}}}

    at = "/response_format/json_schema/schema"
    for more in ({}, {"stream": True}):
        refused(at + "/properties/a/$dynamicRef", **schema({"properties": {"a": {"$dynamicRef": "#x"}}}), **more)
        refused(at + "/properties/a~1b/type", **schema({"properties": {"a/b": {"type": "text"}}}), **more)
        refused(at + "/items/pattern", **schema({"items": {"pattern": "(?=x)y"}}), **more)
    refused("/structured_outputs/regex", structured_outputs={"regex": "(a)\\1"})
    refused("/structured_outputs/regex", TEXT, structured_outputs={"regex": "(?<!a)b"})
    refused("/structured_outputs/grammar", structured_outputs={"grammar": "start ::= x"})
    refused("/guided_json/minimum", guided_json={"minimum": "1"})
    refused("/structured_outputs/json/properties/a", structured_outputs={"json": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "enum": [1]}}}})
    refused("/structured_outputs/choice", structured_outputs={"choice": []})
    refused("structured_outputs", structured_outputs={})
    refused("/structured_outputs/jsn", structured_outputs={"jsn": {}})
    refused("/structured_outputs/regex", structured_outputs={"json": {}, "regex": "a"})
    refused("/structured_outputs/whitespace_pattern", structured_outputs={"json": {}, "whitespace_pattern": "("})
    refused("/response_format/json_schema", response_format={"type": "json_schema", "json_schema": {"name": "x"}})
    refused("/structured_outputs/choice", guided_regex="a", structured_outputs={"choice": ["b"]})
    refused("/tools/0/function/parameters/properties/a/type", tools=[tool("f", a={"type": "poem"})], tool_choice="required")
    refused("/tools/0/function/parameters/properties/a/uniqueItems", tool_choice="required",
            tools=[tool("f", strict=True, a={"type": "array", "items": {"type": "object"}, "uniqueItems": True})])
    refused("/response_format/json_schema/schema/properties/a/maximum", response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 2**64}}}}})
    refused("/tools/0/function/parameters/properties/a/minimum", tools=[tool("f", strict=True, a={"type": "integer", "minimum": -2**63 - 1})],
            tool_choice="required")
    refused("/tools/1/function/parameters/properties/b", tools=[TOOLS[0], tool("f", b={"type": "integer", "minimum": 3, "maximum": 2})],
            tool_choice={"type": "function", "function": {"name": "f"}})
    refused("/tools/0/function/parameters/type", tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "strin"}}}],
            tool_choice="required")
    for at_schema, bad in (("/typ", {"typ": "string"}), ("", {"type": "integer", "minimum": 5, "maximum": 1}), ("", {"allOf": [{"type": "string"}, {"type": "null"}]}),
                           ("/anyOf", {"anyOf": []}), ("/$ref", {"$ref": "#/$defs/no"}), ("/properties", {"properties": []}), ("/multipleOf", {"multipleOf": 0})):
        refused(at + at_schema, **schema(bad))
    refused("/structured_outputs/regex", structured_outputs={"regex": "a$b"})
    refused("/structured_outputs/choice/1", structured_outputs={"choice": ["a", 3]})
    refused("/structured_outputs/grammar", structured_outputs={"grammar": "start: a{b}\na{x}: x"})
    refused("/structured_outputs/structural_tag/format/type", structured_outputs={"structural_tag": {"format": {"type": "poem"}}})
    refused("/response_format/type", response_format={"type": "xml"})
    refused("/response_format/json_schema/strict", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": "yes"}})
    for bad, place in (({"name": ""}, "/name"), ({"name": "a b"}, "/name"), ({"name": "f", "parameters": []}, "/parameters"), ({"name": "f", "description": 3}, "/description")):
        refused("/tools/0/function" + place, tools=[{"type": "function", "function": bad}])
    refused("/tools/0/type", tools=[{"type": "web_search"}])
    refused("/tools/0", tools=[{}])
    refused("tool_choice", tools=TOOLS, tool_choice="any")
    refused("/tool_choice/type", tools=TOOLS, tool_choice={"type": "poem"})
    refused("reasoning_effort", reasoning_effort="banana")
    bad = {"type": "object", "properties": {"a": {"type": "poem"}}}
    for path, place, body in (("/v1/responses", "/tools/0/parameters/properties/a/type", {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": bad}], "tool_choice": "required"}),
                              ("/v1/messages", "/tools/0/input_schema/properties/a/type", {"messages": ASK, "max_tokens": 9, "tools": [{"name": "f", "input_schema": bad}], "tool_choice": {"type": "any"}}),
                              ("/v1/responses", "/text/format/schema/properties/a/type", {"input": "x", "text": {"format": {"type": "json_schema", "name": "s", "schema": bad}}}),
                              ("/v1/messages", "/output_config/format/schema/properties/a/type", {"messages": ASK, "max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": bad}}})):
        try:
            server.post(path, **body)
        except urllib.error.HTTPError as error:
            said = json.loads(error.read())["error"]
            check(f"{path} names {place}: {said}", error.code == 400 and place in said["message"] and said.get("param", place) == place)
        else:
            check(f"{path} refuses {body}", False)
    deep = {}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}}
    refused(at, **schema(deep))
    refused("tool_choice", tool_choice="required")
    refused("/tool_choice/function/name", tools=TOOLS, tool_choice={"type": "function", "function": {"name": "fly"}})
    refused("/tools/1/function/name", tools=[TOOLS[0], TOOLS[0]])
    refused("/tools/0/function", tools=[{"type": "function", "function": {"parameters": {}}}])
    refused("response_format", tools=TOOLS, tool_choice="required", response_format={"type": "json_object"})
    refused("thinking_budget", TEXT, thinking_budget=5)
    big = {"anyOf": [{"type": "object", "properties": {f"k{i}": {"enum": list(range(i))}}} for i in range(300)]}
    for _ in range(4):
        big = {"allOf": [big, {"anyOf": [{"minProperties": 1}, {"maxProperties": 3}]}]}
    refused(at, **schema(big))


def hostile(server):
    """What is costly ends with an error, or as text; who asks for something else gets it meanwhile."""
    deep = {}
    for _ in range(300):
        deep = {"anyOf": [{"type": "null"}, {"items": deep}]}
    costly = [{"json": {"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": 9}, {"pattern": "a"}]} for i in range(30)]}},
              {"json": {"enum": [f"value {i}" for i in range(40000)]}}, {"json": deep}, {"json": {"type": "string", "minLength": 2 * 10**9}},
              {"regex": "((a{0,1000}){0,1000}){0,1000}"}, {"regex": "(a|b)*a(a|b){40}"}, {"regex": "(" * 50000},
              {"grammar": 'root ::= root root | "a" root | "a"'}]

    def ask(wanted):
        try:
            return server.post(CHAT, messages=ASK, **WILD | THINK | {"max_tokens": 30}, structured_outputs=wanted)["choices"][0]["finish_reason"]
        except urllib.error.HTTPError as error:
            check(f"{str(wanted)[:80]}: {error.code}", error.code == 400)
            return "refused"

    with concurrent.futures.ThreadPoolExecutor(len(costly)) as pool:
        answers = pool.map(ask, costly)
        for seed in range(5):
            check("a plain answer", server.post(CHAT, messages=ASK, temperature=0, max_tokens=20)["choices"][0]["message"]["content"])
            check("a small grammar", chat(server, structured_outputs={"choice": ["a", f"b{seed}"]})["message"]["content"] in ("a", f"b{seed}"))
        answers = list(answers)
    check(f"some are refused: {answers}", "refused" in answers)


def elsewhere(quire):
    """The engine is another process: what is demanded crosses the line, and so does what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/engine.sock"
        engine = subprocess.Popen([quire, "engine", "models/quire-tiny", "--listen", address, "--device", "cpu"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with Server(quire, "models/quire-tiny", "--engine", address) as server:
                schemas(server)
                calls(server)
                bad_words(server)
                refusals(server)
        finally:
            engine.terminate()
            engine.wait(timeout=60)


def main():
    elsewhere(sys.argv[1])
    for flags in ((), ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')):
        with Server(sys.argv[1], "models/quire-tiny", *flags) as server:
            schemas(server)
            other_kinds(server)
            thoughts(server)
            calls(server)
            lenient(server)
            no_thought(server)
            bad_words(server)
            if not flags:
                refusals(server)
                hostile(server)
            check("nothing is left behind", server.metric("vllm:num_requests_running") == 0)
    print("structured: ok")


if __name__ == "__main__":
    main()
