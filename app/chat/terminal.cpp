#include "app/chat/terminal.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/utf8.h"

namespace quire {

namespace {

constexpr const char* kPlain = "\033[0m";
constexpr const char* kDim = "\033[2m";
constexpr const char* kBold = "\033[1m";
constexpr std::string_view kBlock = "\"\"\"";

volatile sig_atomic_t g_interrupted = 0;

void on_interrupt(int) { g_interrupted = 1; }

// Controls of ASCII and of Latin-1, and marks that turn the direction of what follows.
bool is_harmful(char32_t c) {
  if (c == U'\n' || c == U'\t') return false;
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string harmless(std::string_view text, std::string& held) {
  const std::string all = held + std::string(text);
  held.clear();
  std::string out;
  const char* at = all.data();
  const char* const end = at + all.size();
  while (at < end) {
    const Utf8Step step = utf8_step(at, end);
    if (step.kind == Utf8Step::incomplete) {
      held.assign(at, end);
      break;
    }
    const std::string_view one(at, step.length);
    if (step.kind == Utf8Step::invalid) {
      out += kReplacementCharacter;
    } else {
      const char* start = at;
      if (!is_harmful(utf8_next(start))) out += one;
    }
    at += step.length;
  }
  return out;
}

ChatTerminal::ChatTerminal()
    : interactive_(::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO)),
      styled_(::isatty(STDOUT_FILENO) && std::getenv("NO_COLOR") == nullptr) {
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: it ends a read
  ::sigaction(SIGINT, &action, nullptr);
}

bool ChatTerminal::is_interrupted() { return g_interrupted != 0; }

bool ChatTerminal::interrupted() {
  const bool was = g_interrupted != 0;
  g_interrupted = 0;
  return was;
}

std::optional<std::string> ChatTerminal::read_line(std::string_view prompt) {
  if (interactive_) {
    style(kBold);
    std::fwrite(prompt.data(), 1, prompt.size(), stdout);
    style(kPlain);
  }
  std::fflush(stdout);
  while (true) {
    if (const std::size_t end = input_.find('\n'); end != input_.npos) {
      std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return line;
    }
    char buffer[4096];
    const ssize_t size = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (size > 0) {
      input_.append(buffer, static_cast<std::size_t>(size));
    } else if (size < 0 && errno == EINTR) {
      if (g_interrupted) return std::nullopt;
    } else {
      if (input_.empty()) return std::nullopt;
      return std::exchange(input_, {});
    }
  }
}

std::optional<std::string> ChatTerminal::read_message() {
  bool interrupted_before = false;
  std::string message;
  bool in_block = false;
  while (true) {
    auto line = read_line(message.empty() && !in_block ? "> " : ". ");
    if (!line) {
      if (interactive_) std::fputs("\n", stdout);
      if (!interrupted() || interrupted_before) return std::nullopt;
      interrupted_before = message.empty();
      if (interrupted_before) note("Ctrl-C again, or Ctrl-D, ends.");
      message.clear();
      in_block = false;
      continue;
    }
    interrupted_before = false;
    if (*line == kBlock) {
      if (in_block) return message;
      in_block = true;
    } else if (in_block) {
      message += *line + "\n";
    } else if (line->ends_with('\\')) {
      line->back() = '\n';
      message += *line;
    } else {
      return message + *line;
    }
  }
}

void ChatTerminal::style(const char* code) {
  if (styled_) std::fputs(code, stdout);
}

void ChatTerminal::show(Showing what, std::string_view text) {
  if (text.empty()) return;
  if (showing_ != what) {
    if (!at_line_start_) std::fputs("\n", stdout);
    if (showing_ == Showing::reasoning) {
      styled_ ? style(kPlain) : void(std::fputs("</thinking>", stdout));
      std::fputs("\n", stdout);
    }
    if (what == Showing::reasoning) styled_ ? style(kDim) : void(std::fputs("<thinking>\n", stdout));
    showing_ = what;
    at_line_start_ = true;
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  }
  const std::string shown = harmless(text, held_);
  if (shown.empty()) return;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fflush(stdout);
  at_line_start_ = shown.back() == '\n';
}

void ChatTerminal::reasoning(std::string_view text) { show(Showing::reasoning, text); }
void ChatTerminal::content(std::string_view text) { show(Showing::content, text); }

void ChatTerminal::end_answer() {
  held_.clear();
  if (!at_line_start_) std::fputs("\n", stdout);
  if (showing_ == Showing::reasoning) {
    styled_ ? style(kPlain) : void(std::fputs("</thinking>\n", stdout));
  }
  showing_ = Showing::nothing;
  at_line_start_ = true;
  std::fflush(stdout);
}

void ChatTerminal::call(std::string_view name, std::string_view arguments) {
  print("[calls " + std::string(name) + " " + std::string(arguments) + "]\n");
}

void ChatTerminal::print(std::string_view text) {
  std::string held;
  std::fputs(harmless(text, held).c_str(), stdout);
  std::fflush(stdout);
}

void ChatTerminal::note(std::string_view text) {
  if (!interactive_ || text.empty()) return;
  std::string held;
  style(kDim);
  std::fputs(harmless(text, held).c_str(), stdout);
  style(kPlain);
  std::fputs("\n", stdout);
  std::fflush(stdout);
}

void ChatTerminal::error(std::string_view text) {
  std::string held;
  std::fputs(("quire chat: " + harmless(text, held) + "\n").c_str(), stderr);
}

}  // namespace quire
