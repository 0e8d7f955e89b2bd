#pragma once
// What a pooling model is asked for, and how a prompt's hidden states become one vector. Light:
// flags, messages and the plan share it. model/pooler.h does it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace quire {

enum class RunnerKind : std::uint8_t { automatic, generate, pooling };
// What a model that was published for something else is served as.
enum class ConvertKind : std::uint8_t { automatic, none, embed, classify };

// none: the model generates. score: numbers of a classification head, one per label.
enum class PoolingTask : std::uint8_t { none, embed, score };
// Which hidden states of a prompt make its vector: the last token's, the first one's, their mean.
enum class PoolingType : std::uint8_t { last, cls, mean };

// Flags; what is unset is found in the model's files.
struct PoolingOptions {
  RunnerKind runner = RunnerKind::automatic;
  ConvertKind convert = ConvertKind::automatic;
  std::optional<PoolingType> type;
  std::optional<bool> use_activation;               // length 1 (embed), sigmoid (score)
  std::vector<std::string> classifier_tokens = {};  // score = logit of the second − of the first
  bool is_matryoshka = false;                       // vectors may be cut
  std::vector<std::int32_t> matryoshka_dimensions = {};  // to these sizes; empty: to any

  using Fields = FieldList<&PoolingOptions::runner, &PoolingOptions::convert, &PoolingOptions::type,
                           &PoolingOptions::use_activation, &PoolingOptions::classifier_tokens,
                           &PoolingOptions::is_matryoshka, &PoolingOptions::matryoshka_dimensions>;
};

}  // namespace quire
