#pragma once
// A model folder made by a test: config.json and model.safetensors, gone at the end.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temp_path.h"

namespace quire::test {

struct FileTensor {
  std::string dtype;  // as safetensors spells it
  std::vector<std::int64_t> shape;
  std::string bytes;
};

template <class T>
FileTensor file_tensor(std::string dtype, std::vector<std::int64_t> shape,
                       const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return {std::move(dtype), std::move(shape), std::move(bytes)};
}

class ModelFolder {
 public:
  explicit ModelFolder(const std::string& name)
      : path_(temp_path("quire_" + name)) {
    std::filesystem::create_directories(path_);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write_config(const std::string& json) { std::ofstream(path_ / "config.json") << json; }
  void write_tensors(const std::map<std::string, FileTensor>& tensors) {
    std::string header, data;
    for (const auto& [name, tensor] : tensors) {
      std::string shape;
      for (const std::int64_t n : tensor.shape)
        shape += (shape.empty() ? "" : ",") + std::to_string(n);
      header += (header.empty() ? "{" : ",") + ("\"" + name) + R"(":{"dtype":")" + tensor.dtype +
                R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(data.size()) +
                "," + std::to_string(data.size() + tensor.bytes.size()) + "]}";
      data += tensor.bytes;
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = header.size();
    std::ofstream out(path_ / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << data;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace quire::test
