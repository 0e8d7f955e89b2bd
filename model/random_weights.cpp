#include "model/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backend/dispatch.h"
#include "model/delivery.h"

namespace quire {

namespace {

std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15ull;  // splitmix64
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// The numbers that these matrices have where their rows arrive as published.
void fill_transposed(const Source& source, std::byte* out, DType dtype, std::uint64_t seed) {
  Source rows = source, turned = source;
  rows.transposed = false;
  rows.depth = {};
  rows.pick = {};
  const auto [height, width] = matrix_of(source);
  turned.batch = source.matrices.size();
  turned.shape = {turned.batch * height, width};
  turned.matrices = {};
  std::vector<std::byte> all(static_cast<std::size_t>(delivered(rows)) * size_of(dtype));
  fill_random(rows, all.data(), dtype, seed);
  dispatch_float(dtype, [&]<class T>(Type<T>) {
    deliver(turned, reinterpret_cast<T*>(out), reinterpret_cast<const T*>(all.data()));
  });
}

}  // namespace

void fill_random(const Source& source, std::byte* out, DType dtype, std::uint64_t seed) {
  if (source.transposed && source.matrices.size() > 0 && is_float(dtype))
    return fill_transposed(source, out, dtype, seed);
  constexpr std::int64_t kPattern = 1 << 16;
  const std::int64_t n = delivered(source);
  const std::int64_t period = std::min(n, kPattern + 1);  // not a multiple of any row
  std::uint64_t state = seed ^ std::hash<std::string>{}(source.name);
  const auto tile = [&](std::size_t element) {
    for (std::int64_t i = period; i < n; i += period) {
      std::memcpy(out + static_cast<std::size_t>(i) * element, out,
                  static_cast<std::size_t>(std::min(period, n - i)) * element);
    }
  };
  if (dtype == DType::fp8_e4m3) {
    for (std::int64_t i = 0; i < period; ++i) {
      out[i] = static_cast<std::byte>(next_random(state) & 0xbfu);  // below 2: no NaN
    }
    return tile(1);
  }
  if (!is_float(dtype)) {
    const bool exponents = source.name.ends_with("scales");  // 2^(s − 127)
    for (std::int64_t i = 0; i < period; ++i) {
      out[i] = static_cast<std::byte>(exponents ? 121 : next_random(state));
    }
    return tile(1);
  }
  const bool norm = source.shape.size() == 1 && source.name.find("norm") != std::string::npos;
  const auto width = static_cast<float>(source.shape.empty() ? 1 : source.shape.back());
  const float middle = norm ? 1.f : 0.f;
  const float spread = norm || source.shape.size() == 1 ? 0.1f : std::sqrt(3.f / width);
  dispatch_float(dtype, [&]<class T>(Type<T>) {
    T* values = reinterpret_cast<T*>(out);
    for (std::int64_t i = 0; i < period; ++i) {
      const float unit = static_cast<float>(next_random(state) >> 40) * 0x1p-23f - 1.f;
      values[i] = T(middle + spread * unit);
    }
    tile(sizeof(T));
  });
}

}  // namespace quire
