//! All keys of fio, each in one of three classes: it runs, it is not done and that is
//! told, or it is refused, since it would change results and is not followed.
//!
//! Guarantees: a key that fio 3 has is in exactly one class ([`class`]), by its name or by
//! another name of it ([`plain`]); a test goes over them all. Nothing here fails.

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It is followed.
    Runs,
    /// It is not done, for this reason, which the report tells.
    Told(&'static str),
    /// It would change results: refused unless it has fio's default, with what does the
    /// same here.
    Refused {
        /// The values with which nothing changes.
        default: &'static [&'static str],
        /// What does the same.
        instead: &'static str,
    },
}

/// Keys that are followed.
const RUNS: &[&str] = &[
    "bs",
    "bsrange",
    "bssplit",
    "description",
    "direct",
    "buffered",
    "directory",
    "fdatasync",
    "filename",
    "fsync",
    "group_reporting",
    "io_size",
    "iodepth",
    "ioengine",
    "kb_base",
    "loops",
    "name",
    "new_group",
    "norandommap",
    "number_ios",
    "numjobs",
    "offset",
    "offset_increment",
    "percentile_list",
    "ramp_time",
    "randseed",
    "random_distribution",
    "rate",
    "rate_iops",
    "rate_process",
    "runtime",
    "rw",
    "rwmixread",
    "rwmixwrite",
    "size",
    "stonewall",
    "thinktime",
    "thinktime_blocks",
    "time_based",
    "uri",
    "verify",
];

const CONTENT: &str = "the program writes data of its own, which its drives do not look at";
const HOST: &str = "it is about the host's threads and memory, and a run here has one thread";
const FILES: &str = "there is a drive, and no files are made, opened or taken away";
const LOGS: &str = "no logs are written: `ssdkit bench --json` has a row for each second";
const ALWAYS: &str = "what is told is always the same";
const ENGINE: &str = "it is about an engine of fio's: the drive's name says how it is driven";
const REPEATS: &str = "runs always repeat: another randseed= gives another run";
const CHECKS: &str = "verify= checks each request and reads back all that was written";
const ERRORS: &str = "a run goes on after an error, tells it and fails at its end";
const REPLAY: &str = "it is of read_iolog=, which is refused";
const ZONES: &str = "it is of zonemode=, which is refused";
const GROUPS: &str = "control groups and users are of the host: start the program in them";

