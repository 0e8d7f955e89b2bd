#include "base/json.h"

#include <charconv>
#include <cmath>

#include "base/file.h"
#include "base/json_parser.h"
#include "base/utf8.h"

namespace quire {

namespace {

// Nothing where the number is not finite.
std::optional<double> finite(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  constexpr double kExact = 1e15;
  const auto real = finite(text);
  if (!real || std::abs(*real) >= kExact || *real != std::trunc(*real)) return {};
  return static_cast<std::int64_t>(*real);
}

std::string cut_short(std::string text) {
  constexpr std::size_t kLongest = 60;
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

bool is_infinity(const Json& item) {
  if (item.is_null()) return true;
  return item.kind() == Json::Kind::object && item.text({"__float__"}) == "Infinity";
}

}  // namespace

template <class Value>
Value JsonRange<Value>::Iterator::operator*() const {
  if constexpr (std::is_same_v<Value, JsonMember>) {
    const Json name(*document_, index_);
    return {name.as_string(), Json(*document_, index_ + 1)};
  } else {
    return Json(*document_, index_);
  }
}

template <class Value>
typename JsonRange<Value>::Iterator& JsonRange<Value>::Iterator::operator++() {
  constexpr std::uint32_t kName = std::is_same_v<Value, JsonMember> ? 1 : 0;
  index_ = document_->nodes_[index_ + kName].next;
  return *this;
}

template <class Value>
Value JsonRange<Value>::operator[](std::size_t i) const {
  Iterator at = begin();
  while (i-- > 0) ++at;
  return *at;
}

template class JsonRange<Json>;
template class JsonRange<JsonMember>;

JsonDocument::JsonDocument(std::string text, std::filesystem::path file)
    : text_(std::move(text)), file_(std::move(file)) {
  JsonParser(*this).parse();
}

JsonDocument JsonDocument::read(const std::filesystem::path& file, std::size_t limit) {
  return JsonDocument(read_text_file(file, limit), file);
}

std::string JsonDocument::prefix() const { return file_.empty() ? "" : file_.string() + ": "; }

Json JsonDocument::object() const {
  if (!root().is_object()) root().fail("must be a JSON object, is " + root().describe());
  return root();
}

Json::Kind Json::kind() const { return document_->nodes_[index_].kind; }
const std::filesystem::path& Json::file() const { return document_->file_; }

bool Json::as_boolean() const {
  if (kind() != Kind::boolean) expected("true or false");
  return document_->text_of(document_->nodes_[index_]) == "true";
}

double Json::as_number() const {
  if (kind() != Kind::number) expected("a number");
  const auto value = finite(document_->text_of(document_->nodes_[index_]));
  if (!value) expected("a number that a double holds");
  return *value;
}

std::int64_t Json::as_integer(IntRange range) const {
  const auto value = whole_number();
  if (!value || *value < range.min || *value > range.max) {
    expected("an integer from " + std::to_string(range.min) + " to " + std::to_string(range.max));
  }
  return *value;
}

std::optional<std::int64_t> Json::whole_number() const {
  if (kind() != Kind::number) return {};
  return whole(document_->text_of(document_->nodes_[index_]));
}

std::string_view Json::as_string() const {
  if (kind() != Kind::string) expected("a string");
  return document_->text_of(document_->nodes_[index_]);
}

std::string_view Json::as_character() const {
  const std::string_view text = as_string();
  if (utf8_count(text) != 1) expected("a string of one character");
  return text;
}

JsonRange<Json> Json::items() const {
  if (kind() != Kind::array) expected("a list");
  const auto& node = document_->nodes_[index_];
  return {*document_, index_ + 1, node.next, node.size};
}

JsonRange<JsonMember> Json::members() const {
  if (kind() != Kind::object) expected("an object");
  const auto& node = document_->nodes_[index_];
  return {*document_, index_ + 1, node.next, node.size};
}

std::optional<Json> Json::find(Names names) const {
  const auto all = members();
  const auto own = [&](std::string_view name) {
    std::optional<Json> found;
    for (const auto [other, value] : all) {
      if (other == name) found = value;  // the last one counts
    }
    return found;
  };
  for (const std::string_view name : names) {
    const auto found = own(name);
    if (found && !found->is_null()) return found;
  }
  if (defaults_ == nullptr) return {};
  for (const std::string_view name : names) {
    if (own(name)) continue;
    if (const auto found = defaults_->object().find({name})) return found;
  }
  return {};
}

Json Json::with_defaults(const JsonDocument& defaults) const {
  Json out = *this;
  out.defaults_ = &defaults;
  return out;
}

Json Json::at(std::string_view name) const {
  const auto found = find({name});
  if (!found) fail_at(name, "is missing");
  return *found;
}

std::optional<int> Json::integer(Names names, IntRange range) const {
  const auto value = find(names);
  if (!value) return {};
  return static_cast<int>(value->as_integer(range));
}

int Json::need_integer(Names names, IntRange range) const {
  const auto value = integer(names, range);
  if (!value) fail_at(*names.begin(), "is missing");
  return *value;
}

std::string Json::need_text(std::string_view name) const {
  return std::string(at(name).as_string());
}

std::optional<double> Json::number(Names names) const {
  const auto value = find(names);
  return value ? std::optional(value->as_number()) : std::nullopt;
}

std::optional<bool> Json::boolean(Names names) const {
  const auto value = find(names);
  return value ? std::optional(value->as_boolean()) : std::nullopt;
}

std::optional<std::string> Json::text(Names names) const {
  const auto value = find(names);
  return value ? std::optional(std::string(value->as_string())) : std::nullopt;
}

std::optional<Json> Json::object(Names names) const {
  const auto value = find(names);
  if (value) value->members();
  return value;
}

std::optional<std::vector<std::string>> Json::texts(Names names) const {
  const auto value = find(names);
  if (!value) return {};
  if (!value->is_array()) value->expected("a list of strings");
  std::vector<std::string> out;
  for (const Json item : value->items()) out.emplace_back(item.as_string());
  return out;
}

std::optional<std::vector<double>> Json::numbers(Names names) const {
  const auto value = find(names);
  if (!value) return {};
  if (!value->is_array()) value->expected("a list of numbers");
  std::vector<double> out;
  for (const Json item : value->items()) {
    const bool infinite = is_infinity(item) || item.describe() == "Infinity";
    out.push_back(infinite ? std::numeric_limits<double>::infinity() : item.as_number());
  }
  return out;
}

std::vector<std::int32_t> Json::integers(Names names, IntRange range) const {
  const auto value = find(names);
  if (!value) return {};
  if (!value->is_array()) return {static_cast<std::int32_t>(value->as_integer(range))};
  std::vector<std::int32_t> out;
  for (const Json item : value->items()) {
    out.push_back(static_cast<std::int32_t>(item.as_integer(range)));
  }
  return out;
}

void Json::expected(const std::string& what) const {
  fail("must be " + what + ", is " + describe());
}

void Json::fail(const std::string& problem, ErrorCode code) const {
  const std::string place = path();
  throw Failure(
      Error{code, document_->prefix() + (place.empty() ? "" : place + ": ") + problem, place});
}

void Json::fail_at(std::string_view name, const std::string& problem, ErrorCode code) const {
  const std::string above = path();
  const std::string place = above + (above.empty() ? "" : ".") + std::string(name);
  throw Failure(Error{code, document_->prefix() + place + ": " + problem, place});
}

// Down from the root, to where this value is.
std::string Json::path() const {
  std::string path;
  Json at = document_->root();
  const auto leads_here = [&](const Json& child) {
    return child.index_ <= index_ && index_ < document_->nodes_[child.index_].next;
  };
  while (at.index_ != index_) {
    std::size_t i = 0;
    if (at.is_array()) {
      const auto items = at.items();
      auto item = items.begin();
      for (; !leads_here(*item); ++item) ++i;
      path += "[" + std::to_string(i) + "]";
      at = *item;
    } else {
      const auto members = at.members();
      auto member = members.begin();
      while (!leads_here((*member).value)) ++member;
      path += (path.empty() ? "" : ".") + cut_short(std::string((*member).name));
      at = (*member).value;
    }
  }
  return path;
}

std::string Json::describe() const {
  const auto& node = document_->nodes_[index_];
  switch (kind()) {
    case Kind::null:
      return "null";
    case Kind::string:
      return "\"" + cut_short(std::string(as_string())) + "\"";
    case Kind::array:
      return node.size == 0 ? "an empty list" : "a list";
    case Kind::object:
      return node.size == 0 ? "an empty object" : "an object";
    case Kind::boolean:
    case Kind::number:
      break;
  }
  return cut_short(std::string(document_->text_of(node)));
}

}  // namespace quire
