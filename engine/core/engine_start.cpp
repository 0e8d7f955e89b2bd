// How an engine comes to be: plan, load, allocate, warm up, and hold what was allocated against the
// plan.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/core/engine_core.h"
#include "engine/core/fingerprint.h"
#include "engine/core/served_model.h"
#include "engine/wire/encoding.h"
#include "model/registry.h"

namespace quire {

namespace {

void announce_scales(const Model& model) {
  if (const int layers = model.num_unscaled_layers(); layers > 0) {
    log::warn("engine.kv_cache_scale",
              {{"layers", layers},
               {"scale", 1},
               {"note",
                "the checkpoint publishes no k_scale and v_scale: fp8 holds keys and values as "
                "they are"}});
  }
}

// Reports which share of the planned bytes is loaded, at most once a second.
std::function<void(std::size_t)> loading_progress(const EnginePlan& plan,
                                                  const EngineCore::Progress& progress) {
  static constexpr std::chrono::seconds kOften{1};
  const auto total = static_cast<double>(plan.uses[MemoryPurpose::weights].device) +
                     static_cast<double>(plan.mapped_bytes);
  progress("loading weights", 0);
  return [total, progress, last = Clock::now()](std::size_t bytes) mutable {
    if (Clock::now() - last < kOften) return;
    last = Clock::now();
    progress("loading weights", std::min(1.0, static_cast<double>(bytes) / total));
  };
}

std::string device_name(const EngineBackend& backend) {
  if (backend.ranks == nullptr) return backend.device->name();
  return backend.device->name() + ", " + std::to_string(backend.ranks->collectives().size()) +
         " ranks";
}

// The method's name in vLLM's --speculative-config.
std::string draft_method(DraftMethod method) {
  if (method == DraftMethod::mtp) return "mtp";
  return method == DraftMethod::eagle3 ? "eagle3" : "eagle";
}

// The most tokens of a request for which a layer reads a prefix once that it shares with others.
// num_heads: query heads of this rank.
int most_sharing_tokens(const OpsTraits& traits, const EnginePlan& plan, int num_heads,
                        DType dtype) {
  int most = 0;
  const std::size_t num_own = plan.layers.size() - static_cast<std::size_t>(plan.num_draft_layers);
  for (const LayerKvSpec& layer : std::span(plan.layers).first(num_own)) {
    const KvSpec& spec = layer.spec;
    if (spec.kind != KvKind::full || spec.sliding_window > 0 || spec.num_kv_heads < 1 ||
        spec.num_kv_heads > num_heads)
      continue;
    most = std::max(most, traits.most_sharing_tokens({.group = num_heads / spec.num_kv_heads,
                                                      .head_dim = spec.head_size,
                                                      .dtype = dtype,
                                                      .cache = spec.dtype}));
  }
  return most;
}

void check_deterministic(const EngineConfig& asked, DeviceKind device) {
  if (!asked.deterministic || device == DeviceKind::cpu) return;
  throw Failure({ErrorCode::unsupported,
                 "EngineConfig::deterministic holds with EngineConfig::device cpu only: the CUDA "
                 "backend's products depend on "
                 "the batch",
                 "EngineConfig::deterministic"});
}

}  // namespace

EngineCore::EngineCore(const EngineConfig& asked, EngineId id, EngineBackend backend,
                       const Progress& progress, std::function<void()> wake)
    : backend_(std::move(backend)), drafting_(asked) {
  const auto start = Clock::now();
  check_deterministic(asked, backend_.kind);
  if (!wake) wake = [] {};
  progress("planning", 0);
  const ServedModel served = read_served_model(asked);
  make_plan(served);
  configure_ranks(asked, wake);
  load_models(served, progress);
  progress("allocating the KV cache", 0);
  make_kv_cache(served.config, id);
  make_runtime(served.config, id, served.pooling, wake);
  make_constraints(wake);
  announce_scales(*model_);
  progress("warming up", 0);
  warm_up(served.config);
  hold_to_plan(id);
  fill_ready(served.pooling, id, Clock::now() - start);
}

void EngineCore::make_plan(const ServedModel& served) {
  const EngineConfig& config = served.config;
  const OpsTraits& traits = backend_.ops->traits();
  dtype_ = config.model.dtype.value_or(served.model.dtype);
  plan_ = plan_engine(config, served.model,
                      planned_device(backend_.kind, *backend_.device, traits), served.pooling);
  if (plan_.model.has_error()) throw Failure(plan_.model.error());
  num_hidden_layers_ = served.model.num_layers;
  most_sharing_tokens_ = most_sharing_tokens(
      traits, plan_, served.model.num_heads / config.parallel.tensor_parallel_size, dtype_);
}

void EngineCore::load_models(const ServedModel& served, const Progress& progress) {
  const EngineConfig& config = served.config;
  const OpsTraits& traits = backend_.ops->traits();
  LoadOptions load{
      .dtype = dtype_,
      .load_format = config.model.load_format,
      .seed = config.model.seed,
      .quantization = config.model.quantization,
      .max_model_len = static_cast<int>(plan_.loaded_len),
      .cache_dtype = kv_spec_options(config, dtype_, served.model.quant.kv_cache_dtype).cache_dtype,
      .shard = {.rank = 0, .size = config.parallel.tensor_parallel_size},
      .same_bits = config.deterministic,
      .progress = loading_progress(plan_, progress)};
  model_fingerprint_ = model_fingerprint(config, served.model, dtype_, plan_.loaded_len);
  model_ = load_model(served.model, config.model.path, *backend_.device, traits, load);
  load.progress = {};
  encoder_ = dynamic_cast<EncoderModel*>(model_.get());
  if (served.pooling.pools()) {
    pooler_ = std::make_unique<Pooler>(served.pooling, served.model, config.model.path,
                                       config.model.load_format);
    plan_.model->notes.insert(plan_.model->notes.end(), served.notes.begin(), served.notes.end());
  }
  draft_ = make_draft(config, served.model, *model_, *backend_.device, traits, load);
}

void EngineCore::make_constraints(std::function<void()> wake) {
  if (!backend_.compile_constraint) return;
  constraints_ = std::make_unique<ConstraintQueue>(backend_.compile_constraint, wake);
  const auto width = (static_cast<std::size_t>(model_->vocab_size()) + 31) / 32;
  masks_ = std::make_unique<MaskQueue>(width, std::move(wake));
}

void EngineCore::warm_up(const EngineConfig& config) {
  if (config.parallel.tensor_parallel_size == 1) backend_.ops->begin_choosing();
  runner_->warm_up();
  backend_.ops->end_choosing();
  if (!plan_.graphs.mixed_sizes.empty())
    log::info("engine.mixed_graphs", {{"tokens", fmt::to_string(fmt::join(
                                                     runner_->graphs().mixed_sizes(), ","))},
                                      {"tried", plan_.graphs.mixed_sizes.size()}});
  if (config.scheduler.target_itl_ms > 0) time_steps(config.scheduler.target_itl_ms / 1000.0);
  if (drafting_.is_on() && config.adapts_drafts()) time_drafts(config);
  if (backend_.ranks != nullptr) backend_.ranks->line().post(RankMessage::Kind::warm);
}

// Throws Failure where more was allocated than planned; from here on nothing is.
void EngineCore::hold_to_plan(EngineId id) {
  MemoryLedger& ledger = backend_.device->ledger();
  check_allocated(plan_.uses, ledger.uses());
  ledger.seal();
  log_memory(id);
}

void EngineCore::fill_ready(const PoolingConfig& pooling, EngineId id,
                            std::chrono::duration<double> startup) {
  ready_ = make_ready({.engine = id,
                       .dtype = dtype_,
                       .device = device_name(backend_),
                       .model_fingerprint = model_fingerprint_,
                       .vocab_size = model_->vocab_size(),
                       .startup_seconds = startup.count()},
                      plan_, backend_.device->ledger().uses());
  if (transfer_ != nullptr) ready_.kv_listen = transfer_->listens_at();
  if (pooler_ != nullptr)
    ready_.pooling = {.task = pooling.task,
                      .size = pooler_->size(),
                      .use_activation = pooling.use_activation,
                      .is_matryoshka = pooling.is_matryoshka,
                      .dimensions = pooling.matryoshka_dimensions};
}

EngineCore::~EngineCore() = default;

// Measures steps at start-up, so that the first long prompt beside others finds a table.
void EngineCore::time_steps(double target) {
  constexpr int kLeast = 16;
  for (const auto& time : runner_->time_prompts(kLeast, INT_MAX, target)) {
    scheduler_->learn_time(time.num_tokens, time.seconds);
    log::debug("engine.step_time", {{"tokens", time.num_tokens}, {"seconds", time.seconds}});
  }
}

// Measures prompts at start-up, so that the first drafts are as many as pay: a step that verifies
// so many tokens takes about what a prompt of them takes.
void EngineCore::time_drafts(const EngineConfig& config) {
  constexpr double kMost = 0.25;  // seconds: a larger step is as slow in proportion
  const int most = config.scheduler.max_num_seqs * (1 + config.speculative.num_speculative_tokens);
  for (const auto& time : runner_->time_prompts(1, most, kMost)) {
    drafting_.learn(time);
    log::debug("engine.draft_time", {{"tokens", time.num_tokens},
                                     {"seconds", time.seconds},
                                     {"drafting", time.drafting},
                                     {"drafting_one", time.drafting_one}});
  }
}

// Sends the other ranks their configuration. They plan for themselves, with the length and the
// number of blocks that this plan found.
void EngineCore::configure_ranks(const EngineConfig& asked, const std::function<void()>& wake) {
  const int wanted = asked.parallel.tensor_parallel_size;
  const int size = backend_.ranks == nullptr ? 1 : backend_.ranks->collectives().size();
  if (size != wanted)
    throw Failure(
        {ErrorCode::unsupported,
         "ParallelConfig::tensor_parallel_size " + std::to_string(wanted) + " is not possible here",
         "ParallelConfig::tensor_parallel_size"});
  if (wanted == 1) return;
  EngineConfig config = asked;
  config.device = backend_.kind;
  config.model.max_model_len = plan_.model->kv.max_model_len;
  config.cache.num_gpu_blocks_override = static_cast<int>(plan_.model->kv.num_blocks);
  config.cache.kv_cache_memory_bytes = 0;
  backend_.ranks->on_end(wake);
  backend_.ranks->line().post(RankMessage::Kind::configure,
                              encode(Command(Configure{std::string(quire_version()), config})));
}

void EngineCore::make_kv_cache(const EngineConfig& config, EngineId id) {
  memory_ = std::make_unique<KvMemory>(*backend_.device, plan_.model->kv);
  // What a draft knows of a hit's last token may come from another next token. Where only the pace
  // counts, a block computed again would cost more than that.
  const bool drops_last = draft_.model != nullptr && !config.adapts_drafts();
  KvCacheConfig cache =
      kv_cache_config(plan_.model->kv, config.scheduler.max_num_batched_tokens,
                      config.cache.enable_prefix_caching && !plan_.layers.empty(), drops_last);
  cache.state_chunk = plan_.model->state_chunk;
  cache.events = !config.kv_events.endpoint.empty();
  cache.event_seed = config.kv_events.hash_seed;
  if (cache.events)
    events_ = std::make_unique<KvEventPublisher>(
        config.kv_events, KvEventFormat{.groups = event_groups(plan_.model->kv),
                                        .data_parallel_rank = static_cast<int>(id.value),
                                        .int_hashes = config.kv_events.int_hashes});
  make_offload(config, id);
  if (offload_ != nullptr) cache.hash_key = offload_->hash_key();
  kv_ = std::make_unique<KvCacheManager>(cache, offload_.get());
}

void EngineCore::make_offload(const EngineConfig& config, EngineId id) {
  const KvPlan& kv = plan_.model->kv;
  OffloadSetup setup;
  setup.slot_bytes = offload_slot_bytes(config, kv);
  setup.memory = offload_memory(config.kv_offload, setup.slot_bytes, *backend_.device);
  if (setup.memory.bytes() == 0) return;
  setup.config = config.kv_offload;
  setup.engine = id;
  setup.layers = memory_->layers(plan_.layers);
  if (backend_.ranks != nullptr) {
    if (setup.slot_bytes > OtherRanks::kMostBytes)
      throw Failure(Error{ErrorCode::unsupported,
                          "a block of all ranks is " + std::to_string(setup.slot_bytes) +
                              " bytes, and " + std::to_string(OtherRanks::kMostBytes) +
                              " can be copied at a time; use a smaller CacheConfig::block_size",
                          "CacheConfig::block_size"});
    setup.ranks = &backend_.ranks->line();
  }
  for (const KvGroup& group : kv.groups())
    setup.most_tokens = std::max(setup.most_tokens, group.block_size);
  if (!config.kv_offload.path.empty())
    setup.fingerprint = cache_fingerprint(config, model_fingerprint_, device_name(backend_),
                                          kv.hash_block_size, setup.layers);
  offload_ = std::make_unique<KvOffload>(*backend_.device, std::move(setup));
}

// One engine's keys and values are of use to another where fingerprints and layers agree.
void EngineCore::make_transfer(const EngineConfig& config, EngineId id,
                               std::vector<LayerCache> layers, std::function<void()> wake) {
  if (config.kv_transfer.role == KvRole::none) return;
  TransferSetup setup;
  setup.config = config.kv_transfer;
  setup.engine = id;
  setup.geometry.model_fingerprint = model_fingerprint_;
  setup.geometry.draft_fingerprint = draft_fingerprint(config.speculative);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerKvSpec whole = whole_layer(plan_.whole_layers[i], layers[i]);
    setup.geometry.layers.push_back(layer_geometry(whole, layers[i].block_size));
  }
  if (backend_.ranks != nullptr) {
    setup.ranks = &backend_.ranks->line();
    setup.rank_rows = rank_rows(plan_, layers, backend_.ranks->collectives());
  }
  setup.layers = std::move(layers);
  setup.buffers =
      transfer_buffers(config, plan_.whole_layers, plan_.model->kv.max_model_len, *backend_.device);
  const std::string& peer_model = config.kv_transfer.nixl.peer_model;
  setup.hashed.model = peer_model.empty() ? config.model.path : peer_model;
  setup.hashed.dtype = name_of(dtype_);
  setup.hashed.num_hidden_layers = num_hidden_layers_;
  if (config.speculative.uses_draft_model()) {
    setup.hashed.draft_method = draft_method(config.speculative.method);
    setup.hashed.draft_model =
        config.speculative.model.empty() ? setup.hashed.model : config.speculative.model;
  }
  setup.longest_prompt = static_cast<int>(plan_.model->kv.max_model_len);
  setup.wake = std::move(wake);
  transfer_ = std::make_unique<TransferConnector>(*backend_.device, std::move(setup));
}

