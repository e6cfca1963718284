#include "backend.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "pieces.h"
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/gloo_backend.h"
#include "lockstep/comm/hierarchy/hierarchical_backend.h"
#include "lockstep/comm/host_backends.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::python {
namespace {

using c10d::OpType;
using Tensors = C10dBackend::Tensors;

constexpr std::chrono::microseconds kFirstPause(50), kLongestPause(1000);

ReduceOp op_of(const c10d::ReduceOp& op) {
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

/// Returns the fewest and the most elements of a part of any rank.
std::pair<std::int64_t, std::int64_t> range_of_parts(
    const ProcessGroup& group, const Tensors& one, const Tensors& other) {
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (const Tensors* parts : {&one, &other})
    for (const at::Tensor& part : *parts) {
      fewest = std::min(fewest, part.numel());
      most = std::max(most, part.numel());
    }
  const at::Tensor range = torch::tensor({-fewest, most}, on_host(at::kLong));
  group.all_reduce(range, ReduceOp::kMax).wait();
  return {-range[0].item<std::int64_t>(), range[1].item<std::int64_t>()};
}

// Parts of different sizes are exchanged as if all were as long as the longest.
void all_to_all(const ProcessGroup& group, const Tensors& outputs, const Tensors& inputs) {
  const auto size = static_cast<std::size_t>(group.size());
  check(outputs.size() == size && inputs.size() == size,
      "all_to_all: a tensor for each rank and from each is needed: ", inputs.size(), " and ",
      outputs.size(), " for ", size, " ranks");
  const auto [fewest, most] = range_of_parts(group, outputs, inputs);
  if (fewest == most) {
    const Pieces to("all_to_all", outputs), from("all_to_all", inputs);
    from.gather();
    group.all_to_all(to.whole(), from.whole()).wait();
    return to.spread();
  }
  const auto rows = [&, longest = most](const at::Tensor& like) {
    return torch::empty({group.size(), longest}, as_real(like).options());
  };
  const at::Tensor from = rows(inputs.front()), to = rows(outputs.front());
  const auto part = [](const at::Tensor& all, std::size_t rank, const at::Tensor& tensor) {
    return all[static_cast<std::int64_t>(rank)].narrow(0, 0, tensor.numel()).view(tensor.sizes());
  };
  for (std::size_t rank = 0; rank < size; ++rank)
    part(from, rank, as_real(inputs[rank])).copy_(as_real(inputs[rank]));
  group.all_to_all(to, from).wait();
  for (std::size_t rank = 0; rank < size; ++rank)
    as_real(outputs[rank].detach()).copy_(part(to, rank, as_real(outputs[rank])));
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
  if (auto* const memory = dynamic_cast<host::HostBackend*>(backend.get())) memory->match_tags();
  backend->barrier().wait();  // before there are messages
  return backend;
}

}  // namespace

/// A collective as start() takes it.
struct C10dBackend::Call {
  OpType type;
  const char* name;
  Tensors inputs = {};
  Tensors results = {};
};

c10::intrusive_ptr<C10dBackend> C10dBackend::create(
    const Store& store, int rank, int size, Milliseconds timeout, const std::string& name) {
  auto group = c10::make_intrusive<C10dBackend>(meet(store, rank, size, timeout), timeout);
  group->options_->group_name = name;
  return group;
}

C10dBackend::C10dBackend(std::shared_ptr<lockstep::Backend> backend, Milliseconds timeout)
    : c10d::Backend(backend->rank(), backend->size()),
      backend_(std::move(backend)),
      memory_(dynamic_cast<host::HostBackend*>(backend_.get())),
      options_(c10::make_intrusive<Options>("lockstep", timeout)),
      messages_([this, pause = kFirstPause]() mutable -> ProgressThread::Pause {
        if (!memory_->advance_messages()) {
          pause = kFirstPause;
          return std::nullopt;
        }
        return std::exchange(pause, std::min(2 * pause, kLongestPause));
      }) {
  backend_->set_timeout(timeout);
  init();
}

C10dBackend::~C10dBackend() {
  if (!queue_.is_idle())
    backend_->abort(concat("rank ", rank_, " left the group with unfinished work"));
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
  Task(c10::intrusive_ptr<CollectiveWork> work, std::function<void()> body)
      : work_(std::move(work)), body_(std::move(body)) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (body_)
      work_->end(
          for_python("lockstep", std::make_exception_ptr(CommError("the group was closed"))));
  }

  void run() { work_->carry_out(std::exchange(body_, nullptr)); }

 private:
  c10::intrusive_ptr<CollectiveWork> work_;
  std::function<void()> body_;
};

/// The group in whose thread this is; null elsewhere. What a callback of a future calls there comes
/// at once: it would wait for itself behind the collective whose future it is.
thread_local const C10dBackend* of_this_thread = nullptr;

}  // namespace

