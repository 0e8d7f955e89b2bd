#pragma once
// One request inside the engine: its tokens, how far they are computed, and its state. Owned by the
// scheduler; engine thread only. `prompt` and `output` tokens lie in one vector.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/request/finish_reason.h"
#include "engine/request/sampling_params.h"

namespace quire {

enum class RequestState : std::uint8_t {
  waiting,
  waiting_for_grammar,    // its grammar is still being compiled
  waiting_for_remote_kv,  // a connector is loading its prefix; holds blocks
  running,
  preempted,  // lost its blocks; waits to start over
  finished,
};

constexpr std::string_view name_of(RequestState state) {
  constexpr std::array<std::string_view, 6> kNames{
      "waiting", "waiting_for_grammar", "waiting_for_remote_kv",
      "running", "preempted",           "finished"};
  return kNames[static_cast<std::size_t>(state)];
}

// 128 bits that stand for all tokens up to the end of one full block, in this process.
struct BlockHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

using Sha256 = std::array<std::uint8_t, 32>;

// A part of the prompt whose tokens are placeholders, such as an image; what they stand for decides
// the hash.
struct PromptItem {
  std::string identifier;
  int offset = 0;  // in the prompt
  int length = 0;
};

// What a new request brings.
struct RequestInit {
  RequestId id;
  std::vector<TokenId> prompt;  // not empty
  SamplingParams sampling;
  std::vector<TokenId> eos_token_ids;
  int priority = 0;                                 // smaller runs first
  std::uint64_t client = 0;                         // who asks; clients that wait take turns
  std::chrono::steady_clock::time_point arrival{};  // breaks ties of priority
  std::string cache_salt;                           // prefix blocks are shared under one salt only
  std::string lora_name;                            // and one adapter
  std::optional<int> lora_id;
  std::vector<PromptItem> items;
  int position_offset = 0;      // of its first token: it decides what keys are in the cache
  std::string transfer_params;  // the connector's, as JSON; empty: none
};

class Request;
class RequestQueue;
class ConstraintMasks;

// Where a request stands in a queue of the scheduler.
struct QueueLink {
  Request* previous = nullptr;
  Request* next = nullptr;
  const RequestQueue* owner = nullptr;  // null: in no queue
  int num_tokens = 0;                   // that the queue counts for it
  std::int64_t place = 0;               // which of the queue's lists it is in
};

class Request {
 public:
  explicit Request(RequestInit init);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // What every step touches comes first, in two cache lines. The scheduler and the KV manager write
  // the public members.
  alignas(64) RequestState state = RequestState::waiting;
  bool in_prefill = false;            // its newest planned step ends before its last known token
  bool was_scheduled = false;         // num_cached is set
  bool load_done = false;             // the connector has ended its load
  const bool is_constrained;          // by SamplingParams::constraint
  std::int32_t num_computed = 0;      // tokens with KV, counting those of planned steps
  std::int32_t num_placeholders = 0;  // samples of planned steps that have not come back
  std::int32_t kv_sequence = -1;      // the KV manager's handle; −1: holds no blocks
  std::int32_t slot = -1;             // in [0, max_num_seqs) while running
  std::int32_t num_in_flight = 0;     // planned steps with it that are not committed
  std::int32_t num_discarded = 0;     // of those, computed from garbage: what they bring is dropped

 private:
  std::int32_t num_prompt_;
  std::int32_t max_output_;
  std::int32_t min_output_;
  std::vector<TokenId> tokens_;
  // End-of-sequence and stop tokens that count, if they are few; else −1 and the lists below.
  static constexpr int kFewEnds = 4;
  std::array<TokenId, kFewEnds> ends_{};
  std::int32_t num_ends_ = 0;

 public:
  std::vector<TokenId> drafts;  // proposals to verify next; −1: known on the device only

  RequestId id() const { return id_; }
  const SamplingParams& sampling() const { return sampling_; }
  std::span<const TokenId> eos_token_ids() const { return eos_token_ids_; }
  int priority() const { return priority_; }
  std::uint64_t client() const { return client_; }
  std::chrono::steady_clock::time_point arrival() const { return arrival_; }
  const std::string& cache_salt() const { return cache_salt_; }
  int position_offset() const { return position_offset_; }
  const std::string& lora_name() const { return lora_name_; }
  std::optional<int> lora_id() const { return lora_id_; }
  const std::string& transfer_params() const { return transfer_params_; }
  std::span<const PromptItem> items() const { return items_; }

