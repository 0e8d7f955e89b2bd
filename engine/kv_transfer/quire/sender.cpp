#include "engine/kv_transfer/quire/sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <map>
#include <utility>
#include <vector>

#include "engine/kv_transfer/quire/frame_link.h"
#include "engine/kv_transfer/peers/peer_list.h"
#include "engine/kv_transfer/peers/listener.h"

namespace quire {
namespace {

constexpr std::chrono::milliseconds kPauseWhenFull{50};
constexpr int kMostParts = 64;

}  // namespace

struct KvSender::Session {
  FrameLink link;
  std::string host = {};      // empty: none, as of a socket in a folder
  bool is_asleep = false;     // waits for a question
  bool is_expecting = false;  // waits for prefills that will be pushed
  std::list<Session*>::iterator place = {};
};

KvSender::KvSender(asio::any_io_executor executor, const SocketAddress& address,
                   KvSenderOptions options, KeptPrefills& kept)
    : executor_(executor),
      options_(std::move(options)),
      kept_(kept),
      listener_(listen_for_peers(address)),
      file_(address),
      waits_(std::make_shared<KeptWaits>(executor)) {
  kept_.on_kept(KeptWaits::waker(waits_));
}

KvSender::~KvSender() {
  kept_.on_kept([] {});
}

awaitable<void> KvSender::expire() { return waits_->expire(kept_, options_.changed); }

awaitable<void> KvSender::accept(TaskGroup& sessions) {
  return accept_peers(
      executor_, listener_, sessions,
      {.make_place = [this] { return make_place(); },
       .serve = [this](Descriptor socket) { return serve(std::move(socket)); }});
}

awaitable<void> KvSender::make_place() {
  while (sessions_.size() >= options_.max_connections) {
    send_one_away();
    co_await sleep_for(kPauseWhenFull);
  }
}

// Nobody, where all are being answered.
void KvSender::send_one_away() {
  const auto asleep = std::ranges::find_if(sessions_, &Session::is_asleep);
  if (asleep != sessions_.end()) {
    (*asleep)->is_asleep = false;
    (*asleep)->link.hang_up();
  } else if (Session* waiting = one_expecting_too_many()) {
    waiting->is_expecting = false;
    waiting->link.hang_up();
  }
}

// A server that decodes has one such line here, however much it waits for. They keep at most half
// of the places from others; beyond that a host with most of them gives up its oldest.
KvSender::Session* KvSender::one_expecting_too_many() const {
  std::map<std::string, std::vector<Session*>> by_host;
  std::size_t count = 0;
  for (Session* session : sessions_) {
    if (!session->is_expecting) continue;
    by_host[session->host].push_back(session);
    ++count;
  }
  if (count < 2 || count <= options_.max_connections / 2) return nullptr;
  const auto most = std::ranges::max_element(
      by_host, {}, [](const auto& of_host) { return of_host.second.size(); });
  return most->second.front();
}

awaitable<void> KvSender::serve(Descriptor socket) {
  std::string host = remote_host(socket.get());
  Session session{FrameLink(executor_, std::move(socket), options_.silence), std::move(host)};
  struct Place {
    std::list<Session*>& sessions;
    Session& session;
    Place(std::list<Session*>& all, Session& s) : sessions(all), session(s) {
      session.place = sessions.insert(sessions.end(), &session);
    }
    ~Place() { sessions.erase(session.place); }
  } place(sessions_, session);
  session.is_asleep = true;
  co_await greet(session.link);
  while (true) co_await answer(session);
}

awaitable<void> KvSender::greet(FrameLink& link) {
  const KvFrameHeader header = co_await link.read_header(options_.silence);
  if (header.type != KvFrameType::hello)
    throw KvLost(KvLossReason::corrupt, "a connection did not begin with hello");
  const std::string body = co_await link.read_message(header);
  const auto hello = decode_kv<KvHello>(body);
  if (!hello) throw KvLost(KvLossReason::corrupt, "hello is broken");
  KvWelcome welcome;
  welcome.protocol = kKvProtocol;
  welcome.engine = options_.engine;
  welcome.geometry = options_.geometry;
  if (kept_.shared_descriptor() >= 0) welcome.shared_bytes = kept_.size_bytes();
  const std::string text = encode_kv(welcome);
  co_await link.send(KvFrameType::welcome, 0, text, kept_.shared_descriptor());
}

awaitable<void> KvSender::answer(Session& session) {
  FrameLink& link = session.link;
  session.is_asleep = true;
  sessions_.splice(sessions_.end(), sessions_, session.place);
  const KvFrameHeader header = co_await link.read_header(options_.idle);
  session.is_asleep = false;
  if (header.type == KvFrameType::piece)
    throw KvLost(KvLossReason::corrupt, "a piece came that nobody asked for");
  if (header.type == KvFrameType::expect) {
    session.is_expecting = true;
    co_await attend_pushes(
        link, header, kept_, expected_,
        [this](std::chrono::steady_clock::time_point until) { return waits_->wait(until); });
    session.is_expecting = false;
    co_return;
  }
  const std::string body = co_await link.read_message(header);
  if (header.type == KvFrameType::read) {
    co_await answer_read(link, header.stream, body);
    options_.changed();
  } else if (header.type == KvFrameType::renew) {
    const auto renew = decode_kv<KvRenew>(body);
    if (!renew) throw KvLost(KvLossReason::corrupt, "renew is broken");
    for (const KvKey& one : renew->prefills) kept_.renew(one.key, one.generation);
  } else if (header.type == KvFrameType::release) {
    const auto key = decode_kv<KvKey>(body);
    if (!key) throw KvLost(KvLossReason::corrupt, "release is broken");
    kept_.release(key->key, key->generation);
    options_.changed();
  } else {
    throw KvLost(KvLossReason::corrupt, "a frame came that only this side sends");
  }
}

awaitable<void> KvSender::answer_read(FrameLink& link, std::uint64_t stream,
                                      const std::string& body) {
  const auto read = decode_kv<KvRead>(body);
  if (!read) throw KvLost(KvLossReason::corrupt, "read is broken");
  if (read->pushed) {
    co_await answer_pushed(link, stream, *read);
    co_return;
  }
  const auto prefill = kept_.find(read->prefill.key, read->prefill.generation);
  KvRefused refusal;
  if (prefill == nullptr || prefill->progress != nullptr) {
    refusal = {KvLossReason::expired, "it is not kept, or not any more"};
  } else if (read->num_tokens != prefill->content.num_tokens) {
    refusal = {KvLossReason::prompt, fmt::format("it has {} tokens, not {}",
                                                 prefill->content.num_tokens, read->num_tokens)};
  } else if (read->prompt_hash != prefill->prompt_hash) {
    refusal = {KvLossReason::prompt, "it is of another prompt"};
  } else if (read->from < 0 || read->from > read->num_tokens) {
    refusal = {KvLossReason::refused, fmt::format("{} is not one of its tokens", read->from)};
  } else if (read->parts < 1 || read->parts > kMostParts || read->part < 0 ||
             read->part >= read->parts) {
    refusal = {KvLossReason::refused, fmt::format("part {} of {} is none of 1 to {}", read->part,
                                                  read->parts, kMostParts)};
  }
  if (!refusal.detail.empty()) {
    const std::string text = encode_kv(refusal);
    co_await link.send(KvFrameType::refused, stream, text);
    co_return;
  }
  const auto start = KeptPrefills::Clock::now();
  co_await send_pieces(link, stream, *read, *prefill);
  if (read->part > 0) co_return;  // one of them counts
  ++counts_.requests;
  counts_.nanoseconds += std::chrono::nanoseconds(KeptPrefills::Clock::now() - start).count();
}

awaitable<void> KvSender::answer_pushed(FrameLink& link, std::uint64_t stream, const KvRead& read) {
  const auto start = KeptPrefills::Clock::now();
  const PushSending sending{
      link,
      stream,
      read,
      kept_,
      options_.geometry,
      [this](std::chrono::steady_clock::time_point until) { return waits_->wait(until); }};
  const std::int64_t bytes = co_await send_pushed(sending);
  if (bytes == 0) co_return;
  ++counts_.requests;
  counts_.bytes += bytes;
  counts_.nanoseconds += std::chrono::nanoseconds(KeptPrefills::Clock::now() - start).count();
}

awaitable<void> KvSender::send_pieces(FrameLink& link, std::uint64_t stream, const KvRead& read,
                                      const KeptPrefill& prefill) {
  const KvContent wanted = kv_content(options_.geometry, read.num_tokens, read.from);
  const bool in_place = read.in_place && kept_.shared_descriptor() >= 0;
  const std::vector<KvPiece> all = kv_pieces(prefill.content, wanted, piece_bytes(in_place));
  const std::span<const KvPiece> pieces = kv_part(all, read.part, read.parts);
  KvBegin begin;
  begin.pieces = static_cast<std::int64_t>(pieces.size());
  begin.bytes = wanted.bytes;
  const std::string text = encode_kv(begin);
  co_await link.send(KvFrameType::begin, stream, text);
  const std::span<const std::byte> bytes = prefill.range->bytes();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const KvPiece& piece = pieces[i];
    // Whoever reads gives signs of life too. Without them a slow reader would hold it for ever.
    if (kept_.find(prefill.key, prefill.generation) == nullptr)
      throw KvLost(KvLossReason::expired, "its lease ended while it was being read");
    const auto part = bytes.subspan(static_cast<std::size_t>(piece.source),
                                    static_cast<std::size_t>(piece.bytes));
    if (in_place) {
      co_await link.send_placed(stream, i, kept_.offset_of(*prefill.range) + piece.source, part);
    } else {
      co_await link.send_piece(stream, i, part);
    }
    counts_.bytes += piece.bytes;
  }
  if (!in_place || pieces.empty()) co_return;
  const KvFrameHeader header = co_await link.read_header(options_.silence);
  const std::string body = co_await link.read_message(header);
  if (header.type != KvFrameType::copied || header.stream != stream)
    throw KvLost(KvLossReason::corrupt, "what was placed was not said to be copied");
}

}  // namespace quire
