#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/support/temp_path.h"
#include "tests/text/tokenizer_golden.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::string complaint_about(std::string_view json) {
  try {
    Tokenizer::parse(json);
    return {};
  } catch (const Failure& failure) {
    return failure.what();
  }
}

TEST_CASE("a broken tokenizer.json is refused by field", "[text][tokenizer]") {
  struct Case {
    std::string_view json;
    std::string_view complaint;
  };
  const std::vector<Case> cases = {
      {"", "tokenizer.json: "},
      {R"({"model": )", "tokenizer.json: "},
      {R"([])", "must be a JSON object"},
      {R"({})", "model: is missing"},
      {R"({"model": 3})", "model: must be an object"},
      {R"({"model": {"type": "BPE", "merges": []}})", "model.vocab: is missing"},
      {R"({"model": {"type": "BPE", "vocab": {}}})", "model.merges: is missing"},
      {R"({"model": {"type": "BPE", "vocab": [], "merges": []}})",
       "model.vocab: must be an object"},
      {R"({"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}})",
       "model.vocab.a: must be an integer from 0 to 4194303"},
      {R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})", "model.vocab.a: "},
      {R"({"model": {"type": "BPE", "vocab": {"a": 99999999999}, "merges": []}})",
       "model.vocab.a: "},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}})",
       "model.merges[0]: \"b\" is not in the vocabulary"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}})",
       "model.merges[0]: \"aa\" is not in the vocabulary"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}})",
       "model.merges[0]: must be two tokens"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [7]}})",
       "model.merges[0]: must be a string or a list"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}})",
       "model.dropout: "},
      {R"({"model": {"type": "Unigram", "vocab": [["a"]]}})", "model.vocab[0]: must be [token"},
      {R"({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1}})", "model.unk_id: "},
      {R"({"model": {"type": "Unigram", "vocab": [], "unk_id": 0}})", "model.unk_id: "},
      {R"({"model": {"type": "Quantum", "vocab": {}}})", "model.type: \"Quantum\""},
      {R"({"normalizer": {"type": "NFX"}, "model": {}})", "normalizer.type: \"NFX\""},
      {R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Strip"}]}, "model": {}})",
       "normalizer.normalizers[0].strip_left: is missing"},
      {R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}, "model": {}})",
       "normalizer.precompiled_charsmap: "},
      {R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}, "model": {}})",
       "normalizer.precompiled_charsmap: has a trie of a wrong size"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Removed",
           "invert": false}, "model": {"type": "BPE", "vocab": {}, "merges": []}})",
       "pre_tokenizer.pattern.Regex: the expression is not valid"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a[b]"}, "behavior": "Removed",
           "invert": false}, "model": {"type": "BPE", "vocab": {}, "merges": []}})",
       "pre_tokenizer.pattern.Regex: the expression has a class that does not end"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Sliced",
           "invert": false}, "model": {"type": "BPE", "vocab": {}, "merges": []}})",
       "pre_tokenizer.behavior: \"Sliced\""},
      {R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "__"},
           "model": {"type": "BPE", "vocab": {}, "merges": []}})",
       "pre_tokenizer.replacement: must be a string of one character"},
      {R"({"model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": [{"id": 0}]})",
       "added_tokens[0].content: is missing"},
      {R"({"model": {"type": "BPE", "vocab": {}, "merges": []}, "decoder": {"type": "Rot13"}})",
       "decoder.type: \"Rot13\""},
      {R"({"model": {"type": "BPE", "vocab": {}, "merges": []}, "post_processor":
           {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}],
            "pair": [], "special_tokens": {}}})",
       "post_processor.single[0].SpecialToken.id: is not among the special_tokens"},
      {R"({"model": {"type": "BPE", "vocab": {}, "merges": []}, "post_processor":
           {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B", "type_id": 0}}],
            "pair": [], "special_tokens": {}}})",
       "post_processor.single[0].Sequence: there is no second sequence"},
  };
  for (const Case& test : cases) {
    INFO(test.json);
    CHECK_THAT(complaint_about(test.json), Catch::Contains(std::string(test.complaint)));
  }
}

