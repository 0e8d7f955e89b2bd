#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#include "sanitizers.h"

#if defined(__x86_64__)
// Callee-saved registers of the System V ABI onto the old stack, the new stack's back: 22 ns a
// switch.
extern "C" void emulation_switch(void** from, void* to);
asm(R"(
.text
.globl emulation_switch
.type emulation_switch,@function
emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulation_switch,.-emulation_switch
)");
#else
#include <ucontext.h>
#endif

namespace emulation {
namespace {

#if defined(__x86_64__)
void switch_context(void** from, void* to) { emulation_switch(from, to); }

void* make_context(char* stack, std::size_t bytes, void (*entry)()) {
  auto** top = reinterpret_cast<void**>((reinterpret_cast<std::uintptr_t>(stack) + bytes) &
                                        ~std::uintptr_t{15});
  *--top = nullptr;  // entry's return address: ends back traces
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  return top;
}
#else
void switch_context(void** from, void* to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}

void* make_context(char* stack, std::size_t bytes, void (*entry)()) {
  auto* context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}
#endif

}  // namespace

Fiber* create_fiber(void (*entry)()) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, page, PROT_NONE);
  auto* fiber = new Fiber;
  fiber->stack = static_cast<char*>(memory) + page;
  fiber->context = make_context(fiber->stack, kStackBytes, entry);
  return fiber;
}

void reset_fiber(Fiber& fiber, void (*entry)()) {
  if (kAsan) __asan_unpoison_memory_region(fiber.stack, fiber.bytes);
  fiber.context = make_context(fiber.stack, fiber.bytes, entry);
  fiber.asan_fake_stack = nullptr;
}

void jump(Fiber& from, Fiber& to) {
  if (kAsan) __sanitizer_start_switch_fiber(&from.asan_fake_stack, to.stack, to.bytes);
  switch_context(&from.context, to.context);
  if (kAsan) __sanitizer_finish_switch_fiber(from.asan_fake_stack, nullptr, nullptr);
}

}  // namespace emulation
