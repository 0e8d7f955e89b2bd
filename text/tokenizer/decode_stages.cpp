#include "text/tokenizer/decode_stages.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/utf8.h"
#include "text/tokenizer/byte_chars.h"

namespace quire {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size()) {
    out.append(text, done, at - done).append(to);
    if (from.empty()) {  // found before every character, and at the end
      if (at == text.size()) break;
      const std::size_t length = utf8_length(text[at]);
      out.append(text, at, length);
      done = at + length;
      at = done;
    }
  }
  if (done == 0 && !from.empty()) return;
  text = out.append(text, done);
}

// Removes the spaces that a tokenizer of words puts into English.
void clean_up(std::string& text) {
  for (const auto& [from, to] : {std::pair{" .", "."},
                                 {" ?", "?"},
                                 {" !", "!"},
                                 {" ,", ","},
                                 {" ' ", "'"},
                                 {" n't", "n't"},
                                 {" 'm", "'m"},
                                 {" do not", " don't"},
                                 {" 's", "'s"},
                                 {" 've", "'ve"},
                                 {" 're", "'re"}}) {
    replace_all(text, from, to);
  }
}

class ByteLevelStage final : public DecodeStage {
 public:
  explicit ByteLevelStage(DecodeStage& next) : next_(next) {}

  void push(std::string_view token) override {
    if (!append_bytes_of_chars(bytes_, token)) bytes_ += token;
    give(/*last=*/false);
  }
  void finish() override {
    give(/*last=*/true);
    next_.finish();
  }
  bool holds_back() const override { return !bytes_.empty(); }

 private:
  void give(bool last) {
    const char* at = bytes_.data();
    const char* const end = at + bytes_.size();
    const char* good = at;
    const auto give_good = [&] {
      if (good != at) next_.push({good, static_cast<std::size_t>(at - good)});
    };
    while (at < end) {
      const Utf8Step step = utf8_step(at, end);
      if (step.kind == Utf8Step::incomplete && !last) break;
      if (step.kind != Utf8Step::valid) {
        give_good();
        next_.push(kReplacementCharacter);
        good = at + step.length;
      }
      at += step.length;
    }
    give_good();
    bytes_.erase(0, static_cast<std::size_t>(at - bytes_.data()));
  }

  DecodeStage& next_;
  std::string bytes_;  // of a character whose end has not come; at most 3 between pushes
};

class ByteFallbackStage final : public DecodeStage {
 public:
  explicit ByteFallbackStage(DecodeStage& next) : next_(next) {}

  void push(std::string_view token) override {
    if (const auto byte = byte_of(token)) {
      add(*byte);
    } else {
      end_run();
      next_.push(token);
    }
  }
  void finish() override {
    end_run();
    next_.finish();
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return {};
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                    : -1;
    };
    const int high = token[3] == '+' ? 0 : digit(token[3]);  // Rust reads a sign
    const int low = digit(token[4]);
    if (high < 0 || low < 0) return {};
    return static_cast<char>(high * 16 + low);
  }

  void add(char byte) {
    if (bad_) {
      next_.push(kReplacementCharacter);
      return;
    }
    run_ += byte;
    while (checked_ < run_.size()) {
      const Utf8Step step = utf8_step(run_.data() + checked_, run_.data() + run_.size());
      if (step.kind == Utf8Step::incomplete) return;
      if (step.kind == Utf8Step::invalid) return spoil();
      checked_ += step.length;
    }
  }

  // The whole run is known to be bad: nothing that follows can save it.
  void spoil() {
    for (std::size_t i = 0; i < run_.size(); ++i) next_.push(kReplacementCharacter);
    run_.clear();
    checked_ = 0;
    bad_ = true;
  }

  void end_run() {
    if (checked_ < run_.size()) spoil();
    if (!run_.empty()) next_.push(run_);
    run_.clear();
    checked_ = 0;
    bad_ = false;
  }

  DecodeStage& next_;
  std::string run_;          // good so far
  std::size_t checked_ = 0;  // of these bytes are whole characters
  bool bad_ = false;
};

class FuseStage final : public DecodeStage {
 public:
  explicit FuseStage(DecodeStage& next) : next_(next) {}
  void push(std::string_view piece) override { next_.push(piece); }
  void finish() override { next_.finish(); }

 private:
  DecodeStage& next_;
};

// Each token by itself, given its number.
class TokenStage final : public DecodeStage {
 public:
  using Edit = std::function<void(std::string& token, bool first)>;
  TokenStage(DecodeStage& next, Edit edit) : next_(next), edit_(std::move(edit)) {}

  void push(std::string_view token) override {
    token_ = token;
    edit_(token_, first_);
    first_ = false;
    next_.push(token_);
  }
  void finish() override { next_.finish(); }

 private:
  DecodeStage& next_;
  Edit edit_;
  std::string token_;
  bool first_ = true;
};

// Replaces a text in fragments of one token. Holds back what may be the beginning of a match.
class JoinedReplaceStage final : public DecodeStage {
 public:
  JoinedReplaceStage(DecodeStage& next, std::string_view from, std::string_view to)
      : next_(next), from_(from), to_(to) {}

  void push(std::string_view piece) override {
    held_ += piece;
    std::size_t done = 0;
    for (std::size_t at; (at = held_.find(from_, done)) != held_.npos; done = at + from_.size()) {
      give(done, at);
      next_.push(to_);
    }
    std::size_t keep = std::min(from_.size() - 1, held_.size() - done);
    while (!from_.starts_with(std::string_view(held_).substr(held_.size() - keep))) --keep;
    give(done, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
  }
  void finish() override {
    give(0, held_.size());
    next_.finish();
  }

 private:
  void give(std::size_t begin, std::size_t end) {
    if (begin < end) next_.push(std::string_view(held_).substr(begin, end - begin));
  }

  DecodeStage& next_;
  std::string_view from_, to_;
  std::string held_;
};

class JoinedStripStage final : public DecodeStage {
 public:
  JoinedStripStage(DecodeStage& next, std::string_view content, std::size_t start, std::size_t stop)
      : next_(next), content_(content), start_(start), stop_(stop) {}

