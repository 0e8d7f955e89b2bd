#include "tests/engine/wire/certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include <cstdio>
#include <memory>

#include "base/error.h"

namespace quire::test {
namespace {

struct FreeAny {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeAny>;
using Certificate = std::unique_ptr<X509, FreeAny>;
using File = std::unique_ptr<std::FILE, FreeAny>;

void add_extension(X509& certificate, int kind, const char* value) {
  const std::unique_ptr<X509_EXTENSION, FreeAny> extension(
      X509V3_EXT_conf_nid(nullptr, nullptr, kind, value));
  if (extension == nullptr || X509_add_ext(&certificate, extension.get(), -1) != 1)
    throw Failure(ErrorCode::internal, "no extension");
}

Certificate make_certificate(const char* name, EVP_PKEY& key, X509* issuer, EVP_PKEY& issuer_key) {
  Certificate made(X509_new());
  X509_set_version(made.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), issuer == nullptr ? 1 : 2);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
  X509_set_pubkey(made.get(), &key);
  X509_NAME* const subject = X509_get_subject_name(made.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_issuer_name(made.get(), issuer == nullptr ? subject : X509_get_subject_name(issuer));
  if (issuer == nullptr) {
    add_extension(*made, NID_basic_constraints, "critical,CA:TRUE");
  } else {
    add_extension(*made, NID_subject_alt_name, "IP:127.0.0.1");
  }
  if (X509_sign(made.get(), &issuer_key, EVP_sha256()) == 0)
    throw Failure(ErrorCode::internal, "not signed");
  return made;
}

}  // namespace

Certificates::Certificates() {
  std::string name = "/tmp/quire_certificates_XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw Failure(ErrorCode::internal, "no folder");
  folder_ = name;
  const Key authority_key(EVP_EC_gen("P-256")), key_of_it(EVP_EC_gen("P-256"));
  const Certificate authority_itself =
      make_certificate("an authority", *authority_key, nullptr, *authority_key);
  const Certificate signed_by_it =
      make_certificate("an engine", *key_of_it, authority_itself.get(), *authority_key);
  PEM_write_X509(File(std::fopen(authority().c_str(), "w")).get(), authority_itself.get());
  PEM_write_X509(File(std::fopen(certificate().c_str(), "w")).get(), signed_by_it.get());
  PEM_write_PrivateKey(File(std::fopen(key().c_str(), "w")).get(), key_of_it.get(), nullptr,
                       nullptr, 0, nullptr, nullptr);
}

Certificates::~Certificates() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace quire::test
