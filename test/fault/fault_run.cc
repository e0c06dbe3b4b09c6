#include "test/fault/fault_run.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "glog/logging.h"

#include "infini_train/include/common/str_cat.h"
#include "test/comm/processes.h"

namespace infini_train::test {
namespace {

const std::string kWorker = std::string(INFINI_BINARY_DIR) + "/tests/fault_worker";
constexpr unsigned kAlarmS = 90;  // ends a process that hangs
constexpr double kStartS = 60.0;  // in which the fault happens

void Rest() {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

double SecondsSince(FaultRun::Clock::time_point time) {
    return std::chrono::duration<double>(FaultRun::Clock::now() - time).count();
}

/// The sockets that listen in the network of a process, by inode.
std::set<std::string> Listeners(const std::string& proc) {
    std::set<std::string> inodes;
    for (const char* name : {"/net/tcp", "/net/tcp6"}) {
        std::ifstream table(proc + name);
        std::string line;
        std::getline(table, line);  // the names of the columns
        while (std::getline(table, line)) {
            std::istringstream columns(line);
            const std::vector<std::string> words{std::istream_iterator<std::string>(columns), {}};
            constexpr const char* kListens = "0A";
            if (words.size() > 9 && words[3] == kListens) {
                inodes.insert(words[9]);
            }
        }
    }
    return inodes;
}

/// The files that a process has open or mapped and whose names begin so: the rest of each name.
std::set<std::string> OpenFiles(const std::string& proc, const std::string& begin) {
    std::set<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd", none)) {
        const std::string name = std::filesystem::read_symlink(entry.path(), none).string();
        if (name.starts_with(begin)) {
            names.insert(name.substr(begin.size()));
        }
    }
    std::ifstream maps(proc + "/maps");
    for (std::string line; std::getline(maps, line);) {
        if (const size_t place = line.find(begin); place != std::string::npos) {
            names.insert(line.substr(place + begin.size()));
        }
    }
    return names;
}

void WriteTokens(const std::string& path) {
    std::string text;
    uint32_t state = 1;
    while (text.size() < 2000) {
        state = state * 1664525u + 1013904223u;
        text += static_cast<char>('a' + (state >> 24) % 26);
    }
    WriteTextFile(path, text);
}

std::vector<std::string> TrainingWords(const std::string& tokens, const std::string& save, const std::string& load) {
    std::vector<std::string> words = {"--device",
                                      "cpu",
                                      "--input_bin",
                                      tokens,
                                      "--input_val_bin",
                                      tokens,
                                      "--val_loss_every",
                                      "2",
                                      "--batch_size",
                                      "2",
                                      "--save",
                                      save,
                                      "--sequence_length",
                                      "16",
                                      "--save_every",
                                      "1",
                                      "--num_iteration",
                                      load.empty() ? "4" : "6",
                                      "--val_batches",
                                      "2",
                                      "--total_batch_size",
                                      "128",
                                      "--sample_every",
                                      "2",
                                      "--prompt",
                                      "Once",
                                      "--text_length",
                                      "6",
                                      "--threads_per_rank",
                                      "1"};
    const std::vector<std::string> start =
        load.empty() ? std::vector<std::string>{"--model", "tiny"} : std::vector<std::string>{"--load", load};
    words.insert(words.end(), start.begin(), start.end());
    return words;
}

}  // namespace

WholeRun::WholeRun() {
    WriteTokens(folder_.File("tokens.txt"));
    std::vector<std::string> words = TrainingWords(folder_.File("tokens.txt"), checkpoint(), "");
    words.insert(words.end(), {"--metrics_file", metrics()});
    const ProgramResult result = RunProgram(kWorker, words);
    CHECK_EQ(result.exit_code, 0) << result.err;
}

std::vector<pid_t> ProcessesOfJob(const std::string& job_id) {
    std::vector<pid_t> pids;
    const std::string variable = std::string(1, '\0') + "INFINI_JOB_ID=" + job_id + std::string(1, '\0');
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
        const std::string name = entry.path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos) {
            continue;
        }
        std::ifstream file(entry.path() / "environ", std::ios::binary);  // that of a zombie is empty
        std::ostringstream environment;
        environment << '\0' << file.rdbuf();
        if (environment.str().find(variable) != std::string::npos) {
            pids.push_back(std::stoi(name));
        }
    }
    return pids;
}

FaultRun::FaultRun(const FaultRunOptions& options)
    : options_(options),
      save_(folder_.File("save")),
      fault_file_(folder_.File("fault")),
      port_(comm::FreePort()),
      job_id_(StrCat("fault-", getpid(), "-", port_)),
      processes_(static_cast<size_t>(options.num_processes)),
      since_(Clock::now()) {
    WriteTokens(folder_.File("tokens.txt"));
    // In the rendezvous the fault happens while one of the others is still to come.
    const int last = options.num_processes - 1;
    const int held_back = options.phase == "rendezvous" ? (options.faulty_process() == last ? last - 1 : last) : -1;
    for (int process = 0; process < options.num_processes; ++process) {
        if (process != held_back) {
            Start(process);
        }
    }
    while (!Happened() && SecondsSince(since_) < kStartS) {
        CollectAll();
        if (std::all_of(processes_.begin(), processes_.end(), [](const Process& p) { return p.has_ended; })) {
            break;
        }
        Rest();
    }
    if (held_back >= 0) {
        Start(held_back);
    }
}

