#include "lockstep/parallel/ddp/comm_hook.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/linalg_qr.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

// Divides before the cast: the sum over many ranks must fit into the narrow type.
CommStep compress(const GradientBucket& bucket, at::ScalarType type) {
  if (c10::elementSize(bucket.memory.scalar_type()) <= c10::elementSize(type))
    return all_reduce_hook(bucket);
  const torch::Tensor narrow = bucket.memory.div(bucket.group.size()).to(type);
  return {bucket.group.all_reduce(narrow), [memory = bucket.memory, narrow] {
            memory.copy_(narrow);
            return CommStep{};
          }};
}

/// The tensors that a parameter keeps from one pass to the next.
struct Memory {
  torch::Tensor q;
  torch::Tensor lost;  // by compression, of the loss as it is without a scale
};

/// A gradient on its way: `input` is the gradient and what was lost before.
struct Compressed {
  torch::Tensor gradient;
  torch::Tensor input;  // n x m; what compression loses, once the result is there
  torch::Tensor p, q;   // views of what is sent
  Memory* memory;
};

/// A bucket on its way.
struct Pending {
  std::vector<Compressed> compressed;
  std::vector<torch::Tensor> exact;
  torch::Tensor exact_flat, p_flat, q_flat;
  Work exact_work;
};

// The pieces of a flat tensor, as long as the shapes ask for.
torch::Tensor take(const torch::Tensor& flat, std::int64_t& at, std::int64_t n, std::int64_t m) {
  const torch::Tensor piece = flat.narrow(0, at, n * m).view({n, m});
  at += n * m;
  return piece;
}

void begin_exact(Pending& pending, const ProcessGroup& group) {
  if (pending.exact.empty()) return;
  std::vector<torch::Tensor> pieces;
  for (const torch::Tensor& gradient : pending.exact) pieces.push_back(gradient.reshape({-1}));
  pending.exact_flat = torch::cat(pieces);
  pending.exact_work = group.all_reduce(pending.exact_flat, ReduceOp::kMean);
}

void finish_exact(Pending& pending) {
  pending.exact_work.wait();
  std::int64_t at = 0;
  for (const torch::Tensor& gradient : pending.exact) {
    gradient.copy_(take(pending.exact_flat, at, gradient.numel(), 1).view(gradient.sizes()));
  }
}

/// One rank's part: indices (dimensions x rows) and values (rows x the dense dimensions).
struct Rows {
  torch::Tensor indices, values;
};

Rows rows_of(const torch::Tensor& gradient) {
  const torch::Tensor coalesced = gradient.coalesce();
  return {coalesced.indices(), coalesced.values()};
}

Rows no_rows(const torch::Tensor& like, std::int64_t dimensions) {
  std::vector<std::int64_t> shape = like.sizes().slice(static_cast<std::size_t>(dimensions)).vec();
  shape.insert(shape.begin(), 0);
  return {torch::empty({dimensions, 0}, torch::TensorOptions(torch::kLong).device(like.device())),
      torch::empty(shape, like.options().requires_grad(false))};
}

// Pieces of a gather must be equally long.
torch::Tensor padded(const torch::Tensor& tensor, std::int64_t dimension, std::int64_t size) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape[static_cast<std::size_t>(dimension)] = size;
  torch::Tensor result = torch::zeros(shape, tensor.options());
  result.narrow(dimension, 0, tensor.size(dimension)).copy_(tensor);
  return result;
}

torch::Tensor room_for_all(const torch::Tensor& own, const ProcessGroup& group) {
  std::vector<std::int64_t> shape = own.sizes().vec();
  shape.insert(shape.begin(), group.size());
  return torch::empty(shape, own.options());
}

/// The shapes that all ranks reported of their parts.
struct Shape {
  std::vector<std::int64_t> rows;  // by rank
  std::int64_t longest = 0;
  std::int64_t dimensions = 1;  // that are indexed
};

