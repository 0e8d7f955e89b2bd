#include "engine/core/rank_core.h"

#include <string>
#include <variant>

#include "base/error.h"
#include "engine/core/engine_plan.h"
#include "engine/core/served_model.h"
#include "engine/kv_offload/divided_block_pages.h"
#include "engine/kv_transfer/pages/divided_pages.h"
#include "engine/runner/rank_runner.h"
#include "engine/wire/encoding.h"
#include "model/registry.h"

namespace quire {
namespace {

EngineConfig take_config(RankLine& line) {
  const RankLine::Taken taken = line.take();
  const auto command = decode_command(
      {reinterpret_cast<const char*>(taken.payload.data()), taken.payload.size()});
  if (taken.message.kind == RankMessage::Kind::configure && command && *command) {
    if (const auto* configure = std::get_if<Configure>(&**command)) return configure->config;
  }
  throw Failure(ErrorCode::internal, "the first message was no configuration");
}

// All that outlives a step.
class Rank {
 public:
  Rank(const EngineConfig& asked, std::unique_ptr<Collectives> collectives, EngineBackend backend)
      : backend_(std::move(backend)), collectives_(std::move(collectives)) {
    const ServedModel served = read_served_model(asked);
    const EngineConfig& config = served.config;
    const Shard shard{.rank = collectives_->rank(), .size = collectives_->size()};
    PlannedDevice device =
        planned_device(backend_.kind, *backend_.device, backend_.ops->traits());
    device.rank = shard.rank;
    plan_ = plan_engine(config, served.model, device, served.pooling);
    if (plan_.model.has_error()) throw Failure(plan_.model.error());
    const KvPlan& kv = plan_.model->kv;
    if (kv.num_blocks != config.cache.num_gpu_blocks_override.value_or(0) ||
        kv.max_model_len != config.model.max_model_len)
      throw Failure(ErrorCode::internal, "plans a cache of " + std::to_string(kv.num_blocks) +
                                             " blocks, which is not rank 0's");
    const DType dtype = config.model.dtype.value_or(served.model.dtype);
    const LoadOptions load{
        .dtype = dtype,
        .load_format = config.model.load_format,
        .seed = config.model.seed,
        .quantization = config.model.quantization,
        .max_model_len = static_cast<int>(plan_.loaded_len),
        .cache_dtype =
            kv_spec_options(config, dtype, served.model.quant.kv_cache_dtype).cache_dtype,
        .shard = shard,
        .same_bits = config.deterministic};
    model_ =
        load_model(served.model, config.model.path, *backend_.device, backend_.ops->traits(), load);
    memory_.emplace(*backend_.device, kv);
    const std::vector<LayerCache> layers = memory_->layers(plan_.layers);
    model_->bind_cache(
        std::span(layers).first(layers.size() - static_cast<std::size_t>(plan_.num_draft_layers)));
    if (config.kv_transfer.role != KvRole::none)
      pages_.emplace(*backend_.device, layers, rank_rows(plan_, layers, *collectives_));
    if (config.kv_offload.is_on()) blocks_.emplace(*backend_.device, shard.rank, layers);
    RunnerOptions options = runner_options(config, kv, plan_.graphs, served.pooling);
    options.collectives = collectives_.get();
    runner_.emplace(*backend_.device, *backend_.ops, *model_, *memory_, kv, options);
  }

  void run(RankLine& line) {
    const RankLine::Taken taken = line.take();
    const std::span<std::byte> answer = line.answer();
    switch (taken.message.kind) {
      case RankMessage::Kind::step:
        return runner_->step(taken.message.shape, taken.zero_blocks, taken.payload);
      case RankMessage::Kind::replay:
        return runner_->replay(taken.message.shape, taken.zero_blocks, taken.payload);
      case RankMessage::Kind::zero:
        return memory_->zero_blocks(taken.zero_blocks, backend_.device->stream());
      case RankMessage::Kind::capture:
        return runner_->capture(taken.message.shape, taken.payload);
      case RankMessage::Kind::logits:
        return runner_->logits(taken.message.first, taken.message.end);
      case RankMessage::Kind::samples:
        return runner_->sampled_logits();
      case RankMessage::Kind::draws:
        return runner_->take_draws();
      case RankMessage::Kind::drafts:
        return runner_->take_drafts();
      case RankMessage::Kind::read:
        return taken.message.bytes == RankBytes::rows ? pages_->read(taken.words, answer)
                                                      : blocks_->read(taken.words, answer);
      case RankMessage::Kind::write:
        return taken.message.bytes == RankBytes::rows ? pages_->write(taken.words, taken.payload)
                                                      : blocks_->write(taken.words, taken.payload);
      case RankMessage::Kind::warm:
        check_allocated(plan_.uses, backend_.device->ledger().uses());
        line.tell_memory(static_cast<std::int64_t>(plan_.uses.total().device));
        return backend_.device->ledger().seal();
      case RankMessage::Kind::configure:
        break;
    }
    throw Failure(ErrorCode::internal, "a message of no known kind");
  }

 private:
  const EngineBackend backend_;
  const std::unique_ptr<Collectives> collectives_;
  EnginePlan plan_;
  std::unique_ptr<Model> model_;
  std::optional<KvMemory> memory_;
  std::optional<RankRunner> runner_;
  std::optional<RankPages> pages_;    // where the cache is transferred
  std::optional<RankBlocks> blocks_;  // where something stands behind it
};

}  // namespace

void follow(RankLine& line, std::unique_ptr<Collectives> collectives,
            const BackendFactory& backend) {
  const EngineConfig config = take_config(line);
  Rank rank(config, std::move(collectives), backend(config));
  while (true) rank.run(line);
}

}  // namespace quire
