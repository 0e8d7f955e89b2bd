#include "server/metrics/metric_rows.h"

#include "engine/request/engine_stats.h"

namespace quire {

namespace {

constexpr auto kGauge = MetricKind::gauge;
constexpr auto kCounter = MetricKind::counter;
constexpr auto kWaiting = "vllm:num_requests_waiting_by_reason";
constexpr auto kWaitingHelp = "Waiting requests by reason";

// For gauges and counters, whose samples are doubles.
template <auto member>
double of(const EngineStats& stats) {
  return static_cast<double>(stats.*member);
}
template <auto member>
double of(const RequestSample& sample) {
  return static_cast<double>(sample.*member);
}

using S = EngineStats;
using R = RequestSample;

constexpr auto kKvBytes = "quire:kv_transfer_bytes_total";
constexpr auto kKvBytesHelp = "Keys and values that went from or to another engine";
constexpr auto kKvCount = "quire:kv_transfers_total";
constexpr auto kKvCountHelp = "Requests whose keys and values went from or to another engine";
constexpr auto kKvSeconds = "quire:kv_transfer_seconds_total";
constexpr auto kKvSecondsHelp = "Time that these took, one after the other";
constexpr auto kKvBuffer = "quire:kv_transfer_buffer_bytes";
constexpr auto kKvBufferHelp = "Keys and values that wait to be fetched, or to be used";

constexpr auto kOffloaded = "quire:kv_offload_bytes_total";
constexpr auto kOffloadedHelp =
    "Keys and values that left the cache (saved) or came back (restored), and that were written to "
    "the disk or read from it";
constexpr auto kOffloadUsed = "quire:kv_offload_used_bytes";
constexpr auto kOffloadUsedHelp = "Blocks behind the cache, in memory and on disk";

template <auto member>
double of_offload(const EngineStats& stats) {
  return static_cast<double>(stats.kv_offload.*member);
}
using O = KvOffloadStats;

constexpr auto kPaced = "quire:itl_paced_steps_total";
constexpr auto kPacedHelp =
    "Steps with prompts beside requests that decode, by what the bound on the time from token to token left: "
    "all of them (whole), what fitted (cut), or the least, which did not fit (least)";

template <auto member>
double of_pace(const EngineStats& stats) {
  return static_cast<double>(stats.pace.*member);
}
using P = PaceStats;

constexpr double of_transfer(std::int64_t count) { return static_cast<double>(count); }

template <std::size_t reason>
constexpr StatRow lost_row() {
  return {kCounter,
          "quire:kv_transfer_recomputed_total",
          "Requests whose keys and values could not be fetched, by reason",
          [](const S& s) -> double {
            const auto& losses = s.kv_transfer.losses;
            return reason < losses.size() ? static_cast<double>(losses[reason].requests) : 0;
          },
          "reason",
          kKvLossNames[reason]};
}
static_assert(kKvLossNames.size() == 7);

constexpr StatRow kStatRows[] = {
    {kGauge, "vllm:num_requests_running", "Requests in model execution", of<&S::num_running>},
    {kGauge, "vllm:num_requests_waiting", "Requests waiting to be processed",
     [](const S& s) -> double { return s.num_waiting + s.num_waiting_deferred; }},
    {kGauge, kWaiting, kWaitingHelp, of<&S::num_waiting>, "reason", "capacity"},
    {kGauge, kWaiting, kWaitingHelp, of<&S::num_waiting_deferred>, "reason", "deferred"},
    {kGauge, "vllm:kv_cache_usage_perc", "KV blocks in use, 1 = all", of<&S::kv_cache_usage>},
    {kCounter, "vllm:prefix_cache_queries_total", "Prefix cache: tokens looked up",
     of<&S::prefix_cache_queries>},
    {kCounter, "vllm:prefix_cache_hits_total", "Prefix cache: tokens found",
     of<&S::prefix_cache_hits>},
    {kCounter, "vllm:external_prefix_cache_queries_total", "What is behind the cache, and other engines: tokens looked up",
     of<&S::external_cache_queries>},
    {kCounter, "vllm:external_prefix_cache_hits_total", "What is behind the cache, and other engines: tokens found",
     of<&S::external_cache_hits>},
    {kCounter, "vllm:num_preemptions_total", "Preemptions", of<&S::preemptions>},
    {kCounter, "vllm:generation_tokens_total", "Tokens generated", of<&S::generation_tokens>},
    {kCounter, "quire:shared_prefix_tokens_total",
     "Tokens of the cache that plans gave attention to read once for several requests",
     of<&S::shared_prefix_tokens>},
    {kGauge, "quire:kv_blocks", "KV blocks that requests can use", of<&S::num_blocks>},
    {kGauge, "quire:kv_blocks_free", "KV blocks that no request uses", of<&S::num_free_blocks>},
    {kCounter, "quire:engine_steps_total", "Engine steps: a heartbeat", of<&S::steps>},
    {kCounter, "quire:late_allocations_total",
     "Allocations on the device after start-up; none should be", of<&S::late_allocations>},
    {kGauge, "quire:itl_chunk_tokens",
     "Prompt tokens in the latest step beside requests that decode, where their tokens have a bound on time",
     of_pace<&P::chunk_tokens>},
    {kCounter, kPaced, kPacedHelp, of_pace<&P::whole_steps>, "chunk", "whole"},
    {kCounter, kPaced, kPacedHelp, of_pace<&P::cut_steps>, "chunk", "cut"},
    {kCounter, kPaced, kPacedHelp, of_pace<&P::least_steps>, "chunk", "least"},
    {kCounter, "quire:itl_late_steps_total",
     "Steps in which requests decode that took longer than their bound",
     of_pace<&P::late_steps>},
    {kCounter, kKvBytes, kKvBytesHelp,
     [](const S& s) -> double { return of_transfer(s.kv_transfer.sent_bytes); }, "direction",
     "sent"},
    {kCounter, kKvBytes, kKvBytesHelp,
     [](const S& s) -> double { return of_transfer(s.kv_transfer.received_bytes); }, "direction",
     "received"},
    {kCounter, kKvCount, kKvCountHelp,
     [](const S& s) -> double { return of_transfer(s.kv_transfer.sent); }, "direction", "sent"},
    {kCounter, kKvCount, kKvCountHelp,
     [](const S& s) -> double { return of_transfer(s.kv_transfer.received); }, "direction",
     "received"},
    {kCounter, kKvSeconds, kKvSecondsHelp, [](const S& s) { return s.kv_transfer.sent_seconds; },
     "direction", "sent"},
    {kCounter, kKvSeconds, kKvSecondsHelp,
     [](const S& s) { return s.kv_transfer.received_seconds; }, "direction", "received"},
    {kCounter, "vllm:nixl_num_kv_expired_reqs_total",
     "Finished prefills that nobody fetched in time",
     [](const S& s) -> double { return of_transfer(s.kv_transfer.expired); }},
    {kCounter, "quire:kv_transfer_not_kept_total",
     "Finished prefills for which the buffer had no room",
     [](const S& s) -> double { return of_transfer(s.kv_transfer.not_kept); }},
    {kGauge, kKvBuffer, kKvBufferHelp,
     [](const S& s) -> double { return of_transfer(s.kv_transfer.kept_bytes); }, "direction",
     "sent"},
    {kGauge, kKvBuffer, kKvBufferHelp,
     [](const S& s) -> double { return of_transfer(s.kv_transfer.arriving_bytes); }, "direction",
     "received"},
    {kCounter, kOffloaded, kOffloadedHelp, of_offload<&O::saved_bytes>, "operation", "saved"},
    {kCounter, kOffloaded, kOffloadedHelp, of_offload<&O::restored_bytes>, "operation", "restored"},
    {kCounter, kOffloaded, kOffloadedHelp, of_offload<&O::written_bytes>, "operation", "written"},
    {kCounter, kOffloaded, kOffloadedHelp, of_offload<&O::read_bytes>, "operation", "read"},
    {kGauge, kOffloadUsed, kOffloadUsedHelp, of_offload<&O::host_bytes>, "where", "memory"},
    {kGauge, kOffloadUsed, kOffloadUsedHelp, of_offload<&O::disk_bytes>, "where", "disk"},
    {kCounter, "quire:kv_offload_damaged_blocks_total",
     "Blocks whose bytes were not those that had been saved: computed again",
     of_offload<&O::damaged>},
    {kCounter, "quire:kv_offload_dropped_blocks_total",
     "Blocks that the disk had no time or no room for", of_offload<&O::dropped>},
    lost_row<0>(),
    lost_row<1>(),
    lost_row<2>(),
    lost_row<3>(),
    lost_row<4>(),
    lost_row<5>(),
    lost_row<6>(),
    {kGauge, "vllm:gpu_cache_usage_perc", "Retired: kv_cache_usage_perc", of<&S::kv_cache_usage>,
     nullptr, nullptr, true},
    {kGauge, "vllm:prefix_cache_queries", "Without _total", of<&S::prefix_cache_queries>, nullptr,
     nullptr, true},
    {kGauge, "vllm:prefix_cache_hits", "Without _total", of<&S::prefix_cache_hits>, nullptr,
     nullptr, true},
};

constexpr auto kLengths = BucketKind::lengths;
constexpr auto kPhases = BucketKind::phases;

// Of a whole request, once: its last choice has n, those that ended before it 0.
bool is_whole(const R& r) { return r.n > 0; }

constexpr RequestRow kRequestRows[] = {
    {"vllm:request_prompt_tokens", "Prompt tokens of a request", kLengths, of<&R::prompt_tokens>},
    {"vllm:request_generation_tokens", "Tokens generated for a request", kLengths,
     of<&R::generation_tokens>},
    {"vllm:request_max_num_generation_tokens", "Most tokens of any choice of a request", kLengths,
     of<&R::max_generation_tokens>, is_whole},
    {"vllm:request_params_max_tokens", "max_tokens of a request", kLengths, of<&R::max_tokens>},
    {"vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed, cached ones left out",
     kLengths, [](const R& r) -> double { return r.prompt_tokens - r.cached_tokens; }},
    {"vllm:request_params_n", "n of a request", BucketKind::choices, of<&R::n>, is_whole},
    {"vllm:e2e_request_latency_seconds", "Arrival to end", kPhases, of<&R::end_to_end>},
    {"vllm:request_queue_time_seconds", "Waiting in the engine", kPhases, of<&R::queue>},
    {"vllm:request_inference_time_seconds", "Running", kPhases,
     [](const R& r) { return r.prefill + r.decode; }},
    {"vllm:request_prefill_time_seconds", "Running, up to the first token", kPhases,
     of<&R::prefill>},
    {"vllm:request_decode_time_seconds", "Running, after the first token", kPhases, of<&R::decode>},
    {"vllm:request_time_per_output_token_seconds", "A request's mean time per output token",
     BucketKind::token_gaps, [](const R& r) { return r.decode / (r.generation_tokens - 1); },
     [](const R& r) { return r.generation_tokens > 1; }},
};

}  // namespace

std::span<const StatRow> stat_rows() { return kStatRows; }
std::span<const RequestRow> request_rows() { return kRequestRows; }

}  // namespace quire
