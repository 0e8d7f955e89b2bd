#include "backend/memory.h"

#include <cassert>
#include <string>

#include "base/error.h"

namespace quire {
namespace {

#ifdef NDEBUG
constexpr bool kLateIsError = false;
#else
constexpr bool kLateIsError = true;
#endif

}  // namespace

std::string_view name_of(MemoryPurpose purpose) {
  static constexpr std::array<std::string_view, kNumMemoryPurposes> kNames = {
      "weights",  "kv_cache", "activations", "logits",      "block_tables", "step_inputs",
      "sampling", "kernels",  "graphs",      "kv_transfer", "kv_offload", "other"};
  return kNames[static_cast<std::size_t>(purpose)];
}

MemoryUse MemoryUses::total() const {
  MemoryUse sum;
  for (const MemoryUse& use : uses_) {
    sum.device += use.device;
    sum.pinned += use.pinned;
  }
  return sum;
}

MemoryUses& MemoryUses::operator+=(const MemoryUses& other) {
  for (std::size_t i = 0; i < kNumMemoryPurposes; ++i) {
    uses_[i].device += other.uses_[i].device;
    uses_[i].pinned += other.uses_[i].pinned;
  }
  return *this;
}

std::size_t& MemoryLedger::cell(MemoryPurpose purpose, MemoryKind kind) {
  MemoryUse& use = uses_[purpose];
  return kind == MemoryKind::device ? use.device : use.pinned;
}

void MemoryLedger::add(MemoryPurpose purpose, MemoryKind kind, std::size_t bytes) {
  if (sealed_) {
    ++num_late_;
    if (kLateIsError) {
      throw Failure(ErrorCode::internal, std::to_string(bytes) + " bytes allocated for " +
                                             std::string(name_of(purpose)) + " after start-up");
    }
  }
  cell(purpose, kind) += bytes;
}

void MemoryLedger::remove(MemoryPurpose purpose, MemoryKind kind, std::size_t bytes) {
  assert(cell(purpose, kind) >= bytes);
  cell(purpose, kind) -= bytes;
}

}  // namespace quire
