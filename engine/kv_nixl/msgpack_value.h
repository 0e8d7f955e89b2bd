#pragma once
// Reads MessagePack that others sent: as much of it as handshakes have. Whatever the bytes are,
// nothing is read outside of them, and what they make takes no more memory than a few times them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace quire {

class MsgpackValue {
 public:
  using Array = std::vector<MsgpackValue>;
  using Map = std::vector<std::pair<MsgpackValue, MsgpackValue>>;
  struct Binary {
    std::string bytes;
  };
  // Integers above INT64_MAX are kept as uint64.
  using Kind = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string,
                            Binary, Array, Map>;

  MsgpackValue() = default;
  explicit MsgpackValue(Kind kind) : kind_(std::move(kind)) {}

  bool is_nil() const { return std::holds_alternative<std::monostate>(kind_); }
  std::optional<std::uint64_t> as_unsigned() const;
  const std::string* as_text() const { return std::get_if<std::string>(&kind_); }
  // Of bin; text counts as well, as it does for Python's decoders of bytes.
  const std::string* as_binary() const;
  const Array* as_array() const { return std::get_if<Array>(&kind_); }
  const Map* as_map() const { return std::get_if<Map>(&kind_); }
  // The last of that name, as Python's dict keeps it; null: there is none, or this is no map.
  const MsgpackValue* find(std::string_view name) const;

 private:
  Kind kind_;
};

// Exactly one value.
Result<MsgpackValue> parse_msgpack(std::string_view bytes);

}  // namespace quire
