// OpenAI's Responses API over HTTP.

#include <catch2/catch.hpp>

#include "tests/server/responses_requests.h"
#include "tests/support/json_pointer.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kPath = kResponsesPath;

// The types of the events, each once where it comes several times in a row.
std::vector<std::string> types_of(const std::string& stream) {
  std::vector<std::string> types;
  for (const auto& event : events_of(stream)) {
    const std::string type = pointer(event, "/type");
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  return types;
}

std::string unquoted(const std::string& json) {
  return json.size() > 1 && json.front() == '"' ? json.substr(1, json.size() - 2) : json;
}

}  // namespace

TEST_CASE("a response has its shape, its text and its usage", "[server][responses]") {
  TestServer server(answering("The answer is 19."));
  const auto reply =
      post(server.port(), kPath, body(R"("instructions":"Be brief.","metadata":{"a":"b"})"),
           "X-Request-Id: abc\r\n");
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/id") == "\"resp_abc\"");
  CHECK(pointer(reply.body, "/object") == "\"response\"");
  CHECK(pointer(reply.body, "/status") == "\"completed\"");
  CHECK(pointer(reply.body, "/model") == "\"tiny\"");
  CHECK(pointer(reply.body, "/instructions") == "\"Be brief.\"");
  CHECK(pointer(reply.body, "/metadata/a") == "\"b\"");
  CHECK(pointer(reply.body, "/error") == "null");
  CHECK(pointer(reply.body, "/output/0/type") == "\"message\"");
  CHECK(pointer(reply.body, "/output/0/status") == "\"completed\"");
  CHECK(pointer(reply.body, "/output/0/content/0/type") == "\"output_text\"");
  CHECK(pointer(reply.body, "/output/0/content/0/text") == "\"The answer is 19.\"");
  const auto answer = tiny_tokenizer().encode("The answer is 19.", false).size() + 1;
  CHECK(pointer(reply.body, "/usage/output_tokens") == std::to_string(answer));
  CHECK(std::stoi(pointer(reply.body, "/usage/total_tokens")) ==
        std::stoi(pointer(reply.body, "/usage/input_tokens")) + static_cast<int>(answer));
}

TEST_CASE("thoughts, text and calls are items in their order", "[server][responses]") {
  TestServer server(answering("<think>Hm.</think>" + kCall));
  const auto reply = post(server.port(), kPath, body(kTools));
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/output/0/type") == "\"reasoning\"");
  CHECK(pointer(reply.body, "/output/0/content/0/text") == "\"Hm.\"");
  CHECK(pointer(reply.body, "/output/1/content/0/text") == "\"Let me see.\"");
  CHECK(pointer(reply.body, "/output/2/type") == "\"function_call\"");
  CHECK(pointer(reply.body, "/output/2/name") == "\"get_time\"");
  CHECK(pointer(reply.body, "/output/2/arguments") == R"("{\"city\": \"Oslo\"}")");
  CHECK(pointer(reply.body, "/output/2/call_id").size() > 2);
  CHECK(pointer(reply.body, "/tools/0/name") == "\"get_time\"");
}

TEST_CASE("a response that runs out of tokens is incomplete", "[server][responses]") {
  TestServer server(answering("one two three four"));
  for (const char* stream : {"false", "true"}) {
    const auto reply = post(server.port(), kPath,
                            body(R"("max_output_tokens":2,"stream":)" + std::string(stream)));
    const auto events = events_of(reply.body);
    const std::string response = events.empty() ? reply.body : pointer(events.back(), "/response");
    CHECK(pointer(response, "/status") == "\"incomplete\"");
    CHECK(pointer(response, "/incomplete_details/reason") == "\"max_output_tokens\"");
    CHECK(pointer(response, "/output/0/status") == "\"incomplete\"");
    CHECK(pointer(response, "/max_output_tokens") == "2");
    if (!events.empty()) CHECK(types_of(reply.body).back() == "\"response.incomplete\"");
  }
}

