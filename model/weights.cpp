#include "model/weights.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "backend/dispatch.h"
#include "gguf/archive.h"
#include "model/delivery.h"
#include "model/gguf/tensors.h"
#include "model/gguf/values.h"
#include "model/loader_threads.h"
#include "model/random_weights.h"

namespace quire {

namespace {

constexpr std::int64_t kRowsOfAPiece = 64;  // worth a thread

// Sizes can be asked for before the weights are there.
std::unique_ptr<Checkpoint> open_checkpoint(const std::filesystem::path& model_dir,
                                            LoadFormat format, bool measure) {
  if (format == LoadFormat::dummy) return nullptr;
  if (measure && !Checkpoint::is_in(model_dir)) return nullptr;
  return std::make_unique<Checkpoint>(model_dir);
}

}  // namespace

TensorView view_of(void* data, DType dtype, const Shape& shape) {
  switch (shape.size()) {
    case 1:
      return {data, dtype, {shape[0]}};
    case 2:
      return {data, dtype, {shape[0], shape[1]}};
    case 3:
      return {data, dtype, {shape[0], shape[1], shape[2]}};
    case 4:
      return {data, dtype, {shape[0], shape[1], shape[2], shape[3]}};
    default:
      throw Failure(ErrorCode::internal, "no view of shape " + shape_text(shape));
  }
}

Weights::Weights(const std::filesystem::path& model_dir, LoadFormat format, std::uint64_t seed,
                 DType dtype, Device& device, std::optional<Fp8Config> fp8, bool measure,
                 std::optional<PackedConfig> packed)
    : checkpoint_(open_checkpoint(model_dir, format, measure)),
      measure_only_(measure),
      dummy_(format == LoadFormat::dummy),
      seed_(seed),
      dtype_(dtype),
      device_(device),
      fp8_(checkpoint_.get(), std::move(fp8)),
      packed_(checkpoint_.get(), std::move(packed)) {
  if (checkpoint_ != nullptr && !checkpoint_->note().empty()) note(checkpoint_->note());
  if (checkpoint_ == nullptr || checkpoint_->doubts().empty()) return;
  const auto& doubts = checkpoint_->doubts();
  note("the checkpoint's index is wrong about " + std::to_string(doubts.size()) +
       " tensors that the model does not need: " + doubts.begin()->second);
}

// A vector is one row: its elements are columns.
TensorView load_picked(Weights& weights, const std::string& name, std::int64_t n,
                       const std::vector<std::int64_t>& pick, DType dtype) {
  const std::int64_t wanted = pick.empty() ? n : static_cast<std::int64_t>(pick.size());
  return weights.load({{.name = name, .shape = {n}, .transposed = !pick.empty(), .pick = pick}},
                      {wanted}, dtype);
}

void Weights::note(std::string text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) {
    notes_.push_back(std::move(text));
  }
}

std::vector<std::string> Weights::notes() const {
  std::vector<std::string> all = notes_;
  std::string packed;
  for (const auto& [type, bytes] : packed_bytes_) {
    packed += (packed.empty() ? "" : ", ") + type + " " + std::to_string(bytes >> 10) + " KiB";
  }
  if (!packed.empty()) {
    all.push_back(
        "packed weights stay packed, " + packed +
        (device_.is_host_memory() ? "; products with them round their input to 8 bits" : ""));
  }
  return all;
}

bool Weights::has(const std::string& name) const {
  return checkpoint_ != nullptr && (checkpoint_->find(name) != nullptr || packed_.has(name));
}

std::optional<float> Weights::number(const std::string& name) const {
  if (!has(name) || packed_.has(name)) return {};
  const StoredTensor& tensor = *checkpoint_->find(name)->tensor;
  if (product(tensor.shape) != 1 || !tensor.usable || !is_float(tensor.dtype)) {
    throw Failure(ErrorCode::unsupported, checkpoint_->directory().string() + ": tensor \"" + name +
                                              "\" has shape " + shape_text(tensor.shape) +
                                              ", expected one floating-point number");
  }
  const std::byte* data = checkpoint_->find(name)->file->data(tensor);
  return dispatch_float(tensor.dtype, [&]<class T>(Type<T>) {
    T value;
    std::memcpy(&value, data, sizeof value);
    return static_cast<float>(value);
  });
}

TensorView Weights::load(const std::string& name, Shape shape) {
  return load(name, std::move(shape), dtype_);
}

TensorView Weights::load(const std::string& name, Shape shape, DType dtype) {
  return load({Source{.name = name, .shape = shape}}, shape, dtype);
}

