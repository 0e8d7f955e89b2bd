#include "tests/engine/scheduler/simulated_model.h"

#include <algorithm>
#include <stdexcept>

namespace quire::test {
namespace {

constexpr int kVocabulary = 40;

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool has_plain_state(const KvSpec& spec) {
  return keeps_state(spec.kind) && spec.num_speculative_blocks == 0;
}

// The first position that a token at `position` reads.
int first_read(const KvSpec& spec, int position) {
  if (keeps_window(spec.kind)) return std::max(0, position - spec.sliding_window + 1);
  if (spec.kind != KvKind::chunked_local) return 0;
  return position / spec.attention_chunk_size * spec.attention_chunk_size;
}

}  // namespace

void PrefixChain::add(TokenId token) {
  value_ = mix(value_ + 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(token));
}

TokenId PrefixChain::next_token() const {
  return kEos + static_cast<TokenId>(mix(value_ ^ 0x5bd1e995u) % kVocabulary);
}

PrefixChain chain_of(const Request& request, int num_tokens) {
  PrefixChain chain(std::hash<std::string>{}(request.cache_salt()));
  for (int i = 0; i < num_tokens; ++i) chain.add(request.tokens()[i]);
  return chain;
}

std::vector<TokenId> answer_to(const Request& request, int max_model_len) {
  PrefixChain chain = chain_of(request, request.num_prompt());
  std::vector<TokenId> answer;
  while (static_cast<int>(answer.size()) < request.sampling().max_tokens &&
         request.num_prompt() + static_cast<int>(answer.size()) < max_model_len) {
    answer.push_back(chain.next_token());
    if (answer.back() == kEos) break;
    chain.add(answer.back());
  }
  return answer;
}

SimulatedModel::SimulatedModel(const KvCacheConfig& config, int max_num_seqs, DraftRule drafts,
                               std::uint64_t seed)
    : config_(config), drafts_(drafts), random_(seed), slots_(max_num_seqs) {
  for (Slot& slot : slots_) slot.tables.resize(config.groups.size());
  for (const GroupConfig& group : config.groups) {
    const int cells = keeps_state(group.spec.kind) ? 1 : group.spec.block_size;
    contents_.emplace_back(static_cast<std::size_t>(config.num_blocks) * cells);
  }
}

std::uint64_t& SimulatedModel::cell(int group, BlockId block, int offset) {
  const KvSpec& spec = config_.groups[group].spec;
  const int cells = keeps_state(spec.kind) ? 1 : spec.block_size;
  return contents_[group].at(static_cast<std::size_t>(block) * cells + offset);
}

StepTokens SimulatedModel::run(const BatchPlan& plan) {
  update_tables(plan);
  std::vector<Feed> feeds;
  num_computed_.clear();
  for (const BatchRow& row : plan.rows) {
    feeds.push_back(feed_of(plan, row));
    extend_chains(slots_[row.slot], *row.request, feeds.back());
    num_computed_.push_back(feeds.back().first);
  }
  // A state is read before it is written; keys are written before they are read.
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const Slot& slot = slots_[plan.rows[i].slot];
    for (std::size_t g = 0; g < config_.groups.size(); ++g) {
      if (!has_plain_state(config_.groups[g].spec)) continue;
      check_state(slot, static_cast<int>(g), feeds[i].first, plan.rows[i].request->id());
    }
  }
  for (std::size_t i = 0; i < feeds.size(); ++i) write(slots_[plan.rows[i].slot], feeds[i]);
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    if (feeds[i].garbage) continue;
    check_reads(slots_[plan.rows[i].slot], feeds[i], plan.rows[i].request->id());
  }

  Output& output = outputs_[next_output_++ % outputs_.size()];
  const int width = 1 + drafts_.num_drafts;
  output.sampled.assign(plan.rows.size() * width, -1);
  output.drafts.assign(plan.rows.size() * width, -1);
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const BatchRow& row = plan.rows[i];
    if (!row.samples) continue;
    Slot& slot = slots_[row.slot];
    const auto sampled = sample(row, slot, feeds[i]);
    std::copy(sampled.begin(), sampled.end(),
              output.sampled.begin() + static_cast<long>(i) * width);
    slot.drafts = propose(slot);
    std::copy(slot.drafts.begin(), slot.drafts.end(),
              output.drafts.begin() + static_cast<long>(i) * width);
  }
  return {output.sampled, width, output.drafts, width};
}

