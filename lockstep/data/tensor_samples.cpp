#include "lockstep/data/tensor_samples.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/tensor_numbers.h"

namespace lockstep::data {
namespace {

torch::ScalarType scalar_type_of(SampleType type) {
  switch (type) {
    case SampleType::kFloat:
      return torch::kFloat;
    case SampleType::kInt64:
      return torch::kLong;
    case SampleType::kUint8:
      return torch::kByte;
    default:
      return torch::kBool;
  }
}

std::vector<TensorForm> forms_of(const std::vector<TensorColumn>& columns) {
  std::vector<TensorForm> forms;
  for (const TensorColumn& column : columns)
    forms.push_back({column.name, column.sizes, scalar_type_of(column.taken_as)});
  return forms;
}

// A device would not say which it was.
void check_tokens(
    const TensorColumn& column, const TensorRow& row, std::span<const std::int64_t> tokens) {
  const auto fits = [&](std::int64_t token) { return token >= 0 && token < column.vocabulary; };
  const auto wrong = std::ranges::find_if_not(tokens, fits);
  if (wrong == tokens.end()) return;
  const TensorEntry& file = row.piece->file->entries().front();
  const std::size_t before =
      static_cast<std::size_t>(row.bytes.data() - file.bytes.data()) / bytes_of(column.type);
  const auto place = before + static_cast<std::size_t>(wrong - tokens.begin());
  throw DataError(concat(row.piece->name, ": token ", place, " is ", *wrong,
      ", and the vocabulary of the model is ", column.vocabulary,
      *wrong < 0 ? "" : concat("; give --num-classes ", *wrong + 1, " or more")));
}

/// The memory of one tensor of a batch, filled row by row.
class RowWriter {
 public:
  RowWriter(const torch::Tensor& batch, const TensorColumn& column)
      : column_(column),
        type_(batch.scalar_type()),
        elements_(static_cast<std::size_t>(column.elements())),
        floats_(type_ == torch::kBFloat16 ? elements_ : 0),
        next_(static_cast<std::uint8_t*>(batch.mutable_data_ptr())),
        bytes_(elements_ * static_cast<std::size_t>(batch.element_size())) {}

  void write(const TensorRow& source) {
    const std::span<const std::uint8_t> row = source.bytes;
    switch (type_) {
      case torch::kFloat:
        copy<float>(row);
        break;
      case torch::kLong:
        copy<std::int64_t>(row);
        if (column_.vocabulary > 0)
          check_tokens(column_, source, {reinterpret_cast<std::int64_t*>(next_), elements_});
        break;
      case torch::kBFloat16:
        copy_numbers<float>(column_.type, row, floats_);
        std::ranges::copy(floats_, reinterpret_cast<torch::BFloat16*>(next_));
        break;
      case torch::kBool:
        std::ranges::transform(
            row, next_, [](std::uint8_t byte) { return static_cast<std::uint8_t>(byte != 0); });
        break;
      default:
        std::ranges::copy(row, next_);
    }
    next_ += bytes_;
  }

 private:
  template <typename Number>
  void copy(std::span<const std::uint8_t> row) {
    copy_numbers<Number>(column_.type, row, {reinterpret_cast<Number*>(next_), elements_});
  }

  const TensorColumn& column_;
  torch::ScalarType type_;
  std::size_t elements_;
  std::vector<float> floats_;  // of a row, where it is rounded
  std::uint8_t* next_;
  std::size_t bytes_;
};

void read_columns(const std::vector<TensorColumn>& columns, std::span<const SampleKey> keys,
    const std::vector<BatchTensor>& out) {
  std::set<const TensorFile*> files;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    RowWriter writer(out[i].tensor, columns[i]);
    for (const SampleKey& key : keys) {
      const TensorRow row = row_of(columns[i], key.index);
      writer.write(row);
      files.insert(row.piece->file.get());
    }
  }
  for (const TensorFile* const file : files) file->require_unchanged();
}

}  // namespace

TensorSamples::TensorSamples(TensorTable table, std::int64_t classes)
    : table_(std::move(table)), classes_(classes) {}

ImageShape TensorSamples::shape() const {
  ImageShape row{.channels = 1, .height = 1, .width = 0};
  for (const TensorColumn& column : table_.inputs) row.width += column.elements();
  return row;
}

std::vector<TensorForm> TensorSamples::inputs() const { return forms_of(table_.inputs); }

std::vector<TensorForm> TensorSamples::targets() const { return forms_of(table_.targets); }

std::string TensorSamples::name(std::int64_t index) const {
  const ColumnPiece& piece = *row_of(table_.inputs.front(), index).piece;
  return concat(piece.name, ", sample ", index - piece.first);
}

std::optional<std::int64_t> TensorSamples::label(std::int64_t index) const {
  check_index(index, size());
  if (table_.targets.size() != 1 || !table_.targets.front().sizes.empty() || classes_ == 0)
    return std::nullopt;
  std::int64_t label = 0;
  const TensorColumn& target = table_.targets.front();
  copy_numbers<std::int64_t>(target.type, row_of(target, index).bytes, {&label, 1});
  return label == kIgnoredTarget ? std::nullopt : std::optional(label);
}

void TensorSamples::read(std::span<const SampleKey> keys, const Batch& out) const {
  for (const SampleKey& key : keys) check_index(key.index, size());
  BatchForm form = form_of(*this);
  const bool is_float = has_form(out, std::ssize(keys), form);
  form.dtype = torch::kBFloat16;
  check(is_float || has_form(out, std::ssize(keys), form),
      "tensors: the batch must have the inputs and targets of the set, ", form.inputs.size(),
      " and ", form.targets.size());
  read_columns(table_.inputs, keys, out.inputs);
  read_columns(table_.targets, keys, out.targets);
}

}  // namespace lockstep::data
