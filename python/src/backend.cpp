#include "backend.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>

#include "pieces.h"
#include "sparse.h"
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/call_limit.h"
#include "lockstep/comm/gloo_backend.h"
#include "lockstep/comm/hierarchy/hierarchical_backend.h"
#include "lockstep/comm/host_backends.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::python {
namespace {

using c10d::OpType;
using Tensors = C10dBackend::Tensors;

constexpr std::chrono::microseconds kFirstPause(50), kLongestPause(1000);

// A complex number is reduced as two real ones.
ReduceOp op_of(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  check(!tensor.is_complex() || op.op_ == c10d::ReduceOp::SUM || op.op_ == c10d::ReduceOp::AVG,
      "complex numbers can be reduced by SUM and AVG alone");
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kMean;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kAnd;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kOr;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kXor;
    default:
      throw InvalidArgument(
          "the reduction PREMUL_SUM is not supported; multiply the tensors, then reduce the sum");
  }
}

const at::Tensor& only(const char* operation, const Tensors& tensors) {
  check(tensors.size() == 1, operation, ": one tensor is needed, not ", tensors.size());
  return tensors.front();
}

const Tensors& only_list(const char* operation, const std::vector<Tensors>& lists) {
  check(lists.size() == 1, operation, ": one list of tensors is needed, not ", lists.size());
  return lists.front();
}

Tensors joined_lists(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

void wait_for_all(std::vector<Work> works) {
  for (Work& work : works) work.wait();
}

at::Tensor counts_of(const Tensors& tensors) {
  std::vector<std::int64_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(tensor.numel());
  return torch::tensor(counts, on_host(at::kLong));
}

/// Returns the fewest and the most elements of a part of any rank. What a rank gives must be what
/// the other one takes.
std::pair<std::int64_t, std::int64_t> range_of_parts(
    const ProcessGroup& group, const Tensors& outputs, const Tensors& inputs) {
  const at::Tensor own = at::stack({counts_of(inputs), counts_of(outputs)});
  const at::Tensor all = at::empty({group.size(), 2, group.size()}, own.options());
  group.all_gather(all, own).wait();
  const auto counts = all.accessor<std::int64_t, 3>();
  for (int from = 0; from < group.size(); ++from)
    for (int to = 0; to < group.size(); ++to)
      check(counts[from][0][to] == counts[to][1][from], "all_to_all: rank ", from, " gives rank ",
          to, " ", counts[from][0][to], " elements, but rank ", to, " takes ", counts[to][1][from],
          " from it");
  return {all.min().item<std::int64_t>(), all.max().item<std::int64_t>()};
}

// Parts of different sizes are exchanged as if all were as long as the longest.
void all_to_all(const ProcessGroup& group, const Tensors& outputs, const Tensors& inputs) {
  const auto size = static_cast<std::size_t>(group.size());
  check(outputs.size() == size && inputs.size() == size,
      "all_to_all: a tensor for each rank and from each is needed: ", inputs.size(), " and ",
      outputs.size(), " for ", size, " ranks");
  for (const Tensors* tensors : {&outputs, &inputs})
    for (const at::Tensor& tensor : *tensors)
      check(tensor.scalar_type() == inputs.front().scalar_type(),
          "all_to_all: the tensors must be of one type: ", c10::toString(tensor.scalar_type()),
          " and ", c10::toString(inputs.front().scalar_type()));
  const auto [fewest, most] = range_of_parts(group, outputs, inputs);
  if (fewest == most) {
    const Pieces to("all_to_all", outputs), from("all_to_all", inputs);
    from.gather();
    group.all_to_all(to.whole(), from.whole()).wait();
    return to.spread();
  }
  const auto rows = [&, longest = most](const at::Tensor& like) {
    return torch::empty({group.size(), longest}, like.options());
  };
  const at::Tensor from = rows(inputs.front()), to = rows(outputs.front());
  const auto part = [](const at::Tensor& all, std::size_t rank, const at::Tensor& tensor) {
    return all[static_cast<std::int64_t>(rank)].narrow(0, 0, tensor.numel()).view(tensor.sizes());
  };
  for (std::size_t rank = 0; rank < size; ++rank)
    part(from, rank, inputs[rank]).copy_(inputs[rank]);
  group.all_to_all(as_real(to), as_real(from)).wait();
  for (std::size_t rank = 0; rank < size; ++rank)
    outputs[rank].detach().copy_(part(to, rank, outputs[rank]));
}

// Groups may be made again at the same place of a store.
Store own_part(const Store& store, int rank) {
  const auto turn = store->add(concat("lockstep-turn-", rank), 1);
  return c10::make_intrusive<c10d::PrefixStore>(concat("lockstep-", turn), store);
}

std::shared_ptr<lockstep::Backend> meet(
    const Store& whole, int rank, int size, std::chrono::milliseconds timeout) {
  if (size == 1) return std::make_shared<SingleBackend>();
  const Store store = own_part(whole, rank);
  const auto hosts = exchange_texts(store, "hosts", rank, size, host_identity(), timeout);
  auto backend = make_hierarchical_backend(
      store, rank, hosts, {.hostname = address_outwards(), .timeout = timeout});
  backend->match_tags();
  backend->barrier().wait();  // before there are messages
  return backend;
}

/// Records a group's calls where the launcher reads them. PyTorch gives all of its ranks the same
/// name, and the group of all ranks `0`.
void record(lockstep::Backend& backend, const std::string& name) {
  const std::uint64_t id =
      name == "0" ? kWorldGroup
                  : std::max(std::uint64_t{std::hash<std::string>()(name)}, kOtherGroups + 1);
  backend.record(GroupRecord(own_slot(), id, backend.rank(), backend.size()));
}

}  // namespace

