#pragma once
// Keys that open the API. Comparison time tells nothing about a key.

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class Auth {
 public:
  explicit Auth(const std::vector<std::string>& keys);  // none: everyone may
  // Of the Authorization header's value.
  bool allows(std::string_view authorization) const;
  // Of a header that is the key alone, such as X-Api-Key. No key is never known.
  bool knows(std::string_view key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  std::vector<Digest> keys_;
};

}  // namespace quire
