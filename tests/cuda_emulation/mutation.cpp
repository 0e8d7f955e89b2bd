// Which synchronisations of the kernels were reached, and which one is to be left out: what
// delete_synchronisation.py drives; and the same of the host's calls, by the places they come from,
// for delete_host_synchronisation.py.

#include <dlfcn.h>
#include <execinfo.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "core.h"

namespace emulation {
namespace {

// Of fixed size: it is filled inside kernels, where nothing may be allocated.
struct Places {
  Site seen[512];
  int count = 0;
  void add(Site site) {
    for (int i = 0; i < count; ++i) {
      const Site& known = seen[i];
      if (known.line == site.line && std::strcmp(known.file, site.file) == 0 &&
          (site.line != 0 || std::strcmp(known.what, site.what) == 0))
        return;
    }
    if (count < 512) seen[count++] = site;
  }
};
Places places;

// Of the host: "cudaStreamSynchronize +0x1234 +0x5678", the callers from the inside outwards, as
// offsets of this program.
std::set<std::string>& calls() {
  static auto* all = new std::set<std::string>;
  return *all;
}

void write_places() {
  std::FILE* file = std::fopen(std::getenv("QUIRE_EMULATION_SITES"), "w");
  if (file == nullptr) return;
  for (int i = 0; i < places.count; ++i) {
    const Site& site = places.seen[i];
    if (site.line == 0) {
      std::fprintf(file, "%s\n", site.what);
    } else {
      std::fprintf(file, "%s:%d\n", site.file, site.line);
    }
  }
  for (const std::string& call : calls()) std::fprintf(file, "%s\n", call.c_str());
  std::fclose(file);
}

struct Settings {
  std::string skip = text("QUIRE_EMULATION_SKIP");
  bool records = !text("QUIRE_EMULATION_SITES").empty();
  Settings() {
    if (records) std::atexit(write_places);
  }
  static std::string text(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  }
};
const Settings settings;  // read before any kernel runs

bool names(std::string_view skip, Site site) {
  const auto colon = skip.rfind(':');
  if (colon == std::string_view::npos) return skip == site.what;
  return std::atoi(skip.data() + colon + 1) == site.line &&
         std::string_view(site.file).ends_with(skip.substr(0, colon));
}

// A call of the runtime: QUIRE_EMULATION_SKIP may also name an address that it returns to.
bool call_deleted(const char* what) {
  constexpr int kDepth = 8;
  void* frames[kDepth];
  const int count = backtrace(frames, kDepth);
  std::string call = what;
  for (int i = 2; i < count; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0) continue;
    char offset[32];
    std::snprintf(offset, sizeof offset, "+0x%zx",
                  static_cast<std::size_t>(static_cast<char*>(frames[i]) -
                                           static_cast<char*>(info.dli_fbase)));
    if (settings.skip == offset) return true;
    call += std::string(" ") + offset;
  }
  if (settings.records) calls().insert(call);
  return false;
}

}  // namespace

bool deleted(Site site) {
  const bool by_caller = settings.skip.starts_with('+');
  if (site.line == 0 && (settings.records || by_caller) && call_deleted(site.what)) return true;
  if (settings.records) places.add(site);
  return !settings.skip.empty() && names(settings.skip, site);
}

}  // namespace emulation
