#include "engine/scheduler/state_steps.h"

#include <algorithm>

namespace quire {
namespace {

int floor_to(int value, int unit) { return value / unit * unit; }

// vLLM's rule: whole blocks, and one step ends at the last boundary of what is known.
int align_end(const StateSteps& states, const Request& request, int begin, int end) {
  int last = floor_to(request.num_tokens(), states.block_size);
  if (states.use_eagle) last = std::max(last - states.block_size, 0);
  if (end < last) return begin + floor_to(end - begin, states.block_size);
  return begin < last ? std::min(last, end) : end;
}

// The stops are the boundaries at which later requests will want to go on: where this prompt parts
// from what is cached, and the last one that the same prompt, sent again, can hit. That lies below
// its end, as its last token is computed again. Between two stops steps are as long as may be; one
// that begins within a block ends with it at the latest, so that the block's state is overwritten
// and never left behind.
int adaptive_end(const StateSteps& states, const Request& request, int begin, int end) {
  int last = floor_to(request.num_tokens() - 1, states.hit_alignment);
  if (states.use_eagle) last -= states.hit_alignment;
  for (const int stop : {std::min(request.shared_prefix, last), last}) {
    if (begin < stop && stop < end) end = stop;
  }
  const int next = floor_to(begin, states.block_size) + states.block_size;
  if (begin % states.block_size != 0) return std::min(end, next);
  return end < next ? end : floor_to(end, states.block_size);
}

}  // namespace

StateSteps state_steps(const KvCacheConfig& config) {
  for (const GroupConfig& group : config.groups) {
    if (!keeps_state(group.spec.kind)) continue;
    return {.mode = group.spec.state_cache_mode,
            .block_size = group.spec.block_size,
            .hit_alignment = config.scheduler_block_size,
            .use_eagle = config.use_eagle};
  }
  return {};
}

int tokens_in_step(const StateSteps& states, const Request& request, int num_computed,
                   int num_tokens) {
  if (states.mode == StateCacheMode::none || num_tokens <= 0) return num_tokens;
  if (num_computed >= std::max(request.num_prompt(), request.num_tokens() - 1)) return num_tokens;
  const int end = num_computed + num_tokens;
  const int next = floor_to(num_computed, states.block_size) + states.block_size;
  if (states.mode == StateCacheMode::all) return std::min(end, next) - num_computed;
  const bool align = states.mode == StateCacheMode::align;
  return (align ? align_end : adaptive_end)(states, request, num_computed, end) - num_computed;
}

}  // namespace quire
