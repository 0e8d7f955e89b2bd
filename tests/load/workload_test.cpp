#include "load/workload.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/support/temp_path.h"
#include "text/tokenizer/tokenizer.h"

using namespace quire;
using namespace quire::load;

namespace {

std::filesystem::path write_file(const char* name, const std::string& text) {
  const auto path = temp_path(name);
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("the same seed gives the same bodies, another index another prompt", "[load][workload]") {
  const Workload a({.model = "m", .seed = 7}), b({.model = "m", .seed = 7}),
      c({.model = "m", .seed = 8});
  CHECK(a.path() == "/v1/chat/completions");
  CHECK(a.body(3) == b.body(3));
  CHECK(a.body(3) != a.body(4));
  CHECK(a.body(3) != c.body(3));
}

TEST_CASE("a shared prefix begins every prompt", "[load][workload]") {
  const Workload w(
      {.model = "m", .input_length = 3, .shared_prefix_length = 20, .completions = true});
  const auto common = [&](int i, int j) {
    const std::string a = w.body(i), b = w.body(j);
    return std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
  };
  CHECK(common(1, 2) > 20 * 4);
}

TEST_CASE("prompts come from a file in turn, with their own max_tokens", "[load][workload]") {
  const auto path =
      write_file("quire_prompts.jsonl",
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"}],\"max_tokens\":5}\n\n"
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"two\"}]}\n");
  const Workload w({.prompts = path, .model = "m", .output_tokens = 9});
  CHECK(w.body(0).find("\"one\"") != std::string::npos);
  CHECK(w.body(0).find("\"max_tokens\":5") != std::string::npos);
  CHECK(w.body(1).find("\"max_tokens\":9") != std::string::npos);
  CHECK(w.body(2) == w.body(0));
}

TEST_CASE("prompts for completions come from lines, too", "[load][workload]") {
  const auto path = write_file("quire_completions.jsonl",
                               "{\"prompt\":\"one\",\"max_tokens\":5}\n{\"prompt\":[1,2]}\n");
  const Workload w({.prompts = path, .model = "m", .output_tokens = 9, .completions = true});
  CHECK(w.body(0).find("\"prompt\":\"one\"") != std::string::npos);
  CHECK(w.body(0).find("\"max_tokens\":5") != std::string::npos);
  CHECK(w.body(1).find("\"prompt\":[1,2]") != std::string::npos);
}

TEST_CASE("a bad prompt file is refused with the line", "[load][workload]") {
  const auto path = write_file("quire_bad_prompts.jsonl", "{\"messages\":[]}\n{\"prompt\":[1]}\n");
  CHECK_THROWS_WITH(Workload({.prompts = path, .model = "m"}), Catch::Contains(":2:"));
  CHECK_THROWS_AS(Workload({.prompts = "/nonexistent/file", .model = "m"}), Failure);
}

TEST_CASE("a max_tokens that no request can have is refused", "[load][workload]") {
  for (const char* value : {"4294967297", "0", "-1", "1.5", "\"8\"", "16777217"}) {
    const auto path = write_file("quire_bad_max.jsonl",
                                 "{\"prompt\":\"a\",\"max_tokens\":" + std::string(value) + "}\n");
    CHECK_THROWS_WITH(Workload({.prompts = path, .model = "m"}),
                      Catch::Contains(":1: max_tokens is a whole number from 1 to 16777216"));
  }
  const auto path = write_file("quire_no_max.jsonl", "{\"prompt\":\"a\",\"max_tokens\":null}\n");
  CHECK(Workload({.prompts = path, .model = "m", .output_tokens = 9}).body(0).find(
            "\"max_tokens\":9") != std::string::npos);
}

TEST_CASE("a prompt is the first question of a chat", "[load][workload]") {
  const auto path =
      write_file("quire_custom.jsonl", "{\"prompt\":\"a \\\"b\\\"\",\"max_tokens\":3}\n");
  const std::string body = Workload({.prompts = path, .model = "m"}).body(0);
  CHECK(body.find(R"("messages":[{"role":"user","content":"a \"b\""}])") != body.npos);
  CHECK(body.find("\"max_tokens\":3") != body.npos);
}

TEST_CASE("entries without conversations are left out, unless all are", "[load][workload]") {
  const auto some = write_file("quire_sharegpt_some.json", R"([{"id": "a"},
    {"conversations": [{"from": "human", "value": "Hi"}]}, {"conversations": null}])");
  const Workload file({.prompts = some, .model = "m"});
  CHECK(file.body(0) == file.body(1));
  const auto none = write_file("quire_sharegpt_none.json", R"([{"id": "a"}])");
  CHECK_THROWS_WITH(Workload({.prompts = none, .model = "m"}),
                    Catch::Contains("no entry has \"conversations\""));
}

TEST_CASE("lengths in a range reach its ends and no further", "[load][workload]") {
  const Workload workload({.model = "m", .output_tokens = 100, .range_ratio = 0.5, .seed = 3});
  std::vector<int> tokens;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::string body = workload.body(i);
    tokens.push_back(std::stoi(body.substr(body.find("max_tokens") + 12)));
  }
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  CHECK((*least >= 50 && *least < 53));
  CHECK((*most <= 150 && *most > 147));
}

