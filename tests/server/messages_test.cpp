// Anthropic's Messages API over HTTP.

#include <catch2/catch.hpp>
#include <future>

#include "openapi/dto_json.h"
#include "tests/support/http_client.h"
#include "tests/support/json_pointer.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kPath = "/v1/messages";

std::string body(const std::string& more = {}) {
  return R"({"model":"tiny","max_tokens":64,"messages":[{"role":"user","content":"Hi"}])" +
         (more.empty() ? "" : "," + more) + "}";
}

const std::string kTools =
    R"("tools":[{"name":"get_time","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}}])";
const std::string kCall =
    "Let me see.<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": "
    "\"Oslo\"}}\n</tool_call>";

// The names of the events, each once where it comes several times in a row.
std::string names_of(const std::string& stream) {
  std::string names, last;
  for (std::size_t at = 0; (at = stream.find("event: ", at)) != std::string::npos; ++at) {
    const std::string name = stream.substr(at + 7, stream.find('\n', at) - at - 7);
    if (name != last) names += (names.empty() ? "" : " ") + name;
    last = name;
  }
  return names;
}

std::string joined(const std::string& stream, const std::string& path) {
  std::string text;
  for (const auto& event : events_of(stream)) {
    const std::string piece = pointer(event, path);
    if (piece.size() > 1 && piece.front() == '"') text += piece.substr(1, piece.size() - 2);
  }
  return text;
}

}  // namespace

TEST_CASE("a message has its shape, its text and its usage", "[server][messages]") {
  TestServer server(answering("The answer is 19."));
  const auto reply = post(server.port(), kPath, body(), "X-Request-Id: abc\r\n");
  REQUIRE(reply.status == 200);
  CHECK(reply.headers.at("request-id") == "abc");
  CHECK(pointer(reply.body, "/id") == "\"msg_abc\"");
  CHECK(pointer(reply.body, "/type") == "\"message\"");
  CHECK(pointer(reply.body, "/role") == "\"assistant\"");
  CHECK(pointer(reply.body, "/model") == "\"tiny\"");
  CHECK(pointer(reply.body, "/content/0/type") == "\"text\"");
  CHECK(pointer(reply.body, "/content/0/text") == "\"The answer is 19.\"");
  CHECK(pointer(reply.body, "/stop_reason") == "\"end_turn\"");
  CHECK(pointer(reply.body, "/stop_sequence") == "null");
  const auto answer = tiny_tokenizer().encode("The answer is 19.", false).size() + 1;
  CHECK(pointer(reply.body, "/usage/output_tokens") == std::to_string(answer));
  const auto count = post(server.port(), "/v1/messages/count_tokens",
                          R"({"model":"tiny","messages":[{"role":"user","content":"Hi"}]})");
  REQUIRE(count.status == 200);
  CHECK(pointer(count.body, "/input_tokens") == pointer(reply.body, "/usage/input_tokens"));
}

TEST_CASE("why a message ended is said in Anthropic's words", "[server][messages]") {
  TestServer server(answering("one two three four"));
  const auto stopped = post(server.port(), kPath, body(R"("stop_sequences":["three"])"));
  CHECK(pointer(stopped.body, "/stop_reason") == "\"stop_sequence\"");
  CHECK(pointer(stopped.body, "/stop_sequence") == "\"three\"");
  CHECK(pointer(stopped.body, "/content/0/text") == "\"one two \"");
  const auto cut =
      post(server.port(), kPath, R"({"max_tokens":1,"messages":[{"role":"user","content":"Hi"}]})");
  CHECK(pointer(cut.body, "/stop_reason") == "\"max_tokens\"");
}

TEST_CASE("a call is a block of its own, thoughts are another", "[server][messages]") {
  TestServer server(answering("<think>Hm.</think>" + kCall));
  const auto reply = post(server.port(), kPath, body(kTools));
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/content/0/type") == "\"thinking\"");
  CHECK(pointer(reply.body, "/content/0/thinking") == "\"Hm.\"");
  CHECK(pointer(reply.body, "/content/1/text") == "\"Let me see.\"");
  CHECK(pointer(reply.body, "/content/2/type") == "\"tool_use\"");
  CHECK(pointer(reply.body, "/content/2/name") == "\"get_time\"");
  CHECK(pointer(reply.body, "/content/2/input/city") == "\"Oslo\"");
  CHECK(pointer(reply.body, "/stop_reason") == "\"tool_use\"");
  const auto hidden = post(server.port(), kPath,
                           body(kTools + R"(,"thinking":{"type":"adaptive","display":"omitted"})"));
  CHECK(pointer(hidden.body, "/content/0/type") == "\"text\"");
}