  std::span<const TokenId> tokens() const { return tokens_; }  // prompt, then output
  std::span<const TokenId> prompt() const { return tokens().first(num_prompt_); }
  std::span<const TokenId> output() const { return tokens().subspan(num_prompt_); }
  int num_tokens() const { return static_cast<int>(tokens_.size()); }
  int num_prompt() const { return num_prompt_; }
  int num_output() const { return num_tokens() - num_prompt_; }
  // It waits for the masks of its next token: no step can sample for it.
  bool lacks_mask() const { return is_constrained && lacks_mask_slowly(); }
  // The most tokens it can ever have, were there no limit on the context.
  std::int64_t max_total_tokens() const { return std::int64_t{num_prompt_} + max_output_; }

  // How many to make room for when it starts, so that its decode steps allocate nothing.
  int expected_tokens(int max_model_len) const {
    constexpr std::int64_t kExpectedOutput = 8192;
    return static_cast<int>(std::min(
        {max_total_tokens(), num_tokens() + kExpectedOutput, std::int64_t{max_model_len}}));
  }

  void append(TokenId token) { tokens_.push_back(token); }
  void reserve(int num_tokens) { tokens_.reserve(static_cast<std::size_t>(num_tokens)); }
  // Why the last token ends the request, if it does.
  std::optional<FinishReason> stop_check(int max_model_len) const {
    if (ended_by_token()) return FinishReason::stop;
    if (num_tokens() >= max_model_len || num_output() >= max_output_) return FinishReason::length;
    return std::nullopt;
  }
  // The last token is an end-of-sequence or stop token that counts.
  bool ended_by_token() const {
    if (num_output() == 0 || num_output() < min_output_) return false;
    if (num_ends_ < 0) return ends_with_any();
    const auto end = ends_.begin() + num_ends_;
    return std::find(ends_.begin(), end, tokens_.back()) != end;
  }
  // Ahead of the visit that a step makes.
  void prefetch() const {
    __builtin_prefetch(this);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + 64);
  }
  void prefetch_end() const { __builtin_prefetch(tokens_.data() + tokens_.size()); }

  bool load_failed = false;        // in part: num_computed says how much is there
  bool lookup_counted = false;     // however often it is looked up
  bool loads_in_step = false;      // whether that came is known when its first step was committed
  std::int32_t num_cached = 0;     // tokens found in a cache when first scheduled
  std::int32_t num_external = 0;   // tokens that a connector brought
  std::int32_t num_to_load = 0;    // of those what has not come yet, and is counted when it has
  std::int32_t num_restored = 0;   // tokens that came back into the cache for it
  std::int32_t shared_prefix = 0;  // tokens that earlier requests had too: see PrefixHit
  std::int32_t num_preemptions = 0;
  std::optional<FinishReason> finish_reason;
  Error error;                  // when finish_reason is error
  std::string transfer_result;  // the connector's answer at the end, as JSON
  QueueLink queue;

  // Of a request with SamplingParams::constraint, once it is compiled; the sampler tells it each
  // token.
  std::unique_ptr<ConstraintMasks> constraint;

  // Hashes of the full blocks, at the KV manager's hash granularity. It appends.
  std::vector<BlockHash> block_hashes;
  std::vector<Sha256> event_hashes;  // the same for the outside; only when KV events are on

 private:
  bool ends_with_any() const;
  bool lacks_mask_slowly() const;
  // Nothing can follow the end of a constrained output.
  bool ignores_eos() const { return sampling_.ignore_eos && !sampling_.constraint; }

  RequestId id_;
  SamplingParams sampling_;
  std::vector<TokenId> eos_token_ids_;
  int priority_;
  std::uint64_t client_;
  std::chrono::steady_clock::time_point arrival_;
  std::string cache_salt_;
  int position_offset_;
  std::string lora_name_;
  std::optional<int> lora_id_;
  std::string transfer_params_;
  std::vector<PromptItem> items_;
};

}  // namespace quire