/// Keys that are not done.
const TOLD: &[(&str, &str)] = &[
    ("allow_file_create", FILES),
    ("allow_mounted_write", "what is on a drive is written over with --destroy alone"),
    ("allrandrepeat", REPEATS),
    ("block_error_percentiles", ALWAYS),
    ("buffer_compress_chunk", CONTENT),
    ("buffer_compress_percentage", CONTENT),
    ("buffer_pattern", CONTENT),
    ("bwavgtime", "samples are of a second of drive time each"),
    ("cgroup", GROUPS),
    ("cgroup_nodelete", GROUPS),
    ("cgroup_weight", GROUPS),
    ("clat_percentiles", ALWAYS),
    ("clocksource", "--clock says whose time it is"),
    ("cpumask", HOST),
    ("cpus_allowed", HOST),
    ("cpus_allowed_policy", HOST),
    ("create_fsync", FILES),
    ("create_on_open", FILES),
    ("create_serialize", FILES),
    ("dedupe_global", CONTENT),
    ("dedupe_mode", CONTENT),
    ("dedupe_percentage", CONTENT),
    ("dedupe_working_set_percentage", CONTENT),
    ("disable_bw_measurement", ALWAYS),
    ("disable_clat", ALWAYS),
    ("disable_lat", ALWAYS),
    ("disable_slat", ALWAYS),
    ("disk_util", "the host's counters are not read"),
    ("do_verify", CHECKS),
    ("error_dump", ERRORS),
    ("exitall_on_error", ERRORS),
    ("continue_on_error", ERRORS),
    ("ignore_error", ERRORS),
    ("experimental_verify", CHECKS),
    ("fadvise_hint", "the system is told nothing"),
    ("fallocate", FILES),
    ("filename_format", FILES),
    ("fixedbufs", ENGINE),
    ("force_async", ENGINE),
    ("fsync_on_close", FILES),
    ("gid", GROUPS),
    ("gtod_cpu", HOST),
    ("gtod_reduce", ALWAYS),
    ("hipri", ENGINE),
    ("hipri_percentage", ENGINE),
    ("hugepage-size", HOST),
    ("iomem_align", HOST),
    ("invalidate", "the page cache is not emptied: direct=1 passes it"),
    ("iopsavgtime", "samples are of a second of drive time each"),
    ("ioscheduler", "the host's scheduler is not changed: set it before"),
    ("lat_percentiles", ALWAYS),
    ("lockfile", FILES),
    ("lockmem", HOST),
    ("log_alternate_epoch", LOGS),
    ("log_alternate_epoch_clock_id", LOGS),
    ("log_avg_msec", LOGS),
    ("log_compression", LOGS),
    ("log_compression_cpus", LOGS),
    ("log_entries", LOGS),
    ("log_hist_coarseness", LOGS),
    ("log_hist_msec", LOGS),
    ("log_max_value", LOGS),
    ("log_offset", LOGS),
    ("log_prio", LOGS),
    ("log_store_compressed", LOGS),
    ("log_unix_epoch", LOGS),
    ("mem", HOST),
    ("nice", HOST),
    ("nonvectored", ENGINE),
    ("numa_cpu_nodes", HOST),
    ("numa_mem_policy", HOST),
    ("openfiles", FILES),
    ("opendir", FILES),
    ("per_job_logs", LOGS),
    ("random_generator", "addresses are drawn by the program's own generator"),
    ("randrepeat", REPEATS),
    ("rate_ignore_thinktime", "a rate and pauses are not taken together"),
    ("refill_buffers", CONTENT),
    ("registerfiles", ENGINE),
    ("replay_align", REPLAY),
    ("replay_no_stall", REPLAY),
    ("replay_redirect", REPLAY),
    ("replay_scale", REPLAY),
    ("replay_skip", REPLAY),
    ("replay_time_scale", REPLAY),
    ("read_iolog_chunked", REPLAY),
    ("merge_blktrace_iters", REPLAY),
    ("merge_blktrace_scalars", REPLAY),
    ("scramble_buffers", CONTENT),
    ("significant_figures", ALWAYS),
    ("slat_percentiles", ALWAYS),
    ("softrandommap", "no map of blocks is kept in memory"),
    ("sqthread_poll", ENGINE),
    ("sqthread_poll_cpu", ENGINE),
    ("thinktime_blocks_type", "a pause is after so many requests that have ended"),
    ("thp", HOST),
    ("thread", HOST),
    ("trim_verify_zero", CHECKS),
    ("uid", GROUPS),
    ("unified_rw_reporting", ALWAYS),
    ("unique_filename", FILES),
    ("unit_base", ALWAYS),
    ("unlink", FILES),
    ("unlink_each_loop", FILES),
    ("userspace_reap", ENGINE),
    ("verify_async", CHECKS),
    ("verify_async_cpus", CHECKS),
    ("verify_dump", CHECKS),
    ("verify_fatal", ERRORS),
    ("verify_interval", CHECKS),
    ("verify_offset", CHECKS),
    ("verify_state_save", FILES),
    ("write_barrier", "obsolete in fio, too"),
    ("write_bw_log", LOGS),
    ("write_hint", "drives here take placements by `ssdkit bench --placement`"),
    ("write_hist_log", LOGS),
    ("write_iops_log", LOGS),
    ("write_lat_log", LOGS),
    ("zero_buffers", CONTENT),
    ("read_beyond_wp", ZONES),
    ("ignore_zone_limits", ZONES),
    ("job_max_open_zones", ZONES),
    ("max_open_zones", ZONES),
    ("zone_reset_frequency", ZONES),
    ("zone_reset_threshold", ZONES),
    ("zonecapacity", ZONES),
];

const OFF: &[&str] = &["0"];
const NEVER: &[&str] = &[];
const BATCH: &str = "`ssdkit bench --batch N` sends those of one load together";
const FIRST: &str = "stonewall begins a job when those before it have ended";
const TRIMS: &str = "`rw=randtrim` trims alone";
const LATENCY: &str = "`ssdkit test open-loop` finds the rate that a drive sustains";
const PRIO: &str = "requests have no priority of their own here";
const RUNNING: &str = "nothing is run beside: do it before and after";
const ALIGNED: &str = "addresses are multiples of the smallest size; leave it out";
const FLOW: &str = "give each job a rate_iops=";
const STEADY: &str = "`ssdkit bench --precondition steady` runs a load until it is steady";
const SEVERAL: &str = "a job uses one drive: write a job for each part, with offset= and size=";
const ONLY_ENGINE: &str = "it is of an engine that does no requests of blocks";
const TRACES: &str = "`ssdkit replay` replays traces";
const NO_ZONES: &str = "drives here have no zones";

