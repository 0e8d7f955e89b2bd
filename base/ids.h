#pragma once
// Identifiers that must not be mixed up, as types of their own.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace quire {

template <class Tag, class Int>
struct StrongId {
  Int value{};
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int v) : value(v) {}
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

using RequestId = StrongId<struct RequestIdTag, std::uint64_t>;  // unique in one front end
using EngineId = StrongId<struct EngineIdTag, std::uint32_t>;    // data-parallel rank
using TokenId = std::int32_t;
using BlockId = std::int32_t;  // 0 is the null block

}  // namespace quire

template <class Tag, class Int>
struct std::hash<quire::StrongId<Tag, Int>> {
  std::size_t operator()(quire::StrongId<Tag, Int> id) const { return std::hash<Int>{}(id.value); }
};
