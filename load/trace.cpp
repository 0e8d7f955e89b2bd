#include "load/trace.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace quire::load {
namespace {

namespace dom = simdjson::dom;

constexpr int kMostTokens = 16 << 20;  // of a prompt or an answer; more is an error in the file

constexpr std::int64_t kLatest =
    100'000'000'000;  // seconds, thousands of years: more is an error in the file

struct Place {
  const std::string& file;
  int line;
  [[noreturn]] void refuse(const std::string& what) const {
    throw Failure(ErrorCode::invalid_argument, file + ":" + std::to_string(line) + ": " + what);
  }
};

TraceRow checked(TraceRow row, const Place& place) {
  for (const int tokens : {row.input_tokens, row.output_tokens}) {
    if (tokens < 0 || tokens > kMostTokens) {
      place.refuse("lengths are from 0 to " + std::to_string(kMostTokens) + " tokens");
    }
  }
  if (!(std::abs(row.due) <= static_cast<double>(kLatest)))
    place.refuse("a time is at most " + std::to_string(kLatest) + " seconds");
  return row;
}

TraceRow read_json(std::string_view line, dom::parser& parser, const Place& place) {
  dom::element root;
  double milliseconds = 0;
  std::int64_t input = 0, output = 0;
  const bool whole = parser.parse(line.data(), line.size()).get(root) == simdjson::SUCCESS &&
                     root["timestamp"].get(milliseconds) == simdjson::SUCCESS &&
                     root["input_length"].get(input) == simdjson::SUCCESS &&
                     root["output_length"].get(output) == simdjson::SUCCESS;
  if (!whole) place.refuse("timestamp, input_length and output_length are expected");
  for (std::int64_t* tokens : {&input, &output})
    *tokens = std::clamp<std::int64_t>(*tokens, -1, kMostTokens + 1);  // checked() refuses both
  TraceRow row{.due = milliseconds / 1e3,
               .input_tokens = static_cast<int>(input),
               .output_tokens = static_cast<int>(output),
               .blocks = {}};
  dom::array ids;
  if (root["hash_ids"].get(ids) != simdjson::SUCCESS) return checked(row, place);
  for (dom::element id : ids) {
    std::uint64_t value = 0;
    if (id.get(value) != simdjson::SUCCESS) place.refuse("hash_ids are whole numbers from 0");
    row.blocks.push_back(value);
  }
  return checked(std::move(row), place);
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const std::size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == line.npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

template <class T>
std::optional<T> number(std::string_view cell) {
  T value{};
  const auto end = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (end.ec != std::errc() || end.ptr != cell.data() + cell.size()) return {};
  return value;
}

// Seconds; of "2023-11-16 18:17:03.9799600" since 1970.
std::optional<double> time_of(std::string_view cell) {
  if (const auto seconds = number<double>(cell)) {
    return std::isfinite(*seconds) ? seconds : std::nullopt;
  }
  std::tm t{};
  double second = 0;
  const std::string text(cell);
  if (std::sscanf(text.c_str(), "%d-%d-%d%*1[ T]%d:%d:%lf", &t.tm_year, &t.tm_mon, &t.tm_mday,
                  &t.tm_hour, &t.tm_min, &second) != 6) {
    return {};
  }
  t.tm_year -= 1900;
  t.tm_mon -= 1;
  return static_cast<double>(timegm(&t)) + second;
}

struct Columns {
  std::size_t time = 0, input = 0, output = 0;
};

std::optional<Columns> columns_of(std::string_view header) {
  const auto cells = split(header);
  const auto find = [&](std::initializer_list<std::string_view> names) {
    return static_cast<std::size_t>(
        std::find_first_of(cells.begin(), cells.end(), names.begin(), names.end()) - cells.begin());
  };
  const Columns columns{find({"Timestamp", "TIMESTAMP", "timestamp"}),
                        find({"Request tokens", "ContextTokens", "input_length"}),
                        find({"Response tokens", "GeneratedTokens", "output_length"})};
  const bool all = std::max({columns.time, columns.input, columns.output}) < cells.size();
  return all ? std::optional(columns) : std::nullopt;
}

TraceRow read_cells(std::string_view line, const Columns& columns, const Place& place) {
  const auto cells = split(line);
  const std::size_t last = std::max({columns.time, columns.input, columns.output});
  if (last >= cells.size()) {
    place.refuse(std::to_string(last + 1) + " cells are expected, here are " +
                 std::to_string(cells.size()));
  }
  const auto due = time_of(cells[columns.time]);
  const auto input = number<int>(cells[columns.input]);
  const auto output = number<int>(cells[columns.output]);
  if (!due || !input || !output) place.refuse("a time and two numbers of tokens are expected");
  return checked({.due = *due, .input_tokens = *input, .output_tokens = *output, .blocks = {}},
                 place);
}

}  // namespace

std::vector<TraceRow> read_trace(const std::filesystem::path& path) {
  const std::string file = path.string();
  std::ifstream in(path);
  if (!in) throw Failure(ErrorCode::not_found, "cannot read " + file);
  std::vector<TraceRow> rows;
  std::optional<Columns> columns;
  dom::parser parser;
  std::string line;
  for (Place place{file, 1}; std::getline(in, line); ++place.line) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (line.front() == '{') {
      rows.push_back(read_json(line, parser, place));
    } else if (columns) {
      rows.push_back(read_cells(line, *columns, place));
    } else if (columns = columns_of(line); !columns) {
      place.refuse(
          "this is neither a JSON object nor the header of a CSV with the columns Timestamp, "
          "Request "
          "tokens and Response tokens, or TIMESTAMP, ContextTokens and GeneratedTokens");
    }
  }
  if (rows.empty()) throw Failure(ErrorCode::invalid_argument, file + " has no requests");
  std::ranges::stable_sort(rows, {}, &TraceRow::due);
  const double first = rows.front().due;
  for (TraceRow& row : rows) row.due -= first;
  return rows;
}

}  // namespace quire::load
