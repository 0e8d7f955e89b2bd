#include "openapi/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "base/json.h"
#include "openapi/dto_json.h"
#include "openapi/json_spans.h"

namespace quire::openapi {

namespace {

std::string_view article_and_type(JsonElement element) {
  using simdjson::dom::element_type;
  switch (element.type()) {
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
    case element_type::INT64:
    case element_type::UINT64:
      return "an integer";
    case element_type::DOUBLE:
      return "a number";
    case element_type::STRING:
      return "a string";
    case element_type::BOOL:
      return "a boolean";
    case element_type::NULL_VALUE:
      return "null";
  }
  return "something else";
}

// Of the input, so that an error never echoes much of it.
constexpr std::size_t kMaxPathBytes = 200;

// A parser keeps room for the largest document that it has seen, about ten times its bytes.
constexpr std::size_t kKeptParserBytes = 1024 * 1024;

// Numbers beyond 64 bits that a request may have where they are kept.
constexpr std::size_t kMostUnfit = 1024;

simdjson::dom::parser& thread_parser() {
  thread_local simdjson::dom::parser parser;
  return parser;
}

// Half a surrogate pair, NaN or Infinity: the first in a text that is JSON but for these, and where.
std::string foreign_value(std::string_view text) {
  const auto at = [&](std::string_view what, std::size_t place) {
    const std::string_view before = text.substr(0, place);
    const std::size_t line_begin = before.rfind('\n') + 1;  // 0 on the first line
    return fmt::format("{} at line {}, column {}", what, std::ranges::count(before, '\n') + 1,
                       place - line_begin + 1);
  };
  // Of \uXXXX; anything else is 0.
  const auto unit_at = [&](std::size_t place) {
    unsigned unit = 0;
    if (text.substr(place, 2) != "\\u" || place + 6 > text.size()) return 0u;
    std::from_chars(text.data() + place + 2, text.data() + place + 6, unit, 16);
    return unit;
  };
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (!in_string && (text[i] == 'N' || text[i] == 'I'))
      return at("NaN and Infinity are not JSON", i);
    if (text[i] != '\\') continue;
    const unsigned unit = unit_at(i), next = unit_at(i + 6);
    const bool is_pair = unit >= 0xD800 && unit < 0xDC00 && next >= 0xDC00 && next < 0xE000;
    if (unit >= 0xD800 && unit < 0xE000 && !is_pair)
      return at("half a surrogate pair, which is no character,", i);
    i += is_pair ? 11 : 1;
  }
  return {};
}

// What is wrong and where: simdjson says only that something is.
std::string fault_of(std::string_view body, simdjson::error_code error) {
  if (body.size() <= kKeptParserBytes) {
    try {
      const JsonDocument document(std::string(body), {});
    } catch (const Failure& fault) {
      constexpr std::string_view kPrefix = "not JSON: ";
      const std::string_view what = fault.what();
      return std::string(what.substr(what.starts_with(kPrefix) ? kPrefix.size() : 0));
    }
    // What Python and JavaScript write, and that parser takes.
    if (std::string fault = foreign_value(body); !fault.empty()) return fault;
  }
  return simdjson::error_message(error);
}

// Members of requests that say what the answer must be like, in all APIs.
constexpr std::string_view kFormMembers[] = {
    "/tools",         "/tool_choice",  "/response_format", "/structured_outputs",
    "/guided_json",   "/guided_regex", "/guided_choice",   "/guided_grammar",
    "/guided_whitespace_pattern", "/text",  "/output_config", "/output_format", "/sampling_params/structured_outputs"};

// Of other servers, whose members nobody here may know.
constexpr std::string_view kTransferMembers[] = {"/kv_transfer_params",
                                                 "/sampling_params/extra_args/kv_transfer_params"};

bool is_in(std::string_view pointer, std::span<const std::string_view> members) {
  return std::ranges::any_of(members, [&](std::string_view member) {
    return pointer.starts_with(member) &&
           (pointer.size() == member.size() || pointer[member.size()] == '/');
  });
}

bool rules_form(std::string_view pointer) { return is_in(pointer, kFormMembers); }

// Its numbers are as they came, of any size.
bool keeps_numbers(std::string_view pointer) {
  return rules_form(pointer) || is_in(pointer, kTransferMembers);
}

// Of the thread, as its parser is.
std::string_view& thread_body() {
  thread_local std::string_view body;
  return body;
}

bool has_double(JsonElement element) {
  simdjson::dom::array items;
  simdjson::dom::object members;
  if (!element.get(items)) return std::ranges::any_of(items, has_double);
  if (element.get(members)) return element.is_double();
  return std::any_of(members.begin(), members.end(), [](const auto& member) { return has_double(member.value); });
}

// Some double in the place of each.
std::string with_held_numbers(std::string_view json, const std::vector<NumberSpan>& unfit) {
  std::string held;
  std::size_t taken = 0;
  for (const NumberSpan& number : unfit) {
    held.append(json, taken, number.begin - taken).append("1.5");
    taken = number.end;
  }
  return held.append(json, taken);
}

Error beyond_numbers(const std::string& place) {
  std::string path = place.substr(0, kMaxPathBytes);
  const std::string_view where = path.empty() ? "The request body" : std::string_view(path);
  std::string detail = fmt::format("{}: the number does not fit 64 bits", where);
  return {ErrorCode::invalid_argument, std::move(detail), std::move(path)};
}

}  // namespace

