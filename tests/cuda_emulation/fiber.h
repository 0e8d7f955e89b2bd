#pragma once
// A stack that can be left and entered again.

#include <cstddef>

namespace emulation {

constexpr std::size_t kStackBytes = 256u << 10;

struct Fiber {
  void* context = nullptr;
  char* stack = nullptr;  // lowest address
  std::size_t bytes = kStackBytes;
  void* asan_fake_stack = nullptr;
};

// With a guard page below; never freed: the scheduler reuses it. The first jump to it calls entry,
// which never returns.
Fiber* create_fiber(void (*entry)());
// After a fiber was abandoned in the middle: it starts anew.
void reset_fiber(Fiber& fiber, void (*entry)());
void jump(Fiber& from, Fiber& to);

}  // namespace emulation
