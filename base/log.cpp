#include "base/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/log_sink.h"
#include "base/utf8.h"

namespace quire::log {

namespace {

constexpr std::array<std::string_view, 4> kLevelNames{"debug", "info", "warn", "error"};

// What the end of the process waits for a log that nobody reads.
constexpr std::chrono::milliseconds kLastWords{500};

std::atomic<Format> format_in_use{Format::text};
std::atomic<Level> lowest_in_use{Level::info};
std::atomic<Spelling> spelling_in_use{nullptr};

// Would move the cursor of a terminal or turn its text around.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

// Valid JSON and harmless on a terminal, whatever bytes a client has sent.
void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const Utf8Step step = utf8_step(at, end);
    const char* character = at;
    at += step.length;
    if (step.kind != Utf8Step::valid) {
      out += kReplacementCharacter;
      continue;
    }
    switch (*character) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        const char* next = character;
        if (const char32_t c = utf8_next(next); is_control(c)) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<std::uint32_t>(c));
        } else {
          out.append(character, at);
        }
    }
  }
  out += '"';
}

bool is_plain_word(std::string_view text) {
  return !text.empty() && text.find_first_of(" \"=\\\n\r\t") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

bool is_sentence(std::string_view key) {
  return key == "because" || key == "error" || key == "note";
}

struct AppendValue {
  std::string& out;
  Format format;
  Spelling spelling = nullptr;
  void operator()(bool v) const { out += v ? "true" : "false"; }
  void operator()(std::int64_t v) const { fmt::format_to(std::back_inserter(out), "{}", v); }
  void operator()(std::uint64_t v) const { fmt::format_to(std::back_inserter(out), "{}", v); }
  void operator()(double v) const {
    if (std::isfinite(v) || format == Format::text) {
      fmt::format_to(std::back_inserter(out), "{:.6g}", v);
    } else {
      out += "null";
    }
  }
  void operator()(std::string_view text) const {
    const std::string spelled = spelling ? spelling(std::string(text)) : std::string();
    const std::string_view v = spelling ? spelled : text;
    if (format == Format::text && is_plain_word(v)) {
      out += v;
    } else {
      append_quoted(out, v);
    }
  }
};

std::string now_utc() {
  const auto now =
      std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto millis = now.time_since_epoch().count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(now)), millis);
}

// A line that says how many are missing stands where they are missing.
Sink& sink() {
  const auto missing = [](std::uint64_t lines) {
    return format_line(format_in_use, now_utc(), Level::warn, "log.dropped", {{"lines", lines}}) +
           '\n';
  };
  static Sink* const instance = new Sink(STDERR_FILENO, missing);  // outlives static destructors
  static const struct AtExit {
    ~AtExit() { instance->flush(kLastWords); }
  } at_exit;
  return *instance;
}

}  // namespace

std::string format_line(Format format, std::string_view time, Level level, std::string_view event,
                        Fields fields) {
  const std::string_view name = kLevelNames[static_cast<std::size_t>(level)];
  const bool json = format == Format::json;
  std::string line = json ? fmt::format(R"({{"time":"{}","level":"{}","event":)", time, name)
                          : fmt::format("{} {:<5} {}", time, name, event);
  if (json) append_quoted(line, event);
  for (const Field& field : fields) {
    if (json) {
      line += ',';
      append_quoted(line, field.key);
      line += ':';
    } else {
      line += ' ';
      line += field.key;
      line += '=';
    }
    const Spelling spelling = is_sentence(field.key) ? spelling_in_use.load() : nullptr;
    std::visit(AppendValue{line, format, spelling}, field.value);
  }
  if (json) line += '}';
  return line;
}

void configure(Format format, Level lowest, Spelling spelling) {
  spelling_in_use = spelling;
  format_in_use = format;
  lowest_in_use = lowest;
}

std::optional<Level> parse_level(std::string_view name) {
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) return static_cast<Level>(i);
  }
  return std::nullopt;
}

std::optional<Format> parse_format(std::string_view name) {
  if (name == "text") return Format::text;
  if (name == "json") return Format::json;
  return std::nullopt;
}

bool enabled(Level level) { return level >= lowest_in_use.load(std::memory_order_relaxed); }

void write(Level level, std::string_view event, Fields fields) {
  if (!enabled(level)) return;
  sink().push(format_line(format_in_use, now_utc(), level, event, fields) + '\n');
}

void flush(std::chrono::milliseconds limit) { sink().flush(limit); }

bool Limit::allows() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const std::int64_t second = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  if (second_.exchange(second) != second) used_ = 0;
  return ++used_ <= per_second_;
}

}  // namespace quire::log