/// A collective as start() takes it.
struct C10dBackend::Call {
  OpType type;
  const char* name;
  Tensors inputs = {};
  Tensors results = {};
};

/// The thread that carries out the asynchronous collectives of a group.
class C10dBackend::Thread {
 public:
  /// The thread itself starts with the first collective.
  static std::shared_ptr<Thread> start(std::shared_ptr<lockstep::Backend> backend) {
    auto thread = std::make_shared<Thread>(std::move(backend));
    const std::lock_guard lock(all().mutex);
    std::erase_if(all().threads, [](const auto& other) { return other.expired(); });
    all().threads.push_back(thread);
    return thread;
  }

  explicit Thread(std::shared_ptr<lockstep::Backend> backend) : backend_(std::move(backend)) {}

  /// Counts the collectives that have been begun and not ended.
  const std::shared_ptr<std::atomic<int>>& unfinished() { return unfinished_; }
  WorkQueue& queue() { return queue_; }

  /// Returns whether this is the group's process, not one that was forked, which has the group's
  /// memory but not its threads.
  bool is_here() const { return ::getpid() == process_; }

  /// Ends the other ranks' calls if this one leaves work unfinished.
  void abandon() {
    if (*unfinished_ > 0)
      backend_->abort(concat("rank ", backend_->rank(), " left the group with unfinished work"));
  }
  /// Abandons what is unfinished, and waits until all tensors have been let go.
  void close() {
    abandon();
    queue_.close();
  }

  /// Closes those of all groups of this process.
  static void close_all() {
    if (all().process != ::getpid()) return;
    std::vector<std::weak_ptr<Thread>> threads;
    {
      const std::lock_guard lock(all().mutex);
      threads = all().threads;
    }
    for (const auto& each : threads)
      if (const auto thread = each.lock()) thread->close();
  }

 private:
  struct All {
    const pid_t process = ::getpid();
    std::mutex mutex;
    std::vector<std::weak_ptr<Thread>> threads;
  };
  static All& all() {
    static All all;
    return all;
  }

  const pid_t process_ = ::getpid();
  std::shared_ptr<lockstep::Backend> backend_;
  std::shared_ptr<std::atomic<int>> unfinished_ = std::make_shared<std::atomic<int>>(0);
  WorkQueue queue_{[](const std::string&) {}};  ///< ends first
};

c10::intrusive_ptr<C10dBackend> C10dBackend::create(
    const Store& store, int rank, int size, Milliseconds timeout, const std::string& name) {
  auto backend = meet(store, rank, size, timeout);
  record(*backend, name);
  auto group = c10::make_intrusive<C10dBackend>(std::move(backend), timeout);
  group->options_->group_name = name;
  return group;
}

