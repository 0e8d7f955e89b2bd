#include "app/dotted_members.h"

#include <algorithm>

#include "base/json.h"
#include "base/json_text.h"

namespace quire {
namespace {

std::string as_json(const std::string& value) {
  try {
    const JsonDocument document(value, {});
    return value;
  } catch (const Failure&) {
    std::string text;
    append_json_text(text, value);
    return text;
  }
}

}  // namespace

void DottedMembers::add(std::string_view path, const std::string& value) {
  std::vector<Member>* members = &members_;
  for (;;) {
    const std::size_t dot = path.find('.');
    const std::string name(path.substr(0, dot));
    auto found = std::ranges::find(*members, name, &Member::name);
    if (found == members->end()) found = members->insert(found, Member{name, {}});
    if (dot == path.npos) {
      *found = {name, as_json(value)};
      return;
    }
    path.remove_prefix(dot + 1);
    members = &found->members;
  }
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
