#!/usr/bin/env python3
"""Clients that people have, as they are: each call that they make is answered. What is not installed is skipped with a word.

    tests/e2e/clients_test.py build/release/app/quire
"""
import importlib
import json
import math
import pathlib
import sys

from serve_process import Server, check

POOLING = pathlib.Path("tests/data/pooling/qwen3-embedding")
QUESTION = [{"role": "user", "content": "What is 12 + 7?"}]


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


def instructor_chat(server):
    instructor, openai, pydantic = (importlib.import_module(name) for name in ("instructor", "openai", "pydantic"))
    answer = pydantic.create_model("Answer", value=(int, ...))
    client = instructor.from_openai(openai.OpenAI(base_url=server.base + "/v1", api_key="none"), mode=instructor.Mode.JSON_SCHEMA)
    check("an object", isinstance(client.chat.completions.create(model="m", messages=QUESTION, response_model=answer, max_tokens=40).value, int))


def pydantic_ai_chat(server):
    ai = importlib.import_module("pydantic_ai")
    models, providers = importlib.import_module("pydantic_ai.models.openai"), importlib.import_module("pydantic_ai.providers.openai")
    model = models.OpenAIChatModel("m", provider=providers.OpenAIProvider(base_url=server.base + "/v1", api_key="none"))
    check("a chat", ai.Agent(model).run_sync("What is 12 + 7?", model_settings={"max_tokens": 8}).output)


def litellm_chat(server):
    litellm = importlib.import_module("litellm")
    ask = dict(model="hosted_vllm/m", api_base=server.base + "/v1", api_key="none", messages=QUESTION, max_tokens=8)
    check("a chat", litellm.completion(**ask).choices[0].message.content)
    check("a stream", "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**ask, stream=True)))


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
        done = run(server, (openai_chat, langchain_chat, instructor_chat, pydantic_ai_chat, litellm_chat))
    with Server(quire, POOLING, "--device", "cpu", "--dtype", "float32") as server:
        done += run(server, (openai_embeddings, langchain_embeddings, cohere_rerank))
    sys.exit(0 if done else 77)


if __name__ == "__main__":
    main(sys.argv[1])
