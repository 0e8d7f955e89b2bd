// Which synchronisations of the kernels were reached, and which one is to be left out: what
// delete_synchronisation.py drives.

#include <cstdio>
#include <cstdlib>
#include <cstring>
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

}  // namespace

bool deleted(Site site) {
  if (settings.records) places.add(site);
  return !settings.skip.empty() && names(settings.skip, site);
}

}  // namespace emulation
