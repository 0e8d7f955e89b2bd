#pragma once
// How many tokens a thought may have: at the limit its closing mark is all that may come. One
// Forced per specification, shared; one ThinkingBudget per request, engine thread only.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/structured/vocabulary.h"

namespace quire::structured {

struct ThoughtMarks {
  int budget = 0;                  // tokens between the marks
  std::vector<std::string> open;   // any of these begins a thought
  std::vector<std::string> close;  // any of these ends it; the first is what is forced
  bool starts_inside = false;      // the prompt has opened it
  bool several = false;            // thoughts may come anywhere; else one, at the beginning
};

// {"budget", "open", "close", "inside", "several"}: "thinking" of a structural tag's document. Null
// where it has none. Throws GrammarFailure.
std::unique_ptr<const ThoughtMarks> thought_marks(const std::string& structural_tag);

class ForcedClose {
 public:
  ForcedClose(ThoughtMarks marks, std::shared_ptr<const Vocabulary> vocabulary);

  const ThoughtMarks& marks() const { return marks_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // The token that goes on with the closing mark, `written` bytes of which are there; -1: none.
  TokenId next(std::size_t written) const { return next_[written]; }

 private:
  ThoughtMarks marks_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<TokenId> next_;
};

class ThinkingBudget {
 public:
  explicit ThinkingBudget(std::shared_ptr<const ForcedClose> forced);

  void accept(TokenId token);
  void rollback(std::size_t tokens);
  // The one token that may come next; -1: any.
  TokenId forced() const;

 private:
  enum class Where : std::uint8_t { before, inside, after };
  struct State {
    Where where = Where::before;
    int tokens = 0;    // of thought
    std::string tail;  // what may be the beginning of a mark
  };
  void read(State& state, std::string_view text) const;

  std::shared_ptr<const ForcedClose> forced_;
  State state_;
  std::vector<State> history_;  // before each accepted token
};

}  // namespace quire::structured
