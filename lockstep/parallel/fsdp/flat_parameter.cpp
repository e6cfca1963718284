#include "lockstep/parallel/fsdp/flat_parameter.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/device/alignment.h"

namespace lockstep {
namespace {

std::vector<std::int64_t> strides_without_holes(const torch::Tensor& parameter) {
  const torch::Tensor values = parameter.detach();
  if (values.is_non_overlapping_and_dense()) return values.strides().vec();
  return at::empty_like(values).strides().vec();
}

// No view for autograd: a parameter is a leaf.
torch::Tensor tensor_on(const torch::Storage& storage, const torch::TensorOptions& options,
    std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::empty({0}, options).set_(storage, offset, sizes, strides);
}

std::vector<std::int64_t> sizes_of_part(std::size_t dimensions, std::int64_t elements) {
  std::vector<std::int64_t> sizes(dimensions, 1);
  if (dimensions > 0) sizes.back() = elements;
  return sizes;
}

constexpr const char* kReleased =
    "FullyShardedDataParallel: a parameter is used while it is in parts; it is whole in the "
    "forward "
    "and backward of the layer that holds it, and under whole()";

constexpr const char* kCast =
    "FullyShardedDataParallel: a parameter that autocast casts was gathered in the shorter type, "
    "but is read in its own; leave its module out by the option casts";

// LibTorch before 2.15 cannot undo it: there, who uses the parameter uses address 0.
template <typename Storage>
void allow_use(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); })
    storage.clear_data_ptr_access_error_msg_();
}
template <typename Storage>
void refuse_use(Storage& storage, const char* reason) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); })
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(reason);
}

at::ScalarType type_of(const torch::TensorOptions& options) {
  return options.dtype().toScalarType();
}

std::int64_t bytes_in(const torch::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace

TensorRange range_of(const ParameterPart& part) {
  const std::int64_t elements = part.tensor.defined() ? part.tensor.numel() : 0;
  return {.whole = part.sizes,
      .order = memory_order(part.sizes, part.strides),
      .begin = part.begin,
      .end = part.begin + elements};
}

Stretch common(const Stretch& a, const Stretch& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max<std::int64_t>(0, std::min(a.end(), b.end()) - begin)};
}

FlatLayout::FlatLayout(const std::vector<std::int64_t>& elements, std::int64_t unit, int ranks) {
  std::int64_t end = 0;
  for (const std::int64_t count : elements) {
    offsets.push_back(end);
    end = rounded_up(end + count, unit);
  }
  shard = rounded_up((end + ranks - 1) / ranks, unit);
}

torch::Tensor BufferPool::take(std::int64_t elements, const torch::TensorOptions& options) {
  auto chosen = free_.end(), largest = free_.end();
  for (auto buffer = free_.begin(); buffer != free_.end(); ++buffer) {
    if (buffer->scalar_type() != options.dtype() || buffer->device() != options.device()) continue;
    if (largest == free_.end() || buffer->numel() > largest->numel()) largest = buffer;
    const bool fits = buffer->numel() >= elements;
    if (fits && (chosen == free_.end() || buffer->numel() < chosen->numel())) chosen = buffer;
  }
  if (chosen != free_.end()) {
    torch::Tensor buffer = std::move(*chosen);
    free_.erase(chosen);
    return buffer;
  }
  if (largest != free_.end()) {
    bytes_ -= bytes_in(*largest);
    free_.erase(largest);
  }
  torch::Tensor made = make_(elements, options);
  count(bytes_in(made));
  return made;
}

void BufferPool::count(std::int64_t bytes) {
  bytes_ += bytes;
  peak_ = std::max(peak_, bytes_);
}

void BufferPool::clear() {
  for (const torch::Tensor& buffer : free_) bytes_ -= bytes_in(buffer);
  free_.clear();
}

BufferPools::BufferPools(const ProcessGroup& group)
    : parameters([](std::int64_t elements, const torch::TensorOptions& options) {
        return at::empty({elements}, options);
      }),
      parts([group](std::int64_t elements, const torch::TensorOptions& options) {
        return group.empty(elements, options);
      }),
      gradients([group](std::int64_t elements, const torch::TensorOptions& options) {
        return group.empty(elements, options);
      }) {}

