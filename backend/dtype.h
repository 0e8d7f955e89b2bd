#pragma once
// Element types of tensors, and the 16-bit floats as storage types on the host.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace quire {

enum class DType : std::uint8_t { f32, bf16, f16, i32, i64, u8, i8, u32, u64, fp8_e4m3, u16 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::i64:
    case DType::u64:
      return 8;
    case DType::u8:
    case DType::i8:
    case DType::fp8_e4m3:
      return 1;
  }
  return 0;
}

// As Hugging Face and vLLM spell it: "bfloat16", "float32", …
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
    case DType::u8:
      return "uint8";
    case DType::i8:
      return "int8";
    case DType::u16:
      return "uint16";
    case DType::u32:
      return "uint32";
    case DType::u64:
      return "uint64";
    case DType::fp8_e4m3:
      return "fp8_e4m3";
  }
  return "unknown";
}

// bfloat16, round to nearest even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    bits = (u & 0x7fffffffu) > 0x7f800000u
               ? static_cast<std::uint16_t>((u >> 16) | 0x40u)
               : static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// IEEE binary16.
struct f16 {
  _Float16 value = 0;
  f16() = default;
  explicit f16(float v) : value(static_cast<_Float16>(v)) {}
  explicit operator float() const { return static_cast<float>(value); }
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<bf16> : std::integral_constant<DType, DType::bf16> {};
template <>
struct DTypeOf<f16> : std::integral_constant<DType, DType::f16> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::i32> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::i64> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::u8> {};
template <>
struct DTypeOf<std::int8_t> : std::integral_constant<DType, DType::i8> {};
template <>
struct DTypeOf<std::uint16_t> : std::integral_constant<DType, DType::u16> {};
template <>
struct DTypeOf<std::uint32_t> : std::integral_constant<DType, DType::u32> {};
template <>
struct DTypeOf<std::uint64_t> : std::integral_constant<DType, DType::u64> {};

template <class T>
inline constexpr DType dtype_of = DTypeOf<std::remove_const_t<T>>::value;

}  // namespace quire
