#pragma once
// The seam between the step and whatever decides which tokens may come next. The life of a
// constraint:
//
//   1. A request arrives with a ConstraintSpec. The engine hands it to its CompileConstraint on a
//      worker thread; meanwhile the request waits (RequestState::waiting_for_grammar) and nobody
//      else does. Equal specifications that are in use are compiled once.
//   2. The engine thread calls CompiledConstraint::start() and gives what it gets to its MaskQueue
//      (mask_queue.h). From then on one thread at a time works with it, the engine's or another.
//   3. Each token that the request takes goes through accept(), in order; then fill() says what may
//      come next. A request whose mask is not ready takes no part in a step. The masks of a step go
//      to the device in one copy and forbid tokens there (Ops::mask_logits) before bias, penalties
//      and the draw. A request that is preempted keeps its constraint and its tokens.
//   4. Drafts are looked at ahead: accept() for each, fill() in between, then rollback() of all.
//
// A mask is u32 words over the vocabulary: bit t % 32 of word t / 32 is token t, set: allowed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/structured/constraint_spec.h"
#include "engine/structured/slice.h"

namespace quire {

// Where one request's output stands. Any exception of these calls ends this request alone, but for
// OutOfTime (slice.h): then the call is made again, and nothing has changed.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // What each call may take from here on.
  virtual void limit(const Slice&) {}

  // Clears the bits of tokens that may not come next and never sets one: the caller gives a mask
  // that holds what else the request allows. Words of tokens beyond the vocabulary may be cleared.
  // End tokens stay set exactly where the output may end here.
  virtual void fill(std::span<std::uint32_t> mask) const = 0;

  // The token comes next. False: it is not allowed here, and nothing has changed. An end token is
  // allowed where fill() leaves it set; after it nothing is.
  virtual bool accept(TokenId token) = 0;

  // Takes back the last num_tokens that were accepted; at most as many as a step has drafts.
  virtual void rollback(int num_tokens) = 0;

  // Nothing but an end token may come. Then an end token is let through whatever min_tokens says.
  virtual bool is_complete() const = 0;

  // Tokens that the output goes on with if it is written as usual, where there is no choice but how
  // to write it; at most this many. What is drawn may differ in that.
  virtual std::vector<TokenId> forced_tokens(int /*most*/) { return {}; }
};

// A specification over one model's vocabulary. Immutable: shared by requests and threads.
class CompiledConstraint {
 public:
  virtual ~CompiledConstraint() = default;
  // Of a request that ends with one of end_tokens: they are the model's, without the request's own
  // stop tokens. Waits for nobody.
  virtual std::unique_ptr<TokenConstraint> start(std::span<const TokenId> end_tokens) const = 0;
  // What it holds, for who keeps several.
  virtual std::size_t memory_bytes() const { return 0; }
};

// Called on worker threads, several at a time. A Failure (invalid_argument: what is wrong with the
// specification) ends the request with its error. Throws OutOfTime where the slice does not
// suffice; looks at its `stop` often enough that a request which has gone does not cost a second
// more.
using CompileConstraint = std::function<std::shared_ptr<const CompiledConstraint>(
    const ConstraintSpec& spec, const Slice& slice)>;

}  // namespace quire
