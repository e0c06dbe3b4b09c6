#include <string>

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/env.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/gloo_backend.h"
#include "infini_train/src/comm/nccl_backend.h"

namespace infini_train::comm {
namespace {

std::string GpusText(int num_gpus) {
    return StrCat(num_gpus, num_gpus == 1 ? " GPU" : " GPUs");
}

[[noreturn]] void ThrowCopyBetweenProcesses(const RanksOptions& options, const char* other_transport) {
    throw Error({.where = "--transport copy",
                 .what = "ranks that are processes cannot read each other's memory",
                 .got = StrCat(options.process.num_processes, " processes"),
                 .wanted = StrCat("--transport ", other_transport, ", or one process with --nthread_per_process")});
}

/// NCCL wants a GPU for each rank, unless the ranks are processes that it takes for hosts of their own.
TransportChoice ChooseOnGpus(const RanksOptions& options) {
    const int num_gpus = NumCudaDevices();
    const int num_threads = options.num_ranks_of_process();
    const bool has_processes = options.process.num_processes > 1;
    const bool fits = num_threads * options.process.num_local <= num_gpus;
    const bool is_nccl_built = nccl_backend.make_world != nullptr;
    if (options.transport == Transport::kGloo) {
        throw Error({.where = "--transport gloo", .what = "gloo carries tensors of CPUs", .got = "--device cuda"});
    }
    if (options.transport == Transport::kCopy && has_processes) {
        ThrowCopyBetweenProcesses(options, "nccl");
    }
    if (options.transport == Transport::kCopy || (!has_processes && options.transport == Transport::kAuto && !fits)) {
        return {
            .transport = Transport::kCopy,
            .note = fits ? "" : StrCat("transport: copy, since ", num_threads, " ranks share ", GpusText(num_gpus))};
    }
    if (!has_processes && options.transport == Transport::kAuto && !is_nccl_built) {
        return {.transport = Transport::kCopy};
    }
    if (!is_nccl_built) {
        throw Error({.where = "--transport nccl",
                     .what = "this build has no NCCL; configure with -DINFINI_USE_CUDA=ON -DINFINI_USE_NCCL=ON"});
    }
    if (!fits && (num_threads > 1 || !ReadEnv("NCCL_HOSTID").has_value())) {
        throw Error({.where = "--transport nccl",
                     .what = StrCat("NCCL takes one rank a GPU of one process; start the ranks as processes: "
                                    "scripts/run_local.sh -n ",
                                    options.shape.num_ranks(), " -- PROGRAM ..."),
                     .got = StrCat(num_threads * options.process.num_local, " ranks on ", GpusText(num_gpus))});
    }
    return {.transport = Transport::kNccl};
}

TransportChoice ChooseOnCpus(const RanksOptions& options) {
    const bool has_processes = options.process.num_processes > 1;
    if (options.transport == Transport::kNccl) {
        throw Error({.where = "--transport nccl", .what = "NCCL carries tensors of GPUs", .got = "--device cpu"});
    }
    if (options.transport == Transport::kCopy && has_processes) {
        ThrowCopyBetweenProcesses(options, "gloo");
    }
    if (options.transport == Transport::kGloo && !has_processes) {
        throw Error({.where = "--transport gloo",
                     .what = "gloo connects processes",
                     .got = "one process",
                     .wanted = "--transport copy, or processes that a launcher starts"});
    }
    if (has_processes && gloo_backend.make_world == nullptr) {
        throw Error({.where = options.process.launcher,
                     .what = "ranks that are processes on CPUs need gloo, which this build does not have; configure "
                             "with -DINFINI_USE_GLOO=ON, or use one process with --nthread_per_process",
                     .got = StrCat(options.process.num_processes, " processes")});
    }
    return {.transport = has_processes ? Transport::kGloo : Transport::kCopy};
}

}  // namespace

Transport ParseTransport(std::string_view name) {
    if (name == "auto") {
        return Transport::kAuto;
    }
    if (name == "nccl") {
        return Transport::kNccl;
    }
    if (name == "gloo") {
        return Transport::kGloo;
    }
    if (name == "copy") {
        return Transport::kCopy;
    }
    throw Error(
        {.where = "--transport", .what = "unknown", .got = std::string(name), .wanted = "auto, nccl, gloo or copy"});
}

TransportChoice ChooseTransport(const RanksOptions& options) {
    const int num_ranks = options.shape.num_ranks();
    if (num_ranks % options.process.num_processes != 0) {
        throw Error({.where = options.process.launcher,
                     .what = "the ranks do not divide among the processes",
                     .got = StrCat(num_ranks, " ranks, ", options.process.num_processes, " processes")});
    }
    if (num_ranks == 1) {
        return {.transport = Transport::kCopy};
    }
    if (options.device == DeviceType::kCUDA) {
        return ChooseOnGpus(options);
    }
    return ChooseOnCpus(options);
}

}  // namespace infini_train::comm
