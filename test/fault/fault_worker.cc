// gpt2 with a fault in it, for the tests of faults: one of its ranks does at one place what the environment says.
//   FAULT="PHASE KIND RANK"   FAULT_FILE=where to write when it happens   FAULT_SAVE=the folder of --save
// The phases and the kinds are those of docs/faults.md; rank -1: every rank. The program under test has no part in it:
// the fault is in the model that it is given, or a thread beside it watches for the moment.
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "example/common/model.h"
#include "example/gpt2/config.h"
#include "example/gpt2/net.h"
#include "example/gpt2/spec.h"
#include "infini_train/include/autograd/function.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "infini_train/include/comm/process_place.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/env.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::test {
namespace {

using namespace std::chrono_literals;

constexpr int kStep = 3;      // of the training, in which the fault is: a checkpoint is complete by then
constexpr int kLastStep = 4;  // as the tests run it
constexpr int kMicrobatches = 4;
constexpr int kEveryRank = -1;

struct Fault {
    std::string phase = "none";
    std::string kind = {};
    int rank = kEveryRank;
    std::string file = {};
};

const Fault& TheFault() {
    static const Fault fault = [] {
        Fault read;
        std::istringstream(ReadEnv("FAULT").value_or("none none -1")) >> read.phase >> read.kind >> read.rank;
        read.file = ReadEnv("FAULT_FILE").value_or("");
        return read;
    }();
    return fault;
}

/// RunRanks names the threads of ranks, and threads that they start have the name, too. -1: another one.
int RankOfThisThread() {
    std::array<char, 16> name = {};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    int rank = -1;
    return std::sscanf(name.data(), "rank %d", &rank) == 1 ? rank : -1;
}

/// By a name of its own, so that who reads it finds it whole.
void TellThatItHappens() {
    const std::string& path = TheFault().file;
    const std::string own_path = StrCat(path, ".", getpid());
    std::ofstream(own_path) << std::chrono::steady_clock::now().time_since_epoch().count() << "\n";
    std::filesystem::rename(own_path, path);
}

void Happen() {
    const std::string& kind = TheFault().kind;
    TellThatItHappens();
    if (kind == "kill") {
        std::raise(SIGKILL);
    } else if (kind == "stop") {
        std::raise(SIGSTOP);
    } else if (kind == "exit") {
        std::_Exit(0);
    } else if (kind == "throw") {
        throw Error({.what = "thrown on purpose", .kind = Error::Kind::kRuntime});
    } else if (kind == "memory") {
        operator delete(operator new (size_t{1} << 62));
    } else if (kind == "sleep") {
        std::this_thread::sleep_for(3s);
    } else if (kind == "hang") {
        std::this_thread::sleep_for(1h);
    } else if (kind == "tell") {
        return;  // the test does something from outside
    } else {
        LOG(FATAL) << "no kind of fault: " << kind;
    }
}

/// The fault, once in a process, where this is its phase and its rank.
void At(const std::string& phase, int rank) {
    static std::atomic<bool> has_happened = false;
    const bool is_meant = TheFault().rank == rank || TheFault().rank == kEveryRank;
    if (phase == TheFault().phase && is_meant && !has_happened.exchange(true)) {
        Happen();
    }
}

void At(const std::string& phase) {
    At(phase, RankOfThisThread());
}

/// The identity, with the fault in its backward.
class FaultyBackward : public autograd::Function {
 public:
    explicit FaultyBackward(std::string phase) : phase_(std::move(phase)) {}

 protected:
    TensorList Forward(const TensorList& inputs) override { return {inputs[0]->Detach()}; }
    TensorList Backward(const TensorList& grad_outputs) override {
        At(phase_);
        return grad_outputs;
    }

 private:
    std::string phase_;
};

class FaultyGpt2 : public gpt2::Gpt2 {
 public:
    using Gpt2::Gpt2;
    ~FaultyGpt2() override { At("exit"); }

