#pragma once
// "Metaspace", which is a pre-tokenizer and a decoder with the same options.

#include <string>

#include "text/tokenizer/pre_tokenizer_steps.h"

namespace quire {

class Json;

struct MetaspaceOptions {
  std::string replacement;  // one character
  PrependScheme scheme = PrependScheme::always;
  bool split = true;
};

MetaspaceOptions load_metaspace(const Json& field);

}  // namespace quire
