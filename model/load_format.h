#pragma once
#include <cstdint>

namespace quire {

enum class LoadFormat : std::uint8_t {
  safetensors,
  dummy,  // random weights of the configured shape, for benchmarks; reads no weight files
};

}  // namespace quire
