#pragma once
// A device that computes nothing and remembers everything: what each slot of each block holds is a
// number that stands for the whole prefix. It keeps block tables from the plans alone, as a runner
// does, writes where a step writes, and checks that all a step reads is what an undisturbed run of
// the request would have there.

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/kv_cache/kv_cache_manager.h"
#include "engine/scheduler/batch_plan.h"

namespace quire::test {

inline constexpr TokenId kEos = 1;

// Stands for tokens [0, position] under one salt.
class PrefixChain {
 public:
  explicit PrefixChain(std::uint64_t seed = 0) : value_(seed) {}
  void add(TokenId token);
  std::uint64_t value() const { return value_; }
  TokenId next_token() const;  // what the model says after this prefix

 private:
  std::uint64_t value_;
};

PrefixChain chain_of(const Request& request, int num_tokens);
// What the model answers to a prompt, run alone and undisturbed.
std::vector<TokenId> answer_to(const Request& request, int max_model_len);

struct DraftRule {
  int num_drafts = 0;
  double accuracy = 0.6;  // of one draft
};

class SimulatedModel {
 public:
  SimulatedModel(const KvCacheConfig& config, int max_num_seqs, DraftRule drafts,
                 std::uint64_t seed);

  // Runs the plan; valid until the plan after the next. Throws on a wrong read.
  StepTokens run(const BatchPlan& plan);

  // Of the latest plan's rows: how many tokens really were computed before them.
  std::span<const int> num_computed() const { return num_computed_; }
  // Behind the latest plan so many are proposed, by row, and no others are kept. Throws where there
  // are no slots for all but the last of a row.
  void propose_again(const BatchPlan& plan, std::span<const int> num_drafts);

  // A connector brought this token.
  void store(int group, BlockId block, int offset, const PrefixChain& chain);

  // The block's load failed: until the scheduler knows, who has it reads and writes garbage.
  void spoil(BlockId block) { spoiled_.insert(block); }
  void spoils_reported() { spoiled_.clear(); }

 private:
  struct Slot {
    std::vector<std::vector<BlockId>> tables;  // by group
    std::vector<TokenId> tokens;               // all that the device knows
    std::vector<PrefixChain> chains;           // by position
    std::vector<TokenId> drafts;               // its own proposals, with async scheduling
  };
  struct Feed {  // what a row computes
    int first = 0;
    std::vector<TokenId> tokens;
    int num_drafts = 0;
    bool garbage = false;  // it reads a block whose load failed
  };
  struct Output {
    std::vector<TokenId> sampled, drafts;
  };

  void update_tables(const BatchPlan& plan);
  Feed feed_of(const BatchPlan& plan, const BatchRow& row);
  void extend_chains(Slot& slot, const Request& request, const Feed& feed);
  bool reads_spoiled(const Slot& slot, int position) const;
  void write(const Slot& slot, const Feed& feed);
  void check_reads(const Slot& slot, const Feed& feed, RequestId id);
  void check_state(const Slot& slot, int group, int first, RequestId id);
  std::uint64_t& cell(int group, BlockId block, int offset);
  std::vector<TokenId> sample(const BatchRow& row, Slot& slot, const Feed& feed);
  std::vector<TokenId> propose(const Slot& slot);
  void check_draft_slots(const Slot& slot, int num_drafts, RequestId id) const;

  KvCacheConfig config_;
  DraftRule drafts_;
  std::mt19937_64 random_;
  std::vector<Slot> slots_;
  std::vector<std::vector<std::uint64_t>> contents_;  // by group: [num_blocks, block_size]
  std::vector<Output> outputs_{2};
  std::vector<int> num_computed_;
  int next_output_ = 0;
  std::set<BlockId> spoiled_;
};

}  // namespace quire::test
