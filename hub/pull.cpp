#include "hub/pull.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "hub/file_hash.h"

namespace quire::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kSingle = "model.safetensors";
constexpr std::size_t kReadSize = 1 << 20;

[[noreturn]] void fail_on(const fs::path& file, int number) {
  std::string what = file.string() + ": " + std::strerror(number);
  if (number == ENOSPC || number == EDQUOT) {
    what += "; make room, or set HF_HOME to a place on another disk; what is there is kept";
  }
  throw Failure(ErrorCode::internal, what);
}

class Descriptor {
 public:
  Descriptor(const fs::path& file, int flags)
      : file_(file), fd_(::open(file.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail_on(file, errno);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // Nobody else of this machine fetches the file; Python's library keeps to the same lock.
  void lock(const std::function<bool()>& stopped) {
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) fail_on(file_, errno);
      if (stopped && stopped()) throw Failure(ErrorCode::cancelled, "stopped");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t size = ::write(fd_, bytes.data(), bytes.size());
      if (size < 0 && errno != EINTR) fail_on(file_, errno);
      if (size > 0) bytes.remove_prefix(static_cast<std::size_t>(size));
    }
  }
  std::size_t read(std::span<char> buffer) {
    const ssize_t size = ::read(fd_, buffer.data(), buffer.size());
    if (size < 0) fail_on(file_, errno);
    return static_cast<std::size_t>(size);
  }
  void restart() {
    if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) fail_on(file_, errno);
  }
  void sync() {
    if (::fsync(fd_) != 0) fail_on(file_, errno);
  }

 private:
  fs::path file_;
  int fd_;
};

// What one pull works with.
struct Pulling {
  const Hub& hub;
  const Cache& cache;
  const ModelName& name;
  PullProgress& progress;
  std::string commit;
};

// Reads what an earlier try left; returns how much that is.
std::uint64_t take_up(Descriptor& part, FileHash& hash) {
  std::vector<char> buffer(kReadSize);
  std::uint64_t size = 0;
  while (const std::size_t read = part.read(buffer)) {
    hash.add({buffer.data(), read});
    size += read;
  }
  return size;
}

void fetch_into(const Pulling& pulling, const RepoFile& file, const fs::path& part_file) {
  Descriptor part(part_file, O_RDWR | O_CREAT);
  FileHash hash(file.is_large, file.size);
  std::uint64_t at = take_up(part, hash);
  const auto begin_anew = [&] {
    pulling.progress.present -= std::min(at, file.size);
    at = 0;
    part.restart();
    hash = FileHash(file.is_large, file.size);
  };
  pulling.progress.present += std::min(at, file.size);
  if (at > file.size) begin_anew();
  pulling.hub.read(pulling.name.repo, pulling.commit, file, at,
                   [&](std::uint64_t offset, std::string_view bytes) {
                     if (offset != at) begin_anew();
                     part.write(bytes);
                     hash.add(bytes);
                     at += bytes.size();
                     pulling.progress.present += bytes.size();
                     pulling.progress.received += bytes.size();
                   });
  part.sync();
  const std::string found = hash.hex();
  if (at == file.size && found == file.hash) return;
  begin_anew();
  throw Failure(ErrorCode::internal,
                file.path + ": what came is not what the model's page promises (hash " + found +
                    ", expected " + file.hash + "); it was thrown away, pull again");
}

void fetch(const Pulling& pulling, const RepoFile& file) {
  const std::string& repo = pulling.name.repo;
  const fs::path blob = pulling.cache.blob(repo, file.hash);
  const fs::path lock_file = pulling.cache.lock_file(repo, file.hash);
  fs::create_directories(blob.parent_path());
  fs::create_directories(lock_file.parent_path());
  Descriptor lock(lock_file, O_RDWR | O_CREAT);
  lock.lock(pulling.hub.options().patience.stopped);
  if (fs::exists(blob)) {
    pulling.progress.present += file.size;
  } else {
    const fs::path part = blob.string() + ".incomplete";
    fetch_into(pulling, file, part);
    fs::rename(part, blob);
  }
  pulling.cache.link(repo, pulling.commit, file.path, file.hash);
  ++pulling.progress.files_done;
}

// Bytes that are still to come.
std::uint64_t missing_bytes(const Pulling& pulling, const std::vector<RepoFile>& files) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (const RepoFile& file : files) {
    const fs::path blob = pulling.cache.blob(pulling.name.repo, file.hash);
    if (fs::exists(blob)) continue;
    const auto there = fs::file_size(blob.string() + ".incomplete", error);
    sum += file.size - std::min<std::uint64_t>(file.size, error ? 0 : there);
  }
  return sum;
}

