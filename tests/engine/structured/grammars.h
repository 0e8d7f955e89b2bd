#pragma once
// Grammars for tests, in one line each.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/structured/compiled_grammar.h"

namespace quire::structured {

inline std::shared_ptr<CompiledGrammar> grammar(GrammarSpec::Kind kind, std::string source,
                                                GrammarContext context = {}) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.source = std::move(source);
  return CompiledGrammar::compile(spec, std::move(context));
}

inline std::shared_ptr<CompiledGrammar> schema(std::string source, GrammarContext context = {}) {
  return grammar(GrammarSpec::Kind::json_schema, std::move(source), std::move(context));
}
inline std::shared_ptr<CompiledGrammar> regex(std::string source, GrammarContext context = {}) {
  return grammar(GrammarSpec::Kind::regex, std::move(source), std::move(context));
}
inline std::shared_ptr<CompiledGrammar> ebnf(std::string source, GrammarContext context = {}) {
  return grammar(GrammarSpec::Kind::ebnf, std::move(source), std::move(context));
}

inline bool accepts(const std::shared_ptr<CompiledGrammar>& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  return matcher.accept_bytes(text) && matcher.complete();
}
inline bool continues(const std::shared_ptr<CompiledGrammar>& grammar, std::string_view text) {
  return GrammarMatcher(grammar).accept_bytes(text);
}

// "kind pointer" of the refusal; empty: taken.
inline std::string refusal(GrammarSpec::Kind kind, const std::string& source,
                           GrammarContext context = {}) {
  try {
    grammar(kind, source, std::move(context));
    return "";
  } catch (const GrammarFailure& failure) {
    return std::string(to_string(failure.kind())) + ' ' + failure.pointer();
  }
}

// Tokens by number; the last one is the end.
inline GrammarContext tokens(std::vector<std::string> bytes) {
  GrammarContext context;
  bytes.emplace_back();
  const auto end = static_cast<TokenId>(bytes.size() - 1);
  context.vocabulary =
      std::make_shared<const Vocabulary>(std::move(bytes), std::vector<TokenId>{end});
  return context;
}

// Numbers of the tokens that may come next.
inline std::vector<TokenId> allowed(GrammarMatcher& matcher, const GrammarContext& context) {
  std::vector<std::uint32_t> words(context.vocabulary->words());
  matcher.fill_mask(words);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < context.vocabulary->size(); ++id) {
    if (words[static_cast<std::size_t>(id) / 32] >> id % 32 & 1) ids.push_back(id);
  }
  return ids;
}

}  // namespace quire::structured