TEST_CASE("nesting without end is refused", "[text][tokenizer]") {
  std::string json = R"({"normalizer": )";
  for (int i = 0; i < 100'000; ++i) json += R"({"type": "Sequence", "normalizers": [)";
  CHECK_FALSE(complaint_about(json).empty());
}

class ModelDir {
 public:
  ModelDir() : path_(temp_path("quire_tokenizer_load_test")) {
    fs::create_directories(path_);
  }
  ~ModelDir() { fs::remove_all(path_); }
  void write(const char* name, std::string_view content) const {
    std::ofstream(path_ / name) << content;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST_CASE("files of a model folder", "[text][tokenizer]") {
  const ModelDir dir;
  CHECK_THROWS_WITH(Tokenizer::load(dir.path()), Catch::Contains("tokenizer.json"));

  dir.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    "added_tokens": [{"id": 2, "content": "<s>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}]})");
  SECTION("the configuration names tokens") {
    dir.write("tokenizer_config.json", R"({"bos_token": "<s>", "pad_token": null,
      "eos_token": {"__type": "AddedToken", "content": "</s>"}, "model_max_length": 10})");
    dir.write("special_tokens_map.json", R"({"bos_token": "<s>", "unk_token": "<unk>"})");
    const auto tokenizer = Tokenizer::load(dir.path());
    const std::map<std::string, std::string, std::less<>> expected = {
        {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
    CHECK(tokenizer->special_strings() == expected);
    CHECK(tokenizer->vocab_size() == 5);  // a named token is one, as transformers adds it
    CHECK(tokenizer->token_to_id("<s>") == 2);
    CHECK_FALSE(tokenizer->token_to_id("<t>").has_value());
    CHECK(tokenizer->id_to_token(1) == "b");
    CHECK(tokenizer->id_to_token(3) == "</s>");
    CHECK(tokenizer->id_to_token(4) == "<unk>");
    CHECK(tokenizer->id_to_token(5).empty());
    CHECK(tokenizer->id_to_token(-1).empty());
    CHECK(tokenizer->is_special(2));
    CHECK_FALSE(tokenizer->is_special(0));
  }
  SECTION("a broken configuration is refused by name") {
    dir.write("tokenizer_config.json", "{\"bos_token\": ");
    CHECK_THROWS_WITH(Tokenizer::load(dir.path()), Catch::Contains("tokenizer_config.json"));
  }
}

TEST_CASE("bytes that are not UTF-8 count as U+FFFD", "[text][tokenizer]") {
  const auto tokenizer = Tokenizer::parse(R"({
    "model": {"type": "WordLevel", "vocab": {"a\ufffd": 0, "\ufffd\ufffdb": 1, "?": 2},
              "unk_token": "?"},
    "pre_tokenizer": {"type": "WhitespaceSplit"}})");
  CHECK(tokenizer->encode("a\xE4\xB8 \xFF\xC0\x62", false) == std::vector<TokenId>{0, 1});
}

TEST_CASE("what a token adds to a text", "[text][tokenizer]") {
  const auto byte_level = Tokenizer::parse(R"({
    "model": {"type": "BPE", "vocab": {"Ġa": 0, "ä": 1, "中": 2}, "merges": []},
    "decoder": {"type": "ByteLevel"}})");
  CHECK(byte_level->token_bytes(0) == " a");
  CHECK(byte_level->token_bytes(1) == "\xE4");
  CHECK(byte_level->token_bytes(2) == "中");  // not in the alphabet: as it is
  CHECK(byte_level->token_bytes(3).empty());

  const auto metaspace = Tokenizer::parse(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "▁the": 1, "<0x0A>": 2}, "merges": []},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"},
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}]}})");
  CHECK(metaspace->token_bytes(0) == "a");
  CHECK(metaspace->token_bytes(1) == " the");
  CHECK(metaspace->token_bytes(2) == "\n");
}

TEST_CASE("a normalizer that makes a long text of a short one is refused", "[text][tokenizer]") {
  const auto with = [](const std::string& normalizer) {
    return R"({"normalizer": )" + normalizer +
           R"(, "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}})";
  };
  const std::string much(257, 'a');
  CHECK_THAT(complaint_about(with(R"({"type": "Prepend", "prepend": ")" + much + R"("})")),
             Catch::Contains("normalizer.prepend: has more than 256 bytes"));
  CHECK_THAT(
      complaint_about(
          with(R"({"type": "Replace", "pattern": {"String": "b"}, "content": ")" + much + R"("})")),
      Catch::Contains("normalizer.content: has more than 256 bytes"));
  std::string steps;
  for (int i = 0; i < 40; ++i) {
    steps += std::string(i > 0 ? "," : "") +
             R"({"type": "Replace", "pattern": {"String": "b"}, "content": "bb"})";
  }
  const auto bomb =
      Tokenizer::parse(with(R"({"type": "Sequence", "normalizers": [)" + steps + "]}"));
  CHECK_THROWS_WITH(bomb->encode("abba", false), Catch::Contains("normalizer makes"));
}

