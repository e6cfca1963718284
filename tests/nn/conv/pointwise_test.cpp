// 1x1 convolutions of few images: the same results with rows counted as images, by oneDNN.

#include "lockstep/nn/conv/pointwise.h"

#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

#include "lockstep/nn/conv/convolution.h"

namespace lockstep::nn::conv {
namespace {

at::Tensor drawn(at::IntArrayRef sizes) {
  return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

TEST(Pointwise, AnImageIsCutIntoTheFewestPartsThatAreEnough) {
  EXPECT_EQ(parts_of_image(8, 56), 2);
  EXPECT_EQ(parts_of_image(1, 56), 28);
  EXPECT_EQ(parts_of_image(8, 7), 7);
  EXPECT_EQ(parts_of_image(3, 7), 7);
  EXPECT_EQ(parts_of_image(2, 7), 1) << "not enough rows";
  EXPECT_EQ(parts_of_image(16, 56), 1);
  EXPECT_EQ(parts_of_image(8, 1), 1);
  EXPECT_EQ(parts_of_image(0, 56), 1);
}

at::native::ConvBackend backend_of(const at::Tensor& images, const at::Tensor& weight) {
  const std::vector<c10::SymInt> ones{1, 1}, zeros{0, 0};
  return at::native::select_conv_backend(images, weight, std::nullopt, ones, zeros, ones, false,
      zeros, 1, at::OptionalSymIntArrayRef());
}

TEST(Pointwise, OneDnnTakesWhatIsCut) {
  if (!at::globalContext().hasMKLDNN()) GTEST_SKIP() << "LibTorch without oneDNN";
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto images = drawn({8, 32, 14, 14}), weight = drawn({48, 32, 1, 1});
  EXPECT_EQ(backend_of(images, weight), at::native::ConvBackend::Slow2d) << "else there is no need";
  EXPECT_EQ(backend_of(cut_rows(images, 2), weight), at::native::ConvBackend::Mkldnn);
  at::set_num_threads(threads);
}

TEST(Pointwise, CutImagesAreViewsAndJoinAgain) {
  const auto images = drawn({3, 5, 8, 4});
  const auto cut = cut_rows(images, 4);
  EXPECT_EQ(cut.sizes(), (std::vector<std::int64_t>{12, 5, 2, 4}));
  EXPECT_EQ(cut.data_ptr(), images.data_ptr());
  EXPECT_TRUE(cut.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(join_rows(cut, 4).equal(images));
  EXPECT_TRUE(cut[5].equal(images[1].slice(1, 2, 4))) << "the second quarter of image 1";
}

/// A module's output and the gradients of images, weight and bias.
std::vector<at::Tensor> run(Kernels who, const at::Tensor& given, const torch::nn::Conv2d& module,
    const at::Tensor& gradient) {
  const KernelScope scope(who);
  auto images = given.detach().clone().requires_grad_(true);
  auto layer = std::static_pointer_cast<torch::nn::Conv2dImpl>(module->clone());
  const auto output = layer->forward(images);
  output.backward(gradient);
  return {output.detach(), images.grad(), layer->weight.grad(), layer->bias.grad()};
}

void expect_as_libtorch(at::IntArrayRef sizes, std::int64_t outputs) {
  torch::nn::Conv2d module(torch::nn::Conv2dOptions(sizes[1], outputs, 1));
  const auto images = drawn(sizes), gradient = drawn({sizes[0], outputs, sizes[2], sizes[3]});
  const auto own = run(Kernels::kAuto, images, module, gradient);
  const auto libtorch = run(Kernels::kLibTorch, images, module, gradient);
  for (std::size_t i = 0; i < own.size(); ++i)
    EXPECT_TRUE(own[i].allclose(libtorch[i], 1e-4, 1e-4)) << i << " of " << sizes;
  EXPECT_TRUE(own[0].is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Pointwise, ResultsAndGradientsAreLibTorchs) {
  torch::manual_seed(1);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const std::int64_t images : {1, 2, 3, 8, 15, 16, 20})
    for (const std::int64_t height : {1, 2, 6, 7, 12})
      for (const std::int64_t width : {1, 5}) expect_as_libtorch({images, 24, height, width}, 40);
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace lockstep::nn::conv
