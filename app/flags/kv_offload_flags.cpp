#include "app/flags/kv_offload_flags.h"

#include <cmath>
#include <string>

#include "engine/size_text.h"

namespace quire {
namespace {

constexpr double kMostGib = 1 << 20;

void check_unset(const char* flag, std::int64_t bytes) {
  if (bytes == 0) return;
  throw CLI::ValidationError(flag,
                             "is said by another flag or in --kv-transfer-config too: give one");
}

CLI::Option* add_size(CLI::App& app, const char* flag, std::int64_t& bytes,
                      const char* description) {
  return app
      .add_option_function<std::string>(
          flag,
          [flag, &bytes](const std::string& text) {
            const auto parsed = parse_bytes(text);
            if (parsed.has_error()) throw CLI::ValidationError(flag, parsed.error().detail);
            check_unset(flag, bytes);
            if (*parsed < 1) throw CLI::ValidationError(flag, "must be positive, not " + text);
            bytes = *parsed;
          },
          description)
      ->type_name("SIZE");
}

// vLLM's: GiB of one backend.
void add_vllm_flags(CLI::App& app, KvOffloadConfig& offload, CLI::Option* own) {
  CLI::Option* const size =
      app.add_option_function<double>(
             "--kv-offloading-size",
             [&offload](double gib) {
               check_unset("--kv-offloading-size", offload.host_bytes);
               if (!(gib > 0) || gib > kMostGib)
                 throw CLI::ValidationError("--kv-offloading-size",
                                            "must be a positive number of GiB");
               offload.host_bytes = static_cast<std::int64_t>(std::llround(gib * (1 << 30)));
               if (offload.host_bytes < 1)
                 throw CLI::ValidationError("--kv-offloading-size", "is less than a byte");
             },
             "vLLM's name for --kv-offload-bytes, in GiB")
          ->type_name("GIB")
          ->excludes(own);
  app.add_option_function<std::string>(
         "--kv-offloading-backend",
         [](const std::string& name) {
           if (name == "native") return;
           throw CLI::ValidationError("--kv-offloading-backend",
                                      "\"" + name + "\" is not offered; there is only native");
         },
         "vLLM's: native")
      ->type_name("NAME")
      ->needs(size);
}

}  // namespace

void add_kv_offload_flags(CLI::App& app, KvOffloadConfig& offload) {
  CLI::Option* const bytes =
      add_size(app, "--kv-offload-bytes", offload.host_bytes,
               "Memory of the host for blocks that the cache gives up; a later request with their "
               "prefix copies them back");
  app.add_option("--kv-offload-path", offload.path,
                 "A folder for blocks that this memory gives up; kept from start to start")
      ->type_name("DIR")
      ->check([](const std::string& path) {
        return path.empty() ? "is empty: leave the flag out for none" : std::string();
      });
  add_size(app, "--kv-offload-path-bytes", offload.path_bytes,
           "How much that folder may hold (8 times --kv-offload-bytes)");
  add_vllm_flags(app, offload, bytes);
}

}  // namespace quire
