#pragma once
// One engine: model, KV cache, scheduler and runner, and the step that joins them. Belongs to one
// thread: EngineThread's, or that of a program which drives it by hand.

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "engine/core/constraint_queue.h"
#include "engine/core/drafting.h"
#include "engine/core/engine_backend.h"
#include "engine/core/engine_plan.h"
#include "engine/core/handshake.h"
#include "engine/kv_cache/kv_cache_manager.h"
#include "engine/kv_events/publisher.h"
#include "engine/kv_offload/kv_offload.h"
#include "engine/kv_transfer/transfer_connector.h"
#include "engine/runner/model_runner.h"
#include "engine/scheduler/scheduler.h"
#include "engine/structured/mask_queue.h"
#include "engine/wire/messages.h"
#include "model/encoder.h"
#include "model/pooler.h"

namespace quire {

struct ServedModel;

class EngineCore {
 public:
  using Progress = std::function<void(std::string_view stage, double fraction)>;

  // Plans, loads, allocates what the plan says, runs a warm-up step and holds what was allocated
  // against the plan. Throws Failure. Afterwards nothing is allocated on the device. wake is called
  // on any thread when a step has something to do that the step before had not.
  EngineCore(const EngineConfig& asked, EngineId id, EngineBackend backend,
             const Progress& progress, std::function<void()> wake = {});
  ~EngineCore();

  const Ready& ready() const { return ready_; }
  const ModelPlan& plan() const { return *plan_.model; }
  const KvCacheManager& kv_cache() const { return *kv_; }
  const TransferConnector* transfer() const { return transfer_.get(); }  // null: none
  KvOffload* offload() { return offload_.get(); }                        // null: none
  const ModelRunner& runner() const { return *runner_; }
  const Drafting& drafting() const { return drafting_; }
  // Sees each draft's logits; the configuration must have a draft model.
  void observe_drafts(DraftObserver observer) { runner_->observe_drafts(std::move(observer)); }
  // Instead of the configuration's, which must ask for drafts by prompt lookup.
  void use_drafter(std::unique_ptr<Drafter> drafter) { drafting_.use(std::move(drafter)); }
  void observe_logits(LogitsObserver observer) { runner_->observe_logits(std::move(observer)); }

  // A request that cannot run is reported as ended by the next step, whatever is wrong with it.
  void add(AddRequest request);
  void abort(RequestId id);
  PrefixCacheReset reset_prefix_cache(std::uint64_t call);
  BlockReport report_blocks(std::uint64_t call) const;
  void take_notice(const PushNotice& notice);
  void take_notice(const FetchRefused& refused);
  bool has_work() const { return scheduler_->has_work() || !refused_.empty(); }
  // The last step ran nothing and brought nothing: whoever is left waits to be woken.
  bool is_idle() const { return is_idle_; }

  // Decide, compute, account: runs the next step, or with two under way waits for the first.
  StepOutput step();

  EngineStats stats() const;

 private:
  struct Tracking {
    RequestTimes times;
    bool begun = false;        // its first output has gone out
    bool keeps_apart = false;  // Drafting::keeps_apart()
  };

  // What the constructor does, in this order.
  void make_plan(const ServedModel& served);
  void configure_ranks(const EngineConfig& asked, const std::function<void()>& wake);
  void load_models(const ServedModel& served, const Progress& progress);
  void make_kv_cache(const EngineConfig& config, EngineId id);
  void make_offload(const EngineConfig& config, EngineId id);
  void make_runtime(const EngineConfig& config, EngineId id, const PoolingConfig& pooling,
                    std::function<void()> wake);
  void make_transfer(const EngineConfig& config, EngineId id, std::vector<LayerCache> layers,
                     std::function<void()> wake);
  void make_constraints(std::function<void()> wake);
  void warm_up(const EngineConfig& config);
  void time_steps(double target);
  void time_drafts(const EngineConfig& config);
  void hold_to_plan(EngineId id);
  void log_memory(EngineId id) const;
  void fill_ready(const PoolingConfig& pooling, EngineId id, std::chrono::duration<double> startup);

  Result<void> admit(AddRequest& request);
  Result<void> admit_transfer(AddRequest& request, const SamplingParams& sampling);
  void take_compiled();
  void make_masks();
  void take_masks();
  void forget(RequestId id);
  bool may_overlap() const;
  void launch(StepOutput& output);
  void tell_texts_apart(const BatchPlan& plan);
  void collect(StepOutput& output);
  void collect_step(StepOutput& output);
  void fail_undrawn();
  TransferNews take_arrivals(bool others_run);
  void advance_constraints(const StepResult& result);
  void report(const RequestProgress& progress, const StepResult& result, StepOutput& output);
  void add_logprobs(const RequestProgress& progress, RequestOutput& output) const;
  void add_prompt_logprobs(const Request& request, RequestOutput& output) const;

  const EngineBackend backend_;
  std::unique_ptr<Model> model_;
  LoadedDraft draft_;
  std::unique_ptr<Pooler> pooler_;                   // null: it generates
  EncoderModel* encoder_ = nullptr;                  // model_, where it is one
  std::unordered_map<RequestId, int> second_texts_;  // of its requests: where the second one begins
  std::vector<std::int32_t> token_types_;            // of a step
  int most_sharing_tokens_ = 0;
  DType dtype_ = DType::bf16;
  std::string model_fingerprint_;
  int num_hidden_layers_ = 0;
  EnginePlan plan_;
  Ready ready_;
  std::unique_ptr<KvMemory> memory_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvEventPublisher> events_;  // null: nobody listens
  std::unique_ptr<KvOffload> offload_;        // null: what the cache gives up is gone
  std::unique_ptr<KvCacheManager> kv_;
  std::unique_ptr<MaskQueue> masks_;             // null as constraints_ is; outlives all requests
  std::unique_ptr<TransferConnector> transfer_;  // null: this engine exchanges nothing
  std::unique_ptr<Scheduler> scheduler_;
  Drafting drafting_;
  std::unique_ptr<ConstraintQueue> constraints_;  // null: requests with one are refused

  std::vector<const BatchPlan*> in_flight_;  // oldest first
  std::unordered_map<RequestId, Tracking> tracking_;
  std::vector<RequestOutput> refused_;
  Clock::time_point step_begun_;  // where the step before ended, if somebody waited since
  std::chrono::nanoseconds launch_time_{0};  // of the latest step that ran something
  int step_tokens_ = 0;
  int step_requests_ = 0;
  bool overlaps_ = false;        // Drafting::can_overlap()
  bool can_leave_open_ = false;  // the same
  int num_apart_ = 0;            // requests that keep steps apart
  bool is_followed_ = false;     // the next step's drafts are those of the step queued last
  bool is_open_ = false;         // Drafting::leaves_open() of it
  bool is_idle_ = false;
  bool has_arrivals_ = false;  // the step took what was fetched
  bool has_preempted_ = false;
};

}  // namespace quire
