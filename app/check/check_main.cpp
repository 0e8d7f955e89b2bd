#include "app/check/check_main.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>

#include "app/args/failure_text.h"
#include "app/args/forgiving_args.h"
#include "app/args/idle_flags.h"
#include "app/check/draft_check.h"
#include "app/check/run.h"
#include "app/engines/backends.h"
#include "app/flags/engine_flags.h"
#include "app/flags/graph_flags.h"
#include "engine/config.h"

namespace quire {
namespace {

struct CheckFlags {
  EngineConfig engine;
  std::string golden;  // empty: the model's folder
  int chunk = 0;       // tokens; 0: whole prompts
  int batch = 1;       // requests at a time
};

// Below float32 the distance in distribution is what counts; where the reference's own is not
// known, as with a KV cache of 8 bits, tokens that it chose by more than this.
constexpr double kSafeGap = 0.5;
constexpr double kKlFactor = 1.5;

void add_flags(CLI::App& app, CheckFlags& flags) {
  flags.engine.cache.enable_prefix_caching = false;  // every position is computed anyhow
  add_engine_flags(app, flags.engine);
  app.add_option("--golden", flags.golden,
                 "Folder with golden.json and golden.safetensors; default: the model's");
  app.add_option("--chunk", flags.chunk, "Most tokens of a prompt in one step; 0: all")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--batch", flags.batch, "Requests that run at a time")
      ->check(CLI::Range(1, 1 << 20));
}

std::size_t longest_of(const Golden& golden) {
  std::size_t longest = 0;
  for (const GoldenCase& c : golden.cases)
    longest = std::max(longest, c.prompt.size() + c.greedy.size());
  return longest;
}

// With room for drafts that nothing cuts.
std::size_t longest_of(const DraftGolden& golden) {
  std::size_t longest = 0;
  for (const DraftCase& c : golden.cases) longest = std::max(longest, c.tokens.size());
  for (const DraftLoop& loop : golden.loops)
    longest = std::max(longest, loop.prompt.size() + loop.output.size());
  return longest + 2 * static_cast<std::size_t>(golden.speculative.num_speculative_tokens) + 2;
}

// What the flags leave open, no larger than the check needs.
void complete(CheckFlags& flags, std::size_t longest) {
  EngineConfig& engine = flags.engine;
  if (engine.model.max_model_len == 0) {
    engine.model.max_model_len = static_cast<std::int64_t>(longest) + 1;
  }
  engine.scheduler.max_num_seqs = std::min(flags.batch, engine.scheduler.max_num_batched_tokens);
  if (flags.chunk > 0) engine.scheduler.long_prefill_token_threshold = flags.chunk;
  CacheConfig& cache = engine.cache;
  if (!cache.num_gpu_blocks_override && cache.kv_cache_memory_bytes == 0 &&
      !cache.gpu_memory_utilization) {
    cache.kv_cache_memory_bytes = std::int64_t{256} << 20;
  }
}

struct Bounds {
  Bounds(const Golden& golden, DType dtype, DType cache_dtype)
      : exact(dtype == DType::f32 && cache_dtype == DType::f32),
        atol(golden.atol),
        kl(cache_dtype == DType::fp8_e4m3 ? 0 : kKlFactor * golden.kl_of_reference_bf16),
        longest(std::max_element(golden.cases.begin(), golden.cases.end(),
                                 [](const auto& a, const auto& b) {
                                   return a.prompt.size() < b.prompt.size();
                                 }) -
                golden.cases.begin()) {}

  bool hold(const GoldenCase& c, std::ptrdiff_t index, const CaseResult& r) const {
    const std::size_t at = r.greedy_matches;
    if (exact) return r.distance.max_abs <= atol && at == c.greedy.size();
    if (kl > 0) return index != longest || r.distance.mean_kl <= kl;
    return at == c.greedy.size() || (at < c.greedy_gap.size() && c.greedy_gap[at] <= kSafeGap);
  }
  std::string text() const {
    if (exact) return fmt::format("|Δlogit| at most {:g}, every greedy token", atol);
    if (kl > 0) return fmt::format("mean KL of the longest prompt at most {:.3g}", kl);
    return fmt::format("greedy tokens with a lead above {:g}", kSafeGap);
  }

  bool exact;
  double atol;
  double kl;
  std::ptrdiff_t longest;
};

// Over the positions of all prompts.
double mean_kl(const Golden& golden, const std::vector<CaseResult>& results) {
  double sum = 0, positions = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto length = static_cast<double>(golden.cases[i].prompt.size());
    sum += results[i].distance.mean_kl * length;
    positions += length;
  }
  return sum / positions;
}

// Prints a line per case; true if all are within bounds.
bool report(const Golden& golden, const std::vector<CaseResult>& results, DType dtype,
            DType cache_dtype) {
  const Bounds bounds(golden, dtype, cache_dtype);
  fmt::print("{}: {}, KV cache {}, {}\n", golden.name, name_of(dtype), name_of(cache_dtype),
             bounds.text());
  fmt::print("{:>6} {:>7} {:>12} {:>10} {:>8}\n", "case", "prompt", "max |Δlogit|", "mean KL",
             "greedy");
  bool all_ok = true;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const GoldenCase& c = golden.cases[i];
    const CaseResult& r = results[i];
    const bool ok = bounds.hold(c, static_cast<std::ptrdiff_t>(i), r);
    all_ok = all_ok && ok;
    fmt::print("{:>6} {:>7} {:>12.3g} {:>10.3g} {:>8}{}\n", i, c.prompt.size(), r.distance.max_abs,
               r.distance.mean_kl, fmt::format("{}/{}", r.greedy_matches, c.greedy.size()),
               ok ? "" : "  MISS");
  }
  fmt::print("{}: {}, mean KL {:.3g}\n", golden.name, all_ok ? "ok" : "MISS",
             mean_kl(golden, results));
  return all_ok;
}

