#pragma once
// What an engine says of its keys and values before any of them travels. Engines whose layers store
// the same numbers can exchange them, whatever their blocks are.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "model/kv_spec.h"

namespace quire {

// A recurrent state: rows of the convolution's channels, then heads, each a matrix.
struct KvStateGeometry {
  StateForm form = StateForm::mamba2;
  int conv_rows = 0, conv_channels = 0, conv_element_bytes = 0;
  int heads = 0, head_rows = 0, head_columns = 0, element_bytes = 0;

  std::int64_t conv_bytes() const {
    return std::int64_t{conv_rows} * conv_channels * conv_element_bytes;
  }
  friend bool operator==(const KvStateGeometry&, const KvStateGeometry&) = default;
  using Fields = FieldList<&KvStateGeometry::form, &KvStateGeometry::conv_rows,
                           &KvStateGeometry::conv_channels, &KvStateGeometry::conv_element_bytes,
                           &KvStateGeometry::heads, &KvStateGeometry::head_rows,
                           &KvStateGeometry::head_columns, &KvStateGeometry::element_bytes>;
};

struct KvLayerGeometry {
  std::string name = {};
  KvKind kind = KvKind::full;
  std::string dtype = {};      // of keys and values, or of the states: "bfloat16+float32"
  int heads = 0;               // 0: states
  int head_size = 0;           // 0: states
  int planes = 1;              // 2: keys, then values
  std::int64_t row_bytes = 0;  // of one token in one plane; of a whole state
  int window = 0;              // tokens that it looks back at; 0: all
  int chunk = 0;               // tokens; 0: none
  int block_size = 0;          // tokens: what it keeps begins at a multiple
  float key_scale = 1.f, value_scale = 1.f;  // of an fp8 cache
  KvStateGeometry state = {};

  bool is_state() const { return kind == KvKind::mamba; }

  using Fields =
      FieldList<&KvLayerGeometry::name, &KvLayerGeometry::kind, &KvLayerGeometry::dtype,
                &KvLayerGeometry::heads, &KvLayerGeometry::head_size, &KvLayerGeometry::planes,
                &KvLayerGeometry::row_bytes, &KvLayerGeometry::window, &KvLayerGeometry::chunk,
                &KvLayerGeometry::block_size, &KvLayerGeometry::key_scale,
                &KvLayerGeometry::value_scale, &KvLayerGeometry::state>;
};

struct KvGeometry {
  std::string model_fingerprint = {};        // of weights, scales and dtype
  std::string draft_fingerprint = {};        // of a draft model's; empty: none
  std::vector<KvLayerGeometry> layers = {};  // the draft model's last

  bool has_states() const;

  using Fields = FieldList<&KvGeometry::model_fingerprint, &KvGeometry::draft_fingerprint,
                           &KvGeometry::layers>;
};

// block_size is the group's. Throws Failure for what cannot travel.
KvLayerGeometry layer_geometry(const LayerKvSpec& layer, int block_size);

// Why keys and values of `theirs` are of no use here, naming the field; empty: they are.
std::string geometry_difference(const KvGeometry& ours, const KvGeometry& theirs);

}  // namespace quire
