#pragma once
// Where log lines go: a bounded queue and a thread of its own that writes it to a descriptor. Who
// logs never waits: when the reader is slow or gone, lines are dropped and counted.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace quire::log {

class Sink {
 public:
  static constexpr std::size_t kMaxBytes = 1024 * 1024;  // that wait to be written

  // `missing` makes the line that stands for that many dropped ones. The descriptor stays open.
  Sink(int descriptor, std::function<std::string(std::uint64_t lines)> missing);
  // Drops what has not been written yet; does not wait for a write that hangs.
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  void push(std::string line);
  // Until all lines have been written, at most so long.
  void flush(std::chrono::milliseconds limit);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may hang in a write
};

}  // namespace quire::log
