#include "tests/text/output_case.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>

#include "base/error.h"
#include "jinja/values/dict.h"
#include "jinja/values/json.h"
#include "text/output/json_scanner.h"
#include "text/output/marker_matcher.h"

namespace quire::test {

namespace {

namespace fs = std::filesystem;
using jinja::Value;

fs::path parsers_dir() {
  const char* dir = std::getenv("QUIRE_PARSERS_DIR");
  return dir != nullptr ? dir : "tests/data/parsers";
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Value member(const Value& of, std::string_view name) {
  const Value* found = of.is(Value::Kind::dict) ? of.dict().find(name) : nullptr;
  return found == nullptr ? Value() : *found;
}

// [[text, count], …]
std::string joined(const Value& parts) {
  std::string text;
  for (const Value& part : parts.items()) {
    for (auto n = part.items()[1].integer(); n > 0; --n) text += part.items()[0].string();
  }
  return text;
}

std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!is_space(c)) out += c;
  }
  return out;
}

std::string trimmed(std::string_view text) { return std::string(without_space(text)); }
std::string text_or_none(const Value& value) { return value.is_string() ? value.string() : ""; }

bool same_segments(std::string_view got, const Value& segments) {
  std::string_view rest = without_space(got);
  for (const Value& segment : segments.items()) {
    if (!rest.starts_with(segment.string())) return false;
    rest = without_space(rest.substr(segment.string().size()));
  }
  return rest.empty();
}

// As JSON values, members in order; 3 and 3.0 are the same.
bool same_json(const Value& a, const Value& b) {
  const auto is_number = [](const Value& v) {
    return v.is(Value::Kind::integer) || v.is(Value::Kind::real) || v.is(Value::Kind::big_integer);
  };
  if (is_number(a) && is_number(b)) {
    return std::stod(jinja::dump_json(a, {})) == std::stod(jinja::dump_json(b, {}));
  }
  if (a.kind() != b.kind()) return false;
  if (a.is(Value::Kind::list)) {
    return std::equal(a.list().begin(), a.list().end(), b.list().begin(), b.list().end(),
                      same_json);
  }
  if (!a.is(Value::Kind::dict)) return jinja::dump_json(a, {}) == jinja::dump_json(b, {});
  return std::equal(a.dict().begin(), a.dict().end(), b.dict().begin(), b.dict().end(),
                    [](const auto& x, const auto& y) {
                      return same_json(x.key, y.key) && same_json(x.value, y.value);
                    });
}

Value arguments_of(const Value& call) {
  const Value parts = member(call, "arguments_parts");
  return parts.is_none() ? member(call, "arguments") : jinja::parse_json(joined(parts));
}

std::string exactly(const Value& want, const Parsed& got) {
  if (trimmed(got.reasoning) != text_or_none(member(want, "reasoning"))) return "reasoning";
  if (!same_segments(got.content, member(want, "content"))) return "content";
  const auto& calls = member(want, "tool_calls").items();
  if (calls.size() != got.calls.size()) return "number of calls";
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (got.calls[i].name != member(calls[i], "name").string()) return "name";
    if (!JsonScanner::accepts(got.calls[i].arguments)) return "arguments are not JSON";
    if (!same_json(jinja::parse_json(got.calls[i].arguments), arguments_of(calls[i]))) {
      return "arguments " + got.calls[i].arguments;
    }
  }
  return {};
}

bool begins(std::string arguments, const Value& wanted) {
  arguments = squeezed(arguments);
  if (arguments.ends_with('\\')) arguments.pop_back();
  for (const bool ascii : {false, true}) {
    jinja::JsonStyle style;
    style.ensure_ascii = ascii;
    if (squeezed(jinja::dump_json(wanted, style)).starts_with(arguments)) return true;
  }
  return false;
}

