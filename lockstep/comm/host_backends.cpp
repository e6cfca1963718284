#include "lockstep/comm/host_backends.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "lockstep/comm/host/own_segments.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

using host::Exposure;
using host::SharedRegion;

std::vector<int> processes_of(
    const std::vector<int>& members, const std::vector<std::string>& tickets) {
  std::vector<int> processes;
  for (const int member : members)
    processes.push_back(std::atoi(tickets[static_cast<std::size_t>(member)].c_str()));
  return processes;
}

std::byte* data_of(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.data_ptr()) : nullptr;
}

class OneProcess : public host::AddressSpace {
 public:
  std::optional<Exposure> expose(const void* memory, std::size_t) const override {
    return Exposure{Exposure::kAddress, reinterpret_cast<std::uint64_t>(memory)};
  }
  // Threads hold the tensors of a failed collective in the region.
  std::shared_ptr<std::byte> resolve(int, const Exposure& exposure) const override {
    return {std::shared_ptr<void>(), reinterpret_cast<std::byte*>(exposure.offset)};
  }
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options,
      const host::ExchangeText&) override {
    return torch::empty({elements}, options);
  }
};

/// The address space of ranks that are processes: each allocation that all make together is one
/// segment per rank, mapped by all.
///
/// A segment lives as long as the tensor made in it, and as what was resolved in it; one that this
/// rank has released cannot be resolved.
class SymmetricMemory : public host::AddressSpace {
 public:
  SymmetricMemory(int rank, const std::vector<int>& processes) : rank_(rank), others_(processes) {}

  std::optional<Exposure> expose(const void* memory, std::size_t bytes) const override;
  std::shared_ptr<std::byte> resolve(int rank, const Exposure& exposure) const override;
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options,
      const host::ExchangeText& exchange) override;
  torch::Tensor allocate(std::int64_t elements, const torch::TensorOptions& options) override;
  // What all make together serves one tensor in any case.
  void retire(const void* memory) override { own_->retire(memory); }

 private:
  struct Segment {
    std::uint64_t id;
    std::size_t bytes;
    std::vector<host::Mapping> of_rank;
  };

  int rank_;
  std::uint64_t next_ = Exposure::kFirstSegment;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Segment>> segments_;
  std::shared_ptr<host::OwnSegments> own_ = host::OwnSegments::of_this_process();
  mutable host::OthersSegments others_;
};

// What a rank asks for stands before its ticket, so that they can be compared.
void check_same_request(const std::vector<std::string>& texts) {
  const auto request = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    check(request(texts[rank]) == request(texts[0]),
        "empty: the ranks ask for different tensors: rank 0 for ", request(texts[0]), ", rank ",
        rank, " for ", request(texts[rank]));
  }
}

std::optional<Exposure> SymmetricMemory::expose(const void* memory, std::size_t bytes) const {
  const auto* start = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  for (const auto& weak : segments_) {
    const auto segment = weak.lock();
    if (!segment) continue;
    const std::byte* base = segment->of_rank[static_cast<std::size_t>(rank_)].data();
    if (start >= base && start + bytes <= base + segment->bytes) {
      return Exposure{segment->id, static_cast<std::uint64_t>(start - base)};
    }
  }
  return own_->expose(memory, bytes);
}

std::shared_ptr<std::byte> SymmetricMemory::resolve(int rank, const Exposure& exposure) const {
  if ((exposure.segment & Exposure::kOwn) != 0) return others_.resolve(rank, exposure);
  const std::lock_guard lock(mutex_);
  for (const auto& weak : segments_) {
    const auto segment = weak.lock();
    if (segment && segment->id == exposure.segment) {
      return {segment, segment->of_rank[static_cast<std::size_t>(rank)].data() + exposure.offset};
    }
  }
  throw CommError(concat("rank ", rank, " uses shared memory that rank ", rank_, " has released"));
}

