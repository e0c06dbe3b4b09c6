#include "infini_train/include/common/atomic_file.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "test/support/run_program.h"

namespace infini_train {
namespace {

using test::ReadTextFile;
using test::WriteTextFile;

/// A process of this program that runs f and then waits to be killed.
class Child {
 public:
    explicit Child(const std::function<void()>& f) {
        std::array<int, 2> ready = {};
        EXPECT_EQ(pipe(ready.data()), 0);
        process_ = fork();
        if (process_ == 0) {
            alarm(60);  // should nobody kill it
            f();
            EXPECT_EQ(write(ready[1], "", 1), 1);
            for (;;) {
                pause();
            }
        }
        char byte = 0;
        EXPECT_EQ(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        close(ready[1]);
    }
    ~Child() { Kill(); }

    void Kill() {
        if (process_ > 0) {
            kill(process_, SIGKILL);
            waitpid(process_, nullptr, 0);
            process_ = 0;
        }
    }
    std::string TemporaryNameOf(const std::string& name) const { return name + ".tmp." + std::to_string(process_); }

 private:
    pid_t process_ = 0;
};

class AtomicFileTest : public testing::Test {
 protected:
    std::string Path(const std::string& name) const { return folder_.File(name); }

    std::vector<std::string> Names() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(folder_.File(""))) {
            names.push_back(entry.path().filename().string());
        }
        std::sort(names.begin(), names.end());
        return names;
    }

    void Write(const std::string& name, const std::string& text) const {
        AtomicFile file(Path(name));
        file.Append(text.data(), text.size());
        file.Commit();
    }