void choose_and_validate(CheckFlags& flags) {
  const auto choice = choose_device(flags.engine.device);
  if (choice.has_error()) throw Failure(choice.error());
  flags.engine.device = choice->kind;
  if (auto valid = validate(flags.engine); valid.has_error()) throw Failure(valid.error());
}

// Prints a line per case and per loop; true if all are as the reference's.
bool report(const DraftGolden& golden, DType dtype, const std::vector<DraftCaseResult>& cases,
            const std::vector<DraftLoopResult>& loops) {
  const bool exact = dtype == DType::f32;
  fmt::print("{}: {}, {}\n", golden.name, name_of(dtype),
             exact ? fmt::format("|Δlogit| at most {:g}, every draft", golden.atol)
                   : fmt::format("drafts with a lead above {:g}", kSafeDraftGap));
  fmt::print("{:>6} {:>9} {:>12} {:>9}\n", "case", "contexts", "max |Δlogit|", "drafts");
  bool all_ok = true;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const DraftCaseResult& r = cases[i];
    const bool ok =
        exact ? r.max_abs <= golden.atol && r.matches == r.drafts : r.unsafe_misses == 0;
    all_ok = all_ok && ok;
    fmt::print("{:>6} {:>9} {:>12.3g} {:>9}{}\n", i, golden.cases[i].contexts.size(), r.max_abs,
               fmt::format("{}/{}", r.matches, r.drafts), ok ? "" : "  MISS");
  }
  for (std::size_t i = 0; i < loops.size(); ++i) {
    const bool ok = !exact || loops[i].counters.value_or(false);
    all_ok = all_ok && ok;
    fmt::print("  loop, {} drafts a step: {}/{} steps{}\n", golden.loops[i].num_drafts,
               loops[i].steps, golden.loops[i].steps.size(), ok ? "" : "  MISS");
  }
  fmt::print("{}: {}\n", golden.name, all_ok ? "ok" : "MISS");
  return all_ok;
}

int run_drafts(CheckFlags& flags, const DraftGolden& golden) {
  complete(flags, longest_of(golden));
  flags.engine.model.path = golden.target.string();
  flags.engine.speculative = golden.speculative;
  choose_and_validate(flags);
  DraftCheck check(flags.engine, golden,
                   [](const EngineConfig& config) { return make_backend(config, 0); });
  const auto cases = check.run_cases(flags.batch);
  return report(golden, check.dtype(), cases, check.run_loops()) ? 0 : 1;
}

// Where the reference lies.
const std::string& folder_of(const CheckFlags& flags) {
  return flags.golden.empty() ? flags.engine.model.path : flags.golden;
}

// What would change nothing of the check.
void refuse_idle_flags(const CLI::App& app, const CheckFlags& flags) {
  refuse_of_servers(app, "a check");
  constexpr std::array<std::string_view, 1> kOfBatch{"--max-num-seqs"};
  refuse_given(app, kOfBatch, "on a check, whose --batch says how many requests run together");
  constexpr std::array<std::string_view, 1> kOfChunk{"--long-prefill-token-threshold"};
  if (flags.chunk > 0) refuse_given(app, kOfChunk, "beside --chunk, which says the same");
  constexpr std::array<std::string_view, 1> kDrafts{"Speculative decoding"};
  if (is_draft_golden(folder_of(flags)))
    refuse_given_of(app, kDrafts, "on a check of drafts, whose reference says what drafts");
}

int run(CheckFlags& flags) {
  const std::string& folder = folder_of(flags);
  if (is_draft_golden(folder)) return run_drafts(flags, read_draft_golden(folder));
  const Golden golden = read_golden(folder);
  complete(flags, longest_of(golden));
  choose_and_validate(flags);
  CheckRun check(flags.engine, golden);
  const std::vector<CaseResult> results = check.run(flags.batch);
  return report(golden, results, check.dtype(), check.cache_dtype()) ? 0 : 1;
}

}  // namespace

int check_main(int argc, const char* const* argv) {
  CLI::App app(
      "Runs a model's reference answers through the engine: full logits, greedy continuation.",
      "quire check");
  CheckFlags flags;
  add_flags(app, flags);
  try {
    parse_forgivingly(app, argc, argv);
    refuse_idle_flags(app, flags);
    if (const auto choice = choose_device(flags.engine.device))
      forget_idle_sizes(app, flags.engine, choice->kind);
    return run(flags);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& wrong) {
    app.exit(wrong);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "quire check: {}\n", failure_text(failure));
  }
  return 2;
}

}  // namespace quire