TEST_CASE("a call that breaks off has an empty input and says why", "[server][messages]") {
  TestServer server(answering(kCall));
  const auto ids = tiny_tokenizer().encode(kCall, false).size();
  const auto reply = post(server.port(), kPath,
                          R"({"max_tokens":)" + std::to_string(ids - 6) +
                              R"(,"messages":[{"role":"user","content":"Hi"}],)" + kTools + "}");
  CHECK(pointer(reply.body, "/stop_reason") == "\"max_tokens\"");
  CHECK(pointer(reply.body, "/content/1/input") == "{}");
}

TEST_CASE("a streamed message is a row of blocks", "[server][messages][stream]") {
  TestServer server(answering("<think>Hm.</think>" + kCall));
  const auto reply = post(server.port(), kPath, body(kTools + R"(,"stream":true)"));
  REQUIRE(reply.status == 200);
  CHECK(reply.headers.at("content-type") == "text/event-stream; charset=utf-8");
  const std::string block = "content_block_start content_block_delta content_block_stop";
  CHECK(names_of(reply.body) ==
        "message_start ping " + block + ' ' + block + ' ' + block + " message_delta message_stop");
  CHECK(joined(reply.body, "/delta/thinking") == "Hm.");
  CHECK(joined(reply.body, "/delta/text") == "Let me see.");
  CHECK(joined(reply.body, "/delta/partial_json") == R"({\"city\": \"Oslo\"})");
  CHECK(joined(reply.body, "/content_block/name") == "get_time");
  CHECK(joined(reply.body, "/delta/stop_reason") == "tool_use");
  CHECK(reply.body.find("[DONE]") == std::string::npos);
  for (const auto& event : events_of(reply.body)) {
    const std::string type = pointer(event, "/type");
    CHECK(reply.body.find("event: " + type.substr(1, type.size() - 2) + "\ndata: " + event) !=
          std::string::npos);
  }
}

TEST_CASE("thoughts that are left out end no stream", "[server][messages][stream]") {
  const std::string thoughts = "<think>One thing after the other, and none of it is shown.</think>";
  TestServer server(answering(thoughts + "Yes."));
  HttpClient client(server.port());
  for (int i = 0; i < 8;
       ++i) {  // what nobody writes is flushed before or behind what somebody does
    client.send(post_request(
        kPath, body(R"("stream":true,"thinking":{"type":"adaptive","display":"omitted"})")));
    const auto reply = client.receive();
    REQUIRE(reply);
    CHECK(reply->status == 200);
    CHECK(joined(reply->body, "/delta/text") == "Yes.");
    CHECK(reply->body.find("message_stop") != std::string::npos);
  }
}

TEST_CASE("the connection of a streamed message carries another request",
          "[server][messages][stream]") {
  TestServer server(answering("Yes."));
  HttpClient client(server.port());
  for (int i = 0; i < 2; ++i) {
    client.send(post_request(kPath, body(R"("stream":true)")));
    const auto reply = client.receive();
    REQUIRE(reply);
    CHECK(reply->status == 200);
    CHECK(joined(reply->body, "/delta/text") == "Yes.");
  }
}

TEST_CASE("an engine that fails is an error, before and within a stream", "[server][messages]") {
  TestServerOptions options = answering("one two three four five");
  options.engine.rejects = [](const AddRequest&) { return true; };
  TestServer server(std::move(options));
  for (const char* stream : {"false", "true"}) {
    const auto reply = post(server.port(), kPath, body("\"stream\":" + std::string(stream)));
    CHECK(reply.status == 500);
    CHECK(pointer(reply.body, "/type") == "\"error\"");
    CHECK(pointer(reply.body, "/error/type") == "\"api_error\"");
  }
}

