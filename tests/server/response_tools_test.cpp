// The tools of OpenAI's Responses API that are more than functions.

#include <catch2/catch.hpp>

#include "tests/server/responses_requests.h"
#include "tests/support/json_pointer.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kPath = kResponsesPath;

const std::string kMore =
    R"("tools":[{"type":"custom","name":"apply_patch","description":"Edits.","format":{"type":"grammar","syntax":"lark","definition":"start: LINE"}},)"
    R"({"type":"namespace","name":"mcp__disk","description":"d","tools":[{"type":"function","name":"list","parameters":{"type":"object"}}]},)"
    R"({"type":"web_search","external_web_access":false},{"type":"image_generation","output_format":"png"}])";

std::string call_of(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}

std::string text_of(const std::vector<TokenId>& prompt) {
  return tiny_tokenizer().decode(prompt, false);
}

}  // namespace

TEST_CASE("a custom tool is called with a text", "[server][responses]") {
  TestServer server(answering(call_of("apply_patch", R"({"input": "*** Begin\n+\"a\""})")));
  const auto reply = post(server.port(), kPath, body(kMore));
  INFO(reply.body);
  CHECK(pointer(reply.body, "/output/0/type") == "\"custom_tool_call\"");
  CHECK(pointer(reply.body, "/output/0/name") == "\"apply_patch\"");
  CHECK(pointer(reply.body, "/output/0/input") == R"("*** Begin\n+\"a\"")");
  CHECK(pointer(reply.body, "/output/0/id").starts_with("\"ctc_"));

  std::vector<std::string> types;
  const auto stream = post(server.port(), kPath, body(kMore + R"(,"stream":true)"));
  for (const auto& event : events_of(stream.body)) {
    const std::string type = pointer(event, "/type");
    if (type.find("custom") == type.npos) continue;
    types.push_back(type);
    CHECK(pointer(event, type.ends_with("done\"") ? "/input" : "/delta") ==
          R"("*** Begin\n+\"a\"")");
  }
  CHECK(types == std::vector<std::string>{"\"response.custom_tool_call_input.delta\"",
                                          "\"response.custom_tool_call_input.done\""});
}

TEST_CASE("what a model wrote instead of a custom tool's text is passed on",
          "[server][responses]") {
  TestServer server(answering(call_of("apply_patch", R"({"patch": 1})")));
  const auto reply = post(server.port(), kPath, body(kMore));
  CHECK(pointer(reply.body, "/output/0/input") == R"("{\"patch\": 1}")");
}

TEST_CASE("a function of a namespace is named by both", "[server][responses]") {
  TestServer server(answering(call_of("mcp__disk__list", "{}")));
  const auto reply = post(server.port(), kPath, body(kMore));
  INFO(reply.body);
  CHECK(pointer(reply.body, "/output/0/type") == "\"function_call\"");
  CHECK(pointer(reply.body, "/output/0/name") == "\"list\"");
  CHECK(pointer(reply.body, "/output/0/namespace") == "\"mcp__disk\"");
  for (const char* choice :
       {R"({"type":"function","name":"list"})", R"({"type":"custom","name":"apply_patch"})"}) {
    CHECK(post(server.port(), kPath, body(kMore + R"(,"tool_choice":)" + choice)).status == 200);
  }
}

TEST_CASE("the model is shown functions alone", "[server][responses]") {
  const std::string prompt = text_of(prompt_of(kPath, body(kMore)));
  CHECK(prompt.find("apply_patch") != prompt.npos);
  CHECK(prompt.find("The input follows this lark grammar:") != prompt.npos);
  CHECK(prompt.find("mcp__disk__list") != prompt.npos);
  CHECK(prompt.find("web_search") == prompt.npos);
  CHECK(prompt.find("image_generation") == prompt.npos);
}

TEST_CASE("calls of such tools go back into the prompt as the model wrote them",
          "[server][responses]") {
  const auto of = [](const std::string& calls, const std::string& output) {
    return text_of(prompt_of(kPath, R"({"input":[{"role":"user","content":"Hi"},)" + calls +
                                        R"(,{"type":")" + output +
                                        R"(","call_id":"c","output":"done"}]})"));
  };
  CHECK(
      of(R"({"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"a\"b"})",
         "custom_tool_call_output") ==
      of(R"({"type":"function_call","call_id":"c","name":"apply_patch","arguments":"{\"input\":\"a\\\"b\"}"})",
         "function_call_output"));
  CHECK(of(R"({"type":"function_call","call_id":"c","namespace":"n","name":"f","arguments":"{}"})",
           "function_call_output") ==
        of(R"({"type":"function_call","call_id":"c","name":"n__f","arguments":"{}"})",
           "function_call_output"));
}

TEST_CASE("a stored call of a custom tool is gone on from", "[server][responses]") {
  TestServer server(answering(call_of("apply_patch", R"({"input": "a"})")));
  const auto first = post(server.port(), kPath, body(kMore));
  const auto second = post(
      server.port(), kPath,
      R"({"input":[{"type":"custom_tool_call_output","call_id":"c","output":"done"}],"previous_response_id":)" +
          pointer(first.body, "/id") + "}");
  INFO(second.body);
  CHECK(second.status == 200);
}

TEST_CASE("tools that nobody here can run are named", "[server][responses]") {
  TestServer server;
  struct Case {
    std::string tools, place, says;
  };
  for (const Case& one : std::vector<Case>{
           {R"([{"type":"local_shell"}])", "/tools/0/type", "local_shell"},
           {R"([{"type":"file_search","vector_store_ids":[]}])", "/tools/0/type", "file_search"},
           {R"([{"type":"custom"}])", "/tools/0", "name is missing"},
           {R"([{"type":"custom","name":"a","format":{"type":"xml"}}])", "/tools/0/format/type",
            "text or grammar"},
           {R"([{"type":"custom","name":"a","format":{"type":"grammar"}}])", "/tools/0/format",
            "syntax is missing"},
           {R"([{"type":"namespace","name":"a"}])", "/tools/0", "tools is missing"},
           {R"([{"type":"namespace","name":"a","tools":[{"type":"web_search"}]}])",
            "/tools/0/tools/0/type", "function or custom"},
           {R"([{"type":"custom","name":"a"},{"type":"function","name":"a"}])", "/tools/1/name",
            "earlier function"},
           {R"([{"type":"web_search"}],"tool_choice":"required")", "tool_choice",
            "only allowed when tools are given"},
           {R"([{"type":"web_search"}],"tool_choice":{"type":"web_search"})", "/tool_choice/type",
            "function, custom or allowed_tools"}}) {
    const auto reply = post(server.port(), kPath, body("\"tools\":" + one.tools));
    INFO(one.tools << " " << reply.body);
    CHECK(reply.status == 400);
    CHECK(reply.body.find(one.place) != reply.body.npos);
    CHECK(reply.body.find(one.says) != reply.body.npos);
  }
}