// A beginning of what is wanted; what could not be read may be given back, to the letter.
std::string partly(const Value& want, const Parsed& got, std::string_view text, bool loose) {
  if (trimmed(got.reasoning) != text_or_none(member(want, "reasoning"))) return "reasoning";
  const std::string content = trimmed(got.content);
  if (squeezed(content) == squeezed(text) && got.calls.empty()) return {};
  const auto& segments = member(want, "content").items();
  const std::string before = segments.empty() ? "" : segments[0].string();
  if (!content.starts_with(before) && !before.starts_with(content)) return "content";
  const std::string rest = content.substr(std::min(before.size(), content.size()));
  if (!squeezed(text).ends_with(squeezed(rest))) return "content is not in the text";
  const auto& calls = member(want, "tool_calls").items();
  if (got.calls.size() > calls.size()) return "number of calls";
  for (std::size_t i = 0; i < got.calls.size(); ++i) {
    const Call& call = got.calls[i];
    if (call.name != member(calls[i], "name").string()) return "name";
    if (loose) continue;
    const Value wanted = member(calls[i], "arguments");
    const bool whole = JsonScanner::accepts(call.arguments) &&
                       same_json(jinja::parse_json(call.arguments), wanted);
    if (!whole && !(i + 1 == got.calls.size() && begins(call.arguments, wanted))) {
      return "arguments " + call.arguments;
    }
  }
  return {};
}

void set_reasoning(OutputFormat& format, std::string name) {
  format.starts_inside = name == "think_open";
  format.reasoning = find_reasoning_format(format.starts_inside ? "think" : name);
}

std::vector<OutputCase> load_cases() {
  const auto types = std::make_shared<const ToolTypes>(read(parsers_dir() / "tools.json"));
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(parsers_dir())) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<OutputCase> cases;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    for (std::string line; std::getline(file, line);) {
      OutputCase& c = cases.emplace_back();
      c.wanted = jinja::parse_json(line);
      c.id = member(c.wanted, "id").string();
      c.format.dialect = find_dialect(member(c.wanted, "dialect").string());
      c.format.types = types;
      const Value reasoning = member(c.wanted, "reasoning");
      if (reasoning.is_string()) set_reasoning(c.format, reasoning.string());
      const Value text = member(c.wanted, "text");
      c.text = text.is_string() ? text.string() : joined(member(c.wanted, "text_parts"));
      c.live = !member(c.wanted, "live").is_none();
    }
  }
  return cases;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  out << "reasoning [" << parsed.reasoning << "] content [" << parsed.content << "]";
  for (const Call& call : parsed.calls)
    out << " call " << call.name << "(" << call.arguments << ")";
  return out << parsed.complaint;
}

void add(Parsed& parsed, const OutputDelta& delta) {
  parsed.reasoning += delta.reasoning;
  parsed.content += delta.content;
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (std::size_t(call.index) == parsed.calls.size()) {
      if (!call.id || call.id->empty() || !call.name || call.name->empty()) {
        parsed.complaint = "a call begins without id or name";
      }
      parsed.calls.push_back({call.name.value_or(""), ""});
    } else if (std::size_t(call.index) + 1 != parsed.calls.size() || call.id || call.name ||
               call.arguments.empty()) {
      parsed.complaint = "a call goes on in a wrong way";
    }
    parsed.calls.back().arguments += call.arguments;
  }
}

Parsed parse(const OutputFormat& format, const std::vector<std::string_view>& pieces) {
  OutputParser parser(format);
  Parsed parsed;
  for (const std::string_view piece : pieces) add(parsed, parser.push(piece));
  add(parsed, parser.finish());
  if (parser.num_tool_calls() != int(parsed.calls.size())) parsed.complaint = "number of calls";
  return parsed;
}

const std::vector<OutputCase>& output_cases() {
  static const std::vector<OutputCase> kCases = load_cases();
  return kCases;
}

std::vector<std::string> markers_of(const std::string& dialect) {
  static const Value kFamilies = jinja::parse_json(read(parsers_dir() / "dialects.json"));
  std::vector<std::string> markers = {"<think>", "</think>"};
  for (const Value& marker : member(member(kFamilies, dialect), "markers").items()) {
    markers.push_back(marker.string());
  }
  return markers;
}

std::string mismatch(const OutputCase& c, const Parsed& got) {
  if (!got.complaint.empty()) return got.complaint;
  const Value expected = member(c.wanted, "expected");
  if (!expected.is_none()) return exactly(expected, got);
  std::string first;
  for (const Value& option : member(c.wanted, "any_of").items()) {
    const Value prefix = member(option, "prefix_of"), loose = member(option, "loose");
    std::string reason;
    if (!prefix.is_none()) {
      reason = partly(prefix, got, c.text, false);
    } else if (!loose.is_none()) {
      reason = partly(loose, got, c.text, true);
    } else {
      reason = exactly(option, got);
    }
    if (reason.empty()) return {};
    if (first.empty()) first = reason;
  }
  return first;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    do {
      ++end;
    } while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
    pieces.push_back(text.substr(begin, end - begin));
  }
  return pieces;
}

}  // namespace quire::test
