#include "tests/accelerator/generator.h"

#include <array>
#include <cstring>
#include <vector>

#include "tests/accelerator/runtime.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

namespace lockstep::emulated {
namespace {

using State = std::array<std::uint64_t, 2>;

}  // namespace

Generator::Generator(c10::DeviceIndex device)
    : GeneratorImpl(c10::Device(c10::kPrivateUse1, device),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

at::Generator Generator::next() {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;  // the golden ratio, as in SplitMix64
  return at::detail::createCPUGenerator(seed_ ^ (kOdd * ++offset_));
}

void Generator::set_current_seed(std::uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

std::uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void Generator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK(state.numel() == sizeof(State), "emulated accelerator: a generator's state has ",
      sizeof(State), " bytes");
  State values;
  std::memcpy(values.data(), state.data(), sizeof(State));
  seed_ = values[0];
  offset_ = values[1];
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  const State values = {seed_, offset_};
  const at::Tensor state =
      at::empty({sizeof(State)}, at::TensorOptions(at::kByte).device(at::kCPU));
  std::memcpy(state.mutable_data_ptr(), values.data(), sizeof(State));
  return state.getIntrusivePtr();
}

Generator* Generator::clone_impl() const {
  auto* const copy = new Generator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto& generators = *[] {
    auto* const made = new std::vector<at::Generator>;
    for (c10::DeviceIndex index = 0; index < Runtime::kDevices; ++index)
      made->push_back(at::make_generator<Generator>(index));
    return made;
  }();
  return generators.at(static_cast<std::size_t>(device));
}

}  // namespace lockstep::emulated