  void push(std::string_view piece) override {
    for (; start_ > 0 && !piece.empty(); --start_) {
      if (!piece.starts_with(content_))
        start_ = 1;  // the front is over
      else
        piece.remove_prefix(content_.size());
    }
    if (piece.empty()) return;
    std::string_view body = piece;
    std::size_t trailing = 0;
    while (trailing < stop_ && body.ends_with(content_)) {
      body.remove_suffix(content_.size());
      ++trailing;
    }
    if (!body.empty()) {
      release(held_);
      next_.push(body);
    }
    held_ += trailing;
    if (held_ > stop_) release(held_ - stop_);
  }
  void finish() override { next_.finish(); }

 private:
  void release(std::size_t count) {
    held_ -= count;
    while (count-- > 0) next_.push(content_);
  }

  DecodeStage& next_;
  std::string_view content_;
  std::size_t start_;     // this many may still be taken from the front
  std::size_t stop_;      // this many are taken from the end
  std::size_t held_ = 0;  // how many stand at the end so far
};

// The last token is not treated like the others, so each waits for the next.
class BpeSuffixStage final : public DecodeStage {
 public:
  BpeSuffixStage(DecodeStage& next, std::string_view suffix) : next_(next), suffix_(suffix) {}

  void push(std::string_view token) override {
    give(" ");
    waiting_ = token;
  }
  void finish() override {
    give("");
    next_.finish();
  }

 private:
  void give(std::string_view replacement) {
    if (!waiting_) return;
    replace_all(*waiting_, suffix_, replacement);
    next_.push(*waiting_);
  }

  DecodeStage& next_;
  std::string_view suffix_;
  std::optional<std::string> waiting_;
};

class CtcStage final : public DecodeStage {
 public:
  CtcStage(DecodeStage& next, std::string_view pad, std::string_view delimiter, bool cleanup)
      : next_(next), pad_(pad), delimiter_(delimiter), cleanup_(cleanup) {}

  void push(std::string_view token) override {
    if (previous_ == token) return;
    previous_ = token;
    std::string text(token);
    replace_all(text, pad_, "");
    if (cleanup_) {
      clean_up(text);
      replace_all(text, delimiter_, " ");
    }
    if (!text.empty()) next_.push(text);
  }
  void finish() override { next_.finish(); }

 private:
  DecodeStage& next_;
  std::string_view pad_, delimiter_;
  bool cleanup_;
  std::optional<std::string> previous_;
};

}  // namespace

std::unique_ptr<DecodeStage> ByteLevelDecoder::start(DecodeStage& next, bool) const {
  return std::make_unique<ByteLevelStage>(next);
}

std::unique_ptr<DecodeStage> ByteFallbackDecoder::start(DecodeStage& next, bool) const {
  return std::make_unique<ByteFallbackStage>(next);
}

std::unique_ptr<DecodeStage> FuseDecoder::start(DecodeStage& next, bool) const {
  return std::make_unique<FuseStage>(next);
}

std::unique_ptr<DecodeStage> ReplaceDecoder::start(DecodeStage& next, bool joined) const {
  if (joined && !needs_whole_tokens()) {
    return std::make_unique<JoinedReplaceStage>(next, replacement_.literal(),
                                                replacement_.content());
  }
  return std::make_unique<TokenStage>(
      next, [this](std::string& token, bool) { replacement_.apply(token); });
}

std::unique_ptr<DecodeStage> StripDecoder::start(DecodeStage& next, bool joined) const {
  if (joined) return std::make_unique<JoinedStripStage>(next, content_, start_, stop_);
  return std::make_unique<TokenStage>(next, [this](std::string& token, bool) {
    std::string_view text = token;
    for (std::size_t i = 0; i < start_ && text.starts_with(content_); ++i) {
      text.remove_prefix(content_.size());
    }
    for (std::size_t i = 0; i < stop_ && text.ends_with(content_); ++i) {
      text.remove_suffix(content_.size());
    }
    token = std::string(text);
  });
}

std::unique_ptr<DecodeStage> MetaspaceDecoder::start(DecodeStage& next, bool) const {
  return std::make_unique<TokenStage>(next, [this](std::string& token, bool first) {
    replace_all(token, replacement_, first && prepends_ ? "" : " ");
  });
}

std::unique_ptr<DecodeStage> WordPieceDecoder::start(DecodeStage& next, bool) const {
  return std::make_unique<TokenStage>(next, [this](std::string& token, bool first) {
    if (!first && token.starts_with(prefix_)) {
      token.erase(0, prefix_.size());
    } else if (!first) {
      token.insert(0, 1, ' ');
    }
    if (cleanup_) clean_up(token);
  });
}

std::unique_ptr<DecodeStage> BpeSuffixDecoder::start(DecodeStage& next, bool) const {
  return std::make_unique<BpeSuffixStage>(next, suffix_);
}

std::unique_ptr<DecodeStage> CtcDecoder::start(DecodeStage& next, bool) const {
  return std::make_unique<CtcStage>(next, pad_, delimiter_, cleanup_);
}

std::unique_ptr<DecodeStage> SpaceJoinDecoder::start(DecodeStage& next, bool) const {
  return std::make_unique<TokenStage>(next, [](std::string& token, bool first) {
    if (!first) token.insert(0, 1, ' ');
  });
}

}  // namespace quire
