#pragma once
// Requests to the Responses API, and what they lead to in the engine.

#include <future>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

namespace quire::test {

inline constexpr const char* kResponsesPath = "/v1/responses";

inline std::string body(const std::string& more = {}) {
  return R"({"model":"tiny","input":"Hi")" + (more.empty() ? "" : "," + more) + "}";
}

inline const std::string kTools =
    R"("tools":[{"type":"function","name":"get_time","parameters":{"type":"object","properties":{"city":{"type":"string"}}},"strict":false}])";
inline const std::string kCall =
    "Let me see.<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": "
    "\"Oslo\"}}\n</tool_call>";

// What the engine is asked for.
inline AddRequest request_of(const char* path, const std::string& json) {
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
}

inline std::vector<TokenId> prompt_of(const char* path, const std::string& json) {
  return request_of(path, json).prompt;
}

}  // namespace quire::test
