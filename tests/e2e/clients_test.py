#!/usr/bin/env python3
"""Clients that people have, as they are: each call that they make is answered. What is not installed is skipped with a word.

    tests/e2e/clients_test.py build/release/app/quire
"""
import asyncio
import importlib
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from serve_process import Server, check

POOLING = pathlib.Path("tests/data/pooling/qwen3-embedding")
QUESTION = [{"role": "user", "content": "What is 12 + 7?"}]
WEATHER = "What is the weather in Oslo?"
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather for a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY="none")


def openai_chat(server):
    openai = importlib.import_module("openai")
    client = openai.OpenAI(base_url=server.base + "/v1", api_key="none")
    check("a chat", client.chat.completions.create(model="m", messages=QUESTION, max_tokens=8).choices[0].message.content)
    stream = client.chat.completions.create(model="m", messages=QUESTION, max_tokens=8, stream=True)
    check("a stream", "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices))


def openai_embeddings(server):
    openai = importlib.import_module("openai")
    client = openai.OpenAI(base_url=server.base + "/v1", api_key="none")
    expected = json.loads((POOLING / "expected.json").read_text())["texts"]
    # Without encoding_format this client asks for base64, and decodes it.
    data = client.embeddings.create(model="m", input=[one["text"] for one in expected]).data
    check("embeddings", all(math.dist(a.embedding, b["embedding"]) < 1e-4 for a, b in zip(data, expected)))
    try:
        client.embeddings.create(model="m", input="a", dimensions=5)
        check("dimensions are refused", False)
    except openai.BadRequestError as error:
        check("dimensions are refused by name", error.param == "dimensions")


def langchain_chat(server):
    module = importlib.import_module("langchain_openai")
    chat = module.ChatOpenAI(base_url=server.base + "/v1", api_key="none", model="m", max_tokens=8)
    check("a chat", chat.invoke("What is 12 + 7?").content)
    check("a stream", "".join(chunk.content for chunk in chat.stream("What is 12 + 7?")))


def langchain_embeddings(server):
    module = importlib.import_module("langchain_openai")
    embeddings = module.OpenAIEmbeddings(base_url=server.base + "/v1", api_key="none", model="m", check_embedding_ctx_length=False)
    check("embeddings", len(embeddings.embed_documents(["a", "b"])) == 2 and len(embeddings.embed_query("a")) == 32)


def langchain_structure(server):
    module, pydantic = importlib.import_module("langchain_openai"), importlib.import_module("pydantic")
    answer = pydantic.create_model("Answer", value=(int, ...))
    chat = module.ChatOpenAI(base_url=server.base + "/v1", api_key="none", model="m", max_tokens=60, temperature=0)
    for method in ("json_schema", "function_calling"):
        check(method, isinstance(chat.with_structured_output(answer, method=method).invoke("What is 12 + 7?"), answer))
    calls = chat.bind_tools(TOOLS, tool_choice="any").invoke(WEATHER).tool_calls
    check("a call that must be", [call["name"] for call in calls] == ["get_weather"])
    responses = module.ChatOpenAI(base_url=server.base + "/v1", api_key="none", model="m", max_tokens=8, use_responses_api=True)
    check("the Responses API", responses.invoke("What is 12 + 7?").content)
    check("a plain completion", module.OpenAI(base_url=server.base + "/v1", api_key="none", model="m", max_tokens=4).invoke("What is"))


def instructor_chat(server):
    instructor, openai, pydantic = (importlib.import_module(name) for name in ("instructor", "openai", "pydantic"))
    answer = pydantic.create_model("Answer", value=(int, ...))
    for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
        client = instructor.from_openai(openai.OpenAI(base_url=server.base + "/v1", api_key="none"), mode=mode)
        ask = dict(model="m", messages=QUESTION, response_model=answer, max_tokens=60, temperature=0)
        check(f"an object by {mode}", isinstance(client.chat.completions.create(**ask).value, int))


def pydantic_ai_chat(server):
    ai, pydantic = importlib.import_module("pydantic_ai"), importlib.import_module("pydantic")
    models, providers = importlib.import_module("pydantic_ai.models.openai"), importlib.import_module("pydantic_ai.providers.openai")
    provider = providers.OpenAIProvider(base_url=server.base + "/v1", api_key="none")
    settings = {"max_tokens": 300, "temperature": 0}
    for kind in (models.OpenAIChatModel, models.OpenAIResponsesModel):
        agent = ai.Agent(kind("m", provider=provider))
        check(f"a chat by {kind.__name__}", agent.run_sync("What is 12 + 7?", model_settings=settings).output)
    model = models.OpenAIChatModel("m", provider=provider)
    answer = pydantic.create_model("Answer", value=(int, ...))
    for form in (answer, ai.NativeOutput(answer), ai.ToolOutput(answer)):
        output = ai.Agent(model, output_type=form).run_sync("What is 12 + 7?", model_settings=settings).output
        check(f"an object by {type(form).__name__}", isinstance(output, answer))

    async def stream():
        async with ai.Agent(model).run_stream("What is 12 + 7?", model_settings=settings) as reply:
            return [part async for part in reply.stream_text(delta=True)]

    check("a stream", "".join(asyncio.run(stream())))


def langchain_anthropic(server):
    module, pydantic = importlib.import_module("langchain_anthropic"), importlib.import_module("pydantic")
    chat = module.ChatAnthropic(base_url=server.base, api_key="none", model="m", max_tokens=60, temperature=0)
    check("a chat", chat.invoke("What is 12 + 7?").content)
    check("a stream", "".join(chunk.text if isinstance(chunk.text, str) else chunk.text() for chunk in chat.stream("What is 12 + 7?")))
    calls = chat.bind_tools(TOOLS, tool_choice="any").invoke(WEATHER).tool_calls
    check("a call that must be", [call["name"] for call in calls] == ["get_weather"])
    answer = pydantic.create_model("Answer", value=(int, ...))
    check("an object", isinstance(chat.with_structured_output(answer).invoke("What is 12 + 7?"), answer))


def openai_agents(server):
    agents, openai, pydantic = (importlib.import_module(name) for name in ("agents", "openai", "pydantic"))
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=server.base + "/v1", api_key="none")
    settings = agents.ModelSettings(temperature=0, max_tokens=300)
    answer = pydantic.create_model("Answer", value=(int, ...))
    for kind in (agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel):
        model = kind(model="m", openai_client=client)
        said = agents.Runner.run_sync(agents.Agent(name="a", instructions="You add numbers.", model=model, model_settings=settings), "What is 12 + 7?")
        check(f"an answer by {kind.__name__}", said.final_output)
        made = agents.Runner.run_sync(agents.Agent(name="a", model=model, model_settings=settings, output_type=answer), "What is 12 + 7?")
        check(f"an object by {kind.__name__}", isinstance(made.final_output, answer))

        async def stream():
            reply = agents.Runner.run_streamed(agents.Agent(name="a", model=model, model_settings=settings), "What is 12 + 7?")
            return [event async for event in reply.stream_events()], reply.final_output

        events, text = asyncio.run(stream())
        check(f"a stream by {kind.__name__}", text and len(events) > 2)