TensorView Weights::load(const std::vector<Source>& sources, const Shape& shape, DType dtype) {
  std::int64_t total = 0;
  for (const Source& source : sources) check_extents(source);
  for (const Source& source : sources) total += delivered(source);
  if (total != product(shape)) {
    throw Failure(ErrorCode::internal, sources.front().name + ": " + std::to_string(total) +
                                           " elements do not make " + shape_text(shape));
  }
  if (measure_only_ && checkpoint_ != nullptr) {
    for (const Source& source : sources) {
      if (packed_rows(source) == nullptr) find(source, dtype);
    }
  }
  if (checkpoint_ != nullptr && sources.size() == 1) {
    if (const TensorView view = mapped(sources.front(), shape, dtype); !view.empty()) {
      bytes_ += view.bytes();
      mapped_bytes_ += view.bytes();
      arrived(view.bytes());
      return view;
    }
  }
  return make(shape, dtype, [&](std::byte* host) {
    for (const Source& source : sources) {
      read(source, host, dtype);
      const std::size_t bytes = static_cast<std::size_t>(delivered(source)) * size_of(dtype);
      host += bytes;
      arrived(bytes);
    }
  });
}

TensorView Weights::put(const void* data, const Shape& shape, DType dtype) {
  const std::size_t bytes = view_of(nullptr, dtype, shape).bytes();
  return make(shape, dtype, [&](std::byte* out) { std::memcpy(out, data, bytes); });
}

TensorView Weights::make(const Shape& shape, DType dtype,
                         const std::function<void(std::byte*)>& fill) {
  const TensorView out = allocate(shape, dtype);
  if (measure_only_) return out;
  if (device_.is_host_memory()) {
    fill(static_cast<std::byte*>(out.data()));
    return out;
  }
  std::vector<std::byte> staging(out.bytes());
  fill(staging.data());
  device_.copy(out.data(), staging.data(), out.bytes(), device_.stream());
  device_.synchronize(device_.stream());
  return out;
}

void Weights::arrived(std::size_t bytes) {
  arrived_bytes_ += bytes;
  if (on_progress_) on_progress_(arrived_bytes_);
}

TensorView Weights::allocate(const Shape& shape, DType dtype) {
  const TensorView shape_only = view_of(nullptr, dtype, shape);
  buffers_.push_back(
      device_.allocate(std::max<std::size_t>(shape_only.bytes(), 1), MemoryPurpose::weights));
  bytes_ += shape_only.bytes();
  return view_of(buffers_.back().data(), dtype, shape);
}

const Checkpoint::Entry& Weights::find(const Source& source, DType dtype) const {
  const Checkpoint::Entry* entry = checkpoint_->find(source.name);
  if (entry == nullptr) {
    const auto& model = checkpoint_->directory();
    throw Failure(ErrorCode::invalid_argument,
                  model.string() + ": tensor \"" +
                      (gguf::is_gguf(model) ? stored_name(model, source.name) : source.name) +
                      "\" is missing, expected with shape " + shape_text(source.shape));
  }
  const std::string where = entry->file->path().string() + ": tensor \"" + source.name + "\" ";
  if (entry->tensor->shape != source.shape) {
    throw Failure(ErrorCode::invalid_argument, where + "has shape " +
                                                   shape_text(entry->tensor->shape) +
                                                   ", expected " + shape_text(source.shape));
  }
  if (!entry->tensor->usable) {
    const auto& gguf = entry->tensor->gguf;
    throw Failure(ErrorCode::unsupported,
                  where + "is stored as " +
                      std::string(gguf ? gguf::info_of(gguf->type).name : entry->tensor->type) +
                      ", which is not supported (" +
                      std::string(gguf ? gguf::readable_block_types() : "F32, BF16, F16") + ")");
  }
  const DType stored = entry->tensor->dtype;
  const bool scaled = stored == DType::fp8_e4m3 && is_float(dtype) && fp8_.has(source.name);
  if (stored != dtype && !scaled && !(is_float(stored) && is_float(dtype))) {
    throw Failure(ErrorCode::unsupported, where + "is stored as " + std::string(name_of(stored)) +
                                              ", which cannot be used as " +
                                              std::string(name_of(dtype)));
  }
  return *entry;
}

std::unique_ptr<RowReader> Weights::packed_rows(const Source& source) const {
  if (packed_.has(source.name)) {
    if (source.shape.size() != 2) {
      throw Failure(ErrorCode::unsupported,
                    "tensor \"" + source.name + "\" of shape " + shape_text(source.shape) +
                        ": only matrices are supported as packed integers");
    }
    return packed_.open(source.name, source.shape[0], source.shape[1]);
  }
  const Checkpoint::Entry* entry = checkpoint_->find(source.name);
  if (entry == nullptr || !entry->tensor->gguf || is_as_published(*entry->tensor->gguf)) return {};
  find(source, DType::f32);
  return std::make_unique<GgufValues>(*entry->tensor, entry->file->data(*entry->tensor));
}