// As Gemma and Llama 2 publish it, and what Python's json module writes besides.
TEST_CASE("a value that the tokenizer does not need may be anything", "[text][tokenizer]") {
  const fs::path folder = temp_path("quire_tokenizer_load_test");
  fs::create_directories(folder);
  std::ofstream(folder / "tokenizer.json")
      << R"({"model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1}, "unk_token": "a"},
             "truncation": {"max_length": 1000000000000000019884624838656}, "x": [NaN, -Infinity]})";
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"model_max_length": 1000000000000000019884624838656, "bos_token": {"content": "<s>"},
             "eos_token": "a", "junk": [1e999, "\ud800"], "chat_template": "{{ bos_token }}!"})";
  const auto tokenizer = Tokenizer::load(folder);
  CHECK(tokenizer->special_strings().at("bos_token") == "<s>");
  CHECK(tokenizer->special_strings().at("eos_token") == "a");
  fs::remove_all(folder);
}

struct Folder {
  fs::path path = temp_path("quire_tokenizer_load_test");
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  void write(const char* name, std::string_view text) const { std::ofstream(path / name) << text; }
};

// transformers 4 reads both files: what the second adds, and the ends that a class builds itself.
TEST_CASE("tokenizer_config.json adds tokens and ends", "[text][tokenizer]") {
  const Folder folder;
  folder.write("tokenizer.json",
               R"({"model": {"type": "WordLevel", "vocab": {"<s>": 0, "</s>": 1, "a": 2},
                             "unk_token": "a"},
                   "added_tokens": [{"id": 3, "content": "<x>", "single_word": false,
                     "lstrip": false, "rstrip": false, "normalized": false, "special": true}]})");
  const auto config = [](std::string_view name, std::string_view flags) {
    return R"({"tokenizer_class": ")" + std::string(name) +
           R"(", "bos_token": {"content": "<s>"}, "eos_token": "</s>", "added_tokens_decoder": {
           "10": {"content": "<z>"}, "11": {},
           "9": {"content": "<y>", "single_word": false, "lstrip": false, "rstrip": false,
                 "normalized": false, "special": true},
           "3": {"content": "<x>", "single_word": false, "lstrip": true, "rstrip": true,
                 "normalized": false, "special": true}})" +
           std::string(flags) + "}";
  };
  using Ids = std::vector<TokenId>;
  folder.write("tokenizer_config.json", config("PreTrainedTokenizerFast", ""));
  CHECK(Tokenizer::load(folder.path)->encode("a<z><x><y></s>", true) == Ids{2, 5, 3, 4, 1});
  CHECK(Tokenizer::load(folder.path)->is_special(4));
  CHECK_FALSE(Tokenizer::load(folder.path)->is_special(5));
  folder.write("tokenizer_config.json", config("LlamaTokenizerFast", ""));
  CHECK(Tokenizer::load(folder.path)->encode("a", true) == Ids{0, 2});
  CHECK(Tokenizer::load(folder.path)->encode("a", false) == Ids{2});
  folder.write("tokenizer_config.json",
               config("LlamaTokenizer", R"(, "add_bos_token": false, "add_eos_token": true)"));
  CHECK(Tokenizer::load(folder.path)->encode("a", true) == Ids{2, 1});
}

TEST_CASE("a token with a name is a token", "[text][tokenizer]") {
  const Folder folder;
  folder.write("tokenizer.json",
               R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "<e>": 1}, "unk_token": "a"},
                   "added_tokens": [{"id": 2, "content": "<i>"}]})");
  folder.write("tokenizer_config.json",
               R"({"pad_token": "<p>", "eos_token": {"content": "<e>"}, "image_token": "<img>",
                   "additional_special_tokens": ["<q>", {"content": "<i>"}], "unk_token": null})");
  const auto tokenizer = Tokenizer::load(folder.path);
  CHECK(tokenizer->encode("<p>a<e><q><i><img>", true) == std::vector<TokenId>{3, 0, 1, 5, 2, 4});
  CHECK(tokenizer->decode(std::vector<TokenId>{3, 0, 1, 5, 2, 4}, true) == "a");
  CHECK(tokenizer->vocab_size() == 6);
}