    TensorList Forward(const TensorList& inputs) override {
        if (inputs[0]->device().type == DeviceType::kMeta) {
            return Gpt2::Forward(inputs);
        }
        if (kv_cache()->Serves(*inputs[0])) {
            At(kv_cache()->length() > 0 ? "generation" : "");
            return Gpt2::Forward(inputs);
        }
        if (!autograd::GradMode::is_enabled()) {
            At("evaluation");
            return Gpt2::Forward(inputs);
        }
        const int step = num_forwards_ / kMicrobatches + 1;
        const int microbatch = num_forwards_++ % kMicrobatches;
        if (step != kStep && step != kLastStep) {
            return Gpt2::Forward(inputs);
        }
        const std::array<const char*, kMicrobatches> forwards = {"between_steps", "quarter_1", "", "quarter_2"};
        const std::array<const char*, kMicrobatches> backwards = {"", "quarter_3", "", "quarter_4"};
        const auto m = static_cast<size_t>(microbatch);
        if (step == kStep) {
            At(forwards[m]);
        }
        TensorList outputs = Gpt2::Forward(inputs);
        const std::string backward = step == kStep ? backwards[m] : m + 1 == kMicrobatches ? "last_step" : "";
        return backward != TheFault().phase ? outputs : std::make_shared<FaultyBackward>(backward)->Apply(outputs);
    }

 private:
    int num_forwards_ = 0;  // of the training
};

/// Of the first step, and whole.
bool HasCheckpoint() {
    return std::filesystem::exists(ReadEnv("FAULT_SAVE").value_or("") + "/step_00000001");
}

/// How checkpoints are written, with the fault while a rank writes.
class FaultyFiles : public checkpoint::HfModel {
 public:
    explicit FaultyFiles(std::shared_ptr<const HfModel> files) : files_(std::move(files)) {}

    std::string ConfigJson() const override { return files_->ConfigJson(); }
    int num_layers() const override { return files_->num_layers(); }
    const std::vector<checkpoint::NamedShape>& parameters() const override { return files_->parameters(); }
    std::vector<checkpoint::NamedShape> TensorsOf(const std::string& parameter) const override {
        return files_->TensorsOf(parameter);
    }
    void Convert(const std::string& parameter, size_t index, std::span<const float> values,
                 std::span<float> hf_values) const override {
        if (HasCheckpoint()) {
            At("save");
        }
        files_->Convert(parameter, index, values, hf_values);
    }

 private:
    std::shared_ptr<const HfModel> files_;
};

/// Weights, with the fault while a rank reads them.
class FaultyWeights : public checkpoint::WeightSource {
 public:
    explicit FaultyWeights(std::shared_ptr<const WeightSource> weights) : weights_(std::move(weights)) {}

    const std::string& path() const override { return weights_->path(); }
    DataType dtype() const override { return weights_->dtype(); }
    bool Contains(const std::string& name) const override { return weights_->Contains(name); }
    const Shape& shape(const std::string& name) const override { return weights_->shape(name); }
    void ReadRows(const std::string& name, int64_t begin, int64_t end, float* destination) const override {
        weights_->ReadRows(name, begin, end, destination);
        At("load");
    }

