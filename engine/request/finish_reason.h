#pragma once
// Why a request ended; enumerators equal their spelling in the API.

#include <array>
#include <cstdint>
#include <string_view>

namespace quire {

enum class FinishReason : std::uint8_t {
  stop,    // end-of-sequence or stop token
  length,  // max_tokens or the context is full
  abort,   // the client left or cancelled
  error,   // our fault; HTTP 500
};

constexpr std::string_view name_of(FinishReason reason) {
  constexpr std::array<std::string_view, 4> kNames{"stop", "length", "abort", "error"};
  return kNames[static_cast<std::size_t>(reason)];
}

}  // namespace quire
