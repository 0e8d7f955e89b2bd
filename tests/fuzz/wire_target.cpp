// Messages between front end and engine: what decodes encodes again to what decodes to the same.

#include "engine/wire/encoding.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

void wire(std::string_view bytes) {
  if (const auto event = decode_event(bytes); event.has_value() && event->has_value()) {
    const std::string once = encode(**event);
    const auto again = decode_event(once);
    promise(again.has_value() && encode(**again) == once, "an event's second round is its first");
  }
  if (const auto command = decode_command(bytes); command.has_value() && command->has_value()) {
    const std::string once = encode(**command);
    const auto again = decode_command(once);
    promise(again.has_value() && encode(**again) == once, "a command's second round is its first");
  }
  FrameReader reader;
  reader.append(bytes);
  while (true) {
    const auto frame = reader.next();
    if (!frame.has_value() || !frame->has_value()) return;
  }
}

}  // namespace quire::fuzz
