#include "engine/client/ready_info.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "base/log.h"

namespace quire {
namespace {

std::string text_of(int value) { return std::to_string(value); }
std::string text_of(const std::string& value) { return value; }

// An engine of an older version leaves out what it does not know: no disagreement, but noted.
bool is_known(int value) { return value != 0; }
bool is_known(const std::string& value) { return !value.empty(); }

template <class T>
Result<void> must_be_equal(const Ready& a, const Ready& b, const T& in_a, const T& in_b,
                           const char* field) {
  if (in_a == in_b || !is_known(in_a) || !is_known(in_b)) return {};
  if (a.engine == b.engine) {  // two lives of one
    return Error{ErrorCode::invalid_argument,
                 "engine " + std::to_string(b.engine.value) + " is back with another " + field +
                     ": it had " + text_of(in_a) + ", now it has " + text_of(in_b),
                 field};
  }
  return Error{ErrorCode::invalid_argument,
               "engines disagree about " + std::string(field) + ": engine " +
                   std::to_string(a.engine.value) + " has " + text_of(in_a) + ", engine " +
                   std::to_string(b.engine.value) + " has " + text_of(in_b),
               field};
}

// "full_attention:16/16x2": block size and kernel block size in tokens, layers.
std::string groups_text(const Ready& ready) {
  std::string text;
  for (const KvGroupInfo& group : ready.groups) {
    text += (text.empty() ? "" : " ") + group.kind + ":" + text_of(group.block_size) + "/" +
            text_of(group.kernel_block_size) + "x" + text_of(group.layers);
  }
  return text;
}

// What an engine of an older version cannot be compared by.
void log_silence(const Ready& ready) {
  const auto note = [&](bool known, const char* field) {
    if (!known)
      log::warn("engine.not_compared", {{"engine", ready.engine.value}, {"field", field}});
  };
  note(is_known(ready.vocab_size), "vocab_size");
  note(is_known(ready.model_fingerprint), "model_fingerprint");
  note(is_known(ready.dtype), "dtype");
  note(is_known(ready.kv_cache_dtype), "kv_cache_dtype");
  note(!ready.groups.empty(), "groups");
}

Result<void> check(const Ready& ready) {
  const auto refuse = [&](const std::string& what) -> Result<void> {
    return Error{ErrorCode::invalid_argument,
                 "engine " + std::to_string(ready.engine.value) + " reports " + what,
                 {}};
  };
  if (ready.max_model_len <= 0) return refuse("max_model_len " + text_of(ready.max_model_len));
  if (ready.block_size <= 0) return refuse("block_size " + text_of(ready.block_size));
  if (ready.num_gpu_blocks <= 0) return refuse("num_gpu_blocks " + text_of(ready.num_gpu_blocks));
  return {};
}

}  // namespace

std::int64_t ReadyInfo::total_gpu_blocks() const {
  std::int64_t sum = 0;
  for (const Ready& engine : engines) sum += engine.num_gpu_blocks;
  return sum;
}

std::int64_t ReadyInfo::total_kv_cache_size_tokens() const {
  std::int64_t sum = 0;
  for (const Ready& engine : engines) sum += engine.kv_cache_size_tokens;
  return sum;
}

Result<ReadyInfo> merge_ready(std::vector<Ready> engines) {
  assert(!engines.empty());
  const Ready& first = engines.front();
  ReadyInfo info;
  info.max_model_len = first.max_model_len;
  info.block_size = first.block_size;
  info.dtype = first.dtype;
  const Ready* stats_owner = nullptr;  // the first that has an address
  for (const Ready& engine : engines) {
    if (auto ok = check(engine); !ok) return ok.error();
    if (engines.size() > 1) log_silence(engine);
    info.max_model_len = std::min(info.max_model_len, engine.max_model_len);
    info.vocab_size = std::max(info.vocab_size, engine.vocab_size);
    for (const auto& ok :
         {must_be_equal(first, engine, first.block_size, engine.block_size, "block_size"),
          must_be_equal(first, engine, first.dtype, engine.dtype, "dtype"),
          must_be_equal(first, engine, first.kv_cache_dtype, engine.kv_cache_dtype,
                        "kv_cache_dtype"),
          must_be_equal(first, engine, groups_text(first), groups_text(engine), "KV cache groups"),
          must_be_equal(first, engine, first.mamba_cache_mode, engine.mamba_cache_mode,
                        "mamba_cache_mode"),
          must_be_equal(first, engine, first.vocab_size, engine.vocab_size, "vocab_size"),
          must_be_equal(first, engine, first.model_fingerprint, engine.model_fingerprint,
                        "model_fingerprint")}) {
      if (!ok) return ok.error();
    }
    if (engine.dp_stats_address.empty()) continue;
    if (stats_owner == nullptr) stats_owner = &engine;
    if (auto ok = must_be_equal(*stats_owner, engine, stats_owner->dp_stats_address,
                                engine.dp_stats_address, "dp_stats_address");
        !ok) {
      return ok.error();
    }
  }
  if (stats_owner != nullptr) info.dp_stats_address = stats_owner->dp_stats_address;
  info.engines = std::move(engines);
  return info;
}

Result<void> check_prompt(const AddRequest& request, const ReadyInfo& ready) {
  const auto refuse = [](std::string detail) -> Result<void> {
    return Error{ErrorCode::invalid_argument, std::move(detail), "prompt"};
  };
  if (request.prompt.empty()) return refuse("the prompt is empty");
  const PoolingTask task = ready.engines.front().pooling.task;
  if ((task != PoolingTask::none) != request.pooling.has_value()) {
    return refuse(task == PoolingTask::none ? "this model generates: it has no vectors to give"
                                            : "this is a pooling model: it generates nothing");
  }
  // A vector needs no room for an answer.
  const int answer = request.pooling ? 0 : 1;
  if (request.prompt.size() + answer > static_cast<std::size_t>(ready.max_model_len)) {
    return refuse("the prompt has " + std::to_string(request.prompt.size()) +
                  " tokens, the context length is " + std::to_string(ready.max_model_len));
  }
  const int vocab_size =
      ready.vocab_size > 0 ? ready.vocab_size : std::numeric_limits<int>::max();
  const auto is_odd = [vocab_size](TokenId token) { return token < 0 || token >= vocab_size; };
  // Of all of them, without leaving the loop early: several at a time.
  bool any_odd = false;
  for (const TokenId token : request.prompt) any_odd |= is_odd(token);
  if (any_odd) {
    const TokenId odd = *std::ranges::find_if(request.prompt, is_odd);
    return refuse("token " + std::to_string(odd) + " is not in the vocabulary of " +
                  std::to_string(vocab_size));
  }
  return validate(request.sampling, vocab_size);
}

}  // namespace quire