torch::Tensor SymmetricMemory::empty(std::int64_t elements, const torch::TensorOptions& options,
    const host::ExchangeText& exchange) {
  const std::size_t wanted = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  const auto segment = std::make_shared<Segment>(Segment{0, std::max<std::size_t>(wanted, 1), {}});
  const host::MemoryFile own = host::make_memory_file(segment->bytes);
  const auto texts = exchange(concat(elements, " ", options.dtype().name(), "\n", own.ticket));
  check_same_request(texts);
  for (const std::string& text : texts) {
    const auto file = host::open_memory_file(text.substr(text.find('\n') + 1), segment->bytes);
    segment->of_rank.push_back(host::Mapping::shared(file, segment->bytes));
  }
  // The second exchange keeps each file open until everyone has mapped it.
  exchange("mapped");
  std::byte* data = segment->of_rank[static_cast<std::size_t>(rank_)].data();
  ::madvise(data, segment->bytes, MADV_HUGEPAGE);  // only a hint: fewer page faults
  const std::lock_guard lock(mutex_);
  segment->id = next_++;
  std::erase_if(segments_, [](const auto& weak) { return weak.expired(); });
  segments_.push_back(segment);
  return torch::from_blob(
      data, {elements}, [segment](void*) {}, options);
}

torch::Tensor SymmetricMemory::allocate(
    std::int64_t elements, const torch::TensorOptions& options) {
  auto memory = own_->allocate(static_cast<std::size_t>(elements) * options.dtype().itemsize());
  std::byte* const data = memory.get();
  return torch::from_blob(
      data, {elements}, [memory = std::move(memory)](void*) {}, options);
}

