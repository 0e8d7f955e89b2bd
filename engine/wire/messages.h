#pragma once
// What crosses the line between the front end and an engine, as plain structs. In one process they
// are moved through a channel as they are; between processes encoding.h writes them as Protobuf.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/ids.h"
#include "engine/config.h"
#include "engine/request/decision.h"
#include "engine/request/engine_stats.h"
#include "engine/request/finish_reason.h"
#include "engine/request/pooling_params.h"
#include "engine/request/sampling_params.h"

namespace quire {

template <>
struct FieldsOf<Error> {
  using type = FieldList<&Error::code, &Error::detail, &Error::field>;
};

// A point on the clock of the process that took it; only differences travel well.
using Clock = std::chrono::steady_clock;

// Requests: front end → engine.

struct AddRequest {
  RequestId id;  // EngineClient fills it in
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::vector<TokenId> eos_token_ids;
  int priority = 0;             // smaller runs first under the priority policy
  std::uint64_t client = 0;     // who asks; clients that wait take turns
  std::string cache_salt;       // requests share prefix blocks only under the same salt
  std::string transfer_params;  // kv_transfer_params as JSON; empty: none
  std::string transfer_name;    // with them: what vLLM would call it; both sides' share it
  Clock::time_point arrival = Clock::now();
  std::optional<PoolingParams> pooling;  // for a pooling model, which samples nothing

  using Fields =
      FieldList<&AddRequest::id, &AddRequest::prompt, &AddRequest::sampling,
                &AddRequest::eos_token_ids, &AddRequest::priority, &AddRequest::cache_salt,
                &AddRequest::transfer_params, &AddRequest::arrival, &AddRequest::client,
                &AddRequest::pooling, &AddRequest::transfer_name>;
};

struct AbortRequest {
  RequestId id;

  using Fields = FieldList<&AbortRequest::id>;
};

// Forgets what is cached, if no request holds any of it; PrefixCacheReset answers.
struct ResetPrefixCache {
  std::uint64_t call = 0;

  using Fields = FieldList<&ResetPrefixCache::call>;
};

// Who holds which blocks; BlockReport answers.
struct ReportBlocks {
  std::uint64_t call = 0;

  using Fields = FieldList<&ReportBlocks::call>;
};

// Of a prefill that others wait to be sent, by the name that both were told: it runs in another
// engine, or came to nothing before an engine had it.
struct PushNotice {
  std::string name;
  std::string elsewhere;  // where that engine listens, as Ready says; empty: it came to nothing

  using Fields = FieldList<&PushNotice::name, &PushNotice::elsewhere>;
};

// Of a request that no engine was given: what others keep for it, as its kv_transfer_params say, is
// not fetched.
struct FetchRefused {
  std::string params;
  std::string name;  // as AddRequest::transfer_name; empty: it was not known yet

  using Fields = FieldList<&FetchRefused::params, &FetchRefused::name>;
};

// Outputs: engine → front end.

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;

  using Fields = FieldList<&TokenLogprob::token, &TokenLogprob::logprob>;
};

// Log-probabilities at one output position.
struct PositionLogprobs {
  TokenLogprob chosen;
  int rank = 0;                   // of the chosen token, 1 = most probable
  std::vector<TokenLogprob> top;  // most probable first; as many as asked for

  using Fields =
      FieldList<&PositionLogprobs::chosen, &PositionLogprobs::rank, &PositionLogprobs::top>;
};

struct RequestTimes {
  Clock::time_point queued;       // the engine took it
  Clock::time_point scheduled;    // first step that ran it
  Clock::time_point first_token;  // end of the step that made it
  Clock::time_point last_token;

  using Fields = FieldList<&RequestTimes::queued, &RequestTimes::scheduled,
                           &RequestTimes::first_token, &RequestTimes::last_token>;
};

