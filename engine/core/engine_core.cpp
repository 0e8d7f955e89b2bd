#include "engine/core/engine_core.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/core/served_model.h"
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

// Of the planned bytes, in steps that a person or a log can follow.
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

}  // namespace

EngineCore::EngineCore(const EngineConfig& asked, EngineId id, EngineBackend backend,
                       const Progress& progress, std::function<void()> wake)
    : backend_(std::move(backend)),
      drafting_(asked.speculative, asked.scheduler.max_num_seqs, !asked.deterministic) {
  const auto start = Clock::now();
  if (asked.deterministic && backend_.kind != DeviceKind::cpu) {
    throw Failure(
        {ErrorCode::unsupported,
         "--deterministic holds with --device cpu only: the CUDA backend's products depend on "
         "the batch",
         "--deterministic"});
  }
  progress("planning", 0);
  const ServedModel served = read_served_model(asked);
  const EngineConfig& config = served.config;
  const ModelConfig& model_config = served.model;
  dtype_ = config.model.dtype.value_or(model_config.dtype);
  plan_ = plan_engine(config, model_config,
                      planned_device(backend_.kind, *backend_.device, backend_.ops->traits()),
                      served.pooling);
  if (plan_.model.has_error()) throw Failure(plan_.model.error());
  LoadOptions load{.dtype = dtype_,
                   .load_format = config.model.load_format,
                   .seed = config.model.seed,
                   .quantization = config.model.quantization,
                   .max_model_len = static_cast<int>(plan_.loaded_len),
                   .progress = loading_progress(plan_, progress)};
  const OpsTraits& traits = backend_.ops->traits();
  model_ = load_model(model_config, config.model.path, *backend_.device, traits, load);
  load.progress = {};
  encoder_ = dynamic_cast<EncoderModel*>(model_.get());
  if (served.pooling.pools()) {
    pooler_ = std::make_unique<Pooler>(served.pooling, model_config, config.model.path,
                                       config.model.load_format);
    plan_.model->notes.insert(plan_.model->notes.end(), served.notes.begin(), served.notes.end());
  }
  draft_ = make_draft(config, model_config, *model_, *backend_.device, traits, load);
  progress("allocating the KV cache", 0);
  make_kv_cache(config, id);
  if (!wake) wake = [] {};
  make_runtime(config, id, served.pooling, wake);
  if (backend_.compile_constraint) {
    constraints_ = std::make_unique<ConstraintQueue>(backend_.compile_constraint, wake);
    const auto width = (static_cast<std::size_t>(model_->vocab_size()) + 31) / 32;
    masks_ = std::make_unique<MaskQueue>(width, std::move(wake));
  }
  announce_scales(*model_);
  progress("warming up", 0);
  runner_->warm_up();
  MemoryLedger& ledger = backend_.device->ledger();
  check_allocated(plan_.uses, ledger.uses());
  ledger.seal();
  log_memory(id);
  ready_ =
      make_ready({.engine = id,
                  .dtype = dtype_,
                  .device = backend_.device->name(),
                  .model_fingerprint = model_fingerprint(config, dtype_),
                  .vocab_size = model_->vocab_size(),
                  .startup_seconds = std::chrono::duration<double>(Clock::now() - start).count()},
                 plan_, ledger.uses());
  if (pooler_ == nullptr) return;
  ready_.pooling = {.task = served.pooling.task,
                    .size = pooler_->size(),
                    .use_activation = served.pooling.use_activation,
                    .is_matryoshka = served.pooling.is_matryoshka,
                    .dimensions = served.pooling.matryoshka_dimensions};
}

EngineCore::~EngineCore() = default;

void EngineCore::make_kv_cache(const EngineConfig& config, EngineId id) {
  // What a draft knows of a hit's last token may come from another next token. Where only the pace
  // counts, a block computed again would cost more than that.
  const bool drops_last = draft_ != nullptr && config.deterministic;
  KvCacheConfig cache = kv_cache_config(plan_.model->kv, config.scheduler.max_num_batched_tokens,
                                        config.cache.enable_prefix_caching && !plan_.layers.empty(),
                                        drops_last);
  cache.events = !config.kv_events.endpoint.empty();
  cache.event_seed = config.kv_events.hash_seed;
  if (cache.events)
    events_ = std::make_unique<KvEventPublisher>(
        config.kv_events, KvEventFormat{.groups = event_groups(plan_.model->kv),
                                        .data_parallel_rank = static_cast<int>(id.value),
                                        .int_hashes = config.kv_events.int_hashes});
  kv_ = std::make_unique<KvCacheManager>(cache);
}

