#include <catch2/catch.hpp>

#include <simdjson.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/engines/backends.h"
#include "app/models/pull_main.h"
#include "app/plan/plan_main.h"
#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "engine/core/engine_core.h"
#include "tests/app/plan/plan_case.h"
#include "tests/support/run_main.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// The shipped models, quantized ones, and all goldens where QUIRE_GOLDEN_DIR says.
std::vector<std::string> model_folders() {
  std::vector<std::string> folders;
  const char* golden = std::getenv("QUIRE_GOLDEN_DIR");
  for (const fs::path& root : {fs::path("models"), fs::path("tests/data/golden/quantized"),
                               fs::path(golden ? golden : "") / "models"}) {
    if (!fs::is_directory(root)) continue;
    for (const auto& entry : fs::directory_iterator(root))
      if (fs::exists(entry.path() / "config.json")) folders.push_back(entry.path());
  }
  return folders;
}

}  // namespace

TEST_CASE("What is planned without weights is what an engine allocates and reports") {
  struct Change {
    const char* what;
    void (*apply)(EngineConfig&);
  };
  const Change changes[] = {
      {"a share of memory",
       [](EngineConfig& c) {
         c.cache.kv_cache_memory_bytes = 0;
         c.cache.gpu_memory_utilization = 0.01;
       }},
      {"auto-fit",
       [](EngineConfig& c) {
         c.cache.num_gpu_blocks_override = 9;
         c.model.max_model_len = kAutoFit;
       }},
      {"a short model", [](EngineConfig& c) { c.model.max_model_len = 256; }},
      {"no prefix caching", [](EngineConfig& c) { c.cache.enable_prefix_caching = false; }},
  };
  for (const std::string& folder : model_folders()) {
    for (const Change& change : changes) {
      CAPTURE(folder, change.what);
      EngineConfig config = config_for(folder);
      change.apply(config);
      const PlanReport report = make_plan_report(config, 0);
      REQUIRE(report.plan.model.has_value());
      const KvPlan& planned = report.plan.model->kv;

      EngineCore engine(config, EngineId{0},
                        {DeviceKind::cpu, make_cpu_device(), make_cpu_ops({.threads = 1})},
                        [](std::string_view, double) {});
      const Ready& ready = engine.ready();
      CHECK(ready.num_gpu_blocks == planned.num_blocks);
      CHECK(ready.max_model_len == planned.max_model_len);
      CHECK(ready.block_size == planned.block_size);
      CHECK(ready.kv_cache_size_tokens == planned.kv_cache_size_tokens);
      CHECK(ready.max_concurrency == planned.max_concurrency);
      REQUIRE(ready.groups.size() == planned.groups().size());
      for (std::size_t i = 0; i < ready.groups.size(); ++i) {
        CHECK(ready.groups[i].block_size == planned.groups()[i].block_size);
        CHECK(ready.groups[i].kernel_block_size == planned.groups()[i].kernel_block_size);
        CHECK(ready.groups[i].page_bytes ==
              static_cast<std::int64_t>(planned.groups()[i].page_bytes));
      }
      CHECK(engine.plan().kv.workers.front().total_bytes() ==
            planned.workers.front().total_bytes());
      CHECK(engine.stats().num_blocks == planned.num_blocks - 1);
    }
  }
}

TEST_CASE("A plan is for this machine's device, or for the one described") {
  EngineConfig config = config_for("models/quire-tiny");
  const auto here = choose_device(DeviceKind::automatic);
  REQUIRE(here.has_value());
  const bool has_gpu = here->kind == DeviceKind::cuda;
  CHECK(here->why_not_cuda.empty() == has_gpu);
  CHECK(make_plan_report(config, 0).device == (has_gpu ? "cuda" : "cpu"));
  CHECK(make_plan_report(config, std::int64_t{80} << 30).device == "cuda");
  config.device = DeviceKind::cuda;
  const PlanReport asked = make_plan_report(config, 0);
  CHECK(asked.plan.model.has_value() == has_gpu);
  if (!has_gpu) CHECK(asked.plan.model.error().field == "--device");
  config.device = DeviceKind::cpu;
  CHECK(make_plan_report(config, 0).device == "cpu");
}

