#include "app/check/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/json.h"
#include "model/safetensors.h"

namespace quire {

namespace {

constexpr std::size_t kMaxGoldenBytes = 64u << 20;

std::vector<float> read_logits(const SafetensorsFile& file, const std::string& name,
                               std::size_t rows, int& vocab_size) {
  const auto it = file.tensors().find(name);
  if (it == file.tensors().end() || it->second.dtype != DType::f32 ||
      it->second.shape.size() != 2 || it->second.shape[0] != static_cast<std::int64_t>(rows)) {
    throw Failure(ErrorCode::invalid_argument, file.path().string() + ": tensor \"" + name +
                                                   "\" must be float32 [" + std::to_string(rows) +
                                                   ", vocabulary]");
  }
  vocab_size = static_cast<int>(it->second.shape[1]);
  std::vector<float> logits(it->second.bytes / sizeof(float));
  std::memcpy(logits.data(), file.data(it->second), it->second.bytes);
  return logits;
}

double log_sum_exp(std::span<const float> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float v : row) sum += std::exp(v - top);
  return top + std::log(sum);
}

}  // namespace

Golden read_golden(const std::filesystem::path& directory) {
  const auto json = directory / "golden.json";
  const JsonDocument document = JsonDocument::read(json, kMaxGoldenBytes);
  const Json root = document.object();
  const SafetensorsFile tensors(directory / "golden.safetensors");
  Golden golden;
  golden.name = root.text({"name"}).value_or(directory.filename().string());
  golden.atol = root.number({"atol"}).value_or(0.0);
  golden.kl_of_reference_bf16 = root.number({"kl_of_reference_bf16"}).value_or(0.0);
  constexpr IntRange kIds{0, 1 << 28};
  for (const Json fields : root.at("cases").items()) {
    const std::string at = "case" + std::to_string(golden.cases.size());
    GoldenCase one;
    one.prompt = fields.integers({"prompt"}, kIds);
    one.greedy = fields.integers({"greedy"}, kIds);
    one.greedy_gap = fields.numbers({"greedy_gap"}).value_or(std::vector<double>{});
    one.logits = read_logits(tensors, at + ".logits", one.prompt.size(), golden.vocab_size);
    golden.cases.push_back(std::move(one));
  }
  return golden;
}

LogitDistance distance(std::span<const float> logits, std::span<const float> reference,
                       int vocab_size) {
  const auto vocab = static_cast<std::size_t>(vocab_size);
  const std::size_t rows = reference.size() / vocab;
  LogitDistance out;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto p = reference.subspan(r * vocab, vocab), q = logits.subspan(r * vocab, vocab);
    const double p_norm = log_sum_exp(p), q_norm = log_sum_exp(q);
    double kl = 0;
    for (std::size_t i = 0; i < vocab; ++i) {
      const double difference = std::abs(double{p[i]} - double{q[i]});
      if (std::isnan(difference)) return {INFINITY, INFINITY};
      out.max_abs = std::max(out.max_abs, difference);
      kl += std::exp(p[i] - p_norm) * ((p[i] - p_norm) - (q[i] - q_norm));
    }
    out.mean_kl += kl / static_cast<double>(rows);
  }
  return out;
}

TokenId argmax(std::span<const float> row) {
  return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace quire
