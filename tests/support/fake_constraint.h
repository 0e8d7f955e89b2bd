#pragma once
// Constraints for tests of the seam: the output is one of a few token sequences, then an end token.

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/structured/token_constraint.h"

namespace quire::test {

using TokenSequences = std::vector<std::vector<TokenId>>;

class FakeConstraint final : public TokenConstraint {
 public:
  FakeConstraint(TokenSequences choices, std::vector<TokenId> ends)
      : choices_(std::move(choices)), ends_(std::move(ends)) {}

  void fill(std::span<std::uint32_t> mask) const override {
    const std::set<TokenId> next = this->next();
    for (std::size_t word = 0; word < mask.size(); ++word) {
      std::uint32_t allowed = 0;
      for (std::uint32_t bit = 0; bit < 32; ++bit) {
        const auto token = static_cast<TokenId>(word * 32 + bit);
        if (next.contains(token)) allowed |= 1u << bit;
      }
      mask[word] &= allowed;
    }
  }
  bool accept(TokenId token) override {
    if (!next().contains(token)) return false;
    output_.push_back(token);
    return true;
  }
  void rollback(int num_tokens) override {
    output_.resize(output_.size() - static_cast<std::size_t>(num_tokens));
  }
  bool is_complete() const override {
    return std::ranges::all_of(next(), [this](TokenId token) { return is_end(token); });
  }

 private:
  bool is_end(TokenId token) const { return std::ranges::count(ends_, token) > 0; }
  std::set<TokenId> next() const {
    std::set<TokenId> next;
    if (!output_.empty() && is_end(output_.back())) return next;
    for (const auto& choice : choices_) {
      if (output_.size() > choice.size()) continue;
      if (!std::equal(output_.begin(), output_.end(), choice.begin())) continue;
      if (output_.size() == choice.size()) next.insert(ends_.begin(), ends_.end());
      if (output_.size() < choice.size()) next.insert(choice[output_.size()]);
    }
    return next;
  }

  const TokenSequences choices_;
  const std::vector<TokenId> ends_;
  std::vector<TokenId> output_;
};

class FakeCompiled final : public CompiledConstraint {
 public:
  explicit FakeCompiled(TokenSequences choices) : choices_(std::move(choices)) {}
  std::unique_ptr<TokenConstraint> start(std::span<const TokenId> end_tokens) const override {
    return std::make_unique<FakeConstraint>(
        choices_, std::vector<TokenId>(end_tokens.begin(), end_tokens.end()));
  }

 private:
  const TokenSequences choices_;
};

// "5 6 7|5 8": the sequences, apart by bars.
inline std::shared_ptr<const CompiledConstraint> compile_fake(const ConstraintSpec& spec,
                                                              const Slice&) {
  if (spec.text == "wrong") {
    throw Failure({ErrorCode::invalid_argument, "the grammar is wrong", "/structured_outputs"});
  }
  TokenSequences choices(1);
  std::string number;
  for (const char c : spec.text + "|") {
    if (c >= '0' && c <= '9') {
      number += c;
      continue;
    }
    if (!number.empty()) choices.back().push_back(std::stoi(number));
    number.clear();
    if (c == '|') choices.emplace_back();
  }
  choices.pop_back();
  return std::make_shared<FakeCompiled>(choices);
}

}  // namespace quire::test
