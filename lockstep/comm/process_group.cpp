#include "lockstep/comm/process_group.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/MemoryOverlap.h>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/device/device_backends.h"
#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

class CopyBack : public Work::State {
 public:
  CopyBack(Work work, torch::Tensor to, torch::Tensor from)
      : work_(std::move(work)), to_(std::move(to)), from_(std::move(from)) {}

  bool poll() override { return work_.done(); }

  void wait() override {
    work_.wait();
    if (from_.defined()) to_.copy_(std::exchange(from_, {}));
  }

  int sender() const override { return work_.sender(); }

 private:
  Work work_;
  torch::Tensor to_, from_;
};

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kAnd || op == ReduceOp::kOr || op == ReduceOp::kXor;
}

// Each check throws InvalidArgument that names the collective, the argument and its value.
void check_rank(const char* collective, const char* argument, int rank, int size) {
  check(0 <= rank && rank < size, collective, ": ", argument,
      " must be a rank of the group: ", rank, " of ", size);
}

void check_tensor(const char* collective, const torch::Tensor& tensor) {
  check(tensor.defined(), collective, ": the tensor is undefined");
  check(tensor.layout() == torch::kStrided, collective, ": the tensor must be dense, not ",
      tensor.layout());
  check(!tensor.is_complex(), collective,
      ": complex tensors are not supported; pass view_as_real of it");
}

void check_op(const char* collective, at::ScalarType type, ReduceOp op) {
  const bool real = c10::isFloatingType(type);
  check(!(real && is_bitwise(op)), collective, ": bitwise operations need whole numbers, not ",
      c10::toString(type));
  check(real || op != ReduceOp::kMean, collective,
      ": the mean of whole numbers is not one of them: ", c10::toString(type),
      "; reduce the sum, or floating-point numbers");
}

// `whole` must have the type of `piece` and `count` times its elements.
void check_pieces(const char* collective, const char* whole_name, const torch::Tensor& whole,
    const char* piece_name, const torch::Tensor& piece, int count) {
  check_tensor(collective, whole);
  check_tensor(collective, piece);
  check(whole.scalar_type() == piece.scalar_type(), collective, ": ", whole_name, " and ",
      piece_name, " must be of one type: ", c10::toString(whole.scalar_type()), " and ",
      c10::toString(piece.scalar_type()));
  check(whole.numel() == piece.numel() * count, collective, ": ", whole_name, " must have ", count,
      " times the elements of ", piece_name, ": ", whole.numel(), " and ", piece.numel());
}

// The operation on bytes that stands for one on bools: sum is or, product is and.
ReduceOp op_for(at::ScalarType type, ReduceOp op) {
  if (type != torch::kBool) return op;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kOr:
      return ReduceOp::kMax;
    case ReduceOp::kProduct:
    case ReduceOp::kAnd:
      return ReduceOp::kMin;
    default:
      return op;
  }
}

// Returns the type in which the backend reduces such numbers; bools are bytes.
at::ScalarType reduced_type(
    const char* collective, const Backend& backend, const torch::Tensor& tensor, ReduceOp op) {
  const at::ScalarType type = tensor.scalar_type();
  check_op(collective, type, op);
  const auto reduced = backend.reduced_as(
      tensor.device(), type == torch::kBool ? torch::kByte : type, op_for(type, op));
  check(reduced.has_value(), collective, ": the backend ", backend.name(),
      " can move elements of type ", c10::toString(type),
      ", but not reduce them; convert them first, such as to Float");
  return *reduced;
}

/// Returns a tensor as a backend wants it: its values in order in memory, of that type.
torch::Tensor dense(const torch::Tensor& tensor, at::ScalarType type) {
  const torch::Tensor plain = tensor.detach().resolve_neg().contiguous();
  return plain.scalar_type() == torch::kBool ? plain.view(type) : plain.to(type);
}
torch::Tensor dense(const torch::Tensor& tensor) { return dense(tensor, tensor.scalar_type()); }