void JsonReader::enter(std::string_view member) {
  if (!path_.empty()) path_ += '.';
  path_ += member;
  pointer_ += '/';
  for (const char c : member) {
    if (c == '~' || c == '/') {
      pointer_ += c == '~' ? "~0" : "~1";
    } else {
      pointer_ += c;
    }
  }
}

void JsonReader::enter(std::size_t item) {
  path_ += fmt::format("[{}]", item);
  pointer_ += fmt::format("/{}", item);
}

void JsonReader::leave(Place outer) {
  path_.resize(outer.path);
  pointer_.resize(outer.pointer);
}

bool JsonReader::fail(std::string_view what) {
  if (failed()) return false;
  if (rules_form(pointer_)) {
    std::string place = pointer_.substr(0, kMaxPathBytes);
    std::string detail = fmt::format("{} (at {})", what, place);
    error_ = {ErrorCode::invalid_argument, std::move(detail), std::move(place)};
    return false;
  }
  std::string path = path_.substr(0, kMaxPathBytes);
  std::string detail = path.empty() ? std::string(what) : fmt::format("{}: {}", path, what);
  error_ = {ErrorCode::invalid_argument, std::move(detail), std::move(path)};
  return false;
}

bool JsonReader::expected(std::string_view type, JsonElement got) {
  return fail(fmt::format("expected {}, got {}", type, article_and_type(got)));
}

std::string JsonReader::text(JsonElement element) const {
  const std::string_view written = keeps_numbers(pointer_) && has_double(element)
                                       ? value_at(thread_body(), pointer_)
                                       : std::string_view();
  return written.empty() ? simdjson::minify(element) : std::string(written);
}

bool JsonReader::check_fractions(JsonElement element) {
  if (!has_double(element)) return true;
  const auto lossy = lossy_fractions(value_at(thread_body(), pointer_), 1);
  if (lossy.empty()) return true;
  pointer_ += lossy[0].pointer;
  path_ += (path_.empty() || lossy[0].path.starts_with('[') ? "" : ".") + lossy[0].path;
  return fail("has more digits than a double holds");
}

bool JsonReader::read_json(std::string_view text, std::string& out) {
  simdjson::dom::parser parser;  // the thread's own holds the request
  JsonElement element;
  auto error = parser.parse(text.data(), text.size()).get(element);
  if (error == simdjson::NUMBER_ERROR) {
    error = parser.parse(with_held_numbers(text, unfit_numbers(text, kMostUnfit))).get(element);
  }
  if (error) return fail("is not JSON: " + fault_of(text, error));
  out = has_double(element) ? std::string(value_at(text, "")) : simdjson::minify(element);
  return true;
}

void shrink_parser() {
  if (thread_parser().capacity() > kKeptParserBytes) thread_parser() = simdjson::dom::parser();
}

Result<simdjson::dom::object> parse_json_object(std::string_view body) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (body.starts_with(kByteOrderMark)) body.remove_prefix(kByteOrderMark.size());
  thread_body() = body;
  simdjson::dom::parser& parser = thread_parser();
  const auto invalid = [](std::string detail) {
    return Error{ErrorCode::invalid_argument, std::move(detail), {}};
  };
  JsonElement document;
  if (const auto error = parser.parse(body.data(), body.size()).get(document)) {
    if (error == simdjson::EMPTY) return invalid("The request body is empty; expected JSON");
    const auto unfit = error == simdjson::NUMBER_ERROR ? unfit_numbers(body, kMostUnfit) : std::vector<NumberSpan>();
    if (unfit.empty()) return invalid("The request body is not valid JSON: " + fault_of(body, error));
    if (unfit.size() == kMostUnfit) return beyond_numbers(unfit.back().path);
    for (const NumberSpan& number : unfit) {
      if (!keeps_numbers(number.pointer)) return beyond_numbers(number.path);
    }
    const std::string held = with_held_numbers(body, unfit);
    if (const auto other = parser.parse(held).get(document)) {
      return invalid("The request body is not valid JSON: " + fault_of(body, other));
    }
  }
  simdjson::dom::object object;
  if (document.get(object)) {
    return invalid(
        fmt::format("The request body must be a JSON object, got {}", article_and_type(document)));
  }
  return object;
}

bool read(JsonReader& reader, JsonElement element, bool& out) {
  return !element.get(out) || reader.expected("a boolean", element);
}

bool read(JsonReader& reader, JsonElement element, std::int64_t& out) {
  if (!element.get(out)) return true;
  double real;
  if (element.is_double() && !element.get(real) && std::trunc(real) == real &&
      std::abs(real) < 9007199254740992.0) {
    out = static_cast<std::int64_t>(real);
    return true;
  }
  if (element.is_uint64()) return reader.fail("is too large");
  return reader.expected("an integer", element);
}

bool read(JsonReader& reader, JsonElement element, std::int32_t& out) {
  std::int64_t wide = 0;
  if (!read(reader, element, wide)) return false;
  if (wide < std::numeric_limits<std::int32_t>::min() ||
      wide > std::numeric_limits<std::int32_t>::max()) {
    return reader.fail(fmt::format("{} does not fit 32 bits", wide));
  }
  out = static_cast<std::int32_t>(wide);
  return true;
}

bool read(JsonReader& reader, JsonElement element, double& out) {
  if (element.is_bool()) return reader.expected("a number", element);
  return !element.get(out) || reader.expected("a number", element);
}

bool read(JsonReader& reader, JsonElement element, std::string& out) {
  std::string_view text;
  if (element.get(text)) return reader.expected("a string", element);
  out = text;
  return true;
}

}  // namespace quire::openapi
