#pragma once
// The fields of every message, by their numbers in messages.proto. A number is never used again.

#include "engine/wire/messages.h"
#include "engine/wire/protobuf.h"

namespace quire {

namespace proto {
template <>
inline constexpr int kLast<FinishReason> = static_cast<int>(FinishReason::error);
template <>
inline constexpr int kLast<ErrorCode> = static_cast<int>(ErrorCode::internal);
template <>
inline constexpr int kLast<DType> = static_cast<int>(DType::fp8_e4m3);
template <>
inline constexpr int kLast<SchedulingPolicy> = static_cast<int>(SchedulingPolicy::priority);
template <>
inline constexpr int kLast<LoadFormat> = static_cast<int>(LoadFormat::dummy);
template <>
inline constexpr int kLast<DeviceKind> = static_cast<int>(DeviceKind::cuda);
template <>
inline constexpr int kLast<PrefixHash> = static_cast<int>(PrefixHash::sha256_cbor);
template <>
inline constexpr int kLast<StateCacheMode> = static_cast<int>(StateCacheMode::adaptive);
template <>
inline constexpr std::optional<FinishReason> kIfUnknown<FinishReason> = FinishReason::stop;

// A token and its bias.
template <class V, Same<std::pair<TokenId, float>> T>
void fields(V& v, T& m) {
  v(1, m.first);
  v(2, m.second);
}
}  // namespace proto

template <class V, Same<SamplingParams> T>
void fields(V& v, T& m) {
  v(1, m.temperature);
  v(2, m.top_p);
  v(3, m.top_k);
  v(4, m.min_p);
  v(5, m.seed);
  v(6, m.presence_penalty);
  v(7, m.frequency_penalty);
  v(8, m.repetition_penalty);
  v(9, m.logit_bias);
  v(10, m.allowed_tokens);
  v(11, m.max_tokens);
  v(12, m.min_tokens);
  v(13, m.stop_token_ids);
  v(14, m.ignore_eos);
  v(15, m.logprobs);
  v(16, m.prompt_logprobs);
  v(17, m.skip_reading_prefix_cache);
}

template <class V, Same<AddRequest> T>
void fields(V& v, T& m) {
  v(1, m.id);
  v(2, m.prompt);
  v(3, m.sampling);
  v(4, m.eos_token_ids);
  v(5, m.priority);
  v(6, m.cache_salt);
  v(7, m.transfer_params);
  v(8, m.arrival);
}

template <class V, Same<AbortRequest> T>
void fields(V& v, T& m) {
  v(1, m.id);
}

template <class V, Same<Error> T>
void fields(V& v, T& m) {
  v(1, m.code);
  v(2, m.detail);
  v(3, m.field);
}

template <class V, Same<TokenLogprob> T>
void fields(V& v, T& m) {
  v(1, m.token);
  v(2, m.logprob);
}

template <class V, Same<PositionLogprobs> T>
void fields(V& v, T& m) {
  v(1, m.chosen);
  v(2, m.rank);
  v(3, m.top);
}

template <class V, Same<RequestTimes> T>
void fields(V& v, T& m) {
  v(1, m.queued);
  v(2, m.scheduled);
  v(3, m.first_token);
  v(4, m.last_token);
}

template <class V, Same<RequestOutput> T>
void fields(V& v, T& m) {
  v(1, m.id);
  v(2, m.token_ids);
  v(3, m.logprobs);
  v(4, m.finish_reason);
  v(5, m.stop_token);
  v(6, m.num_cached_tokens);
  v(7, m.num_preemptions);
  v(8, m.times);
  v(9, m.transfer_params);
  v(10, m.error);
  v(11, m.prompt_logprobs);
}

template <class V, Same<TokenOutput> T>
void fields(V& v, T& m) {
  v(1, m.id);
  v(2, m.token);
}

template <class V, Same<EngineStats> T>
void fields(V& v, T& m) {
  v(1, m.num_running);
  v(2, m.num_waiting);
  v(3, m.num_waiting_deferred);
  v(4, m.num_blocks);
  v(5, m.num_free_blocks);
  v(6, m.kv_cache_usage);
  v(7, m.prefix_cache_queries);
  v(8, m.prefix_cache_hits);
  v(9, m.prompt_tokens);
  v(10, m.generation_tokens);
  v(11, m.preemptions);
  v(12, m.steps);
  v(13, m.step_tokens);
  v(14, m.step_requests);
  v(15, m.late_allocations);
}

template <class V, Same<StepOutput> T>
void fields(V& v, T& m) {
  v(1, m.tokens);
  v(2, m.requests);
  v(3, m.time);
  v(4, m.stats);
}

template <class V, Same<Hello> T>
void fields(V& v, T& m) {
  v(1, m.engine);
  v(2, m.version);
}

template <class V, Same<ModelOptions> T>
void fields(V& v, T& m) {
  v(1, m.path);
  v(2, m.served_name);
  v(3, m.dtype);
  v(4, m.max_model_len);
  v(5, m.load_format);
  v(6, m.seed);
  v(7, m.quantization);
}

template <class V, Same<CacheConfig> T>
void fields(V& v, T& m) {
  v(1, m.block_size);
  v(2, m.num_gpu_blocks_override);
  v(3, m.kv_cache_memory_bytes);
  v(4, m.gpu_memory_utilization);
  v(5, m.cache_dtype);
  v(6, m.enable_prefix_caching);
  v(7, m.prefix_hash);
  v(8, m.hash_block_size);
  v(9, m.mamba_cache_mode);
  v(10, m.mamba_block_size);
  v(11, m.mamba_cache_dtype);
  v(12, m.mamba_ssm_cache_dtype);
  v(13, m.hybrid_manager);
}

template <class V, Same<SchedulerConfig> T>
void fields(V& v, T& m) {
  v(1, m.max_num_seqs);
  v(2, m.max_num_batched_tokens);
  v(3, m.policy);
  v(4, m.enable_chunked_prefill);
  v(5, m.long_prefill_token_threshold);
  v(6, m.scheduler_reserve_full_isl);
  v(7, m.async_scheduling);
  v(8, m.max_num_queued_reqs);
  v(9, m.max_num_queued_tokens);
}

template <class V, Same<ParallelConfig> T>
void fields(V& v, T& m) {
  v(1, m.tensor_parallel_size);
}

template <class V, Same<KvEventsConfig> T>
void fields(V& v, T& m) {
  v(1, m.endpoint);
  v(2, m.replay_endpoint);
  v(3, m.topic);
  v(4, m.buffer_steps);
  v(5, m.high_water_mark);
  v(6, m.int_hashes);
  v(7, m.hash_seed);
}

template <class V, Same<GraphConfig> T>
void fields(V& v, T& m) {
  v(1, m.enforce_eager);
  v(2, m.capture_sizes);
}

template <class V, Same<EngineConfig> T>
void fields(V& v, T& m) {
  v(1, m.model);
  v(2, m.cache);
  v(3, m.scheduler);
  v(4, m.parallel);
  v(5, m.kv_events);
  v(6, m.device);
  v(7, m.cpu_threads);
  v(8, m.deterministic);
  v(9, m.graphs);
}

template <class V, Same<Configure> T>
void fields(V& v, T& m) {
  v(1, m.version);
  v(2, m.config);
}

template <class V, Same<StartupProgress> T>
void fields(V& v, T& m) {
  v(1, m.stage);
  v(2, m.fraction);
}

template <class V, Same<KvGroupInfo> T>
void fields(V& v, T& m) {
  v(1, m.kind);
  v(2, m.block_size);
  v(3, m.kernel_block_size);
  v(4, m.page_bytes);
  v(5, m.layers);
  v(6, m.unpadded_page_bytes);
}

template <class V, Same<MemoryUseInfo> T>
void fields(V& v, T& m) {
  v(1, m.purpose);
  v(2, m.planned_bytes);
  v(3, m.allocated_bytes);
  v(4, m.pinned_bytes);
}

template <class V, Same<Ready> T>
void fields(V& v, T& m) {
  v(1, m.engine);
  v(2, m.version);
  v(3, m.max_model_len);
  v(4, m.num_gpu_blocks);
  v(5, m.block_size);
  v(6, m.groups);
  v(7, m.kv_cache_size_tokens);
  v(8, m.max_concurrency);
  v(9, m.dtype);
  v(10, m.kv_cache_dtype);
  v(11, m.model_fingerprint);
  v(12, m.dp_stats_address);
  v(13, m.device);
  v(14, m.vocab_size);
  v(15, m.startup_seconds);
  v(16, m.mamba_cache_mode);
  v(17, m.memory);
}

template <class V, Same<EngineDead> T>
void fields(V& v, T& m) {
  v(1, m.engine);
  v(2, m.error);
}

}  // namespace quire
