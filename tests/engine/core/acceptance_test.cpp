// The shipped drafts against a plain reference: what they propose at each context, and how much of
// it holds over the evaluation set, counted as vLLM counts.

#include <simdjson.h>

#include <catch2/catch.hpp>
#include <map>
#include <optional>

#include "tests/engine/core/eval_lines.h"
#include "tests/engine/core/stepped_engine.h"

namespace quire::test {
namespace {

using Element = simdjson::dom::element;
using Tokens = std::vector<TokenId>;

struct Shipped {
  const char* name;  // of models/drafts/acceptance/
  const char* model;
  const char* target;  // whose evaluation set it is
  DraftMethod method;
};

constexpr Shipped kDrafts[] = {
    {"quire-tiny-eagle", "models/quire-tiny", "quire-tiny", DraftMethod::eagle},
    {"quire-tiny-eagle3", "models/quire-tiny", "quire-tiny", DraftMethod::eagle3},
    {"quire-tiny-hybrid-mtp", "models/drafts/quire-tiny-hybrid-mtp", "quire-tiny-hybrid",
     DraftMethod::mtp}};

EngineConfig config_of(const std::string& model) {
  EngineConfig config;
  config.model.path = model;
  config.model.dtype = DType::f32;
  config.model.max_model_len = 2048;
  config.cache.kv_cache_memory_bytes = std::int64_t{256} << 20;
  config.scheduler.max_num_seqs = 8;
  config.deterministic = true;  // always as many drafts as can be
  return config;
}

EngineConfig config_of(const Shipped& shipped, int num_drafts) {
  EngineConfig config = config_of(shipped.model);
  config.speculative.method = shipped.method;
  config.speculative.num_speculative_tokens = num_drafts;
  if (shipped.method != DraftMethod::mtp)
    config.speculative.model = std::string("models/drafts/") + shipped.name;
  return config;
}

Tokens ids(Element list) {
  Tokens values;
  for (const auto id : list.get_array()) values.push_back(static_cast<TokenId>(std::int64_t(id)));
  return values;
}

// By line of the set: how often it was drafted for, and how many drafts held.
using Counts = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::int64_t num_accepted(const EngineStats& stats) {
  std::int64_t accepted = 0;
  for (const DraftPosition& position : stats.draft_positions) accepted += position.accepted;
  return accepted;
}

// One after the other, so that the counters can be told apart; up to the end marker, as nothing
// must cut what a step accepts. What the reference did not end is left out.
Counts answer_all(SteppedEngine& engine, const std::string& target) {
  constexpr TokenId kEnd = 1523;
  Counts counts;
  simdjson::dom::parser parser;
  for (const auto line : parser.load_many("models/" + target + "/eval.jsonl")) {
    const EngineStats before = engine.core.stats();
    const Tokens reference = ids(line["reference_ids"]);
    const bool is_ended =
        static_cast<std::int64_t>(reference.size()) < std::int64_t(line["max_tokens"]);
    if (is_ended) {
      AddRequest request = greedy_request(ids(line["prompt_ids"]), 600);
      request.eos_token_ids = {kEnd};
      Tokens tokens = engine.finish(std::move(request)).token_ids;
      if (!tokens.empty()) tokens.pop_back();
      CHECK(tokens == reference);
    }
    const EngineStats after = engine.core.stats();
    counts.emplace_back(is_ended ? after.drafts - before.drafts : -1,
                        num_accepted(after) - num_accepted(before));
  }
  return counts;
}

// Of the whole set.
void check_counters(const EngineStats& stats, Element expected) {
  CHECK(stats.drafts == std::int64_t(expected["num_drafts"]));
  CHECK(stats.draft_tokens == std::int64_t(expected["num_draft_tokens"]));
  std::vector<std::int64_t> accepted, wanted;
  for (const DraftPosition& position : stats.draft_positions) accepted.push_back(position.accepted);
  for (const auto count : expected["num_accepted_tokens_per_pos"].get_array())
    wanted.push_back(std::int64_t(count));
  CHECK(accepted == wanted);
}

TEST_CASE("the shipped drafts are accepted as the reference's", "[engine][core][drafts]") {
  simdjson::dom::parser parser;
  for (const Shipped& shipped : kDrafts) {
    const Element reference =
        parser.load(std::string("models/drafts/acceptance/") + shipped.name + ".json");
    for (const int num_drafts : {1, 3, 5}) {
      INFO(shipped.name << ", " << num_drafts << " drafts a step");
      SteppedEngine engine(config_of(shipped, num_drafts));
      const Counts counts = answer_all(engine, shipped.target);
      const std::string k = std::to_string(num_drafts);
      std::size_t at = 0;
      bool is_whole = true;
      for (const auto expected : reference["counts_per_line"].get_array()) {
        INFO("line " << at);
        const auto [drafts, accepted] = counts[at++];
        is_whole = is_whole && drafts >= 0;
        if (drafts < 0) continue;
        CHECK(drafts == std::int64_t(expected[k].at(0)));
        CHECK(accepted == std::int64_t(expected[k].at(1)));
      }
      if (is_whole) check_counters(engine.core.stats(), reference["k"][k]);
    }
  }
}

TEST_CASE("prompt lookup is accepted as vLLM's rule is", "[engine][core][drafts]") {
  simdjson::dom::parser parser;
  const Element reference = parser.load("models/drafts/acceptance/quire-tiny-ngram.json");
  for (const char* name : {"min 1 max 3 k 3", "min 2 max 4 k 5", "min 3 max 3 k 3"}) {
    INFO(name);
    const Element expected = reference["settings"][name];
    const auto number = [&](const char* field) {
      return static_cast<int>(std::int64_t(expected[field]));
    };
    EngineConfig config = config_of("models/quire-tiny");
    config.speculative = {.method = DraftMethod::ngram,
                          .num_speculative_tokens = number("num_speculative_tokens"),
                          .prompt_lookup_min = number("prompt_lookup_min"),
                          .prompt_lookup_max = number("prompt_lookup_max")};
    SteppedEngine engine(config);
    answer_all(engine, "quire-tiny");
    check_counters(engine.core.stats(), expected);
  }
}

// The reference's own lead decides how far a proposal can be compared.
TEST_CASE("the shipped drafts propose what the reference does", "[engine][core][drafts]") {
  constexpr int kDrafts5 = 5;
  constexpr double kLead = 0.01;
  simdjson::dom::parser parser;
  for (const Shipped& shipped : kDrafts) {
    INFO(shipped.name);
    const Element reference =
        parser.load(std::string("models/drafts/acceptance/") + shipped.name + ".json");
    const auto lines = eval_lines(std::string("models/") + shipped.target, -1.0);
    SteppedEngine engine(config_of(shipped, kDrafts5));
    std::map<std::pair<RequestId, int>, Tokens> shown;
    engine.core.observe_drafts([&](const ShownDraft& one) {
      shown[{one.request, one.context}].push_back(one.draft);
    });
    int compared = 0;
    for (const auto prompt : reference["prompts"].get_array()) {
      const EvalLine& line = lines[static_cast<std::size_t>(std::int64_t(prompt["line"]))];
      Tokens known = line.prompt;
      for (const TokenId token : ids(prompt["tokens"])) known.push_back(token);
      for (const auto [name, proposal] : prompt["proposals"].get_object()) {
        const auto context = static_cast<std::size_t>(std::stoi(std::string(name)));
        AddRequest request = greedy_request(
            {known.begin(), known.begin() + static_cast<std::ptrdiff_t>(context) - 1},
            kDrafts5 + 2);
        request.sampling.ignore_eos = true;
        request.sampling.allowed_tokens = {known[context - 1]};
        const RequestId id = engine.add(std::move(request));
        const std::pair at(id, static_cast<int>(context));
        while (!shown.contains(at)) engine.step();
        engine.core.abort(id);
        const Tokens wanted = ids(proposal);
        std::size_t i = 0;
        for (const auto gap : prompt["gaps"][name].get_array()) {
          if (double(gap) < kLead) break;
          INFO("line " << std::int64_t(prompt["line"]) << ", context " << context << ", draft "
                       << i);
          REQUIRE(shown[at][i] == wanted[i]);
          ++i, ++compared;
        }
      }
    }
    CHECK(compared > 900);
  }
}

}  // namespace
}  // namespace quire::test
