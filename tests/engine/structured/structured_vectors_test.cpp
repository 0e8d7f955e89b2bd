// The vectors of tests/data/structured, or the whole set in QUIRE_STRUCTURED_DIR.

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/engine/structured/grammars.h"
#include "text/tokenizer/tokenizer.h"

namespace quire::structured {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

fs::path root() {
  const char* full = std::getenv("QUIRE_STRUCTURED_DIR");
  return full != nullptr ? fs::path(full) : fs::path("tests/data/structured");
}

std::vector<json::object> lines(const fs::path& path) {
  std::ifstream file(path);
  std::vector<json::object> result;
  json::parse_options options;
  options.max_depth = 500;
  for (std::string line; std::getline(file, line);) {
    result.push_back(json::parse(line, {}, options).as_object());
  }
  return result;
}

std::string text(const json::object& object, const char* key) {
  return std::string(object.at(key).as_string());
}

std::shared_ptr<CompiledGrammar> compiled(const json::object& vector, const GrammarContext& context) {
  GrammarSpec spec;
  spec.kind = *grammar_kind(text(vector, "kind"));
  const json::object& parts = vector.at("spec").as_object();
  for (const char* key : {"schema", "choice"}) {
    if (parts.contains(key)) spec.source = json::serialize(parts.at(key));
  }
  for (const char* key : {"regex", "grammar"}) {
    if (parts.contains(key)) spec.source = text(parts, key);
  }
  if (const auto* options = vector.if_contains("options")) {
    const auto* space = options->as_object().if_contains("whitespace");
    spec.any_whitespace = space == nullptr || space->as_bool();
  }
  return CompiledGrammar::compile(spec, context);
}

void check_cases(const json::object& vector) {
  std::shared_ptr<CompiledGrammar> made;
  try {
    made = compiled(vector, {});
  } catch (const GrammarFailure& failure) {
    INFO(failure.what());
    if (!vector.contains("tier")) {
      CHECK(to_string(failure.kind()) == text(vector, "error_kind"));
    } else {
      CHECK(text(vector, "tier") != "must");
    }
    return;
  }
  REQUIRE(vector.contains("tier"));  // the others have to be refused
  for (const json::value& item : vector.at("cases").as_array()) {
    const json::object& one = item.as_object();
    INFO(one);
    CHECK(accepts(made, text(one, "text")) == one.at("valid").as_bool());
    if (one.contains("prefix_ok")) {
      CHECK(continues(made, text(one, "text")) == one.at("prefix_ok").as_bool());
    }
  }
}

TEST_CASE("texts are possible exactly where they are valid", "[structured][vectors]") {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(root() / "accept")) {
    for (const json::object& vector : lines(entry.path())) {
      INFO(text(vector, "id"));
      INFO(json::serialize(vector.at("spec")));
      check_cases(vector);
      ++count;
    }
  }
  CHECK(count > 200);
}

std::uint64_t fnv1a64(const std::vector<TokenId>& ids) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const TokenId id : ids) {
    for (int i = 0; i < 4; ++i) hash = (hash ^ (id >> 8 * i & 0xff)) * 0x100000001b3u;
  }
  return hash;
}

void check_masks(const json::object& vector, const GrammarContext& context) {
  GrammarMatcher matcher(compiled(vector, context));
  const json::array& ids = vector.at("ids").as_array();
  std::size_t taken = 0;
  for (const json::value& item : vector.at("steps").as_array()) {
    const json::object& step = item.as_object();
    for (; taken < step.at("at").to_number<std::size_t>(); ++taken) {
      REQUIRE(matcher.accept(ids[taken].to_number<TokenId>()));
    }
    std::vector<TokenId> got = allowed(matcher, context);
    if (const auto* either = step.if_contains("either")) {
      std::erase_if(got, [&](TokenId id) {
        return std::any_of(either->as_array().begin(), either->as_array().end(),
                           [&](const json::value& other) { return other == id; });
      });
    }
    INFO("after " << taken << " ids");
    CHECK(got.size() == step.at("count").to_number<std::size_t>());
    char hex[17];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(fnv1a64(got)));
    CHECK(hex == text(step, "fnv1a64"));
  }
}

TEST_CASE("masks allow exactly the tokens that may come next", "[structured][vectors]") {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(root() / "masks")) {
    const auto all = lines(entry.path());
    fs::path model = text(all[0], "tokenizer");
    if (!fs::exists(model / "tokenizer.json")) model = root() / ".." / model;
    if (!fs::exists(model / "tokenizer.json")) continue;  // packed: the checker unpacks it
    const auto tokenizer = Tokenizer::load(model);
    GrammarContext context;
    const TokenId end[] = {all[0].at("eos").to_number<TokenId>()};
    context.vocabulary = Vocabulary::of(*tokenizer, end);
    for (std::size_t i = 1; i < all.size(); ++i) {
      INFO(text(all[i], "id"));
      INFO(json::serialize(all[i].at("spec")));
      check_masks(all[i], context);
      ++count;
    }
  }
  CHECK(count > 50);
}

}  // namespace
}  // namespace quire::structured