void C10dBackend::close_threads() { Thread::close_all(); }

C10dBackend::C10dBackend(std::shared_ptr<lockstep::Backend> backend, Milliseconds timeout)
    : c10d::Backend(backend->rank(), backend->size()),
      backend_(std::move(backend)),
      memory_(dynamic_cast<host::HostBackend*>(backend_.get())),
      options_(c10::make_intrusive<Options>("lockstep", timeout)),
      messages_(std::make_unique<ProgressThread>(
          [this, pause = kFirstPause]() mutable -> ProgressThread::Pause {
            if (has_new_message_.exchange(false)) pause = kFirstPause;
            if (!memory_->advance_messages()) return std::nullopt;
            return std::exchange(pause, std::min(2 * pause, kLongestPause));
          })),
      thread_(Thread::start(backend_)) {
  backend_->set_timeout(timeout);
  init();
}

void C10dBackend::setTimeout(Milliseconds timeout) {
  options_->timeout = timeout;
  backend_->set_timeout(timeout);
}

void C10dBackend::abort() { backend_->abort(concat("rank ", rank_, " has aborted the group")); }

at::Tensor C10dBackend::allocateTensor(long size, at::TensorOptions options) {
  return backend_->allocate(size, options);
}

c10::intrusive_ptr<c10d::Backend> C10dBackend::split(
    const Store& store, const std::vector<int>& ranks, const c10::intrusive_ptr<Options>& options) {
  const auto own = std::ranges::find(ranks, rank_);
  if (own == ranks.end()) return nullptr;
  return create(store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
      options ? options->timeout : options_->timeout,
      options ? options->group_name : concat("of ", options_->group_name));
}

namespace {

/// A collective to be carried out. If nobody does, since its group was closed, its work fails.
class Task {
 public:
  Task(c10::intrusive_ptr<CollectiveWork> work, std::function<void()> body,
      std::shared_ptr<std::atomic<int>> unfinished)
      : work_(std::move(work)), body_(std::move(body)), unfinished_(std::move(unfinished)) {
    ++*unfinished_;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (body_)
      end(for_python("lockstep", std::make_exception_ptr(CommError("the group was closed"))));
  }

  void run() { end(work_->carry_out(std::exchange(body_, nullptr))); }

 private:
  // Whoever has waited may close the group at once.
  void end(const std::exception_ptr& failure) {
    --*unfinished_;
    work_->end(failure);
  }

  c10::intrusive_ptr<CollectiveWork> work_;
  std::function<void()> body_;
  std::shared_ptr<std::atomic<int>> unfinished_;
};

/// The group in whose thread this is; null elsewhere. What a callback of a future calls there comes
/// at once: it would wait for itself behind the collective whose future it is.
thread_local const C10dBackend* of_this_thread = nullptr;

}  // namespace

// A callback may be the last to let the group go: its thread cannot wait for its own end. In a
// process that was forked there are no threads, and what they wait by cannot be destroyed.
C10dBackend::~C10dBackend() {
  if (!thread_->is_here()) {
    new std::shared_ptr(backend_);
    new std::shared_ptr(thread_);
    static_cast<void>(messages_.release());
    return;
  }
  thread_->abandon();
  if (of_this_thread == this) std::thread([thread = std::move(thread_)] {}).detach();
}

template <typename CallOptions>
C10dBackend::WorkPtr C10dBackend::start(
    Call call, const CallOptions& options, std::function<void()> body) {
  auto work =
      c10::make_intrusive<CollectiveWork>(CollectiveWork::Call{.group = options_->group_name,
          .rank = rank_,
          .type = call.type,
          .name = call.name,
          .number = ++number_,
          .inputs = std::move(call.inputs),
          .results = std::move(call.results)});
  const auto task = std::make_shared<Task>(work, std::move(body), thread_->unfinished());
  const CallLimit limit(
      options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout);
  if (of_this_thread == this || (!options.asyncOp && thread_->queue().is_idle())) {
    task->run();
  } else {
    static_cast<void>(thread_->queue().add([this, task] {
      of_this_thread = this;
      task->run();
    }));
  }
  return work;
}