void SimulatedModel::update_tables(const BatchPlan& plan) {
  for (const BatchRow& row : plan.rows) {
    if (!row.is_new) continue;
    Slot& slot = slots_[row.slot];
    for (auto& table : slot.tables) table.clear();
    const auto tokens = row.request->tokens();
    slot.tokens.assign(tokens.begin(), tokens.end());
    slot.chains.clear();
    slot.drafts.clear();
  }
  for (const BlockUpdate& update : plan.block_updates) {
    auto& table = slots_[plan.rows[update.row].slot].tables[update.group];
    const auto ids = plan.ids_of(update);
    table.insert(table.end(), ids.begin(), ids.end());
  }
}

// With drafts in flight the plan counts them all as accepted; the device knows better.
SimulatedModel::Feed SimulatedModel::feed_of(const BatchPlan& plan, const BatchRow& row) {
  Slot& slot = slots_[row.slot];
  if (row.num_pending == 0) {
    const auto tokens = row.request->tokens();
    slot.tokens.assign(tokens.begin(), tokens.end());
  }
  Feed feed;
  feed.num_drafts = row.num_drafts;
  feed.first = row.num_pending > 0 && drafts_.num_drafts > 0
                   ? static_cast<int>(slot.tokens.size()) - 1
                   : row.num_computed;
  feed.garbage = !spoiled_.empty() && reads_spoiled(slot, feed.first);
  const int num_known = row.num_tokens - row.num_drafts;
  for (int i = 0; i < num_known; ++i) feed.tokens.push_back(slot.tokens.at(feed.first + i));
  const auto planned = plan.drafts_of(row);
  for (int i = 0; i < row.num_drafts; ++i) {
    feed.tokens.push_back(planned[i] >= 0 ? planned[i] : slot.drafts.at(i));
  }
  return feed;
}

void SimulatedModel::extend_chains(Slot& slot, const Request& request, const Feed& feed) {
  const std::size_t first = std::min<std::size_t>(slot.chains.size(), feed.first);
  slot.chains.resize(first);
  PrefixChain chain = first > 0 ? slot.chains.back() : chain_of(request, 0);
  for (int i = static_cast<int>(first); i < feed.first; ++i) {
    chain.add(slot.tokens.at(i));
    slot.chains.push_back(chain);
  }
  for (const TokenId token : feed.tokens) {
    chain.add(token);
    slot.chains.push_back(chain);
  }
}

void SimulatedModel::write(const Slot& slot, const Feed& feed) {
  const std::uint64_t noise = feed.garbage ? 1 : 0;
  const int end = feed.first + static_cast<int>(feed.tokens.size());
  for (std::size_t g = 0; g < config_.groups.size(); ++g) {
    const KvSpec& spec = config_.groups[g].spec;
    const int group = static_cast<int>(g);
    if (keeps_state(spec.kind)) {
      if (!has_plain_state(spec)) continue;
      // A step leaves one state, whatever boundaries it passed.
      cell(group, slot.tables[g].at((end - 1) / spec.block_size), 0) = slot.chains[end - 1].value();
      continue;
    }
    for (int position = feed.first; position < end; ++position) {
      const BlockId block = slot.tables[g].at(position / spec.block_size);
      if (block == kNullBlock) throw std::runtime_error("a token is written to the null block");
      cell(group, block, position % spec.block_size) = slot.chains[position].value() + noise;
    }
  }
}

void SimulatedModel::check_state(const Slot& slot, int group, int first, RequestId id) {
  if (first == 0) return;
  const int block_size = config_.groups[group].spec.block_size;
  const BlockId block = slot.tables[group].at((first - 1) / block_size);
  if (cell(group, block, 0) == slot.chains[first - 1].value()) return;
  throw std::runtime_error("request " + std::to_string(id.value) + " reads a wrong state before " +
                           std::to_string(first) + " in group " + std::to_string(group));
}