TEST_CASE("turns, results and thoughts reach the template as a chat's do", "[server][messages]") {
  const auto prompt_of = [](const char* path, const std::string& json) {
    std::promise<AddRequest> seen;
    auto request = seen.get_future();
    TestServerOptions options;
    options.engine.rejects = [&seen](const AddRequest& add) {
      seen.set_value(add);
      return false;
    };
    TestServer server(std::move(options));
    const auto reply = post(server.port(), path, json);
    INFO(reply.body);
    REQUIRE(reply.status == 200);
    return request.get();
  };
  const std::string tail = R"("max_tokens":2,"temperature":0.5,"top_k":3,"top_p":0.75)";
  const AddRequest message = prompt_of(
      kPath,
      R"({"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":[)"
      R"({"role":"user","content":"What time"},{"role":"user","content":[{"type":"text","text":"is it?"}]},)"
      R"({"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"x"},{"type":"redacted_thinking","data":"Eu8"},{"type":"text","text":"Wait."},)"
      R"({"type":"tool_use","id":"t1","name":"get_time","input":{"city":"Oslo"}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"noon"}]},)"
      R"({"type":"tool_result","tool_use_id":"t2","is_error":true,"content":"lost"},{"type":"text","text":"So?"}]}],)" +
          kTools + "," + tail + "}");
  const AddRequest chat = prompt_of(
      "/v1/chat/completions",
      R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"What time\nis it?"},)"
      R"({"role":"assistant","content":"Wait.","reasoning":"Hm","tool_calls":[{"id":"t1","function":{"name":"get_time","arguments":"{\"city\":\"Oslo\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"t1","content":"noon"},{"role":"tool","tool_call_id":"t2","content":"Error: lost"},)"
      R"({"role":"user","content":"So?"}],"tools":[{"type":"function","function":{"name":"get_time","parameters":)"
      R"({"type":"object","properties":{"city":{"type":"string"}}}}}],)" +
          tail + "}");
  CHECK(message.prompt == chat.prompt);
  CHECK(message.sampling.temperature == 0.5f);
  CHECK(message.sampling.top_k == 3);
  CHECK(message.sampling.top_p == 0.75f);
  CHECK(message.sampling.max_tokens == 2);

  const AddRequest begun = prompt_of(
      kPath,
      R"({"max_tokens":2,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well, I"}]})");
  CHECK(tiny_tokenizer().decode(begun.prompt, false).ends_with("assistant\nWell, I"));
  const AddRequest thinking = prompt_of(
      kPath,
      R"({"max_tokens":2,"messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"enabled","budget_tokens":1}})");
  const AddRequest asked = prompt_of(
      "/v1/chat/completions",
      R"({"max_tokens":2,"messages":[{"role":"user","content":"Hi"}],"chat_template_kwargs":{"enable_thinking":true}})");
  CHECK(thinking.prompt == asked.prompt);
}

