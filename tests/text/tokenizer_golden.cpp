#include "tests/text/tokenizer_golden.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace quire::testing {
namespace {

namespace dom = simdjson::dom;
namespace fs = std::filesystem;

class Fnv1a64 {
 public:
  void add(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3u; }
  std::string hex() const { return fmt::format("{:016x}", hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

// Ids past 2^31 are in no vocabulary; -1 is in none, too.
std::vector<TokenId> ids_of(dom::element array) {
  std::vector<TokenId> ids;
  for (const auto id : array.get_array()) {
    const std::int64_t value = id.get_int64();
    ids.push_back(value <= INT32_MAX ? static_cast<TokenId>(value) : -1);
  }
  return ids;
}

ExpectedText text_of(dom::object line, const std::string& key) {
  ExpectedText expected;
  std::string_view text;
  if (!line.at_key(key).get(text)) expected.text = text;
  if (!line.at_key(key + "_fnv1a64").get(text)) expected.hash = text;
  return expected;
}

ExpectedIds expected_ids(dom::object line, const std::string& key) {
  ExpectedIds expected;
  dom::element ids;
  if (!line.at_key(key).get(ids)) {
    expected.ids = ids_of(ids);
  } else {
    expected.count = line.at_key(key + "_count").get_uint64();
    expected.hash = std::string_view(line.at_key(key + "_fnv1a64"));
  }
  return expected;
}

std::string input_of(dom::object line) {
  std::string_view text;
  if (!line.at_key("text").get(text)) return std::string(text);
  std::string joined;
  for (const auto part : line.at_key("text_parts").get_array()) {
    const std::string_view repeated = part.get_array().at(0);
    for (std::uint64_t i = part.get_array().at(1).get_uint64(); i > 0; --i) joined += repeated;
  }
  return joined;
}

template <class Case, class Read>
std::vector<Case> read_lines(const fs::path& path, Read&& read) {
  std::vector<Case> cases;
  dom::parser parser;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    cases.push_back(read(dom::object(parser.parse(line).get_object())));
  }
  return cases;
}

}  // namespace

bool ExpectedText::is(std::string_view actual) const {
  if (text) return *text == actual;
  Fnv1a64 actual_hash;
  for (const char c : actual) actual_hash.add(static_cast<unsigned char>(c));
  return actual_hash.hex() == hash;
}

bool ExpectedIds::is(const std::vector<TokenId>& actual) const {
  if (ids) return *ids == actual;
  Fnv1a64 actual_hash;
  for (const TokenId id : actual) {
    for (int shift = 0; shift < 32; shift += 8) {
      actual_hash.add(static_cast<unsigned char>(static_cast<std::uint32_t>(id) >> shift));
    }
  }
  return actual.size() == count && actual_hash.hex() == hash;
}

std::vector<fs::path> tokenizer_folders() {
  const char* all = std::getenv("QUIRE_GOLDEN_DIR");
  const fs::path root = fs::path(all ? all : "tests/data/golden") / "tokenizers";
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "tokenizer.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<EncodeCase> encode_cases(const fs::path& folder) {
  return read_lines<EncodeCase>(folder / "cases.jsonl", [](dom::object line) {
    return EncodeCase{std::string(std::string_view(line.at_key("name"))),
                      input_of(line),
                      expected_ids(line, "ids"),
                      expected_ids(line, "ids_special"),
                      text_of(line, "decoded"),
                      text_of(line, "decoded_skip")};
  });
}

std::vector<DecodeCase> decode_cases(const fs::path& folder) {
  return read_lines<DecodeCase>(folder / "detokenize.jsonl", [](dom::object line) {
    dom::element prompt;
    const bool has_prompt = !line.at_key("prompt_ids").get(prompt);
    return DecodeCase{std::string(std::string_view(line.at_key("name"))),
                      ids_of(line.at_key("ids").value()),
                      has_prompt ? ids_of(prompt) : std::vector<TokenId>(),
                      text_of(line, "decoded"),
                      text_of(line, "decoded_skip"),
                      text_of(line, "continuation"),
                      text_of(line, "continuation_skip")};
  });
}

}  // namespace quire::testing
