// What the exporter sends, byte by byte as OTLP/HTTP has it in JSON: the members of
// ExportTraceServiceRequest and nothing else, 64-bit numbers as text, ids in hexadecimal. A collector
// of the test's own takes it, refuses it, or says nothing.

#include "app/serve/otlp_exporter.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <map>
#include <set>

#include "base/json.h"

using namespace quire;
using namespace std::chrono_literals;

namespace {

Span whole_span() {
  Span span;
  span.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
  span.span_id = "00f067aa0ba902b7";
  span.parent_id = "53995c3f42cd8ad8";
  span.name = "POST /v1/\"chat\"\n\x01";
  span.is_server = true;
  span.is_error = true;
  span.begin = 1'700'000'000'123'456'789;
  span.end = span.begin + 5;
  span.attributes = {{"text", "ä"}, {"whole", std::int64_t{1} << 60}, {"real", 0.25}};
  span.events = {{span.begin + 1, "queued", {{"quire.step", std::int64_t{7}}}}};
  return span;
}

using Check = std::function<void(const Json&)>;

void is_text(const Json& value) { CHECK(value.is_string()); }
void is_whole(const Json& value) { CHECK(value.whole_number()); }
void is_real(const Json& value) { CHECK(std::isfinite(value.as_number())); }
// fixed64, int64: decimal digits as text.
void is_digits(const Json& value) {
  REQUIRE(value.is_string());
  const auto digits = value.as_string();
  CHECK((!digits.empty() && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; })));
}
Check is_hex(std::size_t size) {
  return [size](const Json& value) {
    const auto text = value.as_string();
    CHECK(text.size() == size);
    CHECK(text.find_first_not_of("0123456789abcdef") == text.npos);
  };
}

using Members = std::map<std::string, Check>;

// Each member is one of these, and those that are named in `needed` are there.
void check_message(const Json& value, const Members& members, std::set<std::string> needed = {}) {
  REQUIRE(value.is_object());
  for (const auto& [name, member] : value.members()) {
    INFO(name);
    const auto known = members.find(std::string(name));
    REQUIRE(known != members.end());
    known->second(member);
    needed.erase(std::string(name));
  }
  CHECK(needed.empty());
}

Check message(Members members, std::set<std::string> needed = {}) {
  return [=](const Json& value) { check_message(value, members, needed); };
}
Check list_of(Check one) {
  return [one](const Json& value) {
    REQUIRE(value.is_array());
    for (const Json item : value.items()) one(item);
  };
}

Check any_value() {
  return [](const Json& value) {
    check_message(value, {{"stringValue", is_text}, {"intValue", is_digits}, {"doubleValue", is_real}});
    CHECK(value.members().size() == 1);  // a oneof
  };
}
Check attributes() {
  return list_of(message({{"key", is_text}, {"value", any_value()}}, {"key", "value"}));
}

void check_request(const Json& request) {
  const Check event = message({{"timeUnixNano", is_digits}, {"name", is_text}, {"attributes", attributes()}},
                              {"timeUnixNano", "name"});
  const Check span = message({{"traceId", is_hex(32)}, {"spanId", is_hex(16)}, {"parentSpanId", is_hex(16)},
                              {"name", is_text}, {"kind", is_whole}, {"startTimeUnixNano", is_digits},
                              {"endTimeUnixNano", is_digits}, {"attributes", attributes()},
                              {"events", list_of(event)}, {"status", message({{"code", is_whole}})}},
                             {"traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano"});
  const Check scope = message({{"name", is_text}, {"version", is_text}}, {"name"});
  const Check scope_spans = message({{"scope", scope}, {"spans", list_of(span)}}, {"spans"});
  const Check resource_spans = message({{"resource", message({{"attributes", attributes()}}, {"attributes"})},
                                        {"scopeSpans", list_of(scope_spans)}},
                                       {"resource", "scopeSpans"});
  check_message(request, {{"resourceSpans", list_of(resource_spans)}}, {"resourceSpans"});
}

std::vector<Json> spans_of(const JsonDocument& document) {
  std::vector<Json> spans;
  for (const Json resource : document.object().at("resourceSpans").items())
    for (const Json scope : resource.at("scopeSpans").items())
      for (const Json span : scope.at("spans").items()) spans.push_back(span);
  return spans;
}

