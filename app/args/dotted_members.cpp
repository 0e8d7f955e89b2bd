#include "app/args/dotted_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/json_text.h"
#include "engine/size_text.h"

namespace quire {
namespace {

std::string as_json(const std::string& value) {
  try {
    const JsonDocument document(value, {});
    return value;
  } catch (const Failure&) {
    const bool may_count = !value.empty() && value[0] >= '0' && value[0] <= '9';
    if (const auto count = parse_count(value); may_count && count) return std::to_string(*count);
    std::string text;
    append_json_text(text, value);
    return text;
  }
}

bool is_list(std::string_view json) { return json.starts_with('[') && json.ends_with(']'); }

// "a,b": ["a","b"]; numbers stay numbers.
std::string list_of(const std::string& value) {
  std::string list = "[";
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    const std::string item = value.substr(begin, end - begin);
    if (begin > 0) list += ',';
    if (!item.empty() && item.find_first_not_of("0123456789") == item.npos) {
      list += as_json(item);
    } else {
      append_json_text(list, item);
    }
    begin = end + 1;
  }
  return list + "]";
}

std::string joined(const std::string& list, const std::string& more) {
  const bool is_empty = list.find_first_not_of("[] \t\r\n") == list.npos;
  const bool adds_none = more.find_first_not_of("[] \t\r\n") == more.npos;
  if (is_empty || adds_none) return is_empty ? more : list;
  return list.substr(0, list.size() - 1) + "," + more.substr(1);
}

// A value as it was read, without the blanks between its parts.
void append_json(std::string& out, const Json& value) {
  const char* between = "";
  switch (value.kind()) {
    case Json::Kind::null:
      out += "null";
      return;
    case Json::Kind::boolean:
      out += value.as_boolean() ? "true" : "false";
      return;
    case Json::Kind::string:
      return append_json_text(out, value.as_string());
    case Json::Kind::number:
      out += value.whole_number() ? std::to_string(*value.whole_number())
                                  : fmt::format("{}", value.as_number());
      return;
    case Json::Kind::array:
      out += '[';
      for (const Json item : value.items()) {
        out += std::exchange(between, ",");
        append_json(out, item);
      }
      out += ']';
      return;
    case Json::Kind::object:
      out += '{';
      for (const auto& [name, member] : value.members()) {
        out += std::exchange(between, ",");
        append_json_text(out, name);
        out += ':';
        append_json(out, member);
      }
      out += '}';
  }
}

}  // namespace

std::vector<DottedMembers::Member> DottedMembers::members_of(const Json& object) {
  std::vector<Member> members;
  for (const auto& [name, value] : object.members()) {
    Member member{std::string(name), {}};
    if (value.is_object()) member.members = members_of(value);
    if (member.members.empty()) append_json(member.json, value);
    const auto earlier = std::ranges::find(members, name, &Member::name);
    if (earlier != members.end()) members.erase(earlier);  // the last one counts
    members.push_back(std::move(member));
  }
  return members;
}

DottedMembers::Member DottedMembers::member_of(std::string name, const std::string& json) {
  const JsonDocument document(json, {});
  if (!document.root().is_object()) return {std::move(name), json};
  Member member{std::move(name), "{}"};
  member.members = members_of(document.root());
  return member;
}

void DottedMembers::put(std::vector<Member>& members, Member given) {
  const auto found = std::ranges::find(members, given.name, &Member::name);
  if (found == members.end()) return members.push_back(std::move(given));
  if (found->is_object() && given.is_object()) {
    for (Member& one : given.members) put(found->members, std::move(one));
    return;
  }
  if (is_list(found->json) && is_list(given.json)) given.json = joined(found->json, given.json);
  *found = std::move(given);
}

bool DottedMembers::set(const std::string& json) try {
  members_ = members_of(JsonDocument(json, {}).object());
  return true;
} catch (const Failure&) {
  return false;
}

void DottedMembers::add(std::string_view path, const std::string& value) {
  const bool goes_on = path.ends_with('+');
  if (goes_on) path.remove_suffix(1);
  std::size_t dot = path.rfind('.');
  Member member = member_of(std::string(path.substr(dot + 1)),
                            goes_on ? list_of(value) : as_json(value));
  while (dot != path.npos) {
    path = path.substr(0, dot);
    dot = path.rfind('.');
    Member outer{std::string(path.substr(dot + 1)), {}};
    outer.members.push_back(std::move(member));
    member = std::move(outer);
  }
  put(members_, std::move(member));
}

void DottedMembers::append(std::string& out, const std::vector<Member>& members) {
  const char* between = "";
  out += '{';
  for (const Member& member : members) {
    out += between;
    append_json_text(out, member.name);
    out += ':';
    if (member.members.empty()) {
      out += member.json;
    } else {
      append(out, member.members);
    }
    between = ",";
  }
  out += '}';
}

std::string DottedMembers::json() const {
  std::string out;
  append(out, members_);
  return out;
}

}  // namespace quire
