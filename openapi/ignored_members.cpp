#include "openapi/ignored_members.h"

#include <algorithm>

namespace quire::openapi {

namespace {

enum class Kind : std::uint8_t { text, boolean, number, object, array, any };

struct Ignored {
  std::string_view name;
  Kind kind;
};

// What a hosted service keeps or bills by, what only beam search reads (which is refused), and
// hints about speed.
constexpr Ignored kIgnored[] = {
    {"user", Kind::text},
    {"metadata", Kind::object},
    {"store", Kind::boolean},
    {"service_tier", Kind::text},
    {"safety_identifier", Kind::text},
    {"prompt_cache_key", Kind::text},
    {"prompt_cache_retention", Kind::text},
    {"prediction", Kind::object},
    {"verbosity", Kind::text},
    {"session_id", Kind::text},
    {"length_penalty", Kind::number},
    {"early_stopping", Kind::any},
};

constexpr std::string_view kModalities = "modalities";

bool is_of(Kind kind, JsonElement element) {
  switch (kind) {
    case Kind::text:
      return element.is_string();
    case Kind::boolean:
      return element.is_bool();
    case Kind::number:
      return element.is_number();
    case Kind::object:
      return element.is_object();
    case Kind::array:
      return element.is_array();
    case Kind::any:
      return true;
  }
  return true;
}

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"a string", "a boolean", "a number",
                                         "an object", "an array", "anything"};
  return kNames[static_cast<std::size_t>(kind)];
}

// Text is what there is; it may be asked for.
bool check_modalities(JsonReader& reader, JsonElement element) {
  std::vector<std::string> modalities;
  if (!read(reader, element, modalities)) return false;
  const auto is_text = [](const std::string& one) { return one == "text"; };
  return std::ranges::all_of(modalities, is_text) || reader.fail("only text is offered");
}

}  // namespace

std::vector<std::string_view> ignored_members() {
  std::vector<std::string_view> names{kModalities};
  for (const Ignored& ignored : kIgnored) names.push_back(ignored.name);
  return names;
}

bool check_ignored(JsonReader& reader, simdjson::dom::object object, GenerationRequest& request) {
  for (const auto& [name, kind] : kIgnored) {
    JsonElement element;
    if (object[name].get(element) || element.is_null() || is_of(kind, element)) continue;
    return reader.in_member(name, [&, kind = kind] {
      return reader.expected(name_of(kind), element);
    });
  }
  if (JsonElement element; !object[kModalities].get(element) && !element.is_null()) {
    const auto check = [&] { return check_modalities(reader, element); };
    if (!reader.in_member(kModalities, check)) return false;
  }
  std::erase_if(request.unknown_members, [](const std::string& member) {
    const auto is_it = [&](const Ignored& ignored) { return ignored.name == member; };
    return member == kModalities || std::ranges::any_of(kIgnored, is_it);
  });
  return true;
}

}  // namespace quire::openapi
