#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/checkpoint/checkpoint_writer.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/dropout.h"
#include "test/checkpoint/tiny_checkpoint.h"
#include "test/support/pipeline_case.h"
#include "test/support/run_program.h"

// A checkpoint of a real model, changed in one place: it is refused with a line.

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::MakeAdamW;
using infini_train::test::ReadTextFile;
using infini_train::test::TemporaryFolder;
using infini_train::test::TinyModel;
using infini_train::test::WriteTextFile;

class CheckpointDamage : public testing::Test {
 protected:
    CheckpointDamage() {
        comm::RunRanks({.threads_per_rank = 1}, [&](const comm::Mesh& mesh) {
            const std::shared_ptr<nn::Module> net = MakeModel(mesh.device);
            const auto optimizer = MakeAdamW(net->Parameters());
            CheckpointWriter writer({.folder = folder_.File("run")}, hf_, {net}, optimizer, mesh.world);
            writer.Begin({.step = 30, .optimizer = "adamw", .settings = {{"seed", "1"}}});
            path_ = writer.Commit().path;
        });
        for (const auto& entry : std::filesystem::directory_iterator(path_)) {
            files_[entry.path().string()] = ReadTextFile(entry.path().string());
        }
    }

    std::shared_ptr<nn::Module> MakeModel(const Device& device) const {
        return MakeWhole(model_, DataType::kFloat32, std::make_shared<nn::DropoutPosition>(), device);
    }
    /// As a run loads it: everything is read. Returns the line of the Error, or "".
    std::string Load(const std::string& path) const {
        try {
            const std::string folder = FindCheckpoint(path);
            VerifyChecksums(folder, 0, 1);
            ReadTrainingState(folder);
            const std::shared_ptr<const WeightSource> weights = OpenWeights(model_, folder);
            for (const NamedShape& parameter : hf_->parameters()) {
                std::vector<float> values(static_cast<size_t>(NumElements(parameter.shape)));
                weights->ReadRows(parameter.name, 0, parameter.shape.at(0), values.data());
            }
            LoadMoments(folder, {net_}, *optimizer_);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    }
    void ExpectRefused(const std::string& file, const std::string& what) const {
        const std::string line = Load(path_);
        EXPECT_NE(line, "") << file << ": " << what;
        EXPECT_EQ(line.find('\n'), std::string::npos) << line;
        EXPECT_NE(line.find(path_), std::string::npos) << line;
        EXPECT_LT(line.size(), 1000u);
    }

    TinyModel model_ = {.num_layers = 2, .num_channels = 4};
    std::shared_ptr<const HfModel> hf_ = HfModelOf(model_);
    TemporaryFolder folder_;
    std::string path_;
    std::map<std::string, std::string> files_;
    std::shared_ptr<nn::Module> net_ = MakeModel(MakeCpuDevice());
    std::shared_ptr<optimizers::Optimizer> optimizer_ = MakeAdamW(net_->Parameters());
};

TEST_F(CheckpointDamage, AThousandBytesChangedOneByOneAreAllNoticed) {
    ASSERT_EQ(Load(path_), "");
    ASSERT_EQ(files_.size(), 12u);
    std::mt19937 random(1);
    int num_changes = 0;
    for (const auto& [file, text] : files_) {
        for (int i = 0; i < 90; ++i, ++num_changes) {
            std::string changed = text;
            const size_t place = random() % changed.size();
            changed[place] = static_cast<char>(changed[place] ^ static_cast<char>(1 + random() % 255));
            WriteTextFile(file, changed);
            ExpectRefused(file, "byte " + std::to_string(place));
        }
        WriteTextFile(file, text);
    }
    EXPECT_GE(num_changes, 1000);
    EXPECT_EQ(Load(path_), "");
}

TEST_F(CheckpointDamage, EachByteOfTheManifestCounts) {
    const std::string file = path_ + "/manifest.json";
    const std::string& text = files_.at(file);
    for (size_t place = 0; place < text.size(); ++place) {
        std::string changed = text;
        changed[place] = static_cast<char>(changed[place] ^ (place % 2 == 0 ? 1 : ' '));  // ' ': the case of a letter
        WriteTextFile(file, changed);
        ExpectRefused(file, "byte " + std::to_string(place));
    }
}

TEST_F(CheckpointDamage, FilesThatAreCutLongerOrMissingAreNoticed) {
    for (const auto& [file, text] : files_) {
        for (const size_t size : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 1}) {
            WriteTextFile(file, text.substr(0, size));
            ExpectRefused(file, "size " + std::to_string(size));
        }
        WriteTextFile(file, text + '\0');
        ExpectRefused(file, "one more");
        std::filesystem::remove(file);
        ExpectRefused(file, "missing");
        std::filesystem::create_directory(file);
        ExpectRefused(file, "a folder");
        std::filesystem::remove(file);
        WriteTextFile(file, text);
    }
    EXPECT_EQ(Load(path_), "");
}

}  // namespace
}  // namespace infini_train::checkpoint::test
