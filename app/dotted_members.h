#pragma once
// vLLM's dotted flags: --speculative-config.method ngram is a member of the object that
// --speculative-config takes.

#include <string>
#include <string_view>
#include <vector>

namespace quire {

class Json;

class DottedMembers {
 public:
  // The members of a JSON object; false: it is none.
  bool set(const std::string& json);
  // "a.b" of the object; the value is JSON where it can be read as JSON, and else a text. A member
  // that is given again is the last; lists go on, as in vLLM, and "a.b+" takes "x,y" as a list.
  void add(std::string_view path, const std::string& value);
  std::string json() const;  // {"a":{"b":…}}

 private:
  struct Member {
    std::string name;
    std::string json;  // of a leaf
    std::vector<Member> members = {};
  };
  static std::vector<Member> members_of(const Json& object);
  static void append(std::string& out, const std::vector<Member>& members);

  std::vector<Member> members_;
};

}  // namespace quire
