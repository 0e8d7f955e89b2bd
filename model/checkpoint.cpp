#include "model/checkpoint.h"

#include <optional>
#include <regex>

#include "base/json.h"
#include "gguf/archive.h"
#include "model/gguf/tensors.h"

namespace quire {

namespace {

constexpr std::size_t kMaxIndexBytes = 256u << 20;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& message,
                       ErrorCode code = ErrorCode::invalid_argument) {
  throw Failure(code, file.string() + ": " + message);
}

// Where weights are there, and cannot be read.
void refuse_other_forms(const std::filesystem::path& directory) {
  for (const char* name : {kSingle, kIndex}) {
    if (!std::filesystem::is_symlink(directory / name)) continue;
    fail(directory / name,
         "is a link to " + std::filesystem::read_symlink(directory / name).string() +
             ", where there is nothing",
         ErrorCode::not_found);
  }
  if (std::filesystem::exists(directory / "adapter_config.json")) {
    fail(directory,
         "holds an adapter and no model's weights; merge it into its base model (peft's "
         "merge_and_unload) and serve that",
         ErrorCode::unsupported);
  }
  if (std::filesystem::exists(directory / "consolidated.safetensors")) {
    fail(directory,
         "has consolidated.safetensors, whose names are Mistral's own, and no model.safetensors; "
         "the repository's files in the form of transformers are read",
         ErrorCode::unsupported);
  }
  for (const char* name :
       {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"}) {
    if (!std::filesystem::exists(directory / name)) continue;
    fail(directory,
         std::string("has ") + name +
             " and no model.safetensors; pickles are not read, "
             "since they are programs. transformers' save_pretrained writes safetensors of it",
         ErrorCode::unsupported);
  }
}

// "model-00002-of-00003.safetensors" by its parts.
struct ShardName {
  std::string set;  // "model-*-of-00003.safetensors"
  int number = 0, total = 0;
};

std::optional<ShardName> parse_shard_name(const std::string& file) {
  static const std::regex kForm("(.*)-([0-9]{1,6})-of-([0-9]{1,6})\\.safetensors");
  std::smatch parts;
  if (file.starts_with("consolidated") || !std::regex_match(file, parts, kForm)) return {};
  return ShardName{.set = parts[1].str() + "-*-of-" + parts[3].str() + ".safetensors",
                   .number = std::stoi(parts[2]),
                   .total = std::stoi(parts[3])};
}

// Shards by the numbers in their names, for a folder without an index.
std::map<std::string, std::map<int, std::filesystem::path>> numbered_shards(
    const std::filesystem::path& directory) {
  std::map<std::string, std::map<int, std::filesystem::path>> sets;
  if (!std::filesystem::is_directory(directory)) return sets;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const auto name = parse_shard_name(entry.path().filename().string());
    if (!name) continue;
    const auto [other, is_first] = sets[name->set].emplace(name->number, entry.path());
    if (!is_first)
      fail(entry.path(), "has the number of " + other->second.filename().string() + " beside it");
  }
  return sets;
}

std::string named(std::string_view name) { return "tensor \"" + std::string(name) + "\""; }

}  // namespace

bool Checkpoint::is_in(const std::filesystem::path& model) {
  if (gguf::is_gguf(model)) return std::filesystem::exists(model);
  return std::filesystem::exists(model / kSingle) || std::filesystem::exists(model / kIndex) ||
         !numbered_shards(model).empty();
}

Checkpoint::Checkpoint(const std::filesystem::path& model) : directory_(model) {
  if (gguf::is_gguf(model)) {
    for (auto& file : open_gguf(model)) add(std::move(file));
  } else if (std::filesystem::exists(model / kSingle)) {
    add(std::make_unique<SafetensorsFile>(model / kSingle));
    if (std::filesystem::exists(model / kIndex))
      note_ = std::string(kSingle) + " is read, and not the shards of " + kIndex + " beside it";
  } else if (std::filesystem::exists(model / kIndex)) {
    open_shards();
  } else {
    open_numbered_shards();
  }
}

void Checkpoint::open_numbered_shards() {
  const auto sets = numbered_shards(directory_);
  if (sets.empty()) {
    refuse_other_forms(directory_);
    fail(directory_, "has neither model.safetensors nor model.safetensors.index.json",
         ErrorCode::not_found);
  }
  for (const auto& [set, shards] : sets) {
    const int total = parse_shard_name(shards.begin()->second.filename().string())->total;
    for (int i = 1; i <= total; ++i) {
      if (shards.contains(i)) continue;
      fail(directory_, "shard " + std::to_string(i) + " of " + set + " is missing",
           ErrorCode::not_found);
    }
    for (const auto& [number, path] : shards) add(std::make_unique<SafetensorsFile>(path));
  }
  if (doubts_.empty()) return;
  fail(directory_, doubts_.begin()->second);  // with no index to say which one counts
}

void Checkpoint::open_shards() {
  const auto index = directory_ / kIndex;
  const JsonDocument document = JsonDocument::read(index, kMaxIndexBytes);
  const auto names = document.object().at("weight_map").members();
  if (names.empty()) fail(index, "names no weights");
  std::set<std::string> shards;
  for (const auto& [name, file] : names) {
    const std::string_view shard = file.as_string();
    if (shard.find('/') != std::string_view::npos || shard == ".." || shard.empty()) {
      fail(index, named(name) + " is in \"" + std::string(shard) + "\", outside the directory");
    }
    shards.emplace(shard);
  }
  for (const std::string& shard : shards)
    add(std::make_unique<SafetensorsFile>(directory_ / shard));
  for (const auto& [name, file] : names) {
    const auto entry = tensors_.find(name);
    const std::string shard(file.as_string());
    if (entry == tensors_.end() || entry->second.file->path().filename() != shard)
      doubts_.emplace(name, named(name) + " is not in " + shard + ", which " + kIndex + " names");
  }
}

void Checkpoint::add(std::unique_ptr<TensorFile> file) {
  files_.push_back(std::move(file));
  for (const auto& [name, tensor] : files_.back()->tensors()) {
    if (!tensors_.emplace(name, Entry{files_.back().get(), &tensor}).second) {
      doubts_.emplace(name, named(name) + " is in " + files_.back()->path().filename().string() +
                                " and in another shard");
    }
  }
}

const Checkpoint::Entry* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  const auto doubt = doubts_.find(name);
  if (it != tensors_.end() && doubt != doubts_.end()) fail(directory_, doubt->second);
  if (it == tensors_.end()) return nullptr;
  const std::lock_guard lock(asked_mutex_);
  asked_.insert(it->first);
  return &it->second;
}

std::vector<std::string_view> Checkpoint::unasked() const {
  const std::lock_guard lock(asked_mutex_);
  std::vector<std::string_view> names;
  for (const auto& [name, entry] : tensors_) {
    if (!asked_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace quire
