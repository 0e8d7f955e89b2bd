#pragma once
// Wakes a thread that polls.

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "engine/wire/socket_address.h"

namespace quire {

class WakeUp {
 public:
  WakeUp() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  int descriptor() const { return event_.get(); }
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
  }
  void reset() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(event_.get(), &count, sizeof count);
  }

 private:
  Descriptor event_;
};

}  // namespace quire
