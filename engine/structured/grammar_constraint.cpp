#include "engine/structured/grammar_constraint.h"

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.h"
#include "engine/structured/compiled_grammar.h"
#include "engine/structured/empty_part.h"
#include "engine/structured/exact_json.h"
#include "engine/structured/thinking_budget.h"
#include "text/tokenizer/tokenizer.h"

namespace quire::structured {
namespace {

GrammarSpec spec_of(const ConstraintSpec& constraint) {
  GrammarSpec spec;
  spec.source = constraint.text;
  switch (constraint.kind) {
    case ConstraintKind::json_object:
      spec.kind = GrammarSpec::Kind::json_object;
      break;
    case ConstraintKind::json_schema:
      spec.kind = GrammarSpec::Kind::json_schema;
      break;
    case ConstraintKind::regex:
      spec.kind = GrammarSpec::Kind::regex;
      break;
    case ConstraintKind::choice:
      spec.kind = GrammarSpec::Kind::choice;
      break;
    case ConstraintKind::grammar:
      spec.kind = GrammarSpec::Kind::ebnf;
      break;
    case ConstraintKind::structural_tag:
      spec.kind = GrammarSpec::Kind::structural_tag;
      break;
  }
  return spec;
}

// What the masks of one request may cost, beyond which it ends: time for every token, and some to
// begin with for what is found out once.
constexpr std::chrono::nanoseconds kTimeForAll = std::chrono::seconds(1);
constexpr std::chrono::milliseconds kTimeForOne(250);
constexpr std::chrono::nanoseconds kTimePerToken = std::chrono::microseconds(500);

// What the constraints of one specification share beside the grammar.
struct Shared {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string place;  // of the specification in the request
};

class Constraint : public TokenConstraint {
 public:
  Constraint(std::shared_ptr<CompiledGrammar> grammar, std::shared_ptr<const ForcedClose> forced,
             std::span<const TokenId> end_tokens, std::shared_ptr<const Shared> shared)
      : words_(grammar->vocabulary()->words()),
        vocabulary_(*grammar->vocabulary()),
        matcher_(std::move(grammar), end_tokens),
        shared_(std::move(shared)) {
    if (forced != nullptr) thinking_.emplace(std::move(forced));
  }

  void limit(const Slice& slice) override { matcher_.limit(slice); }

  void fill(std::span<std::uint32_t> mask) const override {
    in_time([&] {
      matcher_.fill_mask(words_);
      return true;
    });
    if (thinking_) force_close();
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] &= i < words_.size() ? words_[i] : 0;
    spent_ = std::max(std::chrono::nanoseconds(0), spent_ - kTimePerToken);
  }

  bool accept(TokenId token) override {
    if (!in_time([&] { return matcher_.accept(token); })) return false;
    if (thinking_) thinking_->accept(token);
    return true;
  }
  void rollback(int num_tokens) override {
    matcher_.rollback(static_cast<std::size_t>(num_tokens));
    if (thinking_) thinking_->rollback(static_cast<std::size_t>(num_tokens));
  }
  bool is_complete() const override { return matcher_.must_end(); }

  // The last of them may be written together with what follows: that is the model's choice.
  std::vector<TokenId> forced_tokens(int most) override {
    constexpr std::size_t kBytesOfToken = 8;
    const auto count = static_cast<std::size_t>(most);
    std::string bytes;
    in_time([&] {
      bytes = matcher_.forced_bytes(count * kBytesOfToken);
      return true;
    });
    if (bytes.empty()) return {};
    std::vector<TokenId> tokens = shared_->tokenizer->encode(bytes, false);
    if (tokens.size() > 1) tokens.pop_back();
    if (tokens.size() > count) tokens.resize(count);
    std::string_view rest = bytes;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string_view piece = vocabulary_.bytes(tokens[i]);
      const bool fits =
          !piece.empty() && !vocabulary_.is_special(tokens[i]) && rest.starts_with(piece);
      if (!fits) {
        tokens.resize(i);
        break;
      }
      rest.remove_prefix(piece.size());
    }
    return tokens;
  }

 private:
  // What the grammar cannot afford is the request's fault.
  template <class Work>
  bool in_time(Work work) const {
    const auto from = ThreadClock::now();
    bool result = false;
    try {
      result = work();
    } catch (const GrammarFailure& failure) {
      throw Failure(Error{ErrorCode::invalid_argument, failure.what(), shared_->place});
    } catch (const OutOfTime&) {
      spent_ += ThreadClock::now() - from;
      throw;
    }
    spent_ += ThreadClock::now() - from;
    if (spent_ <= kTimeForAll) return result;
    throw Failure(Error{ErrorCode::invalid_argument,
                        "the grammar of the answer takes too long to follow", shared_->place});
  }

