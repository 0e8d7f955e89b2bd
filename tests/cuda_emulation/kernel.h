#pragma once
// The emulation's side of cuda/device/kernel.cuh.

#include <functional>
#include <tuple>

#include "intrinsics.h"

namespace emulation {

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

template <class... P, class... A>
cudaError_t start(bool cooperative, cudaStream_t stream, void (*kernel)(P...), dim3 grid,
                  dim3 block, std::size_t dynamic_shared, A&&... arguments) {
  using Parameters =
      std::tuple<std::remove_cv_t<P>...>;  // converted and copied now, like kernel parameters
  return enqueue(stream, [cooperative, kernel, grid, block, dynamic_shared,
                          parameters = Parameters{std::forward<A>(arguments)...}] {
    auto body = [&] { std::apply(kernel, parameters); };
    run(
        grid, block, dynamic_shared, [](void* b) { (*static_cast<decltype(body)*>(b))(); }, &body,
        cooperative);
  });
}

}  // namespace emulation

namespace quire::cuda {

template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t dynamic_shared,
                   cudaStream_t stream, A&&... arguments) {
  return emulation::start(false, stream, kernel, grid, block, dynamic_shared,
                          std::forward<A>(arguments)...);
}
template <class... P, class... A>
cudaError_t launch_cooperative(void (*kernel)(P...), dim3 grid, dim3 block,
                               std::size_t dynamic_shared, cudaStream_t stream, A&&... arguments) {
  return emulation::start(true, stream, kernel, grid, block, dynamic_shared,
                          std::forward<A>(arguments)...);
}
inline void spin_pause() { emulation::yield(); }

}  // namespace quire::cuda

#define SHARED(name, ...)                                                        \
  static char emulation_key_##name;                                              \
  using EmulationType_##name = __VA_ARGS__;                                      \
  auto& name = *static_cast<EmulationType_##name*>(::emulation::shared_variable( \
      &emulation_key_##name, sizeof(EmulationType_##name), alignof(EmulationType_##name)))
#define DYN_SHARED(name, ...) \
  __VA_ARGS__* name = static_cast<__VA_ARGS__*>(::emulation::shared_dynamic())