void EngineCore::make_runtime(const EngineConfig& config, EngineId id, const PoolingConfig& pooling,
                              std::function<void()> wake) {
  const KvPlan& kv = plan_.model->kv;
  const std::vector<LayerCache> layers = memory_->layers(plan_.layers);
  const auto num_own = layers.size() - static_cast<std::size_t>(plan_.num_draft_layers);
  model_->bind_cache(std::span(layers).first(num_own));
  if (draft_.model != nullptr) draft_.model->bind_cache(std::span(layers).subspan(num_own));
  const CaptureSizes& graphs = plan_.graphs;
  if (!graphs.why_none.empty()) log::info("engine.no_graphs", {{"because", graphs.why_none}});
  if (!graphs.sizes.empty())
    log::info("engine.graphs", {{"count", graphs.count() - graphs.mixed_sizes.size()},
                                {"largest", graphs.sizes.back()}});
  RunnerOptions runner = runner_options(config, kv, graphs, pooling);
  if (backend_.ranks != nullptr) {
    runner.collectives = &backend_.ranks->collectives();
    runner.line = &backend_.ranks->line();
  }
  runner_ = std::make_unique<ModelRunner>(*backend_.device, *backend_.ops, *model_, *memory_, kv,
                                          runner, draft_.model.get());
  make_transfer(config, id, layers, std::move(wake));
  SchedulerOptions options =
      scheduler_options(config.scheduler, static_cast<int>(kv.max_model_len));
  // Arrivals between two steps wait too, however much room there is to run. 0 is no limit there.
  options.max_waiting_requests += options.max_num_seqs;
  options.pooling = pooling.pools();
  if (draft_.model != nullptr)
    options.num_lookahead_tokens = config.speculative.num_speculative_tokens;
  options.recompute_failed_loads =
      config.kv_transfer.load_failure_policy != KvLoadFailurePolicy::fail;
  overlaps_ = Drafting::can_overlap(config, backend_.device->is_host_memory());
  can_leave_open_ = Drafting::can_leave_open(config, kv);
  options.drafts_ahead = overlaps_;
  if (config.cache.enable_prefix_caching)
    options.most_sharing_tokens =
        std::min(most_sharing_tokens_, 1 + config.speculative.num_speculative_tokens);
  if (backend_.device->is_host_memory() || (drafting_.is_on() && !overlaps_)) {
    // The host computes: there is nothing to plan beside. Or drafts follow what the step drew.
    options.async = false;
    options.pipeline_depth = 1;
  }
  scheduler_ = std::make_unique<Scheduler>(options, *kv_, transfer_.get());
}

