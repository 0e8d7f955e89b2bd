// Our encoding against classes that protoc made of messages.proto: same bytes, both ways.

#include <google/protobuf/util/message_differencer.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <sstream>

#include "engine/wire/encoding.h"
#include "messages.pb.h"
#include "tests/engine/wire/sample_messages.h"
#include "tests/engine/wire/schema_text.h"

namespace quire::test {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Names of declared fields that the message, or any message inside, lacks.
std::vector<std::string> missing_fields(const Message& message) {
  std::vector<std::string> missing;
  const auto& reflection = *message.GetReflection();
  const auto& descriptor = *message.GetDescriptor();
  const auto collect = [&](const Message& inner) {
    for (auto& name : missing_fields(inner)) missing.push_back(descriptor.name() + "." + name);
  };
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.real_containing_oneof() != nullptr && !reflection.HasField(message, &field)) continue;
    const bool is_set = field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                                            : reflection.HasField(message, &field);
    if (!is_set) missing.push_back(descriptor.name() + "." + field.name());
    if (!is_set || field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field.is_repeated()) {
      collect(reflection.GetRepeatedMessage(message, &field, 0));
    } else {
      collect(reflection.GetMessage(message, &field));
    }
  }
  return missing;
}

template <class Schema, class Ours, class Decode>
void check_against_schema(const Ours& ours, Decode decode) {
  const std::string bytes = encode(ours);
  Schema schema;
  REQUIRE(schema.ParseFromString(bytes));
  CHECK(schema.GetReflection()->GetUnknownFields(schema).empty());
  CHECK(missing_fields(schema) == std::vector<std::string>());

  // The same message in Protobuf's own bytes, which pack and order as they like.
  const auto back = decode(schema.SerializeAsString());
  REQUIRE(back.has_value());
  REQUIRE(back->has_value());
  Schema again;
  REQUIRE(again.ParseFromString(encode(**back)));
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  CHECK(differencer.Compare(schema, again));
  CHECK(differences == "");
}

TEST_CASE("messages.proto is what the structs say", "[engine][wire]") {
  std::ifstream file(QUIRE_WIRE_SCHEMA);
  std::ostringstream text;
  text << file.rdbuf();
  INFO(
      "a new field: build/release/tests/engine/wire/print_wire_schema > "
      "engine/wire/messages.proto; a number that changes: engines of other versions break");
  CHECK(text.str() == schema_text());
}

TEST_CASE("the encoding is the schema's, field by field", "[engine][wire]") {
  for (const Command& command : sample_commands()) {
    INFO("command " << command.index());
    check_against_schema<wire::Command>(command,
                                        [](const std::string& b) { return decode_command(b); });
  }
  for (const EngineEvent& event : sample_events()) {
    INFO("event " << event.index());
    check_against_schema<wire::EngineEvent>(event,
                                            [](const std::string& b) { return decode_event(b); });
  }
}

TEST_CASE("absent fields keep the structs' defaults", "[engine][wire]") {
  wire::Command schema;
  schema.mutable_add_request()->mutable_sampling()->set_max_tokens(5);
  const auto command = decode_command(schema.SerializeAsString());
  REQUIRE(command.has_value());
  const auto& add = std::get<AddRequest>(**command);
  const SamplingParams defaults;
  CHECK(add.sampling.max_tokens == 5);
  CHECK(add.sampling.temperature == defaults.temperature);
  CHECK(add.sampling.top_p == defaults.top_p);
  CHECK(add.sampling.repetition_penalty == defaults.repetition_penalty);
  CHECK_FALSE(add.sampling.seed);
  CHECK(add.prompt.empty());
}

TEST_CASE("an explicit zero is not an absent field", "[engine][wire]") {
  AddRequest add;
  add.sampling.temperature = 0;
  const auto back = decode_command(encode(Command(add)));
  REQUIRE(back.has_value());
  CHECK(std::get<AddRequest>(**back).sampling.temperature == 0);
}

}  // namespace
}  // namespace quire::test
