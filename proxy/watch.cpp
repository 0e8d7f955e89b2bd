#include "proxy/watch.h"

#include "base/error.h"
#include "net/http_client.h"

namespace quire::proxy {
namespace {

using namespace std::chrono_literals;
constexpr int kQuestions = 2;
constexpr std::chrono::seconds kBetween{1}, kForAnAnswer{2};

}  // namespace

bool is_alive(const net::Url& server, const Connection& client) {
  net::Patience patience;
  patience.connect = patience.silence = kForAnAnswer;
  patience.stopped = [&] { return client.has_left(); };
  net::Request request;
  request.url = server.with_path("/health");
  try {
    net::Client(patience).send(request);
    return true;
  } catch (const Failure&) {
    return false;
  }
}

net::Patience Watch::patience() {
  net::Patience patience;
  patience.silence = 600s;
  patience.stopped = [this] { return must_stop(); };
  return patience;
}

void Watch::heard() {
  next_question_ = Clock::now() + kPatience;
  unanswered_ = 0;
}

bool Watch::must_stop() {
  if (client_.has_left()) return true;
  if (Clock::now() < next_question_) return false;
  if (is_alive(server_, client_)) {
    heard();
  } else {
    dead_ = ++unanswered_ >= kQuestions;
    next_question_ = Clock::now() + kBetween;
  }
  return dead_;
}

}  // namespace quire::proxy