void EngineCore::log_memory(EngineId id) const {
  const MemoryUses& uses = backend_.device->ledger().uses();
  const auto bytes = [&](MemoryPurpose purpose) { return uses[purpose].device; };
  log::info("engine.memory", {{"engine", id.value},
                              {"device", plan_.device_bytes},
                              {"allowed", plan_.allowed_bytes},
                              {"allocated", uses.total().device},
                              {"pinned", uses.total().pinned},
                              {"mapped_weights", plan_.mapped_bytes},
                              {"weights", bytes(MemoryPurpose::weights)},
                              {"kv_cache", bytes(MemoryPurpose::kv_cache)},
                              {"activations", bytes(MemoryPurpose::activations)},
                              {"logits", bytes(MemoryPurpose::logits)},
                              {"block_tables", bytes(MemoryPurpose::block_tables)},
                              {"step_inputs", bytes(MemoryPurpose::step_inputs)},
                              {"sampling", bytes(MemoryPurpose::sampling)},
                              {"kernels", bytes(MemoryPurpose::kernels)},
                              {"kv_transfer", bytes(MemoryPurpose::kv_transfer)},
                              {"kv_offload", bytes(MemoryPurpose::kv_offload)},
                              {"graphs", bytes(MemoryPurpose::graphs)}});
}

}  // namespace quire
