#include "app/serve/tokenizer_info.h"

#include <boost/json.hpp>
#include <filesystem>

#include "base/file.h"

namespace quire {

namespace {

constexpr std::size_t kMaxBytes = 64u << 20;

boost::json::object config_of(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return {};
  boost::json::parse_options options;
  options.allow_invalid_utf8 = true;
  boost::system::error_code error;
  const auto value = boost::json::parse(read_text_file(file, kMaxBytes), error, {}, options);
  return !error && value.is_object() ? value.get_object() : boost::json::object();
}

}  // namespace

std::string tokenizer_info(const std::string& model_dir,
                           const std::optional<ChatTemplate>& chat_template) {
  boost::json::object info = config_of(std::filesystem::path(model_dir) / "tokenizer_config.json");
  info.emplace("tokenizer_class", "PreTrainedTokenizerFast");  // unless it says one
  if (chat_template) info["chat_template"] = chat_template->source();
  return boost::json::serialize(info);
}

}  // namespace quire
