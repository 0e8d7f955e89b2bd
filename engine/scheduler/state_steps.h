#pragma once
// Where the steps of a prompt end in a model with recurrent states: a state can be kept for later
// requests only where a step ends at a block boundary, and a device that computes chunks of tokens
// gives the same bits only where no step ends within one.

#include "engine/kv_cache/kv_cache_manager.h"
#include "engine/request/request.h"

namespace quire {

struct StateSteps {
  StateCacheMode mode = StateCacheMode::none;  // of the model's state groups
  int block_size = 0;                          // of those, tokens
  int hit_alignment = 0;                       // tokens; a multiple of block_size
  bool use_eagle = false;                      // a hit loses its last block
  int chunk = 1;                               // tokens, of the device's recurrent operators
};

// longest: tokens that a step can have of one prompt.
StateSteps state_steps(const KvCacheConfig& config, int longest);

// No step of a prompt has fewer, but for its end.
int least_step(const StateSteps& states);

// How many of the next num_tokens a step computes after num_computed; 0: it has no room for a
// chunk, or in mode align for a block.
int tokens_in_step(const StateSteps& states, const Request& request, int num_computed,
                   int num_tokens);
// The same where there was no room for num_tokens in the cache: about half, within a chunk only
// where one was too much.
int fewer_tokens_in_step(const StateSteps& states, const Request& request, int num_computed,
                         int num_tokens);

}  // namespace quire
