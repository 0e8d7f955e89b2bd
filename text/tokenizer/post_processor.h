#pragma once
// Puts special tokens around what was encoded. Immutable.

#include <memory>
#include <vector>

#include "base/ids.h"

namespace quire {

class Json;

class PostProcessor {
 public:
  // What was encoded, in the parts that the processors so far have made of it.
  using Parts = std::vector<std::vector<TokenId>>;
  virtual ~PostProcessor() = default;
  virtual Parts with_specials(Parts parts) const = 0;
  virtual Parts without_specials(Parts parts) const { return parts; }
};

std::vector<TokenId> joined(const PostProcessor::Parts& parts);

std::unique_ptr<PostProcessor> load_post_processor(const Json& field);
// At most one token before and one after every text.
std::unique_ptr<PostProcessor> make_ends(std::vector<TokenId> before, std::vector<TokenId> behind);

}  // namespace quire
