#pragma once
// The tensors of a GGUF file under the names, in the order of rows and with the values of the
// checkpoint that it was converted from: as far as the header goes; what has to be done to the
// values is written beside each (GgufTensor).

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/safetensors.h"

namespace quire {

// A file for each shard. Throws Failure naming file, field and offset. Tensors that no published
// name is known for keep their own.
std::vector<std::unique_ptr<TensorFile>> open_gguf(const std::filesystem::path& path);

// "blk.0.attn_q.weight" of "model.layers.0.self_attn.q_proj.weight", for messages; the published
// name where the file's is not known.
std::string stored_name(const std::filesystem::path& path, const std::string& published);

}  // namespace quire
