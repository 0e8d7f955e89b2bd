#pragma once
// The seam between the step and whatever decides which tokens may come next. The life of a
// constraint:
//
//   1. A request arrives with a ConstraintSpec. The engine hands it to its CompileConstraint on a
//      worker thread; meanwhile the request waits (RequestState::waiting_for_grammar) and nobody
//      else does. Equal specifications that are in use are compiled once.
//   2. When the request first runs, the engine thread calls CompiledConstraint::start(). From then
//      on its TokenConstraint belongs to that request: engine thread only.
//   3. Each step the runner queues the forward pass, waits until the request's latest token is
//      known, and calls fill(). The masks of all rows go to the device in one copy and forbid
//      tokens there (Ops::mask_logits) before bias, penalties and the draw.
//   4. Each token that the request takes, its end token too, goes through accept(), in order. A
//      request that is preempted keeps its constraint and its tokens.
//   5. Drafts are looked at ahead: accept() for each, fill() in between, then rollback() of all.
//
// A mask is u32 words over the vocabulary: bit t % 32 of word t / 32 is token t, set: allowed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>

#include "base/ids.h"
#include "engine/structured/constraint_spec.h"

namespace quire {

// Where one request's output stands. Any exception of these calls ends this request alone.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Clears the bits of tokens that may not come next and never sets one: the caller gives a mask
  // that holds what else the request allows. Words of tokens beyond the vocabulary may be cleared.
  // End tokens stay set exactly where the output may end here. Called each step and row, in time
  // with the device: microseconds, not milliseconds.
  virtual void fill(std::span<std::uint32_t> mask) const = 0;

  // The token comes next. False: it is not allowed here, and nothing has changed. An end token is
  // allowed where fill() leaves it set; after it nothing is.
  virtual bool accept(TokenId token) = 0;

  // Takes back the last num_tokens that were accepted; at most as many as a step has drafts.
  virtual void rollback(int num_tokens) = 0;

  // Nothing but an end token may come. Then an end token is let through whatever min_tokens says.
  virtual bool is_complete() const = 0;
};

// A specification over one model's vocabulary. Immutable: shared by requests and threads.
class CompiledConstraint {
 public:
  virtual ~CompiledConstraint() = default;
  // Of a request that ends with one of end_tokens: they are the model's, without the request's own
  // stop tokens.
  virtual std::unique_ptr<TokenConstraint> start(std::span<const TokenId> end_tokens) const = 0;
  // What it holds, for who keeps several.
  virtual std::size_t memory_bytes() const { return 0; }
};

// Called on worker threads, several at a time. A Failure (invalid_argument: what is wrong with the
// specification) ends the request with its error. Looks at `stop` often enough that a request which
// has gone does not cost a second more.
using CompileConstraint = std::function<std::shared_ptr<const CompiledConstraint>(
    const ConstraintSpec& spec, const std::stop_token& stop)>;

}  // namespace quire
