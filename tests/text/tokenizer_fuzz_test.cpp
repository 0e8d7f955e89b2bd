// Mutated tokenizer files and byte soup: an answer or a Failure, never a crash. Sanitizers watch.

#include <simdjson.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/fuzz/targets.h"
#include "tests/text/tokenizer_golden.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

// The file with a vocabulary of a few dozen tokens, so that mutations hit everything else.
std::string shortened(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  std::string json = content.str();
  const auto cut = [&](std::string_view open, char close, std::size_t keep) {
    const std::size_t begin = json.find(open);
    if (begin == json.npos) return;
    std::size_t end = begin + open.size();
    for (; keep > 0 && end != json.npos; --keep) end = json.find(',', end + 1);
    const std::size_t whole = json.find(close, end);
    if (end != json.npos && whole != json.npos) json.erase(end, whole - end);
  };
  cut("\"precompiled_charsmap\":\"", '"', 0);
  cut("\"vocab\":{", '}', 300);
  cut("\"merges\":[\"", ']', 0);
  return json;
}

const char* kInserts[] = {"null",
                          "[]",
                          "{}",
                          "\"\"",
                          "-1",
                          "4294967296",
                          "1e300",
                          "true",
                          "{\"",
                          "\\u0000",
                          "\"type\":\"Sequence\",",
                          ",",
                          "]",
                          "(",
                          "\xE4"};

void mutate(std::string& json, std::mt19937& random) {
  const auto place = [&] { return random() % (json.size() + 1); };
  switch (random() % 5) {
    case 0:
      if (!json.empty()) json[random() % json.size()] = static_cast<char>(random() % 256);
      break;
    case 1:
      json.erase(place(), random() % 40);
      break;
    case 2:
      json.insert(place(), kInserts[random() % std::size(kInserts)]);
      break;
    case 3: {  // a value for another
      const std::size_t begin = json.find(':', place());
      if (begin == json.npos) break;
      const std::size_t end = json.find_first_of(",}", begin);
      json.replace(begin + 1, end - begin - 1, kInserts[random() % std::size(kInserts)]);
      break;
    }
    default: {
      const std::string part = json.substr(place(), random() % 200);
      json.insert(place(), part);
    }
  }
}

TEST_CASE("mutated files are read or refused", "[text][tokenizer][fuzz]") {
  std::mt19937 random(11);
  for (const auto& folder : testing::tokenizer_folders()) {
    INFO(folder);
    const std::string original = shortened(folder / "tokenizer.json");
    fuzz::tokenizer(original);
    for (int i = 0; i < 200; ++i) {
      std::string json = original;
      for (std::size_t n = 1 + random() % 4; n > 0; --n) mutate(json, random);
      fuzz::tokenizer(json);
    }
  }
}

TEST_CASE("any bytes are encoded, and any ids decoded", "[text][tokenizer][fuzz]") {
  std::mt19937 random(12);
  for (const auto& folder : testing::tokenizer_folders()) {
    INFO(folder);
    const auto tokenizer = Tokenizer::load(folder);
    for (int i = 0; i < 100; ++i) {
      std::string bytes(random() % 200, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random() % (i % 2 == 0 ? 256 : 128));
      for (const TokenId id : tokenizer->encode(bytes, true)) {
        REQUIRE(id >= 0);
        REQUIRE(id < tokenizer->vocab_size());
      }
      std::vector<TokenId> ids(random() % 50);
      for (TokenId& id : ids) id = static_cast<TokenId>(random());
      REQUIRE(simdjson::validate_utf8(tokenizer->decode(ids, false)));
    }
  }
}

}  // namespace
}  // namespace quire
