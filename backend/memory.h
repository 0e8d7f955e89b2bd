#pragma once
// What a device's memory is used for. Every allocation names its purpose, so that the plan can be
// compared with what was allocated, purpose by purpose. Nothing is allocated after start-up.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quire {

enum class MemoryPurpose : std::uint8_t {
  weights,       // and tables made of them, such as rope's; not what stays in a mapped file
  kv_cache,      // blocks and recurrent states
  activations,   // of the largest step
  logits,        // and the copy that log-probabilities are computed from
  block_tables,  // of all requests that may run
  step_inputs,   // what the host sends each step, and the tokens that come back
  sampling,      // parameters, edits of logits, log-probabilities
  kernels,       // scratch that operators keep to themselves
  graphs,        // recorded steps; the driver decides how much
  kv_transfer,   // keys and values on their way from or to another engine
  kv_offload,    // blocks that the cache had to give up, on the host
  other,         // tests and benchmarks; start-up plans none
};
inline constexpr std::size_t kNumMemoryPurposes = 12;

std::string_view name_of(MemoryPurpose purpose);

enum class MemoryKind : std::uint8_t { device, pinned };

struct MemoryUse {
  std::size_t device = 0;  // bytes
  std::size_t pinned = 0;  // bytes of the host's, for copies
  bool operator==(const MemoryUse&) const = default;
};

class MemoryUses {
 public:
  MemoryUse& operator[](MemoryPurpose p) { return uses_[static_cast<std::size_t>(p)]; }
  const MemoryUse& operator[](MemoryPurpose p) const { return uses_[static_cast<std::size_t>(p)]; }
  MemoryUse total() const;
  MemoryUses& operator+=(const MemoryUses& other);
  bool operator==(const MemoryUses&) const = default;

 private:
  std::array<MemoryUse, kNumMemoryPurposes> uses_{};
};

// A device's account of what is allocated now. One thread.
class MemoryLedger {
 public:
  // After seal(): throws Failure in a debug build, else counts.
  void add(MemoryPurpose purpose, MemoryKind kind, std::size_t bytes);
  void remove(MemoryPurpose purpose, MemoryKind kind, std::size_t bytes);
  const MemoryUses& uses() const { return uses_; }

  // Start-up is over: a step allocates nothing.
  void seal() { sealed_ = true; }
  std::int64_t num_late() const { return num_late_; }  // allocations since

 private:
  std::size_t& cell(MemoryPurpose purpose, MemoryKind kind);

  MemoryUses uses_;
  bool sealed_ = false;
  std::int64_t num_late_ = 0;
};

}  // namespace quire
