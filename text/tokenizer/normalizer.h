#pragma once
// What is done to a text before it is cut: Unicode forms, case, replacements. Immutable; any number
// of threads may use one at once.

#include <cstddef>
#include <memory>
#include <string>

namespace quire {

class Json;

// A text under way, and whether its first character still stems from the first of the original.
struct NormalizedText {
  std::string text;
  bool keeps_start = true;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;  // valid UTF-8 in and out
};

// What a published file puts in is a mark or two; a file that makes a long text of a short one is
// refused: with its field if one replacement is long, else when it happens.
inline constexpr std::size_t kMaxInsertedBytes = 256;
void check_growth(std::size_t bytes_before, std::size_t bytes_now);

std::unique_ptr<Normalizer> load_normalizer(const Json& field);
// The "Precompiled" kind: SentencePiece's table of replacements.
std::unique_ptr<Normalizer> load_precompiled(const Json& field);

}  // namespace quire
