// Prints what a model computes with the weights of a file, for logits_round_trip.py:
//
//     round_trip_logits MODEL CLASSES read FILE     the logits of two images, one number a line
//     round_trip_logits MODEL CLASSES write FILE    the same, after writing fresh weights there
//     round_trip_logits MODEL CLASSES copy FROM TO  the same, after reading one and writing the
//     other

#include <cstdint>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/weights.h"

namespace lockstep {
namespace {

// Between -1 and 1, from the index alone, exactly in both languages: value % 2048 / 1024 - 1.
torch::Tensor formula_images() {
  auto images = at::empty({2, 3, 64, 64}, at::kFloat);
  auto* out = images.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < images.numel(); ++i) {
    out[i] = static_cast<float>(i * 1103515245 % 2048) / 1024.0F - 1.0F;
  }
  return images;
}

// Batch norms that have seen something, so that their buffers matter.
void train_once(nn::Model& model) {
  const at::NoGradGuard no_grad;
  model(formula_images() * 2);
}

void prepare(nn::Model& model, const std::vector<std::string>& words) {
  if (words[2] == "write") {
    train_once(model);
    nn::save_weights(*model, words[3]);
    return;
  }
  check(words[2] == "read" || words[2] == "copy", "round_trip_logits: unknown word: ", words[2]);
  std::cerr << remarks_text(nn::load_weights(*model, words[3]));
  if (words[2] == "copy") nn::save_weights(*model, words.at(4));
}

int body(int count, char** values) {
  const std::vector<std::string> words(values + 1, values + count);
  check(words.size() >= 4, "round_trip_logits: MODEL CLASSES read|write|copy FILE [FILE]");
  torch::manual_seed(1);
  nn::Model model = nn::make_model(words[0], std::stoll(words[1]));
  prepare(model, words);
  model->eval();
  const at::NoGradGuard no_grad;
  const torch::Tensor logits = model(formula_images()).contiguous();
  std::cout << std::setprecision(9);
  for (std::int64_t i = 0; i < logits.numel(); ++i) {
    std::cout << logits.const_data_ptr<float>()[i] << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int count, char** values) {
  return lockstep::run_program("round_trip_logits", lockstep::body, count, values);
}
