#include "bench/synthetic/synthetic_set.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <new>
#include <span>
#include <zlib.h>

#include "bench/synthetic/pattern.h"
#include "bench/synthetic/synthetic.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/split_mix.h"
#include "lockstep/formats/cifar.h"
#include "lockstep/formats/idx.h"
#include "lockstep/formats/image/image.h"
#include "lockstep/formats/image/jpeg.h"
#include "lockstep/formats/image/png.h"
#include "lockstep/formats/output_file.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

/// The files that a writer wrote.
struct Written {
  std::int64_t files = 0;
  std::uint64_t bytes = 0;
};

/// The complete instructions for a writer of a set.
struct SetPlan {
  std::int64_t train = 0;
  std::int64_t test = 0;
  std::int64_t classes = 0;
  std::optional<ImageSize> size;
  std::uint64_t seed = 0;
  bool gzip = false;
  std::function<void()> drawn;  ///< called after each image
  Written* written = nullptr;   ///< counts each file
};

/// A new file of a set, written in pieces of any size, plain or as one gzip member without name and
/// time.
class SetFile final : public ByteSink {
 public:
  SetFile(const fs::path& path, const SetPlan& plan, bool gzip = false)
      : file_(path), written_(*plan.written) {
    constexpr int kGzip = 16 + MAX_WBITS;  // as zlib's manual says of deflateInit2
    constexpr int kMemoryLevel = 8;
    if (!gzip) return;
    stream_.reset(new z_stream());
    const int status = deflateInit2(
        stream_.get(), Z_BEST_SPEED, Z_DEFLATED, kGzip, kMemoryLevel, Z_DEFAULT_STRATEGY);
    if (status != Z_OK) throw std::bad_alloc();
  }

  /// Writes what is left, closes the file and counts it.
  void close() {
    if (stream_) deflate_some({}, Z_FINISH);
    flush();
    file_.close();
    ++written_.files;
  }

 private:
  struct EndDeflate {
    void operator()(z_stream* stream) const noexcept {
      deflateEnd(stream);
      delete stream;
    }
  };

  void put(std::span<const std::uint8_t> bytes) override {
    if (stream_) {
      deflate_some(bytes, Z_NO_FLUSH);
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
    if (buffer_.size() >= kBuffer) flush();
  }

  void deflate_some(std::span<const std::uint8_t> bytes, int flush) {
    std::array<std::uint8_t, 16 * 1024> packed{};
    stream_->next_in = const_cast<Bytef*>(bytes.data());  // zlib's interface knows no const
    stream_->avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_->next_out = packed.data();
      stream_->avail_out = static_cast<uInt>(packed.size());
      deflate(stream_.get(), flush);
      const auto made = std::span(packed).first(packed.size() - stream_->avail_out);
      buffer_.insert(buffer_.end(), made.begin(), made.end());
    } while (stream_->avail_out == 0);
  }

  void flush() {
    file_.write(buffer_);
    written_.bytes += buffer_.size();
    buffer_.clear();
  }

  static constexpr std::size_t kBuffer = 256 * 1024;

  OutputFile file_;
  Written& written_;
  std::unique_ptr<z_stream, EndDeflate> stream_;
  std::vector<std::uint8_t> buffer_;
};

constexpr std::int64_t kBatches = 5;

/// Groups the classes of CIFAR-100 as the real set does, 5 in each of 20: here by shape and half of
/// the textures.
std::int64_t coarse_label(std::int64_t label) {
  constexpr std::int64_t kPerGroup = 5;
  return label % kShapes * 2 + label / kShapes / kPerGroup;
}

/// Returns a record: its labels, then the planes red, green, blue.
std::vector<std::uint8_t> record_of(std::int64_t index, bool train, const SetPlan& plan) {
  const std::int64_t label = index % plan.classes;
  const Image image = synthetic_image(synthetic_class(label, plan.classes),
      {.seed = plan.seed, .train = train, .index = index}, {kCifarSide, kCifarSide}, 3);
  std::vector<std::uint8_t> record;
  record.reserve(image.pixels.size() + 2);
  if (plan.classes == 100) record.push_back(static_cast<std::uint8_t>(coarse_label(label)));
  record.push_back(static_cast<std::uint8_t>(label));
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t at = channel; at < image.pixels.size(); at += 3) {
      record.push_back(image.pixels[at]);
    }
  }
  return record;
}

void write_batch(
    const fs::path& path, std::int64_t first, std::int64_t end, bool train, const SetPlan& plan) {
  SetFile file(path, plan);
  for (std::int64_t index = first; index < end; ++index) {
    file.write(record_of(index, train, plan));
    plan.drawn();
  }
  file.close();
}

void write_lines(const fs::path& path, const std::vector<std::string>& lines, const SetPlan& plan) {
  SetFile file(path, plan);
  for (const auto& line : lines) file.write(line + "\n");
  file.close();
}