// One engine's keys and values are of use to another where fingerprints and layers agree.
void EngineCore::make_transfer(const EngineConfig& config, EngineId id,
                               std::vector<LayerCache> layers, std::function<void()> wake) {
  if (config.kv_transfer.role == KvRole::none) return;
  TransferSetup setup;
  setup.config = config.kv_transfer;
  setup.engine = id;
  setup.geometry.model_fingerprint = model_fingerprint(config, dtype_);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerKvSpec spec{.layer = plan_.layers[i].layer, .spec = layers[i].spec};
    setup.geometry.layers.push_back(layer_geometry(spec, layers[i].block_size));
  }
  setup.layers = std::move(layers);
  setup.buffers =
      transfer_buffers(config, plan_.layers, plan_.model->kv.max_model_len, *backend_.device);
  setup.wake = std::move(wake);
  transfer_ = std::make_unique<TransferConnector>(*backend_.device, std::move(setup));
}

void EngineCore::make_runtime(const EngineConfig& config, EngineId id,
                              const PoolingConfig& pooling, std::function<void()> wake) {
  const KvPlan& kv = plan_.model->kv;
  memory_ = std::make_unique<KvMemory>(*backend_.device, kv);
  const std::vector<LayerCache> layers = memory_->layers(plan_.layers);
  const auto num_own = layers.size() - static_cast<std::size_t>(plan_.num_draft_layers);
  model_->bind_cache(std::span(layers).first(num_own));
  if (draft_ != nullptr) draft_->bind_cache(std::span(layers).subspan(num_own));
  const CaptureSizes& graphs = plan_.graphs;
  if (!graphs.why_none.empty()) log::info("engine.no_graphs", {{"because", graphs.why_none}});
  if (!graphs.sizes.empty())
    log::info("engine.graphs", {{"count", graphs.sizes.size()}, {"largest", graphs.sizes.back()}});
  runner_ = std::make_unique<ModelRunner>(*backend_.device, *backend_.ops, *model_, *memory_, kv,
                                          runner_options(config, kv, graphs, pooling),
                                          draft_.get());
  if (pooling.pools() && config.kv_transfer.role != KvRole::none)
    throw Failure(Error{ErrorCode::unsupported,
                        "--kv-role does not work with a pooling model: nobody goes on from it",
                        "--kv-role"});
  make_transfer(config, id, layers, std::move(wake));
  SchedulerOptions options =
      scheduler_options(config.scheduler, static_cast<int>(kv.max_model_len));
  // Arrivals between two steps wait too, however much room there is to run. 0 is no limit there.
  options.max_waiting_requests += options.max_num_seqs;
  options.pooling = pooling.pools();
  if (draft_ != nullptr)
    options.num_lookahead_tokens = config.speculative.num_speculative_tokens;
  options.recompute_failed_loads =
      config.kv_transfer.load_failure_policy != KvLoadFailurePolicy::fail;
  if (backend_.device->is_host_memory() || drafting_.is_on()) {
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
                              {"graphs", bytes(MemoryPurpose::graphs)}});
}

void EngineCore::add(AddRequest request) {
  const RequestId id = request.id;
  Result<void> admitted = Error{};
  try {
    admitted = admit(request);
  } catch (const std::exception& e) {
    admitted =
        Error{ErrorCode::internal, std::string("the request was not taken: ") + e.what(), {}};
  }
  if (admitted) {
    tracking_[id].times.queued = Clock::now();
    return;
  }
  RequestOutput& output = refused_.emplace_back();
  output.id = id;
  output.finish_reason = FinishReason::error;
  output.error = admitted.error();
}

