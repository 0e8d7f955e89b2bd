#include "model/unused_tensors.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/error.h"
#include "model/architectures.h"

namespace quire {

namespace {

// Parts of other modules, and what training leaves behind.
constexpr std::string_view kOthers[] = {
    "vision",      "visual", "audio",      "image",          "multi_modal",
    "projector",   "mtp.",   "rotary_emb", "rotary_pos_emb", "position_ids",
    "masked_bias", "t2d",    "d2t"};
constexpr std::string_view kHeads[] = {"lm_head.", "score.", "classifier.",
                                       "pooler.",  "cls.",   "qa_outputs."};
constexpr std::string_view kScales[] = {"_scale", "_scale_inv", "_scales", "_zero_point",
                                        "_shape", ".g_idx",     ".qzeros", ".scales"};

bool holds(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// "….layers.7.…"; `end` is behind the number.
std::optional<int> layer_of(std::string_view name, std::size_t& end) {
  for (const std::string_view word : {"layers.", "layer."}) {
    const std::size_t at = name.find(word);
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) continue;
    int layer = 0;
    const char* begin = name.data() + at + word.size();
    const auto [rest, error] = std::from_chars(begin, name.data() + name.size(), layer);
    if (error != std::errc()) continue;
    end = static_cast<std::size_t>(rest - name.data());
    return layer;
  }
  return {};
}

bool is_zero(const Checkpoint::Entry& entry) {
  const std::byte* data = entry.file->data(*entry.tensor);
  return std::all_of(data, data + entry.tensor->bytes,
                     [](std::byte b) { return b == std::byte{0}; });
}

class Unused {
 public:
  Unused(const Checkpoint& checkpoint, const ModelConfig& config)
      : checkpoint_(checkpoint), config_(config) {
    const Architecture* architecture = find_architecture(config.architecture);
    pools_ = architecture != nullptr && architecture->task != PoolingTask::none;
  }

  std::string check() {
    for (const std::string_view name : checkpoint_.unasked()) look_at(name);
    if (left_.empty()) return "";
    std::string text = "the checkpoint has " + std::to_string(left_.size()) +
                       (left_.size() == 1 ? " tensor" : " tensors") +
                       " that the model does not read: ";
    constexpr std::size_t kNamed = 3;
    for (std::size_t i = 0; i < std::min(kNamed, left_.size()); ++i)
      text += (i == 0 ? "" : ", ") + std::string(left_[i]);
    return text + (left_.size() > kNamed ? ", …" : "");
  }

 private:
  [[noreturn]] void refuse(std::string_view name, const std::string& why) const {
    throw Failure(ErrorCode::unsupported, checkpoint_.directory().string() + ": tensor \"" +
                                              std::string(name) + "\" " + why);
  }

  bool harmless(std::string_view name) const {
    const auto in_name = [&](std::string_view part) { return holds(name, part); };
    const auto ends = [&](std::string_view part) { return name.ends_with(part); };
    if (std::ranges::any_of(kOthers, in_name) || std::ranges::any_of(kScales, ends)) return true;
    if (config_.tie_word_embeddings && holds(name, "lm_head.")) return true;
    return pools_ && std::ranges::any_of(kHeads, in_name);
  }

  // A layer behind the last that drafts tokens: DeepSeek's and GLM's.
  bool drafts(std::string_view name, std::size_t end) const {
    return checkpoint_.tensors().contains(std::string(name.substr(0, end)) + ".eh_proj.weight");
  }

  void look_at(std::string_view name) {
    if (holds(name, "lora_A") || holds(name, "lora_B"))
      refuse(name,
             "is an adapter's beside its base model; merge it (peft's merge_and_unload) and "
             "serve that");
    if (harmless(name)) return;
    std::size_t end = 0;
    const auto layer = layer_of(name, end);
    if (layer && *layer >= config_.num_layers) {
      if (drafts(name, end)) return;
      refuse(name, "is of layer " + std::to_string(*layer) + ", and num_hidden_layers of " +
                       config_.file.string() + " is " + std::to_string(config_.num_layers));
    }
    if (layer && name.ends_with(".weight"))
      refuse(name, "is a weight that layers of " + config_.architecture +
                       " as config.json describes them do not have");
    // Quantizers publish biases of zeros where the model has none.
    if (name.ends_with(".bias") && is_zero(checkpoint_.tensors().at(name))) return;
    left_.push_back(name);
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  bool pools_ = false;
  std::vector<std::string_view> left_;
};

}  // namespace

std::string check_unused(const Checkpoint& checkpoint, const ModelConfig& config) {
  return config.quant.method == "gguf" ? "" : Unused(checkpoint, config).check();
}

}  // namespace quire