// The limit of a call counts while it is carried out; there is one at a time.
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
  const Milliseconds limit =
      options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  const auto task = std::make_shared<Task>(work, [this, limit, body = std::move(body)] {
    backend_->set_timeout(limit);
    body();
  });
  if (of_this_thread == this || (!options.asyncOp && queue_.is_idle())) {
    task->run();
  } else {
    static_cast<void>(queue_.add([this, task] {
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
      [this, tensor, root = static_cast<int>(options.rootRank)] {
        group_.broadcast(as_real(tensor), root).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only("all_reduce", tensors);
  return start({OpType::ALLREDUCE, "lockstep:all_reduce", tensors, tensors}, options,
      [this, tensor, op = options.reduceOp] {
        group_.all_reduce(as_real(tensor), op_of(op)).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return start({OpType::ALLREDUCE_COALESCED, "lockstep:all_reduce", tensors, tensors}, options,
      [this, tensors, op = options.reduceOp] {
        std::vector<Work> works;
        for (const at::Tensor& tensor : tensors)
          works.push_back(group_.all_reduce(as_real(tensor), op_of(op)));
        wait_for_all(std::move(works));
      });
}

C10dBackend::WorkPtr C10dBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only("reduce", tensors);
  return start({OpType::REDUCE, "lockstep:reduce", tensors, tensors}, options,
      [this, tensor, op = options.reduceOp, root = static_cast<int>(options.rootRank)] {
        group_.reduce(as_real(tensor), root, op_of(op)).wait();
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
      [this, list, input] { gather_into_list(group_, list, input); });
}

C10dBackend::WorkPtr C10dBackend::allgather_coalesced(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return start({OpType::ALLGATHER_COALESCED, "lockstep:all_gather", inputs, joined_lists(outputs)},
      options, [this, outputs, inputs] {
        check(!outputs.empty() && outputs.size() == static_cast<std::size_t>(size_),
            "all_gather_coalesced: a list of outputs for each rank is needed");
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          Tensors list;
          for (const Tensors& of_rank : outputs) list.push_back(of_rank.at(i));
          gather_into_list(group_, list, inputs[i]);
        }
      });
}

C10dBackend::WorkPtr C10dBackend::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return start({OpType::_ALLGATHER_BASE, "lockstep:_all_gather_base", {input}, {output}}, options,
      [this, output, input] { group_.all_gather(as_real(output), as_real(input)).wait(); });
}

C10dBackend::WorkPtr C10dBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check(outputs.size() == inputs.size(),
      "all_gather_into_tensor: an output for each input is needed");
  return start({OpType::ALLGATHER_INTO_TENSOR_COALESCED, "lockstep:all_gather", inputs, outputs},
      options, [this, outputs, inputs] {
        std::vector<Work> works;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          works.push_back(group_.all_gather(as_real(outputs[i]), as_real(inputs[i])));
        wait_for_all(std::move(works));
      });
}

C10dBackend::WorkPtr C10dBackend::gather(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor input = only("gather", inputs);
  const bool is_root = rank_ == options.rootRank;
  const Tensors list = is_root ? only_list("gather", outputs) : Tensors();
  return start({OpType::GATHER, "lockstep:gather", inputs, list}, options,
      [this, list, input, root = static_cast<int>(options.rootRank)] {
        if (rank_ != root) return group_.gather({}, as_real(input), root).wait();
        const Pieces to("gather", list);
        group_.gather(to.whole(), as_real(input), root).wait();
        to.spread();
      });
}

C10dBackend::WorkPtr C10dBackend::scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor output = only("scatter", outputs);
  const bool is_root = rank_ == options.rootRank;
  const Tensors list = is_root ? only_list("scatter", inputs) : Tensors();
  return start({OpType::SCATTER, "lockstep:scatter", list, outputs}, options,
      [this, list, output, root = static_cast<int>(options.rootRank)] {
        if (rank_ != root) return group_.scatter(as_real(output), {}, root).wait();
        const Pieces from("scatter", list);
        from.gather();
        group_.scatter(as_real(output), from.whole(), root).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only("reduce_scatter", outputs);
  const Tensors list = only_list("reduce_scatter", inputs);
  return start({OpType::REDUCE_SCATTER, "lockstep:reduce_scatter", list, outputs}, options,
      [this, list, output, op = options.reduceOp] {
        const Pieces from("reduce_scatter", list);
        from.gather();
        group_.reduce_scatter(as_real(output), from.whole(), op_of(op)).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return start({OpType::_REDUCE_SCATTER_BASE, "lockstep:_reduce_scatter_base", {input}, {output}},
      options, [this, output, input, op = options.reduceOp] {
        group_.reduce_scatter(as_real(output), as_real(input), op_of(op)).wait();
      });
}

C10dBackend::WorkPtr C10dBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check(
      outputs.size() == inputs.size(), "reduce_scatter_tensor: an output for each input is needed");
  return start(
      {OpType::REDUCE_SCATTER_TENSOR_COALESCED, "lockstep:reduce_scatter", inputs, outputs},
      options, [this, outputs, inputs, op = options.reduceOp] {
        std::vector<Work> works;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          works.push_back(
              group_.reduce_scatter(as_real(outputs[i]), as_real(inputs[i]), op_of(op)));
        wait_for_all(std::move(works));
      });
}

C10dBackend::WorkPtr C10dBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
    std::vector<std::int64_t>& output_splits, std::vector<std::int64_t>& input_splits,
    const c10d::AllToAllOptions& options) {
  return start({OpType::ALLTOALL_BASE, "lockstep:all_to_all", {input}, {output}}, options,
      [this, output, input, output_splits, input_splits] {
        all_to_all(
            group_, parts_of(output, output_splits, size_), parts_of(input, input_splits, size_));
      });
}

C10dBackend::WorkPtr C10dBackend::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return start({OpType::ALLTOALL, "lockstep:all_to_all", inputs, outputs}, options,
      [this, outputs, inputs] { all_to_all(group_, outputs, inputs); });
}

C10dBackend::WorkPtr C10dBackend::barrier(const c10d::BarrierOptions& options) {
  return start({OpType::BARRIER, "lockstep:barrier"}, options, [this] { group_.barrier().wait(); });
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
  if (memory_ != nullptr) messages_.wake();
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
