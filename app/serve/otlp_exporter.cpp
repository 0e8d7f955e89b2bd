#include "app/serve/otlp_exporter.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "engine/wire/messages.h"
#include "net/http_client.h"
#include "openapi/json_writer.h"

namespace quire {
namespace {

using openapi::JsonWriter;
using std::chrono::milliseconds;

constexpr milliseconds kGather{1000};  // so many spans go together
constexpr milliseconds kGoodbye{2000};

void write(JsonWriter& json, const SpanAttributes& attributes) {
  json.key("attributes").begin_array();
  for (const auto& [name, value] : attributes) {
    json.begin_object().key("key").string(name).key("value").begin_object();
    if (const auto* text = std::get_if<std::string>(&value)) {
      json.key("stringValue").string(*text);
    } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
      json.key("intValue").string(std::to_string(*whole));  // JSON of Protobuf: 64 bits are text
    } else {
      json.key("doubleValue").number(std::get<double>(value));
    }
    json.end_object().end_object();
  }
  json.end_array();
}

void write(JsonWriter& json, const Span& span) {
  constexpr int kInternal = 1, kServer = 2, kError = 2;
  json.begin_object().key("traceId").string(span.trace_id).key("spanId").string(span.span_id);
  if (!span.parent_id.empty()) json.key("parentSpanId").string(span.parent_id);
  json.key("name").string(span.name).key("kind").integer(span.is_server ? kServer : kInternal);
  json.key("startTimeUnixNano").string(std::to_string(span.begin));
  json.key("endTimeUnixNano").string(std::to_string(span.end));
  write(json, span.attributes);
  json.key("events").begin_array();
  for (const SpanEvent& event : span.events) {
    json.begin_object().key("timeUnixNano").string(std::to_string(event.time));
    json.key("name").string(event.name);
    write(json, event.attributes);
    json.end_object();
  }
  json.end_array().key("status").begin_object();
  if (span.is_error) json.key("code").integer(kError);
  json.end_object().end_object();
}

net::Url parse_endpoint(const std::string& text) {
  try {
    return net::Url::parse(text);
  } catch (const Failure& failure) {
    throw Failure({ErrorCode::invalid_argument,
                   std::string("--otlp-traces-endpoint: ") + failure.what(),
                   "--otlp-traces-endpoint"});
  }
}

}  // namespace

std::string otlp_json(std::span<const Span> spans, std::string_view service) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("resourceSpans").begin_array().begin_object();
  json.key("resource").begin_object();
  write(json, {{"service.name", std::string(service)},
               {"service.version", std::string(quire_version())}});
  json.end_object().key("scopeSpans").begin_array().begin_object();
  json.key("scope").begin_object().key("name").string("quire").end_object();
  json.key("spans").begin_array();
  for (const Span& span : spans) write(json, span);
  json.end_array().end_object().end_array().end_object().end_array().end_object();
  return body;
}

OtlpExporter::OtlpExporter(const std::string& endpoint, std::string service)
    : endpoint_(parse_endpoint(endpoint)),
      service_(std::move(service)),
      thread_([this] { run(); }) {}

OtlpExporter::~OtlpExporter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    give_up_ = std::chrono::steady_clock::now() + kGoodbye;
  }
  arrived_.notify_all();
  thread_.join();
}

void OtlpExporter::take(std::vector<Span> spans) {
  const std::lock_guard lock(mutex_);
  for (Span& span : spans) {
    if (queue_.size() < kMostQueued) {
      queue_.push_back(std::move(span));
    } else {
      ++dropped_;
    }
  }
  if (queue_.size() >= kMostSent) arrived_.notify_one();
}

std::int64_t OtlpExporter::num_dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void OtlpExporter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait_for(lock, kGather, [this] { return stopping_ || queue_.size() >= kMostSent; });
    const auto end =
        queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), kMostSent));
    const std::vector<Span> batch(std::make_move_iterator(queue_.begin()),
                                  std::make_move_iterator(end));
    queue_.erase(queue_.begin(), end);
    if (batch.empty() && stopping_) return;
    lock.unlock();
    const bool sent = batch.empty() || send(batch);
    lock.lock();
    if (!sent) dropped_ += static_cast<std::int64_t>(batch.size());
    if (dropped_ > told_) {
      log::warn("tracing.dropped", {{"spans", dropped_ - told_}, {"endpoint", endpoint_.text()}});
      told_ = dropped_;
    }
    if (stopping_ && (!sent || std::chrono::steady_clock::now() > give_up_)) return;
  }
}

bool OtlpExporter::send(std::span<const Span> spans) {
  const auto stopped = [this] {
    const std::lock_guard lock(mutex_);
    return stopping_ && std::chrono::steady_clock::now() > give_up_;
  };
  try {
    net::Patience patience;
    patience.stopped = stopped;
    net::Client client(std::move(patience));
    net::Request request;
    request.method = "POST";
    request.url = endpoint_;
    request.headers = {{"Content-Type", "application/json"}};
    request.body = otlp_json(spans, service_);
    const auto nothing = [](const net::Response&, std::string_view) { return false; };
    const net::Response response = client.send(request, nothing);
    return response.status >= 200 && response.status < 300;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace quire
