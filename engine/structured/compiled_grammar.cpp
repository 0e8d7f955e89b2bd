#include "engine/structured/compiled_grammar.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "engine/structured/grammar/network.h"
#include "engine/structured/grammar_source.h"

namespace quire::structured {
namespace {

constexpr std::size_t kFreshAbove = 16u << 20;

constexpr std::pair<std::string_view, GrammarSpec::Kind> kKinds[] = {
    {"json_schema", GrammarSpec::Kind::json_schema},
    {"json_object", GrammarSpec::Kind::json_object},
    {"regex", GrammarSpec::Kind::regex},
    {"choice", GrammarSpec::Kind::choice},
    {"ebnf", GrammarSpec::Kind::ebnf},
    {"structural_tag", GrammarSpec::Kind::structural_tag}};

}  // namespace

std::optional<GrammarSpec::Kind> grammar_kind(std::string_view name) {
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

// Everything that grows with use.
struct CompiledGrammar::Parser {
  Meter meter;
  RegexStore store;
  Rules rules;
  std::optional<Network> network;
  std::optional<ParserStates> states;
  std::optional<TokenMasks> masks;

  Parser(const GrammarSpec& spec, const GrammarContext& context, const Slice& slice)
      : store(meter, context.limits), rules(store, context.limits) {
    meter.start(context.limits.compile_time, slice);
    const RuleId root = build_rules(rules, spec, meter, context);
    network.emplace(rules, root, meter, context.limits);
    start_states(context);
  }

  void start_states(const GrammarContext& context) {
    masks.reset();
    states.emplace(*network, store, meter, context.limits);
    if (context.vocabulary != nullptr) {
      masks.emplace(context.vocabulary, context.masks, store, *states, meter);
    }
  }
};

void GrammarContext::warm() const {
  for (const char* source : {"{}", R"({"type":"string","maxLength":1000})"}) {
    GrammarSpec spec;
    spec.kind = GrammarSpec::Kind::json_schema;
    spec.source = source;
    const auto grammar = CompiledGrammar::compile(spec, *this);
    for (const std::string_view text : {R"({"key": "value\n", "k": [1.5e3, true]})", "\"text"}) {
      GrammarMatcher matcher(grammar);
      std::vector<std::uint32_t> words(vocabulary->words());
      for (const char byte : text) {
        if (!matcher.accept_bytes(std::string_view(&byte, 1))) break;
        matcher.fill_mask(words);
      }
    }
  }
}

CompiledGrammar::CompiledGrammar(GrammarContext context) : context_(std::move(context)) {}

CompiledGrammar::~CompiledGrammar() = default;

std::shared_ptr<CompiledGrammar> CompiledGrammar::compile(const GrammarSpec& spec,
                                                          GrammarContext context,
                                                          const Slice& slice) {
  std::shared_ptr<CompiledGrammar> grammar(new CompiledGrammar(std::move(context)));
  grammar->parser_ = std::make_unique<Parser>(spec, grammar->context_, slice);
  return grammar;
}

std::size_t CompiledGrammar::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return parser_->store.memory_bytes() + (parser_->states ? parser_->states->memory_bytes() : 0);
}

void CompiledGrammar::enter() {
  Parser& parser = *parser_;
  const bool is_alone = matchers_ == 0;
  if (!parser.states || (is_alone && parser.states->memory_bytes() > kFreshAbove)) {
    parser.meter.start(context_.limits.step_time);
    parser.start_states(context_);
  }
  ++matchers_;
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar)
    : GrammarMatcher(grammar, grammar->vocabulary() == nullptr
                                  ? std::span<const TokenId>()
                                  : grammar->vocabulary()->end_tokens()) {}

GrammarMatcher::GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar,
                               std::span<const TokenId> end_tokens)
    : grammar_(std::move(grammar)), end_tokens_(end_tokens.begin(), end_tokens.end()) {}

GrammarMatcher::~GrammarMatcher() {
  if (is_started_) grammar_->leave();
}