// What happened to one request since its previous output. next() of a Generation may merge several.
struct RequestOutput {
  RequestId id;
  std::vector<TokenId> token_ids;                 // new ones
  std::vector<PositionLogprobs> logprobs;         // one per token_ids, or empty when not asked for
  std::vector<PositionLogprobs> prompt_logprobs;  // of prompt tokens 1, 2, …, with the first output
  std::optional<FinishReason> finish_reason;
  std::optional<TokenId> stop_token;  // the eos or stop token that ended it; last of token_ids
  int num_cached_tokens = 0;          // prompt tokens found in the prefix cache
  int num_external_tokens = 0;        // of these: from another engine, or from behind the cache
  int num_preemptions = 0;
  RequestTimes times;
  std::string transfer_params;  // from the connector, as JSON
  std::optional<Error> error;   // when finish_reason is error
  std::vector<float> pooled;    // for a pooling model: the prompt's vector

  using Fields = FieldList<&RequestOutput::id, &RequestOutput::token_ids, &RequestOutput::logprobs,
                           &RequestOutput::finish_reason, &RequestOutput::stop_token,
                           &RequestOutput::num_cached_tokens, &RequestOutput::num_external_tokens,
                           &RequestOutput::num_preemptions, &RequestOutput::times,
                           &RequestOutput::transfer_params, &RequestOutput::error,
                           &RequestOutput::prompt_logprobs, &RequestOutput::pooled>;
};

// Appends the later output of the same request.
void merge(RequestOutput& into, RequestOutput&& next);

// The common case of a decode step: one more token of a running request, and nothing else.
struct TokenOutput {
  RequestId id;
  TokenId token = 0;

  using Fields = FieldList<&TokenOutput::id, &TokenOutput::token>;
};

// A request is in one of the two lists. The last_token time of those in `tokens` is `time`.
struct StepOutput {
  std::vector<TokenOutput> tokens;
  std::vector<RequestOutput> requests;  // first and last ones, and those that say more than a token
  Clock::time_point time;               // end of the step
  EngineStats stats;
  std::vector<Decision> decisions;  // what changed for a request; in a steady step nothing does

  using Fields = FieldList<&StepOutput::tokens, &StepOutput::requests, &StepOutput::time,
                           &StepOutput::stats, &StepOutput::decisions>;
};

// Two steps as one; a request may then occur several times in `requests`, in order.
void merge(StepOutput& into, StepOutput&& next);

std::string_view quire_version();

// Start-up, in this order: Hello → Configure → StartupProgress… → Ready, or EngineDead.

struct Hello {
  EngineId engine;
  std::string version;

  using Fields = FieldList<&Hello::engine, &Hello::version>;
};

struct Configure {
  std::string version;
  EngineConfig config;

  using Fields = FieldList<&Configure::version, &Configure::config>;
};

struct StartupProgress {
  std::string stage;    // "loading weights"
  double fraction = 0;  // of the stage, 0 … 1

  using Fields = FieldList<&StartupProgress::stage, &StartupProgress::fraction>;
};

struct KvGroupInfo {
  std::string kind;           // "full_attention", "sliding_window", "mamba", …
  int block_size = 0;         // tokens
  int kernel_block_size = 0;  // tokens
  std::int64_t page_bytes = 0;
  int layers = 0;
  std::int64_t unpadded_page_bytes = 0;  // 0: an older engine, which does not say

  using Fields =
      FieldList<&KvGroupInfo::kind, &KvGroupInfo::block_size, &KvGroupInfo::kernel_block_size,
                &KvGroupInfo::page_bytes, &KvGroupInfo::layers, &KvGroupInfo::unpadded_page_bytes>;
};

// What one purpose takes up on the device, as planned and as allocated.
struct MemoryUseInfo {
  std::string purpose;  // "weights", "kv_cache", …
  std::int64_t planned_bytes = 0;
  std::int64_t allocated_bytes = 0;
  std::int64_t pinned_bytes = 0;  // of the host, as planned

  using Fields = FieldList<&MemoryUseInfo::purpose, &MemoryUseInfo::planned_bytes,
                           &MemoryUseInfo::allocated_bytes, &MemoryUseInfo::pinned_bytes>;
};

// What a pooling model's vectors are.
struct PoolingInfo {
  PoolingTask task = PoolingTask::none;
  int size = 0;                               // numbers per result
  bool use_activation = false;                // by default: length 1 (embed), sigmoid (score)
  bool is_matryoshka = false;                 // may be cut
  std::vector<std::int32_t> dimensions = {};  // to these sizes; empty: to any