TEST_CASE("The JSON form says what the plan says") {
  const PlanReport report = make_plan_report(config_for("models/quire-tiny-hybrid"), 0);
  REQUIRE(report.plan.model.has_value());
  const KvPlan& kv = report.plan.model->kv;
  simdjson::dom::parser parser;
  const std::string text = plan_json(report);
  const simdjson::dom::element json = parser.parse(text);
  CHECK(bool(json["accepted"]));
  CHECK(std::int64_t(json["plan"]["num_gpu_blocks"]) == kv.num_blocks);
  CHECK(std::int64_t(json["plan"]["block_size"]) == kv.block_size);
  CHECK(std::int64_t(json["plan"]["max_model_len"]) == kv.max_model_len);
  CHECK(std::int64_t(json["plan"]["kv_cache_size_tokens"]) == kv.kv_cache_size_tokens);
  CHECK(json["plan"]["groups"].get_array().size() == kv.groups().size());
  CHECK(double(json["plan"]["max_concurrency"]) == Approx(kv.max_concurrency));
  const std::int64_t cache = json["plan"]["allocated_bytes"];
  CHECK(cache <= 64 << 20);
  CHECK(std::int64_t(json["memory"]["kv_cache"]["planned_bytes"]) == cache);
  for (const char* purpose : {"weights", "activations", "logits", "block_tables", "step_inputs"})
    CHECK(std::int64_t(json["memory"][purpose]["planned_bytes"]) > 0);
  REQUIRE(report.plan.model->checkpoint.has_value());
  const simdjson::dom::element checkpoint = json["plan"]["state_checkpoint"];
  CHECK(std::int64_t(checkpoint["bytes"]) == report.plan.model->checkpoint->bytes);
  CHECK(std::int64_t(checkpoint["num_in_pool"]) == report.plan.model->checkpoint->num_in_pool);
  CHECK(plan_text(report).find("checkpoint") != std::string::npos);
}

TEST_CASE("Waste counts padding and layers that a group lacks") {
  const KvSpec spec{.kind = KvKind::full, .block_size = 16, .num_kv_heads = 1, .head_size = 16};
  KvSpec padded = spec;
  padded.page_size_padded = 2 * page_bytes(spec);
  WorkerKvPlan worker;
  worker.pool_bytes_per_block = 4 * page_bytes(spec);
  CHECK(waste(uniform_group({"a", "b"}, padded), worker) == Approx(0.5));
  CHECK(waste(uniform_group({"a", "b", "c"}, spec), worker) == Approx(0.25));
}

TEST_CASE("A plan names the quantization, which can be asked for") {
  const auto planned = [](const std::string& model) {
    return make_plan_report(config_for(model), 0);
  };
  const PlanReport fp8 = planned("tests/data/golden/quantized/fp8-block");
  CHECK(fp8.quantization == "fp8");
  CHECK(plan_json(fp8).find("\"quantization\":\"fp8\"") != std::string::npos);
  CHECK(plan_text(fp8).find("(Qwen3ForCausalLM, bfloat16, fp8)") != std::string::npos);
  CHECK(plan_json(planned("models/quire-tiny")).find("\"quantization\":null") != std::string::npos);
  EngineConfig other = config_for("models/quire-tiny");
  other.model.quantization = "fp8";
  CHECK_THROWS_WITH(make_plan_report(other, 0), Catch::Contains("LoadOptions::quantization fp8"));
}

TEST_CASE("A length beyond the model's is a sentence, however long") {
  EngineConfig config = config_for("models/quire-tiny");
  config.model.max_model_len = 1'000'000'000'000;
  const PlanReport report = make_plan_report(config, 0);
  REQUIRE(report.plan.model.has_error());
  CHECK(report.plan.model.error().field == "ModelOptions::max_model_len");
  CHECK(report.plan.model.error().detail.find("8192 tokens") != std::string::npos);
  CHECK(report.plan.uses.total().device == 0);  // nothing was made of it
}

TEST_CASE("Weights that do not fit are said first, with advice that works") {
  const auto refused = [](std::int64_t memory) {
    const PlanReport report = make_plan_report(config_for("models/quire-tiny"), memory);
    CHECK(report.plan.model.has_error());
    CHECK(report.plan.kv_cache_bytes >= 0);
    const std::string text = plan_text(report);
    CHECK(text.find("refused") < text.find("memory  "));
    CHECK(text.find("allowed\n") != std::string::npos);
    CHECK(text.find("kv cache    -") == std::string::npos);
    return report.plan.model.error().detail;
  };
  const std::string detail = refused(4 << 20);
  CHECK(detail.find("weights of") == 0);
  CHECK(detail.find("do not fit") != std::string::npos);
  CHECK(detail.find("a device of at least ") != std::string::npos);
}

