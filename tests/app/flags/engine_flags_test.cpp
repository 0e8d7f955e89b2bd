#include <catch2/catch.hpp>

#include "tests/app/flags/parsed_flags.h"

namespace quire {

TEST_CASE("Every flag reaches its field") {
  const EngineConfig config = parsed({"models/m",
                                      "--max-model-len=25.6k",
                                      "--dtype=half",
                                      "--load-format=dummy",
                                      "--seed=7",
                                      "--quantization=fp8",
                                      "--device=cuda",
                                      "--tp=2",
                                      "--dp=3",
                                      "--block-size=32",
                                      "--num-gpu-blocks-override=1K",
                                      "--kv-cache-memory-bytes=20GiB",
                                      "--gpu-memory-utilization=0.5",
                                      "--kv-cache-dtype=fp8",
                                      "--no-enable-prefix-caching",
                                      "--prefix-caching-hash-algo=sha256_cbor",
                                      "--hash-block-size=16",
                                      "--mamba-cache-mode=align",
                                      "--mamba-block-size=64",
                                      "--mamba-cache-dtype=float32",
                                      "--mamba-ssm-cache-dtype=auto",
                                      "--disable-hybrid-kv-cache-manager",
                                      "--max-num-seqs=8",
                                      "--max-num-batched-tokens=8k",
                                      "--scheduling-policy=priority",
                                      "--no-enable-chunked-prefill",
                                      "--long-prefill-token-threshold=100",
                                      "--no-scheduler-reserve-full-isl",
                                      "--no-async-scheduling",
                                      "--target-itl-ms=80",
                                      "--max-num-queued-reqs=10",
                                      "--max-num-queued-tokens=1M",
                                      "--cudagraph-capture-sizes=1,2,8",
                                      "--kv-events-endpoint=tcp://*:5557",
                                      "--kv-events-hash-seed=0",
                                      "--kv-events-byte-hashes",
                                      "--deterministic"});
  CHECK(config.model.path == "models/m");
  CHECK(config.model.max_model_len == 25'600);
  CHECK(config.model.dtype == DType::f16);
  CHECK(config.model.load_format == LoadFormat::dummy);
  CHECK(config.model.seed == 7);
  CHECK(config.model.quantization == "fp8");
  CHECK(config.device == DeviceKind::cuda);
  CHECK(config.parallel.tensor_parallel_size == 2);
  CHECK(config.parallel.data_parallel_size == 3);
  CHECK(config.cache.block_size == 32);
  CHECK(config.cache.num_gpu_blocks_override == 1024);
  CHECK(config.cache.kv_cache_memory_bytes == 20ll << 30);
  CHECK(config.cache.gpu_memory_utilization == 0.5);
  CHECK(config.cache.cache_dtype == DType::fp8_e4m3);
  CHECK_FALSE(config.cache.enable_prefix_caching);
  CHECK(config.cache.prefix_hash == PrefixHash::sha256_cbor);
  CHECK(config.cache.hash_block_size == 16);
  CHECK(config.cache.mamba_cache_mode == StateCacheMode::align);
  CHECK(config.cache.mamba_block_size == 64);
  CHECK(config.cache.mamba_cache_dtype == DType::f32);
  CHECK_FALSE(config.cache.mamba_ssm_cache_dtype);
  CHECK_FALSE(config.cache.hybrid_manager);
  CHECK(config.scheduler.max_num_seqs == 8);
  CHECK(config.scheduler.max_num_batched_tokens == 8000);
  CHECK(config.scheduler.policy == SchedulingPolicy::priority);
  CHECK_FALSE(config.scheduler.enable_chunked_prefill);
  CHECK(config.scheduler.long_prefill_token_threshold == 100);
  CHECK_FALSE(config.scheduler.scheduler_reserve_full_isl);
  CHECK(config.scheduler.async_scheduling == false);
  CHECK(config.scheduler.target_itl_ms == 80);
  CHECK(config.scheduler.max_num_queued_reqs == 10);
  CHECK(config.scheduler.max_num_queued_tokens == 1 << 20);
  CHECK(config.graphs.capture_sizes == std::vector<int>{1, 2, 8});
  CHECK(config.kv_events.endpoint == "tcp://*:5557");
  CHECK(config.kv_events.hash_seed == "0");
  CHECK_FALSE(config.kv_events.int_hashes);
  CHECK(config.deterministic);
}

TEST_CASE("Without flags the defaults stay") {
  const EngineConfig config = parsed({"models/m"});
  CHECK(config.cache.enable_prefix_caching);
  CHECK(config.cache.hybrid_manager);
  CHECK(config.scheduler.enable_chunked_prefill);
  CHECK_FALSE(config.scheduler.async_scheduling.has_value());
  CHECK(parsed({"m", "--async-scheduling"}).scheduler.async_scheduling == true);
  CHECK_FALSE(config.cache.num_gpu_blocks_override);
  CHECK(parsed({"m", "--max-model-len=-1"}).model.max_model_len == kAutoFit);
  CHECK(parsed({"m", "--max-model-len", "auto"}).model.max_model_len == kAutoFit);
  CHECK_FALSE(config.graphs.enforce_eager);
  CHECK(parsed({"m", "--enforce-eager"}).graphs.enforce_eager);
  CHECK(parsed({"m", "--cudagraph-capture-sizes", "1", "2"}).graphs.capture_sizes ==
        std::vector<int>{1, 2});
  CHECK(parsed({"m", "--enable-prefix-caching"}).cache.enable_prefix_caching);
}

TEST_CASE("Eight bits are for keys and values, in the one format that is read") {
  CHECK(parsed({"m", "--kv-cache-dtype=fp8_e4m3"}).cache.cache_dtype == DType::fp8_e4m3);
  CHECK_FALSE(parsed({"m", "--kv-cache-dtype=auto"}).cache.cache_dtype);
  CHECK(refusal({"m", "--kv-cache-dtype=fp8_e5m2"}).find("use fp8") != std::string::npos);
  CHECK_FALSE(refusal({"m", "--kv-cache-dtype=int8"}).empty());
  CHECK_FALSE(refusal({"m", "--dtype=fp8"}).empty());
  CHECK_FALSE(refusal({"m", "--mamba-cache-dtype=fp8"}).empty());
}

TEST_CASE("KV events can be configured as vLLM's JSON") {
  const auto events = [](const std::string& json) {
    return parsed({"m", "--kv-events-config=" + json}).kv_events;
  };
  const KvEventsConfig all = events(
      R"({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://epp:5557",
          "replay_endpoint": "tcp://*:5558", "topic": "kv@pod@model", "buffer_steps": 7, "hwm": 9,
          "max_queue_size": 10})");
  CHECK(all.endpoint == "tcp://epp:5557");
  CHECK(all.replay_endpoint == "tcp://*:5558");
  CHECK(all.topic == "kv@pod@model");
  CHECK(all.buffer_steps == 7);
  CHECK(all.high_water_mark == 9);
  CHECK(events(R"({"enable_kv_cache_events": true})").endpoint == "tcp://*:5557");
  CHECK(events(R"({"enable_kv_cache_events": false, "endpoint": "tcp://*:1"})").endpoint.empty());
  CHECK(events(R"({"enable_kv_cache_events": true, "publisher": "null"})").endpoint.empty());
  CHECK(refusal({"m", R"(--kv-events-config={"topics": "x"})"}).find("topics") !=
        std::string::npos);
  CHECK(refusal({"m", R"(--kv-events-config={"hwm": -1})"}).find("hwm") != std::string::npos);
  CHECK(refusal({"m", R"(--kv-events-config={"publisher": "nats"})"}).find("publisher") !=
        std::string::npos);
  CHECK(refusal({"m", "--kv-events-config=[1]"}).find("JSON") != std::string::npos);
}

TEST_CASE("Speculative decoding is configured as vLLM's JSON") {
  const auto speculative = [](const std::string& json) {
    return parsed({"m", "--speculative-config=" + json}).speculative;
  };
  const SpeculativeConfig all = speculative(
      R"({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2,
          "prompt_lookup_max": 4})");
  CHECK(all.method == DraftMethod::ngram);
  CHECK(all.num_speculative_tokens == 3);
  CHECK(all.prompt_lookup_min == 2);
  CHECK(all.prompt_lookup_max == 4);
  const auto of = [&](const char* more) {
    return speculative(std::string(R"({"method": "ngram", "num_speculative_tokens": 1)") + more);
  };
  CHECK(of("}").prompt_lookup_min == 5);
  CHECK(of("}").prompt_lookup_max == 5);
  CHECK(of(R"(, "prompt_lookup_max": 3})").prompt_lookup_min == 3);
  CHECK_FALSE(of("}").adaptive);
  CHECK(of("}").disable_by_batch_size == 0);
  CHECK(of(R"(, "adaptive": false})").adaptive == false);
  CHECK(of(R"(, "disable_by_batch_size": 16, "rejection_sample_method": "standard"})")
            .disable_by_batch_size == 16);
  const auto refused = [](const std::string& json) {
    return refusal({"m", "--speculative-config=" + json});
  };
  CHECK(refused(R"({"method": "medusa", "num_speculative_tokens": 3})").find("eagle3") !=
        std::string::npos);
  CHECK(refused(R"({"method": "eagle", "model": "d", "num_speculative_tokens": 3,
                   "prompt_lookup_max": 4})")
            .find("prompt_lookup_max") != std::string::npos);
  CHECK(refused(R"({"method": "mtp", "num_speculative_tokens": 3,
                   "draft_tensor_parallel_size": 2})")
            .find("draft_tensor_parallel_size") != std::string::npos);
  CHECK(refused(R"({"method": "ngram"})").find("num_speculative_tokens") != std::string::npos);
  CHECK(refused(R"({"method": "eagle"})").find("num_speculative_tokens") != std::string::npos);
  CHECK(speculative(R"({"method": "eagle", "model": "d"})").num_speculative_tokens == 0);
  CHECK(refused(R"({"num_speculative_tokens": 3})").find("method") != std::string::npos);
  CHECK(refused(R"({"method": "ngram", "num_speculative_tokens": 0})")
            .find("num_speculative_tokens") != std::string::npos);
  CHECK(refused(R"({"method": "ngram", "num_speculative_tokens": 3, "quantization": "fp8"})")
            .find("quantization") != std::string::npos);
  CHECK(refused(R"({"method": "mtp", "num_speculative_tokens": 3, "draft_sample_method": "best"})")
            .find("draft_sample_method") != std::string::npos);
  CHECK(refused(R"({"method": "mtp", "num_speculative_tokens": 3,
                   "rejection_sample_method": "synthetic"})")
            .find("rejection_sample_method") != std::string::npos);
  const auto with = [&](const std::string& more) {
    return R"({"method": "ngram", "num_speculative_tokens": 3, )" + more + "}";
  };
  // What vLLM guesses where it is left out.
  CHECK(speculative(R"({"model": "[ngram]", "num_speculative_tokens": 3})").method ==
        DraftMethod::ngram);
  CHECK(speculative(R"({"method": "ngram", "model": "ngram", "num_speculative_tokens": 3})")
            .model.empty());
  CHECK(speculative(R"({"model": "org/EAGLE3-Llama", "num_speculative_tokens": 3})").method ==
        DraftMethod::eagle3);
  CHECK(speculative(R"({"model": "eagle3/my-EAGLE/", "num_speculative_tokens": 3})").method ==
        DraftMethod::eagle);
  CHECK(refused(R"({"model": "eagle/other", "num_speculative_tokens": 3})").find("method") !=
        std::string::npos);
  CHECK(speculative(R"({"method": "mtp"})").num_speculative_tokens == 1);
  // vLLM's fields that nothing answers to: nothing is said of values that change nothing.
  const char* const harmless[] = {R"("quantization": null)",
                                  R"("parallel_drafting": false)",
                                  R"("kv_cache_dtype": "auto")",
                                  R"("suffix_decoding_max_spec_factor": 1.0)",
                                  R"("model": null)",
                                  R"("suffix_decoding_min_token_prob": 0.1)",
                                  R"("prompt_lookup_max": null)",
                                  R"("draft_tensor_parallel_size": null)",
                                  R"("disable_by_batch_size": null)",
                                  R"("disable_padded_drafter_batch": true)"};
  for (const char* const field : harmless)
    CHECK(speculative(with(field)).num_speculative_tokens == 3);
  CHECK(refused(with(R"("parallel_drafting": true)")).find("one after the other") !=
        std::string::npos);
  CHECK(refused(with(R"("suffix_decoding_max_tree_depth": 12)")).find("24 is taken") !=
        std::string::npos);
  CHECK(refused(with(R"("tensor_parallel_size": 2)")).find("draft_tensor_parallel_size") !=
        std::string::npos);
  CHECK(refused(with(R"("surprise": null)")).find("not a field") != std::string::npos);
  CHECK(refused(R"({"method": null, "num_speculative_tokens": 3})").find("eagle3") !=
        std::string::npos);
  CHECK(refused(R"({"method": "ngram", "num_speculative_tokens": 3, "adaptive": 1})")
            .find("adaptive") != std::string::npos);
  CHECK(refused(R"({"method": "ngram", "num_speculative_tokens": 3, "disable_by_batch_size": 0})")
            .find("disable_by_batch_size") != std::string::npos);
}

