#include "tests/support/fake_engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "engine/wire/in_process_channel.h"

namespace quire::test {
namespace {

// Knuth's MMIX generator, one step.
std::uint64_t lcg(std::uint64_t state) {
  return state * 6364136223846793005u + 1442695040888963407u;
}

struct Running {
  AddRequest request{};
  int num_output = 0;
  RequestTimes times;
};

}  // namespace

TokenId lcg_token(const AddRequest& request, int index, int vocab_size) {
  std::uint64_t state = 1;
  for (const TokenId token : request.prompt) state = lcg(state + static_cast<std::uint64_t>(token));
  return static_cast<TokenId>((lcg(state + static_cast<std::uint64_t>(index)) >> 33) %
                              static_cast<std::uint64_t>(vocab_size));
}

Ready default_ready() {
  Ready ready;
  ready.version = "fake";
  ready.max_model_len = 4096;
  ready.num_gpu_blocks = 257;
  ready.block_size = 16;
  ready.groups = {{"full_attention", 16, 16, 4096, 2}};
  ready.kv_cache_size_tokens = 4096;
  ready.max_concurrency = 1;
  ready.dtype = ready.kv_cache_dtype = "float32";
  ready.model_fingerprint = "fake";
  ready.device = "fake";
  ready.vocab_size = 1536;
  return ready;
}

struct FakeEngine::Impl {
  FakeEngineOptions options;
  std::unique_ptr<EngineEnd> end;
  std::deque<Running> requests;  // the first max_num_seqs run, the others wait
  EngineStats stats{};

  std::mutex mutex;
  std::condition_variable released;
  bool held = false;
  bool stopping = false;

  void wait_while_held() {
    std::unique_lock lock(mutex);
    released.wait(lock, [this] { return !held || stopping; });
  }

  // Every prompt token is second to token 7, which stands for all that may be asked for.
  static void tell_prompt(const AddRequest& request, RequestOutput& output) {
    const auto count = static_cast<std::size_t>(*request.sampling.prompt_logprobs);
    for (std::size_t i = 1; i < request.prompt.size(); ++i) {
      output.prompt_logprobs.push_back(
          {{request.prompt[i], -2.f}, 2, std::vector<TokenLogprob>(count, {7, -0.25f})});
    }
  }

  // A vector after as many steps as the prompt has tokens.
  static bool pool(Running& running, RequestOutput& output) {
    output.id = running.request.id;
    if (++running.num_output < static_cast<int>(running.request.prompt.size())) return false;
    output.pooled = {1.f, 0.f};
    output.finish_reason = FinishReason::stop;
    return true;
  }

  // One token for one request. True: it has ended.
  bool advance(Running& running, RequestOutput& output) {
    const AddRequest& request = running.request;
    if (request.pooling) return pool(running, output);
    const TokenId token = options.next_token(request, running.num_output++);
    running.times.last_token = Clock::now();
    if (running.num_output == 1) running.times.first_token = running.times.last_token;
    output.id = request.id;
    output.token_ids = {token};
    output.times = running.times;
    if (request.sampling.logprobs) output.logprobs = {{{token, -0.5f}, 1, {}}};
    if (request.sampling.prompt_logprobs && running.num_output == 1) tell_prompt(request, output);
    if (token == options.eos && !request.sampling.ignore_eos) {
      output.finish_reason = FinishReason::stop;
      output.stop_token = token;
    } else if (running.num_output >= request.sampling.max_tokens) {
      output.finish_reason = FinishReason::length;
    }
    return output.finish_reason.has_value();
  }

  StepOutput step() {
    StepOutput step;
    const auto rows = std::min<std::size_t>(requests.size(), options.max_num_seqs);
    for (std::size_t i = 0; i < rows; ++i) {
      Running& running = requests[i];
      if (running.times.scheduled == Clock::time_point()) {
        running.times.scheduled = Clock::now();
        stats.prompt_tokens += static_cast<std::int64_t>(running.request.prompt.size());
      }
      if (advance(running, step.requests.emplace_back())) running.request.sampling.max_tokens = 0;
    }
    std::erase_if(requests, [](const Running& r) { return r.request.sampling.max_tokens == 0; });
    stats.generation_tokens += static_cast<std::int64_t>(rows);
    stats.step_tokens = stats.step_requests = static_cast<int>(rows);
    ++stats.steps;
    return step;
  }