def llama_index(server):
    module, llms = importlib.import_module("llama_index.llms.openai_like"), importlib.import_module("llama_index.core.llms")
    pydantic = importlib.import_module("llama_index.core.bridge.pydantic")  # the one it was made with
    ask = dict(model="m", api_base=server.base + "/v1", api_key="none", max_tokens=60, temperature=0, context_window=2048)
    chat = module.OpenAILike(**ask, is_chat_model=True, is_function_calling_model=True)
    check("a chat", chat.chat([llms.ChatMessage(role="user", content="What is 12 + 7?")]).message.content)
    check("a stream", "".join(part.delta or "" for part in chat.stream_complete("What is 12 + 7?")))
    answer = pydantic.create_model("Answer", value=(int, ...))
    check("an object", isinstance(chat.as_structured_llm(answer).complete("What is 12 + 7?").raw, answer))
    check("a completion", module.OpenAILike(**ask, is_chat_model=False).complete("What is").text)


def litellm_chat(server):
    litellm = importlib.import_module("litellm")
    ask = dict(model="hosted_vllm/m", api_base=server.base + "/v1", api_key="none", messages=QUESTION, max_tokens=60, temperature=0)
    check("a chat", litellm.completion(**ask).choices[0].message.content)
    check("a stream", "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**ask, stream=True)))
    schema = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    check("an object", isinstance(json.loads(litellm.completion(**ask, response_format=form).choices[0].message.content)["value"], int))
    tools = ask | {"messages": [{"role": "user", "content": WEATHER}], "tools": TOOLS, "tool_choice": "required"}
    check("a call", litellm.completion(**tools).choices[0].message.tool_calls[0].function.name == "get_weather")
    text = dict(model="text-completion-openai/m", api_base=server.base + "/v1", api_key="none", prompt="What is", max_tokens=4)
    check("a completion", litellm.text_completion(**text).choices[0].text)
    openai = dict(model="openai/m", api_base=server.base + "/v1", api_key="none")
    check("a response", litellm.responses(**openai, input="What is 12 + 7?", max_output_tokens=8).output)
    message = asyncio.run(litellm.anthropic_messages(model="hosted_vllm/m", api_base=server.base + "/v1", api_key="none", messages=QUESTION,
                                                     max_tokens=8))
    check("a message", message["content"])


def litellm_embeddings(server):
    litellm = importlib.import_module("litellm")
    data = litellm.embedding(model="openai/m", api_base=server.base + "/v1", api_key="none", input=["a", "b"]).data
    check("embeddings", len(data) == 2 and len(data[0]["embedding"]) == 32)


TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/data.jsonl}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
CHOICE = TASK + """
output_type: multiple_choice
doc_to_target: "{{label}}"
doc_to_choice: "{{choices}}"
metric_list: [{{metric: acc}}]
"""
FREE = TASK + """
output_type: generate_until
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 16}}
metric_list: [{{metric: exact_match}}]
"""


