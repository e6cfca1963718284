#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/experiment/sample_process.h"
#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// How much further 2, 4, 8 nodes come than one in a fixed time of training, and whether a run
/// survives the death of a worker.
namespace lockstep::bench::scale_out {

inline constexpr const char* kEpochSeconds = "epoch_seconds";
inline constexpr const char* kEpochs = "epochs";
inline constexpr const char* kBestValLoss = "best_val_loss";

/// A point of the grid.
struct Point {
  int nodes = 1;
  bool killed = false;  ///< a worker, in the middle
  double budget_seconds = 0;
  std::optional<double> bits_per_second = {};  ///< of the network; nothing for real ones

  /// Returns its name for a reader: `1 node`, `2 nodes, a worker killed`.
  std::string name() const;
};

using Cells = std::vector<Measured<Point>>;

/// The training that every number of nodes runs, and its length: the study's own, or one of two
/// minutes on two cores.
struct TrainerPlan {
  /// The training on one place whose weights every cell begins with, unless others were named.
  struct Pretraining {
    int image_size = 224;
    std::string optimizer;  ///< with a rate that learns
    std::string rate;
    std::string steps;  ///< at most
    std::string time;   ///< at most, as --max-time takes it
    double limit_seconds = 0;
  };

  std::string model;
  std::string set;       ///< whose images it takes: `images`, `mnist`
  int image_size = 224;  ///< pixels on each side
  int batch = 32;        ///< images a step on each node
  int budget_seconds = 7200;
  std::string budget;             ///< the same as --max-time takes it
  int gigabits = 1;               ///< a second, of the network
  std::int64_t train_images = 0;  ///< to draw, those for validation among them
  std::int64_t test_images = 0;   ///< to draw
  std::string val_split;          ///< share of the training images to validate on
  std::string snapshot_interval;  ///< where a worker is killed
  int kill_seconds = 0;           ///< after the start: half of the budget, and the start itself
  double gigabytes_a_host = 0;    ///< of memory that training takes on each
  int most_nodes = 8;             ///< that are measured
  int rounds = 1;
  double limit_seconds = 0;  ///< of a sample
  Pretraining pretraining = {};
};

inline constexpr int kDrawnClasses = 20;  ///< of `images`, as in the study

/// Returns the plan of the whole study or of the quick part.
TrainerPlan trainer_plan(const StudyOptions& options);

/// Makes the study: 1, 2, 4, 8 nodes, then the one with a killed worker.
Study make_study(const StudyOptions& options);

/// Draws a set of the bench's own if none was named: `images` of twenty classes, or `mnist`. Throws
/// DataError or InvalidArgument when what was named is not there.
void prepare(const StudyOptions& options, const std::filesystem::path& output);

/// Trains one place for a short time, with a rate that learns, and keeps the weights that all cells
/// then begin with in the bench's folder. Nothing where they are there already, a file of others
/// was named, or no cell can be measured here.
///
/// Says on stderr what it does. Throws Error if the training fails. A signal ends the process.
void pretrain(const StudyOptions& options, const CellPaths& paths);

/// Makes the cell of that training.
StudyCell pretraining_cell(const StudyOptions& options);

/// Returns how many cores a host of this machine is: the same for every number of nodes.
int cores_a_host(const StudyOptions& options);

/// Returns the shares of the budget, in percent, at which losses are kept.
std::vector<int> curve_percents();

/// Return the names of the values of the two curves: the mean training loss since the share before,
/// and the newest validation loss. `train_loss_at_005`.
std::string train_loss_name(int percent);
std::string val_loss_name(int percent);

/// Reads the values of a run from its summary.json and metrics.jsonl: `learning_rate`,
/// `global_batch`, `steps`, `step_seconds`, `model_bytes`, `best_val_loss`, `test_loss`,
/// `test_accuracy` (of the best epoch's weights), the two curves; if a whole epoch was made
/// `steps_an_epoch`, `epoch_seconds` (with its validation, without the start), `epochs` (passes
/// over the images, the last one in part). Of the point with a killed worker also `restarts`,
/// `killed_after_seconds`, `made_again_seconds` and `lost_seconds`.
///
/// A run that did not end by its clock, or in which nobody was killed although that was asked for,
/// is a DataError.
SampleValues values_of(const Point& point, const std::filesystem::path& run);

/// Predicts the efficiency of nodes from a step of one of them: its time over that of nodes that do
/// as much each, and send their gradients in a ring while backward goes on.
double predicted_efficiency(int nodes, const plan::WholeStep& one, double bits_per_second);

/// Report what was measured: whether scaling out paid, in epochs and in what was learned; the
/// study's own table, the efficiency, and what a killed worker cost; losses over time.
page::Conclusion conclusion(const Cells& cells);
std::vector<page::Table> tables(const Cells& cells);
std::vector<plot::Figure> figures(const Cells& cells);

}  // namespace lockstep::bench::scale_out
