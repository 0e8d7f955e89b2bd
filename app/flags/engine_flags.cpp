#include "app/flags/engine_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <utility>
#include <vector>

#include "app/args/help_formatter.h"
#include "app/flags/graph_flags.h"
#include "app/flags/kv_events_json.h"
#include "app/flags/kv_offload_flags.h"
#include "app/flags/kv_transfer_flags.h"
#include "app/flags/pooling_flags.h"
#include "app/flags/speculative_flags.h"
#include "engine/config.h"
#include "engine/size_text.h"
#include "gguf/archive.h"

namespace quire {
namespace {

template <class T>
using Names = std::vector<std::pair<std::string, T>>;

// An option whose text `parse` turns into a value; what it refuses ends parsing with its reason.
template <class Parse, class Store>
void add_parsed(CLI::App& app, std::string flag, Parse parse, Store store, std::string description,
                const char* type) {
  const std::string name = flag.substr(0, flag.find(','));
  const auto parse_and_store = [=](const std::string& text) {
    const auto value = parse(text);
    if (value.has_error()) throw CLI::ValidationError(name, value.error().detail);
    store(*value);
  };
  app.add_option_function<std::string>(std::move(flag), parse_and_store, std::move(description))
      ->type_name(type);
}

Result<std::int64_t> parse_int_count(const std::string& text) {
  const auto count = parse_count(text);
  if (count.has_value() && !std::in_range<int>(*count))
    return Error{ErrorCode::invalid_argument, "\"" + text + "\" is above 2147483647", {}};
  return count;
}

Result<std::uint64_t> parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return seed;
  return Error{ErrorCode::invalid_argument,
               "\"" + text + "\" is not a whole number from 0 to 18446744073709551615", {}};
}

// "Tokens per step (2048)"; a value that is unset has no default to show.
template <class Value>
std::string with_default(std::string description, const Value& value) {
  if constexpr (requires { value.has_value(); }) {
    return description;
  } else {
    return description + " (" + std::to_string(value) + ")";
  }
}

template <class Value>
void add_count(CLI::App& app, std::string flag, Value& value, std::string description) {
  add_parsed(
      app, std::move(flag), parse_int_count,
      [&value](std::int64_t count) { value = static_cast<int>(count); },
      with_default(std::move(description), value), "N");
}

template <class T>
Result<T> parse_named(const std::string& text, const Names<T>& names) {
  std::string choices;
  for (const auto& [name, named] : names) {
    if (name == text) return named;
    choices += (choices.empty() ? "" : ", ") + name;
  }
  return Error{ErrorCode::invalid_argument, "\"" + text + "\" is none of " + choices, {}};
}

template <class T>
std::string with_default(std::string description, const T& value, const Names<T>& names) {
  for (const auto& [name, named] : names) {
    if (named == value) return description + " (" + name + ")";
  }
  return description;
}

template <class Value, class T>
void add_named(CLI::App& app, std::string flag, Value& value, const Names<T>& names,
               std::string description) {
  add_parsed(
      app, std::move(flag), [names](const std::string& text) { return parse_named(text, names); },
      [&value](const T& named) { value = named; },
      with_default(std::move(description), T(value), names), "NAME");
}

// "auto" leaves the value unset.
Names<std::optional<DType>> dtype_names() {
  return {{"auto", std::nullopt}, {"bfloat16", DType::bf16}, {"float16", DType::f16},
          {"half", DType::f16},   {"float32", DType::f32},   {"float", DType::f32}};
}

void add_dtype(CLI::App& app, std::string flag, std::optional<DType>& value,
               std::string description) {
  add_named<std::optional<DType>>(app, std::move(flag), value, dtype_names(),
                                  std::move(description));
}

Result<std::optional<DType>> parse_cache_dtype(const std::string& text) {
  if (text == "fp8_e5m2")
    return Error{ErrorCode::unsupported,
                 "fp8_e5m2 is not supported: it has a bit of precision less than fp8_e4m3, whose "
                 "range the checkpoint's scales set; use fp8",
                 {}};
  auto names = dtype_names();
  names.insert(names.end(), {{"fp8", DType::fp8_e4m3}, {"fp8_e4m3", DType::fp8_e4m3}});
  return parse_named(text, names);
}

void add_model_flags(CLI::App& app, EngineConfig& config) {
  ModelOptions& model = config.model;
  app.add_option("MODEL,--model", model.path, "Folder with config.json and *.safetensors, or a .gguf file");
  app.add_option("--served-model-name", model.served_name,
                 "Name in the API; default: the folder's");
  add_dtype(app, "--dtype", model.dtype, "Type of weights and activations; auto: as published");
  app.add_option("--quantization,-q", model.quantization,
                 "int8 or int4: round matrices while loading; or the checkpoint's "
                 "quant_method, and a model with another is refused");
  add_parsed(
      app, "--max-model-len", [](const std::string& text) { return parse_max_model_len(text); },
      [&model](std::int64_t length) { model.max_model_len = length; },
      "Tokens of prompt and output: 8192, 8k, 8K; -1 or auto: the longest that memory holds", "N");
  add_named<LoadFormat, LoadFormat>(
      app, "--load-format", model.load_format,
      {{"auto", LoadFormat::safetensors},
       {"safetensors", LoadFormat::safetensors},
       {"gguf", LoadFormat::safetensors},
       {"dummy", LoadFormat::dummy}},
      "Where weights come from: auto (what MODEL is), safetensors, gguf, or dummy for random ones");
  add_parsed(
      app, "--seed", parse_seed, [&model](std::uint64_t seed) { model.seed = seed; },
      "Seed of requests that bring none, and of dummy weights (" + std::to_string(model.seed) + ")",
      "N");
  add_named<DeviceKind, DeviceKind>(
      app, "--device", config.device,
      {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda},
       {"mock", DeviceKind::mock}},
      "Device to compute on: auto, cpu or cuda; mock: none, tokens come by the clock, to measure "
      "what stands in front of an engine");
  add_count(
      app, "--mock-step-us", config.mock_step_us,
      "With --device mock: microseconds until each request's next token; 0: whole answers at once");
  add_count(app, "--cpu-threads", config.cpu_threads,
            "Threads of each engine on a CPU; 0: the cores, divided among the engines");
  add_count(app, "--tensor-parallel-size,--tp", config.parallel.tensor_parallel_size,
            "Processes that divide each engine's model and cache, on a GPU each or on parts of the "
            "cores");
  add_count(
      app, "--data-parallel-size,--dp", config.parallel.data_parallel_size,
      "Engines that share the requests, each with its own KV cache: on a GPU each, or on parts "
      "of a CPU's memory and cores");
  app.add_flag(
      "--deterministic", config.deterministic,
      "Give a request the same tokens whatever runs beside it; refused where the backend cannot");
}