TEST_CASE("what a message request gets wrong is named, in Anthropic's form", "[server][messages]") {
  struct Case {
    std::string json, names;
  };
  const auto with = [](const std::string& content) {
    return R"({"max_tokens":2,"messages":[{"role":"user","content":)" + content + "}]}";
  };
  const std::vector<Case> cases = {
      {R"({"messages":[{"role":"user","content":"Hi"}]})", "max_tokens: is missing"},
      {R"({"max_tokens":2})", "messages: is missing"},
      {R"({"max_tokens":2,"messages":[]})", "messages: is missing"},
      {R"({"max_tokens":0,"messages":[{"role":"user","content":"Hi"}]})",
       "max_tokens must be at least 1"},
      {with("7"), "messages[0].content: expected a string or an array of blocks"},
      {with("[]"), "messages[0].content: must not be empty"},
      {with(R"([{"type":"image","source":{}}])"),
       "messages[0].content[0].type: \"image\" is not supported"},
      {with(R"([{"type":"tool_use","id":"a","name":"b","input":{}}])"),
       "messages[0].content[0].type: \"tool_use\""},
      {with(R"([{"text":"a"}])"), "messages[0].content[0]: type is missing"},
      {with(R"([{"type":"text"}])"), "messages[0].content[0]: text is missing"},
      {with(R"([{"type":"text","text":7}])"), "messages[0].content[0].text: expected a string"},
      {with(R"([{"type":"tool_result","content":"x"}])"),
       "messages[0].content[0]: tool_use_id is missing"},
      {with(R"([{"type":"tool_result","tool_use_id":"x","content":[{"type":"image"}]}])"),
       "messages[0].content[0].content[0].type: \"image\""},
      {R"({"max_tokens":2,"messages":[{"role":"tool","content":"Hi"}]})",
       "messages[0].role: \"tool\" is not a role"},
      {R"({"max_tokens":2,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":[]}]}]})",
       "messages[0].content[0].input: expected an object"},
      {body(R"("vllm_xargs":{"a":1})"), "vllm_xargs: is not supported"},
      {body(R"("system":7)"), "system: expected a string or an array of blocks"},
      {body(R"("stop_sequences":"x")"), "stop_sequences: expected an array of strings"},
      {body(R"("stop_sequences":[""])"), "stop_sequences: a stop string must not be empty"},
      {body(R"("tools":[{"type":"web_search_20250305","name":"web_search"}])"),
       "\"web_search_20250305\""},
      {body(R"("tools":[{"type":"web_search_20250305","name":"web_search"}])"),
       "is a tool that the service itself would have to run"},
      {body(R"("tools":[{"type":"computer_20250124","name":"computer"}])"), "shows pictures"},
      {body(R"("tools":[{"type":"bash_20990101","name":"bash"}])"), "of a date that is not known"},
      {body(R"("tools":[{"type":"bash_20250124","name":"sh"}])"),
       "must be \"bash\" for bash_20250124 (at /tools/0/name)"},
      {body(R"("tools":[{"name":"a"}])"), "input_schema is missing (at /tools/0)"},
      {body(R"("tools":[{"input_schema":{}}])"), "name is missing (at /tools/0)"},
      {body(kTools + R"(,"tool_choice":{"type":"tool","name":"other"})"),
       "\"other\" is none of the tools; they are get_time (at /tool_choice/name)"},
      {body(kTools + R"(,"tool_choice":{"type":"every"})"),
       "must be auto, any, tool or none (at /tool_choice/type)"},
      {body(R"("tool_choice":{"type":"any"})"), "only allowed when tools are given (at /tool_choice)"},
      {body(R"("thinking":{"type":"yes"})"),
       "thinking.type: must be enabled, adaptive or disabled"},
      {R"({"max_tokens":16,"messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"enabled","budget_tokens":16}})",
       "thinking.budget_tokens: must be less than max_tokens"},
      {body(R"("thinking":{"type":"enabled","budget_tokens":0})"),
       "thinking.budget_tokens: must be at least 1"},
      {body(R"("output_config":{"format":{"type":"xml"}})"),
       "must be json_schema (at /output_config/format/type)"},
      {body(R"("container":{"id":"x"})"), "container: is not supported by this server"},
      {body(R"("context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]})"),
       "context_management.edits[0].type: \"clear_tool_uses_20250919\""},
      {body(R"("mcp_servers":[{}])"), "mcp_servers: is not supported by this server"},
      {body(R"("metadata":7)"), "metadata: expected an object"},
      {body(R"("stream":"yes")"), "stream: expected a boolean"},
      {body(R"("temperature":-1)"), "temperature"},
      {R"({"max_tokens":2,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":)"
       R"([{"type":"tool_use","id":"a","name":"b","input":{}}]}]})",
       "messages: the last turn"},
      {"[]", "must be a JSON object"},
      {"{", "not valid JSON"},
  };
  TestServer server;
  for (const Case& c : cases) {
    INFO(c.json);
    const auto reply = post(server.port(), kPath, c.json);
    INFO(reply.body);
    CHECK(reply.status == 400);
    CHECK(pointer(reply.body, "/type") == "\"error\"");
    CHECK(pointer(reply.body, "/error/type") == "\"invalid_request_error\"");
    CHECK(pointer(reply.body, "/request_id").size() > 2);
    std::string escaped;
    for (const char ch : c.names) escaped += ch == '"' ? std::string("\\\"") : std::string(1, ch);
    CHECK(reply.body.find(escaped) != std::string::npos);
  }
}

