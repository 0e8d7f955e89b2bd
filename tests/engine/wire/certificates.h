#pragma once
// Certificates for tests: an authority, and what it signed for 127.0.0.1, as PEM files in a folder
// that is gone with the object.

#include <filesystem>
#include <string>

#include "engine/wire/tls.h"

namespace quire::test {

class Certificates {
 public:
  Certificates();
  ~Certificates();
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  std::string authority() const { return path("authority.pem"); }
  std::string certificate() const { return path("certificate.pem"); }
  std::string key() const { return path("key.pem"); }

 private:
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

}  // namespace quire::test