C10dBackend::WorkPtr C10dBackend::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only("broadcast", tensors);
  return start({OpType::BROADCAST, "lockstep:broadcast", tensors, tensors}, options,
      [group = group_, tensor, root = static_cast<int>(options.rootRank)] {
        group.broadcast(as_real(tensor), root).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only("all_reduce", tensors);
  return start({OpType::ALLREDUCE, "lockstep:all_reduce", tensors, tensors}, options,
      [group = group_, tensor, op = options.reduceOp] {
        if (!tensor.is_sparse()) return group.all_reduce(as_real(tensor), op_of(op, tensor)).wait();
        check(op == c10d::ReduceOp::SUM, "all_reduce: sparse tensors can be reduced by SUM alone");
        tensor.copy_(sum_of_sparse(group, tensor));
      });
}

C10dBackend::WorkPtr C10dBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return start({OpType::ALLREDUCE_COALESCED, "lockstep:all_reduce", tensors, tensors}, options,
      [group = group_, tensors, op = options.reduceOp] {
        std::vector<Work> works;
        for (const at::Tensor& tensor : tensors)
          works.push_back(group.all_reduce(as_real(tensor), op_of(op, tensor)));
        wait_for_all(std::move(works));
      });
}

C10dBackend::WorkPtr C10dBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only("reduce", tensors);
  return start({OpType::REDUCE, "lockstep:reduce", tensors, tensors}, options,
      [group = group_, tensor, op = options.reduceOp, root = static_cast<int>(options.rootRank)] {
        group.reduce(as_real(tensor), root, op_of(op, tensor)).wait();
      });
}

namespace {

void gather_into_list(const ProcessGroup& group, const Tensors& outputs, const at::Tensor& input) {
  check(static_cast<int>(outputs.size()) == group.size(), "all_gather: an output for each of the ",
      group.size(), " ranks is needed, not ", outputs.size());
  const Pieces to("all_gather", outputs);
  group.all_gather(to.whole(), as_real(input)).wait();
  to.spread();
}

}  // namespace

C10dBackend::WorkPtr C10dBackend::allgather(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const at::Tensor input = only("all_gather", inputs);
  const Tensors list = only_list("all_gather", outputs);
  return start({OpType::ALLGATHER, "lockstep:all_gather", inputs, list}, options,
      [group = group_, list, input] { gather_into_list(group, list, input); });
}

C10dBackend::WorkPtr C10dBackend::allgather_coalesced(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return start({OpType::ALLGATHER_COALESCED, "lockstep:all_gather", inputs, joined_lists(outputs)},
      options, [group = group_, outputs, inputs] {
        check(!outputs.empty() && outputs.size() == static_cast<std::size_t>(group.size()),
            "all_gather_coalesced: a list of outputs for each rank is needed");
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          Tensors list;
          for (const Tensors& of_rank : outputs) list.push_back(of_rank.at(i));
          gather_into_list(group, list, inputs[i]);
        }
      });
}