Shape shape_of(const torch::Tensor& headers) {
  const torch::Tensor host = headers.cpu();
  const auto rows = host.select(1, 0).contiguous(), dimensions = host.select(1, 1).contiguous();
  const auto* first = rows.data_ptr<std::int64_t>();
  Shape shape{std::vector<std::int64_t>(first, first + rows.numel())};
  shape.longest = rows.max().item<std::int64_t>();
  shape.dimensions = std::max<std::int64_t>(1, dimensions.max().item<std::int64_t>());
  for (std::int64_t rank = 0; rank < rows.numel(); ++rank) {
    const auto own = dimensions[rank].item<std::int64_t>();
    check(own == 0 || own == shape.dimensions,
        "DistributedDataParallel: a sparse gradient indexes ", own, " dimensions on rank ", rank,
        " and ", shape.dimensions, " on another; it must be computed alike on all ranks");
  }
  return shape;
}

// In rank order; equal indices add up in that order on every rank.
torch::Tensor mean_of(const Rows& all, const Shape& shape, const torch::Tensor& like, int divisor) {
  std::vector<torch::Tensor> indices, values;
  for (std::size_t rank = 0; rank < shape.rows.size(); ++rank) {
    const auto at = static_cast<std::int64_t>(rank);
    indices.push_back(all.indices[at].narrow(1, 0, shape.rows[rank]));
    values.push_back(all.values[at].narrow(0, 0, shape.rows[rank]));
  }
  const torch::Tensor sum =
      torch::sparse_coo_tensor(torch::cat(indices, 1), torch::cat(values, 0), like.sizes())
          .coalesce();
  return torch::sparse_coo_tensor(sum.indices(), sum.values() / divisor, like.sizes())
      ._coalesced_(true);
}

}  // namespace

CommStep all_reduce_hook(const GradientBucket& bucket) {
  return {bucket.group.all_reduce(bucket.memory, ReduceOp::kMean)};
}

CommStep fp16_compress_hook(const GradientBucket& bucket) { return compress(bucket, torch::kHalf); }

CommStep bf16_compress_hook(const GradientBucket& bucket) {
  return compress(bucket, torch::kBFloat16);
}

struct PowerSgd::State {
  PowerSgdOptions options;
  at::Generator random;
  std::int64_t step = 0;
  std::unordered_map<const void*, Memory> memories = {};  // by parameter
  std::vector<std::shared_ptr<Pending>> pass = {};        // its buckets
  std::size_t finished = 0, newest = 0;                   // of them
  std::int64_t elements = 0, sent = 0;

  std::int64_t rank_of(std::int64_t n, std::int64_t m) const {
    return std::min({n, m, options.rank()});
  }
  bool is_worth_it(const torch::Tensor& gradient) const;
  torch::Tensor start_of(Memory& memory, std::int64_t columns, const torch::Tensor& input);
  void count_in(const GradientBucket& bucket, std::shared_ptr<Pending> pending);
  void take_in(const GradientBucket& bucket, Pending& pending);
  void compute_p(Pending& pending);
  static void compute_q(Pending& pending);
  void decompress(const Pending& pending) const;
  void finish(const Pending& pending);
  void remember();
};

bool PowerSgd::State::is_worth_it(const torch::Tensor& gradient) const {
  if (gradient.dim() < 2 || gradient.numel() == 0) return false;
  const std::int64_t n = gradient.size(0), m = gradient.numel() / n;
  const auto sent_elements = static_cast<double>((n + m) * rank_of(n, m));
  return sent_elements * options.min_compression_rate() < static_cast<double>(n * m);
}

// Drawn on the CPU, so that ranks on any device start alike.
torch::Tensor PowerSgd::State::start_of(
    Memory& memory, std::int64_t columns, const torch::Tensor& input) {
  if (options.warm_start() && memory.q.defined()) return orthonormal_basis(memory.q);
  const auto type = torch::TensorOptions(input.scalar_type());
  const torch::Tensor drawn = torch::randn({input.size(1), columns}, random, type);
  if (options.warm_start()) memory.q = drawn.to(input.device());
  return orthonormal_basis(drawn.to(input.device()));
}

// Buckets come in their order; a pass that was broken off leaves nothing.
void PowerSgd::State::count_in(const GradientBucket& bucket, std::shared_ptr<Pending> pending) {
  if (bucket.index <= newest) {
    pass.clear();
    finished = 0;
  }
  newest = bucket.index;
  pass.push_back(std::move(pending));
}

void PowerSgd::State::take_in(const GradientBucket& bucket, Pending& pending) {
  for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
    const torch::Tensor& gradient = bucket.gradients[i];
    elements += gradient.numel();
    if (!is_worth_it(gradient)) {
      pending.exact.push_back(gradient);
      sent += gradient.numel();
      continue;
    }
    Memory& memory = memories[bucket.parameters[i].unsafeGetTensorImpl()];
    torch::Tensor input = gradient.reshape({gradient.size(0), -1});
    if (options.error_feedback()) {
      if (!memory.lost.defined()) memory.lost = torch::zeros_like(input);
      const auto& scale = options.loss_scale();
      input = input + (scale ? memory.lost * scale(memory.lost.device()) : memory.lost);
    }
    pending.compressed.push_back({gradient, input, {}, {}, &memory});
  }
}

void PowerSgd::State::compute_p(Pending& pending) {
  std::int64_t p_elements = 0, q_elements = 0;
  for (const Compressed& part : pending.compressed) {
    const std::int64_t n = part.input.size(0), m = part.input.size(1);
    p_elements += n * rank_of(n, m);
    q_elements += m * rank_of(n, m);
  }
  sent += p_elements + q_elements;
  const auto type = pending.compressed.front().input.options();
  pending.p_flat = torch::empty({p_elements}, type);
  pending.q_flat = torch::empty({q_elements}, type);
  std::int64_t p_at = 0, q_at = 0;
  for (Compressed& part : pending.compressed) {
    const std::int64_t n = part.input.size(0), m = part.input.size(1), columns = rank_of(n, m);
    part.p = take(pending.p_flat, p_at, n, columns);
    part.q = take(pending.q_flat, q_at, m, columns);
    part.p.copy_(part.input.matmul(start_of(*part.memory, columns, part.input)));
  }
}

void PowerSgd::State::compute_q(Pending& pending) {
  for (Compressed& part : pending.compressed) {
    part.p = orthonormal_basis(part.p);
    part.q.copy_(part.input.t().matmul(part.p));
  }
}

void PowerSgd::State::decompress(const Pending& pending) const {
  for (const Compressed& part : pending.compressed) {
    const torch::Tensor result = part.p.matmul(part.q.t());
    if (options.error_feedback()) part.input.sub_(result);
    part.gradient.copy_(result.view(part.gradient.sizes()));
  }
}

void PowerSgd::State::finish(const Pending& pending) {
  decompress(pending);
  if (++finished < pass.size()) return;
  remember();
  pass.clear();
  finished = 0;
}

// A pass with an Inf or NaN makes no step: what it lost is not to come back, and what was lost
// before still is. All ranks have the same means, so they agree; no host waits for a device.
void PowerSgd::State::remember() {
  std::map<std::string, torch::Tensor> finite;  // on each device
  const auto look_at = [&](const torch::Tensor& means) {
    if (!means.defined()) return;
    torch::Tensor& all = finite[means.device().str()];
    const torch::Tensor these = torch::isfinite(means).all();
    all = all.defined() ? all.logical_and(these) : these;
  };
  for (const auto& pending : pass) look_at(pending->exact_flat), look_at(pending->q_flat);
  for (const auto& pending : pass) {
    for (Compressed& part : pending->compressed) {
      const torch::Tensor& all = finite[part.q.device().str()];
      if (options.warm_start()) part.memory->q = torch::where(all, part.q, part.memory->q);
      if (options.error_feedback()) {
        const auto& scale = options.loss_scale();
        const torch::Tensor lost = scale ? part.input / scale(part.input.device()) : part.input;
        part.memory->lost = torch::where(all, lost, part.memory->lost);
      }
      part.input.reset();
    }
  }
}

