// What a decoded token costs at the end of a short and of a long context: in recurrent layers the
// same, in attention layers more. Two random models that differ in their layers' kind only.
//
//   context_perf          both kinds at 128 … 16k tokens, each against its own first line
//   context_perf MODEL    a folder's model with random weights on all cores, one request, behind
//   128
//                         and 8,192 tokens in turn: medians of pairs, by the clock

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "cpu/cpu_backend.h"
#include "engine/core/engine_plan.h"
#include "engine/runner/model_runner.h"
#include "model/registry.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr int kContexts[] = {128, 1024, 4096, 16384};
constexpr int kMaxLen = 16384 + 16;
constexpr int kRows = 4;
constexpr int kRounds = 7;
constexpr int kSteps = 20;

// Of this process, which has one thread: what else the machine does counts little.
double cpu_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// models/quire-tiny-hybrid with four layers of one kind, and no experts.
fs::path write_model(const std::string& layer_type) {
  std::ifstream file("models/quire-tiny-hybrid/config.json");
  std::stringstream text;
  text << file.rdbuf();
  boost::json::object config = boost::json::parse(text.str()).as_object();
  config["layer_types"] = boost::json::array(4, boost::json::value(layer_type));
  config["mlp_only_layers"] = {0, 1, 2, 3};
  config["max_position_embeddings"] = kMaxLen;
  const fs::path folder = fs::temp_directory_path() / ("quire-context-perf-" + layer_type);
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << boost::json::serialize(config);
  return folder;
}

struct Shape {
  int threads = 1;  // 0: all cores
  int rows = kRows;
  int max_len = kMaxLen;
};

EngineConfig config_of(const fs::path& folder, const Shape& shape) {
  EngineConfig config;
  config.model.path = folder;
  config.model.load_format = LoadFormat::dummy;
  config.cache.kv_cache_memory_bytes = std::int64_t{1} << 30;
  config.cache.enable_prefix_caching = false;
  config.model.max_model_len = shape.max_len;
  config.scheduler.max_num_seqs = shape.rows;
  config.scheduler.max_num_batched_tokens = shape.rows;
  return config;
}

// Decodes at whatever context, over caches that hold zeros.
class Decoder {
 public:
  explicit Decoder(const fs::path& folder, const Shape& shape = {})
      : shape_(shape),
        config_(config_of(folder, shape)),
        model_config_(read_model_config(config_.model.path)),
        device_(make_cpu_device()),
        ops_(make_cpu_ops({.threads = shape.threads})),
        model_(load_model(model_config_, config_.model.path, *device_, ops_->traits(),
                          {.dtype = model_config_.dtype, .load_format = LoadFormat::dummy})),
        plan_(plan_engine(config_, model_config_,
                          planned_device(DeviceKind::cpu, *device_, ops_->traits()))
                  .model.value()
                  .kv),
        memory_(*device_, plan_) {
    model_->bind_cache(
        memory_.layers(model_->kv_specs(kv_spec_options(config_, model_config_.dtype))));
    runner_ =
        std::make_unique<ModelRunner>(*device_, *ops_, *model_, memory_, plan_,
                                      RunnerOptions{.limits = {.max_num_seqs = shape.rows,
                                                               .max_num_batched_tokens = shape.rows,
                                                               .max_model_len = shape.max_len}});
  }

  // Of kSteps steps, each of which computes the token after `context` others in every row.
  template <class Clock>
  double per_token(int context, int num_steps, Clock now) {
    std::deque<Request> requests;
    BatchPlan plan = steady_plan(context, requests);
    step(plan);
    plan.block_updates.clear();
    for (BatchRow& row : plan.rows) row.is_new = false;
    const double start = now();
    for (int i = 0; i < num_steps; ++i) step(plan);
    return (now() - start) / (num_steps * shape_.rows);
  }

 private:
  void step(const BatchPlan& plan) {
    runner_->launch(plan);
    runner_->collect();
  }

  BatchPlan steady_plan(int context, std::deque<Request>& requests) const {
    BatchPlan plan;
    BlockId next = 1;
    for (int r = 0; r < shape_.rows; ++r) {
      RequestInit init;
      init.id = RequestId{static_cast<std::uint64_t>(r) + 1};
      init.prompt.assign(context + 1, r);
      init.sampling.temperature = 0;
      const Request& request = requests.emplace_back(std::move(init));
      plan.rows.push_back({.request = &request,
                           .slot = r,
                           .num_computed = context,
                           .num_tokens = 1,
                           .is_new = true,
                           .samples = true});
      for (std::size_t g = 0; g < plan_.groups().size(); ++g) {
        const int count = context / plan_.groups()[g].block_size + 1;
        plan.block_updates.push_back({.row = r,
                                      .group = static_cast<std::int32_t>(g),
                                      .first = static_cast<std::int32_t>(plan.block_ids.size()),
                                      .count = count});
        for (int i = 0; i < count; ++i) plan.block_ids.push_back(next++);
      }
    }
    plan.num_tokens = shape_.rows;
    return plan;
  }

  Shape shape_;
  EngineConfig config_;
  ModelConfig model_config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  KvPlan plan_;
  KvMemory memory_;
  std::unique_ptr<ModelRunner> runner_;
};

// The best of all rounds, by context; a round visits every context.
std::vector<double> best_times(const std::string& layer_type) {
  Decoder decoder(write_model(layer_type));
  std::vector<double> best(std::size(kContexts), 1e12);
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < best.size(); ++i) {
      best[i] = std::min(best[i], decoder.per_token(kContexts[i], kSteps, cpu_microseconds));
    }
  }
  return best;
}

double microseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

void compare(const fs::path& folder) {
  constexpr int kShort = 128, kLong = 8192, kPairs = 15, kStepsOfPair = 4;
  Decoder decoder(folder, {.threads = 0, .rows = 1, .max_len = kLong + 16});
  std::vector<double> shorts, longs, ratios;
  for (int i = 0; i < kPairs; ++i) {
    shorts.push_back(decoder.per_token(kShort, kStepsOfPair, microseconds));
    longs.push_back(decoder.per_token(kLong, kStepsOfPair, microseconds));
    ratios.push_back(shorts.back() / longs.back());
  }
  const auto median = [](std::vector<double>& all) {
    std::ranges::nth_element(all, all.begin() + kPairs / 2);
    return all[kPairs / 2];
  };
  const double ratio = median(ratios);
  fmt::print(
      "behind {} tokens {:.1f} ms, behind {} {:.1f} ms; speed {:.3f} of the short one's ({:.3f} to "
      "{:.3f})\n",
      kShort, median(shorts) / 1e3, kLong, median(longs) / 1e3, ratio,
      *std::ranges::min_element(ratios), *std::ranges::max_element(ratios));
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc == 2) {
    quire::compare(argv[1]);
    return 0;
  }
  const auto recurrent = quire::best_times("linear_attention");
  const auto attention = quire::best_times("full_attention");
  fmt::print("{:>8}{:>16}{:>8}{:>16}{:>8}\n", "context", "recurrent µs", "ratio", "attention µs",
             "ratio");
  for (std::size_t i = 0; i < recurrent.size(); ++i) {
    fmt::print("{:>8}{:>16.1f}{:>8.2f}{:>16.1f}{:>8.2f}\n", quire::kContexts[i], recurrent[i],
               recurrent[i] / recurrent[0], attention[i], attention[i] / attention[0]);
  }
}
