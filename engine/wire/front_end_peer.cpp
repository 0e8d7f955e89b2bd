#include "engine/wire/front_end_peer.h"

#include "engine/wire/encoding.h"
#include "engine/wire/pieces.h"

namespace quire {
namespace {

constexpr int kSlotShift = 48;
constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kSlotShift) - 1;
constexpr RequestId kTaken{~std::uint64_t{0}};

std::uint64_t slot_of(RequestId id) { return id.value >> kSlotShift; }
RequestId outside(RequestId id) { return RequestId{id.value & kNumberMask}; }

}  // namespace

FrontEndPeer::FrontEndPeer(WireConnection connection, std::uint64_t slot)
    : connection(std::move(connection)), slot(slot) {}

void FrontEndPeer::queue(EngineEvent event) {
  if (auto* step = std::get_if<StepOutput>(&event)) {
    for (const std::string& frame : encode_in_pieces(std::move(*step), connection.opened_at()))
      connection.queue(frame);
  } else {
    connection.queue(encode(event, connection.opened_at()));
  }
}

RequestId FrontEndPeer::inside(RequestId id) const {
  return RequestId{(id.value & kNumberMask) | slot << kSlotShift};
}

RequestId FrontEndPeer::begin(const AddRequest& request) {
  const RequestId id = inside(request.id);
  live_.insert(id.value);
  return id;
}

std::optional<RequestId> FrontEndPeer::end(const AbortRequest& request) {
  const RequestId id = inside(request.id);
  if (live_.erase(id.value) == 0) return std::nullopt;
  return id;
}

void FrontEndPeer::publish(StepOutput& step, std::size_t max_events) {
  StepOutput own;
  own.time = step.time;
  own.stats = step.stats;
  for (const TokenOutput& output : step.tokens) {
    if (slot_of(output.id) == slot) own.tokens.push_back({outside(output.id), output.token});
  }
  for (RequestOutput& output : step.requests) {
    if (slot_of(output.id) != slot) continue;
    if (output.finish_reason) num_ends_ += live_.erase(output.id.value);
    const RequestId id = outside(output.id);
    output.id = kTaken;
    own.requests.push_back(std::move(output));
    own.requests.back().id = id;
  }
  for (Decision decision : step.decisions) {
    if (slot_of(decision.request) != slot) continue;
    decision.request = outside(decision.request);
    own.decisions.push_back(decision);
  }
  if (outbox_.size() >= max_events && std::holds_alternative<StepOutput>(outbox_.back())) {
    merge(std::get<StepOutput>(outbox_.back()), std::move(own));
  } else {
    outbox_.emplace_back(std::move(own));
  }
}

void FrontEndPeer::publish(BlockReport report) {
  for (BlockHolder& one : report.requests)
    one.request = slot_of(one.request) == slot ? outside(one.request) : RequestId();
  outbox_.emplace_back(std::move(report));
}

}  // namespace quire