ShardingGroups::ShardingGroups(const ProcessGroup& all, int copies) : shards(all) {
  check(copies >= 1 && all.size() % copies == 0, "FullyShardedDataParallel: ", all.size(),
      " ranks cannot share ", copies, " replicas equally; take a divisor of the ranks");
  if (copies == 1) return;
  const int each = all.size() / copies;
  shards = all.split(all.rank() / each, all.rank());
  replicas = all.split(all.rank() % each, all.rank());
}

void ShardingGroups::abort(const std::string& reason) const {
  shards.abort(reason);
  replicas.abort(reason);
}

FlatParameter::FlatParameter(const NamedTensors& parameters, const ShardingGroups& groups,
    BufferPools& pools, const TravelTypes& types)
    : group_(groups.shards),
      replicas_(groups.replicas),
      pools_(pools),
      types_(types),
      options_(parameters.front().second.options().requires_grad(false)) {
  const torch::NoGradGuard no_gradients;
  std::vector<std::int64_t> elements;
  for (const auto& [name, parameter] : parameters) elements.push_back(parameter.numel());
  const auto shortest = types.gathers_casts || types.gradients
                            ? 2
                            : static_cast<std::int64_t>(options_.dtype().itemsize());
  const auto unit = kTensorAlignment / shortest;
  const FlatLayout layout(elements, unit, group_.size());
  shard_elements_ = layout.shard;
  lay_out(parameters, layout);
  const torch::Tensor whole = at::zeros({shard_elements_ * group_.size()}, options_);
  move_to(whole);
  shard_ = group_.empty(shard_elements_, options_);
  group_.scatter(shard_, group_.rank() == 0 ? whole : torch::Tensor(), 0).wait();
  if (replicas_.size() > 1) replicas_.broadcast(shard_, 0).wait();
  make_parts();
  lend(whole_, nullptr);  // frees the memory
}

// A group whose ranks have failed has nothing to wait for.
FlatParameter::~FlatParameter() {
  lend(whole_, nullptr);
  if (cast_.storage) lend(cast_.storage, nullptr);
}

void FlatParameter::lay_out(const NamedTensors& parameters, const FlatLayout& layout) {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto& [name, parameter] = parameters[index];
    members_.push_back({.name = name,
        .parameter = parameter,
        .sizes = parameter.sizes().vec(),
        .strides = strides_without_holes(parameter),
        .offset = layout.offsets[index],
        .part = {}});
  }
}

void FlatParameter::move_to(const torch::Tensor& whole) {
  whole_ = whole.storage();
  for (Member& member : members_) {
    const torch::Tensor moved =
        tensor_on(whole_, options_, member.offset, member.sizes, member.strides);
    moved.copy_(member.parameter);
    member.parameter.set_data(moved);
    member.parameter.mutable_grad().reset();
  }
}

void FlatParameter::make_parts() {
  const Stretch own{group_.rank() * shard_elements_, shard_elements_};
  for (Member& member : members_) {
    const Stretch here = common(own, {member.offset, member.parameter.numel()});
    member.part = {member.name, member.sizes, member.strides, here.begin - member.offset, {}};
    if (member.parameter.numel() == 0 && group_.rank() == 0) {  // so that snapshots have its name
      member.part.begin = 0;
      member.part.tensor = at::empty(member.sizes, options_).set_requires_grad(is_trained());
    }
    if (here.count == 0) continue;
    member.part_offset = here.begin - own.begin;
    const torch::Tensor seen = shard_.narrow(0, member.part_offset, here.count)
                                   .view(sizes_of_part(member.sizes.size(), here.count));
    member.part.tensor =
        tensor_on(shard_.storage(), options_, seen.storage_offset(), seen.sizes(), seen.strides());
    member.part.tensor.set_requires_grad(is_trained());
  }
}

std::int64_t FlatParameter::version() const {
  std::int64_t sum = 0;
  for (const Member& member : members_)
    if (member.part.tensor.defined()) sum += member.part.tensor._version();
  return sum;
}

void FlatParameter::lend(const torch::Storage& storage, void* memory) const {
  c10::StorageImpl& own = *storage.unsafeGetStorageImpl();
  own.set_data_ptr_noswap(at::DataPtr(memory, options_.device()));
  if (memory != nullptr)
    allow_use(own);
  else
    refuse_use(own, kReleased);
}

// Graphs have saved views of this storage, so it stays the same.
void FlatParameter::lend_cast(at::ScalarType type) {
  if (!cast_.storage || type_of(cast_.options) != type) {
    cast_.options = options_.dtype(type);
    cast_.storage = at::empty({shard_elements_ * group_.size()}, cast_.options).storage();
  }
  lend(cast_.storage, lent_.data_ptr());
  stand_in(whole_, cast_);
  refuse_use(*whole_.unsafeGetStorageImpl(), kCast);
}

torch::Tensor FlatParameter::part_to_send(at::ScalarType type) {
  if (type == type_of(options_)) return shard_;
  sent_ = pools_.parts.take(shard_elements_, options_.dtype(type));
  return sent_.narrow(0, 0, shard_elements_).copy_(shard_);
}

torch::Tensor FlatParameter::own_shard_of(const torch::Tensor& whole) const {
  return whole.narrow(0, group_.rank() * shard_elements_, shard_elements_);
}

void FlatParameter::begin_gather(std::optional<at::ScalarType> cast) {
  const at::ScalarType type = types_.gathers_casts && cast ? *cast : type_of(options_);
  if (is_whole() && lent_.scalar_type() == type) return;
  release();
  const torch::NoGradGuard no_gradients;
  const bool has_averages = std::ranges::any_of(members_, [](const Member& member) {
    return member.part.tensor.defined() && member.part.tensor.grad().defined();
  });
  if (!has_averages) {  // from zero_grad() to backward
    gradient_shard_.reset();
    for (Member& member : members_) member.place = {};
  }
  const std::int64_t elements = shard_elements_ * group_.size();
  lent_ = pools_.parameters.take(elements, options_.dtype(type));
  if (type == type_of(options_))
    lend(whole_, lent_.data_ptr());
  else
    lend_cast(type);
  ++gathers_;
  gather_ = group_.all_gather(lent_.narrow(0, 0, elements), part_to_send(type));
}

void FlatParameter::finish_gather() {
  std::exchange(gather_, {}).wait();
  if (sent_.defined()) pools_.parts.give(std::exchange(sent_, {}));
}

void FlatParameter::release() {
  if (!is_whole()) return;
  finish_gather();
  lend(whole_, nullptr);
  if (cast_.storage) lend(cast_.storage, nullptr);
  pools_.parameters.give(std::exchange(lent_, {}));
}

void FlatParameter::keep_part_of_whole() {
  const torch::NoGradGuard no_gradients;
  shard_.copy_(own_shard_of(lent_));
}

void FlatParameter::give_back() {
  for (Member& member : members_) member.parameter.set_data(member.parameter.detach().clone());
}

// LibTorch's own comparison of storages asks for their memory, which released ones have not.
std::optional<std::size_t> FlatParameter::index_of(const torch::Tensor& view) const {
  const bool is_here =
      view.has_storage() && view.storage().unsafeGetStorageImpl() == whole_.unsafeGetStorageImpl();
  for (std::size_t index = 0; is_here && index < members_.size(); ++index) {
    const Member& member = members_[index];
    if (view.storage_offset() == member.offset && view.sizes() == member.sizes &&
        view.strides() == member.strides)
      return index;
  }
  return std::nullopt;
}

void FlatParameter::take_gradient(std::size_t index) {
  add_gradient(index, std::exchange(members_[index].parameter.mutable_grad(), {}));
}

void FlatParameter::add_gradient(std::size_t index, torch::Tensor gradient) {
  if (!gradient.defined()) return;
  const torch::NoGradGuard no_gradients;
  Member& member = members_[index];
  const bool is_first = !std::exchange(member.has_gradient, true);
  if (is_first) ++gradients_;
  if (!gradient_.all.defined() && fills_shards()) {
    if (!is_free(member, gradient))
      gradient = at::empty_strided(member.sizes, member.strides, options_).copy_(gradient);
    pools_.gradients.add(gradient);
    gradient_ = {gradient.as_strided({gradient.numel()}, {1}), /*is_of_pool=*/false};
    return;
  }
  if (!gradient_.all.defined())
    gradient_ = {pools_.gradients.take(shard_elements_ * group_.size(), options_)};
  const torch::Tensor own = gradient_.all.as_strided(
      member.sizes, member.strides, gradient_.all.storage_offset() + member.offset);
  if (is_first)
    own.copy_(gradient);
  else
    own.add_(gradient);
}

// Then its gradient is averaged where it lies: a large one, as of an embedding, would be there
// twice. So it is on all ranks, whoever else has it on one: they make the pool's buffers together.
bool FlatParameter::fills_shards() const {
  return members_.size() == 1 &&
         members_.front().parameter.numel() == shard_elements_ * group_.size();
}