// Its pages are not needed any more.
void Weights::forget(const Source& source) const {
  const Checkpoint::Entry* entry = checkpoint_->find(source.name);
  if (entry != nullptr) {
    entry->file->map().forget(entry->file->data(*entry->tensor), entry->tensor->bytes);
  }
}

TensorView Weights::mapped(const Source& source, const Shape& shape, DType dtype) const {
  if (packed_rows(source) != nullptr) return {};
  const Checkpoint::Entry& entry = find(source, dtype);
  const std::byte* data = entry.file->data(*entry.tensor);
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0;
  if (!device_.is_host_memory() || !aligned || entry.tensor->dtype != dtype ||
      !as_published(source)) {
    return {};
  }
  // Operators take weights as views of mutable memory but only read them; the mapping is read-only.
  const auto skipped = static_cast<std::size_t>(picked_row(source) * matrix_of(source).cols);
  return view_of(const_cast<std::byte*>(data) + skipped * size_of(dtype), dtype, shape);
}

void Weights::read(const Source& source, std::byte* out, DType dtype) {
  if (checkpoint_ == nullptr) return fill_random(source, out, dtype, seed_);
  if (const auto rows = is_float(dtype) ? packed_rows(source) : nullptr) {
    return unpack(source, *rows, out, dtype);
  }
  const Checkpoint::Entry& entry = find(source, dtype);
  if (is_float(dtype) && !is_float(entry.tensor->dtype)) return dequantize(source, out, dtype);
  const std::byte* in = entry.file->data(*entry.tensor);
  std::vector<std::byte> aligned;
  if (reinterpret_cast<std::uintptr_t>(in) % size_of(entry.tensor->dtype) != 0) {
    aligned.assign(in, in + entry.tensor->bytes);
    in = aligned.data();
  }
  if (!is_float(dtype)) {
    assert(size_of(dtype) == 1);
    deliver(source, reinterpret_cast<std::uint8_t*>(out),
            reinterpret_cast<const std::uint8_t*>(in));
  } else {
    dispatch_float(dtype, [&]<class To>(Type<To>) {
      dispatch_float(entry.tensor->dtype, [&]<class From>(Type<From>) {
        deliver(source, reinterpret_cast<To*>(out), reinterpret_cast<const From*>(in));
      });
    });
    if (dtype == DType::f16 && entry.tensor->dtype != dtype) refuse_infinities(source, out);
  }
  if (aligned.empty()) entry.file->map().forget(in, entry.tensor->bytes);
}

// Row by row: a matrix in float32 may be many times what it is packed into.
void Weights::unpack(const Source& source, const RowReader& values, std::byte* out,
                     DType dtype) const {
  dispatch_float(dtype, [&]<class To>(Type<To>) {
    auto* to = reinterpret_cast<To*>(out);
    if (source.shape.size() < 2 || source.transposed || source.batch > 1) {
      const std::vector<float> all = values.all();
      return deliver(source, to, all.data());
    }
    const auto [rows, cols] = matrix_of(source);
    const auto count = source.pick.empty() ? rows : static_cast<std::int64_t>(source.pick.size());
    const std::int64_t width = cols;
    const Range taken = columns_of(source);
    for_rows_in_parallel(count, kRowsOfAPiece, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> row(static_cast<std::size_t>(width));
      for (std::int64_t i = begin; i < end; ++i) {
        values.row(source.pick.empty() ? i : source.pick[static_cast<std::size_t>(i)], row.data());
        convert_row(to + i * taken.size(), row.data() + taken.begin, taken.size());
      }
    });
  });
  if (dtype == DType::f16) refuse_infinities(source, out);
  forget(source);
}

void Weights::dequantize(const Source& source, std::byte* out, DType dtype) const {
  if (source.shape.size() != 2) {
    throw Failure(ErrorCode::unsupported, "tensor \"" + source.name + "\" of shape " +
                                              shape_text(source.shape) +
                                              ": only matrices are supported in fp8");
  }
  const std::vector<float> values = fp8_.dequantized(source.name, source.shape[0], source.shape[1]);
  dispatch_float(dtype, [&]<class To>(Type<To>) {
    deliver(source, reinterpret_cast<To*>(out), values.data());
  });
  if (dtype == DType::f16) refuse_infinities(source, out);
}

}  // namespace quire