  void publish(StepOutput step) {
    const int live = static_cast<int>(requests.size());
    stats.num_running = std::min(live, options.max_num_seqs);
    stats.num_waiting = live - stats.num_running;
    stats.num_blocks = options.ready.num_gpu_blocks - 1;
    stats.num_free_blocks = stats.num_blocks - stats.num_running;
    stats.kv_cache_usage = static_cast<double>(stats.num_running) / stats.num_blocks;
    step.stats = stats;
    send(std::move(step));
  }

  void send(EngineEvent event) {
    if (!options.on_wire) return end->publish(std::move(event));
    if (auto crossed = options.on_wire(event)) end->publish(std::move(*crossed));
  }
};

FakeEngine::FakeEngine(FakeEngineOptions options) : impl_(std::make_unique<Impl>()) {
  ChannelEnds ends = make_in_process_channel();
  client_end_ = std::move(ends.client);
  impl_->end = std::move(ends.engine);
  impl_->options = std::move(options);
  if (!impl_->options.next_token) {
    const int vocab_size = impl_->options.ready.vocab_size;
    impl_->options.next_token = [vocab_size](const AddRequest& request, int index) {
      return lcg_token(request, index, vocab_size);
    };
  }
  thread_ = std::thread([this] { run(); });
}

FakeEngine::~FakeEngine() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->released.notify_all();
  impl_->end->close();
  thread_.join();
}

void FakeEngine::hold() {
  const std::lock_guard lock(impl_->mutex);
  impl_->held = true;
}

void FakeEngine::release() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->held = false;
  }
  impl_->released.notify_all();
}

void FakeEngine::run() {
  if (!start_up()) return;
  std::vector<Command> commands;
  while (true) {
    commands.clear();
    const bool open =
        impl_->requests.empty() ? impl_->end->wait_and_take(commands) : impl_->end->take(commands);
    if (!open) return;
    for (Command& command : commands) apply(command);
    impl_->wait_while_held();
    const bool ran = !impl_->requests.empty();
    StepOutput step = ran ? impl_->step() : StepOutput();
    live_ = static_cast<int>(impl_->requests.size());
    impl_->publish(std::move(step));
    if (ran) std::this_thread::sleep_for(impl_->options.step_time);
    if (impl_->options.dies_after_steps == impl_->stats.steps) {
      impl_->send(EngineDead{impl_->options.ready.engine, "the fake engine was told to"});
      return impl_->end->close();
    }
    if (impl_->options.vanishes_after_steps == impl_->stats.steps) return impl_->end->close();
  }
}

bool FakeEngine::start_up() {
  const FakeEngineOptions& options = impl_->options;
  impl_->send(Hello{options.ready.engine, options.ready.version});
  std::vector<Command> commands;
  if (!impl_->end->wait_and_take(commands)) return false;
  if (options.silent_at_startup) {
    while (impl_->end->wait_and_take(commands)) commands.clear();
    return false;
  }
  impl_->send(StartupProgress{"pretending to load weights", 0.5});
  std::this_thread::sleep_for(options.startup_time);
  if (options.dies_at_startup) {
    impl_->send(EngineDead{options.ready.engine, *options.dies_at_startup});
    impl_->end->close();
    return false;
  }
  impl_->send(options.ready);
  return true;
}

void FakeEngine::apply(Command& command) {
  if (auto* add = std::get_if<AddRequest>(&command)) {
    ++added_;
    if (impl_->options.rejects && impl_->options.rejects(*add)) {
      StepOutput step;
      RequestOutput& output = step.requests.emplace_back();
      output.id = add->id;
      output.finish_reason = FinishReason::error;
      output.error = Error{ErrorCode::internal, "the fake engine rejects this request", {}};
      return impl_->publish(std::move(step));
    }
    Running& running = impl_->requests.emplace_back();
    running.request = std::move(*add);
    running.times.queued = Clock::now();
  } else if (auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    const auto live = static_cast<int>(impl_->requests.size());
    impl_->send(PrefixCacheReset{.call = reset->call, .done = live == 0, .blocks_in_use = live});
  } else if (auto* ask = std::get_if<ReportBlocks>(&command)) {
    BlockReport report = impl_->options.blocks;
    report.call = ask->call;
    for (const Running& one : impl_->requests) report.requests.push_back({one.request.id, 0, 1, 1, 0});
    impl_->send(std::move(report));
  } else if (auto* abort = std::get_if<AbortRequest>(&command)) {
    aborted_ += static_cast<int>(std::erase_if(
        impl_->requests, [&](const Running& r) { return r.request.id == abort->id; }));
  }
  live_ = static_cast<int>(impl_->requests.size());
}

}  // namespace quire::test
