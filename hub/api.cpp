#include "hub/api.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/json.h"

namespace quire::hub {

namespace {

using std::chrono::milliseconds;

constexpr int kMaxRedirects = 5;
constexpr milliseconds kLongestPause{30'000};
constexpr milliseconds kLongestRetryAfter{300'000};

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string token_of_environment() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const auto token = environment(name); !token.empty()) return token;
  }
  std::string path = environment("HF_TOKEN_PATH");
  if (path.empty()) {
    const std::string home = environment("HF_HOME");
    path = home.empty() ? environment("HOME") + "/.cache/huggingface/token" : home + "/token";
  }
  std::ifstream file(path);
  std::string token;
  file >> token;
  return token;
}

bool is_set(const std::string& value) {
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE" || value == "true" ||
         value == "yes" || value == "on";
}

// A failure that a second try may mend.
class Passing : public Failure {
 public:
  Passing(const std::string& detail, milliseconds at_least = milliseconds(0))
      : Failure(ErrorCode::unavailable, detail), at_least_(at_least) {}
  milliseconds at_least() const { return at_least_; }

 private:
  milliseconds at_least_;
};

milliseconds retry_after(const net::Response& reply) {
  const std::string_view text = reply.header("Retry-After");
  int seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::clamp(milliseconds(std::int64_t{1000} * seconds), milliseconds(0),
                    kLongestRetryAfter);
}

[[noreturn]] void refuse(const net::Response& reply, const std::string& what, bool has_token) {
  std::string words(reply.header("X-Error-Message"));
  words = words.substr(0, 300);
  const std::string said = words.empty() ? "" : " (" + words + ")";
  const auto fail = [&](ErrorCode code, const std::string& why) {
    throw Failure(code, what + ": " + why + said);
  };
  switch (reply.status) {
    case 401:
      fail(ErrorCode::unauthorized,
           has_token ? "the token is not accepted; set HF_TOKEN to one that may read it"
                     : "there is no such model, or it needs a token: set HF_TOKEN");
      break;
    case 403:
      fail(ErrorCode::unauthorized,
           "it may not be read with this token; accept its terms on its page first");
      break;
    case 404:
      fail(ErrorCode::not_found, "there is no such model, revision or file");
      break;
    case 429:
      throw Passing(what + ": too many requests" + said, retry_after(reply));
    default:
      if (reply.status >= 500)
        throw Passing(what + ": HTTP " + std::to_string(reply.status) + said, retry_after(reply));
      fail(ErrorCode::unavailable, "HTTP " + std::to_string(reply.status));
  }
  std::abort();  // not reached
}

void pause(const HubOptions& options, milliseconds duration) {
  const auto end = std::chrono::steady_clock::now() + duration;
  while (std::chrono::steady_clock::now() < end) {
    if (options.patience.stopped && options.patience.stopped()) {
      throw Failure(ErrorCode::cancelled, "stopped");
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
}

// Calls `attempt` until it is through. It says whether it came further than the time before.
template <class Attempt>
void persist(const HubOptions& options, const Attempt& attempt) {
  milliseconds wait = options.pause;
  int failed = 0;
  while (true) {
    bool moved = false;
    milliseconds at_least{0};
    try {
      return attempt(moved);
    } catch (const Passing& failure) {
      at_least = failure.at_least();
      if (!moved && ++failed >= options.tries) throw;
    } catch (const Failure& failure) {
      const auto code = failure.error().code;
      const bool may_pass = code == ErrorCode::unavailable || code == ErrorCode::timeout;
      if (!may_pass || (!moved && ++failed >= options.tries)) throw;
    }
    if (moved) {
      failed = 0;
      wait = options.pause;
    }
    pause(options, std::max(wait, at_least));
    wait = std::min(2 * wait, kLongestPause);
  }
}

RepoFile file_of(const Json& sibling) {
  RepoFile file;
  file.path = sibling.need_text("rfilename");
  file.size = static_cast<std::uint64_t>(
      sibling.at("size").as_integer({0, std::numeric_limits<std::int64_t>::max()}));
  file.hash = sibling.text({"blobId"}).value_or("");
  if (const auto large = sibling.object({"lfs"})) {
    file.is_large = true;
    file.hash = large->text({"sha256", "oid"}).value_or("");
  }
  const bool is_hash = std::ranges::all_of(
      file.hash, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (!is_hash || file.hash.size() != (file.is_large ? 64U : 40U)) sibling.fail("has no hash");
  return file;
}

// Where the bytes of a reply to a range begin.
std::uint64_t begin_of(const net::Response& head) {
  if (head.status == 200) return 0;
  std::string_view range = head.header("Content-Range");
  constexpr std::string_view kBytes = "bytes ";
  std::uint64_t begin = 0;
  if (range.starts_with(kBytes)) {
    range.remove_prefix(kBytes.size());
    if (std::from_chars(range.data(), range.data() + range.size(), begin).ec == std::errc())
      return begin;
  }
  throw Passing("a part of the file came that does not say which");
}

}  // namespace

HubOptions HubOptions::of_environment() {
  HubOptions options;
  const std::string endpoint = environment("HF_ENDPOINT");
  options.endpoint = net::Url::parse(endpoint.empty() ? "https://huggingface.co" : endpoint);
  options.token = token_of_environment();
  options.offline = is_set(environment("HF_HUB_OFFLINE"));
  return options;
}

net::Headers Hub::headers(const net::Url& url) const {
  net::Headers headers = {{"User-Agent", "quire"}, {"Accept", "*/*"}};
  // A redirect may lead to a store of somebody else's: the token is not for it.
  if (!options_.token.empty() && url.same_origin(options_.endpoint)) {
    headers.emplace_back("Authorization", "Bearer " + options_.token);
  }
  return headers;
}

// Follows redirects; the sink gets the last reply's body alone.
net::Response Hub::get(net::Client& client, net::Url url, const net::Headers& more,
                       const net::BodySink& sink) const {
  for (int redirects = 0;; ++redirects) {
    net::Request request{"GET", url, headers(url), {}};
    request.headers.insert(request.headers.end(), more.begin(), more.end());
    net::BodySink last;
    if (sink) {
      last = [&](const net::Response& head, std::string_view piece) {
        return head.status / 100 == 2 ? sink(head, piece) : true;
      };
    }
    net::Response reply = client.send(request, last);
    const std::string_view location = reply.header("Location");
    if (reply.status / 100 != 3 || location.empty()) return reply;
    if (redirects == kMaxRedirects)
      throw Failure(ErrorCode::unavailable, url.text() + ": sent round and round");
    const net::Url next = url.resolve(location);
    if (url.tls && !next.tls)
      throw Failure(ErrorCode::unavailable, url.text() + ": sent on without TLS");
    url = next;
  }
}

RepoInfo Hub::info(const ModelName& name) const {
  net::Client client(options_.patience);
  const net::Url url = options_.endpoint.with_path("/api/models/" + name.repo + "/revision/" + [&] {
    std::string revision;  // one part of the path, whatever is in it
    for (const char c : name.revision) c == '/' ? revision += "%2F" : revision += c;
    return revision;
  }() + "?blobs=true");
  RepoInfo info;
  persist(options_, [&](bool&) {
    const net::Response reply = get(client, url, {}, nullptr);
    if (reply.status != 200) refuse(reply, name.text(), !options_.token.empty());
    const JsonDocument document(reply.body, url.text());
    const Json whole = document.object();
    info.commit = whole.need_text("sha");
    if (!is_commit(info.commit)) whole.fail_at("sha", "is not a commit");
    info.files.clear();
    for (const Json sibling : whole.at("siblings").items()) {
      RepoFile file = file_of(sibling);
      if (!is_safe_path(file.path)) sibling.fail_at("rfilename", "leads out of the model's folder");
      info.files.push_back(std::move(file));
    }
  });
  return info;
}

void Hub::read(const std::string& repo, const std::string& commit, const RepoFile& file,
               std::uint64_t offset, const TakeBytes& take) const {
  net::Client client(options_.patience);
  const net::Url url = options_.endpoint.with_path("/" + repo + "/resolve/" + commit + "/" +
                                                   net::percent_encode_path(file.path));
  std::uint64_t at = offset;
  std::uint64_t furthest = offset;
  persist(options_, [&](bool& moved) {
    if (at >= file.size) return;
    net::Headers range = {{"Accept-Encoding", "identity"}};
    if (at > 0) range.emplace_back("Range", "bytes=" + std::to_string(at) + "-");
    bool began = false;
    const auto sink = [&](const net::Response& head, std::string_view piece) {
      if (!began) {
        const std::uint64_t begin = begin_of(head);
        if (begin != 0 && begin != at)
          throw Passing(file.path + ": another part came than was asked for");
        at = begin;
        began = true;
      }
      take(at, piece);
      at += piece.size();
      moved = moved || at > furthest;  // a server that always begins anew gets nowhere
      furthest = std::max(furthest, at);
      return at <= file.size;
    };
    const net::Response reply = get(client, url, range, sink);
    if (reply.status / 100 != 2) refuse(reply, repo + "/" + file.path, !options_.token.empty());
    if (at < file.size) throw Passing(file.path + ": ended before its end");
  });
}

}  // namespace quire::hub