/// Keys that would change results.
const REFUSED: &[(&str, &[&str], &str)] = &[
    ("atomic", OFF, "writes of a block are whole here, of several not"),
    ("ba", NEVER, ALIGNED),
    ("cmd_type", &["rw"], "commands of NVMe are not passed through"),
    ("cmdprio", OFF, PRIO),
    ("cmdprio_bssplit", NEVER, PRIO),
    ("cmdprio_class", OFF, PRIO),
    ("cmdprio_percentage", OFF, PRIO),
    ("cpuload", NEVER, ONLY_ENGINE),
    ("cpumode", NEVER, ONLY_ENGINE),
    ("create_only", OFF, "nothing is made before: `ssdkit create` makes a drive file"),
    ("end_fsync", OFF, "fsync=N flushes after every N writes"),
    ("exec_postrun", NEVER, RUNNING),
    ("exec_prerun", NEVER, RUNNING),
    ("exit_on_io_done", OFF, ONLY_ENGINE),
    ("exit_what", &["group"], FIRST),
    ("exitall", OFF, FIRST),
    ("file_append", OFF, "offset= says where it begins"),
    ("file_service_type", NEVER, SEVERAL),
    ("filesize", NEVER, "size= is what is used of the drive"),
    ("fill_device", OFF, "without size= all of the drive is used, once"),
    ("flow", OFF, FLOW),
    ("flow_id", NEVER, FLOW),
    ("flow_sleep", OFF, FLOW),
    ("hostname", NEVER, ONLY_ENGINE),
    ("interface", NEVER, ONLY_ENGINE),
    (
        "io_submit_mode",
        &["inline"],
        "requests are submitted by who asks: rate_iops= has them come when due",
    ),
    ("iodepth_batch", &["1"], BATCH),
    ("iodepth_batch_complete_max", &["1"], BATCH),
    ("iodepth_batch_complete_min", &["1"], BATCH),
    ("iodepth_low", NEVER, BATCH),
    ("latency_percentile", &["100"], LATENCY),
    ("latency_run", OFF, LATENCY),
    ("latency_target", OFF, LATENCY),
    ("latency_window", OFF, LATENCY),
    ("listen", NEVER, ONLY_ENGINE),
    (
        "max_latency",
        OFF,
        "a run ends with its work or its time: the report has the longest latency",
    ),
    ("merge_blktrace_file", NEVER, TRACES),
    ("mss", NEVER, ONLY_ENGINE),
    ("nodelay", NEVER, ONLY_ENGINE),
    ("nowait", OFF, "a request that would wait, waits"),
    ("nrfiles", &["1"], SEVERAL),
    ("offset_align", OFF, ALIGNED),
    ("overwrite", OFF, "--precondition seq writes the drive before"),
    (
        "percentage_random",
        &["100"],
        "rw=randread and the like are random, rw=read and the like in order",
    ),
    ("pingpong", NEVER, ONLY_ENGINE),
    ("port", NEVER, ONLY_ENGINE),
    ("pre_read", OFF, "nothing is read before; ramp_time= is not counted"),
    ("prio", OFF, PRIO),
    ("prioclass", OFF, PRIO),
    ("profile", NEVER, "fio's profiles make jobs of their own: write them in the file"),
    ("protocol", NEVER, ONLY_ENGINE),
    ("rate_cycle", &["1000"], "a rate is kept at equal distances"),
    ("rate_iops_min", OFF, "a run ends with its work or its time: the report has the rate"),
    ("rate_min", OFF, "a run ends with its work or its time: the report has the rate"),
    ("read_iolog", NEVER, TRACES),
    ("readfua", OFF, "reads do not force anything"),
    ("rw_sequencer", &["sequential"], "one address after the other"),
    ("serialize_overlap", OFF, "requests that overlap may be out at the same time"),
    ("sg_write_mode", &["write"], "writes are plain writes"),
    ("startdelay", OFF, FIRST),
    ("stats", &["1"], "figures of all jobs are told: leave those of this one aside"),
    ("steadystate", NEVER, STEADY),
    ("steadystate_duration", OFF, STEADY),
    ("steadystate_ramp_time", OFF, STEADY),
    ("stream_id", OFF, "`ssdkit bench --placement` tells drives with streams what is hot"),
    ("sync", &["0", "none"], "`ssdkit bench --fua-every 1`; fsync=1 flushes after each write"),
    ("sync_file_range", NEVER, "fsync=N flushes after every N writes"),
    ("thinktime_iotime", OFF, "thinktime_blocks= says how many requests come between pauses"),
    ("thinktime_spin", OFF, "a pause here takes no processor: leave it out"),
    ("trim_backlog", OFF, TRIMS),
    ("trim_backlog_batch", OFF, TRIMS),
    ("trim_percentage", OFF, TRIMS),
    ("ttl", NEVER, ONLY_ENGINE),
    ("uncached", OFF, "direct=1 passes the page cache"),
    ("verify_backlog", OFF, "what was written is read back at the end"),
    ("verify_backlog_batch", OFF, "what was written is read back at the end"),
    ("verify_only", OFF, "what a run here has not written it does not know"),
    ("verify_pattern", NEVER, "verify=crc32c and the like check as much"),
    ("verify_state_load", OFF, "what a run here has not written it does not know"),
    ("wait_for", NEVER, FIRST),
    ("window_size", NEVER, ONLY_ENGINE),
    ("write_iolog", NEVER, "`ssdkit bench --trace FILE` writes down each request's times"),
    ("writefua", OFF, "`ssdkit bench --fua-every 1`"),
    ("zonemode", &["none"], NO_ZONES),
    ("zonerange", OFF, NO_ZONES),
    ("zonesize", OFF, NO_ZONES),
    ("zoneskip", OFF, NO_ZONES),
    ("bs_unaligned", OFF, ALIGNED),
    ("bs_is_seq_rand", OFF, "bs= gives sizes of reads, writes and trims"),
];

