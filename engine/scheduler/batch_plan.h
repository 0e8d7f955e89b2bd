#pragma once
// What one step runs. The scheduler fills a plan, the runner executes it, Scheduler::commit takes
// it back; plans are reused, so a steady step allocates nothing. Engine thread only.

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/request/request.h"

namespace quire {

// A draft that is still being made when its step is planned: the device has it by then.
inline constexpr TokenId kUnknownDraft = -1;

// One request in one step. It feeds tokens [num_computed, num_computed + num_tokens): those the
// request knows, then num_pending that the step in flight is sampling (they stay on the device; its
// row of the same slot has them), and last num_drafts proposals.
struct BatchRow {
  const Request* request = nullptr;  // valid until this plan is committed
  std::int32_t slot = 0;             // the request's own, in [0, max_num_seqs), while it runs
  // Tokens whose KV is there before this step. Behind drafts that are not verified yet, as if all of
  // them held: the commit of the step before puts it right (Scheduler::commit).
  std::int32_t num_computed = 0;
  std::int32_t num_tokens = 0;       // to run now
  std::int32_t num_pending = 0;      // of those, not known on the host yet
  std::int32_t num_drafts = 0;       // of those, proposals to verify
  std::int32_t first_draft = 0;      // in BatchPlan::drafts
  // The slot is new to this request (just admitted, or resumed after preemption): what the runner
  // had there is void, and this plan's block updates are the request's whole table.
  bool is_new = false;
  bool samples = false;  // reaches the end of what is known: the step makes a token (or 1 + drafts)
};

// Blocks to append to a row's table of one group. 0 is the null block, out of a window. In a group
// of recurrent states the block of position p holds the state after p: a step reads that of
// num_computed − 1 and writes that of its last token.
struct BlockUpdate {
  std::int32_t row = 0;
  std::int32_t group = 0;
  std::int32_t first = 0;  // in BatchPlan::block_ids
  std::int32_t count = 0;
};

// Rows that begin with the same blocks of every group that keeps all tokens.
struct SharedPrefix {
  std::int32_t num_tokens = 0;  // a multiple of kSharedKeys; each row had as many before this step
  std::int32_t first_row = 0;   // in BatchPlan::shared_rows
  std::int32_t num_rows = 0;
};
inline constexpr std::size_t kMostPrefixes = 8;  // of a step

// What a bound on the time from token to token left of the prompts in a step (chunk_pacer.h).
enum class ChunkChoice : std::uint8_t {
  free,   // nothing to decide: no bound, no prompts, or nobody who decodes
  whole,  // all that was wanted, or that the step has room for anyway
  cut,    // what fits the bound
  least,  // more than fits, so that prompts go on
};

struct BatchPlan {
  std::uint64_t step = 0;
  std::vector<BatchRow> rows;  // in scheduling order
  int num_tokens = 0;          // over all rows
  ChunkChoice chunk = ChunkChoice::free;

  std::vector<BlockUpdate> block_updates;  // by row, then group
  std::vector<BlockId> block_ids;
  std::vector<TokenId> drafts;  // kUnknownDraft: as the runner proposed it last for this slot

  std::vector<RequestId> preempted;  // lost their blocks while this plan was made
  std::vector<RequestId> finished;   // since the plan before
  std::vector<BlockId> zero_blocks;  // to be zeroed first: models with recurrent states need it
  std::vector<SharedPrefix> shared_prefixes;  // no row is in two
  std::vector<std::int32_t> shared_rows;

  bool empty() const { return rows.empty(); }
  std::span<const BlockId> ids_of(const BlockUpdate& update) const {
    return std::span(block_ids).subspan(update.first, update.count);
  }
  std::span<const std::int32_t> rows_of(const SharedPrefix& prefix) const {
    return std::span(shared_rows).subspan(prefix.first_row, prefix.num_rows);
  }
  std::span<const TokenId> drafts_of(const BatchRow& row) const {
    return std::span(drafts).subspan(row.first_draft, row.num_drafts);
  }
};

// What the runner gives back for one plan.
struct StepTokens {
  std::span<const TokenId> sampled;  // [rows, width]; −1 pads, and fills rows that do not sample
  int width = 1;                     // 1 + most drafts
  // [rows, draft_width], −1 pads: proposals for the next step.
  std::span<const TokenId> drafts = {};
  int draft_width = 0;
};

// What the connector's data plane did meanwhile.
struct TransferNews {
  std::span<const RequestId> received = {};      // loads that ended, well or not
  std::span<const RequestId> sent = {};          // finished requests whose blocks were fetched
  std::span<const BlockId> invalid_blocks = {};  // loads into these failed
};

}  // namespace quire