template <typename Step>
std::string failure_of(Step step) {
  try {
    step();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

void check_all_shared(const std::vector<int>& members, const std::vector<std::string>& failures) {
  for (const int member : members) {
    const std::string& failure = failures[static_cast<std::size_t>(member)];
    if (!failure.empty()) throw MemoryNotShared(concat("shm: rank ", member, ": ", failure));
  }
}

std::string reason_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace

namespace host {

HostBackend::HostBackend(
    std::shared_ptr<SharedRegion> region, std::unique_ptr<AddressSpace> space, int rank)
    : Backend(rank, region->size()),
      region_(std::move(region)),
      engine_(std::make_shared<Engine>(region_, std::move(space), rank)) {
  engine_->join(std::make_shared<RankEngines>());
}

Work HostBackend::begin(const CollectiveCall& call) {
  if (call.kind == Kind::kSend) return engine_->send(call.input, call.peer, call.tag);
  if (call.kind == Kind::kRecv) return engine_->recv(call.output, call.peer, call.tag);
  if (call.kind == Kind::kBarrier) return engine_->begin({.kind = call.kind});
  const bool gives_piece = call.kind == Kind::kScatter || call.kind == Kind::kReduceScatter;
  const int pieces = gives_piece || call.kind == Kind::kAllToAll ? size_ : 1;
  const std::int64_t elements = gives_piece ? call.output.numel() : call.tensor().numel() / pieces;
  return engine_->begin({.kind = call.kind,
      .element = call.tensor().scalar_type(),
      .op = call.op,
      .root = call.root,
      .elements = elements,
      .pieces = pieces,
      .input = data_of(call.input),
      .output = data_of(call.output),
      .tensors = call.has_one_tensor() ? std::vector{call.tensor()}
                                       : std::vector{call.output, call.input}});
}

torch::Tensor HostBackend::make_empty(std::int64_t elements, const torch::TensorOptions& options) {
  return engine_->space().empty(
      elements, options, [this](const std::string& text) { return exchange(text); });
}

std::vector<std::string> HostBackend::exchange(const std::string& text) {
  constexpr std::int64_t kBytes = 256;
  check(text.size() < kBytes, "exchange: the text is too long: ", text);
  torch::Tensor own = torch::zeros({kBytes}, on_host(torch::kByte));
  std::memcpy(own.data_ptr(), text.data(), text.size());
  const torch::Tensor all = torch::empty({size_, kBytes}, on_host(torch::kByte));
  begin({.kind = Kind::kAllGather, .output = all, .input = own}).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < size_; ++rank)
    texts.emplace_back(static_cast<const char*>(all[rank].data_ptr()));
  return texts;
}

}  // namespace host

std::shared_ptr<SharedRegion> ThreadBackend::make_region(int size) {
  return std::make_shared<SharedRegion>(
      host::Mapping::anonymous(SharedRegion::bytes_for(size)), size);
}

ThreadBackend::ThreadBackend(std::shared_ptr<SharedRegion> region, int rank)
    : HostBackend(std::move(region), std::make_unique<OneProcess>(), rank) {}

// The first member makes the region and lends it until the others have it.
std::shared_ptr<Backend> ThreadBackend::make_subgroup(const std::vector<int>& members) {
  const int own = place_among(members, rank());
  const SharedRegion::SubgroupKey key{++subgroups_, members.front()};
  std::shared_ptr<SharedRegion> made;
  if (own == 0) {
    made = make_region(static_cast<int>(members.size()));
    made->share_alarms(shared_region(), members);
    region().lend(key, made);
  }
  begin({.kind = Operation::kBarrier}).wait();
  auto group = std::make_shared<ThreadBackend>(region().borrow(key), own);
  begin({.kind = Operation::kBarrier}).wait();
  group->join(*this);
  group->set_timeout(timeout());
  return group;
}

ShmBackend::ShmBackend(
    std::shared_ptr<SharedRegion> region, int rank, const std::vector<int>& processes)
    : HostBackend(std::move(region), std::make_unique<SymmetricMemory>(rank, processes), rank) {
  engine().watch(processes);
}

std::shared_ptr<ShmBackend> ShmBackend::create(const Store& store, const std::string& topic,
    int rank, int size, std::chrono::milliseconds timeout) {
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto at_store = [&, round = 0](const std::string& text) mutable {
    return exchange_texts(store, concat(topic, "-", ++round), rank, size, text, timeout);
  };
  return meet(everyone, rank, timeout, at_store, nullptr);
}

std::shared_ptr<ShmBackend> ShmBackend::open(const std::vector<int>& members, int rank,
    const std::vector<std::string>& tickets, const HostBackend* parent) {
  const int size = static_cast<int>(members.size());
  const std::size_t bytes = SharedRegion::bytes_for(size);
  const auto file =
      host::open_memory_file(tickets[static_cast<std::size_t>(members.front())], bytes);
  auto region = std::make_shared<SharedRegion>(host::Mapping::shared(file, bytes), size);
  if (parent != nullptr) region->share_alarms(parent->shared_region(), members);
  return std::shared_ptr<ShmBackend>(new ShmBackend(
      std::move(region), place_among(members, rank), processes_of(members, tickets)));
}

// The first member makes the region; the others open it through that process, which keeps it open
// until all have. Whether it works can only be tried, so each says how its try went.
std::shared_ptr<ShmBackend> ShmBackend::meet(const std::vector<int>& members, int rank,
    std::chrono::milliseconds timeout, const host::ExchangeText& exchange,
    const HostBackend* parent) {
  host::MemoryFile file{.descriptor = {}, .ticket = concat(::getpid())};
  std::string failure = failure_of([&] {
    if (members.front() == rank)
      file = host::make_memory_file(SharedRegion::bytes_for(static_cast<int>(members.size())));
  });
  const auto tickets = exchange(file.ticket);
  std::shared_ptr<ShmBackend> backend;
  if (failure.empty())
    failure = failure_of([&] { backend = open(members, rank, tickets, parent); });
  check_all_shared(members, exchange(failure.substr(0, 200)));
  if (parent != nullptr) backend->join(*parent);
  backend->set_timeout(timeout);
  backend->barrier().wait();
  return backend;
}

std::shared_ptr<Backend> ShmBackend::make_subgroup(const std::vector<int>& members) {
  const auto through_group = [this](const std::string& text) { return exchange(text); };
  return meet(members, rank(), timeout(), through_group, this);
}

void run_ranks(int size, const std::function<void(ProcessGroup)>& body) {
  check(size >= 1, "run_ranks: the number of ranks must be at least 1: ", size);
  const auto region = ThreadBackend::make_region(size);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int rank) {
    try {
      body(size == 1 ? ProcessGroup(std::make_shared<SingleBackend>())
                     : ProcessGroup(recorded_world(std::make_shared<ThreadBackend>(region, rank))));
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      region->abort(concat("rank ", rank, " failed: ", reason_of(std::current_exception())));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep
