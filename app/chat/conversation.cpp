#include "app/chat/conversation.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/nearest.h"
#include "openapi/chat_members.h"

namespace quire {

namespace {

namespace json = boost::json;

constexpr std::size_t kMaxFile = 64 << 20;

// Members of a request that a conversation fills in itself.
constexpr std::pair<std::string_view, std::string_view> kOwn[] = {
    {"messages", "they are the conversation; --load reads one"},
    {"model", "--model-name says which"},
    {"n", "a conversation goes on from one answer"},
    {"stream", "answers are shown as they come"},
    {"stream_options", "answers are shown as they come"},
};

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw Failure(ErrorCode::invalid_argument, file.string() + ": " + why);
}

std::string text_in(const json::object& object, std::string_view name) {
  const json::value* const found = object.if_contains(name);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

}  // namespace

void Conversation::set(const std::string& name, std::string_view text) {
  const auto own =
      std::ranges::find(kOwn, name, &std::pair<std::string_view, std::string_view>::first);
  if (own != std::end(kOwn)) {
    throw Failure(ErrorCode::invalid_argument,
                  name + " is not a setting here: " + std::string(own->second));
  }
  const std::vector<std::string_view> known = openapi::chat_members();
  if (std::ranges::find(known, name) == known.end()) {
    if (const auto near = nearest(name, known))
      throw Failure(ErrorCode::invalid_argument, "no setting \"" + name + "\". Did you mean " +
                                                     std::string(*near) + "?");
  }
  settings[name] = setting_of(text);
}

std::string Conversation::request(bool stream) const {
  json::object body = settings;
  json::array list;
  if (!system.empty()) list.push_back({{"role", "system"}, {"content", system}});
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  body["model"] = model;
  body["messages"] = std::move(list);
  body["stream"] = stream;
  if (stream) body["stream_options"] = {{"include_usage", true}};
  return json::serialize(body);
}

bool Conversation::take_back_answer() {
  if (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
  return !messages.empty();
}

void Conversation::save(const std::filesystem::path& file) const {
  json::array list;
  for (const ChatMessage& message : messages) {
    json::object one{{"role", message.role}, {"content", message.content}};
    if (!message.reasoning.empty()) one["reasoning"] = message.reasoning;
    list.push_back(std::move(one));
  }
  const json::object whole{
      {"model", model}, {"system", system}, {"settings", settings}, {"messages", std::move(list)}};
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << json::serialize(whole) << '\n';
  if (!out.flush()) refuse(file, std::string("cannot be written: ") + std::strerror(errno));
}

void Conversation::load(const std::filesystem::path& file) {
  boost::system::error_code wrong;
  const json::value whole = json::parse(read_text_file(file, kMaxFile), wrong);
  if (wrong) refuse(file, "is not JSON: " + wrong.message());
  if (!whole.is_object()) refuse(file, "is not a conversation that was saved here");
  const json::object& object = whole.get_object();
  const json::value* const list = object.if_contains("messages");
  if (list == nullptr || !list->is_array()) refuse(file, "has no list of messages");
  Conversation loaded;
  loaded.model = model;
  loaded.system = text_in(object, "system");
  for (const json::value& one : list->get_array()) {
    if (!one.is_object()) refuse(file, "has a message that is not an object");
    const std::string role = text_in(one.get_object(), "role");
    if (role != "user" && role != "assistant") refuse(file, "has a message of the role \"" + role + "\"");
    loaded.messages.push_back(
        {role, text_in(one.get_object(), "content"), text_in(one.get_object(), "reasoning")});
  }
  const json::value* const kept = object.if_contains("settings");
  if (kept != nullptr && kept->is_object()) loaded.settings = kept->get_object();
  *this = std::move(loaded);
}

json::value Conversation::setting_of(std::string_view text) {
  boost::system::error_code wrong;
  json::value value = json::parse(text, wrong);
  return wrong ? json::value(json::string(text)) : value;
}

}  // namespace quire