TEST_CASE("Speculative decoding has a flag for each field of the JSON") {
  const SpeculativeConfig ngram =
      parsed({"m", "--num-speculative-tokens=3", "--ngram-prompt-lookup-max=4",
              "--speculative-method=ngram", "--ngram-prompt-lookup-min=2"})
          .speculative;
  CHECK(ngram.method == DraftMethod::ngram);
  CHECK(ngram.num_speculative_tokens == 3);
  CHECK(ngram.prompt_lookup_min == 2);
  CHECK(ngram.prompt_lookup_max == 4);
  const SpeculativeConfig eagle =
      parsed({"m", "--speculative-method=eagle", "--speculative-model=a \"b\"",
              "--num-speculative-tokens=2"})
          .speculative;
  CHECK(eagle.method == DraftMethod::eagle);
  CHECK(eagle.model == "a \"b\"");
  CHECK_FALSE(eagle.adaptive);
  const SpeculativeConfig fixed =
      parsed({"m", "--no-speculative-adaptive", "--speculative-method=mtp",
              "--speculative-disable-by-batch-size=8", "--num-speculative-tokens=2"})
          .speculative;
  CHECK(fixed.adaptive == false);
  CHECK(fixed.disable_by_batch_size == 8);
  CHECK(fixed.draft_sampling == DraftSampling::greedy);
  const SpeculativeConfig drawn =
      parsed({"m", "--speculative-method=mtp", "--num-speculative-tokens=2",
              "--speculative-draft-sample-method=probabilistic"})
          .speculative;
  CHECK(drawn.draft_sampling == DraftSampling::probabilistic);
  const auto names = [](std::vector<std::string> flags, const char* what) {
    flags.insert(flags.begin(), "m");
    return refusal(flags).find(what) != std::string::npos;
  };
  const SpeculativeConfig named =
      parsed({"m", "--speculative-model=[ngram]", "--num-speculative-tokens=5"}).speculative;
  CHECK(named.method == DraftMethod::ngram);
  CHECK(named.model.empty());
  CHECK(parsed({"m", "--num-speculative-tokens=5", "--speculative-model=a/EAGLE3-b"})
            .speculative.method == DraftMethod::eagle3);
  CHECK(names({"--speculative-model=some/draft", "--num-speculative-tokens=5"}, "is missing"));
  CHECK(names({"--num-speculative-tokens=3"}, "--speculative-method"));
  CHECK(names({"--ngram-prompt-lookup-max=3"}, "--num-speculative-tokens"));
  CHECK(names({"--speculative-method=ngram"}, "--num-speculative-tokens"));
  CHECK(names({"--speculative-method=medusa", "--num-speculative-tokens=3"}, "medusa"));
  CHECK(names({"--speculative-method=ngram", "--num-speculative-tokens=x"},
              "--num-speculative-tokens"));
  CHECK(names({"--speculative-method=mtp", "--num-speculative-tokens=3",
               R"(--speculative-config={"method": "mtp", "num_speculative_tokens": 3})"},
              "--speculative-config"));
}