TEST_CASE("Engines of one process divide a CPU, in the plan as in what runs") {
  EngineConfig config = config_for("models/quire-tiny");
  config.device = DeviceKind::cpu;
  const PlanReport alone = make_plan_report(config, std::int64_t{8} << 30);
  config.parallel.data_parallel_size = 2;
  const PlanReport both = make_plan_report(config, std::int64_t{8} << 30);
  REQUIRE(both.plan.model.has_value());
  CHECK(both.plan.device_bytes == std::int64_t{4} << 30);
  CHECK(both.plan.kv_cache_bytes == alone.plan.kv_cache_bytes / 2);
  CHECK(both.plan.model->kv.num_blocks == alone.plan.model->kv.num_blocks / 2);
  CHECK(plan_text(both).find("for each of 2 engines") != std::string::npos);
  CHECK(plan_json(both).find("\"data_parallel_size\":2") != std::string::npos);
  config.device = DeviceKind::cuda;
  CHECK(make_plan_report(config, std::int64_t{8} << 30).plan.kv_cache_bytes ==
        alone.plan.kv_cache_bytes);
  CHECK(threads_of_engine(config, 16) == 8);
  CHECK(threads_of_engine(config, 1) == 1);
  config.cpu_threads = 5;
  CHECK(threads_of_engine(config, 16) == 5);
}

TEST_CASE("A memory of which no number of devices is enough is said to be so") {
  EngineConfig config = config_for("models/quire-tiny");
  config.device = DeviceKind::cuda;
  const PlanReport report = make_plan_report(config, std::int64_t{1} << 20);
  CHECK(report.devices_needed == 0);
  CHECK(plan_text(report).find("no number up to 64 of 1 MiB holds this") != std::string::npos);
}

TEST_CASE("Ranks on GPUs are planned where there are none, and then not run") {
  EngineConfig config = config_for("models/quire-tiny");
  config.device = DeviceKind::cuda;
  const PlanReport alone = make_plan_report(config, std::int64_t{8} << 30);
  CHECK(alone.devices_needed == 1);
  config.parallel.tensor_parallel_size = 2;
  const PlanReport both = make_plan_report(config, std::int64_t{8} << 30);
  REQUIRE(both.plan.model.has_value());
  CHECK(both.plan.device_bytes == alone.plan.device_bytes);
  CHECK(both.devices_needed == 1);
  CHECK(plan_text(both).find("for each of 2 ranks") != std::string::npos);
  CHECK(both.plan.uses[MemoryPurpose::kernels].device ==
        alone.plan.uses[MemoryPurpose::kernels].device + cuda_traits().collectives_bytes());
  CHECK_THROWS_WITH(make_backend(config, 0), Catch::Contains("tensor_parallel_size 2"));
}

