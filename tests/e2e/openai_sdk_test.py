#!/usr/bin/env python3
"""Drives a running server with OpenAI's own client, where that is installed (exit 77: it is not).

Usage: openai_sdk_test.py http://127.0.0.1:8000
"""
import json
import sys

try:
    import openai
except ImportError:
    print("the openai package is not installed: skipped")
    sys.exit(77)

MODEL = "quire-tiny"
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather for a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
SUM = [{"role": "user", "content": "What is 12 + 7?"}]


def check_chat(client):
    reply = client.chat.completions.create(model=MODEL, messages=SUM, temperature=0)
    assert "19" in reply.choices[0].message.content, reply
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    several = client.chat.completions.create(model=MODEL, messages=SUM, n=3, max_tokens=4, seed=1, logprobs=True,
                                             top_logprobs=2)
    assert [c.index for c in several.choices] == [0, 1, 2]
    assert len(several.choices[0].logprobs.content[0].top_logprobs) == 2, several.choices[0].logprobs


def check_stream(client):
    stream = client.chat.completions.create(model=MODEL, messages=SUM, temperature=0, stream=True,
                                            stream_options={"include_usage": True})
    text, usage, reason = "", None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    assert "19" in text and reason == "stop" and usage.completion_tokens > 0, (text, reason, usage)


def check_tools(client):
    ask = [{"role": "user", "content": "What is the weather in Oslo?"}]
    reply = client.chat.completions.create(model=MODEL, messages=ask, tools=TOOLS, temperature=0)
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls", choice
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather" and "city" in json.loads(call.function.arguments), call
    name, arguments = "", ""
    for chunk in client.chat.completions.create(model=MODEL, messages=ask, tools=TOOLS, temperature=0, stream=True):
        for delta in chunk.choices[0].delta.tool_calls or [] if chunk.choices else []:
            name += delta.function.name or ""
            arguments += delta.function.arguments or ""
    assert name == "get_weather" and json.loads(arguments) == json.loads(call.function.arguments), (name, arguments)
    again = ask + [choice.message.model_dump(exclude_none=True),
                   {"role": "tool", "tool_call_id": call.id, "content": "{\"weather\": \"sunny\"}"}]
    assert client.chat.completions.create(model=MODEL, messages=again, tools=TOOLS).choices[0].message.content


def check_parse(client):
    import datetime
    import enum
    import typing
    import uuid

    import pydantic

    class Unit(enum.Enum):
        celsius, kelvin = "C", "K"

    class Place(pydantic.BaseModel):
        city: str = pydantic.Field(max_length=9)
        height: float | None

    class Report(pydantic.BaseModel):
        place: Place
        unit: Unit
        hours: list[int] = pydantic.Field(max_length=2)
        next: "Report | None"

    class GetWeather(pydantic.BaseModel):
        place: Place
        days: int = pydantic.Field(ge=1, le=9)

    class Cat(pydantic.BaseModel):
        kind: typing.Literal["cat"]
        lives: int = pydantic.Field(ge=1, le=9)

    class Dog(pydantic.BaseModel):
        kind: typing.Literal["dog"]
        born: datetime.date

    class Animals(pydantic.BaseModel):
        one: Cat | Dog = pydantic.Field(discriminator="kind")
        others: list[Cat | Dog] = pydantic.Field(max_length=1)
        mark: uuid.UUID

    ask = [{"role": "user", "content": "What is the weather in Oslo?"}]
    for form in (Report, Animals):
        whole = 0
        for seed in range(6):
            try:
                reply = client.beta.chat.completions.parse(model=MODEL, messages=ask, response_format=form, seed=seed, max_tokens=300,
                                                           temperature=seed / 5)
            except openai.LengthFinishReasonError:  # digits without end, say
                continue
            assert isinstance(reply.choices[0].message.parsed, form), reply
            whole += 1
        assert whole, f"no {form} came to its end"
    tools = [openai.pydantic_function_tool(GetWeather, name="get_weather")]
    for seed in range(4):
        reply = client.chat.completions.parse(model=MODEL, messages=ask, tools=tools, tool_choice="required", seed=seed,
                                              parallel_tool_calls=False, temperature=0)
        call = reply.choices[0].message.tool_calls[0]
        assert isinstance(call.function.parsed_arguments, GetWeather), call
    with client.chat.completions.stream(model=MODEL, messages=ask, tools=tools, tool_choice="required", temperature=0,
                                        parallel_tool_calls=False) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert "tool_calls.function.arguments.delta" in kinds and isinstance(final.function.parsed_arguments, GetWeather), (kinds, final)


