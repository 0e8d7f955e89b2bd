#pragma once
// Python's arithmetic on numbers, and + * % on texts and lists.

#include <cstdint>
#include <string_view>

#include "jinja/values/big_int.h"
#include "jinja/values/value.h"

namespace quire::jinja {

class Evaluation;

enum class Binary : std::uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };

Value apply(Evaluation& evaluation, Binary op, const Value& a, const Value& b);
Value negate(const Value& value);
Value positive(const Value& value);

bool is_integral(const Value& value);       // booleans too
std::int64_t as_small(const Value& value);  // of a boolean or a 64-bit integer
BigInt to_big(const Value& integer);
double to_real(const Value& number);  // fails (overflow) where an integer is too large
// What Python accepts as an index or count; fails (type) otherwise, (overflow) beyond 64 bits.
std::int64_t as_index(const Value& value);

}  // namespace quire::jinja
