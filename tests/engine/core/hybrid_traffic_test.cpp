// Random traffic on models with recurrent states, in pools so small that requests lose their blocks
// and prefixes are evicted. What is free and not cached is NaN, and so is the null block: a state
// that leaks from one request into another, or a page that is read before it is written, shows in
// the answer.

#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>
#include <random>

#include "tests/engine/core/stepped_engine.h"
#include "tests/support/poison_device.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int kMaxLen = 256;

EngineConfig config_of(const std::string& model) {
  EngineConfig config;
  config.model.path = model;
  config.model.dtype = DType::f32;  // near-ties would turn with the chunks
  config.model.max_model_len = kMaxLen;
  config.cache.kv_cache_memory_bytes = std::int64_t{64} << 20;
  config.scheduler.max_num_seqs = 8;
  config.scheduler.max_num_batched_tokens = 96;
  config.cpu_threads = 1;
  return config;
}

struct Job {
  Tokens prompt;
  int max_tokens = 0;
  Tokens answer = {};  // of an undisturbed run
};

std::vector<Job> draw_jobs(std::mt19937& random, int count) {
  const auto text = [](unsigned seed, int length) {
    std::mt19937 own(seed);
    Tokens tokens(length);
    for (TokenId& token : tokens) token = static_cast<TokenId>(3 + own() % 380);
    return tokens;
  };
  std::vector<Job> jobs(count);
  for (Job& job : jobs) {
    job.prompt = text(random() % 3, static_cast<int>(random() % 130));
    const Tokens own = text(random(), 1 + static_cast<int>(random() % 60));
    job.prompt.insert(job.prompt.end(), own.begin(), own.end());
    job.max_tokens = 1 + static_cast<int>(random() % 60);
  }
  return jobs;
}

AddRequest request_of(const Job& job) {
  AddRequest request = greedy_request(job.prompt, job.max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

// Also says how small a pool may be.
int answer_undisturbed(std::vector<Job>& jobs, EngineConfig config) {
  SteppedEngine engine(config);
  const auto needed = engine.core.plan().kv.workers.front().needed_blocks;
  config.cache.enable_prefix_caching = false;
  SteppedEngine alone(config);
  for (Job& job : jobs) job.answer = alone.finish(request_of(job)).token_ids;
  return static_cast<int>(needed) + 1;
}

class Traffic {
 public:
  Traffic(const EngineConfig& config, bool overlapping, std::mt19937& random)
      : random_(random), engine_(config, [&](const EngineConfig& c) {
          EngineBackend backend = overlapping ? pretend_backend(c) : cpu_backend(c);
          auto poison = std::make_unique<PoisonDevice>(std::move(backend.device));
          device_ = poison.get();
          backend.device = std::move(poison);
          return backend;
        }) {
    std::vector<std::size_t> sizes;
    for (const KvTensor& tensor : kv().workers.front().tensors) sizes.push_back(tensor.size);
    device_->poison_tensors(sizes);
  }

  void run(const std::vector<Job>& jobs) {
    std::map<RequestId, const Job*> open;
    for (std::size_t next = 0; next < jobs.size() || engine_.core.has_work();) {
      while (next < jobs.size() && random_() % 3 == 0) {
        open[engine_.add(request_of(jobs[next]))] = &jobs[next];
        ++next;
      }
      if (!open.empty() && random_() % 25 == 0) {
        const auto victim = std::next(open.begin(), random_() % open.size());
        engine_.core.abort(victim->first);
        open.erase(victim);
      }
      engine_.step();
      poison_free_blocks();
      std::erase_if(open, [&](const auto& one) { return check_end(one.first, *one.second); });
    }
    CHECK(open.empty());
    CHECK(stats().num_free_blocks == stats().num_blocks);
    check_zeroed_pages();
  }

  EngineStats stats() const { return engine_.core.stats(); }

 private:
  bool check_end(RequestId id, const Job& job) {
    const RequestOutput& output = engine_.outputs[id];
    if (!output.finish_reason) return false;
    CHECK(output.finish_reason == FinishReason::length);
    CHECK(output.token_ids == job.answer);
    const int num_tokens = static_cast<int>(job.prompt.size()) + job.max_tokens - 1;
    num_attention_blocks_ += cdiv(num_tokens, kv().block_size);
    return true;
  }

  // Attention's pages were, each time they went to another request.
  void check_zeroed_pages() const {
    const std::int64_t fewest = num_attention_blocks_ - stats().prefix_cache_hits / kv().block_size;
    const auto page = static_cast<std::int64_t>(kv().workers.front().pool_bytes_per_block);
    CHECK(static_cast<std::int64_t>(device_->bytes_zeroed()) >= fewest * page);
    CHECK(fewest > 0);
  }

  const KvPlan& kv() const { return engine_.core.plan().kv; }

  void poison_free_blocks() {
    const BlockPool& pool = engine_.core.kv_cache().pool();
    const int num_blocks = pool.num_usable() + 1;
    for (BlockId id = 0; id < num_blocks; ++id) {
      const bool unused = pool.is_free(id) && !pool.index().holds(id);
      if (id == kNullBlock || unused) device_->poison(id, num_blocks);
    }
  }

  std::mt19937& random_;
  PoisonDevice* device_ = nullptr;
  SteppedEngine engine_;
  std::int64_t num_attention_blocks_ = 0;  // that finished requests filled
};

std::vector<std::string> hybrid_models() {
  std::vector<std::string> models{"models/quire-tiny-hybrid"};
  const char* full = std::getenv("QUIRE_GOLDEN_DIR");
  const std::filesystem::path root = full != nullptr ? full : "tests/data/golden";
  for (const char* name :
       {"qwen3-5", "nemotron-h", "qwen3-next", "qwen3-5-moe", "granite-hybrid"}) {
    const auto folder = root / "models" / name;
    if (std::filesystem::exists(folder)) models.push_back(folder);
  }
  return models;
}

TEST_CASE("states neither leak nor mix under random traffic in tiny pools", "[engine][hybrid]") {
  std::int64_t preemptions = 0, hits = 0;
  for (const std::string& model : hybrid_models()) {
    std::mt19937 random(7);
    EngineConfig config = config_of(model);
    std::vector<Job> jobs = draw_jobs(random, 40);
    const int fewest = answer_undisturbed(jobs, config);
    for (const StateCacheMode mode : {StateCacheMode::adaptive, StateCacheMode::align}) {
      config.cache.mamba_cache_mode = mode;
      for (const int times : {1, 2, 5}) {
        const bool overlapping = random() % 2 == 0;
        config.cache.num_gpu_blocks_override = times * fewest;
        CAPTURE(model, name_of(mode), overlapping, *config.cache.num_gpu_blocks_override);
        Traffic traffic(config, overlapping, random);
        traffic.run(jobs);
        preemptions += traffic.stats().preemptions;
        hits += traffic.stats().prefix_cache_hits;
      }
    }
  }
  std::cout << preemptions << " preemptions, " << hits << " tokens hit\n";
  CHECK(preemptions > 100);
  CHECK(hits > 1000);
}

}  // namespace
}  // namespace quire::test
