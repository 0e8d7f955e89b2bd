#!/usr/bin/env python3
"""Drives a running server with Anthropic's own client, where that is installed (exit 77: it is not).

Usage: anthropic_sdk_test.py http://127.0.0.1:8000
"""
import json
import sys

try:
    import anthropic
except ImportError:
    print("the anthropic package is not installed: skipped")
    sys.exit(77)

MODEL = "quire-tiny"
TOOLS = [{"name": "get_weather", "description": "Get the weather for a city",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]
SUM = [{"role": "user", "content": "What is 12 + 7?"}]
WEATHER = [{"role": "user", "content": [{"type": "text", "text": "What is the weather in Oslo?",
                                         "cache_control": {"type": "ephemeral"}}]}]
BASE = dict(model=MODEL, max_tokens=64, extra_body={"temperature": 0})  # not all versions know the member


def check_message(client):
    reply = client.messages.create(**BASE, messages=SUM, system="You add numbers.", metadata={"user_id": "u"})
    assert "19" in reply.content[-1].text and reply.stop_reason == "end_turn", reply
    assert reply.usage.output_tokens > 0 and reply._request_id, reply
    counted = client.messages.count_tokens(model=MODEL, messages=SUM, system="You add numbers.")
    assert counted.input_tokens == reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0), (counted, reply)
    cut = client.messages.create(**{**BASE, "max_tokens": 1}, messages=SUM)
    assert cut.stop_reason == "max_tokens", cut
    stopped = client.messages.create(**BASE, messages=SUM, stop_sequences=["="])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "=", stopped
    begun = client.messages.create(**BASE, messages=SUM + [{"role": "assistant", "content": "12 + 7 ="}])
    assert "19" in begun.content[0].text, begun


def check_stream(client):
    with client.messages.stream(**BASE, messages=SUM) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[-1].text and "19" in text and final.stop_reason == "end_turn", final
    assert final.usage.output_tokens > 0 and final.usage.input_tokens is not None, final
    kinds = [event.type for event in client.messages.create(**BASE, messages=SUM, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds


def check_tools(client):
    reply = client.messages.create(**BASE, messages=WEATHER, tools=TOOLS, tool_choice={"type": "auto"})
    assert reply.stop_reason == "tool_use", reply
    call = next(block for block in reply.content if block.type == "tool_use")
    assert call.name == "get_weather" and "city" in call.input, call
    with client.messages.stream(**BASE, messages=WEATHER, tools=TOOLS) as stream:
        final = stream.get_final_message()
    assert next(b for b in final.content if b.type == "tool_use").input == call.input, final
    forced = client.messages.create(**BASE, messages=SUM, tools=TOOLS, tool_choice={"type": "tool", "name": "get_weather"})
    assert [b.name for b in forced.content if b.type == "tool_use"] == ["get_weather"], forced
    again = WEATHER + [{"role": "assistant", "content": reply.content},
                       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                                     "content": "{\"weather\": \"sunny\"}"}]}]
    assert client.messages.create(**BASE, messages=again, tools=TOOLS).content, again


def check_schema(client):
    schema = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"],
              "additionalProperties": False}
    reply = client.messages.create(**BASE, messages=SUM, output_config={"format": {"type": "json_schema", "schema": schema}})
    assert isinstance(json.loads(reply.content[-1].text)["result"], int), reply


def check_thinking(client):
    reply = client.messages.create(**BASE, messages=SUM, thinking={"type": "enabled", "budget_tokens": 32})
    kinds = [block.type for block in reply.content]
    assert kinds[0] == "thinking" and reply.content[0].thinking, reply
    without = client.messages.create(**BASE, messages=SUM, thinking={"type": "disabled"})
    assert [block.type for block in without.content] == ["text"], without
    again = SUM + [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "What is 3 + 4?"}]
    assert client.messages.create(**BASE, messages=again).content, again


def check_errors(client):
    image = [{"role": "user", "content": [{"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": "aGk="}}]}]
    for wrong, error, kind in ((dict(model="none"), anthropic.NotFoundError, "not_found_error"),
                               (dict(extra_body={"temperature": -1}), anthropic.BadRequestError, "invalid_request_error"),
                               (dict(messages=[]), anthropic.BadRequestError, "invalid_request_error"),
                               (dict(messages=image), anthropic.BadRequestError, "invalid_request_error")):
        try:
            client.messages.create(**{**BASE, "messages": SUM, **wrong})
        except error as e:
            assert e.body["error"]["type"] == kind and e.body["error"]["message"] and e.request_id, e.body
        else:
            raise AssertionError(f"{wrong} was accepted")


def main():
    client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=60)
    for check in (check_message, check_stream, check_tools, check_schema, check_thinking, check_errors):
        check(client)
        print(check.__name__, "ok")


main()
