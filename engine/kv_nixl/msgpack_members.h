#pragma once
// The members of a MessagePack map that was sent, each as its own kind of value and within its
// limit. Throws Failure that names the member. The map outlives it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kv_nixl/msgpack_value.h"

namespace quire {

class MsgpackMembers {
 public:
  static constexpr std::size_t kMostItems = 1 << 16;
  static constexpr std::size_t kMostTextBytes = 4096;

  // `what` is the map's name, for people.
  MsgpackMembers(const MsgpackValue& value, std::string_view what);

  bool has(std::string_view name) const;  // and is not nil
  std::string text(std::string_view name) const;
  std::string binary(std::string_view name, std::size_t most) const;
  std::uint64_t number(std::string_view name, std::uint64_t least, std::uint64_t most) const;
  std::vector<std::uint64_t> numbers(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  const MsgpackValue& at(std::string_view name) const;
  const MsgpackValue::Array& items(std::string_view name) const;
  [[noreturn]] void refuse(std::string_view name, const std::string& what) const;

 private:
  const MsgpackValue& value_;
  const std::string_view what_;
};

}  // namespace quire
