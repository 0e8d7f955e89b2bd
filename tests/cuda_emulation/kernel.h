#pragma once
// The emulation's side of cuda/device/kernel.cuh.

#include <functional>
#include <tuple>
#include <vector>

#include "intrinsics.h"
#include "launch.h"
#include "memory.h"
#include "runtime.h"

namespace emulation {

// Padding is whatever the stack held: not to be taken for an address.
template <class T>
void find_pointers_of(T object, const std::string& name, std::vector<const void*>& found) {
  static_assert(std::is_trivially_copyable_v<T>);
  if constexpr (alignof(T) % alignof(void*) == 0) {
    __builtin_clear_padding(&object);
    find_pointers(&object, sizeof object, name, found);
  }
}

// Queues the kernels of a library. What it captures is checked like parameters.
template <class F>
cudaError_t enqueue(cudaStream_t stream, F work) {
  LOCK;
  std::vector<const void*> pointers;
  find_pointers_of(work, "a capture", pointers);
  return put(stream, Work(
                         [work, pointers] {
                           require_live(pointers);
                           work();
                         },
                         true));
}

}  // namespace emulation

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...),
                               A&&... arguments) {
  using namespace emulation;
  LOCK;
  LaunchShape shape;
  if (const cudaError_t error = check_launch(*config, reinterpret_cast<const void*>(kernel), shape);
      error != cudaSuccess)
    return error;
  const std::tuple<std::remove_cv_t<P>...> parameters{std::forward<A>(arguments)...};
  std::vector<const void*> pointers;
  std::apply(
      [&](const auto&... parameter) {
        int number = 0;
        (find_pointers_of(parameter, "kernel parameter " + std::to_string(++number), pointers),
         ...);
      },
      parameters);
  const auto body = [kernel, parameters] { std::apply(kernel, parameters); };
  const auto make_grid = [shape, pointers, own = std::make_shared<decltype(body)>(body)] {
    require_live(pointers);
    return std::make_shared<GridRun>(
        shape, [](void* b) { (*static_cast<decltype(body)*>(b))(); },
        const_cast<void*>(static_cast<const void*>(own.get())));
  };
  Work work([make_grid] { make_grid()->finish(); }, true);
  if (shape.dependent) {
    work.begin = [make_grid] {
      const auto grid = make_grid();
      grid->begin();
      return [grid, make_grid] { grid->finish(); };  // which keeps the parameters
    };
  }
  return put(config->stream, std::move(work));
}

namespace quire::cuda {

inline void spin_pause() { emulation::yield(); }

}  // namespace quire::cuda

#define SHARED(name, ...)                                                        \
  static char emulation_key_##name;                                              \
  using EmulationType_##name = __VA_ARGS__;                                      \
  auto& name = *static_cast<EmulationType_##name*>(::emulation::shared_variable( \
      &emulation_key_##name, sizeof(EmulationType_##name), alignof(EmulationType_##name)))
#define DYN_SHARED(name, ...) \
  __VA_ARGS__* name = static_cast<__VA_ARGS__*>(::emulation::shared_dynamic())