Result<void> EngineCore::admit(AddRequest& request) {
  if (auto checked = validate(request.sampling, model_->vocab_size()); !checked) return checked;
  // What is not text is easily mistaken for something else, by us or by who reads KV events.
  if (std::ranges::any_of(request.cache_salt,
                          [](unsigned char c) { return c < ' ' || c == 127; })) {
    return Error{ErrorCode::invalid_argument, "cache_salt must not hold control characters",
                 "/cache_salt"};
  }
  if ((pooler_ != nullptr) != request.pooling.has_value()) {
    return Error{ErrorCode::invalid_argument,
                 pooler_ ? "this is a pooling model: it generates nothing"
                         : "this model generates: it has no vectors to give",
                 {}};
  }
  int second_text = 0;
  if (request.pooling) {
    request.sampling.max_tokens = 1;  // which never comes
    second_text = request.pooling->second_segment;
    if (second_text < 0 || std::cmp_greater(second_text, request.prompt.size()))
      return Error{ErrorCode::invalid_argument, "second_segment must lie in the prompt", {}};
  }
  const std::optional<ConstraintSpec> constraint = request.sampling.constraint;
  if (constraint && constraints_ == nullptr) {
    return Error{ErrorCode::unsupported, "this engine has no structured output", {}};
  }
  RequestInit init;
  init.id = request.id;
  init.sampling = std::move(request.sampling);
  init.eos_token_ids = std::move(request.eos_token_ids);
  init.priority = request.priority;
  init.client = request.client;
  init.arrival = request.arrival;
  init.cache_salt = std::move(request.cache_salt);
  init.position_offset = model_->position_offset(static_cast<int>(request.prompt.size()));
  if (auto taken = admit_transfer(request, init.sampling); !taken) return taken;
  init.transfer_params = std::move(request.transfer_params);
  init.prompt = std::move(request.prompt);
  if (auto added = scheduler_->add(std::move(init)); !added) {
    if (transfer_ != nullptr) transfer_->forget(request.id);
    return added;
  }
  if (second_text > 0 && encoder_ != nullptr) second_texts_[request.id] = second_text;
  if (constraint) constraints_->add(request.id, request.client, *constraint);
  return {};
}

Result<void> EngineCore::admit_transfer(AddRequest& request, const SamplingParams& sampling) {
  if (request.transfer_params.empty()) return {};
  if (transfer_ != nullptr)
    return transfer_->admit(request.id, request.transfer_params, sampling, request.prompt);
  const auto params = parse_transfer_params(request.transfer_params, {});
  if (!params) return params.error();
  if (!params->keep) return {};
  return Error{ErrorCode::invalid_argument,
               "kv_transfer_params.do_remote_decode needs a server with --kv-role prefill or both",
               "/kv_transfer_params/do_remote_decode"};
}

void EngineCore::abort(RequestId id) {
  scheduler_->abort(id);
  runner_->take_prompt_logprobs(id);
  second_texts_.erase(id);
  if (constraints_ != nullptr) constraints_->cancel(id);
  tracking_.erase(id);
}

PrefixCacheReset EngineCore::reset_prefix_cache(std::uint64_t call) {
  const BlockPool& pool = kv_->pool();
  const int in_use = pool.num_usable() - pool.num_free();
  return {.call = call, .done = kv_->reset_prefix_cache(), .blocks_in_use = in_use};
}

void EngineCore::take_compiled() {
  if (constraints_ == nullptr) return;
  for (ConstraintQueue::Done& done : constraints_->take()) {
    const Request* request = scheduler_->find(done.request);
    if (request == nullptr) continue;
    if (done.constraint == nullptr) {
      scheduler_->fail(done.request, std::move(done.error));
      continue;
    }
    try {
      auto constraint = done.constraint->start(request->eos_token_ids());
      scheduler_->grammar_ready(done.request, masks_->add(done.request, std::move(constraint)));
    } catch (const std::exception& e) {
      scheduler_->fail(done.request, {ErrorCode::internal, e.what(), {}});
    }
  }
}

// Where others run, this thread has a tenth of a step's time for masks, so that nobody notices;
// what is not made in it is made beside the steps.
void EngineCore::make_masks() {
  if (masks_ == nullptr || masks_->num_open() == 0) return;
  constexpr std::chrono::nanoseconds kLeast = std::chrono::microseconds(50),
                                     kMost = std::chrono::milliseconds(2);
  const bool others_run = masks_->num_open() < scheduler_->running().size();
  masks_->work(others_run ? std::clamp(launch_time_ / 10, kLeast, kMost) : kMost);
  take_masks();
}

void EngineCore::take_masks() {
  for (MaskQueue::Done& done : masks_->take()) {
    if (done.has_failed) {
      scheduler_->fail(done.request, std::move(done.error));
      continue;
    }
    const Request* request = scheduler_->find(done.request);
    if (drafting_.is_on() && request != nullptr && request->constraint != nullptr)
      scheduler_->set_drafts(*request, request->constraint->next().drafts);
  }
}

