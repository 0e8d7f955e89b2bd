#pragma once
// Tools of Anthropic's Messages API that the client runs, and whose schema the service knows by their
// type: as functions; only openapi/*.cpp include it.

#include <optional>
#include <string>
#include <string_view>

namespace quire::openapi {

struct ClientTool {
  std::string_view name;  // that a request must give it
  std::string_view description;
  std::string schema;
};

// By its type, as "bash_20250124"; unset: not such a tool.
std::optional<ClientTool> find_client_tool(std::string_view type);

}  // namespace quire::openapi
