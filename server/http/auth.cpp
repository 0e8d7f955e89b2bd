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

Auth::Auth(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) keys_.push_back(sha256(key));
}

bool Auth::allows(std::string_view authorization) const {
  if (keys_.empty()) return true;
  if (!boost::beast::iequals(authorization.substr(0, kScheme.size()), kScheme)) return false;
  return knows(authorization.substr(kScheme.size()));
}

bool Auth::knows(std::string_view key) const {
  if (key.empty()) return false;
  const Digest given = sha256(key);
  int matches = 0;  // all keys are looked at
  for (const Digest& one : keys_) {
    matches += CRYPTO_memcmp(one.data(), given.data(), given.size()) == 0;
  }
  return matches > 0;
}

}  // namespace quire
