// Checkpoints whose tensors lack the usual prefix, as transformers' AutoModel saves them.

#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>
#include <iterator>

#include "backend/measuring_device.h"
#include "cpu/cpu_backend.h"
#include "model/registry.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// The header's names lose the prefix; blanks keep its length.
void copy_without_prefix(const fs::path& from, const fs::path& to) {
  std::ifstream in(from, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  std::string header = bytes.substr(sizeof length, length);
  constexpr std::string_view kPrefix = "\"model.";
  for (std::size_t at; (at = header.find(kPrefix)) != header.npos;)
    header.replace(at, kPrefix.size(), "\"");
  header.resize(length, ' ');
  bytes.replace(sizeof length, length, header);
  std::ofstream(to, std::ios::binary) << bytes;
}

TEST_CASE("tensors without the prefix of their class are found", "[model][golden]") {
  const fs::path folder = temp_path("quire_root_names");
  fs::create_directories(folder);
  const auto ops = make_cpu_ops({.threads = 1});
  for (const char* name : {"deepseek-v3", "phi3-longrope"}) {
    INFO(name);
    const fs::path from = fs::path("tests/data/golden/models") / name;
    fs::copy_file(from / "config.json", folder / "config.json",
                  fs::copy_options::overwrite_existing);
    copy_without_prefix(from / "model.safetensors", folder / "model.safetensors");
    const auto bytes = [&](const fs::path& model) {
      MeasuringDevice device(true);
      return load_model(read_model_config(model), model, device, ops->traits(), {.measure = true})
          ->weight_bytes();
    };
    CHECK(bytes(folder) == bytes(from));
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace quire