TEST_CASE("context management that changes nothing may come", "[server][messages]") {
  TestServer server(answering("Yes."));
  CHECK(
      post(
          server.port(), kPath,
          body(
              R"("context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})"))
          .status == 200);
}

TEST_CASE("a body that is too large is refused in Anthropic's form", "[server][messages]") {
  TestServerOptions options;
  options.config.limits.body_bytes = 3000;
  TestServer server(std::move(options));
  const auto reply = post(server.port(), "/v1/messages", std::string(4000, ' '));
  CHECK(reply.status == 413);
  CHECK(pointer(reply.body, "/error/type") == "\"request_too_large\"");
  CHECK(pointer(post(server.port(), "/v1/chat/completions", std::string(4000, ' ')).body,
                "/error/code") == "413");
}

TEST_CASE("what a tool says beside its schema reaches the template", "[server][messages]") {
  TestServer server;
  const auto tokens = [&](const std::string& more) {
    const auto reply = post(server.port(), "/v1/messages/count_tokens",
                            R"({"messages":[{"role":"user","content":"Hi"}],"tools":[{"name":"f",)"
                            R"("input_schema":{"type":"object"})" + more + "}]}");
    INFO(reply.body);
    CHECK(reply.status == 200);
    return std::stoi(pointer(reply.body, "/input_tokens"));
  };
  const int bare = tokens("");
  CHECK(tokens(R"(,"defer_loading":true)") > bare);
  CHECK(tokens(R"(,"input_examples":[{"a":1}])") > bare);
  CHECK(tokens(R"(,"allowed_callers":["direct"])") == bare);
  const auto refused = post(
      server.port(), "/v1/messages/count_tokens",
      R"({"messages":[{"role":"user","content":"Hi"}],"tools":[{"name":"f","input_schema":{},"allowed_callers":["code_execution_20250825"]}]})");
  CHECK(refused.status == 400);
  CHECK(refused.body.find("allowed_callers") != std::string::npos);
}

TEST_CASE("tools that the client runs are functions with their schema", "[server][messages]") {
  for (const auto& [type, name] : {std::pair{"bash_20250124", "bash"},
                                   {"bash_20241022", "bash"},
                                   {"text_editor_20250124", "str_replace_editor"},
                                   {"text_editor_20250728", "str_replace_based_edit_tool"}}) {
    INFO(type);
    const auto chat = openapi::parse_messages(
        body(R"("tools":[{"type":")" + std::string(type) + R"(","name":")" + name + R"("}])"));
    REQUIRE(chat.has_value());
    CHECK(chat->tool_names.list() == std::vector<std::string>{name});
    const auto parameters = pointer(chat->tools, "/0/function/parameters/properties/command/type");
    CHECK(parameters == "\"string\"");
    const bool undoes = chat->tools.find("undo_edit") != std::string::npos;
    CHECK(undoes == (std::string_view(type) == "text_editor_20250124"));
  }
  // A call comes back under the tool's name, as any other.
  TestServer server(answering("<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>"));
  const auto reply = post(server.port(), kPath, body(R"("tools":[{"type":"bash_20250124","name":"bash"}])"));
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/content/0/type") == "\"tool_use\"");
  CHECK(pointer(reply.body, "/content/0/input/command") == "\"ls\"");
}

TEST_CASE("refusals below the handler have Anthropic's form too", "[server][messages]") {
  TestServerOptions options;
  options.config.api_keys = {"secret"};
  TestServer server(std::move(options));
  const auto keyless = post(server.port(), kPath, body());
  CHECK(keyless.status == 401);
  CHECK(pointer(keyless.body, "/error/type") == "\"authentication_error\"");
  CHECK(post(server.port(), kPath, body(), "X-Api-Key: secret\r\n").status == 200);
  const auto wrong = get(server.port(), kPath, "X-Api-Key: secret\r\n");
  CHECK(wrong.status == 405);
  CHECK(pointer(wrong.body, "/error/type") == "\"invalid_request_error\"");
  const auto unknown =
      post(server.port(), kPath,
           R"({"model":"claude","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]})",
           "X-Api-Key: secret\r\n");
  CHECK(unknown.status == 404);
  CHECK(pointer(unknown.body, "/error/type") == "\"not_found_error\"");
}
