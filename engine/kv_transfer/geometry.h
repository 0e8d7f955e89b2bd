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

  bool is_state() const { return kind == KvKind::mamba; }

  using Fields =
      FieldList<&KvLayerGeometry::name, &KvLayerGeometry::kind, &KvLayerGeometry::dtype,
                &KvLayerGeometry::heads, &KvLayerGeometry::head_size, &KvLayerGeometry::planes,
                &KvLayerGeometry::row_bytes, &KvLayerGeometry::window, &KvLayerGeometry::chunk,
                &KvLayerGeometry::block_size>;
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
