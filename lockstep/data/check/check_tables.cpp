#include "lockstep/data/check/check_tables.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/tensor_table.h"
#include "lockstep/formats/weights/tensor_numbers.h"

namespace lockstep::data {
namespace {

TensorTables open_tables(const SetReport& report, const TensorChoice& choice) {
  if (report.set == "tensors") return open_tensors(report.directory.string(), choice);
  const bool is_text = report.set == "text";
  return open_tokens(
      report.directory.string(), is_text ? SequenceKind::kText : SequenceKind::kTokens);
}

/// The numbers that were seen of a tensor.
class Range {
 public:
  explicit Range(const TensorColumn& column, bool is_target)
      : report_{printable_path(column.name), is_target, std::string(torch_name(column.type)),
            column.sizes} {
    report_.least = std::numeric_limits<double>::infinity();
    report_.most = -report_.least;
  }

  void add(double number) {
    if (!std::isfinite(number)) {
      ++report_.nonfinite;
      return;
    }
    report_.least = std::min(report_.least, number);
    report_.most = std::max(report_.most, number);
    sum_ += number;
    ++count_;
  }

  TensorReport report() const {
    TensorReport report = report_;
    if (count_ == 0) report.least = report.most = std::numeric_limits<double>::quiet_NaN();
    report.mean = sum_ / static_cast<double>(count_);
    return report;
  }

  std::int64_t nonfinite() const { return report_.nonfinite; }

 private:
  TensorReport report_;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

/// Reads the columns of a part, a row at a time.
class TableReader {
 public:
  TableReader(SetReport& report, const CheckOptions& options, std::int64_t rows)
      : report_(report), options_(options), rows_(rows) {}

  void read(const std::string& name, const TensorTable& table, std::int64_t classes) {
    PartReport part{.name = name, .images = table.rows(), .per_class = {}};
    part.per_class.resize(static_cast<std::size_t>(classes));
    for (const TensorColumn& column : table.inputs) read_column(part, column, false);
    for (const TensorColumn& column : table.targets) read_column(part, column, true);
    report_.parts.push_back(std::move(part));
  }

 private:
  void read_column(PartReport& part, const TensorColumn& column, bool is_target) {
    Range range(column, is_target);
    std::optional<std::string> first_bad;
    std::vector<double> numbers(static_cast<std::size_t>(column.elements()));
    for (std::int64_t index = 0; index < column.rows(); ++index) {
      const TensorRow row = row_of(column, index);
      copy_numbers<double>(column.type, row.bytes, numbers);
      const bool is_class = is_target && !part.per_class.empty();
      if (is_class && numbers[0] >= 0) ++part.per_class[static_cast<std::size_t>(numbers[0])];
      for (const double number : numbers) range.add(number);
      if (range.nonfinite() > 0 && !first_bad)
        first_bad = concat(row.piece->name, ", sample ", index - row.piece->first);
      if (options_.progress && ++done_ % kPause == 0) options_.progress(done_, rows_);
    }
    for (const ColumnPiece& piece : column.pieces) piece.file->require_unchanged();
    part.tensors.push_back(range.report());
    if (first_bad)
      report_.bad.push_back(
          {*first_bad, concat(part.tensors.back().name, " has ", range.nonfinite(),
                           " numbers in this part that are NaN or infinite, of which this sample "
                           "has the first")});
  }

  static constexpr std::int64_t kPause = 1 << 16;

  SetReport& report_;
  const CheckOptions& options_;
  std::int64_t rows_, done_ = 0;
};

std::int64_t rows_of(const TensorTables& tables) {
  std::int64_t rows = 0;
  for (const TensorTable* const part : parts_of(tables))
    rows += part->rows() * std::ssize(part->inputs) + part->rows() * std::ssize(part->targets);
  return rows;
}

}  // namespace

void check_tables(SetReport& report, const CheckOptions& options) {
  try {
    const TensorTables tables = open_tables(report, options.choice);
    report.remarks = tables.remarks;
    TableReader reader(report, options, rows_of(tables));
    reader.read("train", tables.train, tables.classes);
    if (tables.validation) reader.read("val", *tables.validation, tables.classes);
    if (tables.test) reader.read("test", *tables.test, tables.classes);
  } catch (const DataError& error) {
    report.bad.push_back({report.set, error.what()});
  }
}

}  // namespace lockstep::data
