#include "hub/file_hash.h"

#include <openssl/evp.h>

#include "base/error.h"

namespace quire::hub {

struct FileHash::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

FileHash::FileHash(bool is_large, std::uint64_t size) : state_(std::make_unique<State>()) {
  if (EVP_DigestInit_ex(state_->context, is_large ? EVP_sha256() : EVP_sha1(), nullptr) != 1) {
    throw Failure(ErrorCode::internal, "OpenSSL has no such hash");
  }
  if (is_large) return;
  const std::string head = "blob " + std::to_string(size);
  add(std::string_view(head.c_str(), head.size() + 1));
}

FileHash::~FileHash() = default;
FileHash::FileHash(FileHash&&) noexcept = default;
FileHash& FileHash::operator=(FileHash&&) noexcept = default;

void FileHash::add(std::string_view bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

std::string FileHash::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(state_->context, digest, &size);
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) text.append({kHex[digest[i] >> 4], kHex[digest[i] & 15]});
  return text;
}

}  // namespace quire::hub