def lm_eval(server):
    importlib.import_module("lm_eval")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        rows = [{"question": f"What is {a} + 7?", "answer": str(a + 7), "choices": [f" {a + 7}", " the sea"], "label": 0} for a in range(3, 9)]
        (path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (path / "choice.yaml").write_text(CHOICE.replace("{{label}}", "{{{{label}}}}").replace("{{choices}}", "{{{{choices}}}}").format(
            name="choice", folder=folder))
        (path / "free.yaml").write_text(FREE.format(name="free", folder=folder))
        for model, endpoint, task, more in (("local-completions", "completions", "choice", ",tokenizer_backend=remote"),
                                            ("local-completions", "completions", "free", ",tokenizer_backend=remote"),
                                            ("local-chat-completions", "chat/completions", "free", ",tokenizer_backend=None")):
            chat = ["--apply_chat_template"] if "chat" in endpoint else []
            done = subprocess.run([sys.executable, "-m", "lm_eval", "run", "--model", model, "--include_path", folder, "--tasks", task, *chat,
                                   "--model_args", f"model=m,base_url={server.base}/v1/{endpoint},num_concurrent=2{more}"],
                                  capture_output=True, text=True, timeout=280)
            check(f"{model}, {task}: {done.stdout[-2000:]}{done.stderr[-4000:]}", done.returncode == 0 and f"|{task}" in done.stdout)


def guidellm(server):
    importlib.import_module("guidellm")
    program = pathlib.Path(sys.executable).with_name("guidellm")
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        done = subprocess.run([program if program.exists() else shutil.which("guidellm"), "run", "--disable-console",
                               "--backend", f"kind=openai_http,target={server.base},model=m", "--profile", "kind=concurrent,streams=2",
                               "--constraint", "kind=max_requests,count=6", "--data", "kind=synthetic_text,prompt_tokens=20,output_tokens=8",
                               "--tokenizer", f"kind=hf_auto,model={pathlib.Path('models/quire-tiny').resolve()}",
                               "--output", f"kind=json,path={report}"], capture_output=True, text=True, timeout=280)
        check(f"it runs: {done.stdout[-2000:]}{done.stderr[-4000:]}", done.returncode == 0)
        totals = json.loads(report.read_text())["benchmarks"][0]["metrics"]["request_totals"]
        check(f"all requests are answered: {totals}", totals["successful"] == 6 and totals["errored"] == 0)


def cohere_rerank(server):
    cohere = importlib.import_module("cohere")
    client = cohere.ClientV2("none", base_url=server.base)
    results = client.rerank(model="m", query="a map", documents=["tea", "a map", "the sea"], top_n=2).results
    check("a ranking", len(results) == 2 and results[0].index == 1)


def run(server, tests):
    done = 0
    for test in tests:
        try:
            test(server)
        except ImportError as missing:
            print(f"{test.__name__} skipped: {missing.name or missing} is not installed")
            continue
        done += 1
        print(test.__name__, "ok")
    return done


def main(quire):
    with Server(quire, "models/quire-tiny", "--device", "cpu") as server:
        done = run(server, (openai_chat, langchain_chat, langchain_structure, instructor_chat, pydantic_ai_chat, langchain_anthropic,
                            openai_agents, llama_index, litellm_chat, lm_eval, guidellm))
    with Server(quire, POOLING, "--device", "cpu", "--dtype", "float32") as server:
        done += run(server, (openai_embeddings, langchain_embeddings, litellm_embeddings, cohere_rerank))
    sys.exit(0 if done else 77)


if __name__ == "__main__":
    main(sys.argv[1])