  using Fields = FieldList<&PoolingInfo::task, &PoolingInfo::size, &PoolingInfo::use_activation,
                           &PoolingInfo::is_matryoshka, &PoolingInfo::dimensions>;
};

struct Ready {
  EngineId engine;
  std::string version;
  int max_model_len = 0;  // tokens, after auto-fit
  int num_gpu_blocks = 0;
  int block_size = 0;  // tokens, smallest over groups
  std::vector<KvGroupInfo> groups;
  std::int64_t kv_cache_size_tokens = 0;
  double max_concurrency = 0;
  std::string dtype;
  std::string kv_cache_dtype;
  std::string model_fingerprint;
  std::string dp_stats_address;  // empty: none
  std::string device;            // "cpu", "cuda:0"
  int vocab_size = 0;
  double startup_seconds = 0;
  std::string mamba_cache_mode;  // as resolved; empty: no recurrent states
  std::vector<MemoryUseInfo> memory;
  PoolingInfo pooling;    // PoolingTask::none: it generates
  std::string kv_listen;  // where others fetch what it keeps; empty: nowhere

  using Fields =
      FieldList<&Ready::engine, &Ready::version, &Ready::max_model_len, &Ready::num_gpu_blocks,
                &Ready::block_size, &Ready::groups, &Ready::kv_cache_size_tokens,
                &Ready::max_concurrency, &Ready::dtype, &Ready::kv_cache_dtype,
                &Ready::model_fingerprint, &Ready::dp_stats_address, &Ready::device,
                &Ready::vocab_size, &Ready::startup_seconds, &Ready::mamba_cache_mode,
                &Ready::memory, &Ready::pooling, &Ready::kv_listen>;
};

// The engine's last words; nothing follows.
struct EngineDead {
  EngineId engine;
  std::string error;

  using Fields = FieldList<&EngineDead::engine, &EngineDead::error>;
};

struct PrefixCacheReset {
  std::uint64_t call = 0;
  bool done = false;
  int blocks_in_use = 0;  // that prevented it

  using Fields =
      FieldList<&PrefixCacheReset::call, &PrefixCacheReset::done, &PrefixCacheReset::blocks_in_use>;
};

// The blocks of one request in one group.
struct BlockHolder {
  RequestId request;
  int group = 0;
  int tokens = 0;  // computed
  int blocks = 0;
  int shared = 0;  // of them, with other requests

  using Fields = FieldList<&BlockHolder::request, &BlockHolder::group, &BlockHolder::tokens,
                           &BlockHolder::blocks, &BlockHolder::shared>;
};

// Blocks by what they are for; a shared one counts once.
struct BlockCounts {
  int held = 0;    // by one request
  int shared = 0;  // by several
  int cached = 0;  // by none, and a later request may find its content

  using Fields = FieldList<&BlockCounts::held, &BlockCounts::shared, &BlockCounts::cached>;
};

enum class BlockState : std::uint8_t { free, cached, held, shared };

// What the KV cache is used for, in cells of equally many blocks, so that it is never long. A cell
// is what the most used of its blocks is. Numbers by cell count from one; zero: none.
struct BlockReport {
  std::uint64_t call = 0;
  EngineId engine;
  int num_blocks = 0;  // that requests can use
  int blocks_per_cell = 1;
  std::vector<std::int32_t> states;   // BlockState, by cell
  std::vector<std::int32_t> groups;   // by cell: its group
  std::vector<std::int32_t> holders;  // by cell: place in `requests`
  std::vector<BlockCounts> counts;    // by group
  std::vector<BlockHolder> requests;

  using Fields =
      FieldList<&BlockReport::call, &BlockReport::engine, &BlockReport::num_blocks,
                &BlockReport::blocks_per_cell, &BlockReport::states, &BlockReport::groups,
                &BlockReport::holders, &BlockReport::counts, &BlockReport::requests>;
};

using Command = std::variant<Configure, AddRequest, AbortRequest, ResetPrefixCache, ReportBlocks,
                             PushNotice, FetchRefused>;
using EngineEvent = std::variant<Hello, StartupProgress, Ready, StepOutput, EngineDead,
                                 PrefixCacheReset, BlockReport>;

}  // namespace quire
