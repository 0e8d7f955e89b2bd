#pragma once
// Outputs that one message could not carry: log-probabilities of a long prompt, or of all that a
// front end missed while it was stopped. Cut before encoding, joined after decoding, so that
// neither end knows.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/wire/messages.h"

namespace quire {

inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // about, of a message

// The step's frames: itself last, before it pieces of outputs that would take more than
// piece_bytes.
std::vector<std::string> encode_in_pieces(StepOutput&& step, Clock::time_point origin,
                                          std::size_t piece_bytes = kPieceBytes);

// Of one connection: decodes events, and keeps pieces until the step comes that they are of.
class PieceJoiner {
 public:
  // nullopt: a piece, or a kind of message that this version does not know.
  Result<std::optional<EngineEvent>> decode(std::string_view frame, Clock::time_point origin);

 private:
  void join(StepOutput& step);
  std::unordered_map<RequestId, RequestOutput> begun_;
};

}  // namespace quire
