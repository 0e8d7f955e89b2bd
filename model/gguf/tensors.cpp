#include "model/gguf/tensors.h"

#include <algorithm>
#include <optional>

#include "gguf/archive.h"
#include "model/gguf/family.h"

namespace quire {

namespace {

class GgufFile final : public TensorFile {
 public:
  GgufFile(const std::filesystem::path& path, TensorTable table) : TensorFile(path) {
    tensors_ = std::move(table);
  }
};

// "blk.3.attn_q.weight" by its parts; without a block: layer −1.
struct StoredName {
  int layer = -1;
  std::string module, suffix;
};

std::optional<StoredName> parse_name(std::string_view name) {
  StoredName out;
  if (name.starts_with("blk.")) {
    name.remove_prefix(4);
    const std::size_t dot = name.find('.');
    if (dot == 0 || dot > 4) return {};
    out.layer = 0;
    for (const char c : name.substr(0, dot)) {
      if (c < '0' || c > '9') return {};
      out.layer = out.layer * 10 + (c - '0');
    }
    name.remove_prefix(dot + 1);
  }
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return {};
  out.module = name.substr(0, dot);
  out.suffix = name.substr(dot);
  return out;
}

StoredTensor plain_tensor(const gguf::TensorInfo& info) {
  StoredTensor tensor;
  tensor.usable = info.type->readable;
  tensor.shape = info.shape;
  tensor.begin = info.begin;
  tensor.bytes = info.bytes;
  tensor.dtype = info.type->type == gguf::BlockType::f16    ? DType::f16
                 : info.type->type == gguf::BlockType::bf16 ? DType::bf16
                                                            : DType::f32;
  tensor.gguf = GgufTensor{.type = info.type->type};
  return tensor;
}

// One published matrix for each of the matrices [rows, columns] that are stored as one tensor.
void add_experts(TensorTable& table, const std::string& prefix, const std::string& matrix,
                 const StoredTensor& all) {
  const auto count = all.shape.front();
  StoredTensor one = all;
  one.shape.erase(one.shape.begin());
  one.bytes = all.bytes / static_cast<std::size_t>(count);
  for (std::int64_t e = 0; e < count; ++e, one.begin += one.bytes) {
    table.emplace(prefix + std::to_string(e) + "." + matrix + ".weight", one);
  }
}

TensorTable published_table(const gguf::Header& header, const GgufFamily& family,
                            const gguf::Metadata& metadata) {
  TensorTable table;
  const RotatedHeads heads = rotated_heads(family, metadata);
  for (const gguf::TensorInfo& info : header.tensors) {
    StoredTensor tensor = plain_tensor(info);
    const auto name = parse_name(info.name);
    const std::string_view module = name ? published_module(family, name->module) : "";
    if (module.empty()) {
      table.emplace(std::string(info.name), tensor);
      continue;
    }
    const std::string root =
        name->layer < 0 ? "" : "model.layers." + std::to_string(name->layer) + ".";
    if (const auto star = module.find('*'); star != module.npos && tensor.shape.size() == 3) {
      add_experts(table, root + std::string(module.substr(0, star)),
                  std::string(module.substr(star + 2)), tensor);
      continue;
    }
    if (family.paired_rows && name->module == "attn_q") tensor.gguf->paired_heads = heads.queries;
    if (family.paired_rows && name->module == "attn_k") tensor.gguf->paired_heads = heads.keys;
    if (family.norms_plus_one && name->module.ends_with("norm")) tensor.gguf->added = 1.f;
    table.emplace(root + std::string(module) + name->suffix, tensor);
  }
  return table;
}

}  // namespace

std::string stored_name(const std::filesystem::path& path, const std::string& published) {
  constexpr std::string_view kLayers = "model.layers.", kExperts = "experts.";
  if (published.find('.') == published.npos) return published;
  const gguf::Archive archive(path);
  std::string block, module = published.substr(0, published.rfind('.'));
  if (module.starts_with(kLayers)) {
    const std::size_t dot = std::min(module.find('.', kLayers.size()), module.size() - 1);
    block = "blk." + module.substr(kLayers.size(), dot + 1 - kLayers.size());
    module = module.substr(dot + 1);
  }
  if (const auto at = module.find(kExperts); at != module.npos) {
    const std::size_t number = at + kExperts.size();
    module.replace(number, std::min(module.find('.', number), module.size()) - number, "*");
  }
  const std::string_view stored = stored_module(gguf_family(archive.metadata()), module);
  if (stored.empty()) return published;
  return block + std::string(stored) + published.substr(published.rfind('.'));
}

std::vector<std::unique_ptr<TensorFile>> open_gguf(const std::filesystem::path& path) {
  const gguf::Archive archive(path);
  const GgufFamily& family = gguf_family(archive.metadata());
  std::vector<std::unique_ptr<TensorFile>> files;
  for (const auto& shard : archive.shards()) {
    files.push_back(std::make_unique<GgufFile>(
        shard->path, published_table(shard->header, family, archive.metadata())));
  }
  return files;
}

}  // namespace quire
