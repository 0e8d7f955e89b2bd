#pragma once
// The Hub's HTTP API: what a repository has, and its files' bytes. Any thread; each call makes its
// own connections.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/names.h"
#include "net/http_client.h"

namespace quire::hub {

struct HubOptions {
  net::Url endpoint;
  std::string token;  // empty: none
  bool offline = false;
  int tries = 5;  // of something that fails without any progress
  net::Patience patience{};
  std::chrono::milliseconds pause{1000};  // before the second try; doubles, to 30 s

  // HF_ENDPOINT, HF_TOKEN or the file that `hf auth login` writes, HF_HUB_OFFLINE. Throws Failure.
  static HubOptions of_environment();
};

struct RepoFile {
  std::string path;
  std::uint64_t size = 0;
  std::string hash;  // SHA-256 of a large file, else SHA-1 of a git blob; names it in the cache
  bool is_large = false;  // kept outside of git
};

struct RepoInfo {
  std::string commit;
  std::vector<RepoFile> files;  // with safe paths only
};

// Pieces of a file, in order. Called with 0 first where the server begins anew.
using TakeBytes = std::function<void(std::uint64_t offset, std::string_view bytes)>;

class Hub {
 public:
  explicit Hub(HubOptions options) : options_(std::move(options)) {}
  const HubOptions& options() const { return options_; }

  // All throw Failure in words that say what to do: no such model, a token that is needed or wrong,
  // nobody there. What may pass (cut connections, 429, 5xx) is tried again.
  RepoInfo info(const ModelName& name) const;
  // The bytes from `offset` on, tried again from where it broke off.
  void read(const std::string& repo, const std::string& commit, const RepoFile& file,
            std::uint64_t offset, const TakeBytes& take) const;

 private:
  net::Headers headers(const net::Url& url) const;
  net::Response get(net::Client& client, net::Url url, const net::Headers& more,
                    const net::BodySink& sink) const;

  HubOptions options_;
};

}  // namespace quire::hub