std::vector<std::string> class_names(std::int64_t classes) {
  std::vector<std::string> names;
  for (std::int64_t label = 0; label < classes; ++label) {
    names.push_back(synthetic_class(label, classes).name());
  }
  return names;
}

std::vector<std::string> coarse_names() {
  std::vector<std::string> names;
  for (std::int64_t shape = 0; shape < kShapes; ++shape) {
    for (const std::int64_t half : {0, 5}) {
      names.push_back(std::string(shape_at(shape).name) + "-" + texture_at(half).name + "-to-" +
                      texture_at(half + 4).name);
    }
  }
  return names;
}

constexpr std::int64_t kSideOfMnist = 28;

/// Returns an IDX file's header for unsigned bytes: 0, 0, 8, the number of counts, the counts.
std::vector<std::uint8_t> idx_header(const std::vector<std::int64_t>& counts) {
  std::vector<std::uint8_t> header{0, 0, 8, static_cast<std::uint8_t>(counts.size())};
  for (const std::int64_t count : counts) {
    for (const int shift : {24, 16, 8, 0}) {
      header.push_back(static_cast<std::uint8_t>(count >> shift));
    }
  }
  return header;
}

void write_mnist_part(const fs::path& folder, const SetPlan& plan, bool train) {
  const std::int64_t count = train ? plan.train : plan.test;
  const std::string prefix = train ? "train" : "t10k";
  const std::string ending = plan.gzip ? ".gz" : "";
  SetFile images(folder / (prefix + "-images-idx3-ubyte" + ending), plan, plan.gzip);
  SetFile labels(folder / (prefix + "-labels-idx1-ubyte" + ending), plan, plan.gzip);
  images.write(idx_header({count, kSideOfMnist, kSideOfMnist}));
  labels.write(idx_header({count}));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t label = i % plan.classes;
    images.write(synthetic_image(synthetic_class(label, plan.classes),
        {.seed = plan.seed, .train = train, .index = i}, {kSideOfMnist, kSideOfMnist}, 1)
                     .pixels);
    labels.write(std::vector{static_cast<std::uint8_t>(label)});
    plan.drawn();
  }
  images.close();
  labels.close();
}

constexpr std::int64_t kEachPng = 8;

/// Draws a size as photographs have them: the shorter side 160 to 320, the other up to half longer.
ImageSize draw_size(SplitMix& stream) {
  const std::int64_t shorter = stream.between(160, 320);
  const std::int64_t longer = shorter * stream.between(100, 150) / 100;
  return stream.between(0, 2) == 0 ? ImageSize{shorter, longer} : ImageSize{longer, shorter};
}

JpegOptions draw_jpeg_options(SplitMix& stream) {
  JpegOptions options;
  options.quality = static_cast<int>(stream.between(80, 95));
  options.horizontal_subsampling = static_cast<int>(stream.between(1, 2));
  options.vertical_subsampling =
      options.horizontal_subsampling == 1 ? 1 : static_cast<int>(stream.between(1, 2));
  return options;
}

/// Returns `000123.jpg`, and each eighth image of a class `000123.png`.
std::string file_name(std::int64_t index, bool png) {
  char name[32];
  std::snprintf(
      name, sizeof(name), "%06lld.%s", static_cast<long long>(index), png ? "png" : "jpg");
  return name;
}

void write_image(const fs::path& folder, std::int64_t index, bool train, const SetPlan& plan) {
  const SyntheticClass kind = synthetic_class(index % plan.classes, plan.classes);
  const SyntheticKey key{.seed = plan.seed, .train = train, .index = index};
  SplitMix stream(
      SplitMix::mix(plan.seed) ^ static_cast<std::uint64_t>(2 * index + (train ? 1 : 0)));
  const ImageSize drawn = draw_size(stream);
  const Image image = synthetic_image(kind, key, plan.size.value_or(drawn), 3);
  const bool png = index / plan.classes % kEachPng == kEachPng - 1;
  SetFile file(folder / kind.name() / file_name(index, png), plan);
  file.write(png ? encode_png(image.view()) : encode_jpeg(image.view(), draw_jpeg_options(stream)));
  plan.drawn();
  file.close();
}

void write_part(const fs::path& folder, bool train, const SetPlan& plan) {
  fs::create_directory(folder);
  for (std::int64_t label = 0; label < plan.classes; ++label) {
    fs::create_directory(folder / synthetic_class(label, plan.classes).name());
  }
  const std::int64_t count = train ? plan.train : plan.test;
  for (std::int64_t index = 0; index < count; ++index) write_image(folder, index, train, plan);
}

void write_cifar10_files(const fs::path& folder, const SetPlan& plan) {
  const fs::path inner = folder / "cifar-10-batches-bin";
  fs::create_directory(inner);
  write_lines(inner / "batches.meta.txt", class_names(plan.classes), plan);
  for (std::int64_t batch = 0; batch < kBatches; ++batch) {
    write_batch(inner / ("data_batch_" + std::to_string(batch + 1) + ".bin"),
        plan.train * batch / kBatches, plan.train * (batch + 1) / kBatches, true, plan);
  }
  write_batch(inner / "test_batch.bin", 0, plan.test, false, plan);
}

