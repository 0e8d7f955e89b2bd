#include "load/prompt_text.h"

#include <algorithm>
#include <array>
#include <random>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace quire::load {
namespace {

constexpr std::array<std::string_view, 32> kWords = {
    "river",  "copper", "seven",  "walk",   "light",  "stone",  "market", "blue",
    "under",  "travel", "paper",  "quiet",  "garden", "number", "cloud",  "field",
    "winter", "signal", "window", "open",   "bright", "seldom", "forty",  "engine",
    "letter", "round",  "north",  "sudden", "silver", "answer", "slow",   "harbor"};

void append_word(std::string& text, std::string_view word) {
  if (!text.empty()) text += ' ';
  text += word;
}

}  // namespace

PromptText::PromptText(const std::filesystem::path& tokenizer) {
  if (tokenizer.empty()) return;
  tokenizer_ = Tokenizer::load(tokenizer);
  const auto cost_behind = [&](std::string_view word) {
    const std::string one(word);
    return tokens_of(one + " " + one) - tokens_of(one);
  };
  for (const std::string_view word : kWords) cost_.push_back(std::max(1, cost_behind(word)));
  const auto cheapest = std::min_element(cost_.begin(), cost_.end()) - cost_.begin();
  filler_ = kWords[static_cast<std::size_t>(cheapest)];
  for (char letter = 'a'; letter <= 'z' && cost_behind(filler_) != 1; ++letter) filler_ = letter;
  opener_ = filler_;
  for (char letter = 'a'; letter <= 'z' && tokens_of(opener_) != 1; ++letter) opener_ = letter;
}

PromptText::~PromptText() = default;
PromptText::PromptText(PromptText&&) noexcept = default;

int PromptText::tokens_of(const std::string& text) const {
  return static_cast<int>(tokenizer_->encode(text, false).size());
}

std::string PromptText::make(int length, std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::string text;
  if (!tokenizer_) {
    for (int i = 0; i < length; ++i) append_word(text, kWords[random() % kWords.size()]);
    return text;
  }
  // By the words' own costs, then by what the whole really has: words that merge differ by a few.
  for (int sum = 0; sum < length;) {
    const std::size_t word = random() % kWords.size();
    const bool fits = sum + cost_[word] <= length;
    append_word(text, fits ? kWords[word] : std::string_view(filler_));
    sum += fits ? cost_[word] : 1;
  }
  constexpr int kMostCorrections = 64;
  for (int i = 0; i < kMostCorrections; ++i) {
    const int more = length - tokens_of(text);
    if (more == 0) break;
    const std::size_t blank = text.rfind(' ');
    if (more < 0 && blank == text.npos) return length > 0 ? opener_ : std::string();
    if (more < 0) text.resize(blank);
    for (int k = 0; k < more; ++k) append_word(text, filler_);
  }
  return text;
}

}  // namespace quire::load