/// A tensor into which a backend writes.
class Operand {
 public:
  Operand(const char* collective, const torch::Tensor& tensor, at::ScalarType type)
      : original_(tensor.detach()) {
    check(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, collective,
        ": the tensor that takes the result has several elements in one place of memory, as ",
        "expand() makes them; pass a copy");
    dense_ = lockstep::dense(tensor, type);
  }
  Operand(const char* collective, const torch::Tensor& tensor)
      : Operand(collective, tensor, tensor.scalar_type()) {}

  const torch::Tensor& dense() const { return dense_; }

  /// Returns work that also copies the result back into a tensor that is elsewhere.
  Work finish(Work work) const {
    if (original_.data_ptr() == dense_.data_ptr()) return work;
    return Work(std::make_shared<CopyBack>(std::move(work), original_, dense_));
  }

 private:
  torch::Tensor original_, dense_;
};

// Passes undefined tensors: whether one is allowed depends on the collective.
void check_carried(const char* collective, const Backend& backend,
    std::initializer_list<const torch::Tensor*> tensors) {
  std::optional<torch::Device> device;
  for (const torch::Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    check(backend.carries(tensor->device()), collective, ": the backend ", backend.name(),
        " does not support tensors on ", tensor->device());
    check(device.value_or(tensor->device()) == tensor->device(), collective,
        ": the tensors must be on one device: ", tensor->device(), " and ", *device);
    device = tensor->device();
  }
}

void check_one(const char* collective, const Backend& backend, const torch::Tensor& tensor) {
  check_tensor(collective, tensor);
  check_carried(collective, backend, {&tensor});
}

}  // namespace