TEST_CASE("Blocks asked for on a CPU are held against main memory") {
  EngineConfig config = config_for("models/quire-tiny");
  config.device = DeviceKind::cpu;
  config.cache.kv_cache_memory_bytes = 0;
  config.cache.num_gpu_blocks_override = 20'000;  // 625 MiB, where the default cache is 256 MiB
  const PlanReport fits = make_plan_report(config, std::int64_t{8} << 30);
  REQUIRE(fits.plan.model.has_value());
  CHECK(fits.plan.model->kv.num_blocks == 20'000);
  const PlanReport refused = make_plan_report(config, std::int64_t{512} << 20);
  REQUIRE(refused.plan.model.has_error());
  CHECK(refused.plan.model.error().field == "CacheConfig::num_gpu_blocks_override");
  const std::string detail = refused.plan.model.error().detail;
  config.cache.num_gpu_blocks_override = std::stoll(detail.substr(detail.rfind(' ') + 1));
  CHECK(make_plan_report(config, std::int64_t{512} << 20).plan.model.has_value());
  ++*config.cache.num_gpu_blocks_override;
  CHECK(make_plan_report(config, std::int64_t{512} << 20).plan.model.has_error());
}

TEST_CASE("A plan says what a token of context takes, and who waits") {
  EngineConfig config = config_for("models/quire-tiny");
  const PlanReport report = make_plan_report(config, 0);
  const KvPlan& kv = report.plan.model->kv;
  CHECK(bytes_per_token(kv) == static_cast<std::int64_t>(kv.groups().front().page_bytes *
                                                         kv.groups().front().layers.size()) /
                                   16);
  CHECK(plan_text(report).find("beyond 1,024 waiting requests") != std::string::npos);
  config.scheduler.max_num_queued_reqs = 0;
  CHECK(plan_text(make_plan_report(config, 0)).find("none may wait") != std::string::npos);
  CHECK(plan({"models/quire-tiny", "--memory=80"}) == 2);
}

TEST_CASE("A plan names the bound on the time from token to token") {
  EngineConfig config = config_for("models/quire-tiny");
  CHECK(plan_text(make_plan_report(config, 0)).find("pace ") == std::string::npos);
  config.scheduler.target_itl_ms = 1500;
  CHECK(plan_text(make_plan_report(config, 0)).find("1,500 ms from token to token at most") !=
        std::string::npos);
  config.scheduler.enable_chunked_prefill = false;
  CHECK(make_plan_report(config, 0).plan.model.error().field == "SchedulerConfig::target_itl_ms");
}

TEST_CASE("Packed weights are counted as packed from config.json alone") {
  const fs::path folder = fs::temp_directory_path() / ("quire-packed-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto planned = [](const std::string& model, const std::string& quantization) {
    EngineConfig config = config_for(model);
    config.model.quantization = quantization;
    return make_plan_report(config, std::int64_t{8} << 30);  // a GPU's, where nothing is mapped
  };
  const auto check = [&](const std::string& model, const std::string& quantization) {
    CAPTURE(model, quantization);
    fs::copy_file(fs::path(model) / "config.json", folder / "config.json",
                  fs::copy_options::overwrite_existing);
    const PlanReport whole = planned(model, quantization);
    const PlanReport alone = planned(folder, quantization);
    REQUIRE(alone.plan.model.has_value());
    CHECK(alone.plan.uses[MemoryPurpose::weights].device ==
          whole.plan.uses[MemoryPurpose::weights].device);
    CHECK(plan_text(alone).find("from config.json alone") != std::string::npos);
    CHECK(plan_text(whole).find("from config.json alone") == std::string::npos);
    CHECK(plan_json(alone).find("\"from_config_alone\":true") != std::string::npos);
  };
  for (const char* name : {"gptq-int4", "awq-int4", "ct-int4", "ct-fp8"})
    check("tests/data/golden/quantized/" + std::string(name), "");
  check("models/quire-tiny", "");
  check("models/quire-tiny", "int4");
  fs::remove_all(folder);
}

TEST_CASE("A plan says what a server would refuse of the files beside config.json") {
  const fs::path model = temp_path("quire_plan_test_files");
  const auto planned = [&] {
    const auto run =
        test::run_main(plan_main, {model.c_str(), "--kv-cache-memory-bytes=64MiB"}, "");
    CHECK(run.exit_code == 0);
    return run.out;
  };
  const auto notes = [&](const char* file, const char* content) {
    fs::remove_all(model);
    fs::copy("models/quire-tiny", model, fs::copy_options::recursive);
    fs::remove(model / file);
    if (content != nullptr) std::ofstream(model / file) << content;
    INFO(file);
    return planned();
  };
  CHECK(notes("README.md", nullptr).find("a server ") == std::string::npos);
  CHECK_THAT(notes("tokenizer.json", "{\"version\": \"1"),
             Catch::Contains("a server would refuse this: ") && Catch::Contains("tokenizer.json"));
  CHECK_THAT(notes("generation_config.json", "{\"temperature\": -5}"),
             Catch::Contains("a server would refuse this: ") && Catch::Contains("temperature"));
  CHECK_THAT(notes("chat_template.jinja", "{{ foo("),
             Catch::Contains("a server needs another one, --chat-template"));
  CHECK_THAT(notes("tokenizer.json", nullptr),
             Catch::Contains("a server needs more files: ") && Catch::Contains("tokenizer.json"));
  CHECK(notes("model.safetensors", nullptr).find("a server ") == std::string::npos);
  fs::rename(model / "tokenizer.json", model / "pytorch_model.bin");
  CHECK_THAT(planned(),
             Catch::Contains("none that are read") && Catch::Contains("pickles are not read"));
  fs::remove_all(model);
}

TEST_CASE("Advice to who shares a CPU works in a plan of it") {
  EngineConfig config = config_for("models/quire-tiny");
  config.device = DeviceKind::cpu;
  config.cache.kv_cache_memory_bytes = 1 << 20;
  config.parallel.data_parallel_size = 2;
  const auto plan_with = [&] { return make_plan_report(config, std::int64_t{8} << 30).plan.model; };
  const std::string detail = plan_with().error().detail, flag = "kv_cache_memory_bytes ";
  INFO(detail);
  REQUIRE(detail.find(flag) != detail.npos);
  config.cache.kv_cache_memory_bytes = std::stoll(detail.substr(detail.find(flag) + flag.size()));
  CHECK(plan_with().has_value());
}

TEST_CASE("The exit code is for CI") {
  CHECK(plan({"models/quire-tiny", "--json", "--kv-cache-memory-bytes=64MiB"}) == 0);
  CHECK(plan({"models/quire-tiny", "--max-model-len=8193"}) == 1);
  CHECK(plan({"models/quire-tiny", "--num-gpu-blocks-override=3"}) == 1);
  CHECK(plan({"models/quire-tiny", "--max-num-seqs=0"}) == 1);
  CHECK(plan({"models/quire-tiny", "--bogus"}) == 2);
  CHECK(plan({"models/quire-tiny", "--device=cpu", "--max-cudagraph-capture-size=8"}) == 0);
  CHECK(plan({"models/quire-tiny", "--device=cpu", "--cudagraph-capture-sizes=8"}) != 0);
  CHECK(plan({"models"}) == 2);
}

}  // namespace quire