void SimulatedModel::check_reads(const Slot& slot, const Feed& feed, RequestId id) {
  const int end = feed.first + static_cast<int>(feed.tokens.size());
  for (std::size_t g = 0; g < config_.groups.size(); ++g) {
    const KvSpec& spec = config_.groups[g].spec;
    if (keeps_state(spec.kind)) continue;
    for (int position = first_read(spec, feed.first); position < end; ++position) {
      const BlockId block = slot.tables[g].at(position / spec.block_size);
      if (cell(static_cast<int>(g), block, position % spec.block_size) ==
          slot.chains[position].value()) {
        continue;
      }
      throw std::runtime_error("request " + std::to_string(id.value) + " at " +
                               std::to_string(feed.first) + " reads a wrong token " +
                               std::to_string(position) + " in group " + std::to_string(g));
    }
  }
}

// Accepts drafts as long as they are what the model says, and adds one token.
std::vector<TokenId> SimulatedModel::sample(const BatchRow& row, Slot& slot, const Feed& feed) {
  const int last = feed.first + static_cast<int>(feed.tokens.size()) - 1;
  std::vector<TokenId> sampled;
  for (int i = 0; i <= row.num_drafts; ++i) {
    const TokenId token =
        feed.garbage ? kEos + kVocabulary + 1 : slot.chains[last - row.num_drafts + i].next_token();
    sampled.push_back(token);
    if (i < row.num_drafts && feed.tokens[feed.tokens.size() - row.num_drafts + i] != token) break;
  }
  slot.tokens.resize(last - row.num_drafts + 1);
  slot.tokens.insert(slot.tokens.end(), sampled.begin(), sampled.end());
  return sampled;
}

std::vector<TokenId> SimulatedModel::propose(const Slot& slot) {
  std::vector<TokenId> drafts;
  if (drafts_.num_drafts == 0) return drafts;
  PrefixChain chain = slot.chains.at(slot.tokens.size() - 2);
  chain.add(slot.tokens.back());
  std::uniform_real_distribution<double> chance;
  for (int i = 0; i < drafts_.num_drafts; ++i) {
    drafts.push_back(chance(random_) < drafts_.accuracy ? chain.next_token() : kEos + kVocabulary);
    chain.add(drafts.back());
  }
  return drafts;
}

void SimulatedModel::propose_again(const BatchPlan& plan, std::span<const int> num_drafts) {
  std::vector<std::vector<TokenId>> kept(slots_.size());
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    check_draft_slots(slots_[row.slot], num_drafts[r], row.request->id());
    kept[row.slot] = slots_[row.slot].drafts;
    kept[row.slot].resize(num_drafts[r]);
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].drafts = std::move(kept[i]);
}

// A pass over a draft keeps its keys and values; the last one goes through none.
void SimulatedModel::check_draft_slots(const Slot& slot, int num_drafts, RequestId id) const {
  const int first = static_cast<int>(slot.tokens.size()) - 1;
  for (std::size_t g = 0; g < config_.groups.size(); ++g) {
    const KvSpec& spec = config_.groups[g].spec;
    const auto& table = slot.tables[g];
    for (int position = first; position < first + num_drafts - 1; ++position) {
      const auto index = static_cast<std::size_t>(position / spec.block_size);
      if (index < table.size() && table[index] != kNullBlock) continue;
      throw std::runtime_error("request " + std::to_string(id.value) +
                               " has no slot for what is drafted at " + std::to_string(position));
    }
  }
}

void SimulatedModel::store(int group, BlockId block, int offset, const PrefixChain& chain) {
  cell(group, block, offset) = chain.value();
}

bool SimulatedModel::reads_spoiled(const Slot& slot, int position) const {
  for (std::size_t g = 0; g < config_.groups.size(); ++g) {
    const KvSpec& spec = config_.groups[g].spec;
    const auto& table = slot.tables[g];
    for (std::size_t i = first_read(spec, position) / spec.block_size; i < table.size(); ++i) {
      if (spoiled_.contains(table[i])) return true;
    }
  }
  return false;
}

}  // namespace quire::test