void add_cache_flags(CLI::App& app, CacheConfig& cache) {
  add_count(app, "--block-size", cache.block_size,
            "Tokens per KV cache block; 0: the size that suits the kernels best");
  add_count(app, "--num-gpu-blocks-override", cache.num_gpu_blocks_override,
            "Number of blocks, instead of as many as memory holds; block 0 holds no tokens");
  add_parsed(
      app, "--kv-cache-memory-bytes", [](const std::string& text) { return parse_bytes(text); },
      [&cache](std::int64_t bytes) { cache.kv_cache_memory_bytes = bytes; },
      "Size of the KV cache of each device, such as 20GiB or 20GB; a CPU's is divided among its "
      "engines",
      "SIZE");
  app.add_option("--gpu-memory-utilization", cache.gpu_memory_utilization,
                 "Share of the device's memory for weights, activations and KV cache (of main "
                 "memory with --device cpu)");
  add_parsed(
      app, "--kv-cache-dtype", parse_cache_dtype,
      [&cache](std::optional<DType> dtype) { cache.cache_dtype = dtype; },
      "Type of stored keys and values; auto: what the checkpoint was calibrated for, else the "
      "model's; fp8: "
      "e4m3 with the checkpoint's scales, else 1",
      "NAME");
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", cache.enable_prefix_caching,
               "Reuse the blocks of prompts that begin alike (yes)");
  add_named<PrefixHash, PrefixHash>(
      app, "--prefix-caching-hash-algo", cache.prefix_hash,
      {{"keyed", PrefixHash::keyed},
       {"sha256", PrefixHash::keyed},  // vLLM's default
       {"sha256_cbor", PrefixHash::sha256_cbor}},
      "How blocks are identified: keyed, or sha256_cbor, which KV events need");
  add_count(app, "--hash-block-size", cache.hash_block_size,
            "Tokens per prefix hash");
}

void add_state_flags(CLI::App& app, CacheConfig& cache) {
  using Mode = std::optional<StateCacheMode>;
  add_named<Mode, Mode>(app, "--mamba-cache-mode", cache.mamba_cache_mode,
                        {{"none", StateCacheMode::none},
                         {"all", StateCacheMode::all},
                         {"align", StateCacheMode::align},
                         {"adaptive", StateCacheMode::adaptive}},
                        "Which recurrent states later requests may reuse: none, all (of every "
                        "block), align (where steps end), adaptive (where prompts end and part)");
  add_count(app, "--mamba-block-size", cache.mamba_block_size, "Tokens between reusable states");
  add_dtype(app, "--mamba-cache-dtype", cache.mamba_cache_dtype,
            "Type of stored convolution states");
  add_dtype(app, "--mamba-ssm-cache-dtype", cache.mamba_ssm_cache_dtype,
            "Type of stored recurrent states");
  app.add_flag("!--disable-hybrid-kv-cache-manager", cache.hybrid_manager,
               "Store windowed layers as if they saw every token, in one kind of group");
}

