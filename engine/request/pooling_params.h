#pragma once
// What a request to a pooling model brings instead of SamplingParams: it ends with its prompt, and
// what comes back is the prompt's vector.

#include "base/fields.h"

namespace quire {

struct PoolingParams {
  // Where the prompt is a pair of texts: first token of the second one. 0: a single text.
  int second_segment = 0;

  using Fields = FieldList<&PoolingParams::second_segment>;
};

}  // namespace quire
