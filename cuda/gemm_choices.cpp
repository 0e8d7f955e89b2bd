#include "cuda/gemm_choices.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace quire::cuda {
namespace {

constexpr std::string_view kMagic = "quire-products 2 ";
constexpr std::size_t kMostBytes = std::size_t{4} << 20;
constexpr std::size_t kHexDigits = 16;

// FNV-1a: a file that was cut or altered by accident is noticed.
std::uint64_t sum_of(std::string_view text) {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return sum;
}

std::string hex(std::uint64_t value) {
  char digits[kHexDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

bool take_hex(std::string_view& text, std::uint64_t& value) {
  if (text.size() < kHexDigits) return false;
  const auto end = text.data() + kHexDigits;
  if (std::from_chars(text.data(), end, value, 16).ptr != end) return false;
  text.remove_prefix(kHexDigits);
  return true;
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// "NVIDIA H200" → "NVIDIA-H200".
std::string file_name(std::string_view device) {
  std::string name = "products-";
  for (const char c : device) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    name += plain ? c : '-';
  }
  return name + ".txt";
}

std::string why(const char* what, const std::string& file) {
  return std::string(what) + " " + file + ": " + std::strerror(errno);
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

// The user's own file, whole; empty where there is none.
std::string read_own(const std::string& file, std::string& trouble) {
  const Descriptor at(open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (at.get() < 0) {
    if (errno != ENOENT && errno != ENOTDIR) trouble = why("cannot read", file);
    return "";
  }
  struct stat found {};
  if (fstat(at.get(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_uid != geteuid()) {
    trouble = file + " is not a file of this user";
    return "";
  }
  if (static_cast<std::size_t>(found.st_size) > kMostBytes) {
    trouble = file + " is too large";
    return "";
  }
  std::string text(static_cast<std::size_t>(found.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(at.get(), text.data() + done, text.size() - done);
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

bool write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(to, text.data(), text.size());
    if (done <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  return true;
}

// The folder and the one that it lies in, for this user alone where they are made.
void make_folder(const std::string& folder) {
  if (const std::size_t slash = folder.rfind('/'); slash != std::string::npos && slash != 0)
    mkdir(folder.substr(0, slash).c_str(), 0700);
  mkdir(folder.c_str(), 0700);
}

// Readers see the old file or the new one.
std::string replace(const std::string& folder, const std::string& file, std::string_view text) {
  make_folder(folder);
  std::string made = file + ".XXXXXX";
  const Descriptor to(mkostemp(made.data(), O_CLOEXEC));  // mode 0600
  if (to.get() < 0) return why("cannot write to", folder);
  std::string trouble;
  if (!write_all(to.get(), text) || fsync(to.get()) != 0) trouble = why("cannot write", made);
  if (trouble.empty() && std::rename(made.c_str(), file.c_str()) != 0)
    trouble = why("cannot replace", file);
  if (!trouble.empty()) unlink(made.c_str());
  return trouble;
}

}  // namespace

GemmChoices::GemmChoices(const std::string& folder, std::string_view device, std::string version)
    : folder_(folder),
      file_(folder.empty() ? "" : folder + "/" + file_name(device)),
      version_(std::move(version)),
      entries_(read(trouble_)) {}

std::optional<GemmChoice> GemmChoices::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional(found->second);
}

void GemmChoices::add(const std::string& key, const GemmChoice& choice) { added_[key] = choice; }

// A line for the sum of all behind it, one for the version, one for each choice.
GemmChoices::Entries GemmChoices::read(std::string& trouble) const {
  Entries entries;
  if (file_.empty()) return entries;
  const std::string whole = read_own(file_, trouble);
  if (whole.empty()) return entries;
  std::string_view text = whole, first = take_line(text);
  std::uint64_t sum = 0;
  const bool is_whole = first.starts_with(kMagic) &&
                        (first.remove_prefix(kMagic.size()), take_hex(first, sum)) &&
                        first.empty() && sum == sum_of(text);
  if (!is_whole) {
    trouble = file_ + " is damaged and was ignored";
    return entries;
  }
  if (take_line(text) != version_) return entries;  // of a former version
  while (!text.empty() && entries.size() < kMost) {
    std::string_view line = take_line(text);
    GemmChoice choice;
    bool good = true;
    for (std::uint64_t& word : choice) good = good && take_hex(line, word);
    if (good && line.size() > 1) entries.emplace(line.substr(1), choice);
  }
  return entries;
}

std::string GemmChoices::text() const {
  std::string body = version_ + "\n";
  for (const auto& [key, choice] : entries_) {
    for (const std::uint64_t word : choice) body += hex(word);
    body += " " + key + "\n";
  }
  return std::string(kMagic) + hex(sum_of(body)) + "\n" + body;
}

std::string GemmChoices::save() {
  if (file_.empty() || added_.empty()) return "";
  std::string ignored;
  entries_ = std::exchange(added_, {});
  for (const auto& entry : read(ignored))
    if (entries_.size() < kMost) entries_.insert(entry);
  return replace(folder_, file_, text());
}

}  // namespace quire::cuda