void check_room(const Pulling& pulling, const std::vector<RepoFile>& files) {
  struct statvfs disk {};
  const fs::path folder = pulling.cache.folder_of(pulling.name.repo);
  fs::create_directories(folder);
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::uint64_t missing = missing_bytes(pulling, files);
  if (missing <= free) return;
  constexpr double kGib = 1 << 30;
  const auto gib = [](std::uint64_t bytes) {
    return std::to_string(static_cast<double>(bytes) / kGib).substr(0, 5) + " GiB";
  };
  throw Failure(ErrorCode::internal,
                pulling.name.text() + ": " + gib(missing) + " are still to come, and " +
                    pulling.cache.root().string() + " has " + gib(free) +
                    " left; make room, or set HF_HOME to a place on another disk");
}

// Several at a time, the largest first. The first failure ends the others.
void fetch_all(Pulling& pulling, std::vector<RepoFile> files, int parallel) {
  for (const RepoFile& file : files) pulling.progress.total += file.size;
  pulling.progress.files += static_cast<int>(files.size());
  check_room(pulling, files);
  std::ranges::sort(files, std::greater<>(), &RepoFile::size);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr failure;
  HubOptions options = pulling.hub.options();
  options.patience.stopped = [&failed, asked = options.patience.stopped] {
    return failed.load() || (asked && asked());
  };
  const Hub hub(options);
  const Pulling shared{hub, pulling.cache, pulling.name, pulling.progress, pulling.commit};
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < files.size() && !failed;) fetch(shared, files[i]);
    } catch (...) {
      const std::lock_guard guard(mutex);
      if (!failure) failure = std::current_exception();
      failed = true;
    }
  };
  {
    std::vector<std::jthread> threads;
    const auto count = std::min<std::size_t>(files.size(), static_cast<std::size_t>(parallel));
    for (std::size_t i = 0; i < count; ++i) threads.emplace_back(work);
  }
  if (failure) std::rethrow_exception(failure);
}

const RepoFile* find_file(const RepoInfo& info, std::string_view path) {
  const auto found = std::ranges::find(info.files, path, &RepoFile::path);
  return found == info.files.end() ? nullptr : &*found;
}

}  // namespace

bool is_needed(const std::string& path) {
  constexpr std::array<std::string_view, 11> kNames = {"config.json",
                                                       "generation_config.json",
                                                       "tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "chat_template.json",
                                                       "chat_template.jinja",
                                                       "quantize_config.json",
                                                       "quant_config.json",
                                                       kIndex};
  return std::ranges::find(kNames, path) != kNames.end() ||
         (path.starts_with("additional_chat_templates/") && path.ends_with(".jinja"));
}

namespace {

std::vector<std::string> shards_in(const RepoInfo& info, const fs::path& folder) {
  if (find_file(info, kIndex) != nullptr) return shards_of(folder / kIndex);
  std::vector<std::string> files;
  for (const RepoFile& file : info.files) files.push_back(file.path);
  return numbered_shards(files);
}

}  // namespace

std::vector<RepoFile> weights_of(const RepoInfo& info, const fs::path& folder) {
  if (const RepoFile* const single = find_file(info, kSingle)) return {*single};
  std::vector<RepoFile> weights;
  for (const std::string& shard : shards_in(info, folder)) {
    const RepoFile* const file = find_file(info, shard);
    if (file == nullptr) {
      throw Failure(ErrorCode::not_found,
                    shard + ": the model's index names it, and it is not there");
    }
    weights.push_back(*file);
  }
  return weights;
}

fs::path pull(const Hub& hub, const Cache& cache, const ModelName& name, const PullOptions& options,
              PullProgress& progress) {
  if (hub.options().offline) {
    if (const auto present = cache.find(name)) return *present;
    throw Failure(ErrorCode::unavailable,
                  name.text() + " is not in " + cache.root().string() +
                      ", or not all of it, and HF_HUB_OFFLINE says not to ask for it");
  }
  const RepoInfo info = hub.info(name);
  if (find_file(info, "config.json") == nullptr) {
    throw Failure(ErrorCode::unsupported, name.text() +
                                              " has no config.json: it is not a model in "
                                              "Hugging Face's format, or a part of one");
  }
  if (find_file(info, kIndex) == nullptr && weights_of(info, {}).empty()) {
    throw Failure(
        ErrorCode::unsupported,
        name.text() + " has no model.safetensors and no " + std::string(kIndex) +
            ", nor all of shards that are numbered: other formats (GGUF, PyTorch's) are not "
            "pulled");
  }
  Pulling pulling{hub, cache, name, progress, info.commit};
  std::vector<RepoFile> small;
  std::ranges::copy_if(info.files, std::back_inserter(small),
                       [](const RepoFile& file) { return is_needed(file.path); });
  fetch_all(pulling, small, options.parallel);
  const fs::path folder = cache.snapshot(name.repo, info.commit);
  fetch_all(pulling, weights_of(info, folder), options.parallel);
  cache.set_ref(name, info.commit);
  return folder;
}

}  // namespace quire::hub
