#pragma once
// A GGUF file as bytes, with every lie that a test wants to tell in it.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class GgufBytes {
 public:
  explicit GgufBytes(std::uint32_t version = 3) : version_(version) {}

  GgufBytes& text(std::string_view key, std::string_view value) {
    return pair(key, 8, counted(value));
  }
  GgufBytes& u32(std::string_view key, std::uint32_t value) { return pair(key, 4, bytes_of(value)); }
  GgufBytes& i32(std::string_view key, std::int32_t value) { return pair(key, 5, bytes_of(value)); }
  GgufBytes& f32(std::string_view key, float value) { return pair(key, 6, bytes_of(value)); }
  GgufBytes& flag(std::string_view key, bool value) {
    return pair(key, 7, std::string(1, static_cast<char>(value)));
  }
  GgufBytes& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string items;
    for (const std::string& value : values) items += counted(value);
    return pair(key, 9, bytes_of(std::uint32_t{8}) + bytes_of(std::uint64_t{values.size()}) + items);
  }
  GgufBytes& i32s(std::string_view key, const std::vector<std::int32_t>& values) {
    std::string items;
    for (const std::int32_t value : values) items += bytes_of(value);
    return pair(key, 9, bytes_of(std::uint32_t{5}) + bytes_of(std::uint64_t{values.size()}) + items);
  }
  GgufBytes& pair(std::string_view key, std::uint32_t type, const std::string& value) {
    ++num_pairs;
    pairs_ += counted(key) + bytes_of(type) + value;
    return *this;
  }
  // Extents as the file has them: the shortest stride first.
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& extents,
                    std::uint32_t type, std::uint64_t offset) {
    ++num_tensors;
    tensors_ += counted(name) + bytes_of(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) tensors_ += bytes_of(extent);
    tensors_ += bytes_of(type) + bytes_of(offset);
    return *this;
  }

  std::string with_data(std::size_t data_bytes) const {
    std::string file = "GGUF" + bytes_of(version_) + bytes_of(num_tensors) + bytes_of(num_pairs) +
                       pairs_ + tensors_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + std::string(data_bytes, '\1');
  }

  std::uint64_t num_tensors = 0, num_pairs = 0;

  template <class T>
  static std::string bytes_of(T value) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &value, sizeof(T));
    return out;
  }
  static std::string counted(std::string_view text) {
    return bytes_of(std::uint64_t{text.size()}) + std::string(text);
  }

 private:
  std::uint32_t version_;
  std::string pairs_, tensors_;
};

}  // namespace quire