C10dBackend::WorkPtr C10dBackend::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return start({OpType::_ALLGATHER_BASE, "lockstep:_all_gather_base", {input}, {output}}, options,
      [group = group_, output, input] {
        group.all_gather(as_real(output), as_real(input)).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check(outputs.size() == inputs.size(),
      "all_gather_into_tensor: an output for each input is needed");
  return start({OpType::COALESCED, "lockstep:all_gather", inputs, outputs}, options,
      [group = group_, outputs, inputs] {
        std::vector<Work> works;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          works.push_back(group.all_gather(as_real(outputs[i]), as_real(inputs[i])));
        wait_for_all(std::move(works));
      });
}

C10dBackend::WorkPtr C10dBackend::gather(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor input = only("gather", inputs);
  const bool is_root = rank_ == options.rootRank;
  const Tensors list = is_root ? only_list("gather", outputs) : Tensors();
  return start({OpType::GATHER, "lockstep:gather", inputs, list}, options,
      [group = group_, list, input, root = static_cast<int>(options.rootRank)] {
        if (group.rank() != root) return group.gather({}, as_real(input), root).wait();
        const Pieces to("gather", list);
        group.gather(to.whole(), as_real(input), root).wait();
        to.spread();
      });
}

C10dBackend::WorkPtr C10dBackend::scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor output = only("scatter", outputs);
  const bool is_root = rank_ == options.rootRank;
  const Tensors list = is_root ? only_list("scatter", inputs) : Tensors();
  return start({OpType::SCATTER, "lockstep:scatter", list, outputs}, options,
      [group = group_, list, output, root = static_cast<int>(options.rootRank)] {
        if (group.rank() != root) return group.scatter(as_real(output), {}, root).wait();
        const Pieces from("scatter", list);
        from.gather();
        group.scatter(as_real(output), from.whole(), root).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only("reduce_scatter", outputs);
  const Tensors list = only_list("reduce_scatter", inputs);
  return start({OpType::REDUCE_SCATTER, "lockstep:reduce_scatter", list, outputs}, options,
      [group = group_, list, output, op = options.reduceOp] {
        const Pieces from("reduce_scatter", list);
        from.gather();
        group.reduce_scatter(as_real(output), from.whole(), op_of(op, output)).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return start({OpType::_REDUCE_SCATTER_BASE, "lockstep:_reduce_scatter_base", {input}, {output}},
      options, [group = group_, output, input, op = options.reduceOp] {
        group.reduce_scatter(as_real(output), as_real(input), op_of(op, output)).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check(
      outputs.size() == inputs.size(), "reduce_scatter_tensor: an output for each input is needed");
  return start({OpType::COALESCED, "lockstep:reduce_scatter", inputs, outputs}, options,
      [group = group_, outputs, inputs, op = options.reduceOp] {
        std::vector<Work> works;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          works.push_back(
              group.reduce_scatter(as_real(outputs[i]), as_real(inputs[i]), op_of(op, outputs[i])));
        wait_for_all(std::move(works));
      });
}

C10dBackend::WorkPtr C10dBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
    std::vector<std::int64_t>& output_splits, std::vector<std::int64_t>& input_splits,
    const c10d::AllToAllOptions& options) {
  return start({OpType::ALLTOALL_BASE, "lockstep:all_to_all", {input}, {output}}, options,
      [group = group_, output, input, output_splits, input_splits] {
        all_to_all(group, parts_of(output, output_splits, group.size()),
            parts_of(input, input_splits, group.size()));
      });
}

C10dBackend::WorkPtr C10dBackend::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return start({OpType::ALLTOALL, "lockstep:all_to_all", inputs, outputs}, options,
      [group = group_, outputs, inputs] { all_to_all(group, outputs, inputs); });
}

C10dBackend::WorkPtr C10dBackend::barrier(const c10d::BarrierOptions& options) {
  return start(
      {OpType::BARRIER, "lockstep:barrier"}, options, [group = group_] { group.barrier().wait(); });
}

void C10dBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool) {
  c10d::BarrierOptions at_once = options;
  at_once.asyncOp = false;
  barrier(at_once)->wait();
}

C10dBackend::WorkPtr C10dBackend::start_message(
    OpType type, const Tensors& tensors, int peer, int tag) {
  const bool sends = type == OpType::SEND;
  const std::string what = concat("lockstep: group ", options_->group_name, ", rank ", rank_);
  Work work;
  try {
    const at::Tensor tensor = as_real(only(sends ? "send" : "recv", tensors));
    work = sends ? group_.send(tensor, peer, tag) : group_.recv(tensor, peer, tag);
  } catch (...) {
    std::rethrow_exception(for_python(what, std::current_exception()));
  }
  if (memory_ != nullptr) {
    has_new_message_ = true;
    messages_->wake();
  }
  return c10::make_intrusive<MessageWork>(rank_, type, what, std::move(work), tensors);
}

C10dBackend::WorkPtr C10dBackend::send(Tensors& tensors, int to, int tag) {
  return start_message(OpType::SEND, tensors, to, tag);
}

C10dBackend::WorkPtr C10dBackend::recv(Tensors& tensors, int from, int tag) {
  return start_message(OpType::RECV, tensors, from, tag);
}

C10dBackend::WorkPtr C10dBackend::recvAnysource(Tensors& tensors, int tag) {
  return start_message(OpType::RECVANYSOURCE, tensors, kAnyRank, tag);
}

}  // namespace lockstep::python
