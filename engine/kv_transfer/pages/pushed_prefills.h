#pragma once
// Prefills that others get while this engine computes them: after each step what it brought is
// copied out of the blocks. Engine thread only.

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/pages/cache_pages.h"
#include "engine/request/request.h"

namespace quire {

class PushedPrefills {
 public:
  // Both outlive it.
  PushedPrefills(KeptPrefills& kept, CachePages& pages, const KvGeometry& geometry)
      : kept_(kept), pages_(pages), geometry_(geometry) {}

  // So many tokens of its prompt are in its blocks. Where there is no room, or another has that
  // key, whoever asks is told so, and nothing more is copied.
  void computed(const Request& request, const std::string& key, const BlockTable& blocks,
                int num_computed);
  // The rest of it, and its lease begins. False: it could not be kept.
  bool finish(const Request& request, const std::string& key, const BlockTable& blocks);
  void abandon(RequestId request, const std::string& key);  // it ended, or never began

 private:
  struct Pushed {
    KeptPrefill prefill;
    int copied = 0;  // tokens
    bool lost = false;
  };
  Pushed& begin(const Request& request, const std::string& key);
  void copy(Pushed& pushed, const BlockTable& blocks, int until);

  KeptPrefills& kept_;
  CachePages& pages_;
  const KvGeometry& geometry_;
  std::unordered_map<RequestId, Pushed> pushed_;
};

}  // namespace quire
