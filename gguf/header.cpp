#include "gguf/header.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "gguf/printable.h"

namespace quire::gguf {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::size_t kMaxKeyBytes = 65535;
constexpr std::size_t kMaxTensorName = 1024;
constexpr std::uint32_t kMaxRank = 4;
constexpr std::uint64_t kMaxAlignment = 1 << 20;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::size_t kLeastPair = 8 + 4 + 1;            // a key, its type, one byte
constexpr std::size_t kLeastTensor = 8 + 4 + 8 + 4 + 8;  // name, rank, one extent, type, offset

class Reader {
 public:
  Reader(std::string_view file, const std::filesystem::path& path) : file_(file), path_(path) {}

  Header read() {
    check_start();
    Header header{.version = version_, .metadata = Metadata(path_), .tensors = {}};
    const std::uint64_t tensors = count("tensor_count", kLeastTensor);
    const std::uint64_t pairs = count("metadata_kv_count", kLeastPair);
    for (std::uint64_t i = 0; i < pairs; ++i) read_pair(header.metadata);
    for (std::uint64_t i = 0; i < tensors; ++i) header.tensors.push_back(read_tensor());
    place(header);
    return header;
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& message,
                         ErrorCode code = ErrorCode::invalid_argument) const {
    throw Failure(code, path_.string() + ": at byte " + std::to_string(offset) + ": " + message);
  }
  std::size_t left() const { return file_.size() - at_; }

  std::string_view take(std::uint64_t bytes, const std::string& what) {
    if (bytes > left()) {
      fail(at_, what + " needs " + std::to_string(bytes) + " bytes of the " +
                    std::to_string(left()) + " that are left; is the file truncated?");
    }
    at_ += bytes;
    return file_.substr(at_ - bytes, bytes);
  }

  template <class T>
  T number(const std::string& what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view text(std::size_t limit, const std::string& what) {
    const std::size_t offset = at_;
    const auto length = number<std::uint64_t>(what);
    if (length > limit) {
      fail(offset, what + " claims " + std::to_string(length) + " bytes, at most " +
                       std::to_string(limit));
    }
    return take(length, what);
  }

  void check_start() {
    if (!file_.starts_with(kMagic)) fail(0, "does not begin with \"GGUF\"");
    at_ = kMagic.size();
    version_ = number<std::uint32_t>("the version");
    if (version_ == 2 || version_ == 3) return;
    if (version_ > 0xffff) {
      fail(kMagic.size(), "the file is big-endian, only little-endian ones are supported",
           ErrorCode::unsupported);
    }
    fail(kMagic.size(), "version " + std::to_string(version_) + " is not supported (2, 3)",
         ErrorCode::unsupported);
  }

  std::uint64_t count(const std::string& field, std::size_t least) {
    const std::size_t offset = at_;
    const auto value = number<std::uint64_t>(field);
    if (value > left() / least) {
      fail(offset, field + " is " + std::to_string(value) + ", more than the " +
                       std::to_string(left()) + " bytes behind it can hold");
    }
    return value;
  }

  ValueType value_type(const std::string& key) {
    const std::size_t offset = at_;
    const auto type = number<std::uint32_t>("the type of " + key);
    if (type > static_cast<std::uint32_t>(ValueType::f64)) {
      fail(offset, "metadata " + key + " has unknown value type " + std::to_string(type),
           ErrorCode::unsupported);
    }
    return static_cast<ValueType>(type);
  }

  void read_pair(Metadata& metadata) {
    const std::size_t offset = at_;
    const std::string_view key = text(kMaxKeyBytes, "a metadata key");
    const std::string shown = printable(key);
    Value value;
    value.type = value_type(shown);
    value.offset = at_;
    if (value.type == ValueType::array) {
      value.is_array = true;
      value.type = value_type(shown);
      if (value.type == ValueType::array) {
        fail(value.offset, "metadata " + shown + ": arrays of arrays are not supported",
             ErrorCode::unsupported);
      }
      value.count = number<std::uint64_t>("the length of " + shown);
    }
    const std::size_t begin = at_;
    skip_items(value, shown);
    value.bytes = file_.substr(begin, at_ - begin);
    if (!metadata.add(key, value)) fail(offset, "metadata " + shown + " is there twice");
  }

  void skip_items(const Value& value, const std::string& key) {
    if (value.type == ValueType::string) {
      if (value.count > left() / sizeof(std::uint64_t)) too_many(value, key);
      for (std::uint64_t i = 0; i < value.count; ++i) text(left(), "a string of " + key);
      return;
    }
    const std::size_t size = size_of(value.type);
    if (value.count > left() / size) too_many(value, key);
    take(value.count * size, "metadata " + key);
  }

  [[noreturn]] void too_many(const Value& value, const std::string& key) const {
    fail(value.offset, "metadata " + key + " claims " + std::to_string(value.count) +
                           " items, more than the " + std::to_string(left()) +
                           " bytes behind it can hold");
  }

  TensorInfo read_tensor() {
    TensorInfo tensor;
    tensor.offset = at_;
    tensor.name = text(kMaxTensorName, "a tensor's name");
    const std::string shown = "tensor " + printable(tensor.name);
    const auto rank = number<std::uint32_t>(shown);
    if (rank < 1 || rank > kMaxRank) {
      fail(tensor.offset, shown + " has rank " + std::to_string(rank) + ", from 1 to 4");
    }
    for (std::uint32_t i = 0; i < rank; ++i) {
      const auto extent = number<std::uint64_t>(shown);
      if (extent < 1 || extent > std::uint64_t{1} << 48) {
        fail(tensor.offset, shown + " has an extent of " + std::to_string(extent));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(extent));
    }
    const auto type = number<std::uint32_t>(shown);
    tensor.type = find_block_type(type);
    if (tensor.type == nullptr) {
      fail(tensor.offset, shown + " has unknown type " + std::to_string(type),
           ErrorCode::unsupported);
    }
    tensor.begin = number<std::uint64_t>(shown);  // in the data, until place()
    measure(tensor, shown);
    return tensor;
  }

  void measure(TensorInfo& tensor, const std::string& shown) const {
    if (tensor.shape.back() % tensor.type->elements != 0) {
      fail(tensor.offset, shown + " has rows of " + std::to_string(tensor.shape.back()) +
                              " elements, not whole blocks of " +
                              std::to_string(tensor.type->elements) + " (" +
                              std::string(tensor.type->name) + ")");
    }
    auto bytes = static_cast<std::size_t>(tensor.type->bytes);
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      const std::int64_t extent = tensor.shape[i];
      const bool last = i + 1 == tensor.shape.size();
      const auto factor = static_cast<std::size_t>(last ? extent / tensor.type->elements : extent);
      if (__builtin_mul_overflow(bytes, factor, &bytes)) {
        fail(tensor.offset, shown + " is larger than any memory");
      }
    }
    tensor.bytes = bytes;
  }