// Whether averages may go there. While the hook of an accumulation runs, the engine has a second
// tensor of that memory, but no third.
bool FlatParameter::is_free(const Member& member, const torch::Tensor& gradient) const {
  return gradient.use_count() == 1 && gradient.layout() == torch::kStrided &&
         gradient.storage().use_count() <= 2 && gradient.dtype() == options_.dtype() &&
         gradient.sizes() == member.sizes && gradient.strides() == member.strides;
}

// Over replicas, as over hosts, sums are divided at last: but for those of 16 bits, which might
// leave their range.
bool FlatParameter::divides_at_end() const {
  return !sends_shorter() && replicas_.size() > 1 && options_.dtype().itemsize() >= 4;
}

ReduceOp FlatParameter::step_of_reduction() const {
  return sends_shorter() || divides_at_end() ? ReduceOp::kSum : ReduceOp::kMean;
}

bool FlatParameter::sends_shorter() const {
  return types_.gradients && c10::elementSize(*types_.gradients) < options_.dtype().itemsize();
}

// Divides before the cast: the sum over many ranks must fit into the shorter type.
void FlatParameter::shorten_gradients() {
  const std::int64_t elements = shard_elements_ * group_.size();
  const torch::Tensor shorter = pools_.gradients.take(elements, options_.dtype(*types_.gradients));
  const torch::Tensor whole = reduced_.all.narrow(0, 0, elements);
  shorter.narrow(0, 0, elements).copy_(whole.div_(group_.size() * replicas_.size()));
  put_back(std::exchange(reduced_, {shorter}));
}

// Into this rank's shard of the gradients themselves: what the others read are their own shards.
void FlatParameter::begin_reduce() {
  const torch::NoGradGuard no_gradients;
  finish_reduce();
  reduced_ = std::exchange(gradient_, {});
  for (Member& member : members_) member.has_gradient = false;
  gradients_ = 0;
  if (sends_shorter()) shorten_gradients();
  const torch::Tensor whole = reduced_.all.narrow(0, 0, shard_elements_ * group_.size());
  reduction_ = group_.reduce_scatter(own_shard_of(whole), whole, step_of_reduction());
  is_within_copy_ = replicas_.size() > 1;
}

// One flat parameter is reduced at a time, so all ranks do this in one order.
void FlatParameter::reduce_over_replicas() {
  if (!std::exchange(is_within_copy_, false)) return;
  std::exchange(reduction_, {}).wait();
  reduction_ = replicas_.all_reduce(own_shard_of(reduced_.all), step_of_reduction());
}

void FlatParameter::finish_reduce() {
  if (!reduced_.all.defined()) return;
  const torch::NoGradGuard no_gradients;
  reduce_over_replicas();
  std::exchange(reduction_, {}).wait();
  if (!gradient_shard_.defined()) make_places();
  torch::Tensor averages = own_shard_of(reduced_.all);
  if (divides_at_end()) averages.div_(group_.size() * replicas_.size());
  for (Member& member : members_)
    if (member.part.tensor.defined()) add_to_part(member, averages);
  put_back(std::exchange(reduced_, {}));
}

void FlatParameter::put_back(Gradients done) {
  if (done.is_of_pool) return pools_.gradients.give(std::move(done.all));
  pools_.gradients.drop(done.all);
}

void FlatParameter::make_places() {
  gradient_shard_ = at::empty({shard_elements_}, options_);
  for (Member& member : members_) {
    const torch::Tensor& part = member.part.tensor;
    if (part.defined())
      member.place =
          GradientPlace(gradient_shard_, member.part_offset, part.sizes(), part.strides());
  }
}

// A gradient that a caller has kept since zero_grad() stays as it is.
void FlatParameter::add_to_part(Member& member, const torch::Tensor& averages) {
  torch::Tensor& gradient = member.part.tensor.mutable_grad();
  const torch::Tensor added = averages.narrow(0, member.part_offset, member.part.tensor.numel())
                                  .view(member.part.tensor.sizes());
  if (gradient.defined()) {
    gradient.add_(added);
    return;
  }
  if (member.place.is_seen()) member.place.leave_to_those_who_see();
  member.place.memory().copy_(added);
  gradient = member.place.gradient();
}

void FlatParameter::poll() {
  gather_.done();
  if (options_.device().is_cpu() && reduction_.done()) reduce_over_replicas();
}

}  // namespace lockstep
