#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/json.h"

namespace quire {

namespace {

constexpr std::size_t kMaxHeaderBytes = 100u << 20;  // the reference implementation's limit
constexpr std::size_t kMaxRank = 8;

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& message,
                       ErrorCode code = ErrorCode::invalid_argument) {
  throw Failure(code, file.string() + ": " + message);
}

std::string named(std::string_view name) { return "tensor \"" + std::string(name) + "\""; }

struct StoredType {
  std::string_view name;
  std::size_t bits;
  std::optional<DType> dtype = {};
};

constexpr StoredType kStoredTypes[] = {
    {"F32", 32, DType::f32},
    {"BF16", 16, DType::bf16},
    {"F16", 16, DType::f16},
    {"I32", 32, DType::i32},
    {"I64", 64, DType::i64},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::i8},
    {"U32", 32, DType::u32},
    {"U64", 64, DType::u64},
    {"F8_E4M3", 8, DType::fp8_e4m3},
    // Vision parts and old buffers have these; as long as nobody asks for them they may be there.
    {"F64", 64},
    {"BOOL", 8},
    {"I16", 16},
    {"U16", 16},
    {"F8_E5M2", 8},
    {"F8_E8M0", 8},
    {"F4", 4},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6},
    {"C64", 64},
};

const StoredType& stored_type(std::string_view name, const std::string& tensor,
                              const std::filesystem::path& file) {
  for (const StoredType& type : kStoredTypes) {
    if (type.name == name) return type;
  }
  fail(file, named(tensor) + " has unknown dtype \"" + std::string(name) + "\"",
       ErrorCode::unsupported);
}

class HeaderReader {
 public:
  HeaderReader(std::size_t data_begin, std::size_t file_size, const std::filesystem::path& file)
      : data_begin_(data_begin), data_bytes_(file_size - data_begin), file_(file) {}

  StoredTensor read(const std::string& name, const Json& object) const {
    StoredTensor tensor;
    if (!object.is_object()) fail(file_, named(name) + " is not an object");
    const auto dtype = object.find({"dtype"});
    if (!dtype || !dtype->is_string()) fail(file_, named(name) + " has no dtype");
    const StoredType& type = stored_type(dtype->as_string(), name, file_);
    tensor.type = type.name;
    tensor.usable = type.dtype.has_value();
    tensor.dtype = type.dtype.value_or(DType::u8);
    tensor.shape = read_shape(name, object);
    tensor.bytes = bytes_of(name, tensor, type.bits);
    place(name, object, tensor, type.name);
    return tensor;
  }

 private:
  std::vector<std::int64_t> read_shape(const std::string& name, const Json& object) const {
    const auto sizes = object.find({"shape"});
    if (!sizes || !sizes->is_array()) fail(file_, named(name) + " has no shape");
    std::vector<std::int64_t> shape;
    for (const Json size : sizes->items()) {
      const auto n = size.whole_number();
      if (!n || *n < 0) fail(file_, named(name) + " has a shape that is not made of sizes");
      shape.push_back(*n);
    }
    if (shape.size() > kMaxRank) {
      fail(file_, named(name) + " has rank " + std::to_string(shape.size()) + ", at most " +
                      std::to_string(kMaxRank));
    }
    return shape;
  }

  // shape × dtype, refused where it overflows or ends within a byte.
  std::size_t bytes_of(const std::string& name, const StoredTensor& tensor,
                       std::size_t bits) const {
    for (const std::int64_t n : tensor.shape) {
      if (__builtin_mul_overflow(bits, static_cast<std::size_t>(n), &bits)) {
        fail(file_, named(name) + " has shape " + shape_text(tensor.shape) + ", beyond any memory");
      }
    }
    if (bits % 8 != 0) {
      fail(file_, named(name) + " has shape " + shape_text(tensor.shape) + ", " +
                      std::to_string(bits) + " bits, which are not whole bytes");
    }
    return bits / 8;
  }

  void place(const std::string& name, const Json& object, StoredTensor& tensor,
             std::string_view type) const {
    std::uint64_t at[2] = {};
    const auto offsets = object.find({"data_offsets"});
    bool two = offsets && offsets->is_array() && offsets->items().size() == 2;
    for (std::size_t i = 0; two && i < 2; ++i) {
      const auto offset = offsets->items()[i].whole_number();
      two = offset && *offset >= 0;
      if (two) at[i] = static_cast<std::uint64_t>(*offset);
    }
    if (!two) fail(file_, named(name) + " has no data_offsets [begin, end]");
    if (at[0] > at[1] || at[1] > data_bytes_) {
      fail(file_, named(name) + " lies at [" + std::to_string(at[0]) + ", " +
                      std::to_string(at[1]) + ") of " + std::to_string(data_bytes_) +
                      " bytes of data; is the file truncated?");
    }
    if (at[1] - at[0] != tensor.bytes) {
      fail(file_, named(name) + " has " + std::to_string(at[1] - at[0]) + " bytes, its shape " +
                      shape_text(tensor.shape) + " of " + std::string(type) + " needs " +
                      std::to_string(tensor.bytes));
    }
    tensor.begin = data_begin_ + at[0];
  }

  std::size_t data_begin_;
  std::size_t data_bytes_;
  const std::filesystem::path& file_;
};

void check_overlaps(const TensorTable& tensors, const std::filesystem::path& file) {
  std::vector<const TensorTable::value_type*> order;
  for (const auto& entry : tensors) {
    if (entry.second.bytes > 0) order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->second.begin < b->second.begin; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto& [before, first] = *order[i - 1];
    if (first.begin + first.bytes > order[i]->second.begin) {
      fail(file, named(before) + " and " + named(order[i]->first) + " overlap");
    }
  }
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t n : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(n);
  }
  return text + "]";
}

TensorTable parse_safetensors_header(std::string_view head, std::size_t file_size,
                                     const std::filesystem::path& file) {
  std::uint64_t length = 0;
  if (file_size < sizeof(length) || head.size() < sizeof(length)) {
    fail(file, "has " + std::to_string(file_size) + " bytes, too few for a safetensors header");
  }
  if (head.starts_with("version https://git-lfs")) {
    fail(file, "is a pointer of Git LFS, not the weights themselves: run `git lfs pull` in its "
               "folder, or `quire pull` the model");
  }
  std::memcpy(&length, head.data(), sizeof(length));
  if (length > kMaxHeaderBytes || length > file_size - sizeof(length) ||
      length > head.size() - sizeof(length)) {
    fail(file, "claims a header of " + std::to_string(length) + " bytes in a file of " +
                   std::to_string(file_size));
  }
  const JsonDocument header(std::string(head.substr(sizeof(length), length)), file);
  const HeaderReader reader(sizeof(length) + length, file_size, file);
  TensorTable tensors;
  for (const auto& [key, value] : header.object().members()) {
    if (key == "__metadata__") continue;
    const std::string name(key);
    if (!tensors.emplace(name, reader.read(name, value)).second) {
      fail(file, named(name) + " is listed twice");
    }
  }
  check_overlaps(tensors, file);
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : TensorFile(path) {
  tensors_ = parse_safetensors_header(
      {reinterpret_cast<const char*>(map().data()), map().size()}, map().size(), path);
}

}  // namespace quire
