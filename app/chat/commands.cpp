// What a line that begins with a slash does.

#include <fmt/format.h>

#include <array>

#include "app/chat/session.h"
#include "base/error.h"
#include "base/nearest.h"

namespace quire {

namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

struct ChatSession::Command {
  std::string_view name, arguments, what;
  bool (*run)(ChatSession&, const std::string& rest);  // false: the end
};

const std::vector<ChatSession::Command>& ChatSession::commands() {
  static const std::vector<Command> kCommands = {
      {"help", "", "this list",
       [](ChatSession& chat, const std::string&) { return chat.print_help(), true; }},
      {"system", "[TEXT]", "set the system prompt; without a text, remove it",
       [](ChatSession& chat, const std::string& rest) {
         chat.conversation_.system = rest;
         chat.terminal_.note(rest.empty() ? "no system prompt" : "system prompt set");
         return true;
       }},
      {"clear", "", "forget what was said; system prompt and settings stay",
       [](ChatSession& chat, const std::string&) {
         chat.conversation_.clear();
         chat.terminal_.note("a new conversation");
         return true;
       }},
      {"retry", "", "ask the last question again",
       [](ChatSession& chat, const std::string&) {
         if (chat.conversation_.take_back_answer()) return chat.answer(), true;
         chat.terminal_.error("nothing was asked yet");
         return true;
       }},
      {"set", "[NAME VALUE]", "a member of the requests, such as temperature 0.2; without, list them",
       [](ChatSession& chat, const std::string& rest) { return chat.set(rest); }},
      {"unset", "NAME", "leave it to the server again",
       [](ChatSession& chat, const std::string& rest) {
         if (chat.conversation_.settings.erase(rest) == 0) chat.terminal_.error(rest + " is not set");
         return true;
       }},
      {"thinking", "on|off", "show the model's reasoning, or keep it to oneself",
       [](ChatSession& chat, const std::string& rest) {
         if (rest == "on" || rest == "off") {
           chat.show_reasoning = rest == "on";
         } else {
           chat.terminal_.error("/thinking on or /thinking off");
         }
         return true;
       }},
      {"model", "[NAME]", "talk to another model of the server; without a name, list them",
       [](ChatSession& chat, const std::string& rest) { return chat.show_model(rest); }},
      {"history", "", "all that was said",
       [](ChatSession& chat, const std::string&) { return chat.print_history(), true; }},
      {"save", "FILE", "write the conversation as JSON",
       [](ChatSession& chat, const std::string& rest) {
         if (rest.empty()) return chat.terminal_.error("/save FILE"), true;
         chat.conversation_.save(rest);
         chat.terminal_.note("saved to " + rest);
         return true;
       }},
      {"load", "FILE", "go on with one that was saved",
       [](ChatSession& chat, const std::string& rest) {
         if (rest.empty()) return chat.terminal_.error("/load FILE"), true;
         chat.conversation_.load(rest);
         chat.terminal_.note(fmt::format("{} messages", chat.conversation_.messages.size()));
         return true;
       }},
      {"exit", "", "end; so does Ctrl-D", [](ChatSession&, const std::string&) { return false; }},
  };
  return kCommands;
}

bool ChatSession::command(std::string_view line) {
  line.remove_prefix(1);
  const std::size_t space = line.find_first_of(" \t\n");
  std::string_view name = line.substr(0, space);
  if (name == "quit" || name == "bye") name = "exit";
  const std::string rest(trimmed(space == line.npos ? "" : line.substr(space)));
  std::vector<std::string_view> names;
  for (const Command& command : commands()) {
    names.push_back(command.name);
    if (command.name != name) continue;
    try {
      return command.run(*this, rest);
    } catch (const Failure& failure) {
      terminal_.error(failure.what());
      return true;
    }
  }
  const auto near = nearest(name, names);
  terminal_.error(fmt::format("no command /{}; {}", name,
                              near ? fmt::format("did you mean /{}?", *near)
                                   : "/help lists them; a message may begin with a space"));
  return true;
}

void ChatSession::print_help() {
  std::string text;
  for (const Command& command : commands()) {
    text += fmt::format("  {:<20} {}\n", fmt::format("/{} {}", command.name, command.arguments),
                        command.what);
  }
  text += "A line that ends in \\ goes on in the next; \"\"\" begins and ends a message of several "
          "lines.\nCtrl-C stops an answer.\n";
  terminal_.print(text);
}

bool ChatSession::set(const std::string& rest) {
  auto& settings = conversation_.settings;
  const std::size_t space = rest.find(' ');
  if (rest.empty()) {
    if (settings.empty()) terminal_.print("nothing is set: the server's defaults hold\n");
    for (const auto& one : settings) {
      terminal_.print(fmt::format("  {} = {}\n", std::string(one.key()), boost::json::serialize(one.value())));
    }
    return true;
  }
  const std::string name = rest.substr(0, space);
  constexpr std::array<std::string_view, 5> kOurs = {"messages", "model", "stream", "stream_options", "n"};
  if (std::ranges::find(kOurs, name) != kOurs.end()) {
    terminal_.error(name + " is made by the conversation itself");
  } else if (space == rest.npos) {
    terminal_.error("/set NAME VALUE, such as /set temperature 0.2");
  } else {
    conversation_.set(name, trimmed(std::string_view(rest).substr(space)));
  }
  return true;
}

bool ChatSession::show_model(const std::string& name) {
  const auto names = models();
  if (name.empty()) {
    for (const std::string& one : names) {
      terminal_.print((one == conversation_.model ? "* " : "  ") + one + "\n");
    }
  } else if (std::ranges::find(names, name) == names.end()) {
    terminal_.error("the server has no model " + name);
  } else {
    conversation_.model = name;
  }
  return true;
}

void ChatSession::print_history() {
  if (!conversation_.system.empty()) terminal_.print("[system] " + conversation_.system + "\n");
  for (const ChatMessage& message : conversation_.messages) {
    if (!message.reasoning.empty() && show_reasoning) {
      terminal_.print("[thinking] " + message.reasoning + "\n");
    }
    terminal_.print("[" + message.role + "] " + message.content + "\n");
  }
}

}  // namespace quire
