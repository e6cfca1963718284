#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/formats/export/exported_program.h"

namespace lockstep::nn::exported {

/// Returns the form of a tensor as a message shows it: `[s0, 64] of int64`.
std::string text_of(const ExportedTensor& tensor);

/// The forms that a program takes tensors in: for each its kind of numbers and its sizes, which are
/// numbers or symbols with a range.
class InputForms {
 public:
  /// Takes those of the user's inputs that are tensors. A number among them is a DataError that
  /// begins with `where`.
  InputForms(const ExportedProgram& program, const std::string& where);

  std::size_t size() const { return forms_.size(); }
  const std::vector<std::string>& names() const { return names_; }

  /// Throws InvalidArgument that names the input, its form and the one that was exported, and says
  /// how to export a model for other sizes. A symbol has one value in all inputs, and as in Python
  /// a size may be below its range if that begins with no more than 2.
  void check(std::span<const torch::Tensor> inputs) const;

  /// Finds an input whose first size is a number.
  std::optional<std::string> input_of_fixed_batch() const;

  /// Returns the forms as a message shows them: `ids [s0, 64] of int64, mask [s0, 64] of bool`.
  std::string text() const;

 private:
  struct Size {
    std::int64_t number = 0;
    std::optional<std::size_t> symbol;  ///< instead of the number
    bool is_free = false;               ///< an expression, whose value nothing here says
    std::string text;
  };
  struct Form {
    torch::ScalarType type;
    std::vector<Size> sizes;
    std::string text;
  };

  Size size_of(const ExportedSize& size, const ExportedProgram& program);
  void check_form(std::size_t input, const torch::Tensor& tensor,
      std::span<std::optional<std::int64_t>> values) const;
  void refuse_size(std::size_t input, const torch::Tensor& tensor, std::size_t dimension) const;

  std::vector<std::string> names_;
  std::vector<Form> forms_;
  std::vector<std::string> symbols_;
  std::vector<ExportedRange> ranges_;  ///< of the symbols
};

}  // namespace lockstep::nn::exported
