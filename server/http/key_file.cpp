#include "server/http/key_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace quire {

namespace {

constexpr int kMostConcurrency = 1'000'000;
constexpr std::int64_t kMostPerMinute = 1'000'000'000'000;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos) return words;
    line.remove_prefix(begin);
    words.push_back(line.substr(0, line.find_first_of(" \t\r")));
    line.remove_prefix(words.back().size());
  }
}

bool parse_hash(std::string_view text, std::array<unsigned char, 32>& hash) {
  if (text.size() != 2 * hash.size()) return false;
  for (std::size_t i = 0; i < hash.size(); ++i) {
    const char* const at = text.data() + 2 * i;
    if (std::from_chars(at, at + 2, hash[i], 16).ptr != at + 2) return false;
  }
  return true;
}

// NAME=N or a bare name, behind the hash. False: it is none that there is.
bool read_limit(std::string_view word, NamedKey& key) {
  if (word == "priority") return key.may_set_priority = true;
  const std::size_t equal = word.find('=');
  if (equal == word.npos) return false;
  const std::string_view name = word.substr(0, equal), digits = word.substr(equal + 1);
  std::int64_t number = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size() || number < 1) return false;
  if (name == "concurrency" && number <= kMostConcurrency) {
    key.max_concurrency = static_cast<int>(number);
  } else if (name == "requests-per-minute" && number <= kMostPerMinute) {
    key.requests_per_minute = number;
  } else if (name == "tokens-per-minute" && number <= kMostPerMinute) {
    key.tokens_per_minute = number;
  } else {
    return false;
  }
  return true;
}

// Of the line's words; what is wrong with them, or nothing.
std::string read_key(const std::vector<std::string_view>& words, NamedKey& key) {
  constexpr const char* kLimits =
      "concurrency=N, requests-per-minute=N, tokens-per-minute=N or priority";
  if (words.size() < 2) return fmt::format("expected NAME SHA256, then {}", kLimits);
  key.name = words[0];
  key.may_set_priority = false;
  if (!parse_hash(words[1], key.sha256)) {
    return "the second word must be the key's SHA-256, 64 hexadecimal digits: "
           "printf %s \"$KEY\" | sha256sum";
  }
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (read_limit(words[i], key)) continue;
    return fmt::format("\"{}\" is not {}", words[i].substr(0, 40), kLimits);
  }
  return {};
}

}  // namespace

Result<std::vector<NamedKey>> parse_key_file(std::string_view text) {
  std::vector<NamedKey> keys;
  int line = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const auto words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    NamedKey key;
    std::string wrong = read_key(words, key);
    const auto is_same = [&](const NamedKey& other) {
      return other.name == key.name || other.sha256 == key.sha256;
    };
    if (wrong.empty() && std::ranges::any_of(keys, is_same)) {
      wrong = "the name or the key is there already";
    }
    if (!wrong.empty()) {
      return Error{ErrorCode::invalid_argument, fmt::format("line {}: {}", line, wrong), {}};
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) return Error{ErrorCode::invalid_argument, "there is no key in it", {}};
  return keys;
}

}  // namespace quire
