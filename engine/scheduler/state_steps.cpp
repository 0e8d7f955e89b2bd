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

int end_by_mode(const StateSteps& states, const Request& request, int begin, int end) {
  switch (states.mode) {
    case StateCacheMode::none:
      return end;
    case StateCacheMode::all:
      return std::min(end, floor_to(begin, states.block_size) + states.block_size);
    case StateCacheMode::align:
      return align_end(states, request, begin, end);
    case StateCacheMode::adaptive:
      return adaptive_end(states, request, begin, end);
  }
  return end;
}

// What is left of a prompt behind its whole chunks goes by tokens wherever a step begins. One that
// begins within a chunk ends with it, so that those behind it are whole again.
int end_of_chunk(const StateSteps& states, const Request& request, int begin, int end) {
  const int chunks = floor_to(request.num_tokens(), states.chunk);
  if (begin < chunks && begin % states.chunk != 0)
    end = std::min(end, floor_to(begin, states.chunk) + states.chunk);
  return end >= chunks ? end : std::max(begin, floor_to(end, states.chunk));
}

}  // namespace

StateSteps state_steps(const KvCacheConfig& config, int longest) {
  for (const GroupConfig& group : config.groups) {
    if (!keeps_state(group.spec.kind)) continue;
    const bool has_chunks =
        longest >= config.state_chunk && (group.spec.state_cache_mode == StateCacheMode::none ||
                                          group.spec.block_size % config.state_chunk == 0);
    return {.mode = group.spec.state_cache_mode,
            .block_size = group.spec.block_size,
            .hit_alignment = config.scheduler_block_size,
            .use_eagle = config.use_eagle,
            .chunk = has_chunks ? config.state_chunk : 1};
  }
  return {};
}

int least_step(const StateSteps& states) {
  return states.mode == StateCacheMode::align ? std::max(states.block_size, states.chunk)
                                              : states.chunk;
}

int tokens_in_step(const StateSteps& states, const Request& request, int num_computed,
                   int num_tokens) {
  if (num_tokens <= 0) return num_tokens;
  if (num_computed >= std::max(request.num_prompt(), request.num_tokens() - 1)) return num_tokens;
  const int end = end_by_mode(states, request, num_computed, num_computed + num_tokens);
  return end_of_chunk(states, request, num_computed, end) - num_computed;
}

int fewer_tokens_in_step(const StateSteps& states, const Request& request, int num_computed,
                         int num_tokens) {
  const int half = num_tokens / 2;
  StateSteps any = states;
  any.chunk = 1;
  if (num_tokens <= states.chunk) return tokens_in_step(any, request, num_computed, half);
  return tokens_in_step(states, request, num_computed, std::max(half, states.chunk));
}

}  // namespace quire
