#include "tests/engine/scheduler/scripted_connector.h"

namespace quire::test {

std::optional<ExternalMatch> ScriptedConnector::match(const Request& request, int num_computed) {
  ++num_matched_calls;
  const auto script = scripts.find(request.id());
  if (script == scripts.end() || loads_[request.id()] >= script->second.num_loads)
    return ExternalMatch{};
  if (step < script->second.unknown_until) return std::nullopt;
  const int beyond = script->second.num_external - num_computed;
  if (beyond <= 0) return ExternalMatch{};
  return ExternalMatch{beyond, script->second.async};
}

void ScriptedConnector::allocated(const Request& request,
                                  const std::vector<std::span<const BlockId>>&, int num_external) {
  if (num_external > 0) ++loads_[request.id()];
}

ReleaseDecision ScriptedConnector::finished(const Request& request,
                                            const std::vector<std::span<const BlockId>>&) {
  const auto script = scripts.find(request.id());
  const bool keep = script != scripts.end() && script->second.keep_at_end &&
                    request.finish_reason == FinishReason::length;
  return {keep, keep ? "{}" : ""};
}

}  // namespace quire::test
