#include "lockstep/data/tensor_table.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/set_files.h"
#include "lockstep/formats/weights/npy.h"
#include "lockstep/formats/weights/tensor_numbers.h"
#include "lockstep/formats/weights/token_file.h"
#include "lockstep/formats/weights/weight_file.h"

namespace lockstep::data {
namespace {

constexpr const char* kTensors = "tensors";
constexpr std::array<std::string_view, 5> kEndings{".safetensors", ".npz", ".npy", ".pt", ".pth"};
constexpr const char* kInput = "input";
constexpr const char* kTarget = "target";

// More are numbers, such as prices, and no classes.
constexpr std::int64_t kMostCountedClasses = 1 << 20;

constexpr std::int64_t kTextClasses = 256;

/// A tensor of a file, before it is part of a column.
struct FoundTensor {
  std::string name;
  TensorEntry entry;
  std::shared_ptr<const TensorFile> file;
  std::string file_name;
};

/// What was found for each part, in the order of files.
using FoundParts = std::map<SetPart, std::vector<FoundTensor>>;

// The name of the one tensor of a `.npy` is in that of the file.
TensorFile read_set_file(const SetFile& file) {
  if (file.ending == ".npz") return read_npz(file.path);
  if (file.ending == ".npy")
    return read_npy(file.path, file.named.rest.empty() ? kInput : file.named.rest);
  if (std::ranges::find(kEndings, file.ending) == kEndings.end())
    throw DataError(concat(printable_path(file.path.string()), ": its ending says none of ",
        joined({kEndings.begin(), kEndings.end()})));
  return read_weights(file.path);
}

void add_tensors(const SetFile& file, FoundParts& parts) {
  const std::string file_name = printable_path(file.path.string());
  const auto read = std::make_shared<const TensorFile>(read_set_file(file));
  for (const TensorEntry& entry : read->entries()) {
    NamedPart named = part_of_tensor(entry.name);
    if (file.ending == ".npy" || !named.part || named.rest.empty()) named = {{}, entry.name};
    if (named.part && file.named.part && named.part != file.named.part)
      throw DataError(concat(file_name, ": its name says ", name_of(*file.named.part),
          ", but that of its tensor ", printable(entry.name), " says ", name_of(*named.part),
          "; rename one of them"));
    const SetPart part = file.named.part.value_or(named.part.value_or(SetPart::kTrain));
    parts[part].push_back({named.rest, entry, read, file_name});
  }
}

bool is_target_name(const std::string& name) {
  static const std::set<std::string> kNames{"target", "targets", "label", "labels", "y"};
  const std::string small = small_letters(name);
  return kNames.contains(small) || small.starts_with("target.") || small.starts_with("label.");
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// The names of the columns, in their order.
struct ColumnNames {
  std::vector<std::string> inputs, targets, unused;
};

ColumnNames chosen_names(const std::vector<FoundTensor>& found, const TensorChoice& choice) {
  std::vector<std::string> all;
  for (const FoundTensor& tensor : found)
    if (!contains(all, tensor.name)) all.push_back(tensor.name);
  for (const auto& [flag, names] :
      {std::pair{"--inputs", &choice.inputs}, std::pair{"--targets", &choice.targets}})
    for (const std::string& name : *names) {
      check(contains(all, name), kTensors, ": ", flag, " names ", printable(name),
          ", but the tensors are ", first_of(all, all.size()));
      check(std::ranges::count(*names, name) == 1, kTensors, ": ", flag, " names ", printable(name),
          " twice");
    }
  for (const std::string& name : choice.inputs)
    check(!contains(choice.targets, name), kTensors, ": ", printable(name),
        " cannot be of both --inputs and --targets");
  ColumnNames names{.inputs = choice.inputs, .targets = choice.targets, .unused = {}};
  for (const std::string& name : all) {
    if (contains(choice.inputs, name) || contains(choice.targets, name)) continue;
    const bool is_target = choice.targets.empty() && is_target_name(name);
    if (is_target) names.targets.push_back(name);
    if (!is_target) (choice.inputs.empty() ? names.inputs : names.unused).push_back(name);
  }
  return names;
}

SampleType taken_as(const FoundTensor& tensor, bool is_target) {
  const ElementType type = tensor.entry.type;
  if (type == ElementType::kUint8 && !is_target) return SampleType::kUint8;
  switch (kind_of(type)) {
    case NumberKind::kFloat:
      return SampleType::kFloat;
    case NumberKind::kInteger:
      return SampleType::kInt64;
    case NumberKind::kBool:
      return SampleType::kBool;
    default:
      throw DataError(concat(tensor.file_name, ": ", printable(tensor.name), " is of ",
          torch_name(type), ", which is not read; save it as float32 or int64"));
  }
}

std::vector<std::int64_t> sample_sizes(const FoundTensor& tensor) {
  const auto& shape = tensor.entry.shape;
  const bool has_numbers =
      std::ranges::find(shape.begin() + (shape.empty() ? 0 : 1), shape.end(), 0) == shape.end();
  if (shape.empty() || !has_numbers)
    throw DataError(concat(tensor.file_name, ": ", printable(tensor.name), " has the shape ",
        shape_text(shape), "; the first size must count samples, and each must have numbers"));
  return {shape.begin() + 1, shape.end()};
}

void append_piece(TensorColumn& column, const FoundTensor& tensor) {
  const std::int64_t rows = tensor.entry.shape.front();
  if (rows == 0) return;
  column.pieces.push_back({tensor.file, tensor.file_name, column.rows(), rows, tensor.entry.bytes});
}

// Joins the tensors of one name.
TensorColumn column_of(
    const std::vector<FoundTensor>& found, const std::string& name, bool is_target, SetPart part) {
  std::optional<TensorColumn> column;
  const FoundTensor* first = nullptr;
  for (const FoundTensor& tensor : found) {
    if (tensor.name != name) continue;
    const auto sizes = sample_sizes(tensor);
    if (!column) {
      column = {.name = name,
          .type = tensor.entry.type,
          .taken_as = taken_as(tensor, is_target),
          .sizes = sizes};
      first = &tensor;
    }
    if (column->type != tensor.entry.type || column->sizes != sizes)
      throw DataError(concat(tensor.file_name, ": ", printable(name), " is ",
          torch_name(tensor.entry.type), " of shape ", shape_text(tensor.entry.shape),
          " and cannot be joined to that of ", first->file_name, ", ", torch_name(column->type),
          " of shape ", shape_text(first->entry.shape)));
    append_piece(*column, tensor);
  }
  if (!column || column->rows() == 0)
    throw DataError(concat(kTensors, ": the part ", name_of(part), " has no samples of ",
        printable(name), column ? "" : ", which others have"));
  return *std::move(column);
}

// Rows that belong together are as many, within a file, too.
void check_rows(const std::vector<FoundTensor>& found, const ColumnNames& names) {
  std::map<std::string, const FoundTensor*> of_files;
  for (const FoundTensor& tensor : found) {
    if (contains(names.unused, tensor.name)) continue;
    const FoundTensor& other = *of_files.emplace(tensor.file_name, &tensor).first->second;
    if (other.entry.shape.front() != tensor.entry.shape.front())
      throw DataError(concat(tensor.file_name, ": ", printable(other.name), " has ",
          other.entry.shape.front(), " samples, but ", printable(tensor.name), " has ",
          tensor.entry.shape.front(), "; each must have as many"));
  }
}

// A file's rows belong together: they begin at the same place of each column.
void check_in_step(const TensorTable& table) {
  std::map<const TensorFile*, std::int64_t> firsts;
  for (const auto* const columns : {&table.inputs, &table.targets})
    for (const TensorColumn& column : *columns)
      for (const ColumnPiece& piece : column.pieces)
        if (firsts.emplace(piece.file.get(), piece.first).first->second != piece.first)
          throw DataError(concat(piece.name, ": its samples of ", printable(column.name),
              " are not in step with those of its other tensors, as a file before it lacks some; "
              "put the same tensors into each file"));
}

// Further columns of another part than train would be a mistake that nobody sees.
void check_known(const std::vector<FoundTensor>& found, const ColumnNames& names, SetPart part) {
  for (const FoundTensor& tensor : found) {
    const bool is_known = contains(names.inputs, tensor.name) ||
                          contains(names.targets, tensor.name) ||
                          contains(names.unused, tensor.name);
    if (!is_known)
      throw DataError(concat(tensor.file_name, ": the part ", name_of(part), " has ",
          printable(tensor.name), ", which the part train lacks; leave it out"));
  }
}

TensorTable table_of(
    const std::vector<FoundTensor>& found, const ColumnNames& names, SetPart part) {
  check_known(found, names, part);
  TensorTable table;
  for (const std::string& name : names.inputs)
    table.inputs.push_back(column_of(found, name, false, part));
  for (const std::string& name : names.targets)
    table.targets.push_back(column_of(found, name, true, part));
  check_rows(found, names);
  for (const auto* const columns : {&table.inputs, &table.targets})
    for (const TensorColumn& column : *columns)
      if (column.rows() != table.rows())
        throw DataError(concat(kTensors, ": the part ", name_of(part), " has ", table.rows(),
            " samples of ", printable(table.inputs.front().name), " and ", column.rows(), " of ",
            printable(column.name), "; each must have as many"));
  check_in_step(table);
  return table;
}

void check_same_columns(const TensorTable& train, const TensorTable& other, SetPart part) {
  const auto check_each = [&](const auto& ours, const auto& theirs) {
    for (std::size_t i = 0; i < ours.size(); ++i)
      if (ours[i].sizes != theirs[i].sizes || ours[i].taken_as != theirs[i].taken_as)
        throw DataError(concat(kTensors, ": a sample of ", printable(ours[i].name), " is ",
            torch_name(ours[i].type), " ", shape_text(ours[i].sizes), " in the part train, but ",
            torch_name(theirs[i].type), " ", shape_text(theirs[i].sizes), " in the part ",
            name_of(part)));
  };
  check_each(train.inputs, other.inputs);
  check_each(train.targets, other.targets);
}

/// The numbers of a column that may be classes.
struct Labels {
  std::int64_t least = 0, most = -1;  // but for those that are ignored
  bool are_classes() const { return least >= 0 && most < kMostCountedClasses; }
};

// Returns nothing for a column of fractions, or of several numbers a sample.
std::optional<Labels> labels_of(const TensorColumn& column) {
  if (column.taken_as != SampleType::kInt64 || !column.sizes.empty()) return {};
  Labels all;
  std::vector<std::int64_t> labels;
  for (const ColumnPiece& piece : column.pieces) {
    labels.resize(static_cast<std::size_t>(piece.rows));
    copy_numbers<std::int64_t>(column.type, piece.bytes, labels);
    for (const std::int64_t label : labels) {
      if (label == kIgnoredTarget) continue;
      all.least = std::min(all.least, label);
      all.most = std::max(all.most, label);
    }
  }
  return all;
}

// Of the one target of all parts; a negative number is told of, for it may be a mistake.
void count_classes(TensorTables& tables) {
  std::int64_t classes = 0;
  for (const TensorTable* const part : parts_of(tables)) {
    if (part->targets.size() != 1) return;
    const TensorColumn& target = part->targets.front();
    const auto labels = labels_of(target);
    if (labels && labels->least < 0)
      tables.remarks.push_back(concat(printable(target.name), " has the number ", labels->least,
          ", and so no classes, which begin at 0; what is not to count is ", kIgnoredTarget));
    if (!labels || !labels->are_classes()) return;
    classes = std::max(classes, labels->most + 1);
  }
  tables.classes = classes;
}

void remark_on_tensors(TensorTables& tables, const ColumnNames& names) {
  for (const auto* const columns : {&tables.train.inputs, &tables.train.targets})
    for (const TensorColumn& column : *columns)
      if (column.type == ElementType::kFloat64)
        tables.remarks.push_back(
            concat(printable(column.name), " is float64 and is rounded to float32"));
  if (!names.unused.empty())
    tables.remarks.push_back(concat(
        "neither inputs nor targets, and not read: ", first_of(names.unused, names.unused.size())));
}

template <typename Make>
TensorTables make_tables(
    const char* set, const std::string& paths, const auto& parts, const Make& make) {
  if (!parts.contains(SetPart::kTrain))
    throw DataError(concat(set, ": all of ", printable_path(paths),
        " is to validate or test with, by its names, and nothing to train with"));
  TensorTables tables{.train = make(parts.at(SetPart::kTrain), SetPart::kTrain)};
  const auto make_part = [&](SetPart part, std::optional<TensorTable>& table) {
    if (!parts.contains(part)) return;
    table = make(parts.at(part), part);
    check_same_columns(tables.train, *table, part);
  };
  make_part(SetPart::kValidation, tables.validation);
  make_part(SetPart::kTest, tables.test);
  return tables;
}

/// The file of tokens, or bytes, of a part, and where it is.
struct TokenFile {
  std::shared_ptr<const TensorFile> file;
  std::string name;

  const TensorEntry& tokens() const { return file->entries().front(); }
};

/// The files of tokens of each part.
struct TokenSet {
  const char* name;
  std::map<SetPart, std::vector<TokenFile>> parts;
  std::vector<std::string> remarks;
  std::int64_t vocabulary = 0;
};

TokenSet open_token_files(const std::string& paths, SequenceKind kind) {
  const bool is_text = kind == SequenceKind::kText;
  TokenSet set{.name = is_text ? "text" : "tokens", .parts = {}, .remarks = {}, .vocabulary = 0};
  const std::vector<std::string_view> texts{".txt"}, tokens{".bin", ".npy"};
  const SetFiles files = list_set_files(set.name, paths, is_text ? texts : tokens);
  if (!files.remark.empty()) set.remarks.push_back(files.remark);
  for (const SetFile& file : files.files) {
    auto& part = set.parts[file.named.part.value_or(SetPart::kTrain)];
    part.push_back({std::make_shared<const TensorFile>(
                        is_text ? read_bytes_as_tokens(file.path) : read_tokens(file.path)),
        printable_path(file.path.string())});
    if (part.back().tokens().type != part.front().tokens().type)
      throw DataError(concat(part.back().name, ": its tokens are ",
          torch_name(part.back().tokens().type), ", but those of ", part.front().name, " ",
          torch_name(part.front().tokens().type), "; make all of one type"));
  }
  return set;
}

// Some at a time: files may be larger than the memory.
std::int64_t largest_of(const TokenFile& file) {
  constexpr std::size_t kTokensAtATime = 1 << 16;
  const TensorEntry& all = file.tokens();
  const std::size_t step = kTokensAtATime * bytes_of(all.type);
  std::int64_t largest = 0;
  std::vector<std::int64_t> some;
  for (std::size_t first = 0; first < all.bytes.size(); first += step) {
    const auto bytes = all.bytes.subspan(first, std::min(step, all.bytes.size() - first));
    some.resize(bytes.size() / bytes_of(all.type));
    copy_numbers<std::int64_t>(all.type, bytes, some);
    largest = std::max(largest, std::ranges::max(some));
  }
  return largest;
}

std::int64_t largest_token(const TokenSet& set) {
  constexpr std::int64_t kMost = (1 << 24) - 1;
  std::int64_t largest = 0;
  for (const auto& [part, files] : set.parts)
    for (const TokenFile& file : files) {
      largest = std::max(largest, file.file->checked([&] { return largest_of(file); }));
      if (largest > kMost)
        throw DataError(concat(file.name, ": its largest token is ", largest,
            ", which is no likely vocabulary's; give --num-classes"));
    }
  return largest;
}

void set_vocabulary(TokenSet& set, SequenceKind kind, std::optional<std::int64_t> vocabulary) {
  if (kind == SequenceKind::kText && !vocabulary) vocabulary = kTextClasses;
  set.vocabulary = vocabulary ? *vocabulary : largest_token(set) + 1;
  if (!vocabulary)
    set.remarks.push_back(concat(
        "a vocabulary of ", set.vocabulary, ", as the largest token is ", set.vocabulary - 1));
}

TensorColumn token_column(const char* name, const std::vector<TokenFile>& files,
    const std::vector<std::int64_t>& sizes, std::int64_t vocabulary = 0) {
  return {.name = name,
      .type = files.front().tokens().type,
      .taken_as = SampleType::kInt64,
      .sizes = sizes,
      .pieces = {},
      .vocabulary = vocabulary};
}

// Appends rows from a token on.
void append_rows(
    TensorColumn& column, const TokenFile& file, std::int64_t rows, std::int64_t first) {
  if (rows == 0) return;
  const auto begin = static_cast<std::size_t>(first) * bytes_of(column.type);
  const std::size_t bytes = static_cast<std::size_t>(rows) * column.row_bytes();
  column.pieces.push_back(
      {file.file, file.name, column.rows(), rows, file.tokens().bytes.subspan(begin, bytes)});
}

// The target is the same file, a token later.
TensorTable cut(
    const std::vector<TokenFile>& files, std::int64_t length, SetPart part, TokenSet& set) {
  TensorTable table{.inputs = {token_column(kInput, files, {length}, set.vocabulary)},
      .targets = {token_column(kTarget, files, {length}, set.vocabulary)}};
  std::int64_t all = 0, unread = 0;
  for (const TokenFile& file : files) {
    const std::int64_t tokens = file.tokens().shape.front();
    const std::int64_t rows = std::max<std::int64_t>(0, tokens - 1) / length;
    append_rows(table.inputs.front(), file, rows, 0);
    append_rows(table.targets.front(), file, rows, 1);
    all += tokens;
    unread += rows == 0 ? tokens : tokens - 1 - rows * length;
  }
  if (table.rows() == 0)
    throw DataError(concat(set.name, ": the part ", name_of(part), " has ", all,
        " tokens and no sequence of ", length, " and the token that follows"));
  if (unread > 0)
    set.remarks.push_back(concat(unread, " of ", all, " tokens of the part ", name_of(part),
        " are the rest of files, fill no sequence of ", length, ", and are not read"));
  return table;
}

}  // namespace

std::int64_t TensorColumn::rows() const {
  return pieces.empty() ? 0 : pieces.back().first + pieces.back().rows;
}

std::int64_t TensorColumn::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

TensorRow row_of(const TensorColumn& column, std::int64_t index) {
  const auto behind =
      std::ranges::upper_bound(column.pieces, index, std::ranges::less(), &ColumnPiece::first);
  const ColumnPiece& piece = *(behind - 1);
  const std::size_t bytes = column.row_bytes();
  return {
      &piece, piece.bytes.subspan(static_cast<std::size_t>(index - piece.first) * bytes, bytes)};
}

std::vector<const TensorTable*> parts_of(const TensorTables& tables) {
  std::vector<const TensorTable*> parts{&tables.train};
  for (const auto* const part : {&tables.validation, &tables.test})
    if (*part) parts.push_back(&**part);
  return parts;
}

TensorTables open_tensors(const std::string& paths, const TensorChoice& choice) {
  const SetFiles files = list_set_files(kTensors, paths, {kEndings.begin(), kEndings.end()});
  FoundParts parts;
  for (const SetFile& file : files.files) add_tensors(file, parts);
  ColumnNames names;
  if (parts.contains(SetPart::kTrain)) names = chosen_names(parts.at(SetPart::kTrain), choice);
  const auto make = [&](const std::vector<FoundTensor>& found, SetPart part) {
    if (names.inputs.empty())
      throw DataError(concat(kTensors, ": ", printable_path(paths),
          " has targets alone; name the inputs by --inputs"));
    return table_of(found, names, part);
  };
  TensorTables tables = make_tables(kTensors, paths, parts, make);
  count_classes(tables);
  if (!files.remark.empty()) tables.remarks.push_back(files.remark);
  remark_on_tensors(tables, names);
  return tables;
}

TensorTables open_sequences(const std::string& paths, SequenceKind kind, std::int64_t length,
    std::optional<std::int64_t> vocabulary) {
  TokenSet set = open_token_files(paths, kind);
  check(length > 0, set.name, ": a sequence must have tokens: ", length);
  set_vocabulary(set, kind, vocabulary);
  const auto make = [&](const std::vector<TokenFile>& files, SetPart part) {
    return cut(files, length, part, set);
  };
  TensorTables tables = make_tables(set.name, paths, set.parts, make);
  tables.remarks = std::move(set.remarks);
  tables.classes = set.vocabulary;
  return tables;
}

TensorTables open_tokens(const std::string& paths, SequenceKind kind) {
  TokenSet set = open_token_files(paths, kind);
  const auto make = [](const std::vector<TokenFile>& files, SetPart) {
    TensorTable table{.inputs = {token_column("tokens", files, {})}, .targets = {}};
    for (const TokenFile& file : files)
      append_rows(table.inputs.front(), file, file.tokens().shape.front(), 0);
    return table;
  };
  TensorTables tables = make_tables(set.name, paths, set.parts, make);
  tables.remarks = std::move(set.remarks);
  return tables;
}

}  // namespace lockstep::data
