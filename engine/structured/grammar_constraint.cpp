#include "engine/structured/grammar_constraint.h"

#include <mutex>
#include <vector>

#include "base/error.h"
#include "engine/structured/compiled_grammar.h"
#include "text/tokenizer/tokenizer.h"

namespace quire::structured {
namespace {

GrammarSpec spec_of(const ConstraintSpec& constraint) {
  GrammarSpec spec;
  spec.source = constraint.text;
  switch (constraint.kind) {
    case ConstraintKind::json_object: spec.kind = GrammarSpec::Kind::json_object; break;
    case ConstraintKind::json_schema: spec.kind = GrammarSpec::Kind::json_schema; break;
    case ConstraintKind::regex: spec.kind = GrammarSpec::Kind::regex; break;
    case ConstraintKind::choice: spec.kind = GrammarSpec::Kind::choice; break;
    case ConstraintKind::grammar: spec.kind = GrammarSpec::Kind::ebnf; break;
    case ConstraintKind::structural_tag: spec.kind = GrammarSpec::Kind::structural_tag; break;
  }
  return spec;
}

class Constraint : public TokenConstraint {
 public:
  Constraint(std::shared_ptr<CompiledGrammar> grammar, std::span<const TokenId> end_tokens)
      : words_(grammar->vocabulary()->words()), matcher_(std::move(grammar), end_tokens) {}

  void fill(std::span<std::uint32_t> mask) const override {
    matcher_.fill_mask(words_);
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] &= i < words_.size() ? words_[i] : 0;
  }
  bool accept(TokenId token) override { return matcher_.accept(token); }
  void rollback(int num_tokens) override { matcher_.rollback(static_cast<std::size_t>(num_tokens)); }
  bool is_complete() const override { return matcher_.must_end(); }

 private:
  mutable std::vector<std::uint32_t> words_;  // fill() is const and finds out more about the grammar
  mutable GrammarMatcher matcher_;
};

class Compiled : public CompiledConstraint {
 public:
  explicit Compiled(std::shared_ptr<CompiledGrammar> grammar) : grammar_(std::move(grammar)) {}
  std::unique_ptr<TokenConstraint> start(std::span<const TokenId> end_tokens) const override {
    return std::make_unique<Constraint>(grammar_, end_tokens);
  }

 private:
  std::shared_ptr<CompiledGrammar> grammar_;
};

class Compiler {
 public:
  explicit Compiler(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::shared_ptr<const CompiledConstraint> compile(const ConstraintSpec& spec,
                                                    const std::stop_token& stop) {
    std::call_once(once_, [&] {
      context_.vocabulary = Vocabulary::of(*tokenizer_, {});
      context_.warm();
    });
    try {
      return std::make_shared<const Compiled>(CompiledGrammar::compile(spec_of(spec), context_, stop));
    } catch (const GrammarFailure& failure) {
      std::string what = failure.what();
      if (!failure.pointer().empty()) what += " (at " + failure.pointer() + ")";
      throw Failure(Error{ErrorCode::invalid_argument, std::move(what), failure.pointer()});
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
  return [compiler](const ConstraintSpec& spec, const std::stop_token& stop) {
    return compiler->compile(spec, stop);
  };
}

}  // namespace quire::structured