  void force_close() const {
    const TokenId token = thinking_->forced();
    if (token < 0) return;
    const std::uint32_t bit = 1u << token % 32;
    std::uint32_t& word = words_[static_cast<std::size_t>(token) / 32];
    const bool allowed = (word & bit) != 0;
    if (!allowed) return;
    std::ranges::fill(words_, 0);
    word = bit;
  }

  mutable std::vector<std::uint32_t>
      words_;                     // fill() is const and finds out more about the grammar
  const Vocabulary& vocabulary_;  // the grammar's
  mutable GrammarMatcher matcher_;
  const std::shared_ptr<const Shared> shared_;
  mutable std::chrono::nanoseconds spent_{0};  // more than the tokens' share
  std::optional<ThinkingBudget> thinking_;
};

class Compiled : public CompiledConstraint {
 public:
  Compiled(std::shared_ptr<CompiledGrammar> grammar, std::shared_ptr<const ForcedClose> forced,
           Shared shared)
      : grammar_(std::move(grammar)),
        forced_(std::move(forced)),
        shared_(std::make_shared<const Shared>(std::move(shared))) {}
  std::unique_ptr<TokenConstraint> start(std::span<const TokenId> end_tokens) const override {
    return std::make_unique<Constraint>(grammar_, forced_, end_tokens, shared_);
  }
  std::size_t memory_bytes() const override { return grammar_->memory_bytes(); }

 private:
  std::shared_ptr<CompiledGrammar> grammar_;
  std::shared_ptr<const ForcedClose> forced_;
  std::shared_ptr<const Shared> shared_;
};

// Here, where nobody waits for it but its request.
void find_first_mask(const std::shared_ptr<CompiledGrammar>& grammar, const Slice& slice) {
  std::vector<std::uint32_t> words(grammar->vocabulary()->words());
  GrammarMatcher matcher(grammar);
  matcher.limit(slice);
  matcher.fill_mask(words);
  matcher.fill_mask(words);  // what is asked for twice is kept
}

// Where a specification that is refused as a whole went wrong, as far as that can be said: of one
// that fits nothing, the part that does not.
std::string place_in(const ConstraintSpec& spec, bool is_empty, const Slice& slice) {
  const bool is_tag = spec.kind == ConstraintKind::structural_tag;
  if (!is_tag && !(is_empty && spec.kind == ConstraintKind::json_schema)) return {};
  boost::system::error_code error;
  constexpr std::size_t kMaxDepth =
      10'000;  // more than is compiled: that it is too deep is said with its place, too
  const auto document = parse_exact(spec.text, kMaxDepth, error);
  if (error) return {};
  std::string place;
  if (is_empty)
    place = is_tag ? empty_part_of_tag(document, slice) : empty_part_of_schema(document, slice);
  return place.empty() && is_tag ? common_place_of_tag(document) : place;
}

class Compiler {
 public:
  explicit Compiler(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  std::shared_ptr<const CompiledConstraint> compile(const ConstraintSpec& spec,
                                                    const Slice& slice) {
    std::call_once(once_, [&] {
      context_.vocabulary = Vocabulary::of(*tokenizer_, {});
      context_.limits.step_time = kTimeForOne;
      context_.warm();
    });
    try {
      auto grammar = CompiledGrammar::compile(spec_of(spec), context_, slice);
      find_first_mask(grammar, slice);
      std::shared_ptr<const ForcedClose> forced;
      if (spec.kind == ConstraintKind::structural_tag) {
        if (auto marks = thought_marks(spec.text)) {
          forced = std::make_shared<const ForcedClose>(*marks, context_.vocabulary);
        }
      }
      return std::make_shared<const Compiled>(std::move(grammar), std::move(forced),
                                              Shared{tokenizer_, place_in(spec, false, {})});
    } catch (const GrammarFailure& failure) {
      const bool is_empty = failure.kind() == GrammarErrorKind::unsatisfiable;
      const std::string place =
          failure.pointer().empty() ? place_in(spec, is_empty, slice) : failure.pointer();
      std::string what = failure.what();
      if (!place.empty()) what += " (at " + place + ")";
      throw Failure(Error{ErrorCode::invalid_argument, std::move(what), place});
    }
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::once_flag once_;
  GrammarContext context_;
};

}  // namespace

CompileConstraint grammar_compiler(std::shared_ptr<const Tokenizer> tokenizer) {
  auto compiler = std::make_shared<Compiler>(std::move(tokenizer));
  return [compiler](const ConstraintSpec& spec, const Slice& slice) {
    return compiler->compile(spec, slice);
  };
}

}  // namespace quire::structured
