#pragma once
// The kinds of decoder.

#include <string>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/replacement.h"

namespace quire {

// Bytes spelled in the byte-level alphabet; U+FFFD for each part that is not UTF-8.
class ByteLevelDecoder final : public Decoder {
 public:
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;
  bool joins() const override { return true; }
};

// Runs of tokens "<0xNN>" as the text they are, or U+FFFD for every byte of a run that is not
// UTF-8.
class ByteFallbackDecoder final : public Decoder {
 public:
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;
};

class FuseDecoder final : public Decoder {
 public:
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;
  bool joins() const override { return true; }
  bool needs_whole_tokens() const override { return false; }
};

class ReplaceDecoder final : public Decoder {
 public:
  explicit ReplaceDecoder(const Json& field) : replacement_(field) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;
  bool needs_whole_tokens() const override { return replacement_.literal().empty(); }

 private:
  Replacement replacement_;
};

// Takes up to `start` characters `content` from the front of each token and `stop` from its end.
class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, std::size_t start, std::size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;
  bool needs_whole_tokens() const override { return false; }

 private:
  std::string content_;
  std::size_t start_, stop_;
};

// `replacement` as a space; as nothing in the first token, where a space was put in front.
class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(std::string replacement, bool prepends)
      : replacement_(std::move(replacement)), prepends_(prepends) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;

 private:
  std::string replacement_;
  bool prepends_;
};

// A space before every token but the first and those with `prefix`, which loses it.
class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;

 private:
  std::string prefix_;
  bool cleanup_;
};

// `suffix` as a space, but in the last token as nothing.
class BpeSuffixDecoder final : public Decoder {
 public:
  explicit BpeSuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;

 private:
  std::string suffix_;
};

// Equal neighbours are one token, `pad` is none, `delimiter` is a space.
class CtcDecoder final : public Decoder {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

class SpaceJoinDecoder final : public Decoder {
 public:
  std::unique_ptr<DecodeStage> start(DecodeStage& next, bool joined) const override;
};

}  // namespace quire
