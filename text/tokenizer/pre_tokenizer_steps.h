#pragma once
// The steps that the kinds of pre-tokenizer are made of.

#include <memory>
#include <string>

#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/split_pattern.h"

namespace quire {

// What becomes of a match: "the-final--countdown" cut at "-".
enum class SplitBehavior : std::uint8_t {
  removed,               // the final countdown
  isolated,              // the - final - - countdown
  merged_with_previous,  // the- final- - countdown
  merged_with_next,      // the -final - -countdown
  contiguous,            // the - final -- countdown
};

enum class PrependScheme : std::uint8_t { first, never, always };

class SplitStep final : public PreTokenizer {
 public:
  SplitStep(std::unique_ptr<SplitPattern> pattern, SplitBehavior behavior, bool invert = false)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(PreTokenized& text) const override;

 private:
  std::unique_ptr<SplitPattern> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// \w+|[^\w\s]+
class WordCharStep final : public PreTokenizer {
 public:
  void apply(PreTokenized& text) const override;
};

class FixedLengthStep final : public PreTokenizer {
 public:
  explicit FixedLengthStep(std::size_t length) : length_(length) {}  // characters, not 0
  void apply(PreTokenized& text) const override;

 private:
  std::size_t length_;
};

// A space before every word that has none.
class PrefixSpaceStep final : public PreTokenizer {
 public:
  void apply(PreTokenized& text) const override;
};

// Bytes as characters of the byte-level alphabet.
class ByteCharsStep final : public PreTokenizer {
 public:
  void apply(PreTokenized& text) const override;
};

// Spaces as `replacement`, and one in front.
class MetaspaceStep final : public PreTokenizer {
 public:
  MetaspaceStep(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)), scheme_(scheme) {}
  void apply(PreTokenized& text) const override;

 private:
  std::string replacement_;
  PrependScheme scheme_;
};

}  // namespace quire
