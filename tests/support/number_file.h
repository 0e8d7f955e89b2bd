#pragma once
// A safetensors file of single numbers, as checkpoints publish scales.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace quire::test {

inline void write_numbers(const std::filesystem::path& path,
                          const std::map<std::string, float>& numbers) {
  std::string header = "{", data;
  for (const auto& [name, value] : numbers) {
    header += (data.empty() ? "\"" : ",\"") + name + R"(":{"dtype":"F32","shape":[],)" +
              "\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + sizeof value) + "]}";
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header << data;
}

}  // namespace quire::test