TEST_CASE("a streamed response has the official order and numbers", "[server][responses][stream]") {
  TestServer server(answering("<think>Hm.</think>" + kCall));
  const auto reply = post(server.port(), kPath, body(kTools + R"(,"stream":true)"));
  REQUIRE(reply.status == 200);
  const std::vector<std::string> expected = {
      "\"response.created\"",
      "\"response.in_progress\"",
      "\"response.output_item.added\"",
      "\"response.content_part.added\"",
      "\"response.reasoning_text.delta\"",
      "\"response.reasoning_text.done\"",
      "\"response.content_part.done\"",
      "\"response.output_item.done\"",
      "\"response.output_item.added\"",
      "\"response.content_part.added\"",
      "\"response.output_text.delta\"",
      "\"response.output_text.done\"",
      "\"response.content_part.done\"",
      "\"response.output_item.done\"",
      "\"response.output_item.added\"",
      "\"response.function_call_arguments.delta\"",
      "\"response.function_call_arguments.done\"",
      "\"response.output_item.done\"",
      "\"response.completed\"",
  };
  CHECK(types_of(reply.body) == expected);
  CHECK(reply.body.find("[DONE]") == std::string::npos);
  int number = 0;
  std::string text, arguments;
  for (const auto& event : events_of(reply.body)) {
    CHECK(pointer(event, "/sequence_number") == std::to_string(number++));
    const std::string type = unquoted(pointer(event, "/type"));
    CHECK(reply.body.find("event: " + type + "\ndata: " + event) != std::string::npos);
    if (type == "response.output_text.delta") text += unquoted(pointer(event, "/delta"));
    if (type == "response.function_call_arguments.delta") {
      arguments += unquoted(pointer(event, "/delta"));
      CHECK(pointer(event, "/output_index") == "2");
    }
  }
  CHECK(text == "Let me see.");
  CHECK(arguments == R"({\"city\": \"Oslo\"})");
  const std::string response = pointer(events_of(reply.body).back(), "/response");
  CHECK(pointer(response, "/output/2/arguments") == R"("{\"city\": \"Oslo\"}")");
  CHECK(pointer(response, "/usage/output_tokens_details/reasoning_tokens") != "0");
}

TEST_CASE("log-probabilities stand beside the text that they are of", "[server][responses]") {
  TestServerOptions options = answering("one two");
  TestServer server(std::move(options));
  const auto reply = post(server.port(), kPath,
                          body(R"("include":["message.output_text.logprobs"],"top_logprobs":2)"));
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/output/0/content/0/logprobs/0/token") != "absent");
  CHECK(pointer(reply.body, "/output/0/content/0/logprobs/0/top_logprobs") != "absent");
}

TEST_CASE("an engine that fails: a status before the stream", "[server][responses]") {
  TestServerOptions options;
  options.engine.rejects = [](const AddRequest&) { return true; };
  TestServer server(std::move(options));
  for (const char* stream : {"false", "true"}) {
    const auto reply = post(server.port(), kPath, body("\"stream\":" + std::string(stream)));
    CHECK(reply.status == 500);
    CHECK(pointer(reply.body, "/error/type") == "\"InternalServerError\"");
  }
}

TEST_CASE("an engine that dies within a stream fails the response", "[server][responses]") {
  TestServerOptions options;
  options.engine.next_token = [](const AddRequest&, int) { return 300; };
  options.engine.step_time = std::chrono::milliseconds(2);
  options.engine.dies_after_steps = 20;
  TestServer server(std::move(options));
  const auto reply = post(server.port(), kPath, body(R"("stream":true)"));
  CHECK(reply.status == 200);
  const auto events = events_of(reply.body);
  REQUIRE(events.size() >= 3);
  CHECK(types_of(reply.body).back() == "\"response.failed\"");
  const std::string& last = events.back();
  CHECK(pointer(last, "/response/status") == "\"failed\"");
  CHECK(pointer(last, "/response/error/code") == "\"server_error\"");
}

TEST_CASE("items of a response reach the template as a chat's messages do", "[server][responses]") {
  const std::string tail = R"("temperature":0})";
  const auto response = prompt_of(
      kPath,
      R"({"instructions":"Be brief.","max_output_tokens":2,"input":[)"
      R"({"role":"user","content":"What time is it?"},)"
      R"({"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm"}]},)"
      R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"Wait.","annotations":[]}]},)"
      R"({"type":"function_call","call_id":"t1","name":"get_time","arguments":"{\"city\":\"Oslo\"}"},)"
      R"({"type":"function_call_output","call_id":"t1","output":"noon"},)"
      R"({"role":"user","content":[{"type":"input_text","text":"So?"}]}],)" +
          kTools + "," + tail);
  const auto chat = prompt_of(
      "/v1/chat/completions",
      R"({"max_tokens":2,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"What time is it?"},)"
      R"({"role":"assistant","content":"Wait.","reasoning":"Hm","tool_calls":[{"id":"t1","function":{"name":"get_time","arguments":"{\"city\":\"Oslo\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"t1","content":"noon"},{"role":"user","content":"So?"}],)"
      R"("tools":[{"type":"function","function":{"name":"get_time","parameters":)"
      R"({"type":"object","properties":{"city":{"type":"string"}}}}}],)" +
          tail);
  CHECK(tiny_tokenizer().decode(response, false) == tiny_tokenizer().decode(chat, false));
}