void add_scheduler_flags(CLI::App& app, SchedulerConfig& scheduler) {
  add_count(app, "--max-num-seqs", scheduler.max_num_seqs, "Requests in one step");
  add_count(app, "--max-num-batched-tokens", scheduler.max_num_batched_tokens,
            "Tokens in one step, of prompts and of decoding requests");
  add_named<SchedulingPolicy, SchedulingPolicy>(
      app, "--scheduling-policy", scheduler.policy,
      {{"fcfs", SchedulingPolicy::fcfs}, {"priority", SchedulingPolicy::priority}},
      "Which requests run first: fcfs, or priority by each request's number");
  app.add_flag("--enable-chunked-prefill,!--no-enable-chunked-prefill",
               scheduler.enable_chunked_prefill, "Compute long prompts in several steps (yes)");
  add_count(app, "--long-prefill-token-threshold", scheduler.long_prefill_token_threshold,
            "Most tokens of one prompt in a step; 0: no limit");
  add_count(app, "--target-itl-ms", scheduler.target_itl_ms,
            "Most milliseconds from token to token of requests that decode: prompts beside them are "
            "cut into what steps were measured to have time for; 0: no bound");
  app.add_flag("--scheduler-reserve-full-isl,!--no-scheduler-reserve-full-isl",
               scheduler.scheduler_reserve_full_isl,
               "Start a prompt only when all of it fits the KV cache (yes)");
  app.add_flag_function(
      "--async-scheduling,!--no-async-scheduling",
      [&scheduler](std::int64_t given) { scheduler.async_scheduling = given > 0; },
      "Plan the next step while one computes (yes on a GPU; a CPU cannot)");
  add_count(app, "--max-num-queued-reqs", scheduler.max_num_queued_reqs,
            "Waiting requests before HTTP 503; 0: none may wait");
  add_count(app, "--max-num-queued-tokens", scheduler.max_num_queued_tokens,
            "Waiting prompt tokens before HTTP 503; 0: no limit");
}

void add_event_flags(CLI::App& app, KvEventsConfig& events) {
  add_parsed(
      app, "--kv-events-config",
      [](const std::string& text) { return parse_kv_events_config(text); },
      [&events](const KvEventsConfig& parsed) { events = parsed; },
      "The flags below as vLLM's JSON object", "JSON");
  app.add_option("--kv-events-endpoint", events.endpoint,
                 "ZeroMQ address to publish KV cache events at, such as tcp://*:5557");
  app.add_option("--kv-events-replay-endpoint", events.replay_endpoint,
                 "ZeroMQ address that answers with past events");
  app.add_option("--kv-events-topic", events.topic, "First frame of each event message (empty)");
  add_count(app, "--kv-events-buffer-steps", events.buffer_steps,
            "Messages kept for replay");
  add_count(app, "--kv-events-hwm", events.high_water_mark,
            "Unsent messages before new ones are dropped; 0: no limit");
  app.add_flag("!--kv-events-byte-hashes", events.int_hashes,
               "Write block hashes as bytes instead of 64-bit integers");
  app.add_option("--kv-events-hash-seed", events.hash_seed,
                 "Seed of block hashes in events; routers that hash prompts need the same");
}

}  // namespace

void add_engine_flags(CLI::App& app, EngineConfig& config) {
  app.formatter(std::make_shared<HelpFormatter>());
  in_group(app, "Model", [&] { add_model_flags(app, config); });
  in_group(app, "Pooling", [&] { add_pooling_flags(app, config.model.pooling); });
  in_group(app, "KV cache", [&] { add_cache_flags(app, config.cache); });
  in_group(app, "Recurrent states", [&] { add_state_flags(app, config.cache); });
  in_group(app, "Scheduler", [&] { add_scheduler_flags(app, config.scheduler); });
  in_group(app, "Speculative decoding", [&] { add_speculative_flags(app, config.speculative); });
  in_group(app, "CUDA graphs", [&] { add_graph_flags(app, config); });
  in_group(app, "KV events", [&] { add_event_flags(app, config.kv_events); });
  in_group(app, "KV transfer", [&] { add_kv_transfer_flags(app, config.kv_transfer, config.kv_offload); });
  in_group(app, "KV offload", [&] { add_kv_offload_flags(app, config.kv_offload); });
}

void check_engine_flags(const CLI::App& app, const EngineConfig& config) {
  const std::vector<std::string> formats = app.get_option("--load-format")->results();
  const std::string format = formats.empty() ? "auto" : formats.back();
  const bool is_gguf = gguf::is_gguf(config.model.path);
  if (format == (is_gguf ? "safetensors" : "gguf")) {
    throw CLI::ValidationError("--load-format", "is " + format + ", but " + config.model.path +
                                                    (is_gguf ? " is a GGUF file" : " is none"));
  }
  const std::string& draft = config.speculative.model;
  if (!draft.empty() && gguf::is_gguf(draft)) {
    throw CLI::ValidationError("--speculative-config",
                               "model " + draft +
                                   " is a GGUF file; draft models are folders with config.json "
                                   "and *.safetensors");
  }
}

}  // namespace quire
