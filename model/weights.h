#pragma once
// Weights by name, from a checkpoint's files to device memory: converted, fused, transposed and
// permuted on the way where the published layout is not the operators'. On a device whose memory is
// the host's, a tensor that needs none of that stays in the mapped file.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/group_pack.h"
#include "backend/ops_moe.h"
#include "model/checkpoint.h"
#include "model/fp8_weights.h"
#include "model/load_format.h"
#include "model/packed_weights.h"
#include "model/shard.h"

namespace quire {

using Shape = std::vector<std::int64_t>;

// A published tensor on its way into a (part of a) device tensor. As stored it is `batch` matrices
// [rows, cols]; what arrives are matrices of the picked rows, or, transposed, of the picked
// columns.
struct Source {
  std::string name;
  Shape shape;  // as published; anything else is refused
  std::int64_t batch = 1;
  std::int64_t row_width = 0;  // elements of a row; 0: the last extent
  bool transposed = false;
  std::vector<std::int64_t> pick = {};  // rows (transposed: columns) in order; empty: all
  Range depth = {};                     // transposed: only these rows; empty: all
  Range columns = {};                   // not transposed: only these of each row; empty: all
  Range matrices = {};                  // only these of the batch; empty: all
};

// What layers with these weights are there for, as far as it decides what their steps take.
struct ServedContext {
  DType cache_dtype = DType::f32;  // of keys and values
  int max_len = 0;                 // tokens; 0: not known
};

class Weights {
 public:
  // With `measure` names and shapes are checked and memory is allocated, but nothing is loaded: for
  // a MeasuringDevice. Files need not be there.
  Weights(const std::filesystem::path& model_dir, LoadFormat format, std::uint64_t seed,
          DType dtype, Device& device, std::optional<Fp8Config> fp8 = {}, bool measure = false,
          std::optional<PackedConfig> packed = {});

  const Checkpoint* checkpoint() const { return checkpoint_.get(); }  // null: dummy weights
  // Is the tensor published? Without files there are no alternatives: always false.
  bool has(const std::string& name) const;
  // A published tensor of one element; nothing where it is not published.
  std::optional<float> number(const std::string& name) const;

  // The published tensor, in the model's dtype (or `dtype`). What is published in fp8 is multiplied
  // by its scales unless `dtype` is fp8 as well.
  TensorView load(const std::string& name, Shape shape);
  TensorView load(const std::string& name, Shape shape, DType dtype);
  // Sources one after the other in memory, seen as `shape`.
  TensorView load(const std::vector<Source>& sources, const Shape& shape, DType dtype);

  // How the matrix stays packed in a product's weight, in the tiles of packed_format(); none where
  // it is loaded as plain numbers: in float32, and where nothing is packed. `shape`, as published,
  // is what there is to go by where sizes are measured before the files are there.
  std::optional<GroupFormat> groups_of(const std::string& name, const Shape& shape) const;
  WeightFormat packed_format() const {
    return device_.is_host_memory() ? WeightFormat::groups : WeightFormat::fragments;
  }
  // The rows of all sources, of that format, one after the other as `shape`, [.., rows, columns].
  Weight load_groups(const std::vector<Source>& sources, const Shape& shape,
                     const GroupFormat& format);

  // What the program computed itself; or computes, as rotary tables: `fill` writes all of it, in
  // host memory, unless sizes are only measured.
  TensorView put(const void* data, const Shape& shape, DType dtype);
  TensorView make(const Shape& shape, DType dtype, const std::function<void(std::byte*)>& fill);

  // Matrices of plain floats are rounded to 8 or 4 bits where groups_of() is asked; an embedding and
  // a head to 8 bits at least.
  void round_matrices(int bits) { round_bits_ = bits; }
  // The rank's share that layers load; before any of them is made.
  void divide(const Shard& shard) { shard_ = shard; }
  const Shard& shard() const { return shard_; }
  // Likewise.
  void serve(const ServedContext& served) { served_ = served; }
  const ServedContext& served() const { return served_; }
  // Called with the bytes of all tensors so far, after each tensor that a file gives.
  void on_progress(std::function<void(std::size_t)> report) { on_progress_ = std::move(report); }

  const Fp8Weights& fp8() const { return fp8_; }
  // What whoever runs this should know of how the weights are kept; once each.
  std::vector<std::string> notes() const;
  void note(std::string text);
  DType dtype() const { return dtype_; }
  std::size_t bytes() const { return bytes_; }                // of all that was loaded
  std::size_t mapped_bytes() const { return mapped_bytes_; }  // of them, what stays in the files

 private:
  const Checkpoint::Entry& find(const Source& source, DType dtype) const;
  void read(const Source& source, std::byte* out, DType dtype);
  void dequantize(const Source& source, std::byte* out, DType dtype) const;
  std::optional<GroupFormat> published_groups(const std::string& name) const;
  std::optional<GroupFormat> expected_groups(const std::string& name, const Shape& shape) const;
  // Bits that a plain matrix is rounded to; 0: it is not.
  int rounded_bits(const std::string& name) const;
  // Of what load_groups() takes.
  std::unique_ptr<RowReader> group_rows(const Source& source) const;
  // Null: the tensor is plain numbers.
  std::unique_ptr<RowReader> packed_rows(const Source& source) const;
  void unpack(const Source& source, const RowReader& rows, std::byte* out, DType dtype) const;
  std::int64_t packed_row_bytes(const GroupFormat& format, std::int64_t columns) const;
  // Rows of the source from `row` on; the row behind them.
  std::int64_t pack(const Source& source, const GroupFormat& format, std::int64_t row,
                    std::byte* tiles);
  void forget(const Source& source) const;
  TensorView mapped(const Source& source, const Shape& shape, DType dtype) const;
  TensorView allocate(const Shape& shape, DType dtype);
  void arrived(std::size_t bytes);

  std::unique_ptr<Checkpoint> checkpoint_;  // null: dummy weights, or none to measure
  bool measure_only_;
  bool dummy_;
  std::uint64_t seed_;
  Shard shard_;
  ServedContext served_;
  int round_bits_ = 0;  // 0: matrices stay as they are
  DType dtype_;
  Device& device_;
  Fp8Weights fp8_;
  PackedWeights packed_;
  std::vector<std::string> notes_;
  std::map<std::string, std::size_t> packed_bytes_;  // of groups, by how they are published
  std::vector<Buffer> buffers_;
  std::size_t bytes_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::size_t arrived_bytes_ = 0;
  std::function<void(std::size_t)> on_progress_;
};

// A published vector of n, or the picked elements of it; all where none are picked.
TensorView load_picked(Weights& weights, const std::string& name, std::int64_t n,
                       const std::vector<std::int64_t>& pick, DType dtype);

// A view with the extents of `shape`.
TensorView view_of(void* data, DType dtype, const Shape& shape);

}  // namespace quire