std::unique_lock<std::timed_mutex> GrammarMatcher::lock() const {
  std::unique_lock lock(grammar_->mutex_, std::defer_lock);
  const bool is_endless = slice_.work == std::chrono::nanoseconds::max();
  if (slice_.waits && is_endless) {
    lock.lock();
  } else if (!(slice_.waits ? lock.try_lock_for(slice_.work) : lock.try_lock())) {
    throw OutOfTime();
  }
  if (!is_started_) {
    grammar_->enter();
    is_started_ = true;
    state_ = grammar_->parser_->states->start();
  }
  grammar_->parser_->meter.start(grammar_->context_.limits.step_time, slice_);
  return lock;
}

bool GrammarMatcher::is_end(TokenId token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

bool GrammarMatcher::accept_bytes(std::string_view bytes) {
  const auto lock = this->lock();
  auto& parser = *grammar_->parser_;
  ParserState state = state_;
  for (const char byte : bytes) {
    state = parser.states->step(state, static_cast<std::uint8_t>(byte));
    if (state == kDead) return false;
  }
  state_ = state;
  return true;
}

bool GrammarMatcher::accept(TokenId token) {
  const Vocabulary& vocabulary = *grammar_->context_.vocabulary;
  if (finished_ || token < 0 || token >= vocabulary.size()) return false;
  if (!is_started_) lock();
  const ParserState before = state_;
  if (is_end(token) && complete()) {
    finished_ = true;
  } else if (is_end(token) && !vocabulary.is_special(token)) {
    return false;
  } else if (vocabulary.bytes(token).empty() || !accept_bytes(vocabulary.bytes(token))) {
    return false;
  }
  history_.push_back(before);
  return true;
}

void GrammarMatcher::rollback(std::size_t tokens) {
  assert(tokens <= history_.size());
  if (tokens == 0) return;
  state_ = history_[history_.size() - tokens];
  history_.resize(history_.size() - tokens);
  finished_ = false;
}

bool GrammarMatcher::complete() const {
  const auto lock = this->lock();
  return grammar_->parser_->states->accepting(state_);
}

bool GrammarMatcher::must_end() const {
  const auto lock = this->lock();
  return finished_ || (grammar_->parser_->states->accepting(state_) &&
                       grammar_->parser_->states->threads(state_).empty());
}

void GrammarMatcher::fill_mask(std::span<std::uint32_t> words) {
  const auto lock = this->lock();
  auto& parser = *grammar_->parser_;
  if (finished_) {
    std::fill(words.begin(), words.end(), 0);
    return;
  }
  parser.masks->fill(state_, words);
  const Vocabulary& vocabulary = *grammar_->context_.vocabulary;
  const bool ends = parser.states->accepting(state_);
  for (const TokenId token : end_tokens_) {
    const auto id = static_cast<std::size_t>(token);
    if (id / 32 >= words.size()) continue;
    const std::uint32_t bit = 1u << id % 32;
    if (ends) {
      words[id / 32] |= bit;
    } else if (!vocabulary.is_special(token)) {
      words[id / 32] &= ~bit;  // else the grammar names it: what ends a call may end the answer
    }
  }
}

std::string GrammarMatcher::forced_bytes(std::size_t max) {
  const auto lock = this->lock();
  auto& parser = *grammar_->parser_;
  std::string forced;
  for (ParserState state = state_; forced.size() < max && !parser.states->accepting(state);) {
    const ByteSet next = parser.states->first_bytes(state);
    int count = 0;
    for (const std::uint64_t word : next.words) count += std::popcount(word);
    if (count != 1) break;
    next.for_each([&](std::uint8_t byte) { forced += static_cast<char>(byte); });
    state = parser.states->step(state, static_cast<std::uint8_t>(forced.back()));
    if (state == kDead) {
      forced.pop_back();
      break;
    }
  }
  return forced;
}

}  // namespace quire::structured