  void place(Header& header) const {
    const auto alignment = static_cast<std::uint64_t>(
        header.metadata.integer("general.alignment", {1, kMaxAlignment}).value_or(kDefaultAlignment));
    if ((alignment & (alignment - 1)) != 0) {
      header.metadata.fail("general.alignment",
                           "must be a power of two, is " + std::to_string(alignment));
    }
    const std::size_t begin = (at_ + alignment - 1) / alignment * alignment;
    const std::size_t data = begin > file_.size() ? 0 : file_.size() - begin;
    for (TensorInfo& tensor : header.tensors) {
      const std::string shown = "tensor " + printable(tensor.name);
      if (tensor.begin > data || tensor.bytes > data - tensor.begin) {
        fail(tensor.offset, shown + " lies at [" + std::to_string(tensor.begin) + ", +" +
                                std::to_string(tensor.bytes) + ") of " + std::to_string(data) +
                                " bytes of data; is the file truncated?");
      }
      if (tensor.begin % alignment != 0) {
        fail(tensor.offset, shown + " begins at " + std::to_string(tensor.begin) +
                                ", not at a multiple of " + std::to_string(alignment));
      }
      tensor.begin += begin;
    }
    check_overlaps(header.tensors);
  }

  void check_overlaps(const std::vector<TensorInfo>& tensors) const {
    std::vector<const TensorInfo*> order;
    std::set<std::string_view> names;
    for (const TensorInfo& tensor : tensors) {
      order.push_back(&tensor);
      if (!names.insert(tensor.name).second) {
        fail(tensor.offset, "tensor " + printable(tensor.name) + " is there twice");
      }
    }
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return a->begin < b->begin; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->begin + order[i - 1]->bytes <= order[i]->begin) continue;
      fail(order[i]->offset, "tensors " + printable(order[i - 1]->name) + " and " +
                                 printable(order[i]->name) + " overlap");
    }
  }

  std::string_view file_;
  const std::filesystem::path& path_;
  std::size_t at_ = 0;
  std::uint32_t version_ = 0;
};

}  // namespace

Header parse_header(std::string_view file, const std::filesystem::path& path) {
  return Reader(file, path).read();
}

}  // namespace quire::gguf