    test::TemporaryFolder folder_;
};

using Strings = std::vector<std::string>;

TEST_F(AtomicFileTest, ReplacesAFileWhenItIsCommitted) {
    Write("a", "old");
    AtomicFile file(Path("a"));
    file.Append("new", 3);
    file.Append(" text", 5);
    file.Overwrite(1, "EW", 2);
    file.Finish();
    EXPECT_EQ(ReadTextFile(Path("a")), "old");
    file.Commit();
    EXPECT_EQ(ReadTextFile(Path("a")), "nEW text");
    EXPECT_EQ(Names(), Strings{"a"});
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
    Write("a", "old");
    {
        AtomicFile file(Path("a"));
        file.Append("new", 3);
    }
    {
        AtomicFile file(Path("a"));
        file.Append("new", 3);
        file.Finish();
    }
    EXPECT_EQ(ReadTextFile(Path("a")), "old");
    EXPECT_EQ(Names(), Strings{"a"});
}

TEST_F(AtomicFileTest, RemovesWhatAKilledWriterOfTheSamePathLeft) {
    Write("a", "old");
    AtomicFile* leaked = nullptr;
    Child child([&] {
        leaked = new AtomicFile(Path("a"));
        leaked->Append("half", 4);
    });
    const std::string leftover = child.TemporaryNameOf("a");
    child.Kill();
    EXPECT_EQ(Names(), (Strings{"a", leftover}));
    Write("b", "another path");
    EXPECT_EQ(Names(), (Strings{"a", leftover, "b"}));
    EXPECT_EQ(ReadTextFile(Path("a")), "old");
    Write("a", "new");
    EXPECT_EQ(Names(), (Strings{"a", "b"}));
    EXPECT_EQ(ReadTextFile(Path("a")), "new");
}

TEST_F(AtomicFileTest, LeavesTheFileOfAWriterThatLives) {
    AtomicFile* leaked = nullptr;
    const Child child([&] { leaked = new AtomicFile(Path("a")); });
    Write("a", "new");
    EXPECT_EQ(Names(), (Strings{"a", child.TemporaryNameOf("a")}));
}

TEST_F(AtomicFileTest, RemovesNoFileThatIsNotATemporaryOne) {
    const Strings others = {"a.tmp", "a.tmp.", "a.tmp.12x", "a.tmp.1.2", "ab.tmp.1", "b.tmp.1"};
    for (const std::string& name : others) {
        WriteTextFile(Path(name), "x");
    }
    std::filesystem::create_symlink(Path("b.tmp.1"), Path("a.tmp.3"));
    std::filesystem::create_directory(Path("a.tmp.4"));
    WriteTextFile(Path("a.tmp.2"), "left by a process that is gone");
    WriteTextFile(Path("a.tmp." + std::to_string(getpid())), "left by one that had the same number");
    Write("a", "new");
    EXPECT_EQ(Names(),
              (Strings{"a", "a.tmp", "a.tmp.", "a.tmp.1.2", "a.tmp.12x", "a.tmp.3", "a.tmp.4", "ab.tmp.1", "b.tmp.1"}));
}

TEST_F(AtomicFileTest, IsCompleteWheneverItsWriterIsKilled) {
    const std::string even(100000, 'e');
    const std::string odd(70001, 'o');
    Write("a", even);
    for (int kill_number = 0; kill_number < 30; ++kill_number) {
        const pid_t writer = fork();
        if (writer == 0) {
            for (int i = 0; i < 10000; ++i) {
                Write("a", i % 2 == 0 ? odd : even);
            }
            _exit(0);
        }
        usleep(static_cast<useconds_t>(500 + 700 * kill_number));
        kill(writer, SIGKILL);
        waitpid(writer, nullptr, 0);
        const std::string text = ReadTextFile(Path("a"));
        EXPECT_TRUE(text == even || text == odd) << text.size() << " bytes";
    }
    Write("a", odd);
    EXPECT_EQ(Names(), Strings{"a"});
}

TEST_F(AtomicFileTest, LetsProcessesWriteOnePathAtTheSameTime) {
    std::array<pid_t, 3> writers = {};
    for (pid_t& writer : writers) {
        writer = fork();
        if (writer == 0) {
            alarm(60);
            try {
                for (int i = 0; i < 300; ++i) {
                    Write("a", std::to_string(getpid()));
                }
            } catch (const Error& error) {
                ADD_FAILURE() << error.what();
                _exit(1);
            }
            _exit(0);
        }
    }
    for (const pid_t writer : writers) {
        int status = -1;
        waitpid(writer, &status, 0);
        EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(Names(), Strings{"a"});
}

TEST_F(AtomicFileTest, RefusesASecondWriterInTheSameProcess) {
    const AtomicFile first(Path("a"));
    EXPECT_THROW(AtomicFile(Path("a")), Error);
    EXPECT_EQ(Names().size(), 1u);
}

TEST_F(AtomicFileTest, RefusesPlacesWhereNoFileCanBe) {
    for (const std::string& path : {Path("none/a"), Path(""), std::string("/dev/null")}) {
        EXPECT_THROW(AtomicFile{path}, Error) << path;
    }
}

TEST_F(AtomicFileTest, SaysThatTheDiskTakesNoMore) {
    Write("a", "old");
    struct rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = before;
    small.rlim_cur = 1000;
    std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string message;
    int exit_code = 0;
    try {
        Write("a", std::string(2000, 'x'));
    } catch (const Error& error) {
        message = error.what();
        exit_code = error.exit_code();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, SIG_DFL);
    EXPECT_EQ(message, Path("a") + ": cannot write: File too large");
    EXPECT_EQ(exit_code, 1);
    EXPECT_EQ(ReadTextFile(Path("a")), "old");
    EXPECT_EQ(Names(), Strings{"a"});
}

TEST_F(AtomicFileTest, DiesOnWritesThatCannotBe) {
    AtomicFile file(Path("a"));
    file.Append("text", 4);
    EXPECT_DEATH(file.Overwrite(3, "ab", 2), "bytes from 3");
    file.Finish();
    EXPECT_DEATH(file.Append("x", 1), "finished already");
}

}  // namespace
}  // namespace infini_train
