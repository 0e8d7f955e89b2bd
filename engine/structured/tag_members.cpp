#include "engine/structured/tag_members.h"

#include <algorithm>

namespace quire::structured {
namespace {

namespace json = boost::json;

// What a format of a type may hold beside "type" and "place".
struct Known {
  std::string_view type;
  std::initializer_list<std::string_view> members;
};

const std::initializer_list<Known> kKnown = {
    {"const_string", {"value"}},
    {"answer", {}},
    {"any_text", {"text", "not_beginning", "without", "string"}},
    {"json_schema", {"json_schema", "only_objects"}},
    {"regex", {"pattern"}},
    {"grammar", {"grammar"}},
    {"choice", {"choice"}},
    {"structural_tag", {"structural_tag"}},
    {"optional", {"content"}},
    {"star", {"content"}},
    {"plus", {"content"}},
    {"repeat", {"content", "min", "max"}},
    {"sequence", {"elements"}},
    {"or", {"elements"}},
    {"tag", {"begin", "content", "end"}},
    {"triggered_tags", {"triggers", "tags", "at_least_one", "stop_after_first", "text"}},
    {"tags_with_separator", {"tags", "separator", "at_least_one", "stop_after_first"}}};

[[noreturn]] void unknown(std::string_view member, const std::string& at) {
  tag_fault("\"" + std::string(member) + "\" is not known here", at + '/' + std::string(member),
            GrammarErrorKind::unsupported);
}

}  // namespace

void tag_fault(const std::string& what, const std::string& at, GrammarErrorKind kind) {
  throw GrammarFailure(kind, "structural tag: " + what, at);
}

void check_tag_document(const json::object& object, const std::string& at) {
  constexpr std::string_view kMembers[] = {"type",       "format",   "answer",
                                           "structures", "triggers", "not_strict"};
  for (const auto& [key, value] : object) {
    if (std::ranges::find(kMembers, std::string_view(key)) == std::end(kMembers)) unknown(key, at);
  }
}

void check_tag_format(const json::object& object, std::string_view type, const std::string& at) {
  const auto known = std::ranges::find(kKnown, type, &Known::type);
  if (known == kKnown.end()) {
    tag_fault("no format of type \"" + std::string(type) + '"', at + "/type",
              GrammarErrorKind::unsupported);
  }
  for (const auto& [key, value] : object) {
    if (key == "type" || key == "place") continue;
    if (std::ranges::find(known->members, std::string_view(key)) == known->members.end()) {
      unknown(key, at);
    }
  }
}

}  // namespace quire::structured