TEST_CASE("Draft models are configured as vLLM's JSON") {
  const auto speculative = [](const std::string& json) {
    return parsed({"m", "--speculative-config=" + json}).speculative;
  };
  const SpeculativeConfig eagle3 = speculative(
      R"({"method": "eagle3", "model": "some/draft", "num_speculative_tokens": 2,
          "draft_tensor_parallel_size": 1})");
  CHECK(eagle3.method == DraftMethod::eagle3);
  CHECK(eagle3.model == "some/draft");
  CHECK(eagle3.prompt_lookup_max == 0);
  for (const char* name : {"mtp", "deepseek_mtp", "qwen3_next_mtp", "glm4_moe_mtp"}) {
    const std::string json = R"({"num_speculative_tokens": 1, "method": ")" + std::string(name);
    CHECK(speculative(json + "\"}").method == DraftMethod::mtp);
  }
  EngineConfig config = parsed({"m"});
  const auto refused = [&](SpeculativeConfig drafts) {
    config.speculative = std::move(drafts);
    const auto valid = validate(config);
    return valid.has_error() ? valid.error().detail : std::string();
  };
  CHECK(refused({.method = DraftMethod::eagle, .num_speculative_tokens = 2}).find("model") !=
        std::string::npos);
  CHECK(refused({.method = DraftMethod::mtp, .num_speculative_tokens = 2, .model = "d"})
            .find("no use for a model") != std::string::npos);
  CHECK(refused({.method = DraftMethod::mtp, .num_speculative_tokens = 2}).empty());
  SpeculativeConfig drawn{.method = DraftMethod::mtp, .num_speculative_tokens = 2};
  drawn.draft_sampling = DraftSampling::probabilistic;
  CHECK(refused(drawn).empty());
  config.deterministic = true;
  CHECK(refused(drawn).find("draft_sample_method") != std::string::npos);
  config.deterministic = false;
  drawn.method = DraftMethod::ngram;
  drawn.prompt_lookup_min = drawn.prompt_lookup_max = 2;
  CHECK(refused(drawn).find("draft_sample_method") != std::string::npos);
  config.device = DeviceKind::cuda;
  CHECK(refused({.method = DraftMethod::mtp, .num_speculative_tokens = 2}).empty());
  drawn = {.method = DraftMethod::mtp, .num_speculative_tokens = 2};
  drawn.draft_sampling = DraftSampling::probabilistic;
  CHECK(refused(drawn).empty());
}

TEST_CASE("A wrong value is refused with its flag and what is allowed") {
  CHECK(refusal({"m", "--max-model-len=12x"}).find("--max-model-len") != std::string::npos);
  CHECK(refusal({"m", "--mamba-cache-mode=most"}).find("align") != std::string::npos);
  CHECK(refusal({"m", "--dtype=int3"}).find("bfloat16") != std::string::npos);
  CHECK(refusal({"m", "--max-num-seqs=3G"}).find("2147483647") != std::string::npos);
  CHECK(refusal({"m", "--kv-cache-memory-bytes=much"}).find("80GiB") != std::string::npos);
  CHECK_FALSE(refusal({"m", "--no-such-flag"}).empty());
}

}  // namespace quire
