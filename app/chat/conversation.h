#pragma once
// A conversation as it is sent, kept and saved: messages, the system prompt, and what the requests
// ask for besides.

#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <vector>

namespace quire {

struct ChatMessage {
  std::string role;  // user or assistant
  std::string content;
  std::string reasoning;  // shown and saved; not sent back
};

class Conversation {
 public:
  std::string model;
  std::string system;             // empty: none
  boost::json::object settings;   // members of the request, such as temperature
  std::vector<ChatMessage> messages;

  // The body of a request for the next answer.
  std::string request(bool stream) const;
  // Forgets the messages; system and settings stay.
  void clear() { messages.clear(); }
  // Takes the last answer back, so that the question stands last. False: there is none.
  bool take_back_answer();

  // As JSON. All throw Failure with what is wrong with the file.
  void save(const std::filesystem::path& file) const;
  void load(const std::filesystem::path& file);

  // A setting of the requests. Failure for a name that looks like another's slip; names that no
  // server of ours knows pass, as others have members of their own.
  void set(const std::string& name, std::string_view text);
  // What follows /set NAME: JSON where it is some, a string otherwise.
  static boost::json::value setting_of(std::string_view text);
};

}  // namespace quire
