#pragma once
// Hooks of the sanitizers' run times, as weak symbols: the core is compiled once, without them, and
// finds out.

#include <cstddef>

extern "C" {
#define EMULATION_WEAK __attribute__((weak))
EMULATION_WEAK void __sanitizer_start_switch_fiber(void** save, const void* bottom,
                                                   std::size_t size);
EMULATION_WEAK void __sanitizer_finish_switch_fiber(void* save, const void** bottom,
                                                    std::size_t* size);
EMULATION_WEAK void __asan_poison_memory_region(void const volatile*, std::size_t);
EMULATION_WEAK void __asan_unpoison_memory_region(void const volatile*, std::size_t);
EMULATION_WEAK void* __tsan_get_current_fiber();
EMULATION_WEAK void* __tsan_create_fiber(unsigned);
EMULATION_WEAK void __tsan_switch_to_fiber(void*, unsigned);
EMULATION_WEAK void __tsan_acquire(void*);
EMULATION_WEAK void __tsan_release(void*);
EMULATION_WEAK void AnnotateIgnoreReadsBegin(const char*, int);
EMULATION_WEAK void AnnotateIgnoreReadsEnd(const char*, int);
EMULATION_WEAK void AnnotateIgnoreWritesBegin(const char*, int);
EMULATION_WEAK void AnnotateIgnoreWritesEnd(const char*, int);
}

namespace emulation {

inline const bool kTsan = __tsan_create_fiber != nullptr;
inline const bool kAsan = __asan_poison_memory_region != nullptr;
constexpr unsigned kNoSynchronisation = 1;  // flag of __tsan_switch_to_fiber

inline void tsan_release(void* address) {
  if (kTsan) __tsan_release(address);
}
inline void tsan_acquire(void* address) {
  if (kTsan) __tsan_acquire(address);
}

// The emulator's own bookkeeping is not the kernel's business: TSan intercepts malloc and memmove
// even here.
class TsanIgnore {
 public:
  TsanIgnore() {
    if (!kTsan) return;
    AnnotateIgnoreReadsBegin("", 0);
    AnnotateIgnoreWritesBegin("", 0);
  }
  ~TsanIgnore() {
    if (!kTsan) return;
    AnnotateIgnoreWritesEnd("", 0);
    AnnotateIgnoreReadsEnd("", 0);
  }
  TsanIgnore(const TsanIgnore&) = delete;
  TsanIgnore& operator=(const TsanIgnore&) = delete;
};

// A memset that no sanitizer intercepts.
inline void raw_fill(void* data, int value, std::size_t bytes) {
#if defined(__x86_64__)
  asm volatile("rep stosb" : "+D"(data), "+c"(bytes) : "a"(value) : "memory");
#else
  for (volatile char* c = static_cast<char*>(data); bytes != 0; --bytes, ++c)
    *c = static_cast<char>(value);
#endif
}

}  // namespace emulation