TEST_CASE("a stored response can be got, gone on from and deleted", "[server][responses]") {
  std::vector<std::string> prompts;
  std::mutex mutex;
  TestServerOptions options = answering("<think>Hm.</think>Nineteen.");
  options.engine.rejects = [&](const AddRequest& add) {
    const std::scoped_lock lock(mutex);
    prompts.push_back(tiny_tokenizer().decode(add.prompt, false));
    return false;
  };
  TestServer server(std::move(options));
  const auto first = post(server.port(), kPath, body(R"("instructions":"Be brief.")"));
  const std::string id = unquoted(pointer(first.body, "/id"));
  const auto again = get(server.port(), "/v1/responses/" + id);
  CHECK(again.status == 200);
  CHECK(again.body == first.body);

  const auto next = post(server.port(), kPath,
                         R"({"input":"Are you sure?","previous_response_id":")" + id + "\"}");
  REQUIRE(next.status == 200);
  CHECK(pointer(next.body, "/previous_response_id") == '"' + id + '"');
  CHECK(prompts.back() ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nNineteen.<|im_end|>\n"
        "<|im_start|>user\nAre you sure?<|im_end|>\n<|im_start|>assistant\n");

  HttpClient client(server.port());
  client.send("DELETE /v1/responses/" + id + " HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto deleted = client.receive();
  REQUIRE(deleted);
  CHECK(deleted->status == 200);
  CHECK(pointer(deleted->body, "/deleted") == "true");
  CHECK(get(server.port(), "/v1/responses/" + id).status == 404);
  const auto lost =
      post(server.port(), kPath, R"({"input":"Hi","previous_response_id":")" + id + "\"}");
  CHECK(lost.status == 404);
  CHECK(pointer(lost.body, "/error/param") == "\"previous_response_id\"");

  const auto unstored = post(server.port(), kPath, body(R"("store":false)"));
  CHECK(get(server.port(), "/v1/responses/" + unquoted(pointer(unstored.body, "/id"))).status ==
        404);
}

TEST_CASE("a request id that comes twice replaces no stored response", "[server][responses]") {
  TestServer server(answering("Yes."));
  const auto id_of = [&] {
    const auto reply = post(server.port(), kPath, body(), "X-Request-Id: twice\r\n");
    return unquoted(pointer(reply.body, "/id"));
  };
  const std::string first = id_of(), second = id_of();
  CHECK(first == "resp_twice");
  CHECK(second.starts_with("resp_twice-"));
  for (const std::string& id : {first, second}) {
    const auto stored = get(server.port(), "/v1/responses/" + id);
    CHECK(unquoted(pointer(stored.body, "/id")) == id);
  }
}

TEST_CASE("the oldest responses give way, and keys do not see each other's",
          "[server][responses]") {
  TestServerOptions options = answering("Yes.");
  options.config.stored_responses.count = 2;
  options.config.api_keys = {"one", "two"};
  TestServer server(std::move(options));
  const auto make = [&](const std::string& id) {
    return post(server.port(), kPath, body(), "X-Api-Key: one\r\nX-Request-Id: " + id + "\r\n")
        .status;
  };
  const auto status = [&](const std::string& id, const std::string& key) {
    return get(server.port(), "/v1/responses/resp_" + id, "X-Api-Key: " + key + "\r\n").status;
  };
  for (const char* id : {"a", "b", "c"}) REQUIRE(make(id) == 200);
  CHECK(status("a", "one") == 404);
  CHECK(status("b", "one") == 200);
  CHECK(status("c", "one") == 200);
  CHECK(status("c", "two") == 404);
  CHECK(status("c", "none") == 401);
}