TEST_CASE("spread lengths keep their mean and are those of the seed", "[load][workload]") {
  const auto lengths = [](double spread, std::uint64_t seed) {
    const Workload workload({.model = "m",
                             .input_length = 100,
                             .output_tokens = 200,
                             .length_spread = spread,
                             .seed = seed});
    std::vector<double> words, tokens;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const std::string body = workload.body(i);
      words.push_back(static_cast<double>(std::count(body.begin(), body.end(), ' ')) + 1);
      tokens.push_back(std::stod(body.substr(body.find("max_tokens") + 12)));
    }
    return std::pair(words, tokens);
  };
  const auto mean = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  };
  const auto [words, tokens] = lengths(1, 7);
  CHECK(mean(words) == Approx(100).epsilon(0.1));
  CHECK(mean(tokens) == Approx(200).epsilon(0.1));
  CHECK(*std::max_element(tokens.begin(), tokens.end()) > 800);
  CHECK(*std::min_element(tokens.begin(), tokens.end()) < 40);
  CHECK(lengths(1, 7) == std::pair(words, tokens));
  CHECK(lengths(1, 8).second != tokens);
  CHECK(lengths(0, 7).second == std::vector<double>(3000, 200));
}

TEST_CASE("conversations of a file or of synthetic turns carry the answers", "[load][workload]") {
  const Workload talk({.model = "m", .input_length = 2, .turns = 3, .seed = 1});
  CHECK(talk.turns(0) == 3);
  const std::vector<std::string> answers = {"one \"quoted\"", "two"};
  const std::string first = talk.body(5), last = talk.body(5, answers);
  const std::string opening = first.substr(0, first.find(']'));
  CHECK(last.starts_with(opening + ",{\"role\":\"assistant\",\"content\":\"one \\\"quoted\\\"\"}"));
  CHECK(last.find("{\"role\":\"assistant\",\"content\":\"two\"},{\"role\":\"user\"") != last.npos);

  const auto path = write_file("quire_sharegpt.json", R"([
    {"id": "a", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "x"},
                                  {"from": "human", "value": "More"}]},
    {"id": "b", "conversations": [{"from": "gpt", "value": "nobody asked"}]},
    {"id": "c", "conversations": [{"from": "human", "value": "Alone"}]}])");
  const Workload file({.prompts = path, .model = "m", .turns = 4});
  CHECK(file.turns(0) == 2);
  CHECK(file.turns(1) == 1);
  CHECK(file.turns(2) == 2);  // from the start again
  CHECK(file.body(0).find("\"Hi\"") != std::string::npos);
  CHECK(file.body(0, std::vector<std::string>{"y"}).find("\"y\"},{\"role\":\"user\",\"content\":\"More\"}") !=
        std::string::npos);
  CHECK(Workload({.prompts = path, .model = "m"}).turns(0) == 1);
  CHECK(Workload({.prompts = path, .model = "m", .completions = true}).body(0).find(
            "\"prompt\":\"Hi\"") != std::string::npos);
  CHECK_THROWS_AS(Workload({.model = "m", .turns = 2, .completions = true}), Failure);
}

TEST_CASE("prompts of a trace share what its blocks share", "[load][workload]") {
  const auto path = write_file("quire_trace.jsonl", R"(
{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}
{"timestamp": 10, "input_length": 1100, "output_length": 6, "hash_ids": [7, 9, 3]}
)");
  const Workload w({.trace = path, .model = "m", .completions = true});
  REQUIRE(w.trace().size() == 2);
  const auto words = [&](std::uint64_t index) {
    const std::string body = w.body(index);
    const auto begin = body.find("\"prompt\":\"") + 10;
    return body.substr(begin, body.find('"', begin) - begin);
  };
  const std::string a = words(0), b = words(1);
  CHECK(std::count(a.begin(), a.end(), ' ') + 1 == 1000);
  CHECK(std::count(b.begin(), b.end(), ' ') + 1 == 1100);
  const auto common = std::mismatch(a.begin(), a.end(), b.begin()).first;
  CHECK(std::count(a.begin(), common, ' ') >= 512);
  CHECK(std::count(a.begin(), common, ' ') < 520);
  CHECK(w.body(1).find("\"max_tokens\":6") != std::string::npos);
  CHECK(w.turns(0) == 1);
}

TEST_CASE("lengths in tokens are those of the tokenizer", "[load][workload]") {
  for (const char* model : {"quire-tiny", "quire-tiny-hybrid"}) {
    const auto folder = std::filesystem::path("models") / model;
    const auto tokenizer = Tokenizer::load(folder);
    const PromptText text(folder);
    CHECK(text.counts_tokens());
    for (const int length : {1, 2, 17, 512}) {
      CHECK(tokenizer->encode(text.make(length, 3), false).size() == static_cast<std::size_t>(length));
    }
    CHECK(text.make(0, 3).empty());
    CHECK(text.make(40, 3) == text.make(40, 3));
    CHECK(text.make(40, 3) != text.make(40, 4));
  }
}