// A collector on a port of the loopback: keeps what comes, and answers with the status. 0: says
// nothing until it ends.
class Collector {
 public:
  explicit Collector(int status) : status_(status), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(listener_, 8) == 0);
    REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Collector() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    came_.notify_all();
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_) + "/v1/traces"; }

  // The requests, head and body, once there are so many.
  std::vector<std::string> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(came_.wait_for(lock, 20s, [&] { return requests_.size() >= count; }));
    return requests_;
  }

 private:
  void run() {
    for (int client; (client = accept(listener_, nullptr, nullptr)) >= 0; close(client)) {
      std::string request;
      char buffer[4096];
      while (!is_whole_request(request)) {
        const auto size = recv(client, buffer, sizeof buffer, 0);
        if (size <= 0) break;
        request.append(buffer, static_cast<std::size_t>(size));
      }
      std::unique_lock lock(mutex_);
      requests_.push_back(std::move(request));
      came_.notify_all();
      if (status_ == 0) came_.wait(lock, [this] { return stopping_; });
      const std::string reply =
          "HTTP/1.1 " + std::to_string(status_) + " x\r\nContent-Length: 2\r\n\r\n{}";
      if (status_ != 0) send(client, reply.data(), reply.size(), MSG_NOSIGNAL);
    }
  }

  static bool is_whole_request(const std::string& request) {
    const auto head = request.find("\r\n\r\n"), length = request.find("Content-Length: ");
    return head != request.npos && length < head &&
           request.size() >= head + 4 + std::stoul(request.substr(length + 16));
  }

  const int status_, listener_;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> requests_;
  bool stopping_ = false;
  std::thread thread_;
};

std::string body_of(const std::string& request) { return request.substr(request.find("\r\n\r\n") + 4); }

}  // namespace

TEST_CASE("spans are an ExportTraceServiceRequest in OTLP's JSON", "[base][otlp]") {
  Span bare;
  bare.trace_id = std::string(32, '1');
  bare.span_id = std::string(16, '2');
  bare.name = "inner";
  const std::vector<Span> sent{whole_span(), bare};
  const JsonDocument document(otlp_json(sent, "a \"service\""), {});
  check_request(document.object());
  const std::vector<Json> spans = spans_of(document);
  REQUIRE(spans.size() == 2);
  const Json& first = spans[0];
  CHECK(first.at("traceId").as_string() == sent[0].trace_id);
  CHECK(first.at("parentSpanId").as_string() == sent[0].parent_id);
  CHECK(first.at("name").as_string() == sent[0].name);
  CHECK(first.at("kind").whole_number() == 2);  // SPAN_KIND_SERVER
  CHECK(first.at("startTimeUnixNano").as_string() == "1700000000123456789");
  CHECK(first.at("status").at("code").whole_number() == 2);  // STATUS_CODE_ERROR
  std::map<std::string, std::string> values;
  for (const Json one : first.at("attributes").items())
    for (const auto& [kind, value] : one.at("value").members())
      values[std::string(one.at("key").as_string())] = std::string(kind) + " " + value.describe();
  CHECK(values.at("whole") == "intValue \"1152921504606846976\"");
  CHECK(values.at("real").starts_with("doubleValue 0.25"));
  CHECK(spans[1].at("kind").whole_number() == 1);  // SPAN_KIND_INTERNAL
  CHECK_FALSE(spans[1].has({"parentSpanId"}));
  CHECK_FALSE(spans[1].at("status").has({"code"}));
}

TEST_CASE("the exporter posts what it was given, and the rest when it ends", "[base][otlp]") {
  Collector collector(200);
  {
    OtlpExporter exporter(collector.endpoint(), "quire");
    exporter.take({whole_span(), whole_span()});
    const std::string request = collector.wait_for(1).front();
    CHECK(request.starts_with("POST /v1/traces HTTP/1.1\r\n"));
    CHECK(request.find("\r\nContent-Type: application/json\r\n") != request.npos);
    const JsonDocument document(body_of(request), {});
    check_request(document.object());
    CHECK(spans_of(document).size() == 2);
    exporter.take({whole_span()});
    CHECK(exporter.num_dropped() == 0);
  }
  const auto all = collector.wait_for(2);
  CHECK(spans_of(JsonDocument(body_of(all.back()), {})).size() == 1);
}

TEST_CASE("many spans go in parts", "[base][otlp]") {
  Collector collector(200);
  OtlpExporter exporter(collector.endpoint(), "quire");
  exporter.take(std::vector<Span>(OtlpExporter::kMostSent + 100, whole_span()));
  std::size_t total = 0;
  for (const std::string& request : collector.wait_for(2)) {
    const JsonDocument document(body_of(request), {});
    CHECK(spans_of(document).size() <= OtlpExporter::kMostSent);
    total += spans_of(document).size();
  }
  CHECK(total == OtlpExporter::kMostSent + 100);
  CHECK(exporter.num_dropped() == 0);
}

TEST_CASE("what a collector refuses is counted", "[base][otlp]") {
  Collector collector(503);
  OtlpExporter exporter(collector.endpoint(), "quire");
  exporter.take({whole_span(), whole_span(), whole_span()});
  collector.wait_for(1);
  for (int i = 0; i < 1000 && exporter.num_dropped() == 0; ++i) std::this_thread::sleep_for(10ms);
  CHECK(exporter.num_dropped() == 3);
}

TEST_CASE("a collector that says nothing holds up nobody", "[base][otlp]") {
  Collector collector(0);
  const auto begin = std::chrono::steady_clock::now();
  {
    OtlpExporter exporter(collector.endpoint(), "quire");
    exporter.take({whole_span()});
    collector.wait_for(1);
    exporter.take(std::vector<Span>(OtlpExporter::kMostQueued + 7, whole_span()));
    CHECK(exporter.num_dropped() == 7);
  }
  CHECK(std::chrono::steady_clock::now() - begin < 15s);
}