void write_cifar100_files(const fs::path& folder, const SetPlan& plan) {
  const fs::path inner = folder / "cifar-100-binary";
  fs::create_directory(inner);
  write_lines(inner / "fine_label_names.txt", class_names(plan.classes), plan);
  write_lines(inner / "coarse_label_names.txt", coarse_names(), plan);
  write_batch(inner / "train.bin", 0, plan.train, true, plan);
  write_batch(inner / "test.bin", 0, plan.test, false, plan);
}

void write_mnist_files(const fs::path& folder, const SetPlan& plan) {
  for (const bool train : {true, false}) write_mnist_part(folder, plan, train);
}

void write_image_files(const fs::path& folder, const SetPlan& plan) {
  write_part(folder / "train", true, plan);
  write_part(folder / "val", false, plan);
}

/// The properties of a set if nothing else is asked for.
struct Kind {
  std::string name;
  std::int64_t train;
  std::int64_t test;
  std::int64_t classes;
  std::int64_t least;  // images to train with
  std::int64_t most;
  void (*write)(const fs::path& folder, const SetPlan& plan);
};

constexpr std::int64_t kMostMnist = static_cast<std::int64_t>(kMaximumIdxBytes / (28 * 28));
constexpr std::int64_t kMostCifar =
    static_cast<std::int64_t>(kMaximumCifarBytes / (3 * kCifarSide * kCifarSide));
constexpr std::int64_t kMostImages = 10'000'000;
constexpr std::int64_t kLongestSide = 4096;

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kAll{
      {"mnist", 60'000, 10'000, 10, 1, kMostMnist, write_mnist_files},
      {"fashion-mnist", 60'000, 10'000, 10, 1, kMostMnist, write_mnist_files},
      {"cifar10", 50'000, 10'000, 10, 5, kMostCifar, write_cifar10_files},
      {"cifar100", 50'000, 10'000, 100, 1, kMostCifar, write_cifar100_files},
      {"images", 2'000, 500, 20, 2, kMostImages, write_image_files}};
  return kAll;
}

const Kind& kind_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw InvalidArgument(
      concat("synthesize: there is no set ", name, "; there are ", joined(names)));
}

void check_count(const Kind& kind, const char* what, std::int64_t count, std::int64_t least) {
  check(least <= count && count <= kind.most, "synthesize: --", what, " of ", kind.name,
      " must be ", least, " to ", kind.most, ": ", count);
}

void check_options(const Kind& kind, const SyntheticOptions& options) {
  const bool images = kind.write == write_image_files;
  check(images || !options.classes, "synthesize: ", kind.name, " has ", kind.classes,
      " classes; --classes is for images");
  check(images || !options.size, "synthesize: --size is for images, not for ", kind.name);
  check(!options.gzip || kind.write == write_mnist_files,
      "synthesize: --gzip is for mnist and fashion-mnist, not for ", kind.name);
  const std::int64_t classes = options.classes.value_or(kind.classes);
  check(2 <= classes && classes <= kMostSyntheticClasses,
      "synthesize: --classes must be 2 to 100: ", classes);
  if (!options.size) return;
  const auto& size = *options.size;
  check(std::min(size.width, size.height) >= 8 && std::max(size.width, size.height) <= kLongestSide,
      "synthesize: --size must have sides of 8 to 4096 pixels: ", size.width, "x", size.height);
}

SetPlan plan_of(const Kind& kind, const SyntheticOptions& options) {
  check_options(kind, options);
  const std::int64_t classes = options.classes.value_or(kind.classes);
  // A class folder without images would be no set.
  const bool images = kind.write == write_image_files;
  SetPlan plan{.train = options.train.value_or(kind.train),
      .test = options.test.value_or(kind.test),
      .classes = classes,
      .size = options.size,
      .seed = options.seed,
      .gzip = options.gzip,
      .drawn = {}};
  check_count(kind, "train", plan.train, images ? classes : kind.least);
  check_count(kind, "test", plan.test, images ? classes : 1);
  return plan;
}

}  // namespace

SyntheticSummary write_synthetic_set(
    const std::string& name, const fs::path& directory, const SyntheticOptions& options) {
  const Kind& kind = kind_of(name);
  SetPlan plan = plan_of(kind, options);
  std::int64_t done = 0;
  plan.drawn = [&] {
    ++done;
    if (options.progress) options.progress(done, plan.train + plan.test);
  };
  Written written;
  plan.written = &written;
  AtomicDirectory folder(directory);
  kind.write(folder.path(), plan);
  folder.commit();
  return {plan.train, plan.test, plan.classes, written.files, written.bytes};
}

}  // namespace lockstep::data
