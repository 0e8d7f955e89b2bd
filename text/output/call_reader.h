#pragma once
// Reads one row of calls, byte by byte, as a CallFormat says: the part of the automaton between the
// marker that opens the row and what ends it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/output/call_writer.h"
#include "text/output/dialect.h"
#include "text/output/marker_matcher.h"
#include "text/output/object_reader.h"
#include "text/output/python_reader.h"
#include "text/output/tool_types.h"

namespace quire {

class CallReader {
 public:
  // All must outlive this.
  CallReader(const CallFormat& format, const ToolTypes& types, CallWriter& writer);

  // After marker number `begin` of the format, whose text counts as held; kNoMarker: without one.
  static constexpr int kNoMarker = -1;
  void begin(int begin, OutputDelta& delta);
  // The name is known already (harmony has it in a message's header).
  void begin_named(const std::string& name, OutputDelta& delta);

  enum class Status : std::uint8_t {
    more,
    ended,  // the row is over with this byte
    left,   // this byte is not part of the row; give back what is held
  };
  Status push(char c, OutputDelta& delta);

  // What was read since the last thing that became part of a call: to be given back as content. The
  // last `reread` bytes may begin something else.
  const std::string& held() const { return held_; }
  std::size_t reread() const { return matched_; }
  // Of a text that ends here: what is held, unless it is the rest of a call or markup after one.
  std::string_view unread() const;
  // The text ends here: a call whose name is known is one, however little of it there is.
  void break_off(OutputDelta& delta);

 private:
  enum class State : std::uint8_t {
    choice,  // one of a few literals, or what may stand in their place
    word,    // a name, id or note
    object,
    json,
    keywords,
    key,        // of a parameter
    attribute,  // of a parameter
    value,      // of a parameter
  };
  // What a literal leads to.
  enum class Next : std::uint8_t {
    row,        // what follows marker number `part`
    call,       // part number `part` of a new call
    part,       // part number `part` of this call
    parameter,  // a key
    value,
    close,  // of the row, with only its end to come
    over,
  };
  struct Choice {
    std::string_view literal;  // without white space around it
    Next next = Next::part;
    std::size_t part = 0;
  };

  Status step(char c, OutputDelta& delta);
  Status in_choice(char c, OutputDelta& delta);
  Status in_word(char c, OutputDelta& delta);
  Status in_object(char c, OutputDelta& delta);
  Status in_json(char c, OutputDelta& delta);
  Status in_keywords(char c, OutputDelta& delta);
  Status in_key(char c, OutputDelta& delta);
  Status in_attribute(char c, OutputDelta& delta);
  Status in_value(char c, OutputDelta& delta);

  void clear_choices();
  void choose_row();
  void choose_after_call();
  bool choose_end();
  void add_begins();
  void add_ends();
  void choose_literals(std::size_t part);
  void begin_call(std::size_t part, OutputDelta& delta);
  void enter(std::size_t part, OutputDelta& delta);
  Status follow(const Choice& choice, OutputDelta& delta);
  bool accepts_fallback(char c) const;
  void begin_value(OutputDelta& delta);
  void add_value_text(std::string_view text, OutputDelta& delta);
  void end_call(OutputDelta& delta);
  void give_name(OutputDelta& delta);
  void give(OutputDelta& delta, std::string_view arguments);

  static constexpr std::size_t kMaxName = 256;  // bytes

  const CallFormat& format_;
  const ToolTypes& types_;
  CallWriter& writer_;
  std::string held_;
  State state_ = State::choice;
  bool marked_ = false;  // a marker opened this row
  bool called_ = false;
  bool between_ = false;  // a call is complete and no other has begun

  std::vector<Choice> choices_;
  std::size_t matched_ = 0;              // bytes of what the choices have in common
  std::optional<std::size_t> fallback_;  // the part that may come instead

  // The running call.
  std::size_t part_ = 0;
  std::size_t call_begin_ = 0;  // of it in held_
  std::string word_, name_, id_;
  bool given_ = false;  // its name
  std::optional<ObjectReader> object_;
  JsonScanner json_;
  bool json_begun_ = false;
  KeywordsReader keywords_;

  // Its running parameter.
  bool any_parameter_ = false;
  std::string key_, attribute_, value_;
  MarkerFinder value_end_;
  JsonTypes value_types_;
  bool value_begun_ = false;
  bool line_break_held_ = false;  // which belongs to the closing marker if that comes next
};

}  // namespace quire