// Recorded with transformers 4.57 (5.24 shows "<n>" when special tokens are skipped): the older
// files count only without added_tokens_decoder.
TEST_CASE("tokens of the older files beside tokenizer.json", "[text][tokenizer]") {
  const Folder folder;
  folder.write("tokenizer.json",
               R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "<e>": 1}, "unk_token": "a"},
                   "added_tokens": [{"id": 2, "content": "<i>"}]})");
  folder.write("added_tokens.json", R"({"<n>": 4, "<m>": 3, "<i>": 2, "<z>": 9})");
  folder.write("special_tokens_map.json",
               R"({"eos_token": "<m>", "bos_token": {"content": "<b>"}, "pad_token": null,
                   "additional_special_tokens": ["<n>"]})");
  const std::string named = R"("eos_token": "<e>", "pad_token": "<p>")";
  using Ids = std::vector<TokenId>;
  SECTION("they count, and the map's names win") {
    folder.write("tokenizer_config.json", "{" + named + "}");
    const auto tokenizer = Tokenizer::load(folder.path);
    CHECK(tokenizer->encode("<m><n><z>a<b>", true) == Ids{3, 4, 5, 0, 6});
    CHECK(tokenizer->decode(Ids{3, 4, 5, 0, 6}, true) == "<z> a");
    const std::map<std::string, std::string, std::less<>> names = {{"eos_token", "<m>"},
                                                                   {"bos_token", "<b>"}};
    CHECK(tokenizer->special_strings() == names);
  }
  SECTION("no tokenizer_config.json is needed") {
    CHECK(Tokenizer::load(folder.path)->encode("<m><n><z>a<b>", true) == Ids{3, 4, 5, 0, 6});
  }
  SECTION("a decoder makes them void") {
    folder.write("tokenizer_config.json", "{" + named + R"(, "added_tokens_decoder": {}})");
    const auto tokenizer = Tokenizer::load(folder.path);
    CHECK(tokenizer->encode("<p>", true) == Ids{3});
    CHECK(tokenizer->vocab_size() == 4);
    CHECK(tokenizer->special_strings().at("eos_token") == "<e>");
  }
  SECTION("what is no number is refused") {
    folder.write("added_tokens.json", R"({"<n>": "4"})");
    CHECK_THROWS_WITH(Tokenizer::load(folder.path), Catch::Contains("added_tokens.json"));
  }
}

TEST_CASE("a folder with another form of tokenizer is refused by its name", "[text][tokenizer]") {
  const Folder folder;
  CHECK_THROWS_WITH(Tokenizer::load(folder.path), Catch::Contains("tokenizer.json: is missing"));
  folder.write("tekken.json", "{}");
  CHECK_THROWS_WITH(Tokenizer::load(folder.path),
                    Catch::Contains("has tekken.json but no tokenizer.json"));
}

// As the classes of transformers do; others leave it to tokenizer.json.
TEST_CASE("add_prefix_space of tokenizer_config.json counts for its classes", "[text][tokenizer]") {
  const Folder folder;
  folder.write("tokenizer.json",
               R"({"model": {"type": "BPE", "vocab": {"a": 0, "Ġ": 1}, "merges": []},
                   "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel",
                     "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}})");
  const auto ids = [&](const std::string& fields) {
    folder.write("tokenizer_config.json", R"({"tokenizer_class": )" + fields + "}");
    return Tokenizer::load(folder.path)->encode("a", true);
  };
  using Ids = std::vector<TokenId>;
  for (const char* name : {"GPT2Tokenizer", "Qwen2TokenizerFast", "RobertaTokenizer"}) {
    const std::string with = "\"" + std::string(name) + R"(", "add_prefix_space": )";
    CHECK(ids(with + "true") == Ids{1, 0});
    CHECK(ids(with + "false") == Ids{0});
    CHECK(ids(with + "null") == Ids{0});
  }
  CHECK(ids(R"("PreTrainedTokenizerFast", "add_prefix_space": true)") == Ids{0});
}

// Recorded with the tokenizers library: a token of blanks that the one before has taken along.
TEST_CASE("what a token has stripped belongs to no other token", "[text][tokenizer]") {
  const auto tokenizer = Tokenizer::parse(R"({
    "added_tokens": [
      {"id": 2, "content": "...", "single_word": false, "lstrip": false, "rstrip": true,
       "normalized": false, "special": false},
      {"id": 3, "content": "  ", "single_word": false, "lstrip": true, "rstrip": false,
       "normalized": false, "special": false}],
    "model": {"type": "WordLevel", "vocab": {"b": 0, "c": 1}, "unk_token": "b"}})");
  CHECK(tokenizer->encode("...\n  ...  c  ...", false) == std::vector<TokenId>{2, 2, 1, 3, 2});
}

}  // namespace
}  // namespace quire