 private:
    std::shared_ptr<const WeightSource> weights_;
};

ModelSpec MakeFaultyModel(const ProgramOptions& options) {
    At("start", std::stoi(ReadEnv("RANK").value_or("0")));
    ModelSpec model = gpt2::MakeModel(options);
    const gpt2::Gpt2Config config = options.load.empty() ? gpt2::NamedConfig(options.model)
                                                         : gpt2::ConfigOf(checkpoint::OpenHfGpt2(options.load).config);
    model.build = [config](const nn::parallel::LayerRange& layers, const std::shared_ptr<nn::DropoutPosition>& position,
                           const Device& device) {
        At("build");
        return std::make_shared<FaultyGpt2>(config, layers, position, device);
    };
    model.hf = std::make_shared<FaultyFiles>(model.hf);
    model.weights = model.weights == nullptr ? nullptr : std::make_shared<FaultyWeights>(model.weights);
    return model;
}

// --- moments that no code of the model's sees

/// In one direction of the connection came more than the mark of the protocol: who this process is, or another.
bool HasCarriedAWord(int socket) {
    tcp_info info = {};
    socklen_t size = sizeof(info);
    return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           (info.tcpi_data_segs_in > 1 || info.tcpi_data_segs_out > 1);
}

/// This process has told process 0 who it is, or, as process 0, has heard it from another.
bool HasMet(int port) {
    for (int file = 3; file < 64; ++file) {
        sockaddr_in own = {};
        sockaddr_in peer = {};
        socklen_t own_size = sizeof(own);
        socklen_t peer_size = sizeof(peer);
        if (getpeername(file, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
            getsockname(file, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 && peer.sin_family == AF_INET &&
            (ntohs(peer.sin_port) == port || ntohs(own.sin_port) == port) && HasCarriedAWord(file)) {
            return true;
        }
    }
    return false;
}

bool HasThread(const std::string& name) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string found;
        std::getline(std::ifstream(task.path() / "comm") >> std::ws, found);
        if (found == name) {
            return true;
        }
    }
    return false;
}

/// A checkpoint after the first that is all written and still to get its name. The moment of one of them may be missed
/// where the cores are busy.
bool IsCommitting() {
    for (int step = 2; step <= kLastStep; ++step) {
        std::error_code none;
        const std::string partial = StrCat(ReadEnv("FAULT_SAVE").value_or(""), "/step_0000000", step, ".partial");
        for (const auto& entry : std::filesystem::directory_iterator(partial, none)) {
            if (entry.path().filename().string().starts_with("manifest.json")) {
                return true;
            }
        }
    }
    return false;
}

/// The fault comes from a thread beside those of the program: what is thrown there nobody catches.
void WatchFor(const std::function<bool()>& moment) {
    std::thread([moment] {
        pthread_setname_np(pthread_self(), "fault");
        while (!moment()) {
            std::this_thread::sleep_for(20us);
        }
        Happen();
    }).detach();
}

void StartWatching() {
    const Fault& fault = TheFault();
    const int process = std::stoi(ReadEnv("RANK").value_or("0"));
    const int port = std::stoi(ReadEnv("MASTER_PORT").value_or("0"));
    if (process != fault.rank) {  // the tests have one rank a process here
        return;
    }
    if (fault.phase == "rendezvous") {
        WatchFor([port] { return HasMet(port); });
    } else if (fault.phase == "connect") {
        WatchFor([] { return HasThread("control"); });
    } else if (fault.phase == "commit") {
        WatchFor(IsCommitting);
    }
}

/// Ranks of which one has nothing to do and returns, while the others wait for it.
int RunRanksThatReturn(const char* program) {
    FLAGS_logtostderr = true;
    google::InitGoogleLogging(program);
    const comm::ProcessPlace place = comm::ReadProcessPlace();
    try {
        comm::RunRanks({.shape = {.pipeline = place.num_processes}, .process = place, .timeout_s = 6.0},
                       [](const comm::Mesh& mesh) {
                           mesh.world->Barrier();
                           if (mesh.rank == TheFault().rank) {
                               TellThatItHappens();
                               return;
                           }
                           mesh.world->Barrier();
                       });
        return 0;
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return error.exit_code();
    }
}

}  // namespace
}  // namespace infini_train::test

int main(int argc, char** argv) {
    if (infini_train::test::TheFault().kind == "return") {
        return infini_train::test::RunRanksThatReturn(argv[0]);
    }
    infini_train::test::StartWatching();
    return infini_train::RunProgram(argc, argv, infini_train::test::MakeFaultyModel);
}