ProcessGroup::ProcessGroup() : backend_(std::make_shared<SingleBackend>(false)) {}
ProcessGroup::ProcessGroup(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

int ProcessGroup::rank() const { return backend_->rank(); }
int ProcessGroup::size() const { return backend_->size(); }
std::string ProcessGroup::backend_name() const { return backend_->name(); }
std::string ProcessGroup::device_backend_name() const { return backend_->device_name(); }
bool ProcessGroup::sums_in_rank_order() const { return backend_->sums_in_rank_order(); }

ProcessGroup ProcessGroup::with_devices(const std::vector<torch::Device>& devices) const {
  check(!devices.empty(), "with_devices: at least one device is needed");
  for (const torch::Device& device : devices)
    check(device.type() == devices.front().type(),
        "with_devices: the devices are of two types: ", devices.front(), " and ", device);
  if (size() == 1 || devices.front().is_cpu()) return *this;
  for (const torch::Device& device : devices)
    check(
        device.has_index(), "with_devices: which one? name it with its number, as ", device, ":0");
  const std::string reason = reason_against(devices.front().type());
  check(reason.empty(), "with_devices: ", devices.front(), ": ", reason);
  return ProcessGroup(make_routed_backend(backend_, devices));
}

Work ProcessGroup::all_reduce(const torch::Tensor& tensor, ReduceOp op) const {
  check_one("all_reduce", *backend_, tensor);
  const Operand operand("all_reduce", tensor, reduced_type("all_reduce", *backend_, tensor, op));
  return operand.finish(backend_->all_reduce(operand.dense(), op_for(tensor.scalar_type(), op)));
}

Work ProcessGroup::reduce(const torch::Tensor& tensor, int root, ReduceOp op) const {
  check_rank("reduce", "root", root, size());
  check_one("reduce", *backend_, tensor);
  const Operand operand("reduce", tensor, reduced_type("reduce", *backend_, tensor, op));
  Work work = backend_->reduce(operand.dense(), root, op_for(tensor.scalar_type(), op));
  return rank() == root ? operand.finish(std::move(work)) : work;
}

Work ProcessGroup::broadcast(const torch::Tensor& tensor, int root) const {
  check_rank("broadcast", "root", root, size());
  check_one("broadcast", *backend_, tensor);
  const Operand operand("broadcast", tensor);
  return operand.finish(backend_->broadcast(operand.dense(), root));
}

Work ProcessGroup::all_gather(const torch::Tensor& output, const torch::Tensor& input) const {
  check_carried("all_gather", *backend_, {&output, &input});
  check_pieces("all_gather", "output", output, "input", input, size());
  const Operand operand("all_gather", output);
  return operand.finish(backend_->all_gather(operand.dense(), dense(input)));
}

Work ProcessGroup::gather(const torch::Tensor& output, const torch::Tensor& input, int root) const {
  check_carried("gather", *backend_, {&output, &input});
  check_rank("gather", "root", root, size());
  check_tensor("gather", input);
  if (rank() != root) {
    check(!output.defined(), "gather: only the root passes an output; rank ", rank(),
        " is not root ", root);
    return backend_->gather(output, dense(input), root);
  }
  check_pieces("gather", "output", output, "input", input, size());
  const Operand operand("gather", output);
  return operand.finish(backend_->gather(operand.dense(), dense(input), root));
}

Work ProcessGroup::scatter(
    const torch::Tensor& output, const torch::Tensor& input, int root) const {
  check_carried("scatter", *backend_, {&output, &input});
  check_rank("scatter", "root", root, size());
  check_tensor("scatter", output);
  const bool is_root = rank() == root;
  check(is_root || !input.defined(), "scatter: only the root passes an input; rank ", rank(),
      " is not root ", root);
  if (is_root) check_pieces("scatter", "input", input, "output", output, size());
  const Operand operand("scatter", output);
  return operand.finish(backend_->scatter(operand.dense(), is_root ? dense(input) : input, root));
}

Work ProcessGroup::reduce_scatter(
    const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) const {
  check_carried("reduce_scatter", *backend_, {&output, &input});
  check_pieces("reduce_scatter", "input", input, "output", output, size());
  const at::ScalarType type = reduced_type("reduce_scatter", *backend_, input, op);
  const Operand to("reduce_scatter", output, type);
  return to.finish(
      backend_->reduce_scatter(to.dense(), dense(input, type), op_for(input.scalar_type(), op)));
}

Work ProcessGroup::all_to_all(const torch::Tensor& output, const torch::Tensor& input) const {
  check_carried("all_to_all", *backend_, {&output, &input});
  check_pieces("all_to_all", "output", output, "input", input, 1);
  check(input.numel() % size() == 0,
      "all_to_all: the ranks must divide the elements: ", input.numel(), " elements, ", size(),
      " ranks");
  const Operand operand("all_to_all", output);
  return operand.finish(backend_->all_to_all(operand.dense(), dense(input)));
}

Work ProcessGroup::send(const torch::Tensor& tensor, int to, int tag) const {
  check_rank("send", "to", to, size());
  check(to != rank(), "send: rank ", to, " is this rank");
  check_one("send", *backend_, tensor);
  return backend_->send(dense(tensor), to, tag);
}

Work ProcessGroup::recv(const torch::Tensor& tensor, int from, int tag) const {
  if (from != kAnyRank || !backend_->receives_from_any()) check_rank("recv", "from", from, size());
  check(from != rank(), "recv: rank ", from, " is this rank");
  check_one("recv", *backend_, tensor);
  const Operand operand("recv", tensor);
  return operand.finish(backend_->recv(operand.dense(), from, tag));
}

Work ProcessGroup::barrier() const { return backend_->barrier(); }

ProcessGroup ProcessGroup::split(int color, int key) const {
  const torch::Tensor own = torch::tensor({color, key}, torch::kInt);
  const torch::Tensor all = torch::empty({size(), 2}, on_host(torch::kInt));
  all_gather(all, own).wait();
  std::vector<std::pair<int, int>> members;  // (key, rank)
  for (int rank = 0; rank < size(); ++rank) {
    if (all[rank][0].item<int>() == color) members.emplace_back(all[rank][1].item<int>(), rank);
  }
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& member : members) ranks.push_back(member.second);
  return ProcessGroup(backend_->subgroup(ranks));
}

torch::Tensor ProcessGroup::empty(
    std::int64_t elements, const torch::TensorOptions& options) const {
  check(elements >= 0, "empty: elements must not be negative: ", elements);
  check(backend_->carries(options.device()), "empty: the backend ", backend_->name(),
      " does not support tensors on ", options.device());
  return backend_->empty(elements, options);
}

void ProcessGroup::abort(const std::string& reason) const { backend_->abort(reason); }
std::chrono::milliseconds ProcessGroup::timeout() const { return backend_->timeout(); }
void ProcessGroup::set_timeout(std::chrono::milliseconds timeout) const {
  backend_->set_timeout(timeout);
}

}  // namespace lockstep