/// Other names of keys, as fio has them.
const ALIASES: &[(&str, &str)] = &[
    ("blockalign", "ba"),
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("blocksize_unaligned", "bs_unaligned"),
    ("disable_bw", "disable_bw_measurement"),
    ("fileoffset", "offset"),
    ("fill_fs", "fill_device"),
    ("io_limit", "io_size"),
    ("iodepth_batch_complete", "iodepth_batch_complete_min"),
    ("iodepth_batch_submit", "iodepth_batch"),
    ("iomem", "mem"),
    ("mem_align", "iomem_align"),
    ("nr_files", "nrfiles"),
    ("ratecycle", "rate_cycle"),
    ("ratemin", "rate_min"),
    ("readwrite", "rw"),
    ("ss", "steadystate"),
    ("ss_dur", "steadystate_duration"),
    ("ss_ramp", "steadystate_ramp_time"),
    ("timeout", "runtime"),
    ("wait_for_previous", "stonewall"),
];

/// Whether what is not done is not asked for, either: runs that repeat do.
pub fn is_so(plain: &str, value: Option<&str>) -> bool {
    matches!(plain, "randrepeat" | "allrandrepeat") && value.is_none_or(|value| value == "1")
}

/// The name of a key by which it is known here.
pub fn plain(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, plain)| plain)
}

/// What becomes of a key by its plain name; none where fio has no such key.
pub fn class(plain: &str) -> Option<Class> {
    if RUNS.contains(&plain) {
        return Some(Class::Runs);
    }
    if let Some((_, why)) = TOLD.iter().find(|(name, _)| *name == plain) {
        return Some(Class::Told(why));
    }
    let refused = REFUSED.iter().find(|(name, ..)| *name == plain);
    refused.map(|&(_, default, instead)| Class::Refused { default, instead })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fio --cmdhelp=all` of fio 3.33 names, and `--enghelp` of libaio, io_uring,
    /// pvsync2, sg, mmap, nbd, net and cpuio.
    const FIO: &str = include_str!("keys.txt");

    /// It is fio's default, and what is done: nothing is to be told.
    #[test]
    fn runs_that_are_to_repeat_do() {
        for (value, so) in [(None, true), (Some("1"), true), (Some("0"), false)] {
            assert_eq!(is_so("randrepeat", value), so);
        }
        assert!(!is_so("refill_buffers", None));
    }

    #[test]
    fn each_key_of_fio_is_in_one_class() {
        for name in FIO.split_whitespace() {
            let plain = plain(name);
            let places = [
                RUNS.iter().filter(|known| **known == plain).count(),
                TOLD.iter().filter(|(known, _)| *known == plain).count(),
                REFUSED.iter().filter(|(known, ..)| *known == plain).count(),
            ];
            assert_eq!(places.iter().sum::<usize>(), 1, "{name}: {places:?}");
        }
    }

    #[test]
    fn each_key_here_is_one_of_fio_s() {
        let own = RUNS.iter().chain(TOLD.iter().map(|(name, _)| name));
        let own = own.chain(REFUSED.iter().map(|(name, ..)| name));
        let own = own.chain(ALIASES.iter().flat_map(|(alias, plain)| [alias, plain]));
        // Of later versions of fio, and aliases that its help does not tell.
        let later = ["softrandommap", "verify_async_cpus"];
        for name in own {
            let known = FIO.split_whitespace().any(|fio| fio == *name);
            assert!(known || later.contains(name), "fio has no {name}");
        }
    }
}