PowerSgd::PowerSgd(const PowerSgdOptions& options) {
  check(options.rank() >= 1, "PowerSgd: the rank must be positive: ", options.rank());
  check(options.start_step() >= 0,
      "PowerSgd: the start step must not be negative: ", options.start_step());
  check(options.min_compression_rate() > 0,
      "PowerSgd: the least compression rate must be positive: ", options.min_compression_rate());
  state_ = std::make_shared<State>(
      State{options, at::make_generator<at::CPUGeneratorImpl>(options.seed())});
}

CommStep PowerSgd::operator()(const GradientBucket& bucket) const {
  const std::int64_t step = state_->step;
  if (bucket.is_last) ++state_->step;
  if (step < state_->options.start_step()) return all_reduce_hook(bucket);

  const auto pending = std::make_shared<Pending>();
  state_->take_in(bucket, *pending);
  state_->count_in(bucket, pending);
  begin_exact(*pending, bucket.group);
  const auto finish = [=, state = state_]() -> CommStep {
    state->finish(*pending);
    return {};
  };
  const auto send_q = [=, group = bucket.group]() -> CommStep {
    finish_exact(*pending);
    State::compute_q(*pending);
    return {group.all_reduce(pending->q_flat, ReduceOp::kMean), finish};
  };
  if (pending->compressed.empty()) {
    return {{}, [=]() -> CommStep {
              finish_exact(*pending);
              return finish();
            }};
  }
  state_->compute_p(*pending);
  return {bucket.group.all_reduce(pending->p_flat, ReduceOp::kMean), send_q};
}

double PowerSgd::compression_rate() const {
  if (state_->sent == 0) return 1;
  return static_cast<double>(state_->elements) / static_cast<double>(state_->sent);
}

torch::Tensor orthonormal_basis(const torch::Tensor& matrix) {
  const bool half =
      matrix.scalar_type() == torch::kHalf || matrix.scalar_type() == torch::kBFloat16;
  const torch::Tensor wide = half ? matrix.to(torch::kFloat) : matrix;
  return std::get<0>(at::linalg_qr(wide, "reduced")).to(matrix.scalar_type());
}

CommStep reduce_sparse(const torch::Tensor& gradient, const torch::Tensor& like,
    const ProcessGroup& group, int divisor, const std::function<void(torch::Tensor)>& receive) {
  const Rows own = gradient.defined() ? rows_of(gradient) : Rows{};
  const torch::Tensor header =
      gradient.defined() ? torch::tensor({own.indices.size(1), own.indices.size(0)}, torch::kLong)
                         : torch::zeros({2}, on_host(torch::kLong));
  const torch::Tensor on_device = header.to(like.device());
  const torch::Tensor headers = room_for_all(on_device, group);
  const auto finish = [=](const Rows& all, const Shape& shape) {
    receive(mean_of(all, shape, like, divisor));
    return CommStep{};
  };
  const auto exchange = [=]() -> CommStep {
    const Shape shape = shape_of(headers);
    const Rows rows = gradient.defined() ? own : no_rows(like, shape.dimensions);
    const Rows sent{padded(rows.indices, 1, shape.longest), padded(rows.values, 0, shape.longest)};
    const Rows all{room_for_all(sent.indices, group), room_for_all(sent.values, group)};
    Work indices = group.all_gather(all.indices, sent.indices);
    return {group.all_gather(all.values, sent.values), [=]() mutable {
              indices.wait();
              return finish(all, shape);
            }};
  };
  return {group.all_gather(headers, on_device), exchange};
}

}  // namespace lockstep