def check_reasoning(client):
    reply = client.chat.completions.create(model=MODEL, messages=SUM, temperature=0,
                                           extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    message = reply.choices[0].message
    assert message.model_extra["reasoning"] and "<think>" not in message.content, message


def check_completions(client):
    reply = client.completions.create(model=MODEL, prompt=["one two", "three"], max_tokens=3, echo=True)
    assert reply.choices[0].text.startswith("one two") and reply.choices[1].text.startswith("three"), reply
    assert "".join(c.choices[0].text for c in client.completions.create(
        model=MODEL, prompt="one two", max_tokens=5, temperature=0, stream=True))


def check_responses(client):
    reply = client.responses.create(model=MODEL, input="What is 12 + 7?", temperature=0, instructions="You add numbers.")
    assert reply.status == "completed" and "19" in reply.output_text, reply
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens, reply
    assert client.responses.retrieve(reply.id).output_text == reply.output_text
    more = client.responses.create(model=MODEL, input="What is 3 + 4?", temperature=0, previous_response_id=reply.id)
    assert more.usage.input_tokens > reply.usage.input_tokens, (more.usage, reply.usage)
    client.responses.delete(reply.id)
    cut = client.responses.create(model=MODEL, input=SUM, max_output_tokens=1, store=False)
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", cut
    with client.responses.stream(model=MODEL, input=SUM, temperature=0) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert "19" in final.output_text, final


def check_response_format(client):
    schema = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"],
              "additionalProperties": False}
    reply = client.responses.create(model=MODEL, input=SUM, temperature=0, text={"format": {
        "type": "json_schema", "name": "sum", "schema": schema, "strict": True}})
    assert isinstance(json.loads(reply.output_text)["result"], int), reply


def check_response_tools(client):
    tools = [{"type": "function", "strict": False, **TOOLS[0]["function"]}]
    ask = [{"role": "user", "content": "What is the weather in Oslo?"}]
    reply = client.responses.create(model=MODEL, input=ask, tools=tools, temperature=0)
    call = next(item for item in reply.output if item.type == "function_call")
    assert call.name == "get_weather" and "city" in json.loads(call.arguments), call
    with client.responses.stream(model=MODEL, input=ask, tools=tools, temperature=0) as stream:
        kinds = {event.type for event in stream}
    assert "response.function_call_arguments.done" in kinds, kinds
    again = ask + [*reply.output, {"type": "function_call_output", "call_id": call.call_id,
                                   "output": "{\"weather\": \"sunny\"}"}]
    assert client.responses.create(model=MODEL, input=again, tools=tools).output, again
    thought = client.responses.create(model=MODEL, input=SUM, temperature=0,
                                      extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    assert thought.output[0].type == "reasoning" and thought.output[0].content[0].text, thought


def check_errors(client):
    for wrong, error in ((dict(model="none"), openai.NotFoundError), (dict(temperature=-1), openai.BadRequestError),
                         (dict(messages=[]), openai.BadRequestError),
                         (dict(tool_choice="required"), openai.BadRequestError),
                         (dict(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "x"}}}),
                          openai.BadRequestError)):
        try:
            client.chat.completions.create(**{**dict(model=MODEL, messages=SUM), **wrong})
        except error as e:
            assert e.body["message"] and e.body["code"] == e.status_code, e.body
        else:
            raise AssertionError(f"{wrong} was accepted")


def main():
    client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=60)
    assert MODEL in [m.id for m in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL
    for check in (check_chat, check_stream, check_tools, check_parse, check_reasoning, check_completions, check_responses,
                  check_response_format, check_response_tools, check_errors):
        check(client)
        print(check.__name__, "ok")


main()
