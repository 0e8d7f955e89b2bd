#include "engine/sampling/token_masks.h"

#include <algorithm>
#include <cassert>

#include "engine/structured/mask_queue.h"

namespace quire {
namespace {

std::size_t num_words(int vocab_size) { return (static_cast<std::size_t>(vocab_size) + 31) / 32; }

void clear(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token) / 32] &= ~(1u << (token % 32));
}

// The token at `index` from the end of output and drafts, as one text; 0 is the last.
TokenId from_end(std::span<const TokenId> output, std::span<const TokenId> drafts,
                 std::size_t index) {
  if (index < drafts.size()) return drafts[drafts.size() - 1 - index];
  return output[output.size() - 1 - (index - drafts.size())];
}

// All of the word but its last token stands at the end.
bool is_begun(std::span<const TokenId> word, std::span<const TokenId> output,
              std::span<const TokenId> drafts) {
  const std::size_t begun = word.size() - 1;
  if (begun > output.size() + drafts.size()) return false;
  for (std::size_t i = 0; i < begun; ++i) {
    if (word[begun - 1 - i] != from_end(output, drafts, i)) return false;
  }
  return true;
}

// What the request has forbidden all tokens with.
Error nothing_left(const SamplingParams& params) {
  std::vector<std::string> members;
  if (!params.allowed_tokens.empty()) members.emplace_back("allowed_token_ids");
  if (!params.bad_words.empty()) members.emplace_back("bad_words");
  const std::string field = members.empty() ? "" : members.front();
  if (params.constraint) members.emplace_back("what the answer must be like");
  std::string names = members.front();
  for (std::size_t i = 1; i < members.size(); ++i) {
    names += (i + 1 < members.size() ? ", " : " and ") + members[i];
  }
  return {ErrorCode::invalid_argument,
          "no token of the model is left to go on with: all are excluded by " + names, field};
}

}  // namespace

TokenMasks::TokenMasks(Device& device, int max_slots, int max_rows, int vocab_size)
    : vocab_size_(vocab_size),
      always_(max_slots),
      pack_(device, MemoryPurpose::sampling, 0,
            StagedPack::bytes_of<std::int32_t>(max_rows) +
                StagedPack::bytes_of<std::uint32_t>(max_rows * num_words(vocab_size))) {}

void TokenMasks::begin_step() {
  rows_.clear();
  failures_.clear();
  late_.clear();
  needs_latest_ = false;
}

void TokenMasks::add_row(int row, int slot, const Request& request,
                         std::span<const TokenId> drafts) {
  rows_.push_back({row, slot, &request, drafts});
  const SamplingParams& params = request.sampling();
  needs_latest_ |= params.constraint.has_value() ||
                   std::ranges::any_of(params.bad_words, [](const TokenWord& word) {
                     return word.tokens.size() > 1;
                   });
}

void TokenMasks::apply(Ops& ops, TensorView logits, StreamRef stream) {
  pack_.begin();
  const auto ids = pack_.add<std::int32_t>(rows_.size());
  const std::size_t width = num_words(vocab_size_);
  const auto words = pack_.add<std::uint32_t>(rows_.size() * width);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    ids.host[i] = rows_[i].row;
    fill(rows_[i], words.host.subspan(i * width, width));
  }
  pack_.upload(stream);
  const auto num_rows = static_cast<std::int64_t>(rows_.size());
  ops.mask_logits(logits,
                  {.words = words.device.reshape({num_rows, static_cast<std::int64_t>(width)}),
                   .rows = ids.device},
                  stream);
}

// Made once for a request: its lists may be as long as the vocabulary.
std::span<const std::uint32_t> TokenMasks::always(int slot, const SamplingParams& params) {
  std::vector<std::uint32_t>& mask = always_[slot];
  if (!mask.empty()) return mask;
  mask.assign(num_words(vocab_size_), params.allowed_tokens.empty() ? ~0u : 0u);
  for (const TokenId token : params.allowed_tokens) {
    mask[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
  }
  for (const TokenWord& word : params.bad_words) {
    if (word.tokens.size() == 1) clear(mask, word.tokens[0]);
  }
  if (const int rest = vocab_size_ % 32; rest != 0) mask.back() &= (1u << rest) - 1;
  return mask;
}

void TokenMasks::fill(const Row& row, Words mask) {
  const SamplingParams& params = row.request->sampling();
  std::ranges::copy(always(row.slot, params), mask.begin());
  for (const auto& [word] : params.bad_words) {
    if (word.size() > 1 && is_begun(word, row.request->output(), row.drafts))
      clear(mask, word.back());
  }
  if (is_late(row)) {
    late_.push_back({row.request->id(), row.slot});
  } else if (row.request->constraint != nullptr) {
    constrain(row, mask);
  }
  if (std::ranges::any_of(mask, [](std::uint32_t word) { return word != 0; })) return;
  std::ranges::fill(mask, ~0u);
  if (row.drafts.empty()) fail(row);
}

bool TokenMasks::is_late(const Row& row) const {
  return row.request->constraint != nullptr && !row.request->constraint->is_ready();
}

// Behind a draft that the constraint refuses nothing will be accepted: any mask does.
void TokenMasks::constrain(const Row& row, Words mask) {
  const NextMasks& next = row.request->constraint->next();
  const auto index = static_cast<int>(row.drafts.size());
  assert(row.drafts.size() <= next.drafts.size() &&
         std::ranges::equal(row.drafts, std::span(next.drafts).first(row.drafts.size())));
  if (index >= next.count) return;
  const auto words = next.mask(index, mask.size());
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] &= words[i];
  if (!next.is_complete[static_cast<std::size_t>(index)]) delay_end(row, mask);
}

// Where nothing but the end is left it comes, whatever min_tokens says.
void TokenMasks::delay_end(const Row& row, Words mask) const {
  const SamplingParams& params = row.request->sampling();
  const std::size_t num_output = row.request->output().size() + row.drafts.size();
  if (num_output >= static_cast<std::size_t>(params.min_tokens)) return;
  const auto clear_all = [&](std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) {
      if (token >= 0 && token < vocab_size_) clear(mask, token);
    }
  };
  clear_all(params.stop_token_ids);
  clear_all(row.request->eos_token_ids());
}

// Its grammar and its own lists exclude each other.
void TokenMasks::fail(const Row& row) {
  failures_.push_back({row.request->id(), nothing_left(row.request->sampling())});
}

}  // namespace quire