StepOutput EngineCore::step() {
  StepOutput output;
  output.requests = std::exchange(refused_, {});
  step_tokens_ = step_requests_ = 0;
  has_arrivals_ = false;
  take_compiled();
  make_masks();
  const bool collects = !in_flight_.empty();
  if (scheduler_->can_schedule() && scheduler_->has_work()) launch(output);
  const bool nothing_new = step_requests_ == 0;
  // All of them where nothing is to be run: an empty plan is under way, too.
  while (!in_flight_.empty() && (nothing_new || !scheduler_->can_schedule())) collect(output);
  if (events_ != nullptr) events_->publish(kv_->take_events());
  is_idle_ = nothing_new && !collects && !has_arrivals_ && output.tokens.empty() &&
             output.requests.empty();
  scheduler_->take_decisions(output.decisions);
  output.stats = stats();
  return output;
}

// The step before is waited for here only where a mask depends on what it draws; the forward pass
// runs meanwhile.
void EngineCore::launch(StepOutput& output) {
  const BatchPlan& plan = scheduler_->schedule();
  in_flight_.push_back(&plan);
  if (plan.empty()) return;
  const auto now = Clock::now();
  for (const BatchRow& row : plan.rows) {
    if (!row.is_new) continue;
    const auto tracked = tracking_.find(row.request->id());
    if (tracked == tracking_.end()) continue;
    RequestTimes& times = tracked->second.times;
    if (times.scheduled == Clock::time_point()) times.scheduled = now;
  }
  step_tokens_ = plan.num_tokens;
  step_requests_ = static_cast<int>(plan.rows.size());
  drafting_.begin(plan);
  if (encoder_ != nullptr) tell_texts_apart(plan);
  runner_->forward(plan);
  if (in_flight_.size() > 1 && runner_->needs_latest_tokens()) {
    collect(output);
    make_masks();
  }
  runner_->sample();
  for (const auto& row : runner_->late()) scheduler_->drop_sample(row.request);
  for (const RowFailure& failure : runner_->failures())
    scheduler_->fail(failure.request, failure.error);
  launch_time_ = Clock::now() - now;
}

// An encoder's prompt is one step.
void EngineCore::tell_texts_apart(const BatchPlan& plan) {
  token_types_.clear();
  for (const BatchRow& row : plan.rows) {
    const auto found = second_texts_.find(row.request->id());
    const int first = found == second_texts_.end() ? row.num_tokens : found->second;
    token_types_.insert(token_types_.end(), static_cast<std::size_t>(first), 0);
    token_types_.insert(token_types_.end(), static_cast<std::size_t>(row.num_tokens - first), 1);
    if (found != second_texts_.end()) second_texts_.erase(found);
  }
  encoder_->set_token_types(token_types_);
}

void EngineCore::collect(StepOutput& output) {
  const BatchPlan& plan = *in_flight_.front();
  in_flight_.erase(in_flight_.begin());
  const StepTokens tokens = plan.empty() ? StepTokens() : runner_->collect();
  if (!plan.empty()) fail_undrawn();
  drafting_.settle(plan, tokens);
  drafting_.propose(plan, tokens, *runner_);
  TransferNews news;
  if (transfer_ != nullptr) {
    const TransferConnector::News& arrived = transfer_->take_news();
    news = {.received = arrived.received, .invalid_blocks = arrived.invalid_blocks};
    has_arrivals_ |= !arrived.received.empty();
  }
  const StepResult& result = scheduler_->commit(plan, tokens, news);
  output.time = Clock::now();
  for (const RequestProgress& progress : result.requests) report(progress, result, output);
  drafting_.give(result, *scheduler_);
  if (masks_ != nullptr) advance_constraints(result);
}

// Their next masks are asked for, behind their drafts too.
void EngineCore::advance_constraints(const StepResult& result) {
  for (const RequestProgress& progress : result.requests) {
    const Request& request = *progress.request;
    if (progress.finish_reason || request.constraint == nullptr) continue;
    request.constraint->advance(result.tokens_of(progress), request.drafts, drafting_.most());
  }
}

void EngineCore::fail_undrawn() {
  for (const RequestId id : runner_->undrawn())
    scheduler_->fail(id, {ErrorCode::internal,
                          "the model's output is not a number: its weights are damaged, or "
                          "overflow in their dtype",
                          {}});
}

EngineStats EngineCore::stats() const {
  EngineStats stats = scheduler_->stats();
  drafting_.report(stats);
  stats.late_allocations = backend_.device->ledger().num_late();
  if (transfer_ != nullptr) stats.kv_transfer = transfer_->stats();
  stats.step_tokens = step_tokens_;
  stats.step_requests = step_requests_;
  return stats;
}

}  // namespace quire