TEST_CASE("what a response request gets wrong is named", "[server][responses]") {
  struct Case {
    std::string json, param, says;
  };
  const auto with = [](const std::string& input) { return R"({"input":)" + input + "}"; };
  const std::vector<Case> cases = {
      {"{}", "input", "is missing"},
      {with("7"), "input", "expected a string or an array of items"},
      {with("[]"), "input", "must not be empty"},
      {with(R"([{"type":"web_search_call"}])"), "input[0].type", "web_search_call"},
      {with(R"([{"type":"item_reference","id":"x"}])"), "input[0].type", "item_reference"},
      {with(R"([{"role":"user"}])"), "input[0]", "content is missing"},
      {with(R"([{"content":"x"}])"), "input[0]", "role is missing"},
      {with(R"([{"role":"tool","content":"x"}])"), "input[0].role", "function_call_output"},
      {with(R"([{"role":"user","content":[{"type":"input_image"}]}])"), "input[0].content[0].type",
       "input_image"},
      {with(R"([{"type":"function_call","name":"a","arguments":"{}"}])"), "input[0]",
       "call_id is missing"},
      {with(R"([{"type":"function_call","call_id":"a","name":"a","arguments":{}}])"),
       "input[0].arguments", "expected a string"},
      {with(R"([{"type":"function_call_output","call_id":"a"}])"), "input[0]", "output is missing"},
      {body(R"("tools":[{"type":"local_shell"}])"), "/tools/0/type", "local_shell"},
      {body(R"("tools":[{"type":"function"}])"), "/tools/0", "name is missing"},
      {body(kTools + R"(,"tool_choice":{"type":"function","name":"x"})"), "/tool_choice/name",
       "is none of the tools"},
      {body(R"("tool_choice":"required")"), "tool_choice", "only allowed when tools are given"},
      {body(kTools + R"(,"tool_choice":"some")"), "tool_choice", "must be auto"},
      {body(R"("text":{"format":{"type":"xml"}})"), "/text/format/type", "must be"},
      {body(R"("text":{"format":{"type":"json_schema","name":"a"}})"), "/text/format",
       "schema is missing"},
      {body(R"("include":["file_search_call.results"])"), "include", "file_search_call.results"},
      {body(R"("truncation":"auto")"), "truncation", "must be disabled"},
      {body(R"("background":true)"), "background", "is not supported"},
      {body(R"("conversation":"c")"), "conversation", "is not supported"},
      {body(R"("prompt":{"id":"p"})"), "prompt", "is not supported"},
      {body(R"("n":2)"), "n", "is not supported"},
      {body(R"("vllm_xargs":{"a":1})"), "vllm_xargs", "is not supported"},
      {body(R"("previous_input_messages":[{}])"), "previous_input_messages", "is not supported"},
      {body(R"("logit_bias":{"x":1})"), "logit_bias", "is not a token id"},
      {body(R"("stop_token_ids":["x"])"), "stop_token_ids[0]", "expected an integer"},
      {R"({"input":[{"role":"user","content":"a"},{"type":"reasoning","status":"incomplete","summary":[]}]})",
       "input[1].status", "cannot be continued"},
      {body(R"("max_output_tokens":0)"), "max_output_tokens", "must be at least 1"},
      {body(R"("max_output_tokens":"many")"), "max_output_tokens", "expected an integer"},
      {body(R"("top_logprobs":21)"), "top_logprobs", "between 0 and 20"},
      {body(R"("store":"yes")"), "store", "expected a boolean"},
      {body(R"("metadata":[])"), "metadata", "expected an object"},
      {body(R"("instructions":["x"])"), "instructions", "expected a string"},
  };
  TestServer server;
  for (const Case& c : cases) {
    INFO(c.json);
    const auto reply = post(server.port(), kPath, c.json);
    INFO(reply.body);
    CHECK(reply.status == 400);
    CHECK(pointer(reply.body, "/error/param") == '"' + c.param + '"');
    CHECK(reply.body.find(c.says) != std::string::npos);
  }
}

TEST_CASE("a path with several methods says all of them", "[server][responses]") {
  TestServer server;
  const auto reply = post(server.port(), "/v1/responses/x", "{}");
  CHECK(reply.status == 405);
  CHECK(reply.headers.at("allow") == "GET, HEAD, DELETE, OPTIONS");
}
