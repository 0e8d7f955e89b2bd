#include "app/check/draft_golden.h"

#include <cstring>

#include "base/json.h"
#include "model/safetensors.h"

namespace quire {

namespace {

constexpr std::size_t kMaxGoldenBytes = 64u << 20;
constexpr IntRange kIds{0, 1 << 28};

DraftMethod method_of(const Json& root) {
  const std::string kind = root.need_text("kind");
  if (kind == "eagle") return DraftMethod::eagle;
  if (kind == "eagle3") return DraftMethod::eagle3;
  if (kind == "mtp") return DraftMethod::mtp;
  root.fail_at("kind", "must be eagle, eagle3 or mtp, is \"" + kind + "\"");
}

// Rows [index, …] of a float32 tensor of three dimensions.
std::vector<float> read_plane(const SafetensorsFile& file, const std::string& name,
                              std::size_t count, std::size_t index, std::size_t rows) {
  const auto it = file.tensors().find(name);
  if (it == file.tensors().end() || it->second.dtype != DType::f32 ||
      it->second.shape.size() != 3 || it->second.shape[0] != static_cast<std::int64_t>(count) ||
      it->second.shape[1] != static_cast<std::int64_t>(rows))
    throw Failure(ErrorCode::invalid_argument, file.path().string() + ": tensor \"" + name +
                                                   "\" must be float32 [" + std::to_string(count) +
                                                   ", " + std::to_string(rows) + ", vocabulary]");
  const std::size_t bytes = it->second.bytes / count;
  std::vector<float> plane(bytes / sizeof(float));
  std::memcpy(plane.data(), file.data(it->second) + index * bytes, bytes);
  return plane;
}

DraftCase read_case(const Json& fields, const SafetensorsFile& tensors, const std::string& name,
                    int num_drafts) {
  DraftCase one;
  one.tokens = fields.integers({"tokens"}, kIds);
  const auto lengths = fields.integers({"contexts"}, kIds);
  const auto drafts = fields.at("drafts").items(), gaps = fields.at("gap").items();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    DraftContext context{.length = lengths[i],
                         .drafts = {},
                         .gaps = {},
                         .logits = read_plane(tensors, name, lengths.size(), i,
                                              static_cast<std::size_t>(num_drafts))};
    for (const Json id : drafts[i].items())
      context.drafts.push_back(static_cast<TokenId>(id.as_integer(kIds)));
    for (const Json gap : gaps[i].items()) context.gaps.push_back(gap.as_number());
    one.contexts.push_back(std::move(context));
  }
  return one;
}

DraftLoop read_loop(const Json& fields) {
  DraftLoop loop;
  loop.num_drafts = fields.need_integer({"k"}, {1, 128});
  loop.prompt = fields.integers({"prompt"}, kIds);
  loop.output = fields.integers({"output"}, kIds);
  for (const Json step : fields.at("steps").items())
    loop.steps.push_back({.context = step.need_integer({"context"}, kIds),
                          .drafts = step.integers({"drafts"}, kIds),
                          .emitted = step.integers({"emitted"}, kIds)});
  loop.total_steps = fields.need_integer({"num_drafts"}, kIds);
  loop.total_drafts = fields.need_integer({"num_draft_tokens"}, kIds);
  loop.total_accepted = fields.need_integer({"num_accepted_tokens"}, kIds);
  return loop;
}

}  // namespace

bool is_draft_golden(const std::filesystem::path& directory) {
  return std::filesystem::exists(directory / "golden.json") &&
         std::filesystem::exists(directory / "target" / "config.json");
}

DraftGolden read_draft_golden(const std::filesystem::path& directory) {
  const JsonDocument document = JsonDocument::read(directory / "golden.json", kMaxGoldenBytes);
  const Json root = document.object();
  const SafetensorsFile tensors(directory / "golden.safetensors");
  DraftGolden golden;
  golden.name = root.text({"name"}).value_or(directory.filename().string());
  golden.target = directory / "target";
  golden.speculative.method = method_of(root);
  golden.speculative.num_speculative_tokens = root.need_integer({"k"}, {1, 128});
  if (golden.speculative.method != DraftMethod::mtp)
    golden.speculative.model = (directory / "draft").string();
  golden.atol = root.number({"atol"}).value_or(0.0);
  for (const Json fields : root.at("cases").items())
    golden.cases.push_back(read_case(fields, tensors,
                                     "case" + std::to_string(golden.cases.size()) + ".logits",
                                     golden.speculative.num_speculative_tokens));
  for (const Json fields : root.at("loops").items()) golden.loops.push_back(read_loop(fields));
  return golden;
}

}  // namespace quire