FaultRun::~FaultRun() {
    for (Process& process : processes_) {
        if (process.pid > 0 && !process.has_ended) {
            kill(process.pid, SIGKILL);
            Collect(&process, 0);
        }
    }
    for (const pid_t pid : ProcessesOfJob(job_id_)) {
        kill(pid, SIGKILL);
    }
}

void FaultRun::Start(int process) {
    std::vector<std::string> words = options_.wrap ? options_.wrap(process) : std::vector<std::string>();
    words.push_back(kWorker);
    for (const std::vector<std::string>& more :
         {TrainingWords(folder_.File("tokens.txt"), save_, options_.load),
          {"--timeout_s", StrCat(options_.timeout_s), "--nthread_per_process", StrCat(options_.num_threads),
           "--pipeline_parallel", StrCat(options_.num_processes * options_.num_threads)},
          options_.words}) {
        words.insert(words.end(), more.begin(), more.end());
    }
    std::vector<std::string> variables = {StrCat("RANK=", process),
                                          StrCat("WORLD_SIZE=", options_.num_processes),
                                          StrCat("LOCAL_RANK=", process),
                                          StrCat("LOCAL_WORLD_SIZE=", options_.num_processes),
                                          "MASTER_ADDR=" + options_.master_address,
                                          StrCat("MASTER_PORT=", port_),
                                          "INFINI_JOB_ID=" + job_id_,
                                          StrCat("FAULT=", options_.phase, " ", options_.kind, " ", options_.rank),
                                          "FAULT_FILE=" + fault_file_,
                                          "FAULT_SAVE=" + save_,
                                          "OMP_WAIT_POLICY=passive"};
    std::vector<char*> argv;
    for (std::string& word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    const std::string out = folder_.File(StrCat("out", process));
    const std::string err = folder_.File(StrCat("err", process));
    const pid_t child = fork();
    PCHECK(child >= 0) << "fork";
    if (child == 0) {
        alarm(kAlarmS);
        for (std::string& variable : variables) {
            putenv(variable.data());
        }
        dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
        dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
        execvp(argv[0], argv.data());
        _exit(127);
    }
    processes_[static_cast<size_t>(process)].pid = child;
}

bool FaultRun::Collect(Process* process, int options) const {
    int status = 0;
    if (process->pid < 0 || process->has_ended || waitpid(process->pid, &status, options) != process->pid) {
        return false;
    }
    process->has_ended = true;
    process->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    process->seconds = SecondsSince(since_);
    const auto place = static_cast<size_t>(process - processes_.data());
    process->out = ReadTextFile(folder_.File(StrCat("out", place)));
    process->err = ReadTextFile(folder_.File(StrCat("err", place)));
    return true;
}

void FaultRun::CollectAll() {
    for (Process& process : processes_) {
        Collect(&process, WNOHANG);
    }
}

bool FaultRun::Happened() {
    if (has_happened_ || !std::filesystem::exists(fault_file_)) {
        return has_happened_;
    }
    has_happened_ = true;
    since_ = Clock::time_point(Clock::duration(std::stoll(ReadTextFile(fault_file_))));
    for (const Process& process : processes_) {
        if (process.pid > 0 && !process.has_ended) {
            const std::string proc = StrCat("/proc/", process.pid);
            const std::set<std::string> all = Listeners(proc);
            for (const std::string& socket : OpenFiles(proc, "socket:[")) {
                const std::string inode = socket.substr(0, socket.size() - 1);
                if (all.contains(inode)) {
                    listeners_.insert(inode);
                }
            }
            shared_memory_.merge(OpenFiles(proc, "/dev/shm/"));
        }
    }
    return true;
}

void FaultRun::Wait(double limit_s, bool without_the_faulty_one) {
    const auto is_done = [&](const Process& process) {
        const bool is_excepted =
            without_the_faulty_one && &process == &processes_[static_cast<size_t>(options_.faulty_process())];
        return process.has_ended || is_excepted;
    };
    while (SecondsSince(since_) < limit_s && !std::all_of(processes_.begin(), processes_.end(), is_done)) {
        CollectAll();
        Rest();
    }
}

void FaultRun::KillFaulty() {
    Process& faulty = processes_[static_cast<size_t>(options_.faulty_process())];
    if (!faulty.has_ended) {
        kill(faulty.pid, SIGKILL);
        Collect(&faulty, 0);
    }
}

void FaultRun::Signal(int process, int signal) const {
    kill(processes_[static_cast<size_t>(process)].pid, signal);
}

std::string FaultRun::Errors() const {
    std::string text;
    for (size_t process = 0; process < processes_.size(); ++process) {
        const Process& p = processes_[process];
        text += StrCat("--- process ", process, ": ",
                       p.has_ended ? StrCat("code ", p.exit_code, " after ", p.seconds, " s") : "still there", "\n",
                       ReadTextFile(folder_.File(StrCat("err", process))));
    }
    return text;
}

std::string FaultRun::LeftBehind() const {
    std::string left;
    for (const pid_t pid : ProcessesOfJob(job_id_)) {
        left += StrCat("process ", pid, "\n");
    }
    for (const std::string& inode : Listeners("/proc/self")) {
        left += listeners_.contains(inode) ? StrCat("a socket that listens, ", inode, "\n") : "";
    }
    for (const std::string& name : shared_memory_) {
        left += std::filesystem::exists("/dev/shm/" + name) ? "/dev/shm/" + name + "\n" : "";
    }
    return left;
}

ProgramResult FaultRun::GoOn() const {
    return RunProgram(kWorker, TrainingWords(folder_.File("tokens.txt"), folder_.File("gone_on"), save_));
}

}  // namespace infini_train::test
