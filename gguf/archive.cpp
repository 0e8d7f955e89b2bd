#include "gguf/archive.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>

namespace quire::gguf {

namespace {

namespace fs = std::filesystem;

constexpr int kDigits = 5;

std::optional<int> digits_at(const std::string& text, std::size_t at) {
  int value = 0;
  const char* const begin = text.data() + at;
  const auto [end, error] = std::from_chars(begin, begin + kDigits, value);
  if (error != std::errc() || end != begin + kDigits) return {};
  return value;
}

// "model-00001-of-00003.gguf" by its parts.
struct ShardName {
  std::string stem, extension;
  int index = 0, count = 0;

  fs::path at(const fs::path& folder, int i) const {
    const auto padded = [](int n) {
      const std::string digits = std::to_string(n);
      return std::string(static_cast<std::size_t>(kDigits) - digits.size(), '0') + digits;
    };
    return folder / (stem + "-" + padded(i) + "-of-" + padded(count) + extension);
  }
};

bool has_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension == ".gguf";
}

std::optional<ShardName> shard_name(const fs::path& path) {
  const std::string name = path.stem().string();
  constexpr std::size_t kTail = 1 + kDigits + 4 + kDigits;  // -00001-of-00003
  if (name.size() <= kTail) return {};
  const std::size_t at = name.size() - kTail;
  if (name[at] != '-' || name.compare(at + 1 + kDigits, 4, "-of-") != 0) return {};
  const auto index = digits_at(name, at + 1), count = digits_at(name, at + 1 + kDigits + 4);
  if (!index || !count || *index < 1 || *index > *count) return {};
  return ShardName{name.substr(0, at), path.extension().string(), *index, *count};
}

[[noreturn]] void fail(const fs::path& file, const std::string& message,
                       ErrorCode code = ErrorCode::invalid_argument) {
  throw Failure(code, file.string() + ": " + message);
}

constexpr IntRange kShards{1, 65535};

std::int64_t shards_of(const Metadata& metadata) {
  return metadata.integer("split.count", {0, kShards.max}).value_or(1);
}

}  // namespace

Shard::Shard(const fs::path& path)
    : path(path),
      map(path),
      header(parse_header({reinterpret_cast<const char*>(map.data()), map.size()}, path)) {}

Archive::Archive(const fs::path& path) {
  const auto name = shard_name(path);
  const fs::path first = name ? name->at(path.parent_path(), 1) : path;
  shards_.push_back(std::make_unique<Shard>(first));
  const std::int64_t count = shards_of(metadata());
  if (count > 1) open_others(first, count);
  check_tensors();
}

void Archive::open_others(const fs::path& first, std::int64_t count) {
  const auto name = shard_name(first);
  if (!name || name->count != count) {
    metadata().fail("split.count", "is " + std::to_string(count) +
                                       ", so the file's name must end in -00001-of-" +
                                       std::to_string(count) + " (five digits).gguf");
  }
  for (int i = 2; i <= name->count; ++i) {
    const fs::path file = name->at(first.parent_path(), i);
    if (!fs::exists(file)) fail(file, "is missing, one of " + std::to_string(count) + " shards",
                                ErrorCode::not_found);
    shards_.push_back(std::make_unique<Shard>(file));
    const Metadata& own = shards_.back()->header.metadata;
    if (shards_of(own) != count) {
      own.fail("split.count", "is not the first shard's " + std::to_string(count));
    }
    if (own.integer("split.no", {0, kShards.max}) != i - 1) {
      own.fail("split.no", "must be " + std::to_string(i - 1));
    }
  }
}

void Archive::check_tensors() const {
  std::set<std::string_view> names;
  for (const auto& shard : shards_) {
    for (const TensorInfo& tensor : shard->header.tensors) {
      if (names.insert(tensor.name).second) continue;
      fail(shard->path, "at byte " + std::to_string(tensor.offset) + ": tensor \"" +
                            std::string(tensor.name) + "\" is in another shard too");
    }
  }
  const auto total = metadata().integer("split.tensors.count", {0, 1 << 30});
  if (total && shards_.size() > 1 && *total != static_cast<std::int64_t>(names.size())) {
    metadata().fail("split.tensors.count", "is " + std::to_string(*total) + ", the shards have " +
                                               std::to_string(names.size()));
  }
}

const TensorInfo* Archive::find(std::string_view tensor) const {
  for (const auto& shard : shards_) {
    for (const TensorInfo& info : shard->header.tensors) {
      if (info.name == tensor) return &info;
    }
  }
  return nullptr;
}

bool is_gguf(const fs::path& model) {
  std::error_code error;
  if (fs::is_directory(model, error)) return false;
  if (has_extension(model)) return true;
  if (!fs::is_regular_file(model, error)) return false;
  std::string magic(4, '\0');
  std::ifstream(model, std::ios::binary).read(magic.data(), 4);
  return magic == "GGUF";
}

std::vector<fs::path> files_of(const fs::path& model) {
  const auto name = shard_name(model);
  if (!name) return {model};
  std::vector<fs::path> files;
  for (int i = 1; i <= name->count; ++i) files.push_back(name->at(model.parent_path(), i));
  return files;
}

}  // namespace quire::gguf
