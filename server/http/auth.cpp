#include "server/http/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <boost/beast/core/string.hpp>

namespace quire {

namespace {

constexpr std::string_view kScheme = "Bearer ";

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

}  // namespace

Auth::Auth(const std::vector<std::string>& keys, const std::vector<NamedKey>& named) {
  for (const std::string& key : keys) keys_.emplace_back(NamedKey{{}, sha256(key)});
  for (const NamedKey& key : named) keys_.emplace_back(key);
}

KeyInUse* Auth::find(std::string_view authorization, std::string_view bare_key) {
  if (boost::beast::iequals(authorization.substr(0, kScheme.size()), kScheme)) {
    if (KeyInUse* const key = find_key(authorization.substr(kScheme.size()))) return key;
  }
  return find_key(bare_key);
}

KeyInUse* Auth::find_key(std::string_view key) {
  if (key.empty()) return nullptr;
  const auto given = sha256(key);
  KeyInUse* found = nullptr;  // all keys are looked at
  for (KeyInUse& one : keys_) {
    if (CRYPTO_memcmp(one.key().sha256.data(), given.data(), given.size()) == 0) found = &one;
  }
  return found;
}

}  // namespace quire
