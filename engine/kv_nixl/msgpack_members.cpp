#include "engine/kv_nixl/msgpack_members.h"

#include <fmt/format.h>

#include "base/error.h"

namespace quire {
namespace {

[[noreturn]] void fail(const std::string& why) { throw Failure(ErrorCode::invalid_argument, why); }

}  // namespace

MsgpackMembers::MsgpackMembers(const MsgpackValue& value, std::string_view what)
    : value_(value), what_(what) {
  if (value.as_map() == nullptr) fail(fmt::format("{} is no map", what));
}

bool MsgpackMembers::has(std::string_view name) const {
  const MsgpackValue* found = value_.find(name);
  return found != nullptr && !found->is_nil();
}

std::string MsgpackMembers::text(std::string_view name) const {
  const std::string* found = at(name).as_text();
  if (found == nullptr || found->size() > kMostTextBytes) refuse(name, "a short text");
  return *found;
}

std::string MsgpackMembers::binary(std::string_view name, std::size_t most) const {
  const std::string* found = at(name).as_binary();
  if (found == nullptr || found->size() > most) refuse(name, "bytes within their limit");
  return *found;
}

std::uint64_t MsgpackMembers::number(std::string_view name, std::uint64_t least,
                                     std::uint64_t most) const {
  const auto found = at(name).as_unsigned();
  if (!found || *found < least || *found > most)
    refuse(name, fmt::format("a number from {} to {}", least, most));
  return *found;
}

std::vector<std::uint64_t> MsgpackMembers::numbers(std::string_view name) const {
  std::vector<std::uint64_t> all;
  for (const MsgpackValue& item : items(name)) {
    const auto found = item.as_unsigned();
    if (!found) refuse(name, "a list of numbers");
    all.push_back(*found);
  }
  return all;
}

std::vector<std::string> MsgpackMembers::texts(std::string_view name) const {
  std::vector<std::string> all;
  for (const MsgpackValue& item : items(name)) {
    const std::string* found = item.as_text();
    if (found == nullptr || found->size() > kMostTextBytes) refuse(name, "a list of short texts");
    all.push_back(*found);
  }
  return all;
}

const MsgpackValue& MsgpackMembers::at(std::string_view name) const {
  const MsgpackValue* found = value_.find(name);
  if (found == nullptr) fail(fmt::format("{} has no {}", what_, name));
  return *found;
}

const MsgpackValue::Array& MsgpackMembers::items(std::string_view name) const {
  const MsgpackValue::Array* found = at(name).as_array();
  if (found == nullptr || found->size() > kMostItems) refuse(name, "a list within its limit");
  return *found;
}

void MsgpackMembers::refuse(std::string_view name, const std::string& what) const {
  fail(fmt::format("{}.{} must be {}", what_, name, what));
}

}  // namespace quire
