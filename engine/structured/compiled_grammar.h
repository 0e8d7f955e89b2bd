#pragma once
// A specification compiled to an automaton over bytes, and the matcher that follows one text with
// it. Compile on any thread but the engine's. A compiled grammar is shared by all requests that
// asked for it; what they find out about its states (masks, successors) serves the next one.
// Thread-safe.

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "engine/structured/budget.h"
#include "engine/structured/token_masks.h"
#include "engine/structured/vocabulary.h"

namespace quire::structured {

struct GrammarSpec {
  enum class Kind : std::uint8_t { json_schema, json_object, regex, choice, ebnf, structural_tag };
  Kind kind = Kind::json_object;
  // JSON text of a schema, of a list of choices or of a structural tag; else the text itself.
  std::string source;
  bool any_whitespace = true;  // false: no white space between the tokens of JSON
  std::optional<std::string> whitespace_pattern;  // a regular expression in place of white space

  bool operator==(const GrammarSpec&) const = default;
};

// "json_schema", "regex", …; empty for a name that is none.
std::optional<GrammarSpec::Kind> grammar_kind(std::string_view name);

// What the grammars of one model share. Masks need a vocabulary; texts do not.
struct GrammarContext {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::shared_ptr<LexemeMaskCache> masks = std::make_shared<LexemeMaskCache>();
  GrammarLimits limits;

  // Finds the masks inside of strings, which every schema shares, before the first request does.
  void warm() const;
};

class CompiledGrammar {
 public:
  // Throws GrammarFailure, or OutOfTime.
  static std::shared_ptr<CompiledGrammar> compile(const GrammarSpec& spec, GrammarContext context,
                                                  const Slice& slice = {});
  ~CompiledGrammar();

  const std::shared_ptr<const Vocabulary>& vocabulary() const { return context_.vocabulary; }
  std::size_t memory_bytes() const;

 private:
  friend class GrammarMatcher;
  struct Parser;
  explicit CompiledGrammar(GrammarContext context);
  // Starts the parser's tables afresh when nobody uses them and they have grown. Under the lock.
  void enter();
  void leave() { --matchers_; }

  GrammarContext context_;
  mutable std::timed_mutex mutex_;
  std::atomic<int> matchers_ = 0;  // grows under the lock only
  std::unique_ptr<Parser> parser_;
};

// One text of a grammar. Used by one thread at a time; not copyable.
class GrammarMatcher {
 public:
  // The text may end with the vocabulary's end tokens, or with these.
  explicit GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar);
  GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar, std::span<const TokenId> end_tokens);
  ~GrammarMatcher();
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;

  // Of each call from here on; those that would take longer throw OutOfTime.
  void limit(Slice slice) { slice_ = std::move(slice); }

  // False, and nothing changes, when the grammar does not go on like this. An end token is taken
  // exactly where the text is complete; after it nothing is.
  // All of these throw GrammarFailure{limit} when the grammar turns out to be too costly.
  bool accept(TokenId token);
  bool accept_bytes(std::string_view bytes);
  // Takes the last accepted tokens back.
  void rollback(std::size_t tokens);

  // The text so far is whole, and may end here.
  bool complete() const;
  // It must end here: nothing but an end token may come.
  bool must_end() const;
  // An end token was accepted.
  bool finished() const { return finished_; }
  // vocabulary()->words() words, one bit per token id, 1: allowed. All are written.
  void fill_mask(std::span<std::uint32_t> words);
  // Bytes that must come next whatever is sampled; empty where there is a choice or the text may
  // end.
  std::string forced_bytes(std::size_t max = 256);

 private:
  bool is_end(TokenId token) const;
  // The grammar's parser for one call. The first one finds out where texts start.
  std::unique_lock<std::timed_mutex> lock() const;

  std::shared_ptr<CompiledGrammar> grammar_;
  std::vector<TokenId> end_tokens_;
  Slice slice_;
  mutable bool is_started_ = false;
  mutable ParserState state_ = kDead;
  std::vector<ParserState> history_;  // before each accepted token
  bool finished_ = false;
};

}  // namespace quire::structured
