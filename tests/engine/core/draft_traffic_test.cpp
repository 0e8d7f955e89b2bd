// Random traffic with draft models in pools so small that requests lose their blocks. What is free
// and not cached is NaN, and who is drafted for changes from step to step, so that a draft model
// finds NaN where it was left out: it may propose nonsense, and no answer may change. The same
// where the next step is queued before the host knows how many drafts held.

#include <catch2/catch.hpp>
#include <random>

#include "tests/engine/core/stepped_engine.h"
#include "tests/support/poison_device.h"
#include "tests/support/staged_device.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;

struct Pair {
  const char* name;
  DraftMethod method;
};

constexpr Pair kPairs[] = {{"eagle-llama", DraftMethod::eagle},
                           {"eagle3-llama-norms", DraftMethod::eagle3},
                           {"eagle3-qwen3", DraftMethod::eagle3},
                           {"mtp-deepseek-v3", DraftMethod::mtp},
                           {"mtp-glm4-moe", DraftMethod::mtp},
                           {"mtp-qwen3-5", DraftMethod::mtp},
                           {"mtp-qwen3-next", DraftMethod::mtp}};

EngineConfig config_of(const Pair& pair) {
  EngineConfig config;
  config.model.path = std::string("tests/data/golden/drafts/") + pair.name + "/target";
  config.model.dtype = DType::f32;
  config.model.max_model_len = 192;
  config.cache.kv_cache_memory_bytes = std::int64_t{64} << 20;
  config.scheduler.max_num_seqs = 6;
  config.scheduler.max_num_batched_tokens = 64;
  config.cpu_threads = 1;
  config.deterministic = true;
  return config;
}

EngineConfig with_drafts(EngineConfig config, const Pair& pair) {
  config.speculative.method = pair.method;
  config.speculative.num_speculative_tokens = 4;
  if (pair.method != DraftMethod::mtp)
    config.speculative.model = std::string("tests/data/golden/drafts/") + pair.name + "/draft";
  return config;
}

struct Job {
  AddRequest request;
  Tokens answer;
};

std::vector<Job> draw_jobs(std::mt19937& random, const EngineConfig& config) {
  std::vector<Job> jobs(25);
  SteppedEngine alone(config);
  for (Job& job : jobs) {
    Tokens prompt;
    const unsigned step = 1 + random() % 3;  // beginnings that others have too
    for (unsigned i = 0, n = 4 + random() % 90; i < n; ++i)
      prompt.push_back(static_cast<TokenId>(3 + i * step % 110));
    prompt.push_back(static_cast<TokenId>(3 + random() % 110));
    job.request = greedy_request(std::move(prompt), 1 + static_cast<int>(random() % 50));
    job.request.sampling.ignore_eos = true;
    job.request.sampling.seed = random();
    if (random() % 2 == 0) job.request.sampling.temperature = 0.7f;
    job.answer = alone.finish(job.request).token_ids;
  }
  return jobs;
}

class Traffic {
 public:
  explicit Traffic(const EngineConfig& config, bool is_staged = false)
      : engine_(config, [&](const EngineConfig& c) {
          EngineBackend backend = cpu_backend(c);
          if (is_staged) backend.device = std::make_unique<StagedDevice>(std::move(backend.device));
          auto poison = std::make_unique<PoisonDevice>(std::move(backend.device));
          device_ = poison.get();
          backend.device = std::move(poison);
          return backend;
        }) {
    std::vector<std::size_t> sizes;
    for (const KvTensor& tensor : engine_.core.plan().kv.workers.front().tensors)
      sizes.push_back(tensor.size);
    device_->poison_tensors(sizes);
  }

  void run(const std::vector<Job>& jobs, std::mt19937& random) {
    std::map<RequestId, const Job*> open;
    for (std::size_t next = 0; next < jobs.size() || engine_.core.has_work();) {
      while (next < jobs.size() && random() % 3 == 0)
        open[engine_.add(jobs[next].request)] = &jobs[next], ++next;
      if (!open.empty() && random() % 30 == 0) {
        engine_.core.abort(open.begin()->first);
        open.erase(open.begin());
      }
      engine_.step();
      num_overlapping += engine_.core.runner().num_in_flight() > 0;
      poison_free_blocks();
      std::erase_if(open, [&](const auto& one) {
        const RequestOutput& output = engine_.outputs[one.first];
        if (!output.finish_reason) return false;
        CHECK(output.token_ids == one.second->answer);
        return true;
      });
    }
    CHECK(open.empty());
    CHECK(stats().num_free_blocks == stats().num_blocks);
  }

  EngineStats stats() const { return engine_.core.stats(); }
  int num_overlapping = 0;  // steps that were under way when the next one was planned

 private:
  void poison_free_blocks() {
    const BlockPool& pool = engine_.core.kv_cache().pool();
    const int num_blocks = pool.num_usable() + 1;
    for (BlockId id = 0; id < num_blocks; ++id)
      if (id == kNullBlock || (pool.is_free(id) && !pool.index().holds(id)))
        device_->poison(static_cast<std::size_t>(id), static_cast<std::size_t>(num_blocks));
  }

  PoisonDevice* device_ = nullptr;
  SteppedEngine engine_;
};

TEST_CASE("whatever a draft model reads, no answer changes", "[engine][core][drafts]") {
  const bool is_staged = GENERATE(false, true);
  std::int64_t preemptions = 0, hits = 0, accepted = 0, left_out = 0, overlapping = 0;
  for (const Pair& pair : kPairs) {
    std::mt19937 random(11);
    const std::vector<Job> jobs = draw_jobs(random, config_of(pair));
    EngineConfig config = with_drafts(config_of(pair), pair);
    const SteppedEngine roomy(config);
    const auto fewest = static_cast<int>(roomy.core.plan().kv.workers.front().needed_blocks) + 1;
    for (const int times : {1, 3}) {
      for (const bool adaptive : {false, true}) {
        INFO(pair.name << ", " << times << " times the smallest pool, adaptive " << adaptive);
        config.cache.num_gpu_blocks_override = times * fewest;
        config.speculative.adaptive = adaptive;
        config.speculative.disable_by_batch_size = (times == 1 ? 1 : 3) + (is_staged ? 2 : 0);
        Traffic traffic(config, is_staged);
        traffic.run(jobs, random);
        const EngineStats stats = traffic.stats();
        preemptions += stats.preemptions;
        hits += stats.prefix_cache_hits;
        accepted += stats.accepted_draft_tokens;
        left_out += stats.draft_choices[0].rows;
        overlapping += traffic.num_overlapping;
      }
    }
  }
  CHECK(preemptions > 20);
  CHECK(hits > 500);
  CHECK(accepted > 200);
  CHECK(left_out > (is_staged ? 100 : 1000));
  CHECK((overlapping > 500) == is_staged);
  CHECK((overlapping > 0) == is_staged);
}

}  // namespace
}  // namespace quire::test
