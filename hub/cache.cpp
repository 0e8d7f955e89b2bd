#include "hub/cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace quire::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxIndex = 256 << 20;
constexpr std::string_view kPrefix = "models--";

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Empty where there is no such file.
std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  if (!in && fs::exists(file))  // which throws where a folder is closed
    throw Failure(ErrorCode::unavailable, file.string() + ": cannot be read");
  std::string line;
  std::getline(in, line);
  return line;
}

// What is in a folder; nothing where there is none.
template <class Iterator>
Iterator entries_of(const fs::path& folder) {
  return fs::exists(folder) ? Iterator(folder) : Iterator();
}

// Of a repository's refs: revision and commit.
std::vector<std::pair<std::string, std::string>> refs_of(const fs::path& repo) {
  std::vector<std::pair<std::string, std::string>> refs;
  std::error_code error;
  for (const auto& entry : entries_of<fs::recursive_directory_iterator>(repo / "refs")) {
    if (!entry.is_regular_file(error)) continue;
    refs.emplace_back(entry.path().lexically_relative(repo / "refs").string(), first_line(entry));
  }
  return refs;
}

std::uintmax_t bytes_of(const fs::path& folder) {
  std::uintmax_t sum = 0;
  std::error_code error;
  for (const auto& entry : entries_of<fs::recursive_directory_iterator>(folder)) {
    const auto size = fs::file_size(entry.path(), error);
    if (!error && !entry.is_directory(error)) sum += size;
  }
  return sum;
}

}  // namespace

Cache Cache::of_environment() {
  if (const auto root = environment("HF_HUB_CACHE"); !root.empty()) return Cache(root);
  if (const auto home = environment("HF_HOME"); !home.empty()) return Cache(fs::path(home) / "hub");
  fs::path cache = environment("XDG_CACHE_HOME");
  if (cache.empty()) {
    const auto home = environment("HOME");
    if (home.empty()) {
      throw Failure(ErrorCode::invalid_argument,
                    "there is no place for models: set HF_HOME or HOME");
    }
    cache = fs::path(home) / ".cache";
  }
  return Cache(cache / "huggingface" / "hub");
}

fs::path Cache::folder_of(const std::string& repo) const {
  return root_ / (std::string(kPrefix) + replaced(repo, "/", "--"));
}
fs::path Cache::blob(const std::string& repo, const std::string& hash) const {
  return folder_of(repo) / "blobs" / hash;
}
fs::path Cache::lock_file(const std::string& repo, const std::string& hash) const {
  return root_ / ".locks" / folder_of(repo).filename() / (hash + ".lock");
}
fs::path Cache::snapshot(const std::string& repo, const std::string& commit) const {
  return folder_of(repo) / "snapshots" / commit;
}

std::optional<fs::path> Cache::find(const ModelName& name) const {
  const std::string commit = is_commit(name.revision)
                                 ? name.revision
                                 : first_line(folder_of(name.repo) / "refs" / name.revision);
  if (!is_commit(commit)) return std::nullopt;
  const fs::path folder = snapshot(name.repo, commit);
  if (!is_complete(folder)) return std::nullopt;
  return folder;
}

std::vector<CachedModel> Cache::list() const {
  std::vector<CachedModel> models;
  for (const auto& repo : entries_of<fs::directory_iterator>(root_)) {
    const std::string name = repo.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const auto refs = refs_of(repo.path());
    for (const auto& entry : entries_of<fs::directory_iterator>(repo.path() / "snapshots")) {
      CachedModel model;
      model.repo = replaced(name.substr(kPrefix.size()), "--", "/");
      model.commit = entry.path().filename().string();
      model.folder = entry.path();
      model.bytes = bytes_of(entry.path());
      model.complete = is_complete(entry.path());
      for (const auto& [revision, commit] : refs) {
        if (commit == model.commit) model.revisions.push_back(revision);
      }
      models.push_back(std::move(model));
    }
  }
  std::ranges::sort(models, {}, [](const CachedModel& m) { return std::pair(m.repo, m.commit); });
  return models;
}

void Cache::set_ref(const ModelName& name, const std::string& commit) const {
  if (is_commit(name.revision)) return;
  const fs::path file = folder_of(name.repo) / "refs" / name.revision;
  fs::create_directories(file.parent_path());
  const fs::path made = file.string() + ".new" + std::to_string(::getpid());
  std::ofstream(made) << commit;  // without a line end, as the Python library writes it
  fs::rename(made, file);
}

void Cache::link(const std::string& repo, const std::string& commit, const std::string& file,
                 const std::string& hash) const {
  const fs::path place = snapshot(repo, commit) / file;
  fs::create_directories(place.parent_path());
  const fs::path target = blob(repo, hash).lexically_relative(place.parent_path());
  std::error_code error;
  if (fs::read_symlink(place, error) == target) return;
  const fs::path made = place.string() + ".new" + std::to_string(::getpid());
  fs::remove(made, error);
  fs::create_symlink(target, made);
  fs::rename(made, place);
}

std::vector<std::string> shards_of(const fs::path& index) {
  const JsonDocument document = JsonDocument::read(index, kMaxIndex);
  std::set<std::string> names;
  for (const auto& [tensor, file] : document.object().at("weight_map").members()) {
    names.emplace(file.as_string());
  }
  for (const std::string& name : names) {
    if (!is_safe_path(name)) {
      throw Failure(ErrorCode::invalid_argument,
                    index.string() + ": names a file outside of the model");
    }
  }
  if (names.empty())
    throw Failure(ErrorCode::invalid_argument, index.string() + ": names no weights");
  return {names.begin(), names.end()};
}

std::vector<std::string> numbered_shards(const std::vector<std::string>& files) {
  static const std::regex kForm("([^/]*)-([0-9]{1,6})-of-([0-9]{1,6})\\.safetensors");
  std::vector<std::string> shards;
  std::map<std::pair<std::string, std::string>, std::set<int>>
      sets;  // by what is before and behind
  for (const std::string& file : files) {
    std::smatch parts;
    if (file.starts_with("consolidated") || !std::regex_match(file, parts, kForm)) continue;
    shards.push_back(file);
    sets[{parts[1], parts[3]}].insert(std::stoi(parts[2]));
  }
  const auto is_whole = [](const auto& set) {
    const auto total = std::stoul(set.first.second);
    return set.second.size() == total && *set.second.begin() == 1 &&
           *set.second.rbegin() == static_cast<int>(total);
  };
  return std::ranges::all_of(sets, is_whole) ? shards : std::vector<std::string>();
}

bool is_complete(const fs::path& folder) {
  if (!fs::exists(folder / "config.json")) return false;
  if (fs::exists(folder / "model.safetensors")) return true;
  const fs::path index = folder / "model.safetensors.index.json";
  if (!fs::exists(index)) {
    std::vector<std::string> files;
    for (const auto& entry : entries_of<fs::directory_iterator>(folder))
      if (fs::exists(entry)) files.push_back(entry.path().filename().string());
    return !numbered_shards(files).empty();
  }
  try {
    const auto shards = shards_of(index);
    return std::ranges::all_of(shards, [&](const auto& s) { return fs::exists(folder / s); });
  } catch (const Failure&) {
    return false;
  }
}

}  // namespace quire::hub
