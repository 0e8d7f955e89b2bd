#pragma once
// Stands between two ends of Mooncake's protocols: bootstrap, asks, handshake and bytes. Each leads
// to the next, of which the relay says its own ports.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "tests/engine/kv_transfer/faulty_relay.h"

namespace quire::test {

enum class MooncakeLeg : std::uint8_t {
  bootstrap,  // who decodes asks where the ranks are
  asks,       // ZeroMQ: who decodes asks for a prefill
  hello,      // who prefills asks where bytes go
  data,
};
inline constexpr int kNumMooncakeLegs = 4;

struct MooncakeFault {
  MooncakeLeg leg = MooncakeLeg::bootstrap;
  FaultPlan plan = {};
};

// By the seed, of so many writes.
MooncakeFault any_mooncake_fault(std::uint64_t seed, int num_writes);

class MooncakeRelay {
 public:
  MooncakeRelay(std::uint16_t bootstrap, MooncakeFault fault);
  ~MooncakeRelay();
  MooncakeRelay(const MooncakeRelay&) = delete;
  MooncakeRelay& operator=(const MooncakeRelay&) = delete;

  std::uint16_t port() const { return port_; }  // of the bootstrap server
  bool has_struck();

 private:
  std::uint16_t way_to(MooncakeLeg leg, std::uint16_t target);
  NextFrame frames_of(MooncakeLeg leg);

  const MooncakeFault fault_;
  std::mutex mutex_;
  std::array<std::unique_ptr<FaultyRelay>, kNumMooncakeLegs> legs_;  // made as they are needed
  std::uint16_t port_ = 0;
};

}  // namespace quire::test
