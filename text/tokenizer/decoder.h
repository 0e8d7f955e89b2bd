#pragma once
// From tokens back to text, as streams: what a token adds is given on as soon as it is certain.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

class Json;

// One decoder at work on one stream. Takes tokens, whole; or, behind a stage that joins all tokens
// into one, the fragments of that single token.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(std::string_view piece) = 0;
  virtual void finish() = 0;
  // What it was given may still come out otherwise, or later.
  virtual bool holds_back() const { return true; }
};

// What a tokenizer.json says of a decoder. Immutable.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // `joined`: it will get fragments of a single token.
  virtual std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const = 0;
  virtual bool joins() const { return false; }  // hands on one token in fragments
  // Cannot work on fragments: gets the single token whole, at the end.
  virtual bool needs_whole_tokens() const { return true; }
};

using Decoders = std::vector<std::unique_ptr<Decoder>>;
Decoders load_decoders(const Json& field);  // sequences flattened
Decoders default_decoders();                // of a file without any: a space between tokens

// All decoders of a tokenizer at work on one stream.
class DecodeChain {
 public:
  explicit DecodeChain(const Decoders& decoders);
  void push(std::string_view token) { stages_.back()->push(token); }
  void finish() { stages_.back()->finish(); }
  bool holds_back() const;  // finish() may bring out more
  std::string take() { return std::exchange(*out_, {}); }  // what has come out since the last time

 private:
  std::unique_ptr<std::string> out_;                  // whole characters
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // the last first
};

}  // namespace quire
