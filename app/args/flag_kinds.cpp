#include "app/args/flag_kinds.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/json.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

constexpr double kMostSeconds = 1e6;

// A word as it stands, or as JSON writes it: the parser of the command line takes a list's brackets
// and commas away and leaves the quotes.
std::string plain_word(const std::string& flag, const std::string& given) {
  const std::size_t begin = given.find_first_not_of(' ');
  if (begin == given.npos || (given[begin] != '"' && given[begin] != '[')) return given;
  try {
    return std::string(JsonDocument(given, flag).root().as_string());
  } catch (const Failure&) {
    throw CLI::ValidationError(
        flag, given + " is neither a word nor of a JSON list such as [\"a\", \"b\"]");
  }
}

// Takes words one by one; `check` refuses one that cannot be.
void add_checked_words(CLI::App& app, const std::string& flag, std::vector<std::string>& words,
                       const std::string& what,
                       void (*check)(const std::string&, const std::string&)) {
  app.add_option_function<std::vector<std::string>>(
         flag,
         [flag, &words, check](const std::vector<std::string>& given) {
           words.clear();
           for (const std::string& one : given) words.push_back(plain_word(flag, one));
           for (const std::string& word : words) check(flag, word);
         },
         what)
      ->type_name("WORD")
      ->expected(1)
      ->take_all();
}

void check_host_name(const std::string& flag, const std::string& name) {
  if (name.empty() || name.find_first_of("/: \t") != name.npos)
    throw CLI::ValidationError(flag, "\"" + name + "\" is no name; chat.example and * are");
}

}  // namespace

void add_seconds(CLI::App& app, const std::string& flag, milliseconds& value,
                 const std::string& what, milliseconds least) {
  app.add_option_function<std::string>(
         flag,
         [flag, &value, least](const std::string& text) {
           double seconds = -1;
           const char* const end = text.data() + text.size();
           const auto read = std::from_chars(text.data(), end, seconds);
           const bool is_number = read.ec == std::errc() && read.ptr == end;
           const double above = std::max<double>(static_cast<double>(least.count()), 1) / 1000;
           const bool fits = (seconds == 0 && least.count() == 0) ||
                             (seconds >= above && seconds <= kMostSeconds);
           if (!is_number || !fits) {
             throw CLI::ValidationError(flag, "\"" + text + "\" is not a number of seconds " +
                                                  (least.count() == 0 ? "that is 0 or " : "") +
                                                  "from " + CLI::detail::to_string(above) +
                                                  " to 1000000");
           }
           value = milliseconds(static_cast<std::int64_t>(seconds * 1000));
         },
         what)
      ->type_name("SECONDS");
}

void add_words(CLI::App& app, const std::string& flag, std::vector<std::string>& words,
               const std::string& what) {
  add_checked_words(app, flag, words, what, [](const std::string&, const std::string&) {});
}

void add_host_names(CLI::App& app, const std::string& flag, std::vector<std::string>& names,
                    const std::string& what) {
  add_checked_words(app, flag, names, what, check_host_name);
}

}  // namespace quire
