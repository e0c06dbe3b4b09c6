#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "glog/logging.h"

namespace infini_train::comm {

/// What is logged as a warning while it lives.
class Warnings : public google::LogSink {
 public:
    Warnings() { google::AddLogSink(this); }
    ~Warnings() override { google::RemoveLogSink(this); }

    void send(google::LogSeverity severity, const char* /*path*/, const char* /*file*/, int /*line*/,
              const google::LogMessageTime& /*time*/, const char* message, size_t length) override {
        if (severity != google::GLOG_WARNING) {
            return;
        }
        const std::lock_guard lock(mutex_);
        texts_.emplace_back(message, length);
        has_come_ = true;
        has_come_.notify_all();
    }

    void WaitForFirst() const { has_come_.wait(false); }
    std::vector<std::string> texts() {
        const std::lock_guard lock(mutex_);
        return texts_;
    }

 private:
    std::mutex mutex_;
    std::vector<std::string> texts_;
    std::atomic<bool> has_come_ = false;
};

}  // namespace infini_train::comm
