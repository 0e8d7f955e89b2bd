#pragma once
// Stands between two ends of a protocol and does to one frame what a line or a peer may do.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/wire/socket_address.h"

namespace quire::test {

enum class LineFault : std::uint8_t {
  none,
  drop,
  delay,
  corrupt,  // a bit, anywhere
  duplicate,
  swap,          // with the next frame
  cut,           // both ends lose the line
  cut_within,    // in the middle of the frame
  pause_within,  // its rest comes later
  stall,         // nothing more passes, and nobody is told
};
inline constexpr int kNumLineFaults = 10;

struct FaultPlan {
  LineFault fault = LineFault::none;
  bool towards_reader = true;
  int frame = 0;  // of that direction of the first connection, or of every one
  bool every_connection = false;
  std::uint64_t seed = 0;
};

// By the seed, of so many frames towards the reader.
FaultPlan any_fault(std::uint64_t seed, int num_frames);

// The next bytes of a direction, so many; empty: the line is gone.
using ReceiveBytes = std::function<std::optional<std::string>(std::size_t size)>;
// One whole frame of a protocol, as it is to be passed on: the index-th of its direction.
using NextFrame = std::function<std::optional<std::string>(const ReceiveBytes& receive,
                                                           bool towards_reader, int index)>;

std::optional<std::string> next_kv_frame(const ReceiveBytes& receive, bool, int);

class FaultyRelay {
 public:
  // Whoever connects is the reader, the target the owner.
  FaultyRelay(std::uint16_t target, FaultPlan plan, NextFrame next = next_kv_frame);
  ~FaultyRelay();
  FaultyRelay(const FaultyRelay&) = delete;
  FaultyRelay& operator=(const FaultyRelay&) = delete;

  std::uint16_t port() const { return port_of(listener_); }
  bool has_struck() const { return struck_; }

 private:
  struct Line;
  void accept();
  void pass(Line& line, bool towards_reader, bool is_faulty);

  const std::uint16_t target_;
  const FaultPlan plan_;
  const NextFrame next_;
  const Descriptor listener_;
  std::atomic<bool> stopping_ = false, struck_ = false;
  std::vector<std::unique_ptr<Line>> lines_;
  std::thread accepting_;
};

}  // namespace quire::test
